#include "tools/loadgen/reports/hdr_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace osprey::loadgen {
namespace {

constexpr double kTicksPerHalving = 5;
constexpr int kSubBuckets = 1 << Histogram::kPrecisionBits;
constexpr int kBuckets = 64 - Histogram::kPrecisionBits + 1;

// The level after `level`. The distance to 100 % is halved in a fixed number of steps, and each
// halving has steps half as wide. In per cent, as in HdrHistogram, so that rounding gives the same
// lines.
double NextLevel(double level) {
  const double halvings = std::floor(std::log(100 / (100 - level)) / std::log(2)) + 1;
  return level + 100 / (kTicksPerHalving * std::exp2(halvings));
}

}  // namespace

std::vector<PercentileLevel> PercentileLevels(const Histogram& histogram) {
  std::vector<PercentileLevel> levels;
  const uint64_t total = histogram.count();
  double level = 0;
  uint64_t seen = 0;
  for (const Histogram::Bucket& bucket : histogram.Buckets()) {
    seen += bucket.count;
    const uint64_t value = std::min(bucket.highest, histogram.max());
    // A bucket may hold several levels; those of the last bucket are left to the line of 1.
    while (100 * static_cast<double>(seen) / static_cast<double>(total) >= level) {
      levels.push_back({value, level / 100, seen});
      if (seen == total) break;
      const double next = NextLevel(level);
      if (!(next > level)) break;  // the double is as near to 100 as possible
      level = next;
    }
  }
  if (total > 0) levels.push_back({histogram.max(), 1, total});
  return levels;
}

std::string HdrPercentileText(const Histogram& nanos) {
  constexpr double kScale = 1000;
  std::string text = absl::StrFormat("%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount",
                                     "1/(1-Percentile)");
  for (const PercentileLevel& level : PercentileLevels(nanos)) {
    absl::StrAppendFormat(&text, "%12.3f %2.12f %10d", static_cast<double>(level.value) / kScale,
                          level.level, level.count);
    if (level.level < 1) absl::StrAppendFormat(&text, " %14.2f", 1 / (1 - level.level));
    text += '\n';
  }
  absl::StrAppendFormat(&text, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n",
                        nanos.mean() / kScale, nanos.standard_deviation() / kScale);
  absl::StrAppendFormat(&text, "#[Max     = %12.3f, Total count    = %12d]\n",
                        static_cast<double>(nanos.max()) / kScale, nanos.count());
  absl::StrAppendFormat(&text, "#[Buckets = %12d, SubBuckets     = %12d]\n", kBuckets, kSubBuckets);
  return text;
}

}  // namespace osprey::loadgen
