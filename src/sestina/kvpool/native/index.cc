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
constexpr size_t kBuckets = 1024;  // one page of the machine's

bool same(const Key& a, const Key& b) { return a.version == b.version && a.group == b.group && a.sample == b.sample; }

[[noreturn]] void fail(const std::string& path) { throw std::system_error(errno, std::generic_category(), path); }

// What is closed at the end of a scope.
struct File {
  int at;
  ~File() { close(at); }
};

}  // namespace

Index::Index(const std::string& path, uint64_t page_bytes, uint64_t num_blocks) {
  const File file{open(path.c_str(), O_RDWR | (page_bytes ? O_CREAT : 0), 0600)};
  if (file.at < 0) fail(path);
  Head head{};
  const bool fresh = pread(file.at, &head, sizeof head, 0) != sizeof head || !head.page_bytes;
  if (fresh) head = {page_bytes, num_blocks, 0, 0, 0, 0, 0};
  if (!head.page_bytes || (page_bytes && head.page_bytes != page_bytes))
    throw std::system_error(EINVAL, std::generic_category(),
                            path + " holds pages of " + std::to_string(head.page_bytes) + " bytes");
  num_blocks_ = head.num_blocks;
  page_bytes_ = head.page_bytes;
  const uint64_t rows = num_blocks_ + 1;
  num_bytes_ = kHeadBytes + kBuckets * sizeof(uint32_t) + rows * (sizeof(Entry) + sizeof(Block));
  if (fresh && (ftruncate(file.at, static_cast<off_t>(num_bytes_)) || pwrite(file.at, &head, sizeof head, 0) < 0))
    fail(path);
  void* at = mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.at, 0);
  if (at == MAP_FAILED) fail(path);
  head_ = static_cast<Head*>(at);
  buckets_ = reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(at) + kHeadBytes);
  entries_ = reinterpret_cast<Entry*>(buckets_ + kBuckets);
  blocks_ = reinterpret_cast<Block*>(entries_ + rows);
}

Index::~Index() { munmap(head_, num_bytes_); }

uint32_t& Index::bucket(const Key& key) const {
  uint64_t hash = static_cast<uint64_t>(key.group) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(key.sample);
  hash = (hash ^ (hash >> 29)) * 0xd1342543de82ef95;
  return buckets_[(hash >> 40) % kBuckets];
}

uint32_t Index::take_block() {
  if (const uint32_t block = head_->free_block; known(block)) {
    head_->free_block = blocks_[block].next;
    return block;
  }
  return head_->fresh_blocks < num_blocks_ ? ++head_->fresh_blocks : 0;
}

uint32_t Index::take_entry() {
  if (const uint32_t number = head_->free_entry; known(number)) {
    head_->free_entry = entries_[number].after;
    return number;
  }
  return head_->fresh_entries < num_blocks_ ? ++head_->fresh_entries : 0;
}

uint32_t Index::reserve(const Key& key, uint32_t num_pages) {
  const uint32_t number = num_pages ? take_entry() : 0;
  if (!number) return 0;
  Entry& entry = entries_[number];
  entry = {key, 0, 0, ++head_->serial, 0.0, 0, 0, 0, 0, kOwned, 0};
  uint32_t* end = &entry.first;
  for (uint32_t block; entry.num_pages < num_pages && (block = take_block()); ++entry.num_pages) {
    *end = block;
    end = &blocks_[block].next;
    *end = 0;
  }
  if (entry.num_pages == num_pages) return number;
  free(number);
  return 0;
}

void Index::publish(uint32_t number, uint32_t num_tokens, uint64_t digest, double used_s) {
  Entry& entry = entries_[number];
  entry.num_tokens = num_tokens, entry.digest = digest, entry.used_s = used_s;
  entry.seal = seal(number);
  entry.after = bucket(entry.key);
  entry.state = kHeld;
  bucket(entry.key) = number;
}

uint32_t Index::find(const Key& key) const {
  uint64_t left = num_blocks_;
  for (uint32_t at = bucket(key); known(at) && left; at = entries_[at].after, --left)
    if (same(entries_[at].key, key)) return at;
  return 0;
}

void Index::remove(uint32_t number) {
  uint64_t left = num_blocks_;
  uint32_t* at = &bucket(entries_[number].key);
  for (; known(*at) && left; at = &entries_[*at].after, --left)
    if (*at == number) {
      *at = entries_[number].after;
      break;
    }
  entries_[number].state = kOwned;
}

void Index::free(uint32_t number) {
  const std::vector<uint32_t> blocks = chain(number);
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    blocks_[*block].next = head_->free_block;  // the first comes first again, and those after it lie behind it
    head_->free_block = *block;
  }
  entries_[number].after = head_->free_entry;
  head_->free_entry = number;
}

std::vector<uint32_t> Index::held() const {
  std::vector<uint32_t> found;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
    uint64_t left = num_blocks_;
    for (uint32_t at = buckets_[bucket]; known(at) && left; at = entries_[at].after, --left)
      if (entries_[at].state == kHeld) found.push_back(at);
  }
  return found;
}

std::vector<uint32_t> Index::chain(uint32_t number) const {
  const uint64_t count = entries_[number].num_pages;
  if (count > num_blocks_) return {};
  std::vector<uint32_t> blocks;
  blocks.reserve(count);
  for (uint32_t at = entries_[number].first; known(at) && blocks.size() < count; at = blocks_[at].next)
    blocks.push_back(at);
  return blocks.size() == count ? blocks : std::vector<uint32_t>{};
}

std::vector<uint64_t> Index::sums(uint32_t number) const {
  std::vector<uint64_t> found;
  for (const uint32_t block : chain(number)) found.push_back(blocks_[block].sum);
  return found;
}

uint64_t Index::seal(uint32_t number) const {
  const Entry& entry = entries_[number];
  Checksum sum;
  const int64_t head[6] = {entry.key.version, entry.key.group, entry.key.sample,
                           entry.num_tokens,  entry.num_pages, static_cast<int64_t>(entry.digest)};
  sum.add(reinterpret_cast<const uint8_t*>(head), sizeof head);
  const std::vector<uint64_t> of_pages = sums(number);
  sum.add(reinterpret_cast<const uint8_t*>(of_pages.data()), of_pages.size() * sizeof(uint64_t));
  return sum.finish();
}

}  // namespace sestina::kvpool
