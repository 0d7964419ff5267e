// Sixteen-lane float arithmetic on the compilers' own vector extension: one source for AVX-512, AVX2 and NEON.
#pragma once

#include <cstdint>
#include <cstring>

namespace sestina {

constexpr int kLanes = 16;
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

// Lanes are added in index order, so the result never depends on how the loop around it was unrolled.
inline float sum_lanes(v16f v) {
  float total = 0.0f;
  for (int i = 0; i < kLanes; ++i) total += v[i];
  return total;
}

inline float max_lanes(v16f v) {
  float best = v[0];
  for (int i = 1; i < kLanes; ++i) best = v[i] > best ? v[i] : best;
  return best;
}

// First n lanes true.
inline v16i first_lanes(int n) {
  const v16i index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return index < (v16i{} + n);
}

// exp for any input up to 88, zero below -87.3. Relative error under 2e-7: 2^n * exp(r), |r| <= ln2/2, Cephes'
// polynomial.
inline v16f exp(v16f x) {
  const v16f magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to the nearest integer
  x = max(x, splat(-87.33f));
  const v16f shifted = x * splat(1.44269504f) + magic;
  const v16f n = shifted - magic;
  const v16f r = n * splat(2.12194440e-4f) + (x - n * splat(0.693359375f));
  v16f p = splat(1.9875691500e-4f);
  p = p * r + splat(1.3981999507e-3f);
  p = p * r + splat(8.3334519073e-3f);
  p = p * r + splat(4.1665795894e-2f);
  p = p * r + splat(1.6666665459e-1f);
  p = p * r + splat(5.0000001201e-1f);
  p = p * (r * r) + (r + splat(1.0f));
  return (v16f)((v16i)p + ((v16i)shifted << 23));  // the low bits of `shifted` are n in two's complement
}

}  // namespace sestina
