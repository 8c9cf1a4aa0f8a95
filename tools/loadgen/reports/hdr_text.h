// HdrHistogram's percentile text (outputPercentileDistribution), which its plotters read:
//
//        Value     Percentile TotalCount 1/(1-Percentile)
//
//        1.023 0.000000000000          1           1.00
//        …
// #[Mean    =        2.345, StdDeviation   =        0.678]
// #[Max     =       90.123, Total count    =       100000]
// #[Buckets =           57, SubBuckets     =          256]
//
// Thread rule: plain functions.

#ifndef OSPREY_TOOLS_LOADGEN_REPORTS_HDR_TEXT_H_
#define OSPREY_TOOLS_LOADGEN_REPORTS_HDR_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/common/histogram.h"

namespace osprey::loadgen {

// One line of the table: the number of values up to `value`.
struct PercentileLevel {
  uint64_t value = 0;
  double level = 0;  // 0 … 1: the fraction of the line
  uint64_t count = 0;
};

// Five lines for each halving of the distance to 1, HdrHistogram's default; the last is 1. Empty
// for an empty histogram.
std::vector<PercentileLevel> PercentileLevels(const Histogram& histogram);

// Values are in nanoseconds; the text is in microseconds.
std::string HdrPercentileText(const Histogram& nanos);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_REPORTS_HDR_TEXT_H_
