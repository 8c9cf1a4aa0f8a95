#include "server/stats/client_gets.h"

#include <algorithm>

namespace osprey::server {
namespace {

// More than memory can move in a nanosecond.
constexpr uint64_t kBytesPerNs = 1000;
// The limit of a client's GETs in flight, all of them timed.
constexpr uint64_t kInFlightMax = 65536;
constexpr uint64_t kSumMax = uint64_t{1} << 62;

void AddTo(uint64_t& sum, uint64_t more) { sum = std::min(sum + std::min(more, kSumMax), kSumMax); }

}  // namespace

rdma::ReportBody ReportLimit::Cut(rdma::ReportBody body, absl::Time now) {
  const auto most = static_cast<uint64_t>(
      std::clamp<int64_t>(absl::ToInt64Nanoseconds(now - told_at_), 0, UINT32_MAX));
  told_at_ = std::max(told_at_, now);
  const auto cut = [most](uint32_t& count) {
    count = static_cast<uint32_t>(std::min<uint64_t>(count, most));
  };
  for (uint32_t* count :
       {&body.hits, &body.misses, &body.failures, &body.reads, &body.torn, &body.rpc_gets}) {
    cut(*count);
  }
  for (uint32_t& count : body.latencies) cut(count);
  body.read_bytes = std::min(body.read_bytes, most * kBytesPerNs);
  body.latency_ns = std::min(body.latency_ns, most * kInFlightMax);
  return body;
}

void ClientGets::Add(const rdma::ReportBody& body) {
  const std::lock_guard<std::mutex> lock(mutex_);
  AddTo(counts_.reports, 1);
  AddTo(counts_.hits, body.hits);
  AddTo(counts_.misses, body.misses);
  AddTo(counts_.failures, body.failures);
  AddTo(counts_.reads, body.reads);
  AddTo(counts_.read_bytes, body.read_bytes);
  AddTo(counts_.torn, body.torn);
  AddTo(counts_.rpc_gets, body.rpc_gets);
  AddTo(counts_.latency_ns, body.latency_ns);
  for (size_t i = 0; i < counts_.latencies.size(); ++i)
    AddTo(counts_.latencies[i], body.latencies[i]);
}

ClientGetCounts ClientGets::Counts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

}  // namespace osprey::server
