// What is asked of the index and changes nothing in it.
#include "index.h"

namespace sestina::drafting {

int64_t SuffixIndex::find_request(int64_t id, int64_t request) {
  const std::shared_lock lock(mutex_);
  return handle(id, find(id).ordinal(request));
}

uint64_t SuffixIndex::count(int64_t group, const int32_t* tokens, uint32_t length) {
  const std::shared_lock lock(mutex_);
  if (length < 1 || length > depth_)
    throw Failure(Refusal::kOutOfRange,
                  "a string of " + std::to_string(length) + " tokens: must be 1 to " + std::to_string(depth_));
  check_tokens(tokens, length);
  return find(group).automaton().count(tokens, length);
}

std::string SuffixIndex::check() {
  const std::shared_lock lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [id, slot] : by_id_) {
    const std::string found = slots_[slot].group->check();
    if (!found.empty()) return "group " + std::to_string(id) + ": " + found;
    bytes += slots_[slot].group->bytes();
  }
  return bytes == bytes_
             ? ""
             : "the index accounts for " + std::to_string(bytes_) + " of " + std::to_string(bytes) + " bytes";
}

std::vector<int64_t> SuffixIndex::groups() {
  const std::shared_lock lock(mutex_);
  std::vector<int64_t> ids;
  for (const auto& [id, slot] : by_id_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

uint64_t SuffixIndex::bytes() {
  const std::shared_lock lock(mutex_);
  return bytes_;
}

uint64_t SuffixIndex::num_tokens(int64_t group) {
  const std::shared_lock lock(mutex_);
  return find(group).num_tokens();
}

std::vector<int64_t> SuffixIndex::take_evicted() {
  const std::unique_lock lock(mutex_);
  return std::exchange(evicted_, {});
}

}  // namespace sestina::drafting
