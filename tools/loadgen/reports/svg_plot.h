// A result as a picture: latency by percentile, and throughput and p99 over time. The percentile
// axis is HdrHistogram's, on which each further nine is as wide as the one before. SVG 1.1, in
// plain shapes and text.
//
// Thread rule: plain functions.

#ifndef OSPREY_TOOLS_LOADGEN_REPORTS_SVG_PLOT_H_
#define OSPREY_TOOLS_LOADGEN_REPORTS_SVG_PLOT_H_

#include <string>

#include "tools/loadgen/result.h"

namespace osprey::loadgen {

std::string SvgPlot(const RunResult& result);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_REPORTS_SVG_PLOT_H_
