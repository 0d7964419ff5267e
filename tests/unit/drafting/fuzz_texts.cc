// Drives what a draft server holds with frames of rows that fit, gap, repeat or differ, checking it against plain
// vectors and against a reader that fetches. Built with sanitizers by test_sanitised.py; arguments: seed and number of
// rounds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include "texts.h"

using namespace sestina::drafting;

namespace {

constexpr int64_t kGroups = 4, kRequests = 3;
constexpr size_t kNoRoom = 600;

using Said = std::map<std::pair<int64_t, int64_t>, std::vector<int32_t>>;

std::mt19937 random_bits;
int64_t below(int64_t bound) { return static_cast<int64_t>(random_bits() % static_cast<uint64_t>(bound)); }

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

struct Reader {
  std::map<int64_t, std::pair<int64_t, int64_t>> places;  // epoch and cursor of each group
  Said said;

  void read(Texts& texts, size_t budget) {
    std::vector<CacheState> asked;
    for (int64_t group = 0; group < kGroups; ++group) {
      asked.push_back({group, places[group].first, places[group].second});
    }
    const Told told = texts.exchange({asked.data(), asked.size(), nullptr, 0, nullptr}, budget, 0);
    for (const GroupState& state : told.states) {
      if (state.epoch != places[state.group].first) forget(state.group);
      places[state.group] = {state.epoch, state.end};
    }
    const int32_t* tokens = told.tokens.data();
    for (const Row& row : told.rows) {
      auto& text = said[{row.group, row.request}];
      check(row.offset <= static_cast<int64_t>(text.size()), "a reader was sent a gap");
      text.resize(row.offset);
      text.insert(text.end(), tokens, tokens + row.length);
      tokens += row.length;
    }
    check(tokens == told.tokens.data() + told.tokens.size(), "tokens that belong to no row");
  }
  void forget(int64_t group) {
    for (int64_t request = 0; request < kRequests; ++request) said.erase({group, request});
  }
};

// One row and what is to become of it.
void write(Texts& texts, Said& said) {
  const int64_t group = below(kGroups), request = below(kRequests);
  auto& text = said[{group, request}];
  const int64_t known = static_cast<int64_t>(text.size());
  const Row row{group, request, std::max(int64_t{0}, known - below(9)) + below(3), 1 + below(below(50) ? 9 : 20000)};
  std::vector<int32_t> tokens(row.length);
  for (int64_t i = 0; i < row.length; ++i) {
    const int64_t at = row.offset + i;
    tokens[i] = at < known && below(400) ? text[at] : static_cast<int32_t>(below(5));
  }
  const size_t room = below(8) ? size_t{1} << 30 : kNoRoom;
  const Told told = texts.exchange({nullptr, 0, &row, 1, tokens.data()}, 1000, room);
  if (!told.unknown.empty()) return;
  const Receipt& receipt = told.receipts.at(0);
  bool differs = false;
  for (int64_t i = row.offset; i < std::min(known, row.offset + row.length); ++i) {
    differs |= text[i] != tokens[i - row.offset];
  }
  check((receipt.conflict != 0) == (differs && row.offset <= known), "a conflict that is none, or one not seen");
  const bool taken = !differs && row.offset <= known && row.offset + row.length > known && told.full.empty();
  if (taken) text.insert(text.end(), tokens.begin() + (known - row.offset), tokens.end());
  check(receipt.count == static_cast<int64_t>(text.size()), "a count that differs");
}

}  // namespace

int main(int, char** argv) {
  random_bits.seed(static_cast<uint32_t>(std::atoi(argv[1])));
  Texts texts;
  Said said;
  Reader reader;
  int64_t epoch = 1;
  std::vector<bool> open(kGroups, false);
  for (int round = std::atoi(argv[2]); round > 0; --round) {
    const int64_t group = below(kGroups);
    if (!open[group]) {
      texts.open(group, epoch++, 10.0, "prompt", round);
      open[group] = true;
    } else if (below(300) == 0) {
      texts.drop(group);
      open[group] = false;
      for (int64_t request = 0; request < kRequests; ++request) said.erase({group, request});
      reader.forget(group);
    }
    check(texts.has(group, 1.0, "other", round) == (open[group] ? 0 : -1), "a prompt that is another's");
    write(texts, said);
    if (below(4) == 0) reader.read(texts, 1 + static_cast<size_t>(below(100000)));
  }
  for (int turn = 0; turn < 2000; ++turn) reader.read(texts, 100000);
  for (const auto& [name, text] : said) {
    if (open[name.first] && !text.empty()) check(reader.said[name] == text, "a reader lacks what was said");
  }
  for (const int64_t group : texts.by_use()) texts.drop(group);
  check(texts.bytes() == 0 && texts.size() == 0, "memory of nothing");
  return 0;
}
