// Arguments from Python, checked.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "drafter.h"
#include "failure.h"
#include "group.h"

namespace py = pybind11;

namespace sestina::drafting {

template <class T>
using Array = py::array_t<T, py::array::c_style>;

template <class T>
const T* row(const Array<T>& array, int64_t size, const char* name) {
  if (array.ndim() == 1 && (size < 0 || array.size() == size)) return array.data();
  throw Failure(Refusal::kOutOfRange,
                std::string(name) + ": must be a vector" + (size < 0 ? "" : " of " + std::to_string(size)));
}

template <class T>
T* room(Array<T>& array, int64_t size, const char* name) {
  if (array.ndim() == 1 && array.size() >= size && array.writeable()) return array.mutable_data();
  throw Failure(Refusal::kBufferTooSmall, std::string(name) + ": room for " + std::to_string(array.size()) + ", but " +
                                              std::to_string(size) + " are needed");
}

template <class T>
Array<T> copied(const std::vector<T>& values) {
  return Array<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

inline uint32_t at_most(int64_t value, int64_t least, int64_t most, const char* name) {
  if (value >= least && value <= most) return static_cast<uint32_t>(value);
  throw Failure(Refusal::kOutOfRange, std::string(name) + " " + std::to_string(value) + ": must be " +
                                          std::to_string(least) + " to " + std::to_string(most));
}

inline Limits limits(int64_t max_tokens, int64_t top_k, float min_prob, int64_t own_weight, int64_t min_match) {
  if (!(min_prob >= 0 && min_prob <= 1)) throw Failure(Refusal::kOutOfRange, "min_prob: must be 0 to 1");
  return {at_most(max_tokens, 0, kMaxDraft, "max_tokens"), at_most(top_k, 1, kMaxDraft, "top_k"), min_prob,
          at_most(own_weight, 0, kMaxWeight, "own_weight"), at_most(min_match, 1, kMaxDepth, "min_match")};
}

}  // namespace sestina::drafting
