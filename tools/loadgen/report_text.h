// A result as text: YCSB's final lines, and the time series as comma-separated values.
//
// Thread rule: plain functions.

#ifndef OSPREY_TOOLS_LOADGEN_REPORT_TEXT_H_
#define OSPREY_TOOLS_LOADGEN_REPORT_TEXT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/loadgen/result.h"

namespace osprey::loadgen {

// One set of latencies that a report shows: "READ", "READ-FAILED", "Intended-READ" …
struct LatencySet {
  std::string name;
  const Histogram* nanos;  // of the result that it was taken from
  // The kind whose ends are counted there; nullptr where another set has them.
  const KindMeasurements* kind = nullptr;
  bool intended = false;
  bool failed = false;
};

// Those that are not empty, in YCSB's order; services and intended times as the result asks for.
std::vector<LatencySet> LatencySets(const RunResult& result);

// "# transport=…" and what else a reader has to know, and then lines as YCSB's: "[READ],
// 99thPercentileLatency(us), 12.345". Latencies have three decimals, since an operation may take
// less than a microsecond. [CLIENT] and [VERIFY] are Osprey's own.
std::string YcsbText(const RunResult& result);

// "95th", "99.9".
std::string Ordinal(double percentile);

// With a line of names; a line a second.
std::string SeriesCsv(const RunResult& result);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_REPORT_TEXT_H_
