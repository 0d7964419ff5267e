// The tokens of all streams of a group. A stream owns whole segments, so its tokens lie side by side however appends of
// different streams interleave. A position is 30 bits: segment and place in it.
#pragma once

#include <vector>

#include "pool.h"
#include "state.h"

namespace sestina::drafting {

constexpr uint32_t kSegment = 64;
constexpr int32_t kUnwritten = -1;

class Text {
 public:
  // Where the next token of a stream goes; `segments` are the stream's, `length` its tokens so far.
  uint32_t next_position(std::vector<uint32_t>& segments, uint32_t length, uint32_t stamp) {
    if (length % kSegment == 0) open_segment(segments, stamp);
    return segments.back() * kSegment + length % kSegment;
  }
  void write(uint32_t position, int32_t token) { tokens_[position] = token; }
  int32_t operator[](uint32_t position) const { return tokens_[position]; }

  // The position after this one in the same stream; kNone at the end of its last segment.
  uint32_t after(uint32_t position) const {
    if (++position % kSegment != 0) return position;
    const uint32_t next = heads_[position / kSegment - 1].next;
    return next == kNone ? kNone : next * kSegment;
  }
  uint32_t stamp(uint32_t position) const { return heads_[position / kSegment].stamp; }
  void prefetch_at(uint32_t position) const { prefetch(&tokens_[position]); }

  uint32_t size() const { return tokens_.size(); }
  size_t bytes() const { return tokens_.bytes() + heads_.bytes(); }

 private:
  struct Head {
    uint32_t next;
    uint32_t stamp;
  };

  void open_segment(std::vector<uint32_t>& segments, uint32_t stamp) {
    const uint32_t first = tokens_.take(kSegment);
    for (uint32_t i = 0; i < kSegment; ++i) tokens_[first + i] = kUnwritten;
    const uint32_t segment = heads_.add({kNone, stamp});
    if (!segments.empty()) heads_[segments.back()].next = segment;
    segments.push_back(segment);
  }

  Pool<int32_t> tokens_;
  Pool<Head> heads_;
};

}  // namespace sestina::drafting
