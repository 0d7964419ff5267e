#include "blocks.h"

#include <algorithm>
#include <cstring>

namespace sestina::drafting {
namespace {

constexpr uint32_t kLists[] = {2, 3, 4, 6, 8, 12, 16};
constexpr uint32_t kListClasses = 7;
constexpr uint32_t kSmallestTable = 32;

// Moves a sorted list's entry up past those of a lower count; equal counts keep their order.
void sift(Edge* list, uint32_t at) {
  const uint32_t count = list[at].count;
  uint32_t to = at;
  while (to > 0 && list[to - 1].count < count) --to;
  if (to == at) return;
  const Edge moved = list[at];
  if (list[to].count == list[at - 1].count) {  // all between are equal: swapping keeps the list sorted
    list[at] = list[to];
  } else {
    std::memmove(list + to + 1, list + to, (at - to) * sizeof(Edge));
  }
  list[to] = moved;
}

}  // namespace

uint32_t Blocks::capacity(uint32_t count) {
  if (count <= kListed) return *std::lower_bound(kLists, kLists + kListClasses, count);
  return 1u << (32 - __builtin_clz(std::max(kSmallestTable, (count * 4 + 2) / 3) - 1));  // at most 3/4 full
}

uint32_t Blocks::num_slots(const State& state) { return capacity(state.token); }

uint32_t Blocks::class_of(uint32_t capacity) {
  if (capacity <= kListed)
    return static_cast<uint32_t>(std::lower_bound(kLists, kLists + kListClasses, capacity) - kLists);
  return kListClasses + static_cast<uint32_t>(__builtin_ctz(capacity / kSmallestTable));
}

uint32_t Blocks::slot_of(uint32_t token, uint32_t capacity) {
  return static_cast<uint32_t>((uint64_t{token * 0x9E3779B1u} * capacity) >> 32);
}

uint32_t Blocks::take(uint32_t capacity) {
  uint32_t& head = free_[class_of(capacity)];
  if (head == 0) return edges_.take(capacity > kListed ? capacity + kTop : capacity);
  const uint32_t block = head - 1;
  head = edges_[block].target;
  return block;
}

void Blocks::give(uint32_t block, uint32_t capacity) {
  uint32_t& head = free_[class_of(capacity)];
  edges_[block].target = head;
  head = block + 1;
}

Edge* Blocks::slot(uint32_t block, uint32_t capacity, uint32_t token) {
  Edge* table = &edges_[block + kTop];
  uint32_t at = slot_of(token, capacity);
  while (table[at].target != 0 && table[at].token != token) at = at + 1 == capacity ? 0 : at + 1;
  return table + at;
}

void Blocks::prefetch_edge(const State& state, uint32_t token) const {
  if (state.kind != kBlock) return;
  prefetch(&edges_[state.target]);
  if (state.token > kListed) prefetch(&edges_[state.target + kTop + slot_of(token, capacity(state.token))]);
}

Edge Blocks::find(const State& state, uint32_t token) const {
  const Edge none{token, 0, 0, 0};
  if (state.kind == kLeaf) return none;
  if (state.kind != kBlock) {
    if (state.token != token) return none;
    return {token, state.kind == kUnary ? state.unary_stamp() : 0, state.target, state.total()};
  }
  if (state.token > kListed) return *const_cast<Blocks*>(this)->slot(state.target, capacity(state.token), token);
  const Edge* list = &edges_[state.target];
  for (uint32_t i = 0; i < state.token; ++i)
    if (list[i].token == token) return list[i];
  return none;
}

uint32_t Blocks::bump(State& state, uint32_t token, uint32_t weight, uint32_t stamp) {
  if (state.kind == kBlock)
    return state.token > kListed ? bump_table(state, token, weight, stamp) : bump_list(state, token, weight, stamp);
  if (state.kind == kLeaf || state.token != token) return 0;
  const uint32_t count = state.total() + weight;
  const uint32_t target = state.target;
  if (count > kMaxUnary) {
    to_block(state, {token, stamp, target, count});
  } else if (state.kind == kUnary || weight > 0) {
    state.set_unary(count, stamp);
  }
  return target;
}

uint32_t Blocks::bump_list(State& state, uint32_t token, uint32_t weight, uint32_t stamp) {
  Edge* list = &edges_[state.target];
  for (uint32_t i = 0; i < state.token; ++i) {
    if (list[i].token != token) continue;
    list[i].count += weight;
    list[i].stamp = stamp;
    state.value += weight;
    const uint32_t target = list[i].target;
    sift(list, i);
    return target;
  }
  return 0;
}

uint32_t Blocks::bump_table(State& state, uint32_t token, uint32_t weight, uint32_t stamp) {
  Edge* edge = slot(state.target, capacity(state.token), token);
  if (edge->target == 0) return 0;
  edge->count += weight;
  edge->stamp = stamp;
  state.value += weight;
  raise(state.target, *edge);
  return edge->target;
}

// Takes an edge of a table whose count grew, or that is new, into the header.
void Blocks::raise(uint32_t block, const Edge& edge) {
  Edge* top = &edges_[block];
  if (edge.count < top[kTop - 1].count) return;
  uint32_t at = 0;
  while (at < kTop && top[at].token != edge.token) ++at;
  if (at == kTop) {
    if (edge.count <= top[kTop - 1].count) return;
    at = kTop - 1;
  }
  top[at] = edge;
  sift(top, at);
}

void Blocks::redirect(State& state, uint32_t token, uint32_t target) {
  if (state.kind != kBlock) {
    state.target = target;
    return;
  }
  Edge* list = &edges_[state.target];
  if (state.token > kListed) slot(state.target, capacity(state.token), token)->target = target;
  const uint32_t count = leading(state);
  for (uint32_t i = 0; i < count; ++i)
    if (list[i].token == token) list[i].target = target;
}

void Blocks::clone(State& state) {
  if (state.kind != kBlock) return;
  const uint32_t size = capacity(state.token);
  const uint32_t block = take(size);
  const uint32_t edges = state.token > kListed ? size + kTop : static_cast<uint32_t>(state.token);
  std::memcpy(&edges_[block], &edges_[state.target], edges * sizeof(Edge));
  state.target = block;
}

void Blocks::add(State& state, const Edge& edge, uint32_t text_position, uint32_t text_stamp) {
  if (state.kind == kBlock) {
    append(state, edge);
    return;
  }
  if (state.kind != kLeaf) {
    const uint32_t stamp = state.kind == kUnary ? state.unary_stamp() : text_stamp;
    to_block(state, {state.token, stamp, state.target, state.total()});
    append(state, edge);
    return;
  }
  state.token = edge.token;
  state.target = edge.target;
  if (edge.count == 1) {
    state.kind = kSingle;
    state.value = text_position;
  } else if (edge.count <= kMaxUnary) {
    state.set_unary(edge.count, edge.stamp);
  } else {
    to_block(state, edge);
  }
}

// Turns a state without a block into one with a block of one edge.
void Blocks::to_block(State& state, const Edge& edge) {
  const uint32_t block = take(capacity(1));
  edges_[block] = edge;
  state.kind = kBlock;
  state.token = 1;
  state.target = block;
  state.value = edge.count;
}

void Blocks::append(State& state, const Edge& edge) {
  const uint32_t count = state.token, size = capacity(count);
  state.value += edge.count;
  if (count < kListed) {
    if (count == size) grow_list(state);
    Edge* list = &edges_[state.target];
    list[count] = edge;
    state.token = count + 1;
    sift(list, count);
  } else if (capacity(count + 1) == size) {
    place(state.target, size, edge);
    raise(state.target, edge);
    state.token = count + 1;
  } else {
    const uint32_t old = state.target, wanted = capacity(count + 1), block = take(wanted);
    const Edge* edges = &edges_[old + (count > kListed ? kTop : 0)];
    tabulate(state, block, wanted, edges, count > kListed ? size : count, edge);
    give(old, size);
  }
}

void Blocks::grow_list(State& state) {
  const uint32_t count = state.token, block = take(capacity(count + 1));
  std::memcpy(&edges_[block], &edges_[state.target], count * sizeof(Edge));
  give(state.target, count);
  state.target = block;
}

void Blocks::tabulate(State& state, uint32_t block, uint32_t capacity, const Edge* edges, uint32_t slots,
                      const Edge& edge) {
  std::memset(static_cast<void*>(&edges_[block]), 0, (capacity + kTop) * sizeof(Edge));
  for (uint32_t i = 0; i < slots; ++i)
    if (edges[i].target != 0) place(block, capacity, edges[i]);
  place(block, capacity, edge);
  std::memcpy(&edges_[block], edges - (state.token > kListed ? kTop : 0), kTop * sizeof(Edge));
  raise(block, edge);
  state.target = block;
  state.token = state.token + 1;
}

void Blocks::place(uint32_t block, uint32_t capacity, const Edge& edge) { *slot(block, capacity, edge.token) = edge; }

}  // namespace sestina::drafting
