#include "blocks.h"

namespace sestina::drafting {
namespace {

constexpr uint32_t kLists[] = {2, 3, 4, 6, 8, 12, 16};
constexpr uint8_t kListClass[kListed + 1] = {0, 0, 0, 1, 2, 3, 3, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6};
constexpr uint32_t kListClasses = 7;

}  // namespace

uint32_t Blocks::capacity(uint32_t edges) {
  return edges <= kListed ? kLists[kListClass[edges]] : 1u << table_bits(edges);
}

uint32_t Blocks::class_of(uint32_t capacity) {
  if (capacity <= kListed) return kListClass[capacity];
  return kListClasses + static_cast<uint32_t>(__builtin_ctz(capacity)) - kSmallestTableBits;
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

Edge* Blocks::slot(const State& state, uint32_t token) const {
  return table_slot(const_cast<Edge*>(slots(state)), table_bits(state.token), token);
}

Edge Blocks::find(const State& state, uint32_t token) const {
  const Edge none{token, 0, 0, 0};
  if (state.kind == kLeaf) return none;
  if (state.kind != kBlock) {
    if (state.token != token) return none;
    return {token, state.kind == kUnary ? state.unary_stamp() : 0, state.target, state.total()};
  }
  if (state.token > kListed) return *slot(state, token);
  const Edge* list = best(state);
  for (uint32_t i = 0; i < state.token; ++i)
    if (list[i].token == token) return list[i];
  return none;
}

void Blocks::redirect(State& state, uint32_t token, uint32_t target) {
  if (state.kind != kBlock) {
    state.target = target;
    return;
  }
  if (state.token > kListed) slot(state, token)->target = target;
  Edge* list = &edges_[state.target];
  const uint32_t count = leading(state);
  for (uint32_t i = 0; i < count; ++i)
    if (list[i].token == token) list[i].target = target;
}

void Blocks::clone(State& state) {
  if (state.kind != kBlock) return;
  const uint32_t size = capacity(state.token), block = take(size);
  const uint32_t edges = state.token > kListed ? size + kTop : static_cast<uint32_t>(state.token);
  std::memcpy(&edges_[block], &edges_[state.target], edges * sizeof(Edge));
  state.target = block;
}

void Blocks::insert(State& state, const Edge& edge) {
  if (state.kind == kLeaf && edge.count <= kMaxUnary) {
    state.token = edge.token;
    state.target = edge.target;
    state.set_unary(edge.count, edge.stamp);
  } else if (state.kind == kLeaf) {
    to_block(state, edge);
  } else {
    if (state.kind != kBlock)
      to_block(state, {state.token, state.kind == kUnary ? state.unary_stamp() : 0, state.target, state.total()});
    append(state, edge);
  }
}

// Gives a state a block of one edge.
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
    *slot(state, edge.token) = edge;
    raise(&edges_[state.target], edge);
    state.token = count + 1;
  } else {
    tabulate(state, edge);
    raise(&edges_[state.target], edge);
  }
}

void Blocks::grow_list(State& state) {
  const uint32_t count = state.token, block = take(capacity(count + 1));
  std::memcpy(&edges_[block], &edges_[state.target], count * sizeof(Edge));
  give(state.target, count);
  state.target = block;
}

// Moves all edges and one more to a larger table.
void Blocks::tabulate(State& state, const Edge& edge) {
  const State old = state;
  const uint32_t size = capacity(old.token), wanted = capacity(old.token + 1);
  state.target = take(wanted);
  state.token = old.token + 1;
  std::memset(static_cast<void*>(&edges_[state.target]), 0, (wanted + kTop) * sizeof(Edge));
  std::memcpy(&edges_[state.target], best(old), kTop * sizeof(Edge));
  for (uint32_t i = 0; i < size; ++i)
    if (slots(old)[i].target != 0) *slot(state, slots(old)[i].token) = slots(old)[i];
  *slot(state, edge.token) = edge;
  give(old.target, size);
}

}  // namespace sestina::drafting
