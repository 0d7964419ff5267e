// Which entries lie in a node's shared memory, and in which blocks: a file that all its processes map.
//
// A block holds one page, and an entry is a chain of them; both are numbered from 1, and 0 is none. What is used first
// again is what was used last: so the tables stay dense, and a process touches few pages of them.
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
  uint32_t first;  // its block
  uint32_t after;  // the next entry of the same bucket, or the next that is free
  uint32_t state;
  uint32_t unused;
};

class Index {
 public:
  // Maps the file, which `page_bytes` of 0 wants to be there already; throws std::system_error.
  Index(const std::string& path, uint64_t page_bytes, uint64_t num_blocks);
  ~Index();
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  uint64_t page_bytes() const { return page_bytes_; }
  uint64_t num_blocks() const { return num_blocks_; }

  // An entry of so many blocks, which nobody finds; 0 when there are too few.
  uint32_t reserve(const Key& key, uint32_t num_pages);

  // Makes what was written an entry that can be found.
  void publish(uint32_t number, uint32_t num_tokens, uint64_t digest, double used_s);

  // The entry of a key, held or on its way to another tier; 0 when it is not there.
  uint32_t find(const Key& key) const;

  // Nobody finds it any more; its blocks are the caller's.
  void remove(uint32_t number);

  // Gives its blocks back.
  void free(uint32_t number);

  // What can be found and stays where it is.
  std::vector<uint32_t> held() const;

  // Needs no lock, of an entry that is the caller's.
  Entry& entry(uint32_t number) { return entries_[number]; }
  const Entry& entry(uint32_t number) const { return entries_[number]; }

  // The blocks of an entry in order; empty when they are damaged. Needs no lock, of an entry that is the caller's.
  std::vector<uint32_t> chain(uint32_t number) const;

  uint64_t& sum(uint32_t block) { return blocks_[block].sum; }
  std::vector<uint64_t> sums(uint32_t number) const;
  uint64_t seal(uint32_t number) const;

 private:
  struct Head {
    uint64_t page_bytes;
    uint64_t num_blocks;
    uint64_t serial;
    uint32_t fresh_blocks;  // that were ever used
    uint32_t free_block;    // the first of those that are free
    uint32_t fresh_entries;
    uint32_t free_entry;
  };

  struct Block {
    uint64_t sum;   // checksum of its page
    uint32_t next;  // of its entry, or the next that is free
    uint32_t unused;
  };

  uint32_t take_block();
  uint32_t take_entry();
  uint32_t& bucket(const Key& key) const;
  bool known(uint32_t number) const { return 0 < number && number <= num_blocks_; }

  uint64_t num_blocks_ = 0;
  uint64_t page_bytes_ = 0;
  size_t num_bytes_ = 0;
  Head* head_ = nullptr;
  Entry* entries_ = nullptr;
  Block* blocks_ = nullptr;
  uint32_t* buckets_ = nullptr;
};

}  // namespace sestina::kvpool
