#include "tests/simulation/cluster/simulated_store.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace osprey {
namespace {

int64_t NsOf(absl::Duration time) { return absl::ToInt64Nanoseconds(time); }

TransactionResult Unknown() {
  TransactionResult result;
  result.outcome = TransactionOutcome::kUnknown;
  result.status = absl::DeadlineExceededError("the store does not answer");
  return result;
}

}  // namespace

int64_t SimulatedStore::Latency() {
  if (state_.is_calm || world_.random.Chance(90)) return 100'000 + world_.Random(kMillisecond);
  return world_.Random(world_.random.Chance(80) ? 30 * kMillisecond : 400 * kMillisecond);
}

absl::StatusOr<RangeAnswer> SimulatedStore::Range(const StoreRange& range, absl::Duration timeout) {
  const int64_t end = world_.now() + NsOf(timeout);
  world_.Sleep(Latency());
  const bool is_lost = !state_.is_calm && world_.random.Chance(2);
  RangeAnswer answer;
  if (!IsOut()) answer = world_.store.Range(range);
  const bool is_out = IsOut() || is_lost;
  world_.Sleep(Latency());
  if (!is_out && !IsOut() && world_.now() < end) return answer;
  world_.threads.SleepUntil(end);
  return absl::DeadlineExceededError("the store does not answer");
}

TransactionResult SimulatedStore::Execute(const Transaction& transaction, absl::Duration timeout) {
  const int64_t end = world_.now() + NsOf(timeout);
  is_busy_ = true;
  TransactionResult result = ExecuteNow(transaction, end);
  is_busy_ = false;
  if (result.outcome == TransactionOutcome::kUnknown) world_.threads.SleepUntil(end);
  return result;
}

TransactionResult SimulatedStore::ExecuteNow(const Transaction& transaction, int64_t end) {
  world_.Sleep(Latency());
  if (IsOut()) return Unknown();
  const uint64_t fate = state_.is_calm ? 99 : world_.random.Below(100);
  if (fate == 0) {
    ++world_.report.store_lost;
    return Unknown();
  }
  if (fate == 1) {
    ++world_.report.store_late;
    state_.late.push_back(world_.threads.Start(state_.host, "late", [this, transaction] {
      world_.Sleep(world_.Random(3 * kSecond));
      (void)world_.store.Execute(transaction);
    }));
    return Unknown();
  }
  TransactionResult result = world_.store.Execute(transaction);
  if (fate == 2) {
    ++world_.report.store_unanswered;
    return Unknown();
  }
  world_.Sleep(Latency());
  if (IsOut() || world_.now() >= end) return Unknown();
  return result;
}

}  // namespace osprey
