#include "near.h"

#include <cerrno>

#include "checksum.h"

namespace sestina::kvpool {

namespace {

// Holds the lock for a scope, if it is to be had and nobody has left anything in disorder.
class Entered {
 public:
  Entered(Tally& tally, int64_t generation, double limit_s) : tally_(tally), inside_(tally.enter(limit_s)) {
    usable_ = inside_ && !tally_[Tally::kTorn] && tally_[Tally::kGeneration] == generation;
  }
  ~Entered() {
    if (inside_) tally_.leave();
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

  explicit operator bool() const { return usable_; }

 private:
  Tally& tally_;
  bool inside_;
  bool usable_;
};

}  // namespace

uint64_t Text::digest(int64_t count) const { return checksum(bytes, static_cast<size_t>(count) * 4); }

int keep(Tally& tally, Arena& arena, const Share& share, int64_t limit_bytes, const Key& key, const Text& text,
         const Cells& cells, const std::vector<int64_t>& pages, double used_s) {
  uint32_t number;
  {
    const Entered entered(tally, share.generation, kMomentS);
    if (!entered) return kElsewhere;
    if (arena.index.find(key) || tally[Tally::kMemoryBytes] > limit_bytes - share.num_bytes) return kElsewhere;
    number = arena.index.reserve(key, static_cast<uint32_t>(pages.size()));
    if (!number) return kElsewhere;
    tally[Tally::kMemoryBytes] += share.num_bytes;
  }
  if (const int code = arena.write(number, cells, pages)) {
    release(tally, arena, number, share);
    return code;
  }
  const uint64_t digest = text.digest(text.num_tokens);
  const Entered entered(tally, share.generation, kLongS);
  if (!entered) return ESTALE;
  arena.index.publish(number, static_cast<uint32_t>(text.num_tokens), digest, used_s);
  return 0;
}

Taken take(Tally& tally, Arena& arena, int64_t generation, const Key& key, uint32_t most_pages) {
  const Entered entered(tally, generation, kMomentS);
  const uint32_t number = entered ? arena.index.find(key) : 0;
  if (!number) return {};
  const Entry& entry = arena.index.entry(number);
  if (entry.num_pages > most_pages) return {};
  const bool counted = entry.state != kMoving;
  arena.index.remove(number);
  return {number, entry.num_pages, counted};
}

void release(Tally& tally, Arena& arena, uint32_t number, const Share& share) {
  const Entered entered(tally, share.generation, kLongS);
  if (!entered) return;  // of another generation: all of it goes
  arena.index.free(number);
  tally[Tally::kMemoryBytes] -= share.num_bytes;
}

Put put(Arena& arena, uint32_t number, const Text& text, int64_t page_tokens, const Cells& cells,
        const std::vector<int64_t>& pages, int64_t skip) {
  const Entry& entry = arena.index.entry(number);
  const int64_t num_tokens = entry.num_tokens, num_pages = entry.num_pages;
  const bool fits = entry.seal == arena.index.seal(number) && num_tokens <= text.num_tokens &&
                    num_pages == (num_tokens + page_tokens - 1) / page_tokens &&
                    num_pages <= static_cast<int64_t>(pages.size()) && entry.digest == text.digest(num_tokens);
  if (!fits || skip >= num_pages) return {fits, num_tokens, num_pages, num_pages};
  const std::vector<int64_t> targets(pages.begin() + skip, pages.begin() + num_pages);
  return {true, num_tokens, arena.read(number, skip, cells, targets), num_pages};
}

}  // namespace sestina::kvpool
