// Slow kernel calls, made on a background thread instead of the polling thread.
//
// The kernel takes a millisecond to make, break or destroy a queue pair or to register its frames,
// and many when CPUs are scarce. A thread that polls for many connections must not wait for that.
// Otherwise 500 clients that reconnect at once would delay every write of all others. The CPU time
// counts as well: the thread runs at lower priority (background_thread.h), so that connection churn
// does not delay established clients.
//
// Calls that a peer can make as long as it likes would delay the others. They have threads of their own:
// verbs/device/reaper.h and shm/peer/slow_closer.h.

#ifndef OSPREY_RDMA_BLOCKING_EXECUTOR_H_
#define OSPREY_RDMA_BLOCKING_EXECUTOR_H_

#include <cstddef>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "rdma/background_thread.h"

namespace osprey::rdma {

// Has at most one thread, started with the first call, which blocks signals. When the system has no
// thread to give, the caller makes the calls at once. The methods belong to one thread, the
// owner's.
class BlockingExecutor {
 public:
  // Waiting calls are taken from the kinds in turns, so that neither new connections nor ending
  // ones delay the other.
  enum Kind { kMake, kEnd, kFree, kKinds };
  using Call = absl::AnyInvocable<void()>;

  // `start` differs in tests only. Errors: RESOURCE_EXHAUSTED (no descriptors).
  using Start = decltype(&StartBackgroundThread);
  static absl::StatusOr<std::unique_ptr<BlockingExecutor>> Create(
      Start start = StartBackgroundThread);
  // Waits for the running call, if any. Waiting calls are dropped: destroyed at once, with all that
  // they own. So is every `after` that has not run.
  ~BlockingExecutor();
  BlockingExecutor(const BlockingExecutor&) = delete;
  BlockingExecutor& operator=(const BlockingExecutor&) = delete;

  // Calls `call` on the other thread, the oldest of its kind first. A later Finish calls `after`,
  // which sees all effects of `call`. `call` is destroyed on the other thread.
  void Add(Kind kind, Call call, Call after);

  // Runs the `after` of every call that has been made. Never blocks.
  void Finish();
  // Readable while Finish has something to do.
  int fd() const;

  // Calls added whose `after` has not run yet.
  size_t waiting(Kind kind) const { return waiting_[kind]; }

 private:
  struct State;  // shared with the thread

  BlockingExecutor(std::unique_ptr<State> state, Start start);
  static void* Run(void* state);

  const std::unique_ptr<State> state_;
  const Start start_;
  size_t waiting_[kKinds] = {};
  bool started_ = false;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_BLOCKING_EXECUTOR_H_
