// Words that all processes of a node map, and the lock under which they are read and changed.
//
// The lock is the kernel's, which takes it back however its holder ends; then `torn` tells the next one that the holder
// was in the middle of something.
#pragma once

#include <cstdint>
#include <mutex>
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

  int64_t& operator[](Word word) { return words_[word]; }

 private:
  bool lock_file();

  std::timed_mutex threads_;
  int file_;
  int64_t* words_;
};

}  // namespace sestina::kvpool
