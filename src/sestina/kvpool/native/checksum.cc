#include "checksum.h"

#include <algorithm>
#include <cstring>

namespace sestina::kvpool {

namespace {

constexpr uint64_t kOdd = 0xd1342543de82ef95;    // of a multiplicative generator with good lattice (Steele and Vigna)
constexpr uint64_t kStart = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio: lanes begin differently

inline uint64_t step(uint64_t x, uint64_t word) {
  x = (x ^ word) * kOdd;
  return x ^ (x >> 32);
}

}  // namespace

Checksum::Checksum() {
  for (size_t i = 0; i < kLanes; ++i) lanes_[i] = kStart * (i + 1);
}

void Checksum::take(const uint8_t* bytes, size_t blocks) {
  uint64_t lanes[kLanes], words[kLanes];
  std::memcpy(lanes, lanes_, sizeof lanes);
  for (size_t block = 0; block < blocks; ++block, bytes += kBlock) {
    std::memcpy(words, bytes, kBlock);
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = step(lanes[i], words[i]);
  }
  std::memcpy(lanes_, lanes, sizeof lanes);
}

void Checksum::add(const uint8_t* bytes, size_t count) {
  length_ += count;
  if (num_rest_) {
    const size_t more = std::min(count, kBlock - num_rest_);
    std::memcpy(rest_ + num_rest_, bytes, more);
    num_rest_ += more, bytes += more, count -= more;
    if (num_rest_ < kBlock) return;
    take(rest_, 1);
    num_rest_ = 0;
  }
  take(bytes, count / kBlock);
  num_rest_ = count % kBlock;
  if (num_rest_) std::memcpy(rest_, bytes + (count - num_rest_), num_rest_);
}

uint64_t Checksum::finish() {
  if (num_rest_) {
    std::memset(rest_ + num_rest_, 0, kBlock - num_rest_);
    take(rest_, 1);
  }
  uint64_t sum = step(kStart, length_);
  for (const uint64_t lane : lanes_) sum = step(sum, lane);
  return step(sum, 0);
}

}  // namespace sestina::kvpool
