// Which entries lie in a node's shared memory, and in which blocks: a file that all its processes map.
//
// A block holds one page. An entry is a chain of blocks, named by its first; blocks are numbered from 1, and 0 is none.
// Whoever calls holds the pool's lock, but for what is said otherwise. Numbers that are read from the file are held
// against its limits: a damaged one makes an entry unusable, and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sestina::kvpool {

struct Key {
  int64_t version;
  int64_t group;
  int64_t sample;
};

// Of an entry: with whoever writes or has taken it; to be found; to be found, but on its way to another tier.
enum State : uint32_t { kOwned, kHeld, kMoving };

struct Entry {
  Key key;
  uint64_t digest;  // of the tokens
  uint64_t seal;    // checksum of the key, the tokens, and the checksums of the pages
  uint64_t serial;  // no other entry has had it
  double used_s;
  uint32_t num_tokens;
  uint32_t num_pages;
  uint32_t after;  // the next entry of the same bucket
  uint32_t state;
};

class Index {
 public:
  // Maps the file, which `page_bytes` of 0 wants to be there already; throws std::system_error.
  Index(const std::string& path, uint64_t page_bytes, uint64_t num_blocks);
  ~Index();
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  uint64_t page_bytes() const { return head_->page_bytes; }

  // A chain of so many blocks that nobody else has; 0 when there are too few.
  uint32_t reserve(const Key& key, uint32_t num_pages);

  // Makes what was written an entry that can be found.
  void publish(uint32_t first, uint32_t num_tokens, uint64_t digest, double used_s);

  // The entry of a key, held or on its way to another tier; 0 when it is not there.
  uint32_t find(const Key& key) const;

  // Nobody finds it any more; its blocks are the caller's.
  void remove(uint32_t first);

  // Gives the blocks back.
  void free(uint32_t first);

  // What can be found and stays where it is.
  std::vector<uint32_t> held() const;

  // Needs no lock, of an entry that is the caller's.
  Entry& entry(uint32_t first) { return entries_[first]; }
  const Entry& entry(uint32_t first) const { return entries_[first]; }

  // The blocks of an entry in order; empty when they are damaged. Needs no lock, of an entry that is the caller's.
  std::vector<uint32_t> chain(uint32_t first) const;

  uint64_t& sum(uint32_t block) { return sums_[block]; }
  std::vector<uint64_t> sums(uint32_t first) const;
  uint64_t seal(uint32_t first) const;

 private:
  struct Head {
    uint64_t page_bytes;
    uint64_t num_blocks;
    uint64_t serial;
    uint32_t fresh;  // blocks that were ever used
    uint32_t free;   // the first of those that are free
  };

  uint32_t take_block();
  uint32_t& bucket(const Key& key) const;
  bool known(uint32_t block) const { return 0 < block && block <= num_blocks_; }

  uint64_t num_blocks_ = 0;
  size_t num_bytes_ = 0;
  Head* head_ = nullptr;
  Entry* entries_ = nullptr;
  uint64_t* sums_ = nullptr;
  uint32_t* nexts_ = nullptr;
  uint32_t* buckets_ = nullptr;
  uint64_t num_buckets_ = 0;
};

}  // namespace sestina::kvpool
