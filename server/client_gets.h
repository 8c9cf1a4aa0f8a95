// What clients tell of their GETs, which the server does not see (rdma/wire.h, Report), summed up.
//
// Any client may say anything. What it says is cut to what it could have done: for each nanosecond
// one of everything that it counts. So a liar spoils these sums, as if he were many clients, and
// nothing else. They end at 2^62 instead of beginning anew.

#ifndef OSPREY_SERVER_CLIENT_GETS_H_
#define OSPREY_SERVER_CLIENT_GETS_H_

#include <array>
#include <cstdint>
#include <mutex>

#include "absl/time/time.h"
#include "rdma/wire.h"

namespace osprey::server {

// Since the server started.
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

// Cuts what one client tells.
class ReportLimit {
 public:
  // A first report may tell of a second before its connection.
  explicit ReportLimit(absl::Time connected) : told_at_(connected - absl::Seconds(1)) {}

  rdma::ReportBody Cut(rdma::ReportBody body, absl::Time now);

 private:
  absl::Time told_at_;
};

// Thread-safe: clients tell once a second, so a lock does no harm.
class ClientGets {
 public:
  void Add(const rdma::ReportBody& body);
  ClientGetCounts Counts() const;

 private:
  mutable std::mutex mutex_;
  ClientGetCounts counts_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLIENT_GETS_H_
