// Sixteen-lane float arithmetic on the compilers' own vector extension: one source for AVX-512, AVX2 and NEON.
#pragma once

#if defined(__AVX512F__)
#include "simd_wide.h"
#else
#include "simd_halves.h"
#endif

namespace sestina {

// Lanes are added in index order, so the result never depends on how the loop around it was unrolled.
inline float sum_lanes(v16f v) {
  float total = 0.0f;
  for (int i = 0; i < kLanes; ++i) total += lane(v, i);
  return total;
}

inline float max_lanes(v16f v) {
  float best = lane(v, 0);
  for (int i = 1; i < kLanes; ++i) best = lane(v, i) > best ? lane(v, i) : best;
  return best;
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
  return times_power(p, shifted);
}

}  // namespace sestina
