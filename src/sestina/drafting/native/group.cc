#include "group.h"

namespace sestina::drafting {
namespace {

constexpr uint32_t kStamps = 63;  // a stamp has 6 bits; 0 is the prompt's

std::string named(int64_t request) { return request < 0 ? "the prompt" : "request " + std::to_string(request); }

}  // namespace

void Group::start_prompt(const int32_t* tokens, uint32_t count) {
  open(-1, 1);
  write(0, tokens, count);
  stop(0);
}

uint32_t Group::open(int64_t request, uint32_t weight) {
  const uint32_t ordinal = num_streams();
  Stream stream;
  stream.request = request;
  stream.weight = weight;
  Cursor cursor = ordinal == 0 ? Cursor{} : cursors_[0];
  cursor.stamp = static_cast<uint16_t>(ordinal == 0 ? 0 : (ordinal - 1) % kStamps + 1);
  cursor.live = true;
  cursors_.push_back(cursor);
  streams_.push_back(std::move(stream));
  log_.add(ordinal << 16 | kStarted);
  ++num_live_;
  return ordinal;
}

uint32_t Group::start(int64_t request, uint32_t weight) {
  if (ordinals_.count(request))
    throw Failure(Refusal::kExists, "group " + std::to_string(id) + ": " + named(request) + " was started before");
  if (num_streams() == kMaxStreams)
    throw Failure(Refusal::kFull, "group " + std::to_string(id) + ": a group holds at most 65534 requests");
  const uint32_t ordinal = open(request, weight);
  ordinals_.emplace(request, ordinal);
  return ordinal;
}

void Group::stop(uint32_t ordinal) {
  live(ordinal);
  cursors_[ordinal].live = false;
  log_.add(ordinal << 16 | kStopped);
  --num_live_;
}

uint32_t Group::ordinal(int64_t request) const {
  const auto found = ordinals_.find(request);
  if (found != ordinals_.end()) return found->second;
  throw Failure(Refusal::kNotFound, "group " + std::to_string(id) + ": " + named(request) + " was never started");
}

Stream& Group::stream(uint32_t ordinal) {
  live(ordinal);
  return streams_[ordinal];
}

void Group::refuse_stopped() const {
  throw Failure(Refusal::kNotFound,
                "group " + std::to_string(id) + ": the request was stopped, or is not one of this group");
}

int32_t Group::token(const Stream& stream, uint32_t offset) const {
  return automaton_.text()[stream.segments[offset / kSegment] * kSegment + offset % kSegment];
}

void Group::check_append(uint32_t ordinal, int64_t offset, const int32_t* tokens, uint32_t count) const {
  const Stream& to = stream(ordinal);
  const auto refuse = [&](Refusal refusal, const std::string& what) {
    throw Failure(refusal, "group " + std::to_string(id) + ", " + named(to.request) + ": " + what);
  };
  if (offset < 0 || offset > to.length)
    refuse(Refusal::kGap,
           "tokens from offset " + std::to_string(offset) + ", but " + std::to_string(to.length) + " are there");
  const uint32_t known = std::min<uint32_t>(count, to.length - static_cast<uint32_t>(offset));
  for (uint32_t i = 0; i < known; ++i) {
    const uint32_t at = static_cast<uint32_t>(offset) + i;
    if (token(to, at) != tokens[i])
      refuse(Refusal::kConflict, "token " + std::to_string(tokens[i]) + " at offset " + std::to_string(at) +
                                     ", where " + std::to_string(token(to, at)) + " is");
  }
}

void Group::claim(uint32_t ordinal, uint64_t call, uint32_t count) {
  Stream& stream = streams_[ordinal];
  const auto refuse = [&](Refusal refusal, const char* what) {
    throw Failure(refusal, "group " + std::to_string(id) + ", " + named(stream.request) + what);
  };
  if (std::exchange(stream.last_call, call) == call) refuse(Refusal::kOutOfRange, ": must have one row of a batch");
  if (std::exchange(claiming_call_, call) != call) claimed_tokens_ = claimed_weight_ = 0;
  claimed_tokens_ += count;
  claimed_weight_ += uint64_t{count} * std::max(1u, stream.weight);
  if (total_weight_ + claimed_weight_ > kMaxCount || num_tokens_ + claimed_tokens_ > kMaxText)
    refuse(Refusal::kFull, ": a group holds at most 536870912 tokens and counts to at most 1073741823");
}

void Group::append(uint32_t ordinal, int64_t offset, const int32_t* tokens, uint32_t count) {
  const uint32_t known = stream(ordinal).length - static_cast<uint32_t>(offset);
  if (known < count) write(ordinal, tokens + known, count - known);
}

void Group::write(uint32_t ordinal, const int32_t* tokens, uint32_t count) {
  Stream& stream = streams_[ordinal];
  Cursor& cursor = cursors_[ordinal];
  Text& text = automaton_.text();
  const uint32_t stamp = stream.weight > 0 ? cursor.stamp : 0;  // what counts nothing is nobody's own either
  for (uint32_t i = 0; i < count; ++i) {
    if (i + 3 < count) automaton_.prefetch_root(static_cast<uint32_t>(tokens[i + 3]));
    const uint32_t position = text.next_position(stream.segments, stream.length++, stamp);
    automaton_.append(cursor, static_cast<uint32_t>(tokens[i]), stream.weight, stamp, position);
    text.write(position, tokens[i]);
  }
  for (uint32_t logged = 0; logged < count; logged += kMaxRecordTokens)
    log_.add(ordinal << 16 | std::min(count - logged, kMaxRecordTokens));
  num_tokens_ += count;
  total_weight_ += uint64_t{count} * std::max(1u, stream.weight);
}

size_t Group::bytes() const {
  const size_t streams = streams_.capacity() * sizeof(Stream) + cursors_.capacity() * sizeof(Cursor);
  const size_t segments = automaton_.text().size() / kSegment * 2 * sizeof(uint32_t);
  return sizeof(*this) + automaton_.bytes() + log_.bytes() + streams + segments;
}

}  // namespace sestina::drafting
