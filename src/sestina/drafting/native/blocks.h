// All blocks of edges of an automaton, in one arena.
#pragma once

#include "block.h"
#include "pool.h"

namespace sestina::drafting {

class Blocks {
 public:
  // Counts `weight` more of a state's edge by `token`; returns its target, 0 if there is none.
  uint32_t bump(State& state, uint32_t token, uint32_t weight, uint32_t stamp) {
    if (state.kind != kBlock) return bump_only(state, token, weight, stamp);
    Edge* block = &edges_[state.target];
    Edge* edge = block;
    if (state.token > kListed) {
      edge = table_slot(block + kTop, table_bits(state.token), token);
      if (edge->target == 0) return 0;
    } else {
      const Edge* end = block + state.token;
      while (edge->token != token)
        if (++edge == end) return 0;
    }
    const uint32_t target = edge->target;
    edge->count += weight;
    edge->stamp = stamp;
    state.value += weight;
    if (state.token > kListed)
      raise(block, *edge);
    else if (edge != block && edge[-1].count < edge->count)
      sift(block, static_cast<uint32_t>(edge - block));
    return target;
  }

  // Adds an edge that is not there; `position` is where the text has its token.
  void add(State& state, const Edge& edge, uint32_t position) {
    if (state.kind == kLeaf && edge.count == 1) {
      state.token = edge.token;
      state.target = edge.target;
      state.kind = kSingle;
      state.value = position;
    } else {
      insert(state, edge);
    }
  }
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
  static uint32_t num_slots(const State& state) { return capacity(state.token); }

  void prefetch_edge(const State& state, uint32_t token) const {
    if (state.kind != kBlock) return;
    prefetch(best(state));
    if (state.token > kListed) prefetch(slots(state) + first_slot(token, table_bits(state.token)));
  }
  size_t bytes() const { return edges_.bytes(); }

 private:
  static constexpr uint32_t kClasses = 7 + 28;

  static uint32_t capacity(uint32_t edges);
  static uint32_t class_of(uint32_t capacity);

  uint32_t take(uint32_t capacity);
  void give(uint32_t block, uint32_t capacity);
  uint32_t bump_only(State& state, uint32_t token, uint32_t weight, uint32_t stamp) {
    if (state.kind == kLeaf || state.token != token) return 0;
    const uint32_t count = state.total() + weight, target = state.target;
    if (count > kMaxUnary)
      to_block(state, {token, stamp, target, count});
    else if (state.kind == kUnary || weight > 0)
      state.set_unary(count, stamp);
    return target;
  }
  void insert(State& state, const Edge& edge);
  void to_block(State& state, const Edge& edge);
  void append(State& state, const Edge& edge);
  void grow_list(State& state);
  void tabulate(State& state, const Edge& edge);
  Edge* slot(const State& state, uint32_t token) const;

  Pool<Edge> edges_;
  uint32_t free_[kClasses] = {};  // by class: first free block + 1; the next one is in its first edge's target
};

}  // namespace sestina::drafting
