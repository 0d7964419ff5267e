// The calls that take a batch: while one request is worked on, what the next ones read is fetched.
#include <thread>

#include "index.h"

namespace sestina::drafting {
namespace {

constexpr uint32_t kStatesAhead = 8;  // requests between fetching a cursor's states and using them
constexpr uint32_t kEdgesAhead = 4;

std::string at_row(uint32_t row) { return "row " + std::to_string(row) + ": "; }

}  // namespace

void SuffixIndex::check_batch(const AppendBatch& batch, std::vector<Place>& places) {
  ++calls_;
  if (batch.bounds[0] != 0 || batch.bounds[batch.size] != batch.num_tokens)
    throw Failure(Refusal::kOutOfRange,
                  "bounds must go from 0 to the number of tokens, " + std::to_string(batch.num_tokens));
  check_tokens(batch.tokens, batch.num_tokens);
  for (uint32_t i = 0; i < batch.size; ++i) {
    const int64_t count = batch.bounds[i + 1] - batch.bounds[i];
    if (count < 0 || batch.bounds[i] > batch.num_tokens)
      throw Failure(Refusal::kOutOfRange, at_row(i) + "bounds must not fall");
    places[i] = place(batch.handles[i]);
    places[i].group->check_append(places[i].ordinal, batch.offsets[i], batch.tokens + batch.bounds[i],
                                  static_cast<uint32_t>(count));
    places[i].group->claim(places[i].ordinal, calls_, static_cast<uint32_t>(count));
  }
}

void SuffixIndex::append(const AppendBatch& batch) {
  const std::unique_lock lock(mutex_);
  std::vector<Place> places(batch.size);
  check_batch(batch, places);
  for (const Place& place : places) place.group->last_used = ++clock_;
  make_room(nullptr);
  for (uint32_t i = 0; i < std::min(batch.size, kStatesAhead); ++i)
    places[i].group->automaton().prefetch_states(places[i].group->cursor(places[i].ordinal));
  for (uint32_t i = 0; i < batch.size; ++i) {
    if (i + kStatesAhead < batch.size) {
      const Place& next = places[i + kStatesAhead];
      next.group->automaton().prefetch_states(next.group->cursor(next.ordinal));
    }
    if (i + kEdgesAhead < batch.size && batch.bounds[i + kEdgesAhead] < batch.num_tokens) {
      const Place& next = places[i + kEdgesAhead];
      const uint32_t token = static_cast<uint32_t>(batch.tokens[batch.bounds[i + kEdgesAhead]]);
      next.group->automaton().prefetch_edges(next.group->cursor(next.ordinal), token);
    }
    Group& group = *places[i].group;
    const uint64_t before = group.bytes();
    group.append(places[i].ordinal, batch.offsets[i], batch.tokens + batch.bounds[i],
                 static_cast<uint32_t>(batch.bounds[i + 1] - batch.bounds[i]));
    bytes_ += group.bytes() - before;
  }
}

// Drafts of requests [from, to), packed from `first` on.
void SuffixIndex::draft_range(const DraftBatch& batch, uint32_t from, uint32_t to, int64_t first,
                              const DraftOutput& out) const {
  const auto end_of = [&](uint32_t i) {
    const Place at = place(batch.handles[i]);
    return std::make_pair(&at.group->automaton(), &at.group->cursor(at.ordinal));
  };
  const auto fetch_states = [&](uint32_t i) {
    if (i >= to) return;
    const auto [automaton, cursor] = end_of(i);
    automaton->prefetch_states(*cursor);
  };
  const auto fetch_edges = [&](uint32_t i) {
    if (i >= to) return;
    const auto [automaton, cursor] = end_of(i);
    prefetch_draft(*automaton, cursor->state);
  };
  for (uint32_t i = from; i < from + kStatesAhead; ++i) fetch_states(i);
  for (uint32_t i = from; i < from + kEdgesAhead; ++i) fetch_edges(i);
  for (uint32_t i = from; i < to; ++i) {
    fetch_states(i + kStatesAhead);
    fetch_edges(i + kEdgesAhead);
    const Place at = place(batch.handles[i]);
    Limits limits = batch.limits;
    limits.max_tokens = static_cast<uint32_t>(batch.max_tokens[i]);
    Draft draft;
    make_draft(at.group->automaton(), at.group->cursor(at.ordinal), limits, draft);
    std::copy_n(draft.tokens, draft.size, out.tokens + first);
    std::copy_n(draft.parents, draft.size, out.parents + first);
    std::copy_n(draft.probs, draft.size, out.probs + first);
    out.scores[i] = draft.score;
    out.match_lens[i] = static_cast<int32_t>(draft.match_len);
    out.bounds[i + 1] = draft.size;  // made a bound once all are known
    first += draft.size;
  }
}

void SuffixIndex::draft(const DraftBatch& batch, const DraftOutput& out) {
  const std::shared_lock lock(mutex_);
  std::vector<int64_t> firsts(batch.size + 1, 0);
  for (uint32_t i = 0; i < batch.size; ++i) {
    const Place at = place(batch.handles[i]);
    at.group->live(at.ordinal);
    if (batch.max_tokens[i] < 0 || batch.max_tokens[i] > static_cast<int32_t>(kMaxDraft))
      throw Failure(Refusal::kOutOfRange,
                    at_row(i) + "max_tokens " + std::to_string(batch.max_tokens[i]) + ": must be 0 to 64");
    firsts[i + 1] = firsts[i] + batch.max_tokens[i];
  }
  if (firsts[batch.size] > out.room)
    throw Failure(Refusal::kBufferTooSmall, "room for " + std::to_string(out.room) + " draft tokens, but up to " +
                                                std::to_string(firsts[batch.size]) + " are asked for");
  const uint32_t threads = std::max(1u, std::min(batch.threads, batch.size / kStatesAhead));
  const auto share = [&](uint32_t t) { return static_cast<uint32_t>(uint64_t{batch.size} * t / threads); };
  std::vector<std::thread> workers;
  for (uint32_t t = 1; t < threads; ++t)
    workers.emplace_back([&, t] { draft_range(batch, share(t), share(t + 1), firsts[share(t)], out); });
  draft_range(batch, 0, share(1), 0, out);
  for (std::thread& worker : workers) worker.join();
  out.bounds[0] = 0;
  for (uint32_t t = 0; t < threads; ++t) {
    const int64_t first = firsts[share(t)], to = out.bounds[share(t)];
    for (uint32_t i = share(t); i < share(t + 1); ++i) out.bounds[i + 1] += out.bounds[i];
    const int64_t count = out.bounds[share(t + 1)] - to;
    std::copy_n(out.tokens + first, count, out.tokens + to);
    std::copy_n(out.parents + first, count, out.parents + to);
    std::copy_n(out.probs + first, count, out.probs + to);
  }
}

}  // namespace sestina::drafting
