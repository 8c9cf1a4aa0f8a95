// All counters and measured values of the server, in one table by name. STATS, the metrics and
// their table in README.md come from it.

#ifndef OSPREY_SERVER_STATS_METRIC_TABLE_H_
#define OSPREY_SERVER_STATS_METRIC_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/stats/stats.h"

namespace osprey::server {

struct MetricRow {
  enum class Kind {
    kCounter,  // only increases while the server lives
    kGauge,
  };

  Kind kind = Kind::kGauge;
  std::string stat;          // its name in STATS; empty: not in STATS
  bool unless_zero = false;  // STATS omits it while it is 0
  bool durable = false;      // only with a data directory
  bool clustered = false;    // only in a cluster
  std::string metric;        // its name as a metric, without kMetricPrefix; empty: no metric
  std::string label;         // `label`="`label_value`" distinguishes it within its metric; or empty
  std::string label_value;
  std::string help;  // one line; those of one metric have the same
  // One of them is not null. `index` is its argument.
  uint64_t (*count)(const StatsInput& input, size_t index) = nullptr;
  double (*ratio)(const StatsInput& input, size_t index) = nullptr;
  size_t index = 0;

  // False: the server does not have it, and count and ratio must not be called.
  bool IsIn(const StatsInput& input) const {
    return (!durable || input.durability.has_value()) && (!clustered || input.cluster.has_value());
  }
};

inline constexpr char kMetricPrefix[] = "osprey_";

// In the order of STATS; values of one metric need not be adjacent.
const std::vector<MetricRow>& MetricTable();

}  // namespace osprey::server

#endif  // OSPREY_SERVER_STATS_METRIC_TABLE_H_
