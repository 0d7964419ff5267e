// All groups of one process: handles for requests, batched appends and drafts, the memory limit.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>

#include "drafter.h"
#include "group.h"

namespace sestina::drafting {

// Where the drafts of a batch go; room for the sum of `max_tokens` in tokens, parents and probs.
struct DraftOutput {
  int64_t* bounds;  // batch + 1
  int32_t* tokens;
  int32_t* parents;
  float* probs;
  float* scores;
  int32_t* match_lens;
  int64_t room;  // of tokens, parents and probs
};

struct DraftBatch {
  const int64_t* handles;
  const int32_t* max_tokens;
  uint32_t size;
  Limits limits;  // but for max_tokens
  uint32_t threads;
};

// Appends of a batch in compressed rows: tokens[bounds[i], bounds[i + 1]) go to handles[i] from offsets[i] on.
struct AppendBatch {
  const int64_t* handles;
  const int64_t* offsets;
  const int64_t* bounds;
  const int32_t* tokens;
  uint32_t size;
  int64_t num_tokens;
};

// What decoding a text with drafts took.
struct Rehearsal {
  int64_t steps = 0;
  int64_t drafted = 0;
};

// Safe to call from several threads: drafts share the lock, what changes the index takes it alone.
class SuffixIndex {
 public:
  SuffixIndex(int64_t vocab_size, int64_t depth, int64_t memory_limit_bytes, int64_t first_epoch);

  void start_group(int64_t group, const int32_t* prompt, uint32_t count);
  void drop_group(int64_t group);
  int64_t start_request(int64_t group, int64_t request, int64_t weight);
  void stop_request(int64_t handle);

  void append(const AppendBatch& batch);
  void draft(const DraftBatch& batch, const DraftOutput& out);

  // Appends tokens to a request in the steps in which a model that said them would have decoded them.
  Rehearsal rehearse(int64_t handle, const int32_t* tokens, int64_t count, const Limits& limits);
  // Drafts one by one and returns the nanoseconds of each.
  std::vector<int64_t> time_drafts(const int64_t* handles, int64_t count, const Limits& limits);

  Slice fetch(int64_t group, int64_t cursor, int64_t& epoch);
  void replay(int64_t group, int64_t epoch, int64_t cursor, const Slice& slice);
  int64_t find_request(int64_t group, int64_t request);

  uint64_t count(int64_t group, const int32_t* tokens, uint32_t length);
  std::string check();
  std::vector<int64_t> groups();
  uint64_t bytes();
  uint64_t num_tokens(int64_t group);
  std::vector<int64_t> take_evicted();

 private:
  struct Place {
    Group* group;
    uint32_t ordinal;
  };
  struct Slot {
    std::unique_ptr<Group> group;
    uint64_t generation = 0;
  };

  Place place(int64_t handle) const;
  Group& find(int64_t group) const;
  Group& insert(std::unique_ptr<Group> group);
  void erase(int64_t group);
  int64_t handle(int64_t group, uint32_t ordinal) const;
  void check_tokens(const int32_t* tokens, int64_t count) const;
  void check_batch(const AppendBatch& batch, std::vector<Place>& places);
  void make_room(const Group* busy);
  bool evict_one(const Group* busy);
  void draft_range(const DraftBatch& batch, uint32_t from, uint32_t to, int64_t first, const DraftOutput& out) const;

  const uint32_t vocab_size_;
  const uint32_t depth_;
  const uint64_t memory_limit_bytes_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::unordered_map<int64_t, uint32_t> by_id_;
  std::vector<int64_t> evicted_;
  int64_t next_epoch_;
  uint64_t clock_ = 0;
  uint64_t calls_ = 0;
  uint64_t bytes_ = 0;
  mutable std::shared_mutex mutex_;
};

}  // namespace sestina::drafting
