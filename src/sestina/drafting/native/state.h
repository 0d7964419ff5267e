// The records of the automaton. Four states, or five edges, fill a cache line.
#pragma once

#include <cstdint>

namespace sestina::drafting {

constexpr uint32_t kNone = 0xFFFFFFFF;
constexpr uint32_t kRoot = 0;
constexpr uint32_t kMaxToken = (1u << 24) - 1;  // tokens share a word with 8 bits of something else
constexpr uint32_t kMaxDepth = 255;
constexpr uint32_t kMaxCount = (1u << 30) - 1;
constexpr uint32_t kMaxUnary = (1u << 24) - 1;

// One follower of a state: `count` is how often it followed, exactly; the count of a string is that of its last edge.
struct Edge {
  uint32_t token : 24;
  uint32_t stamp : 8;  // the stream that took this edge last
  uint32_t target;     // 0 marks an empty slot: the root is nobody's target
  uint32_t count;
};

enum Kind : uint32_t {
  kLeaf = 0,    // nothing followed yet
  kSingle = 1,  // followed once: `value` is the position of the follower in the text, which goes on from there
  kUnary = 2,   // always the same follower: `value` is 6 bits of stamp and 24 of count
  kBlock = 3,   // several: `target` is a block of edges, `token` their number, `value` the sum of their counts
};

// A class of strings that end at the same places, the longest of them `length` tokens; `link` is the class of their
// longest suffix that ends elsewhere too.
struct State {
  uint32_t link;
  uint32_t token : 24;
  uint32_t length : 8;
  uint32_t target;
  uint32_t kind : 2;
  uint32_t value : 30;

  static State make(uint32_t link, uint32_t length) { return {link, 0, length, 0, kLeaf, 0}; }
  uint32_t unary_count() const { return value & kMaxUnary; }
  uint32_t unary_stamp() const { return value >> 24; }
  void set_unary(uint32_t count, uint32_t stamp) {
    kind = kUnary;
    value = stamp << 24 | count;
  }
  // How often its strings were followed by anything.
  uint32_t total() const { return kind == kSingle ? 1 : kind == kUnary ? unary_count() : kind == kBlock ? value : 0; }
};

static_assert(sizeof(Edge) == 12 && sizeof(State) == 16);

inline void prefetch(const void* line) { __builtin_prefetch(line, 0, 3); }

}  // namespace sestina::drafting
