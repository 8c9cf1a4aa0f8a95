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

TransactionResult SimulatedStore::Apply(ClusterWorld& world, const std::string& key,
                                        int64_t& create_revision, const Transaction& transaction) {
  const auto created = [&] {
    const RangeAnswer answer = world.store.Range({key});
    return answer.keys.empty() ? 0 : answer.keys[0].create_revision;
  };
  const int64_t before = created();
  TransactionResult result = world.store.Execute(transaction);
  if (const int64_t now = created(); now != 0 && now != before) create_revision = now;
  return result;
}

TransactionResult SimulatedStore::ExecuteNow(const Transaction& transaction, int64_t end) {
  world_.Sleep(Latency());
  if (IsOut()) return Unknown();
  const uint64_t fate = state_.is_calm ? 99 : world_.random.Below(100);
  if (fate < 3) {
    ++world_.report.store_lost;
    return Unknown();
  }
  if (fate < 6) {
    ++world_.report.store_late;
    state_.late.push_back(world_.threads.Start(
        state_.host, "late",
        [&world = world_, key = key_, created = create_revision_, transaction] {
          world.Sleep(world.Random(3 * kSecond));
          (void)Apply(world, key, *created, transaction);
        }));
    return Unknown();
  }
  TransactionResult result = Apply(world_, key_, *create_revision_, transaction);
  if (fate < 9) {
    ++world_.report.store_unanswered;
    return Unknown();
  }
  world_.Sleep(Latency());
  if (IsOut() || world_.now() >= end) return Unknown();
  return result;
}

}  // namespace osprey
