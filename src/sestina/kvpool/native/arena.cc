#include "arena.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>

#include "checksum.h"

namespace sestina::kvpool {

namespace {

constexpr int64_t kLine = 64;

// Pages lie in pieces, and each begins with some lines that the processor has not foreseen.
void foresee(const Cells& cells, int64_t page) {
  for (int64_t part = 0; part < cells.parts; ++part) {
    const uint8_t* at = cells.base + page * cells.page_stride + part * cells.part_stride;
    for (int64_t line = 0; line < cells.part_bytes; line += kLine) __builtin_prefetch(at + line);
  }
}

uint64_t sum_of(const Cells& cells, int64_t page) {
  Checksum sum;
  for (int64_t part = 0; part < cells.parts; ++part)
    sum.add(cells.base + page * cells.page_stride + part * cells.part_stride, static_cast<size_t>(cells.part_bytes));
  return sum.finish();
}

// Calls `move(file, pieces, how many, offset)` until it has moved all pieces; returns how many bytes it has.
template <typename Move>
int64_t move_all(Move move, int file, std::vector<iovec>& pieces, int64_t offset) {
  int64_t moved = 0;
  for (size_t at = 0; at < pieces.size();) {
    const int count = static_cast<int>(std::min<size_t>(pieces.size() - at, IOV_MAX));
    ssize_t done = move(file, &pieces[at], count, offset + moved);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return moved;
    moved += done;
    for (; at < pieces.size() && static_cast<size_t>(done) >= pieces[at].iov_len; ++at)
      done -= static_cast<ssize_t>(pieces[at].iov_len);
    if (done) {
      pieces[at].iov_base = static_cast<uint8_t*>(pieces[at].iov_base) + done;
      pieces[at].iov_len -= static_cast<size_t>(done);
    }
  }
  return moved;
}

// Moves pages of a chain of blocks, each run of neighbours at once; returns how many before the first that failed.
template <typename Move>
int64_t move_pages(Move move, int file, const uint32_t* blocks, const Cells& cells, const std::vector<int64_t>& pages) {
  const int64_t count = static_cast<int64_t>(pages.size()), page_bytes = cells.parts * cells.part_bytes;
  std::vector<iovec> pieces;
  pieces.reserve(pages.size() * static_cast<size_t>(cells.parts));
  for (int64_t from = 0, to; from < count; from = to) {
    pieces.clear();
    for (to = from; to < count && blocks[to] == blocks[from] + (to - from); ++to)
      for (int64_t part = 0; part < cells.parts; ++part)
        pieces.push_back({cells.base + pages[to] * cells.page_stride + part * cells.part_stride,
                          static_cast<size_t>(cells.part_bytes)});
    const int64_t moved = move_all(move, file, pieces, (int64_t{blocks[from]} - 1) * page_bytes);
    if (moved < (to - from) * page_bytes) return from + moved / page_bytes;
  }
  return count;
}

}  // namespace

Arena::Arena(const std::string& index, const std::string& pages, uint64_t page_bytes, uint64_t num_blocks)
    : index(index, page_bytes, num_blocks), pages_(open(pages.c_str(), O_RDWR | O_CREAT, 0600)) {
  if (pages_ < 0) throw std::system_error(errno, std::generic_category(), pages);
}

Arena::~Arena() { close(pages_); }

int Arena::write(uint32_t number, const Cells& cells, const std::vector<int64_t>& pages) {
  const std::vector<uint32_t> blocks = index.chain(number);
  if (blocks.size() != pages.size()) return EIO;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i + 1 < blocks.size()) foresee(cells, pages[i + 1]);
    index.sum(blocks[i]) = sum_of(cells, pages[i]);
  }
  errno = 0;
  const int64_t moved = move_pages(pwritev, pages_, blocks.data(), cells, pages);
  return moved == static_cast<int64_t>(pages.size()) ? 0 : errno ? errno : ENOSPC;
}

int64_t Arena::read(uint32_t number, int64_t skip, const Cells& cells, const std::vector<int64_t>& pages) {
  const std::vector<uint32_t> blocks = index.chain(number);
  if (static_cast<int64_t>(blocks.size()) < skip + static_cast<int64_t>(pages.size())) return 0;
  const uint32_t* wanted = blocks.data() + skip;
  const int64_t moved = move_pages(preadv, pages_, wanted, cells, pages);
  for (int64_t i = 0; i < moved; ++i)
    if (sum_of(cells, pages[i]) != index.sum(wanted[i])) return skip + i;
  return skip + moved;
}

}  // namespace sestina::kvpool
