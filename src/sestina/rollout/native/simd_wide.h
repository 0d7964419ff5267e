// Sixteen lanes in one 64-byte vector: for AVX-512.
#pragma once

#include <cstdint>
#include <cstring>

namespace sestina {

constexpr int kLanes = 16;
constexpr int kHeadsAtOnce = 8;  // attention's sums and operands then fit into the registers
typedef float v16f __attribute__((vector_size(64)));
typedef int32_t v16i __attribute__((vector_size(64)));

inline v16f load(const float* p) {
  v16f v;
  std::memcpy(&v, p, sizeof v);  // unaligned load
  return v;
}

inline void store(float* p, v16f v) { std::memcpy(p, &v, sizeof v); }

inline v16f splat(float x) { return v16f{} + x; }

inline v16f select(v16i mask, v16f yes, v16f no) { return mask ? yes : no; }

inline v16f max(v16f a, v16f b) { return select(a > b, a, b); }

inline float lane(v16f v, int i) { return v[i]; }

// First n lanes true.
inline v16i first_lanes(int n) {
  const v16i index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return index < (v16i{} + n);
}

// x * 2^n, n the low bits of `shifted` in two's complement.
inline v16f times_power(v16f x, v16f shifted) { return (v16f)((v16i)x + ((v16i)shifted << 23)); }

}  // namespace sestina
