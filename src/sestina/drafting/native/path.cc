#include "drafter.h"

namespace sestina::drafting {
namespace {

// The occurrence that a draft continues is one that nothing followed yet.
constexpr float kAtHand = 1.0f;

// The likeliest follower of a state with some, and its probability.
struct Step {
  uint32_t token;
  uint32_t target;
  float prob;
};

Step likeliest(const Automaton& automaton, const State& state, uint32_t stamp, uint32_t own_weight, float unseen) {
  if (state.kind == kUnary) {
    const float seen = static_cast<float>(state.unary_count() + (state.unary_stamp() == stamp ? own_weight : 0));
    return {state.token, state.target, seen / (seen + unseen)};
  }
  const Edge* edges = automaton.blocks().best(state);
  const uint32_t leading = Blocks::leading(state);
  uint32_t best = 0, weight = edges[0].count, own = 0;
  for (uint32_t i = 0; i < leading; ++i) {
    if (edges[i].stamp != stamp) continue;
    own = own_weight;
    if (edges[i].count + own > weight) {
      best = i;
      weight = edges[i].count + own;
    }
    break;  // of its own edges the first counts most
  }
  return {edges[best].token, edges[best].target,
          static_cast<float>(weight) / (static_cast<float>(state.value + own) + unseen)};
}

// Repeats the text after a string that occurred once.
void copy_text(const Text& text, uint32_t position, float prob, const Limits& limits, Draft& draft) {
  while (draft.size < limits.max_tokens && position != kNone) {
    const int32_t token = text[position];
    if (token == kUnwritten) return;
    draft.add(static_cast<uint32_t>(token), static_cast<int32_t>(draft.size) - 1, prob);
    position = text.after(position);
  }
}

// The draft from one state. Gives up once it cannot exceed `rival`.
void follow(const Automaton& automaton, uint32_t id, uint32_t stamp, const Limits& limits, float rival, Draft& draft) {
  float prob = 1, unseen = kAtHand;
  while (draft.size < limits.max_tokens) {
    const State& state = automaton.state(id);
    if (state.kind == kSingle) {
      prob /= 1 + unseen;
      if (prob >= limits.min_prob) copy_text(automaton.text(), state.value, prob, limits, draft);
      return;
    }
    if (state.total() == 0) {  // the end of a stream: its longest suffix that went on
      if (id == kRoot || state.link == kRoot) return;
      id = state.link;
      continue;
    }
    const Step step = likeliest(automaton, state, stamp, limits.own_weight, unseen);
    prob *= step.prob;
    if (prob < limits.min_prob) return;
    if (draft.score + prob * static_cast<float>(limits.max_tokens - draft.size) <= rival) return;
    draft.add(step.token, static_cast<int32_t>(draft.size) - 1, prob);
    prefetch(&automaton.state(step.target));
    id = step.target;
    unseen = 0;
  }
}

}  // namespace

void draft_path(const Automaton& automaton, uint32_t id, uint32_t stamp, const Limits& limits, Draft& draft) {
  Draft other;
  Draft *best = &draft, *next = &other;
  for (; id != kRoot && automaton.state(id).length >= limits.min_match; id = automaton.state(id).link) {
    if (automaton.state(id).total() == 0) continue;
    next->size = 0;
    next->score = 0;
    follow(automaton, id, stamp, limits, best->score, *next);
    if (next->score <= best->score) continue;  // of equal ones the longer match stays
    next->match_len = automaton.state(id).length;
    std::swap(best, next);
  }
  if (best != &draft) draft = *best;
}

}  // namespace sestina::drafting
