#include "tools/common/histogram.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace osprey {
namespace {

// The relative error that tools/common/histogram.h promises.
constexpr double kErrorMax = 1.0 / 128;

TEST(HistogramTest, AnEmptyOneAnswersZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.min(), 0u);
  EXPECT_EQ(histogram.max(), 0u);
  EXPECT_EQ(histogram.mean(), 0);
  EXPECT_EQ(histogram.ValueAt(0.5), 0u);
  EXPECT_TRUE(histogram.Buckets().empty());
}

TEST(HistogramTest, SmallValuesAreExact) {
  Histogram histogram;
  for (uint64_t value = 0; value < 256; ++value) histogram.Record(value);
  EXPECT_EQ(histogram.ValueAt(0), 0u);
  EXPECT_EQ(histogram.ValueAt(0.5), 127u);
  EXPECT_EQ(histogram.ValueAt(0.99), 253u);
  EXPECT_EQ(histogram.ValueAt(1), 255u);
  EXPECT_DOUBLE_EQ(histogram.mean(), 127.5);
}

TEST(HistogramTest, ValuesAtEveryPowerOfTwoAreWithinTheError) {
  for (int bit = 0; bit < 64; ++bit) {
    for (const uint64_t value :
         {(uint64_t{1} << bit) - 1, uint64_t{1} << bit, (uint64_t{1} << bit) + 1}) {
      Histogram histogram;
      histogram.Record(value);
      histogram.Record(UINT64_MAX);  // so that max() does not hide the bucket's bound
      const uint64_t found = histogram.ValueAt(0.5);
      EXPECT_GE(found, value);
      EXPECT_LE(static_cast<double>(found), static_cast<double>(value) * (1 + kErrorMax)) << value;
      EXPECT_EQ(histogram.ValueAt(1), UINT64_MAX);
    }
  }
}

TEST(HistogramTest, QuantilesAreThoseOfTheSortedValuesWithinTheError) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> nanos(10, 2);
  std::vector<uint64_t> values(20'000);
  Histogram histogram;
  for (uint64_t& value : values) {
    value = static_cast<uint64_t>(nanos(random));
    histogram.Record(value);
  }
  std::sort(values.begin(), values.end());
  EXPECT_EQ(histogram.min(), values.front());
  EXPECT_EQ(histogram.max(), values.back());
  for (const double quantile : {0.01, 0.25, 0.5, 0.9, 0.99, 0.999}) {
    const uint64_t exact =
        values[static_cast<size_t>(quantile * static_cast<double>(values.size())) - 1];
    const uint64_t found = histogram.ValueAt(quantile);
    EXPECT_GE(found, exact) << quantile;
    EXPECT_LE(static_cast<double>(found), static_cast<double>(exact) * (1 + kErrorMax)) << quantile;
  }
}

TEST(HistogramTest, TheSumOfTwoIsAsIfAllHadBeenRecordedInOne) {
  Histogram left;
  Histogram right;
  Histogram both;
  for (uint64_t value = 1; value < 1'000'000; value = value * 3 + 1) {
    (value % 2 == 0 ? left : right).Record(value);
    both.Record(value);
  }
  left.Add(right);
  EXPECT_EQ(left.count(), both.count());
  EXPECT_EQ(left.min(), both.min());
  EXPECT_EQ(left.max(), both.max());
  EXPECT_DOUBLE_EQ(left.mean(), both.mean());
  for (const double quantile : {0.1, 0.5, 0.9})
    EXPECT_EQ(left.ValueAt(quantile), both.ValueAt(quantile));
}

TEST(HistogramTest, BucketsAscendAndHoldEveryValue) {
  Histogram histogram;
  histogram.RecordMany(7, 3);
  histogram.RecordMany(70'000, 2);
  histogram.RecordMany(5, 0);
  const std::vector<Histogram::Bucket> buckets = histogram.Buckets();
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0].highest, 7u);
  EXPECT_EQ(buckets[0].count, 3u);
  EXPECT_GE(buckets[1].highest, 70'000u);
  EXPECT_EQ(buckets[1].count, 2u);
}

TEST(HistogramTest, OneThatWasClearedIsEmptyAndUsable) {
  Histogram histogram;
  histogram.Record(70'000);
  histogram.Clear();
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.max(), 0u);
  EXPECT_TRUE(histogram.Buckets().empty());
  histogram.Record(5);
  EXPECT_EQ(histogram.min(), 5u);
  EXPECT_EQ(histogram.ValueAt(1), 5u);
}

TEST(HistogramTest, AnEmptyOneAddsNothing) {
  Histogram histogram;
  histogram.Add(Histogram());
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.ValueAt(0.5), 0u);
  histogram.Record(7);
  histogram.Add(Histogram());
  EXPECT_EQ(histogram.min(), 7u);
  EXPECT_EQ(histogram.count(), 1u);
}

TEST(HistogramTest, TheStandardDeviationIsThatOfTheValues) {
  Histogram histogram;
  EXPECT_EQ(histogram.standard_deviation(), 0);
  for (const uint64_t value : {2, 4, 4, 4, 5, 5, 7, 9}) histogram.Record(value);
  EXPECT_DOUBLE_EQ(histogram.standard_deviation(), 2);
  EXPECT_DOUBLE_EQ(histogram.sum(), 40);
}

TEST(HistogramTest, HistogramIsRestoredFromItsSerializedForm) {
  Histogram histogram;
  for (uint64_t value = 1; value < UINT64_MAX / 3; value = value * 3 + 1) histogram.Record(value);
  histogram.Record(UINT64_MAX);
  Histogram restored;
  ASSERT_TRUE(
      restored.Restore(histogram.Buckets(), histogram.min(), histogram.max(), histogram.sum()));
  EXPECT_EQ(restored.count(), histogram.count());
  EXPECT_EQ(restored.min(), histogram.min());
  EXPECT_EQ(restored.max(), histogram.max());
  EXPECT_EQ(restored.mean(), histogram.mean());
  for (const double quantile : {0.0, 0.3, 0.5, 0.99, 1.0})
    EXPECT_EQ(restored.ValueAt(quantile), histogram.ValueAt(quantile));
  EXPECT_TRUE(restored.Restore({}, 0, 0, 0));
  EXPECT_EQ(restored.count(), 0u);
}

TEST(HistogramTest, InconsistentHistogramIsNotRestored) {
  Histogram histogram;
  EXPECT_FALSE(histogram.Restore({{7, 1}, {5, 1}}, 5, 7, 12));
  EXPECT_FALSE(histogram.Restore({{5, 1}, {5, 1}}, 5, 5, 10));
  EXPECT_FALSE(histogram.Restore({{5, 0}}, 5, 5, 0));
  EXPECT_FALSE(histogram.Restore({{5, 1}}, 4, 5, 5));
  EXPECT_FALSE(histogram.Restore({{5, 1}}, 5, 600, 5));
  EXPECT_FALSE(histogram.Restore({{5, 1}}, 5, 5, -1));
  EXPECT_FALSE(histogram.Restore({{5, 1}, {7, 1}}, 5, 7, 9));
  EXPECT_FALSE(histogram.Restore({{5, 1}, {7, 1}}, 5, 7, 15));
  EXPECT_FALSE(histogram.Restore({{5, UINT64_MAX}, {6, 1}}, 5, 6, 11));
  EXPECT_EQ(histogram.count(), 0u);
}

}  // namespace
}  // namespace osprey
