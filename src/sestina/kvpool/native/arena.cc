#include "arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "checksum.h"

namespace sestina::kvpool {

namespace {

constexpr int64_t kLine = 64;
constexpr uint64_t kMachinePage = 4096;
constexpr int kMapAtOnce = 22;         // MADV_POPULATE_READ, which older headers lack
constexpr uint64_t kExtent = 1 << 20;  // by which the file grows, where memory allows

void foresee(const uint8_t* at, int64_t count) {
  for (int64_t line = 0; line < count; line += kLine) __builtin_prefetch(at + line);
}

// Pages lie in pieces, and each begins with some lines that the processor has not foreseen.
void foresee(const Cells& cells, int64_t page) {
  for (int64_t part = 0; part < cells.parts; ++part)
    foresee(cells.base + page * cells.page_stride + part * cells.part_stride, cells.part_bytes);
}

uint64_t sum_of(const Cells& cells, int64_t page) {
  Checksum sum;
  for (int64_t part = 0; part < cells.parts; ++part)
    sum.add(cells.base + page * cells.page_stride + part * cells.part_stride, static_cast<size_t>(cells.part_bytes));
  return sum.finish();
}

// Copies a page to one piece of memory, or from there.
template <typename Copy>
void copy_page(const Cells& cells, int64_t page, uint8_t* piece, Copy copy) {
  for (int64_t part = 0; part < cells.parts; ++part, piece += cells.part_bytes)
    copy(cells.base + page * cells.page_stride + part * cells.part_stride, piece,
         static_cast<size_t>(cells.part_bytes));
}

void copy_out(const uint8_t* cell, uint8_t* piece, size_t count) { std::memcpy(piece, cell, count); }
void copy_in(uint8_t* cell, const uint8_t* piece, size_t count) { std::memcpy(cell, piece, count); }

}  // namespace

Arena::Arena(const std::string& index, const std::string& pages, uint64_t page_bytes, uint64_t num_blocks)
    : index(index, page_bytes, num_blocks), pages_(open(pages.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  num_bytes_ = this->index.page_bytes() * this->index.num_blocks();
  void* at = MAP_FAILED;
  if (pages_ >= 0) at = mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, pages_, 0);
  if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), pages);
  map_ = static_cast<uint8_t*>(at);
}

Arena::~Arena() {
  munmap(map_, num_bytes_);
  close(pages_);
}

uint64_t Arena::end_of(const uint32_t* blocks, size_t count) const {
  return count ? *std::max_element(blocks, blocks + count) * index.page_bytes() : 0;
}

void Arena::map_until(uint64_t end) {
  uint64_t mapped = mapped_;
  if (end <= mapped || !mapped_.compare_exchange_strong(mapped, end)) return;
  mapped = mapped / kMachinePage * kMachinePage;
  madvise(map_ + mapped, end - mapped, kMapAtOnce);  // where the kernel cannot, pages are mapped as they come
}

bool Arena::reaches(const uint32_t* blocks, size_t count) {
  struct stat found;
  if (fstat(pages_, &found)) return false;
  map_until(std::min(static_cast<uint64_t>(found.st_size), num_bytes_));
  return static_cast<uint64_t>(found.st_size) >= end_of(blocks, count);
}

int Arena::make_ready(uint64_t num_bytes) { return reach(std::min(num_bytes, num_bytes_)); }

int Arena::reach(uint64_t end) {
  struct stat found;
  if (fstat(pages_, &found)) return errno;
  const uint64_t size = static_cast<uint64_t>(found.st_size);
  if (end > size) {
    const uint64_t ahead = std::min((end + kExtent - 1) / kExtent * kExtent, num_bytes_);
    const off_t from = found.st_size;
    int code = posix_fallocate(pages_, from, static_cast<off_t>(ahead) - from);
    if (code) code = posix_fallocate(pages_, from, static_cast<off_t>(end) - from);
    if (code) return code;
  }
  map_until(std::max(size, end));
  return 0;
}

int Arena::write(uint32_t number, const Cells& cells, const std::vector<int64_t>& pages) {
  const std::vector<uint32_t> blocks = index.chain(number);
  if (blocks.size() != pages.size()) return EIO;
  if (const int code = reach(blocks)) return code;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i + 1 < blocks.size()) {
      foresee(cells, pages[i + 1]);
      foresee(at(blocks[i + 1]), static_cast<int64_t>(index.page_bytes()));
    }
    index.sum(blocks[i]) = sum_of(cells, pages[i]);
    copy_page(cells, pages[i], at(blocks[i]), copy_out);
  }
  return 0;
}

int64_t Arena::read(uint32_t number, int64_t skip, const Cells& cells, const std::vector<int64_t>& pages) {
  const std::vector<uint32_t> blocks = index.chain(number);
  const int64_t count = static_cast<int64_t>(pages.size());
  if (static_cast<int64_t>(blocks.size()) < skip + count) return 0;
  const uint32_t* wanted = blocks.data() + skip;
  const bool whole = reaches(wanted, pages.size());
  for (int64_t i = 0; i < count; ++i) {
    if (i + 1 < count) {
      foresee(cells, pages[i + 1]);
      foresee(at(wanted[i + 1]), static_cast<int64_t>(index.page_bytes()));
    }
    if (!whole && !reaches(&wanted[i], 1)) return skip + i;
    copy_page(cells, pages[i], at(wanted[i]), copy_in);
    if (sum_of(cells, pages[i]) != index.sum(wanted[i])) return skip + i;
  }
  return skip + count;
}

}  // namespace sestina::kvpool
