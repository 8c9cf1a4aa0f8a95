// The time that a call takes, without the time for which the machine stood still meanwhile: a
// machine with other work stops a thread for seconds at times, which is no fault of the call.

#ifndef OSPREY_TESTS_SUPPORT_RUNNING_TIME_H_
#define OSPREY_TESTS_SUPPORT_RUNNING_TIME_H_

#include <atomic>
#include <mutex>
#include <thread>

#include "absl/time/time.h"

namespace osprey {

// A second thread sleeps for short times, one after the other, and adds up how late it wakes.
class RunningTime {
 public:
  RunningTime();
  ~RunningTime();
  RunningTime(const RunningTime&) = delete;
  RunningTime& operator=(const RunningTime&) = delete;

  // Since the construction, less the thread's lateness.
  absl::Duration Passed() const;

 private:
  void Watch();

  const absl::Time start_;
  std::atomic<bool> ends_ = false;
  mutable std::mutex mutex_;
  absl::Time woke_;      // at last
  absl::Duration late_;  // in all, until then
  std::thread watcher_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_RUNNING_TIME_H_
