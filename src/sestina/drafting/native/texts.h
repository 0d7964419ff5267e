// What a draft server holds: of each group the text of every response, and the runs in which they grew, one log each.
// Rows and states are columns of a frame (service/wire.py): what is asked about many groups is one call.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace sestina::drafting {

// Memory that a group, a response and a run take besides what is said, rounded up.
constexpr size_t kGroupBytes = 1000, kResponseBytes = 300, kRunBytes = 27;
constexpr size_t kRowBytes = 40;      // of a frame, more than a row takes besides its tokens
constexpr int64_t kMaxRun = 1 << 13;  // tokens of a run, so that a frame exceeds its budget by little

struct Row {
  int64_t group, request, offset, length;
};
struct CacheState {
  int64_t group, epoch, cursor;
};
struct GroupState {
  int64_t group, epoch, start, end;
};
struct Receipt {
  int64_t group, request, epoch, count, conflict;
};

struct Told {
  std::vector<GroupState> states;
  std::vector<Row> rows;
  std::vector<int32_t> tokens;
  std::vector<Receipt> receipts;
  std::vector<int64_t> unknown, full;
  int64_t fetched = 0;  // of the groups asked for, from the first on; the others had no room
  int64_t gaps = 0, conflicts = 0, duplicates = 0, refused = 0;
};

struct Frame {
  const CacheState* asked;
  size_t num_asked;
  const Row* rows;
  size_t num_rows;
  const int32_t* tokens;  // of all rows
};

class Texts {
 public:
  void open(int64_t group, int64_t epoch, double ttl_s, std::string prompt, double now);
  void drop(int64_t group);
  // 1 when the group has this prompt, which gives it at least this time to live; 0 when another, -1 when there is none.
  int has(int64_t group, double ttl_s, const std::string& prompt, double now);
  // Notes that the groups of a frame are in use.
  void touch(const Frame& frame, double now);
  // Fetches, then updates: nobody is sent back what he brings. At most about `budget` bytes of rows are returned, at
  // most `room` bytes are grown by.
  Told exchange(const Frame& frame, size_t budget, size_t room);

  std::vector<int64_t> by_use() const;  // groups, the longest unused first
  std::vector<int64_t> expired(double now) const;
  double used_s(int64_t group) const { return groups_.at(group).used_s; }
  size_t bytes() const { return bytes_; }
  size_t size() const { return groups_.size(); }

 private:
  struct Response {
    int64_t request;
    std::vector<int32_t> tokens;
  };
  struct Run {
    uint32_t response;
    int64_t offset, length;
  };
  struct Held {
    int64_t epoch;
    double ttl_s, used_s;
    std::string prompt;
    size_t bytes;
    std::unordered_map<int64_t, uint32_t> ordinals;
    std::vector<Response> responses;
    std::vector<Run> runs;
  };

  int64_t copy_since(const Held& held, int64_t group, size_t cursor, size_t budget, Told& told) const;
  void copy(const Response& response, int64_t group, int64_t offset, int64_t length, Told& told) const;
  void update(const Row& row, const int32_t* tokens, size_t& room, Told& told);
  size_t extend(Held& held, const Row& row, const int32_t* tokens);
  Held* find(int64_t group);

  std::unordered_map<int64_t, Held> groups_;
  size_t bytes_ = 0;
};

}  // namespace sestina::drafting
