// What moves an entry of this machine's memory in one go, tally and lock included.
//
// None of it does more than is quickly done. Where there is more to do, it says so and has done nothing: where the lock
// has been left in disorder, another generation has begun, or room has to be made.
#pragma once

#include <cstdint>
#include <vector>

#include "arena.h"
#include "tally.h"

namespace sestina::kvpool {

constexpr int kElsewhere = -1;  // whoever asked has to go another way

constexpr double kMomentS = 0.001;  // to wait for the lock before going another way
constexpr double kLongS = 30;       // to wait for it where there is no other way

// Tokens of a request, of 4 bytes each.
struct Text {
  const uint8_t* bytes;
  int64_t num_tokens;

  uint64_t digest(int64_t count) const;
};

// What an entry counts in the tally.
struct Share {
  int64_t generation;
  int64_t num_bytes;
};

// Keeps the KV of a text, which lies in `pages`, in place of what its request has left there; returns 0, an errno, or
// kElsewhere.
int keep(Tally& tally, Arena& arena, const Share& share, int64_t limit_bytes, const Key& key, const Text& text,
         const Cells& cells, const std::vector<int64_t>& pages, double used_s);

struct Taken {
  uint32_t number;  // 0: kElsewhere
  uint32_t num_pages;
  bool counted;  // by the tally; else who moves it has kept account
};

// Takes an entry out if it has no more than so many pages.
Taken take(Tally& tally, Arena& arena, int64_t generation, const Key& key, uint32_t most_pages);

// Gives blocks back.
void release(Tally& tally, Arena& arena, uint32_t number, const Share& share);

struct Put {
  bool fits;           // it is undamaged, but for its pages, and of a text that `text` begins with
  int64_t num_tokens;  // of its text
  int64_t good_pages;
  int64_t num_pages;
};

// Copies an entry's pages from number `skip` on to `pages` of the same number.
Put put(Arena& arena, uint32_t number, const Text& text, int64_t page_tokens, const Cells& cells,
        const std::vector<int64_t>& pages, int64_t skip);

}  // namespace sestina::kvpool
