// Everything that the server counts and measures, by name: one table, from which STATS, the metrics
// and the table of them in README.md come.

#ifndef OSPREY_SERVER_FIGURES_H_
#define OSPREY_SERVER_FIGURES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/stats.h"

namespace osprey::server {

struct Figure {
  enum class Kind {
    kCounter,  // only grows, while the server lives
    kGauge,
  };

  Kind kind = Kind::kGauge;
  std::string stat;          // its name in STATS; empty: it is not there
  bool unless_zero = false;  // STATS leaves it out while it is 0
  std::string metric;        // its name as a metric, without kMetricPrefix; empty: it is none
  std::string label;         // `label`="`label_value`" tells it from others of that name; or empty
  std::string label_value;
  std::string help;  // one line; those of one metric have the same
  // One of them is not null. `index` is given to it.
  uint64_t (*count)(const StatsInput& input, size_t index) = nullptr;
  double (*ratio)(const StatsInput& input, size_t index) = nullptr;
  size_t index = 0;
};

inline constexpr char kMetricPrefix[] = "osprey_";

// In the order of STATS; those of one metric need not stand together.
const std::vector<Figure>& Figures();

}  // namespace osprey::server

#endif  // OSPREY_SERVER_FIGURES_H_
