// The sum of clients' reports of their GETs (rdma/wire/wire.h, Report), because the server does not see
// GETs.
//
// A client may report anything. Each count is capped at a plausible value: one event for each
// nanosecond. So a false report distorts these sums, as many clients could, and nothing else. The
// sums stop at 2^62 instead of wrapping around.

#ifndef OSPREY_SERVER_STATS_CLIENT_GETS_H_
#define OSPREY_SERVER_STATS_CLIENT_GETS_H_

#include <array>
#include <cstdint>
#include <mutex>

#include "absl/time/time.h"
#include "rdma/wire/wire.h"

namespace osprey::server {

// Counts since the server started.
struct ClientGetCounts {
  uint64_t reports = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t failures = 0;
  uint64_t reads = 0;
  uint64_t read_bytes = 0;
  uint64_t torn = 0;
  uint64_t rpc_gets = 0;
  uint64_t latency_ns = 0;
  std::array<uint64_t, rdma::kLatencyBuckets> latencies = {};
};

// Caps the reports of one client.
class ReportLimit {
 public:
  // A first report may cover a second before its connection.
  explicit ReportLimit(absl::Time connected) : told_at_(connected - absl::Seconds(1)) {}

  rdma::ReportBody Cut(rdma::ReportBody body, absl::Time now);

 private:
  absl::Time told_at_;
};

// Thread-safe: clients report once a second, so a lock is cheap enough.
class ClientGets {
 public:
  void Add(const rdma::ReportBody& body);
  ClientGetCounts Counts() const;

 private:
  mutable std::mutex mutex_;
  ClientGetCounts counts_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_STATS_CLIENT_GETS_H_
