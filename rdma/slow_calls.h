// Calls into the kernel that may take long, made away from the thread that polls.
//
// To make a queue pair, to register its frames, to break it or to destroy it takes the kernel a
// millisecond, and many when CPUs are scarce. A thread that polls for many connections must not
// wait for that, or five hundred clients that come back at once would hold up every write of all
// others meanwhile. Nor for the CPU that this takes: the thread here gives way (quiet_thread.h), so
// that who is connected goes before who comes and leaves.

#ifndef OSPREY_RDMA_SLOW_CALLS_H_
#define OSPREY_RDMA_SLOW_CALLS_H_

#include <cstddef>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "rdma/quiet_thread.h"

namespace osprey::rdma {

// At most one thread, started with the first call and without signals; when the system has none to
// give, calls are made at once by the caller. The methods belong to one thread, the owner's.
class SlowCalls {
 public:
  // What waits is taken from the kinds in turns: who makes connections does not wait for all that
  // end, nor these for all that are made.
  enum Kind { kMake, kEnd, kFree, kKinds };
  using Call = absl::AnyInvocable<void()>;

  // `start` is another one in tests only. Errors: RESOURCE_EXHAUSTED (no descriptors).
  using Start = decltype(&StartQuietThread);
  static absl::StatusOr<std::unique_ptr<SlowCalls>> Create(Start start = StartQuietThread);
  // Waits for the call that is being made, if any. What has not begun is dropped: destroyed here
  // and now, with all that it owns. So are `after`s that were not run.
  ~SlowCalls();
  SlowCalls(const SlowCalls&) = delete;
  SlowCalls& operator=(const SlowCalls&) = delete;

  // `call` is made on the other thread, the oldest of its kind first; and `after` by a Finish
  // behind it, after everything that `call` did. `call` is destroyed on the other thread.
  void Add(Kind kind, Call call, Call after);

  // Runs what is to be run after the calls that have been made. Never blocks.
  void Finish();
  // Readable while Finish has something to do.
  int fd() const;

  // Added, and `after` not yet run.
  size_t waiting(Kind kind) const { return waiting_[kind]; }

 private:
  struct State;  // shared with the thread

  SlowCalls(std::unique_ptr<State> state, Start start);
  static void* Run(void* state);

  const std::unique_ptr<State> state_;
  const Start start_;
  size_t waiting_[kKinds] = {};
  bool started_ = false;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SLOW_CALLS_H_
