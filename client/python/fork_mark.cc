#include "client/python/fork_mark.h"

#include <pthread.h>

#include <atomic>

#include "client/python/errors.h"

namespace osprey::python {

namespace {

// How often this process is a child of one that had loaded the module.
std::atomic<int> forks = 0;

int CountedForks() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace

ForkMark::ForkMark() : forks_(CountedForks()) {}

bool ForkMark::IsForked() const { return forks.load(std::memory_order_relaxed) != forks_; }

void ForkMark::RaiseIfForked() const {
  if (!IsForked()) return;
  Raise(ErrorOf("forked",
                "this Client was made before a fork, and its connections are the parent's: make "
                "a Client in the child, or use multiprocessing's start method 'spawn'"));
}

}  // namespace osprey::python
