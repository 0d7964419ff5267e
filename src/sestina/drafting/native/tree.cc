#include <array>

#include "drafter.h"

namespace sestina::drafting {
namespace {

// Occurrences counted as followed by something not seen yet; that share of a node's probability goes to the followers
// of the next shorter suffix. More at the root, where the occurrence at hand is counted and has no follower yet.
constexpr float kUnseen = 0.25f;
constexpr float kUnseenAtRoot = 0.5f;
constexpr uint32_t kSuffixes = 2;  // a node's followers come from its longest suffixes that have some, so many
constexpr uint32_t kCandidates = kMaxDraft * kSuffixes * kListed;

struct Candidate {
  float prob;
  uint32_t token;
  uint32_t target;
  int32_t parent;

  bool operator<(const Candidate& other) const { return prob < other.prob; }
};

class Tree {
 public:
  Tree(const Automaton& automaton, uint32_t stamp, const Limits& limits, Draft& draft)
      : automaton_(automaton), stamp_(stamp), limits_(limits), draft_(draft) {}

  void draft(uint32_t state) {
    expand(state, 1, -1, kUnseenAtRoot);
    while (draft_.size < limits_.max_tokens && size_ > 0) {
      std::pop_heap(heap_.begin(), heap_.begin() + size_);
      const Candidate next = heap_[--size_];
      if (!opens(next.parent)) continue;
      const int32_t at = static_cast<int32_t>(draft_.size);
      draft_.add(next.token, next.parent, next.prob);
      expand(next.target, next.prob, at, kUnseen);
    }
  }

 private:
  // Whether a node may get one more child: its first one continues a path, any other opens one.
  bool opens(int32_t parent) {
    bool& extended = extended_[static_cast<size_t>(parent + 1)];
    if (extended && paths_ == limits_.max_paths) return false;
    paths_ += extended || parent < 0;
    extended = true;
    return true;
  }

  void expand(uint32_t id, float prob, int32_t parent, float unseen) {
    const size_t known = seen_;
    uint32_t suffixes = 0;
    for (; id != kRoot && suffixes < kSuffixes && prob >= limits_.min_prob; id = automaton_.state(id).link) {
      const State& state = automaton_.state(id);
      if (parent < 0 && state.length < limits_.min_match) break;
      if (state.total() == 0) continue;
      prefetch(&automaton_.state(state.link));
      if (parent < 0 && suffixes == 0) draft_.match_len = state.length;
      prob *= unseen / (followers(state, prob, parent, unseen) + unseen);
      ++suffixes;
    }
    seen_ = known;
  }

  // Offers the followers of one state; returns how many occurrences they share.
  float followers(const State& state, float prob, int32_t parent, float unseen) {
    if (state.kind != kBlock) {
      const bool own = state.kind == kUnary && state.unary_stamp() == stamp_;
      const float seen = static_cast<float>(state.total() + (own ? limits_.own_weight : 0));
      offer(prob * seen / (seen + unseen), state.token, state.target, parent);
      return seen;
    }
    const Edge* edges = automaton_.blocks().best(state);
    const uint32_t leading = std::min(Blocks::leading(state), kTop);
    float seen = static_cast<float>(state.value);
    for (uint32_t i = 0; i < leading; ++i) seen += weight(edges[i]) - static_cast<float>(edges[i].count);
    for (uint32_t i = 0; i < leading; ++i)
      offer(prob * weight(edges[i]) / (seen + unseen), edges[i].token, edges[i].target, parent);
    return seen;
  }

  float weight(const Edge& edge) const {
    return static_cast<float>(edge.count + (edge.stamp == stamp_ ? limits_.own_weight : 0));
  }

  // A token that a longer suffix offered is not offered again; one that only streams without weight said is not at all.
  void offer(float prob, uint32_t token, uint32_t target, int32_t parent) {
    if (prob <= 0) return;
    for (size_t i = 0; i < seen_; ++i)
      if (offered_[i] == token) return;
    offered_[seen_++] = token;
    if (prob < limits_.min_prob) return;
    prefetch(&automaton_.state(target));
    heap_[size_++] = {prob, token, target, parent};
    std::push_heap(heap_.begin(), heap_.begin() + size_);
  }

  const Automaton& automaton_;
  const uint32_t stamp_;
  const Limits& limits_;
  Draft& draft_;
  std::array<Candidate, kCandidates> heap_;
  uint32_t size_ = 0;
  std::array<uint32_t, kSuffixes * kListed> offered_;
  size_t seen_ = 0;
  std::array<bool, kMaxDraft + 1> extended_ = {};
  uint32_t paths_ = 0;
};

}  // namespace

void draft_tree(const Automaton& automaton, uint32_t id, uint32_t stamp, const Limits& limits, Draft& draft) {
  Tree(automaton, stamp, limits, draft).draft(id);
}

void prefetch_draft(const Automaton& automaton, uint32_t id) {
  for (; id != kRoot; id = automaton.state(id).link) {
    const State& state = automaton.state(id);
    if (state.kind == kSingle) automaton.text().prefetch_at(state.value);
    if (state.kind == kUnary) prefetch(&automaton.state(state.target));
    if (state.kind == kBlock) prefetch(automaton.blocks().best(state));
  }
}

}  // namespace sestina::drafting
