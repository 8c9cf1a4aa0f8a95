#include "tools/loadgen/measurements.h"

#include <algorithm>

namespace osprey::loadgen {

void KindMeasurements::Record(absl::StatusCode code, uint64_t service_ns) {
  (code == absl::StatusCode::kOk ? service : service_failed).Record(service_ns);
  ++returns[code];
}

void KindMeasurements::RecordIntended(absl::StatusCode code, uint64_t intended_ns) {
  (code == absl::StatusCode::kOk ? intended : intended_failed).Record(intended_ns);
}

void KindMeasurements::Add(const KindMeasurements& other) {
  service.Add(other.service);
  service_failed.Add(other.service_failed);
  intended.Add(other.intended);
  intended_failed.Add(other.intended_failed);
  for (const auto& [code, count] : other.returns) returns[code] += count;
}

void Measurements::Add(const Measurements& other) {
  for (size_t i = 0; i < kinds.size(); ++i) kinds[i].Add(other.kinds[i]);
  cleanup.Add(other.cleanup);
  operations += other.operations;
  scanned += other.scanned;
  checked += other.checked;
  wrong += other.wrong;
  stale += other.stale;
  if (first_wrong.empty()) first_wrong = other.first_wrong;
  if (first_failure.empty()) first_failure = other.first_failure;
  gets += other.gets;
  reads += other.reads;
  scan_reads += other.scan_reads;
  torn += other.torn;
  retries += other.retries;
  rpc_gets += other.rpc_gets;
  messages += other.messages;
  connects += other.connects;
}

uint64_t KindMeasurements::LargestCount() const {
  uint64_t largest = std::max(
      {service.count(), service_failed.count(), intended.count(), intended_failed.count()});
  for (const auto& [code, count] : returns) largest = std::max(largest, count);
  return largest;
}

uint64_t Measurements::LargestCount() const {
  uint64_t largest =
      std::max({cleanup.LargestCount(), operations, scanned, checked, wrong, stale, gets, reads,
                scan_reads, torn, retries, rpc_gets, messages, connects});
  for (const KindMeasurements& kind : kinds) largest = std::max(largest, kind.LargestCount());
  return largest;
}

uint64_t Measurements::Returned(absl::StatusCode code) const {
  uint64_t count = 0;
  for (const KindMeasurements& kind : kinds) {
    const auto found = kind.returns.find(code);
    if (found != kind.returns.end()) count += found->second;
  }
  return count;
}

uint64_t Measurements::failed() const {
  uint64_t count = 0;
  for (const KindMeasurements& kind : kinds) {
    for (const auto& [code, times] : kind.returns) {
      if (code != absl::StatusCode::kOk && code != absl::StatusCode::kNotFound) count += times;
    }
  }
  return count;
}

void Series::Add(uint64_t second, const Histogram& latencies) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A late report of a closed second counts to the oldest open one.
  if (!closed_.empty()) second = std::max(second, closed_.rbegin()->first + 1);
  open_[second].Add(latencies);
  while (open_.size() > kOpenSeconds) CloseOldest();
}

void Series::CloseOldest() {
  const auto oldest = open_.begin();
  closed_[oldest->first] = RowOf(oldest->first, oldest->second);
  open_.erase(oldest);
}

SeriesRow Series::RowOf(uint64_t second, const Histogram& latencies) {
  return {second,
          latencies.count(),
          latencies.ValueAt(0.5),
          latencies.ValueAt(0.99),
          latencies.ValueAt(0.999),
          latencies.max()};
}

SeriesRow Series::Row(uint64_t second) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto open = open_.find(second); open != open_.end()) return RowOf(second, open->second);
  const auto closed = closed_.find(second);
  SeriesRow none;
  none.second = second;
  return closed == closed_.end() ? none : closed->second;
}

std::vector<SeriesRow> Series::Rows() const {
  std::map<uint64_t, SeriesRow> known;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    known = closed_;
    for (const auto& [second, latencies] : open_) known[second] = RowOf(second, latencies);
  }
  std::vector<SeriesRow> rows;
  for (const auto& [second, row] : known) {
    while (rows.size() < second) {
      SeriesRow none;
      none.second = rows.size();
      rows.push_back(none);
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace osprey::loadgen
