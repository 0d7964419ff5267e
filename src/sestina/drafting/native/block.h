// One block of edges: a list sorted by count, or above kListed edges an open-addressing table behind a header that
// repeats the kTop most frequent edges, sorted. Either way the best edges come first.
#pragma once

#include <algorithm>
#include <cstring>

#include "state.h"

namespace sestina::drafting {

constexpr uint32_t kListed = 16;
constexpr uint32_t kTop = 8;
constexpr uint32_t kSmallestTableBits = 5;

// Moves a sorted list's entry up past those of a lower count; equal counts keep their order.
inline void sift(Edge* list, uint32_t at) {
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

// Binary logarithm of the slots of a table of so many edges: the least that leaves it at most 3/4 full.
inline uint32_t table_bits(uint32_t edges) {
  return 32 - static_cast<uint32_t>(__builtin_clz(std::max(1u << kSmallestTableBits, (edges * 4 + 2) / 3) - 1));
}

inline uint32_t first_slot(uint32_t token, uint32_t bits) { return token * 0x9E3779B1u >> (32 - bits); }

// Where a token's edge is, or would be, behind the header of a table.
inline Edge* table_slot(Edge* table, uint32_t bits, uint32_t token) {
  uint32_t at = first_slot(token, bits);
  const uint32_t mask = (1u << bits) - 1;
  while (table[at].target != 0 && table[at].token != token) at = (at + 1) & mask;
  return table + at;
}

// Takes an edge of a table whose count grew, or that is new, into its header.
inline void raise(Edge* top, const Edge& edge) {
  if (edge.count < top[kTop - 1].count) return;
  uint32_t at = 0;
  while (at < kTop && top[at].token != edge.token) ++at;
  if (at == kTop) {
    if (edge.count == top[kTop - 1].count) return;
    at = kTop - 1;
  }
  top[at] = edge;
  sift(top, at);
}

}  // namespace sestina::drafting
