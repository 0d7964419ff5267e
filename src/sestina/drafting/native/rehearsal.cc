// Decoding known text as if a model said it: what drafts would have saved, and what they cost.
#include <chrono>

#include "index.h"

namespace sestina::drafting {
namespace {

void draft_from(const Group& group, uint32_t ordinal, const Limits& limits, Draft& draft) {
  const Cursor& cursor = group.live(ordinal);
  group.automaton().prefetch_states(cursor);
  prefetch_draft(group.automaton(), cursor.state);
  make_draft(group.automaton(), cursor, limits, draft);
}

// How many of the tokens that came the draft had, along one of its paths.
int64_t accepted(const Draft& draft, const int32_t* tokens, int64_t count) {
  int64_t depth = 0;
  int32_t at = -1;
  for (uint32_t i = 0; i < draft.size && depth < count; ++i) {
    if (draft.parents[i] != at || draft.tokens[i] != tokens[depth]) continue;
    at = static_cast<int32_t>(i);
    ++depth;
  }
  return depth;
}

}  // namespace

Rehearsal SuffixIndex::rehearse(int64_t handle, const int32_t* tokens, int64_t count, const Limits& limits) {
  const std::unique_lock lock(mutex_);
  const Place at = place(handle);
  check_tokens(tokens, count);
  at.group->check_append(at.ordinal, at.group->stream(at.ordinal).length, tokens, static_cast<uint32_t>(count));
  at.group->claim(at.ordinal, ++calls_, static_cast<uint32_t>(count));
  const uint64_t before = at.group->bytes();
  Rehearsal done;
  for (int64_t i = 0; i < count; ++done.steps) {
    Draft draft;
    draft_from(*at.group, at.ordinal, limits, draft);
    const int64_t said = std::min(accepted(draft, tokens + i, count - i) + 1, count - i);
    at.group->append(at.ordinal, at.group->stream(at.ordinal).length, tokens + i, static_cast<uint32_t>(said));
    done.drafted += draft.size;
    i += said;
  }
  bytes_ += at.group->bytes() - before;
  return done;
}

std::vector<int64_t> SuffixIndex::time_drafts(const int64_t* handles, int64_t count, const Limits& limits) {
  const std::shared_lock lock(mutex_);
  std::vector<int64_t> spans;
  for (int64_t i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Place at = place(handles[i]);
    Draft draft;
    draft_from(*at.group, at.ordinal, limits, draft);
    asm volatile("" : : "r"(draft.tokens) : "memory");
    spans.push_back((std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1));
  }
  return spans;
}

}  // namespace sestina::drafting
