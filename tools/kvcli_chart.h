// Histograms drawn in a terminal: one line each, of blocks that grow, all over one logarithmic
// axis.
//
//   GET      ▁▅█▃▁▁                   ▁
//   PUT             ▂█▄▁▁
//            20      40      80      160 µs
//
// Thread rule: any.

#ifndef OSPREY_TOOLS_KVCLI_CHART_H_
#define OSPREY_TOOLS_KVCLI_CHART_H_

#include <string>
#include <utility>
#include <vector>

#include "tools/histogram.h"

namespace osprey {

struct ChartRow {
  std::string name;
  const Histogram* values = nullptr;  // in nanoseconds
};

// As many lines as rows, and the axis in microseconds; each line without its end, of `columns`
// characters at most (at least 40). From the least value to the greatest of the 99th percentiles:
// what lies beyond is in the last column. Heights are relative to each row's own highest; what is
// not empty is at least the lowest block. Empty without values.
std::vector<std::string> Chart(const std::vector<ChartRow>& rows, int columns);

}  // namespace osprey

#endif  // OSPREY_TOOLS_KVCLI_CHART_H_
