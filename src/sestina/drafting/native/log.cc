// The append log of a group: what a client fetches, and how it replays it.
#include "group.h"

namespace sestina::drafting {
namespace {

uint32_t ordinal_of(uint32_t record) { return record >> 16; }
uint32_t low_of(uint32_t record) { return record & 0xFFFF; }
uint32_t tokens_of(uint32_t record) { return low_of(record) == kStopped ? 0 : low_of(record); }

[[noreturn]] void refuse(Refusal refusal, int64_t group, const std::string& what) {
  throw Failure(refusal, "log of group " + std::to_string(group) + ": " + what);
}

}  // namespace

Slice Group::fetch(uint64_t cursor) const {
  if (cursor > log_.size())
    refuse(Refusal::kGap, id, "cursor " + std::to_string(cursor) + ", but it has " + std::to_string(log_.size()));
  std::vector<uint32_t> offsets(streams_.size());
  for (uint32_t i = 0; i < offsets.size(); ++i) offsets[i] = streams_[i].length;
  for (uint64_t i = cursor; i < log_.size(); ++i) {
    const uint32_t record = log_[static_cast<uint32_t>(i)];
    offsets[ordinal_of(record)] -= tokens_of(record);
  }
  Slice slice;
  for (uint32_t i = static_cast<uint32_t>(cursor); i < log_.size(); ++i) {
    const uint32_t record = log_[i];
    const Stream& stream = streams_[ordinal_of(record)];
    slice.records.push_back(record);
    if (low_of(record) == kStarted) slice.starts.insert(slice.starts.end(), {stream.request, stream.weight});
    for (uint32_t n = tokens_of(record); n > 0; --n)
      slice.tokens.push_back(token(stream, offsets[ordinal_of(record)]++));
  }
  return slice;
}

namespace {

// How much of a slice its first `records` records take.
struct Extents {
  size_t tokens = 0;
  size_t starts = 0;
};

Extents extents(const Slice& slice, uint64_t records) {
  Extents of;
  for (uint64_t i = 0; i < records; ++i) {
    of.tokens += tokens_of(slice.records[i]);
    of.starts += low_of(slice.records[i]) == kStarted ? 2 : 0;
  }
  return of;
}

template <class T>
bool begin_alike(const std::vector<T>& one, const std::vector<T>& other, size_t count) {
  return one.size() >= count && other.size() >= count && std::equal(one.data(), one.data() + count, other.data());
}

}  // namespace

// Records both have must be equal: the same events, the same tokens.
void Group::compare(uint64_t cursor, const Slice& slice, uint64_t known) const {
  const Slice own = fetch(cursor);
  const Extents shared = extents(own, known);
  if (!begin_alike(own.records, slice.records, known) || !begin_alike(own.tokens, slice.tokens, shared.tokens) ||
      !begin_alike(own.starts, slice.starts, shared.starts))
    refuse(Refusal::kConflict, id, "records from " + std::to_string(cursor) + " on differ from those here");
}

// Every record from `known` on must be one this group could have written itself.
void Group::check_records(const Slice& slice, uint64_t known, uint32_t vocab_size) const {
  const Extents all = extents(slice, slice.records.size());
  if (all.tokens != slice.tokens.size() || all.starts != slice.starts.size())
    refuse(Refusal::kOutOfRange, id, "tokens or starts do not fit the records");
  std::vector<bool> live;
  std::unordered_set<int64_t> requests;
  for (const Cursor& cursor : cursors_) live.push_back(cursor.live);
  size_t start = extents(slice, known).starts;
  uint64_t weight = total_weight_;
  std::vector<uint64_t> weights;
  for (const Stream& stream : streams_) weights.push_back(stream.weight);
  for (uint64_t i = known; i < slice.records.size(); ++i) {
    const uint32_t record = slice.records[i], ordinal = ordinal_of(record);
    if (low_of(record) == kStarted) {
      const int64_t request = slice.starts[start], counts = slice.starts[start + 1];
      const bool fits = live.empty() ? request == -1 && counts == 1
                                     : request >= 0 && !ordinals_.count(request) && requests.insert(request).second;
      if (ordinal != live.size() || ordinal >= kMaxStreams || !fits || counts < 0 || counts > kMaxWeight)
        refuse(Refusal::kOutOfRange, id, "record " + std::to_string(i) + " starts what cannot start");
      live.push_back(true);
      weights.push_back(static_cast<uint64_t>(counts));
      start += 2;
    } else {
      if (ordinal >= live.size() || !live[ordinal])
        refuse(Refusal::kOutOfRange, id, "record " + std::to_string(i) + " is of a request that does not run");
      if (low_of(record) == kStopped) live[ordinal] = false;
      weight += tokens_of(record) * std::max<uint64_t>(1, weights[ordinal]);
    }
  }
  for (int32_t token : slice.tokens)
    if (token < 0 || static_cast<uint32_t>(token) >= vocab_size)
      refuse(Refusal::kOutOfRange, id,
             "token " + std::to_string(token) + " of a vocabulary of " + std::to_string(vocab_size));
  if (weight > kMaxCount || num_tokens_ + all.tokens > kMaxText) refuse(Refusal::kFull, id, "too much for one group");
}

void Group::replay(uint64_t cursor, const Slice& slice, uint32_t vocab_size) {
  const uint64_t end = log_end();
  if (cursor > end)
    refuse(Refusal::kGap, id, "records from " + std::to_string(cursor) + ", but " + std::to_string(end) + " are here");
  const uint64_t known = std::min<uint64_t>(slice.records.size(), end - cursor);
  if (known > 0) compare(cursor, slice, known);
  check_records(slice, known, vocab_size);
  Extents at = extents(slice, known);
  for (uint64_t i = known; i < slice.records.size(); ++i) {
    const uint32_t record = slice.records[i];
    if (low_of(record) == kStarted) {
      const int64_t request = slice.starts[at.starts];
      if (request < 0)
        open(request, 1);
      else
        start(request, static_cast<uint32_t>(slice.starts[at.starts + 1]));
      at.starts += 2;
    } else if (low_of(record) == kStopped) {
      stop(ordinal_of(record));
    } else {
      write(ordinal_of(record), slice.tokens.data() + at.tokens, tokens_of(record));
      at.tokens += tokens_of(record);
    }
  }
}

}  // namespace sestina::drafting
