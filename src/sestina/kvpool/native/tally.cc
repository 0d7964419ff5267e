#include "tally.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

namespace sestina::kvpool {

namespace {

constexpr std::chrono::microseconds kLook{100};

}  // namespace

Tally::Tally(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  const size_t num_bytes = kWords * sizeof(int64_t);
  void* at = MAP_FAILED;
  if (file_ >= 0 && !ftruncate(file_, static_cast<off_t>(num_bytes)))
    at = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), path);
  words_ = static_cast<int64_t*>(at);
}

Tally::~Tally() {
  munmap(words_, kWords * sizeof(int64_t));
  close(file_);
}

bool Tally::lock_file() { return flock(file_, LOCK_EX | LOCK_NB) == 0; }

bool Tally::enter(double limit_s) {
  const std::chrono::duration<double> limit{limit_s};
  if (!threads_.try_lock() && !threads_.try_lock_for(limit)) return false;
  if (lock_file()) return true;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!lock_file()) {
    if (std::chrono::steady_clock::now() > deadline) {
      threads_.unlock();
      return false;
    }
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

void Tally::leave() {
  flock(file_, LOCK_UN);
  threads_.unlock();
}

}  // namespace sestina::kvpool
