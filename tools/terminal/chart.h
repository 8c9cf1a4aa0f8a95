// Histograms in a terminal: one line of rising blocks each, all over one logarithmic axis.
//
//   GET      ▁▅█▃▁▁                   ▁
//   PUT             ▂█▄▁▁
//            20      40      80      160 µs
//
// Thread rule: any.

#ifndef OSPREY_TOOLS_TERMINAL_CHART_H_
#define OSPREY_TOOLS_TERMINAL_CHART_H_

#include <string>
#include <utility>
#include <vector>

#include "tools/common/histogram.h"

namespace osprey {

struct ChartRow {
  std::string name;
  const Histogram* values = nullptr;  // in nanoseconds
};

// Returns a line for each row, and the axis in microseconds. Each line has no end, and `columns`
// characters at most (at least 40). The axis goes from the least value to the greatest of the 99th
// percentiles; the last column has all beyond. Heights are relative to each row's highest; every
// column that is not empty has at least the lowest block. Empty without values.
std::vector<std::string> Chart(const std::vector<ChartRow>& rows, int columns);

}  // namespace osprey

#endif  // OSPREY_TOOLS_TERMINAL_CHART_H_
