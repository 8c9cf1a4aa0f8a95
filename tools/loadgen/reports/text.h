// A result as text: YCSB's final lines, and the time series as comma-separated values.
//
// Thread rule: plain functions.

#ifndef OSPREY_TOOLS_LOADGEN_REPORTS_TEXT_H_
#define OSPREY_TOOLS_LOADGEN_REPORTS_TEXT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/loadgen/result.h"

namespace osprey::loadgen {

// One set of latencies of a report: "READ", "READ-FAILED", "Intended-READ" …
struct LatencySet {
  std::string name;
  const Histogram* nanos;  // points into the result
  // The kind whose results this set shows; nullptr if another set shows them.
  const KindMeasurements* kind = nullptr;
  bool intended = false;
  bool failed = false;
};

// The sets that are not empty, in YCSB's order; services and intended times as the result requests.
std::vector<LatencySet> LatencySets(const RunResult& result);

// "# transport=…" and other facts, then YCSB's lines: "[READ], 99thPercentileLatency(us), 12.345".
// Latencies have three decimals, because an operation may take less than a microsecond. [CLIENT]
// and [VERIFY] are Osprey's own.
std::string YcsbText(const RunResult& result);

// "95th", "99.9".
std::string Ordinal(double percentile);

// A line of names, then a line a second.
std::string SeriesCsv(const RunResult& result);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_REPORTS_TEXT_H_
