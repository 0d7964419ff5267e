#include "texts.h"

#include <algorithm>

namespace sestina::drafting {

namespace {

// A vector that grows holds somewhat more than it is filled with.
size_t grown(int64_t tokens) { return static_cast<size_t>(tokens) * sizeof(int32_t) * 9 / 8; }
size_t grown_runs(int64_t tokens) { return static_cast<size_t>((tokens + kMaxRun - 1) / kMaxRun) * kRunBytes; }
size_t size_of(const Told& told) { return told.rows.size() * kRowBytes + told.tokens.size() * sizeof(int32_t); }

}  // namespace

void Texts::open(int64_t group, int64_t epoch, double ttl_s, std::string prompt, double now) {
  const size_t bytes = kGroupBytes + prompt.size();
  groups_.emplace(group, Held{epoch, ttl_s, now, std::move(prompt), bytes, {}, {}, {}});
  bytes_ += bytes;
}

void Texts::drop(int64_t group) {
  bytes_ -= groups_.at(group).bytes;
  groups_.erase(group);
}

int Texts::has(int64_t group, double ttl_s, const std::string& prompt, double now) {
  Held* held = find(group);
  if (held == nullptr) return -1;
  held->used_s = now;
  if (held->prompt != prompt) return 0;
  held->ttl_s = std::max(held->ttl_s, ttl_s);
  return 1;
}

void Texts::touch(const Frame& frame, double now) {
  const auto note = [&](int64_t group) {
    if (Held* held = find(group)) held->used_s = now;
  };
  for (size_t i = 0; i < frame.num_asked; ++i) note(frame.asked[i].group);
  for (size_t i = 0; i < frame.num_rows; ++i) note(frame.rows[i].group);
}

Told Texts::exchange(const Frame& frame, size_t budget, size_t room) {
  struct Fetch {
    int64_t group;
    const Held* held;
    int64_t start, end;
    bool fresh, level;
  };
  Told told;
  std::vector<Fetch> fetches;
  for (size_t i = 0; i < frame.num_asked && size_of(told) < budget; ++i, ++told.fetched) {
    const auto [group, epoch, cursor] = frame.asked[i];
    const Held* held = find(group);
    if (held == nullptr) {
      told.unknown.push_back(group);
      continue;
    }
    const int64_t size = static_cast<int64_t>(held->runs.size());
    const bool fresh = epoch != held->epoch;
    const int64_t start = !fresh && cursor <= size ? cursor : 0;
    const int64_t end = copy_since(*held, group, start, budget, told);
    fetches.push_back({group, held, start, end, fresh, end == size});
  }
  const int32_t* tokens = frame.tokens;
  for (size_t i = 0; i < frame.num_rows; tokens += frame.rows[i].length, ++i) update(frame.rows[i], tokens, room, told);
  for (const auto& fetch : fetches) {
    const int64_t size = static_cast<int64_t>(fetch.held->runs.size());
    // A client that is level gets a cursor behind what it brings itself.
    const int64_t end = fetch.level ? size : fetch.end;
    if (fetch.start != size || fetch.fresh) told.states.push_back({fetch.group, fetch.held->epoch, fetch.start, end});
  }
  return told;
}

int64_t Texts::copy_since(const Held& held, int64_t group, size_t cursor, size_t budget, Told& told) const {
  struct Span {
    uint32_t response;
    int64_t first, end;
  };
  std::vector<Span> spans;
  std::unordered_map<uint32_t, size_t> places;
  for (size_t size = size_of(told); cursor < held.runs.size() && size < budget; ++cursor) {
    const Run& run = held.runs[cursor];
    const auto [place, first] = places.emplace(run.response, spans.size());
    if (first) spans.push_back({run.response, run.offset, run.offset});
    spans[place->second].end = run.offset + run.length;
    size += kRowBytes + run.length * sizeof(int32_t);
  }
  for (const Span& span : spans) copy(held.responses[span.response], group, span.first, span.end - span.first, told);
  return static_cast<int64_t>(cursor);
}

void Texts::copy(const Response& response, int64_t group, int64_t offset, int64_t length, Told& told) const {
  told.rows.push_back({group, response.request, offset, length});
  const auto first = response.tokens.begin() + offset;
  told.tokens.insert(told.tokens.end(), first, first + length);
}

void Texts::update(const Row& row, const int32_t* tokens, size_t& room, Told& told) {
  Held* held = find(row.group);
  if (held == nullptr) {
    told.unknown.push_back(row.group);
    return;
  }
  const auto found = held->ordinals.find(row.request);
  const std::vector<int32_t> nothing;
  const std::vector<int32_t>& text = found == held->ordinals.end() ? nothing : held->responses[found->second].tokens;
  const int64_t known = static_cast<int64_t>(text.size());
  Receipt receipt{row.group, row.request, held->epoch, known, 0};
  const int64_t both = std::min(known - row.offset, row.length);
  if (row.offset > known) {
    ++told.gaps;
  } else if (!std::equal(tokens, tokens + both, text.begin() + row.offset)) {
    ++told.conflicts;
    receipt.conflict = 1;
  } else if (row.offset + row.length <= known) {
    ++told.duplicates;
  } else if (kResponseBytes + grown_runs(row.length) + grown(row.length) > room) {
    ++told.refused;
    told.full.push_back(row.group);
  } else {
    room -= extend(*held, row, tokens);
    receipt.count = row.offset + row.length;
  }
  told.receipts.push_back(receipt);
}

size_t Texts::extend(Held& held, const Row& row, const int32_t* tokens) {
  const auto [place, first] = held.ordinals.emplace(row.request, held.responses.size());
  if (first) held.responses.push_back({row.request, {}});
  std::vector<int32_t>& text = held.responses[place->second].tokens;
  const int64_t known = static_cast<int64_t>(text.size()), end = row.offset + row.length;
  text.insert(text.end(), tokens + (known - row.offset), tokens + row.length);
  for (int64_t start = known; start < end; start += kMaxRun) {
    held.runs.push_back({place->second, start, std::min(end - start, kMaxRun)});
  }
  const size_t bytes = first * kResponseBytes + grown_runs(end - known) + grown(end - known);
  held.bytes += bytes;
  bytes_ += bytes;
  return bytes;
}

std::vector<int64_t> Texts::by_use() const {
  std::vector<std::pair<double, int64_t>> order;
  for (const auto& [group, held] : groups_) order.emplace_back(held.used_s, group);
  std::sort(order.begin(), order.end());
  std::vector<int64_t> groups;
  for (const auto& [used_s, group] : order) groups.push_back(group);
  return groups;
}

std::vector<int64_t> Texts::expired(double now) const {
  std::vector<int64_t> groups;
  for (const auto& [group, held] : groups_) {
    if (now - held.used_s > held.ttl_s) groups.push_back(group);
  }
  return groups;
}

Texts::Held* Texts::find(int64_t group) {
  const auto found = groups_.find(group);
  return found == groups_.end() ? nullptr : &found->second;
}

}  // namespace sestina::drafting
