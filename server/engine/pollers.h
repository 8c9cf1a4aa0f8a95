// The shared state of a server's pollers. A poller is an engine on its own thread, with its own
// transports, connections and sessions. Any poller executes any request, under the lock of the
// key's partition.
//
//   poller 0: listens ── kConnectRequest ── Choose ──> its own: Accept
//                                             |
//                                             '──────> another's: Transport::Migrate
//   poller 1, 2, …:                  kConnectRequest, handed over ──> Accept
//
// A session belongs to one poller for the life of the server: the low 8 bits of its id name it,
// modulo the number of pollers. A client that comes back for a session sends the low 32 bits of its
// id (the affinity) in the connect request. A session of a data directory may come from an
// incarnation with another number of pollers.
//
// Each poller reports its counters at the end of each turn with an event or a due timer. So any of
// them can answer STATS for all.

#ifndef OSPREY_SERVER_ENGINE_POLLERS_H_
#define OSPREY_SERVER_ENGINE_POLLERS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "index/layout/partitions.h"
#include "server/stats/stats.h"

namespace osprey::server {

inline constexpr uint32_t kPollersMax = 64;

// The partitions of a server's region, more than pollers. Two pollers with random keys may meet in
// one partition. If locks are the only cost, N pollers and M partitions have N * M / (N + M - 1)
// times the throughput of one. With M = N that would be only half of what N can do.
inline constexpr uint32_t PartitionsFor(uint32_t pollers) {
  constexpr uint32_t kPerPoller = 4;
  return pollers == 1 ? 1 : std::min(std::bit_ceil(pollers) * kPerPoller, index::kPartitionsMax);
}

// The poller of a session, of `pollers`. Its argument may also be an affinity.
inline constexpr uint32_t PollerOf(uint64_t session_id, uint32_t pollers) {
  return static_cast<uint32_t>(session_id & 0xff) % pollers;
}
// A session id of poller `poller`, of `pollers`, from 64 random bits. Its low 32 bits are not 0,
// which would mean no affinity. Its low 8 bits are random but for PollerOf, so that another number
// of pollers divides the sessions evenly as well.
inline constexpr uint64_t SessionIdOf(uint64_t random, uint32_t poller, uint32_t pollers) {
  const uint64_t low = (random & 0xff) / pollers * pollers + poller;
  return (random & ~uint64_t{0xff}) | 0x100 | (low <= 0xff ? low : low - pollers);
}

// The report of one poller.
struct PollerReport {
  Counters counters;
  size_t connections = 0;
  size_t sessions = 0;
  size_t sessions_kept = 0;
  uint64_t requests_taken = 0;  // connect requests that it has accepted, rejected or lost

  // Adds another poller's report.
  void Add(const PollerReport& other);
};

// Thread-safe.
class Pollers {
 public:
  // REQUIRES: 1 <= count <= kPollersMax.
  explicit Pollers(uint32_t count);
  Pollers(const Pollers&) = delete;
  Pollers& operator=(const Pollers&) = delete;

  // Nothing was given or reported. REQUIRES: no poller runs.
  void Restart();

  uint32_t count() const { return static_cast<uint32_t>(pollers_.size()); }

  // Chooses the poller for a peer with `affinity`: the one of that session (PollerOf), or for 0 the
  // one with the fewest connections. Given must follow, unless the connection failed.
  // Thread rule: the listener's.
  uint32_t Choose(uint32_t affinity) const;
  void Given(uint32_t poller);

  void Report(uint32_t poller, const PollerReport& report);
  // Its last report.
  PollerReport Last(uint32_t poller) const;
  // The sum of the last reports of all but `asking`.
  PollerReport SumOfOthers(uint32_t asking) const;

 private:
  // On its own cache lines: one thread writes it in each of its turns.
  struct alignas(128) Poller {
    mutable std::mutex mutex;
    PollerReport report;
    uint64_t given = 0;  // of the listener's thread alone
  };

  std::vector<std::unique_ptr<Poller>> pollers_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_POLLERS_H_
