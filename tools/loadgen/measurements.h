// The measurements of a run: latencies by kind of operation, results, and a series by seconds.
//
// Thread rule: Measurements belong to one thread; add them when it has ended. A Series is
// thread-safe.

#ifndef OSPREY_TOOLS_LOADGEN_MEASUREMENTS_H_
#define OSPREY_TOOLS_LOADGEN_MEASUREMENTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/common/histogram.h"
#include "tools/loadgen/workload/workload.h"

namespace osprey::loadgen {

// Latencies of one kind of operation in nanoseconds. Failed operations (NOT_FOUND is one) are
// separate, as in YCSB.
struct KindMeasurements {
  Histogram service;  // from the start of the operation
  Histogram service_failed;
  Histogram intended;  // from its intended start; open loop alone
  Histogram intended_failed;
  // By status; kOk among them.
  std::map<absl::StatusCode, uint64_t> returns;

  void Record(absl::StatusCode code, uint64_t service_ns);
  void RecordIntended(absl::StatusCode code, uint64_t intended_ns);
  void Add(const KindMeasurements& other);
  uint64_t LargestCount() const;
  bool empty() const { return returns.empty(); }
};

struct Measurements {
  std::array<KindMeasurements, kOperationKinds> kinds;  // by OperationKind
  KindMeasurements cleanup;                             // closing a client
  uint64_t operations = 0;                              // a read-modify-write is one
  uint64_t scanned = 0;                                 // items that scans returned
  uint64_t checked = 0;                                 // values that were verified
  uint64_t wrong = 0;       // verified values that were not the written ones
  uint64_t stale = 0;       // verified values older than a version that the thread had seen before
  std::string first_wrong;  // a description of the first of both
  std::string first_failure;  // a description of the first that is neither OK nor NOT_FOUND
  // The work of the store's client for these operations.
  uint64_t gets = 0;
  uint64_t reads = 0;
  uint64_t scan_reads = 0;
  uint64_t torn = 0;
  uint64_t retries = 0;
  uint64_t rpc_gets = 0;
  uint64_t messages = 0;
  uint64_t connects = 0;

  KindMeasurements& of(OperationKind kind) { return kinds[static_cast<size_t>(kind)]; }
  const KindMeasurements& of(OperationKind kind) const { return kinds[static_cast<size_t>(kind)]; }
  void Add(const Measurements& other);
  // Operations by outcome, all kinds; the parts of a read-modify-write are separate.
  uint64_t Returned(absl::StatusCode code) const;
  // Neither OK nor NOT_FOUND.
  uint64_t failed() const;
  // The greatest of all counts here.
  uint64_t LargestCount() const;
};

// Of one second; latencies in nanoseconds.
struct SeriesRow {
  uint64_t second = 0;  // after the warm-up
  uint64_t operations = 0;
  uint64_t p50_ns = 0;
  uint64_t p99_ns = 0;
  uint64_t p999_ns = 0;
  uint64_t max_ns = 0;
};

// Collects the threads' operations of each second, from reports that come up to kOpenSeconds late.
class Series {
 public:
  static constexpr size_t kOpenSeconds = 8;

  // Adds one thread's operations that ended in this second.
  void Add(uint64_t second, const Histogram& latencies);
  // The reports of that second so far.
  SeriesRow Row(uint64_t second) const;
  // All seconds from 0 to the last one with a report, those without operations included.
  std::vector<SeriesRow> Rows() const;

 private:
  void CloseOldest();
  static SeriesRow RowOf(uint64_t second, const Histogram& latencies);

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<uint64_t, Histogram> open_;
  std::map<uint64_t, SeriesRow> closed_;
};

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_MEASUREMENTS_H_
