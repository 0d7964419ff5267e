// A suffix automaton of many streams, built online, in which strings longer than `depth` are their last `depth` tokens.
//
// The cap is what bounds it: an append visits at most `depth` states whatever the size, and text that repeats for
// longer than the cap adds no state. Counts are kept on edges: an append takes, for every suffix of its stream shorter
// than the cap, the edge by the token appended, adding it where it is missing. Those suffixes fall into classes, the
// pointer's state and its links (3 on average), so an exact count costs one increment per class, and the most frequent
// follower of a state stays known.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "blocks.h"
#include "text.h"

namespace sestina::drafting {

// The end of a stream, in half a cache line: the class of its last min(length, depth) tokens, and states of that
// class's chain of links as the last append met them. Hints go stale as other streams split states; they are only ever
// fetched.
struct alignas(32) Cursor {
  static constexpr uint32_t kHints = 6;
  uint32_t state = kRoot;
  uint16_t stamp = 0;  // of the edges it takes
  bool live = true;
  uint32_t hints[kHints] = {};
};

class Automaton {
 public:
  explicit Automaton(uint32_t depth) : depth_(depth) { states_.add(State::make(kNone, 0)); }

  // Appends a token that lies at `position` of the text; `weight` is what it counts.
  void append(Cursor& cursor, uint32_t token, uint32_t weight, uint32_t stamp, uint32_t position);

  // How often a string of 1 to `depth` tokens occurs.
  uint64_t count(const int32_t* tokens, uint32_t length) const;

  uint32_t depth() const { return depth_; }
  const State& state(uint32_t id) const { return states_[id]; }
  const Blocks& blocks() const { return blocks_; }
  const Text& text() const { return text_; }
  Text& text() { return text_; }
  size_t num_edges() const;
  uint32_t num_states() const { return states_.size(); }
  size_t bytes() const { return states_.bytes() + blocks_.bytes() + text_.bytes(); }

  void prefetch_states(const Cursor& cursor) const {
    prefetch(&states_[cursor.state]);
    for (uint32_t hint : cursor.hints)
      if (hint != kRoot) prefetch(&states_[hint]);
  }
  void prefetch_edges(const Cursor& cursor, uint32_t token) const {
    for (uint32_t hint : cursor.hints)
      if (hint != kRoot) blocks_.prefetch_edge(states_[hint], token);
    prefetch_root(token);
  }
  void prefetch_root(uint32_t token) const { blocks_.prefetch_edge(states_[kRoot], token); }

  // The class of the longest suffix of at most `most` tokens, of a string of this class.
  uint32_t suffix(uint32_t state, uint32_t most) const;

  // The first violation of the structure's own rules, empty if there is none.
  std::string check() const;

 private:
  uint32_t start_of(uint32_t state) const;
  void add_edge(uint32_t state, const Edge& edge, uint32_t position);
  uint32_t split(uint32_t state, uint32_t length);
  uint32_t split_off(uint32_t state, uint32_t token, uint32_t from, uint32_t length);

  uint32_t depth_;
  Pool<State> states_;
  Blocks blocks_;
  Text text_;
};

}  // namespace sestina::drafting
