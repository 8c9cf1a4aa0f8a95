// A word in shared memory that the kernel changes when the process that holds it ends, however it
// ends. A process that maps the word detects the end by one load, without a system call, a thread
// or a timer.
//
// It is a robust futex (Documentation/locking/robust-futexes.rst of Linux; get_robust_list(2)). A
// thread of the holder has stored its id in the word and registered the word's address with the
// kernel. When the thread ends, the kernel replaces the id by FUTEX_OWNER_DIED. It does so before it
// releases the process's files and locks, and before a parent's wait returns.

#ifndef OSPREY_RDMA_SHM_ROBUST_FUTEX_H_
#define OSPREY_RDMA_SHM_ROBUST_FUTEX_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace osprey::rdma {

// Holds the word for the process, with a thread that does nothing else. Not thread-safe.
class RobustFutex {
 public:
  // Until the result is destroyed, `word` has a value that is not 0, without FUTEX_OWNER_DIED.
  // After that, or after the process has ended, it is FUTEX_OWNER_DIED. REQUIRES: `word` is mapped
  // for writing and outlives the result; no other RobustFutex holds it. Errors: RESOURCE_EXHAUSTED
  // (no thread), INTERNAL.
  static absl::StatusOr<std::unique_ptr<RobustFutex>> Hold(uint32_t& word);
  // True while `word` has a value that Hold has set.
  static bool IsHeld(uint32_t word);
  ~RobustFutex();
  RobustFutex(const RobustFutex&) = delete;
  RobustFutex& operator=(const RobustFutex&) = delete;

 private:
  struct State;  // shared with the thread
  explicit RobustFutex(std::unique_ptr<State> state);
  static void* Run(void* state);

  const std::unique_ptr<State> state_;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_ROBUST_FUTEX_H_
