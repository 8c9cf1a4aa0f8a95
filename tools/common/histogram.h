// A log-linear histogram of durations (or any other counts), with a bounded relative error and no
// allocation per value.
//
//   osprey::Histogram latency;
//   latency.Record(elapsed_ns);
//   printf("p99 %lu ns\n", latency.ValueAt(0.99));
//
// Values below 2^kPrecisionBits are counted exactly. Above, every octave is divided into
// 2^(kPrecisionBits - 1) equal parts, so that the relative error is at most 1/2^(kPrecisionBits -
// 1). This is the layout of HdrHistogram (hdrhistogram.org), whose percentile files can be written
// from Buckets().
//
// Thread rule: one thread at a time. Give each thread its own, and Add them.

#ifndef OSPREY_TOOLS_COMMON_HISTOGRAM_H_
#define OSPREY_TOOLS_COMMON_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace osprey {

class Histogram {
 public:
  // 128 parts an octave: a relative error of at most 0.8 %, in 58 KiB, allocated by the first
  // Record.
  static constexpr int kPrecisionBits = 8;

  void Record(uint64_t value) { RecordMany(value, 1); }
  void RecordMany(uint64_t value, uint64_t times);
  void Add(const Histogram& other);
  void Clear();

  uint64_t count() const { return count_; }
  // 0 when empty; exact.
  uint64_t min() const { return count_ == 0 ? 0 : min_; }
  uint64_t max() const { return max_; }
  double sum() const { return sum_; }
  double mean() const;
  // Computed from the middles of the buckets, as in HdrHistogram; so as precise as the values.
  double standard_deviation() const;

  // The smallest value such that at least `quantile` (0 … 1) of all values are no greater. It is
  // the upper bound of its bucket, but never above max(). 0 when empty.
  uint64_t ValueAt(double quantile) const;

  struct Bucket {
    uint64_t highest = 0;  // the greatest value in the bucket
    uint64_t count = 0;    // not 0
  };
  // Ascending.
  std::vector<Bucket> Buckets() const;

  // Restores a histogram from its own values, as kept in a file. False, and the histogram is empty,
  // if these cannot be of one histogram. Examples: buckets out of order or with a count of 0,
  // bounds in other buckets, a sum outside them, counts that overflow.
  bool Restore(const std::vector<Bucket>& buckets, uint64_t min, uint64_t max, double sum);

 private:
  static size_t IndexOf(uint64_t value);
  static uint64_t LowestOf(size_t index);
  static uint64_t HighestOf(size_t index);

  std::vector<uint64_t> counts_;  // none while nothing is recorded
  uint64_t count_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
  double sum_ = 0;  // a double, since a sum of 64-bit values may not fit in 64 bits
};

}  // namespace osprey

#endif  // OSPREY_TOOLS_COMMON_HISTOGRAM_H_
