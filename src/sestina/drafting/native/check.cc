// Integrity: the structure's rules, and every count taken anew from the text.
#include <unordered_map>

#include "group.h"

namespace sestina::drafting {
namespace {

std::string at_state(uint32_t id, const char* what) { return "state " + std::to_string(id) + ": " + what; }

// Slots and leading edges of one block.
std::string check_block(const Blocks& blocks, const State& state, uint32_t id) {
  const Edge* best = blocks.best(state);
  uint64_t sum = 0;
  uint32_t edges = 0, above = 0;
  const Edge& least = best[Blocks::leading(state) - 1];
  const uint32_t slots = state.token > kListed ? Blocks::num_slots(state) : static_cast<uint32_t>(state.token);
  for (uint32_t i = 0; i < slots; ++i) {
    const Edge& edge = blocks.slots(state)[i];
    if (edge.target == 0) continue;
    ++edges;
    sum += edge.count;
    above += edge.count > least.count;
    if (blocks.find(state, edge.token).target != edge.target) return at_state(id, "an edge is not found");
  }
  if (edges != state.token || sum != state.value) return at_state(id, "edges or their sum are miscounted");
  if (above >= Blocks::leading(state)) return at_state(id, "a frequent edge does not lead");
  for (uint32_t i = 0; i < Blocks::leading(state); ++i) {
    if (i > 0 && best[i].count > best[i - 1].count) return at_state(id, "leading edges are not sorted");
    const Edge found = blocks.find(state, best[i].token);
    if (found.count != best[i].count || found.target != best[i].target || found.stamp != best[i].stamp)
      return at_state(id, "a leading edge differs from its slot");
  }
  return "";
}

}  // namespace

std::string Automaton::check() const {
  for (uint32_t id = 0; id < states_.size(); ++id) {
    const State& state = states_[id];
    if (id == kRoot ? state.link != kNone : state.link >= states_.size()) return at_state(id, "its link leads nowhere");
    if (id != kRoot && states_[state.link].length >= state.length) return at_state(id, "its link is not shorter");
    if (state.length > depth_) return at_state(id, "is longer than the depth");
    if (state.kind == kBlock) {
      const std::string found = check_block(blocks_, state, id);
      if (!found.empty()) return found;
    } else if (state.kind != kLeaf && (state.target == kRoot || state.target >= states_.size())) {
      return at_state(id, "its edge leads nowhere");
    }
    if (state.kind == kSingle && text_[state.value] != static_cast<int32_t>(state.token))
      return at_state(id, "its text is another token");
  }
  return "";
}

size_t Automaton::num_edges() const {
  size_t edges = 0;
  for (uint32_t id = 0; id < states_.size(); ++id)
    edges += states_[id].kind == kBlock ? static_cast<uint32_t>(states_[id].token) : states_[id].kind != kLeaf;
  return edges;
}

// The class of the suffix of at most `most` tokens of a string of this class.
uint32_t Automaton::suffix(uint32_t id, uint32_t most) const {
  while (id != kRoot && states_[states_[id].link].length >= most) id = states_[id].link;
  return id;
}

std::string Group::check() const {
  std::string found = automaton_.check();
  if (!found.empty()) return found;
  std::unordered_map<uint64_t, uint64_t> counts;
  uint32_t fork = kRoot, fork_length = 0;
  for (uint32_t ordinal = 0; ordinal < num_streams(); ++ordinal) {
    const Stream& stream = streams_[ordinal];
    uint32_t at = ordinal == 0 ? kRoot : fork, length = ordinal == 0 ? 0 : fork_length;
    for (uint32_t i = 0; i < stream.length; ++i) {
      const uint32_t next = static_cast<uint32_t>(token(stream, i));
      length = std::min(length, automaton_.depth() - 1);
      at = automaton_.suffix(at, length);
      for (uint32_t id = at; id != kNone; id = automaton_.state(id).link)
        counts[uint64_t{id} << 24 | next] += stream.weight;
      at = automaton_.blocks().find(automaton_.state(at), next).target;
      ++length;
      if (at == kRoot) return "a stream leaves the automaton";
    }
    if (ordinal == 0) fork = at, fork_length = length;
    if (automaton_.suffix(at, length) != automaton_.suffix(cursors_[ordinal].state, length))
      return "the cursor of stream " + std::to_string(ordinal) + " is elsewhere";
  }
  for (const auto& [key, count] : counts) {
    const uint32_t id = static_cast<uint32_t>(key >> 24), next = static_cast<uint32_t>(key & kMaxToken);
    if (automaton_.blocks().find(automaton_.state(id), next).count != count)
      return at_state(id, "an edge is miscounted");
  }
  return counts.size() == automaton_.num_edges() ? "" : "an edge belongs to no text";
}

}  // namespace sestina::drafting
