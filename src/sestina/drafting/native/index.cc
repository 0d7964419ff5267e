#include "index.h"

namespace sestina::drafting {
namespace {

// A handle names a place: generation, slot (20 bits) and ordinal (16 bits). A slot's generation changes with its group,
// so a handle of a dropped group names nothing.
constexpr uint32_t kMaxGroups = 1u << 20;
constexpr int64_t kGenerations = int64_t{1} << 27;

[[noreturn]] void not_found(const std::string& what) { throw Failure(Refusal::kNotFound, what); }
[[noreturn]] void out_of_range(const std::string& what) { throw Failure(Refusal::kOutOfRange, what); }

int64_t within(int64_t value, int64_t least, int64_t most, const char* name) {
  if (value < least || value > most)
    out_of_range(std::string(name) + " " + std::to_string(value) + ": must be " + std::to_string(least) + " to " +
                 std::to_string(most));
  return value;
}

}  // namespace

SuffixIndex::SuffixIndex(int64_t vocab_size, int64_t depth, int64_t memory_limit_bytes, int64_t first_epoch)
    : vocab_size_(static_cast<uint32_t>(within(vocab_size, 1, kMaxToken + 1, "vocab_size"))),
      depth_(static_cast<uint32_t>(within(depth, 2, kMaxDepth, "depth"))),
      memory_limit_bytes_(static_cast<uint64_t>(within(memory_limit_bytes, 1, INT64_MAX, "memory_limit_bytes"))),
      next_epoch_(within(first_epoch, 0, INT64_MAX / 2, "first_epoch")) {}

SuffixIndex::Place SuffixIndex::place(int64_t handle) const {
  const uint64_t slot = static_cast<uint64_t>(handle) >> 16 & (kMaxGroups - 1);
  if (handle < 0 || slot >= slots_.size() || !slots_[slot].group ||
      slots_[slot].generation != static_cast<uint64_t>(handle) >> 36)
    not_found("handle " + std::to_string(handle) + ": its group was dropped or evicted, or it was never given");
  return {slots_[slot].group.get(), static_cast<uint32_t>(handle & 0xFFFF)};
}

Group& SuffixIndex::find(int64_t group) const {
  const auto found = by_id_.find(group);
  if (found == by_id_.end())
    not_found("group " + std::to_string(group) + ": was not started, or was dropped or evicted");
  return *slots_[found->second].group;
}

int64_t SuffixIndex::handle(int64_t group, uint32_t ordinal) const {
  const uint32_t slot = by_id_.at(group);
  return static_cast<int64_t>(slots_[slot].generation << 36 | uint64_t{slot} << 16 | ordinal);
}

void SuffixIndex::check_tokens(const int32_t* tokens, int64_t count) const {
  for (int64_t i = 0; i < count; ++i)
    if (static_cast<uint32_t>(tokens[i]) >= vocab_size_)
      out_of_range("token " + std::to_string(tokens[i]) + ": must be 0 to " + std::to_string(vocab_size_ - 1));
}

Group& SuffixIndex::insert(std::unique_ptr<Group> group) {
  if (free_slots_.empty()) {
    if (slots_.size() == kMaxGroups) throw Failure(Refusal::kFull, "the index holds at most 1048576 groups");
    free_slots_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  group->last_used = ++clock_;
  bytes_ += group->bytes();
  by_id_.emplace(group->id, slot);
  slots_[slot].group = std::move(group);
  return *slots_[slot].group;
}

void SuffixIndex::erase(int64_t group) {
  const uint32_t slot = by_id_.at(group);
  bytes_ -= slots_[slot].group->bytes();
  slots_[slot].group.reset();
  slots_[slot].generation = (slots_[slot].generation + 1) % kGenerations;
  free_slots_.push_back(slot);
  by_id_.erase(group);
}

void SuffixIndex::start_group(int64_t id, const int32_t* prompt, uint32_t count) {
  const std::unique_lock lock(mutex_);
  if (by_id_.count(id)) throw Failure(Refusal::kExists, "group " + std::to_string(id) + ": was started before");
  within(id, 0, INT64_MAX, "group");
  check_tokens(prompt, count);
  if (count > kMaxText) throw Failure(Refusal::kFull, "a prompt of " + std::to_string(count) + " tokens");
  make_room(nullptr);
  auto group = std::make_unique<Group>(id, next_epoch_, depth_);
  group->start_prompt(prompt, count);
  ++next_epoch_;
  make_room(&insert(std::move(group)));
}

void SuffixIndex::drop_group(int64_t group) {
  const std::unique_lock lock(mutex_);
  find(group);
  erase(group);
}

int64_t SuffixIndex::start_request(int64_t id, int64_t request, int64_t weight) {
  const std::unique_lock lock(mutex_);
  within(request, 0, INT64_MAX, "request");
  within(weight, 0, kMaxWeight, "weight");
  Group& group = find(id);
  const uint64_t before = group.bytes();
  const uint32_t ordinal = group.start(request, static_cast<uint32_t>(weight));
  group.last_used = ++clock_;
  bytes_ += group.bytes() - before;
  return handle(id, ordinal);
}

void SuffixIndex::stop_request(int64_t handle) {
  const std::unique_lock lock(mutex_);
  const Place at = place(handle);
  const uint64_t before = at.group->bytes();
  at.group->stop(at.ordinal);
  bytes_ += at.group->bytes() - before;
}

}  // namespace sestina::drafting
