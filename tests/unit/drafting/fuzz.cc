// Drives the index at random, good input and bad, checking it against its own recount and its replayed log. Built with
// sanitizers by test_sanitised.py; arguments: seed and number of rounds.
#include <cstdio>
#include <random>

#include "index.h"

using namespace sestina::drafting;

namespace {

struct Live {
  int64_t group, handle, length;
};

std::mt19937 random_bits;
uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_bits() % bound); }

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

// Runs a call that may be refused; says whether it went through.
template <class Call>
bool went_through(const Call& call) {
  try {
    call();
    return true;
  } catch (const Failure&) {
    return false;
  }
}

std::vector<int32_t> some_tokens(uint32_t most, uint32_t alphabet) {
  std::vector<int32_t> tokens(below(most + 1));
  for (int32_t& token : tokens) token = static_cast<int32_t>(below(alphabet));
  return tokens;
}

void append(SuffixIndex& index, Live& live, std::vector<int32_t> tokens) {
  const bool bad = below(8) == 0;
  int64_t offset = live.length, handle = live.handle;
  if (bad && below(2)) offset += 1 + below(3);
  if (bad && below(2)) handle += int64_t{1} << below(60);
  if (bad && !tokens.empty() && below(2)) tokens[0] = -1 - static_cast<int32_t>(below(9));
  const int64_t bounds[] = {0, static_cast<int64_t>(tokens.size())};
  const bool done = went_through([&] { index.append({&handle, &offset, bounds, tokens.data(), 1, bounds[1]}); });
  if (done && handle == live.handle && offset == live.length) live.length += bounds[1];
}

void draft(SuffixIndex& index, const std::vector<Live>& lives) {
  std::vector<int64_t> handles;
  std::vector<int32_t> limits_of;
  int64_t room = 0;
  for (const Live& live : lives) {
    handles.push_back(live.handle);
    limits_of.push_back(static_cast<int32_t>(below(kMaxDraft + 1)));
    room += limits_of.back();
  }
  const uint32_t size = static_cast<uint32_t>(lives.size());
  std::vector<int64_t> bounds(size + 1);
  std::vector<int32_t> tokens(room), parents(room), matches(size);
  std::vector<float> probs(room), scores(size);
  const Limits limits{0, 1 + below(8), static_cast<float>(below(3)) * 0.05f, below(4), 1 + below(3)};
  const DraftBatch batch{handles.data(), limits_of.data(), size, limits, 1 + below(3)};
  went_through([&] {
    index.draft(batch,
                {bounds.data(), tokens.data(), parents.data(), probs.data(), scores.data(), matches.data(), room});
    if (bounds[size] > room) fail("drafts exceed their room");
  });
}

void replay(SuffixIndex& index, uint32_t alphabet, uint32_t depth) {
  SuffixIndex client(alphabet, depth, int64_t{1} << 40, 0);
  for (const int64_t group : index.groups()) {
    int64_t epoch = 0;
    Slice slice = index.fetch(group, 0, epoch);
    client.replay(group, epoch, 0, slice);
    if (!slice.records.empty()) slice.records[below(static_cast<uint32_t>(slice.records.size()))] ^= 1u << below(20);
    if (!slice.tokens.empty()) slice.tokens[below(static_cast<uint32_t>(slice.tokens.size()))] -= 1;
    SuffixIndex other(alphabet, depth, int64_t{1} << 40, 0);
    went_through([&] { other.replay(group, epoch, 0, slice); });
    if (!other.check().empty()) fail("a changed log broke the index");
  }
  const std::string found = client.check();
  if (!found.empty()) fail(found.c_str());
}

void round(uint32_t steps) {
  const uint32_t alphabet = 2 + below(below(2) ? 4 : 60), depth = 2 + below(23);
  SuffixIndex index(alphabet, depth, below(3) ? 1 << 30 : 60000, 1);
  std::vector<Live> lives;
  for (uint32_t step = 0; step < steps; ++step) {
    const uint32_t action = below(20);
    const int64_t group = below(4);
    const std::vector<int32_t> tokens = some_tokens(action == 3 ? 200 : 9, alphabet);
    if (action == 0) {
      went_through([&] { index.start_group(group, tokens.data(), static_cast<uint32_t>(tokens.size())); });
    } else if (action == 1) {
      went_through([&] { lives.push_back({group, index.start_request(group, below(30), below(3)), 0}); });
    } else if (action == 2 && !lives.empty()) {
      const uint32_t one = below(static_cast<uint32_t>(lives.size()));
      went_through([&] { index.stop_request(lives[one].handle); });
      lives.erase(lives.begin() + one);
    } else if (action == 4 && below(10) == 0) {
      went_through([&] { index.drop_group(group); });
    } else if (action < 15 && !lives.empty()) {
      append(index, lives[below(static_cast<uint32_t>(lives.size()))], tokens);
    } else {
      draft(index, lives);
    }
  }
  const std::string found = index.check();
  if (!found.empty()) fail(found.c_str());
  replay(index, alphabet, depth);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) fail("arguments: seed, rounds");
  random_bits.seed(static_cast<uint32_t>(std::atoi(arguments[1])));
  for (int i = 0; i < std::atoi(arguments[2]); ++i) round(50 + below(400));
  return 0;
}
