// A checksum of 64 bits against damage, not against intent.
//
// Words of 64 bits go in turn to 32 lanes. A lane takes a word by x = (x ^ word) * odd; x ^= x >> 32, and the lanes,
// the length and at last the sum itself go through the same step. For a given word the step is a permutation of x, and
// for a given x one of the words: so damage to a single word always shows, and damage to several with 1 - 2^-64.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sestina::kvpool {

class Checksum {
 public:
  Checksum();
  void add(const uint8_t* bytes, size_t count);
  uint64_t finish();

 private:
  static constexpr size_t kLanes = 32;
  static constexpr size_t kBlock = 8 * kLanes;

  void take(const uint8_t* bytes, size_t blocks);

  uint64_t lanes_[kLanes];
  uint8_t rest_[kBlock];
  size_t num_rest_ = 0;
  uint64_t length_ = 0;
};

inline uint64_t checksum(const uint8_t* bytes, size_t count) {
  Checksum sum;
  sum.add(bytes, count);
  return sum.finish();
}

}  // namespace sestina::kvpool
