// Drafts from the end of a stream. The chain of links from its cursor is every suffix that has a follower of its own,
// longest first: nothing is matched again.
#pragma once

#include "automaton.h"

namespace sestina::drafting {

constexpr uint32_t kMaxDraft = 64;

struct Limits {
  uint32_t max_tokens;  // of one draft
  uint32_t max_paths;   // 1: a linear draft
  float min_prob;       // a token less likely than this is not drafted, nor what would follow it
  uint32_t own_weight;  // how many occurrences more an edge counts that the request itself took last
  uint32_t min_match;   // the followers of a shorter suffix do not begin a draft
};

struct Draft {
  uint32_t size = 0;
  uint32_t match_len = 0;
  float score = 0;  // the sum of probs: tokens expected to be accepted
  int32_t tokens[kMaxDraft];
  int32_t parents[kMaxDraft];  // -1: follows the stream
  float probs[kMaxDraft];      // that the token is accepted, its parents included

  Draft() = default;
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft& other) {
    size = other.size;
    match_len = other.match_len;
    score = other.score;
    std::copy_n(other.tokens, size, tokens);
    std::copy_n(other.parents, size, parents);
    std::copy_n(other.probs, size, probs);
    return *this;
  }

  void add(uint32_t token, int32_t parent, float prob) {
    tokens[size] = static_cast<int32_t>(token);
    parents[size] = parent;
    probs[size++] = prob;
    score += prob;
  }
};

// The path through the most frequent followers, from the suffix for which its score is highest.
void draft_path(const Automaton& automaton, uint32_t state, uint32_t stamp, const Limits& limits, Draft& draft);

// The likeliest nodes first, of all suffixes: where a longer one has not seen enough, a shorter one fills the budget.
void draft_tree(const Automaton& automaton, uint32_t state, uint32_t stamp, const Limits& limits, Draft& draft);

// Either, as `limits` ask.
inline void make_draft(const Automaton& automaton, const Cursor& cursor, const Limits& limits, Draft& draft) {
  if (limits.max_tokens == 0) return;
  if (limits.max_paths == 1)
    draft_path(automaton, cursor.state, cursor.stamp, limits, draft);
  else
    draft_tree(automaton, cursor.state, cursor.stamp, limits, draft);
}

// Fetches what a draft from this state reads first.
void prefetch_draft(const Automaton& automaton, uint32_t state);

}  // namespace sestina::drafting
