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
  if (state.kind == kSingle) state.set_unary(1, text_.stamp(state.value));  // its text's stamp would be lost
  blocks_.add(state, edge, position);
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

// Parts the strings of at most `length` tokens from a class, and leads to them the edges of `id` and its links that
// went there; returns their class.
uint32_t Automaton::split_off(uint32_t id, uint32_t token, uint32_t from, uint32_t length) {
  const uint32_t part = split(from, length);
  for (; id != kNone && blocks_.find(states_[id], token).target == from; id = states_[id].link)
    blocks_.redirect(states_[id], token, part);
  return part;
}

void Automaton::append(Cursor& cursor, uint32_t token, uint32_t weight, uint32_t stamp, uint32_t position) {
  uint32_t at = start_of(cursor.state);
  const uint32_t length = std::min<uint32_t>(states_[cursor.state].length + 1u, depth_);
  uint32_t hints = 0, last = kRoot;
  const auto met = [&](uint32_t target) {
    if (target == last || hints == Cursor::kHints) return;
    prefetch(&states_[target]);
    cursor.hints[hints++] = last = target;
  };
  uint32_t target = blocks_.bump(states_[at], token, weight, stamp), fresh = kRoot;
  if (target == kRoot) {
    fresh = states_.add(State::make(kRoot, length));
    do {
      add_edge(at, {token, stamp, fresh, weight}, position);
      at = states_[at].link;
    } while (at != kNone && (target = blocks_.bump(states_[at], token, weight, stamp)) == kRoot);
    met(fresh);
  }
  if (at != kNone) {
    const uint32_t longest = fresh != kRoot ? states_[at].length + 1u : length;
    if (states_[target].length > longest) target = split_off(at, token, target, longest);
    if (fresh != kRoot) states_[fresh].link = target;
    met(target);
    while ((at = states_[at].link) != kNone) met(blocks_.bump(states_[at], token, weight, stamp));
  }
  cursor.state = cursor.hints[0];
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
