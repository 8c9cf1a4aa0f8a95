#include "client/engine/client_get_stats.h"

#include <algorithm>
#include <limits>

namespace osprey::client {
namespace {

uint32_t Fitting(uint64_t count) {
  return static_cast<uint32_t>(std::min<uint64_t>(count, std::numeric_limits<uint32_t>::max()));
}

uint64_t FailuresOf(const Counters& counters) {
  return counters.gets - counters.hits - counters.misses;
}

}  // namespace

void ClientGetStats::Lasted(absl::Duration time) {
  const auto ns = static_cast<uint64_t>(std::max<int64_t>(absl::ToInt64Nanoseconds(time), 0));
  ++timed_.latencies[rdma::LatencyBucketOf(ns)];
  timed_.latency_ns += ns;
}

rdma::ReportBody ClientGetStats::Next() const {
  rdma::ReportBody body = timed_;
  body.hits = Fitting(counters_.hits - told_.hits);
  body.misses = Fitting(counters_.misses - told_.misses);
  body.failures = Fitting(FailuresOf(counters_) - FailuresOf(told_));
  body.reads = Fitting(counters_.reads - told_.reads);
  body.read_bytes = counters_.read_bytes - told_.read_bytes;
  body.torn = Fitting(counters_.torn - told_.torn);
  body.rpc_gets = Fitting(counters_.rpc_gets - told_.rpc_gets);
  return body;
}

void ClientGetStats::Told(absl::Time now) {
  const rdma::ReportBody body = Next();
  told_.hits += body.hits;
  told_.misses += body.misses;
  told_.gets += uint64_t{body.hits} + body.misses + body.failures;
  told_.reads += body.reads;
  told_.read_bytes += body.read_bytes;
  told_.torn += body.torn;
  told_.rpc_gets += body.rpc_gets;
  timed_ = {};
  due_ = now + kEvery();
}

void ClientGetStats::Forget() {
  told_ = counters_;
  timed_ = {};
}

}  // namespace osprey::client
