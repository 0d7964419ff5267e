// Words that all processes of a node map, and the lock under which they are read and changed.
//
// The lock costs no system call while nobody else has it. The kernel takes it back however its holder ends; `torn` then
// says that the holder was in the middle of something, until somebody has put that in order.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <string>

namespace sestina::kvpool {

class Tally {
 public:
  enum Word { kMemoryBytes, kDiskBytes, kGeneration, kTorn, kWords };

  // Opens the file, or makes it; throws std::system_error.
  explicit Tally(const std::string& path);
  ~Tally();
  Tally(const Tally&) = delete;
  Tally& operator=(const Tally&) = delete;

  // Keeps other processes and threads out; false when that was not to be had within so many seconds.
  bool enter(double limit_s);
  void leave();

  int64_t& operator[](Word word) { return shared_->words[word]; }

 private:
  struct Shared {
    int64_t words[kWords];
    int64_t ready;
    pthread_mutex_t lock;
  };

  Shared* shared_;
};

}  // namespace sestina::kvpool
