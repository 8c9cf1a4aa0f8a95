#include "server/engine/pollers.h"

#include <array>
#include <bit>
#include <cassert>
#include <limits>
#include <type_traits>

namespace osprey::server {

void PollerReport::Add(const PollerReport& other) {
  // Counters consist of counts alone.
  static_assert(std::is_trivially_copyable_v<Counters> && sizeof(Counters) % sizeof(uint64_t) == 0);
  using Counts = std::array<uint64_t, sizeof(Counters) / sizeof(uint64_t)>;
  Counts sum = std::bit_cast<Counts>(counters);
  const Counts more = std::bit_cast<Counts>(other.counters);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  counters = std::bit_cast<Counters>(sum);
  connections += other.connections;
  sessions += other.sessions;
  sessions_kept += other.sessions_kept;
  requests_taken += other.requests_taken;
}

Pollers::Pollers(uint32_t count) {
  assert(count >= 1 && count <= kPollersMax);
  for (uint32_t i = 0; i < count; ++i) pollers_.push_back(std::make_unique<Poller>());
}

void Pollers::Restart() {
  for (std::unique_ptr<Poller>& poller : pollers_) {
    const std::lock_guard<std::mutex> lock(poller->mutex);
    poller->report = PollerReport();
    poller->given = 0;
  }
}

uint32_t Pollers::Choose(uint32_t affinity) const {
  if (affinity != 0) return PollerOf(affinity, count());
  uint32_t best = 0;
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (uint32_t i = 0; i < count(); ++i) {
    const std::lock_guard<std::mutex> lock(pollers_[i]->mutex);
    const PollerReport& report = pollers_[i]->report;
    // Includes the connections on their way to it.
    const uint64_t load = report.connections + (pollers_[i]->given - report.requests_taken);
    if (load >= least) continue;
    least = load;
    best = i;
  }
  return best;
}

void Pollers::Given(uint32_t poller) { ++pollers_[poller]->given; }

void Pollers::Report(uint32_t poller, const PollerReport& report) {
  const std::lock_guard<std::mutex> lock(pollers_[poller]->mutex);
  pollers_[poller]->report = report;
}

PollerReport Pollers::SumOfOthers(uint32_t asking) const {
  PollerReport sum;
  for (uint32_t i = 0; i < count(); ++i) {
    if (i != asking) sum.Add(Last(i));
  }
  return sum;
}

PollerReport Pollers::Last(uint32_t poller) const {
  const std::lock_guard<std::mutex> lock(pollers_[poller]->mutex);
  return pollers_[poller]->report;
}

}  // namespace osprey::server
