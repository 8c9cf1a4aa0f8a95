// A thread that makes one call at a time, for an owner that may not wait for it: to the store, or to the
// pollers for their sessions.
//
//   owner:  Begin(call) ──> this thread: the call ──> wake ──> TakeDone: true, once
//
// Thread rule: one owner.

#ifndef OSPREY_SERVER_CLUSTER_NODE_CALL_THREAD_H_
#define OSPREY_SERVER_CLUSTER_NODE_CALL_THREAD_H_

#include <pthread.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"

namespace osprey::server {

class CallThread {
 public:
  // `name`: of the thread, at most 15 characters. `wake` is called on it after each call. Errors:
  // RESOURCE_EXHAUSTED (no thread).
  static absl::StatusOr<std::unique_ptr<CallThread>> Start(const char* name,
                                                           std::function<void()> wake);
  // Waits for the call that is under way.
  ~CallThread();
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;

  bool idle() const { return !is_busy_; }
  // What `call` writes may be read once TakeDone was true. REQUIRES: idle().
  void Begin(std::function<void()> call);
  // True once after each call; then idle() is true.
  bool TakeDone();

 private:
  explicit CallThread(std::function<void()> wake) : wake_(std::move(wake)) {}
  void Run();

  const std::function<void()> wake_;
  bool is_busy_ = false;  // the owner's
  bool started_ = false;
  pthread_t thread_ = {};
  // Guards all below.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> call_;  // empty: none waits
  bool is_done_ = false;
  bool ends_ = false;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_NODE_CALL_THREAD_H_
