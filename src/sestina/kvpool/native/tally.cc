#include "tally.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <system_error>

namespace sestina::kvpool {

namespace {

constexpr int kTries = 3000;  // 10 ms each, for another process that is making the file
constexpr timespec kLook{0, 10'000'000};

[[noreturn]] void fail(const std::string& path, int code) {
  throw std::system_error(code, std::generic_category(), path);
}

// A file that is locked until the end of a scope.
struct Locked {
  int file;

  explicit Locked(const std::string& path) : file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (file < 0) fail(path, errno);
    for (int tries = 0; flock(file, LOCK_EX | LOCK_NB); ++tries) {
      if (tries == kTries) fail(path, ETIMEDOUT);
      nanosleep(&kLook, nullptr);
    }
  }
  ~Locked() {
    flock(file, LOCK_UN);  // a mapping holds the file, and the lock with it
    close(file);
  }
};

void init(pthread_mutex_t& lock) {
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
  pthread_mutex_init(&lock, &kind);
  pthread_mutexattr_destroy(&kind);
}

timespec in(double seconds) {
  timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  const double whole = std::floor(seconds);
  at.tv_sec += static_cast<time_t>(whole);
  at.tv_nsec += static_cast<long>((seconds - whole) * 1e9);
  if (at.tv_nsec >= 1'000'000'000) ++at.tv_sec, at.tv_nsec -= 1'000'000'000;
  return at;
}

}  // namespace

Tally::Tally(const std::string& path) {
  const Locked others(path);
  if (ftruncate(others.file, sizeof(Shared))) fail(path, errno);
  void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, others.file, 0);
  if (at == MAP_FAILED) fail(path, errno);
  shared_ = static_cast<Shared*>(at);
  if (!shared_->ready) init(shared_->lock);
  shared_->ready = 1;
}

Tally::~Tally() { munmap(shared_, sizeof(Shared)); }

bool Tally::enter(double limit_s) {
  int code = pthread_mutex_trylock(&shared_->lock);
  if (code == EBUSY) {
    const timespec deadline = in(limit_s);
    code = pthread_mutex_timedlock(&shared_->lock, &deadline);
  }
  if (code == EOWNERDEAD) {
    pthread_mutex_consistent(&shared_->lock);
    shared_->words[kTorn] = 1;
    code = 0;
  }
  return code == 0;
}

void Tally::leave() { pthread_mutex_unlock(&shared_->lock); }

}  // namespace sestina::kvpool
