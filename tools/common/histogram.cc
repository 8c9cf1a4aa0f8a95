#include "tools/common/histogram.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

namespace osprey {
namespace {

// The first 2^kPrecisionBits indices are the values themselves. Each octave above takes kParts
// more. A value of b bits is shifted right until kPrecisionBits remain, of which the highest is
// always 1.
constexpr size_t kExact = size_t{1} << Histogram::kPrecisionBits;
constexpr size_t kParts = kExact / 2;
constexpr size_t kOctavesAbove = 64 - Histogram::kPrecisionBits;
constexpr size_t kBuckets = kExact + kOctavesAbove * kParts;
// The relative error of a sum that was added value by value; far above the real one.
constexpr double kRounding = 1e-3;

}  // namespace

size_t Histogram::IndexOf(uint64_t value) {
  if (value < kExact) return value;
  const int shift = static_cast<int>(std::bit_width(value)) - kPrecisionBits;
  return kExact + static_cast<size_t>(shift - 1) * kParts + ((value >> shift) - kParts);
}

uint64_t Histogram::LowestOf(size_t index) {
  if (index < kExact) return index;
  const size_t above = index - kExact;
  const int shift = static_cast<int>(above / kParts) + 1;
  return (kParts + above % kParts) << shift;
}

uint64_t Histogram::HighestOf(size_t index) {
  // The last bucket ends at the greatest number.
  return index + 1 == kBuckets ? UINT64_MAX : LowestOf(index + 1) - 1;
}

void Histogram::RecordMany(uint64_t value, uint64_t times) {
  if (times == 0) return;
  if (counts_.empty()) counts_.resize(kBuckets);
  counts_[IndexOf(value)] += times;
  count_ += times;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value) * static_cast<double>(times);
}

void Histogram::Add(const Histogram& other) {
  if (other.count_ == 0) return;
  counts_.resize(kBuckets);
  for (size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

void Histogram::Clear() {
  std::fill(counts_.begin(), counts_.end(), 0);
  count_ = 0;
  min_ = UINT64_MAX;
  max_ = 0;
  sum_ = 0;
}

double Histogram::mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

double Histogram::standard_deviation() const {
  if (count_ == 0) return 0;
  double squares = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 0) continue;
    const uint64_t low = LowestOf(i);
    const uint64_t width = HighestOf(i) - low;
    const double middle = static_cast<double>(low) + static_cast<double>(width) / 2;
    squares += (middle - mean()) * (middle - mean()) * static_cast<double>(counts_[i]);
  }
  return std::sqrt(squares / static_cast<double>(count_));
}

uint64_t Histogram::ValueAt(double quantile) const {
  assert(quantile >= 0 && quantile <= 1);
  // A conversion to double may round up, even to 2^64.
  const auto all = static_cast<double>(count_);
  const double wanted = std::ceil(quantile * all);
  const uint64_t rank =
      wanted >= all ? count_ : std::max(uint64_t{1}, static_cast<uint64_t>(wanted));
  uint64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= rank) return std::min(HighestOf(i), max_);
  }
  return max_;
}

std::vector<Histogram::Bucket> Histogram::Buckets() const {
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] != 0) buckets.push_back({HighestOf(i), counts_[i]});
  }
  return buckets;
}

bool Histogram::Restore(const std::vector<Bucket>& buckets, uint64_t min, uint64_t max,
                        double sum) {
  Clear();
  bool good = true;
  size_t least = 0;  // the least value of the next bucket
  counts_.resize(kBuckets);
  for (const Bucket& bucket : buckets) {
    const size_t index = IndexOf(bucket.highest);
    good = good && index >= least && bucket.count > 0 && bucket.count <= UINT64_MAX - count_;
    if (!good) break;
    counts_[index] = bucket.count;
    count_ += bucket.count;
    least = index + 1;
  }
  if (good && !buckets.empty()) {
    const auto all = static_cast<double>(count_);
    good = min <= max && IndexOf(min) == IndexOf(buckets.front().highest) &&
           IndexOf(max) == IndexOf(buckets.back().highest) &&
           sum >= all * static_cast<double>(min) * (1 - kRounding) &&
           sum <= all * static_cast<double>(max) * (1 + kRounding);
  }
  if (!good) {
    Clear();
    return false;
  }
  if (count_ == 0) return true;
  min_ = min;
  max_ = max;
  sum_ = sum;
  return true;
}

}  // namespace osprey
