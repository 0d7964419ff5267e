#include "automaton.h"

namespace sestina::drafting {

// The class an append goes out from: of the suffix of at most depth - 1 tokens.
uint32_t Automaton::start_of(uint32_t id) const {
  const State& state = states_[id];
  if (state.length < depth_ || states_[state.link].length + 1u < depth_) return id;
  return state.link;
}

void Automaton::add_edge(uint32_t id, const Edge& edge, uint32_t position) {
  State& state = states_[id];
  const uint32_t text_stamp = state.kind == kSingle ? text_.stamp(state.value) : 0;
  blocks_.add(state, edge, position, text_stamp);
}

// Parts the strings of at most `length` tokens from a class; returns theirs.
uint32_t Automaton::split(uint32_t id, uint32_t length) {
  const uint32_t part = states_.add(states_[id]);
  State& rest = states_[id];
  if (length + 1 == depth_) {  // what remains is as long as the cap: no append goes out from it
    rest = State::make(part, rest.length);
  } else {
    blocks_.clone(states_[part]);
    rest.link = part;
  }
  states_[part].length = length;
  return part;
}

// Leads the edges that went to a class just parted to the part; returns the first state that had none.
uint32_t Automaton::redirect(uint32_t id, uint32_t token, uint32_t from, uint32_t to) {
  while (id != kNone && blocks_.find(states_[id], token).target == from) {
    blocks_.redirect(states_[id], token, to);
    id = states_[id].link;
  }
  return id;
}

void Automaton::append(Cursor& cursor, uint32_t token, uint32_t weight, uint32_t stamp, uint32_t position) {
  uint32_t at = start_of(cursor.state);
  const uint32_t length = std::min<uint32_t>(states_[cursor.state].length + 1u, depth_);
  uint32_t hints = 0, last = 0, fresh = 0;
  const auto met = [&](uint32_t target) {
    if (target == last) return;
    prefetch(&states_[target]);
    last = target;
    if (hints < Cursor::kHints) cursor.hints[hints++] = target;
  };
  uint32_t target = blocks_.bump(states_[at], token, weight, stamp);
  if (target == 0) {
    fresh = states_.add(State::make(kRoot, length));
    do {
      add_edge(at, {token, stamp, fresh, weight}, position);
      at = states_[at].link;
    } while (at != kNone && (target = blocks_.bump(states_[at], token, weight, stamp)) == 0);
    met(fresh);
  }
  uint32_t goal = fresh;
  if (at != kNone) {
    const uint32_t longest = fresh ? states_[at].length + 1u : length;
    if (states_[target].length > longest) {
      const uint32_t part = split(target, longest);
      redirect(at, token, target, part);
      target = part;
    }
    if (fresh)
      states_[fresh].link = target;
    else
      goal = target;
    met(target);
    while ((at = states_[at].link) != kNone) met(blocks_.bump(states_[at], token, weight, stamp));
  }
  cursor.state = goal;
  while (hints < Cursor::kHints) cursor.hints[hints++] = kRoot;
}

uint64_t Automaton::count(const int32_t* tokens, uint32_t length) const {
  uint32_t at = kRoot;
  uint64_t count = 0;
  for (uint32_t i = 0; i < length; ++i) {
    const Edge edge = blocks_.find(states_[at], static_cast<uint32_t>(tokens[i]));
    if (edge.target == 0) return 0;
    at = edge.target;
    count = edge.count;
  }
  return count;
}

}  // namespace sestina::drafting
