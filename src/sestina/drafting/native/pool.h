// A growing array of trivial records, addressed by u32. Large ones lie in huge pages: a random access to a store of
// tens of megabytes otherwise pays for the page table as much as for the data.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

namespace sestina::drafting {

// Memory of a pool: malloc while small, mapped at a multiple of the huge page's size from there on.
class Extent {
 public:
  static constexpr size_t kHugePage = size_t{2} << 20;
  static constexpr size_t kMappedFrom = kHugePage / 2;

  Extent() = default;
  Extent(const Extent&) = delete;
  Extent& operator=(const Extent&) = delete;
  ~Extent() { release(); }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  void grow(size_t bytes) {
    if (bytes < kMappedFrom) {
      void* moved = std::realloc(data_, bytes);
      if (moved == nullptr) throw std::bad_alloc();
      data_ = moved;
      bytes_ = bytes;
    } else {
      remap((bytes + kHugePage - 1) / kHugePage * kHugePage);
    }
  }

 private:
  // Moves page tables, not data: the old pages keep their place within a huge page.
  void remap(size_t bytes) {
    char* room = reserve(bytes);
    if (mapped_) {
      if (mremap(data_, bytes_, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, room) == MAP_FAILED) throw std::bad_alloc();
    } else {
      if (bytes_ > 0) __builtin_memcpy(room, data_, bytes_);
      std::free(data_);
    }
    madvise(room, bytes, MADV_HUGEPAGE);
    data_ = room;
    bytes_ = bytes;
    mapped_ = true;
  }

  static char* reserve(size_t bytes) {
    void* room = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) throw std::bad_alloc();
    char* first = static_cast<char*>(room);
    const size_t skipped = (kHugePage - reinterpret_cast<uintptr_t>(first) % kHugePage) % kHugePage;
    if (skipped > 0) munmap(first, skipped);
    if (skipped < kHugePage) munmap(first + skipped + bytes, kHugePage - skipped);
    return first + skipped;
  }

  void release() {
    if (mapped_)
      munmap(data_, bytes_);
    else
      std::free(data_);
  }

  void* data_ = nullptr;
  size_t bytes_ = 0;
  bool mapped_ = false;
};

template <class T>
class Pool {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  T& operator[](uint32_t i) { return static_cast<T*>(extent_.data())[i]; }
  const T& operator[](uint32_t i) const { return static_cast<const T*>(extent_.data())[i]; }
  uint32_t size() const { return size_; }
  // What is held, pages of a mapped extent that were never touched left out.
  size_t bytes() const { return extent_.bytes() < Extent::kMappedFrom ? extent_.bytes() : size_ * sizeof(T); }

  // Room for `count` more records, not initialised; returns the first one's index.
  uint32_t take(uint32_t count) {
    const uint32_t first = size_;
    const size_t wanted = (size_t{first} + count) * sizeof(T);
    if (wanted > extent_.bytes()) extent_.grow(wanted < 256 ? 256 : wanted + wanted / 2);
    size_ += count;
    return first;
  }
  uint32_t add(const T& record) {
    const T copy = record;  // `record` may lie in this pool, which may move
    const uint32_t at = take(1);
    (*this)[at] = copy;
    return at;
  }

 private:
  Extent extent_;
  uint32_t size_ = 0;
};

}  // namespace sestina::drafting
