// Memory limit and log access of the index.
#include "index.h"

namespace sestina::drafting {

// Evicts whole groups until the limit holds: the least recently used one without a live request first, `busy` never.
void SuffixIndex::make_room(const Group* busy) {
  while (bytes_ > memory_limit_bytes_)
    if (!evict_one(busy)) break;
  if (bytes_ <= memory_limit_bytes_ || busy != nullptr) return;
  throw Failure(Refusal::kFull, "the index holds " + std::to_string(bytes_) + " of " +
                                    std::to_string(memory_limit_bytes_) + " bytes, all of groups with live requests");
}

bool SuffixIndex::evict_one(const Group* busy) {
  const Group* oldest = nullptr;
  for (const auto& [id, slot] : by_id_) {
    const Group* group = slots_[slot].group.get();
    if (group == busy || group->num_live() > 0) continue;
    if (oldest == nullptr || group->last_used < oldest->last_used) oldest = group;
  }
  if (oldest == nullptr) return false;
  evicted_.push_back(oldest->id);
  erase(oldest->id);
  return true;
}

Slice SuffixIndex::fetch(int64_t id, int64_t cursor, int64_t& epoch) {
  const std::shared_lock lock(mutex_);
  const Group& group = find(id);
  epoch = group.epoch;
  if (cursor < 0) throw Failure(Refusal::kOutOfRange, "cursor " + std::to_string(cursor) + ": must not be negative");
  return group.fetch(static_cast<uint64_t>(cursor));
}

void SuffixIndex::replay(int64_t id, int64_t epoch, int64_t cursor, const Slice& slice) {
  const std::unique_lock lock(mutex_);
  if (id < 0 || cursor < 0) throw Failure(Refusal::kOutOfRange, "group and cursor of a log must not be negative");
  make_room(nullptr);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) {
    auto group = std::make_unique<Group>(id, epoch, depth_);
    group->replay(static_cast<uint64_t>(cursor), slice, vocab_size_);
    insert(std::move(group));
    return;
  }
  Group& group = *slots_[found->second].group;
  if (group.epoch != epoch)
    throw Failure(Refusal::kConflict, "log of group " + std::to_string(id) + ": is of epoch " + std::to_string(epoch) +
                                          ", here is " + std::to_string(group.epoch) + "; drop the group first");
  const uint64_t before = group.bytes();
  group.replay(static_cast<uint64_t>(cursor), slice, vocab_size_);
  group.last_used = ++clock_;
  bytes_ += group.bytes() - before;
}

}  // namespace sestina::drafting
