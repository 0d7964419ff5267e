// What the index refuses, by kind; bindings.cc maps each kind to an exception of drafting/errors.py.
#pragma once

#include <stdexcept>
#include <string>

namespace sestina::drafting {

enum class Refusal { kNotFound, kExists, kOutOfRange, kGap, kConflict, kBufferTooSmall, kFull };

struct Failure : std::runtime_error {
  Failure(Refusal refusal, const std::string& message) : std::runtime_error(message), refusal(refusal) {}
  Refusal refusal;
};

}  // namespace sestina::drafting
