// One group: a prompt, the responses that fork from it, their automaton, and the log of all that was appended.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "automaton.h"
#include "failure.h"

namespace sestina::drafting {

// A record of the log: the stream's ordinal in the high half; in the low half how many of its tokens, or an event.
constexpr uint32_t kStarted = 0;
constexpr uint32_t kStopped = 0xFFFF;
constexpr uint32_t kMaxRecordTokens = kStopped - 1;
constexpr uint32_t kMaxStreams = 0xFFFF;
constexpr int64_t kMaxWeight = 1 << 20;
constexpr uint64_t kMaxText = uint64_t{1} << 29;  // half of what a position can name: segments are not all full

struct Stream {
  int64_t request = -1;
  uint32_t weight = 1;
  uint32_t length = 0;
  uint64_t last_call = 0;
  std::vector<uint32_t> segments;
};

// What a client lacks: records from a cursor on, the requests that start in them, and their tokens.
struct Slice {
  std::vector<uint32_t> records;
  std::vector<int64_t> starts;  // request and weight of each
  std::vector<int32_t> tokens;
};

class Group {
 public:
  Group(int64_t id, int64_t epoch, uint32_t depth) : id(id), epoch(epoch), automaton_(depth) {}

  const int64_t id;
  const int64_t epoch;  // tells a group from an earlier one of the same id
  uint64_t last_used = 0;

  // Starts stream 0, the prompt, and stops it.
  void start_prompt(const int32_t* tokens, uint32_t count);
  uint32_t start(int64_t request, uint32_t weight);
  void stop(uint32_t ordinal);

  // Whether `count` tokens may be appended from `offset` on; the first violation is thrown.
  void check_append(uint32_t ordinal, int64_t offset, const int32_t* tokens, uint32_t count) const;
  // Sets aside a stream's row of the call with this number, from 1 on: one each, and all together within what a group
  // may count to; throws.
  void claim(uint32_t ordinal, uint64_t call, uint32_t count);
  // Appends those that are not there yet.
  void append(uint32_t ordinal, int64_t offset, const int32_t* tokens, uint32_t count);

  Slice fetch(uint64_t cursor) const;
  // Applies records, those before the end of its own log only compared. Throws on the first that does not fit.
  void replay(uint64_t cursor, const Slice& slice, uint32_t vocab_size);

  uint32_t ordinal(int64_t request) const;
  Stream& stream(uint32_t ordinal);
  const Stream& stream(uint32_t ordinal) const { return const_cast<Group*>(this)->stream(ordinal); }
  const Cursor& cursor(uint32_t ordinal) const { return cursors_[ordinal]; }
  // The cursor of a live request; throws.
  const Cursor& live(uint32_t ordinal) const {
    if (ordinal < cursors_.size() && cursors_[ordinal].live) return cursors_[ordinal];
    refuse_stopped();
  }
  const Automaton& automaton() const { return automaton_; }
  int32_t token(const Stream& stream, uint32_t offset) const;
  uint32_t num_streams() const { return static_cast<uint32_t>(streams_.size()); }
  uint32_t num_live() const { return num_live_; }
  uint64_t num_tokens() const { return num_tokens_; }
  uint64_t log_end() const { return log_.size(); }
  size_t bytes() const;
  std::string check() const;

 private:
  [[noreturn]] void refuse_stopped() const;
  uint32_t open(int64_t request, uint32_t weight);
  void write(uint32_t ordinal, const int32_t* tokens, uint32_t count);
  void compare(uint64_t cursor, const Slice& slice, uint64_t known) const;
  void check_records(const Slice& slice, uint64_t known, uint32_t vocab_size) const;

  Automaton automaton_;
  std::vector<Cursor> cursors_;
  std::vector<Stream> streams_;
  std::unordered_map<int64_t, uint32_t> ordinals_;
  Pool<uint32_t> log_;
  uint32_t num_live_ = 0;
  uint64_t num_tokens_ = 0;
  uint64_t total_weight_ = 0;  // of all tokens, each at least 1
  uint64_t claiming_call_ = 0;
  uint64_t claimed_tokens_ = 0;
  uint64_t claimed_weight_ = 0;
};

}  // namespace sestina::drafting
