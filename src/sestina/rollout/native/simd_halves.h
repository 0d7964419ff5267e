// Sixteen lanes in two 32-byte vectors: for AVX2, and for whatever is narrower.
//
// Two members, loaded and stored one by one: GCC 12 keeps a vector wider than the registers, or a struct that is copied
// whole, in memory, and attention is then seven times slower (docs/decisions/0005).
#pragma once

#include <cstdint>
#include <cstring>

namespace sestina {

constexpr int kLanes = 16;
constexpr int kHeadsAtOnce = 4;  // attention's sums and operands then fit into the registers
typedef float half __attribute__((vector_size(32)));
typedef int32_t ihalf __attribute__((vector_size(32)));

struct v16f {
  half lo, hi;
};

struct v16i {
  ihalf lo, hi;
};

inline v16f operator+(v16f a, v16f b) { return {a.lo + b.lo, a.hi + b.hi}; }
inline v16f operator-(v16f a, v16f b) { return {a.lo - b.lo, a.hi - b.hi}; }
inline v16f operator*(v16f a, v16f b) { return {a.lo * b.lo, a.hi * b.hi}; }
inline v16f operator/(v16f a, v16f b) { return {a.lo / b.lo, a.hi / b.hi}; }
inline v16f operator-(v16f a) { return {-a.lo, -a.hi}; }

inline v16f& operator+=(v16f& a, v16f b) {
  a.lo += b.lo;
  a.hi += b.hi;
  return a;
}

inline v16f load(const float* p) {
  v16f v;
  std::memcpy(&v.lo, p, sizeof v.lo);  // unaligned load
  std::memcpy(&v.hi, p + 8, sizeof v.hi);
  return v;
}

inline void store(float* p, v16f v) {
  std::memcpy(p, &v.lo, sizeof v.lo);
  std::memcpy(p + 8, &v.hi, sizeof v.hi);
}

inline v16f splat(float x) { return {half{} + x, half{} + x}; }

inline v16f select(v16i mask, v16f yes, v16f no) { return {mask.lo ? yes.lo : no.lo, mask.hi ? yes.hi : no.hi}; }

inline v16f max(v16f a, v16f b) { return {a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi}; }

inline float lane(v16f v, int i) { return i < 8 ? v.lo[i] : v.hi[i - 8]; }

// First n lanes true.
inline v16i first_lanes(int n) {
  const ihalf index = {0, 1, 2, 3, 4, 5, 6, 7}, count = ihalf{} + n;
  return {index < count, index + 8 < count};
}

inline half times_power(half x, half shifted) { return (half)((ihalf)x + ((ihalf)shifted << 23)); }

// x * 2^n, n the low bits of `shifted` in two's complement.
inline v16f times_power(v16f x, v16f shifted) { return {times_power(x.lo, shifted.lo), times_power(x.hi, shifted.hi)}; }

}  // namespace sestina
