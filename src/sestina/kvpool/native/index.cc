#include "index.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "checksum.h"

namespace sestina::kvpool {

namespace {

constexpr size_t kHeadBytes = 64;

bool same(const Key& a, const Key& b) { return a.version == b.version && a.group == b.group && a.sample == b.sample; }

[[noreturn]] void fail(const std::string& path) { throw std::system_error(errno, std::generic_category(), path); }

// What is closed at the end of a scope.
struct File {
  int at;
  ~File() { close(at); }
};

uint64_t buckets_for(uint64_t num_blocks) {
  uint64_t buckets = 64;
  while (buckets < num_blocks && buckets < (1u << 16)) buckets *= 2;
  return buckets;
}

}  // namespace

Index::Index(const std::string& path, uint64_t page_bytes, uint64_t num_blocks) {
  const File file{open(path.c_str(), O_RDWR | (page_bytes ? O_CREAT : 0), 0600)};
  if (file.at < 0) fail(path);
  Head head{};
  const bool fresh = pread(file.at, &head, sizeof head, 0) != sizeof head || !head.page_bytes;
  if (fresh) head = {page_bytes, num_blocks, 0, 0, 0};
  if (!head.page_bytes || (page_bytes && head.page_bytes != page_bytes))
    throw std::system_error(EINVAL, std::generic_category(),
                            path + " holds pages of " + std::to_string(head.page_bytes) + " bytes");
  num_blocks_ = head.num_blocks;
  num_buckets_ = buckets_for(num_blocks_);
  const uint64_t rows = num_blocks_ + 1;
  num_bytes_ = kHeadBytes + rows * (sizeof(Entry) + sizeof(uint64_t) + sizeof(uint32_t)) + num_buckets_ * 4;
  if (fresh && (ftruncate(file.at, static_cast<off_t>(num_bytes_)) || pwrite(file.at, &head, sizeof head, 0) < 0))
    fail(path);
  void* at = mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.at, 0);
  if (at == MAP_FAILED) fail(path);
  head_ = static_cast<Head*>(at);
  entries_ = reinterpret_cast<Entry*>(static_cast<uint8_t*>(at) + kHeadBytes);
  sums_ = reinterpret_cast<uint64_t*>(entries_ + rows);
  buckets_ = reinterpret_cast<uint32_t*>(sums_ + rows);
  nexts_ = buckets_ + num_buckets_;
}

Index::~Index() { munmap(head_, num_bytes_); }

uint32_t& Index::bucket(const Key& key) const {
  uint64_t hash = static_cast<uint64_t>(key.group) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(key.sample);
  hash = (hash ^ (hash >> 29)) * 0xd1342543de82ef95;
  return buckets_[(hash >> 40) & (num_buckets_ - 1)];
}

uint32_t Index::take_block() {
  if (const uint32_t block = head_->free; known(block)) {
    head_->free = nexts_[block];
    return block;
  }
  return head_->fresh < num_blocks_ ? ++head_->fresh : 0;
}

uint32_t Index::reserve(const Key& key, uint32_t num_pages) {
  const uint32_t first = num_pages ? take_block() : 0;
  if (!first) return 0;
  nexts_[first] = 0;
  uint32_t last = first, taken = 1;
  for (uint32_t block; taken < num_pages && (block = take_block()); ++taken) {
    nexts_[last] = block;
    nexts_[block] = 0;
    last = block;
  }
  entries_[first] = {key, 0, 0, ++head_->serial, 0.0, 0, taken, 0, kOwned};
  if (taken == num_pages) return first;
  free(first);
  return 0;
}

void Index::publish(uint32_t first, uint32_t num_tokens, uint64_t digest, double used_s) {
  Entry& entry = entries_[first];
  entry.num_tokens = num_tokens, entry.digest = digest, entry.used_s = used_s;
  entry.seal = seal(first);
  entry.after = bucket(entry.key);
  entry.state = kHeld;
  bucket(entry.key) = first;
}

uint32_t Index::find(const Key& key) const {
  uint64_t left = num_blocks_;
  for (uint32_t at = bucket(key); known(at) && left; at = entries_[at].after, --left)
    if (same(entries_[at].key, key)) return at;
  return 0;
}

void Index::remove(uint32_t first) {
  uint64_t left = num_blocks_;
  uint32_t* at = &bucket(entries_[first].key);
  for (; known(*at) && left; at = &entries_[*at].after, --left)
    if (*at == first) {
      *at = entries_[first].after;
      break;
    }
  entries_[first].state = kOwned;
}

void Index::free(uint32_t first) {
  const std::vector<uint32_t> blocks = chain(first);
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    nexts_[*block] = head_->free;  // the first comes first again, and those after it lie behind it
    head_->free = *block;
  }
}

std::vector<uint32_t> Index::held() const {
  std::vector<uint32_t> found;
  for (uint64_t bucket = 0; bucket < num_buckets_; ++bucket) {
    uint64_t left = num_blocks_;
    for (uint32_t at = buckets_[bucket]; known(at) && left; at = entries_[at].after, --left)
      if (entries_[at].state == kHeld) found.push_back(at);
  }
  return found;
}

std::vector<uint32_t> Index::chain(uint32_t first) const {
  const uint64_t count = entries_[first].num_pages;
  if (count > num_blocks_) return {};
  std::vector<uint32_t> blocks;
  blocks.reserve(count);
  for (uint32_t at = first; known(at) && blocks.size() < count; at = nexts_[at]) blocks.push_back(at);
  return blocks.size() == count ? blocks : std::vector<uint32_t>{};
}

std::vector<uint64_t> Index::sums(uint32_t first) const {
  std::vector<uint64_t> found;
  for (const uint32_t block : chain(first)) found.push_back(sums_[block]);
  return found;
}

uint64_t Index::seal(uint32_t first) const {
  const Entry& entry = entries_[first];
  Checksum sum;
  const int64_t head[6] = {entry.key.version, entry.key.group, entry.key.sample,
                           entry.num_tokens,  entry.num_pages, static_cast<int64_t>(entry.digest)};
  sum.add(reinterpret_cast<const uint8_t*>(head), sizeof head);
  const std::vector<uint64_t> of_pages = sums(first);
  sum.add(reinterpret_cast<const uint8_t*>(of_pages.data()), of_pages.size() * sizeof of_pages[0]);
  return sum.finish();
}

}  // namespace sestina::kvpool
