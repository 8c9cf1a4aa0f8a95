// The numbers of the keys that a run inserts, shared by its threads. A run requests a key only when
// all keys up to it have been acknowledged (YCSB's AcknowledgedCounterGenerator).
//
// Thread rule: thread-safe.

#ifndef OSPREY_TOOLS_LOADGEN_WORKLOAD_INSERT_COUNTER_H_
#define OSPREY_TOOLS_LOADGEN_WORKLOAD_INSERT_COUNTER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace osprey::loadgen {

class InsertCounter {
 public:
  // The limit for the distance of unacknowledged numbers.
  static constexpr uint64_t kWindow = uint64_t{1} << 20;

  // The next number is `start`; keys below it exist. REQUIRES: start > 0.
  explicit InsertCounter(uint64_t start);

  // The next number; none while the oldest unacknowledged one is kWindow behind.
  std::optional<uint64_t> Next();
  // The insert of `number` ended, successfully or not. REQUIRES: Next returned it; once.
  void Acknowledge(uint64_t number);
  // The greatest number such that it and all below are acknowledged.
  uint64_t last() const { return last_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint64_t> next_;
  std::atomic<uint64_t> last_;
  std::mutex mutex_;
  std::unique_ptr<bool[]> acknowledged_;  // guarded by mutex_; by number modulo kWindow
};

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_WORKLOAD_INSERT_COUNTER_H_
