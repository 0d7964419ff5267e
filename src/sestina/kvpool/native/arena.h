// The pages of entries, in a file of shared memory that each process keeps open: block b from (b - 1) * page_bytes on.
//
// Pages go from where the engine has them to the file and back in one copy, by system calls for whole runs of blocks.
// The file is not mapped: what it lacks is then an answer, and no signal, and no process has to touch it page by page.
#pragma once

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

  // Copies pages to the blocks of an entry that was reserved, and notes their checksums; returns an errno, or 0.
  int write(uint32_t number, const Cells& cells, const std::vector<int64_t>& pages);

  // Copies pages of an entry from number `skip` on; returns how many there are before the first that is damaged or
  // missing, those that were skipped included. What lies in `cells` behind them is undefined.
  int64_t read(uint32_t number, int64_t skip, const Cells& cells, const std::vector<int64_t>& pages);

 private:
  int pages_;
};

}  // namespace sestina::kvpool
