// Blocks of edges, in one arena. Up to kListed edges a block is a list sorted by count; above, it is an open-addressing
// table behind a header that repeats the kTop most frequent ones, sorted. Either way the best edges come first.
#pragma once

#include "pool.h"
#include "state.h"

namespace sestina::drafting {

constexpr uint32_t kListed = 16;
constexpr uint32_t kTop = 8;

class Blocks {
 public:
  // Counts `weight` more of a state's edge by `token`; returns its target, 0 if there is none.
  uint32_t bump(State& state, uint32_t token, uint32_t weight, uint32_t stamp);
  // Adds an edge that is not there.
  void add(State& state, const Edge& edge, uint32_t text_position, uint32_t text_stamp);
  void redirect(State& state, uint32_t token, uint32_t target);
  // The edge by `token`, none if its target is 0.
  Edge find(const State& state, uint32_t token) const;
  // Gives a copied state edges of its own.
  void clone(State& state);

  // The most frequent edges of a block, `leading` of them.
  const Edge* best(const State& state) const { return &edges_[state.target]; }
  static uint32_t leading(const State& state) {
    return state.token <= kListed ? static_cast<uint32_t>(state.token) : kTop;
  }
  // All slots of a block, some empty (target 0).
  const Edge* slots(const State& state) const { return best(state) + (state.token > kListed ? kTop : 0); }
  static uint32_t num_slots(const State& state);

  void prefetch_edge(const State& state, uint32_t token) const;
  size_t bytes() const { return edges_.bytes(); }

 private:
  static constexpr uint32_t kClasses = 7 + 28;

  static uint32_t capacity(uint32_t count);
  static uint32_t class_of(uint32_t capacity);
  static uint32_t slot_of(uint32_t token, uint32_t capacity);

  uint32_t take(uint32_t capacity);
  void give(uint32_t block, uint32_t capacity);
  void to_block(State& state, const Edge& edge);
  void append(State& state, const Edge& edge);
  void grow_list(State& state);
  void tabulate(State& state, uint32_t block, uint32_t capacity, const Edge* edges, uint32_t slots, const Edge& edge);
  void place(uint32_t block, uint32_t capacity, const Edge& edge);
  void raise(uint32_t block, const Edge& edge);
  Edge* slot(uint32_t block, uint32_t capacity, uint32_t token);
  uint32_t bump_list(State& state, uint32_t token, uint32_t weight, uint32_t stamp);
  uint32_t bump_table(State& state, uint32_t token, uint32_t weight, uint32_t stamp);

  Pool<Edge> edges_;
  uint32_t free_[kClasses] = {};  // by class: first free block + 1; the next one is in its first edge's target
};

}  // namespace sestina::drafting
