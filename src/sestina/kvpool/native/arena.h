// The pages of entries, in a file of shared memory that all processes map: block b from (b - 1) * page_bytes on.
//
// Pages go from where the engine has them to the file and back in one copy, through the mapping. The file grows by a
// system call, which says so where memory is short, and is held against its size before it is touched: a mapping alone
// would answer with a signal.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "index.h"

namespace sestina::kvpool {

// Pages in a process's memory: page p is `parts` pieces of `part_bytes`, piece j at base + p * page_stride + j *
// part_stride.
struct Cells {
  uint8_t* base;
  int64_t page_stride;
  int64_t part_stride;
  int64_t parts;
  int64_t part_bytes;
};

class Arena {
 public:
  // Opens both files, or makes them; see Index.
  Arena(const std::string& index, const std::string& pages, uint64_t page_bytes, uint64_t num_blocks);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Index index;

  // Has the file reach to so many bytes, within its limit, and maps all of it; returns an errno, or 0. Needs no lock.
  int make_ready(uint64_t num_bytes);

  // Copies pages to the blocks of an entry that was reserved, and notes their checksums; returns an errno, or 0.
  int write(uint32_t number, const Cells& cells, const std::vector<int64_t>& pages);

  // Copies pages of an entry from number `skip` on; returns how many there are before the first that is damaged or
  // missing, those that were skipped included. What lies in `cells` behind them is undefined.
  int64_t read(uint32_t number, int64_t skip, const Cells& cells, const std::vector<int64_t>& pages);

 private:
  // Whether the file reaches to the end of these blocks.
  bool reaches(const uint32_t* blocks, size_t count);

  // Sees to it that it does, or reaches to some byte; returns an errno, or 0.
  int reach(const std::vector<uint32_t>& blocks) { return reach(end_of(blocks.data(), blocks.size())); }
  int reach(uint64_t end);

  // Maps what the file has grown by at once, and not page by page when they are touched.
  void map_until(uint64_t end);

  uint64_t end_of(const uint32_t* blocks, size_t count) const;
  uint8_t* at(uint32_t block) const { return map_ + (uint64_t{block} - 1) * index.page_bytes(); }

  int pages_;
  uint64_t num_bytes_;
  uint8_t* map_;
  std::atomic<uint64_t> mapped_{0};
};

}  // namespace sestina::kvpool
