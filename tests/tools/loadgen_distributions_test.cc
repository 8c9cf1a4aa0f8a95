// The distributions of kvbench's load, against their expected probabilities and against numbers
// from YCSB's own formulas.

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "tools/loadgen/workload/distributions.h"
#include "tools/loadgen/workload/random.h"

namespace osprey::loadgen {
namespace {

constexpr uint64_t kDraws = 400'000;
constexpr double kSigmas = 5;

// Whether `count` of kDraws fits a probability.
void ExpectShare(uint64_t count, double probability) {
  const double expected = probability * kDraws;
  const double sigma = std::sqrt(expected * (1 - probability));
  EXPECT_NEAR(static_cast<double>(count), expected, kSigmas * sigma + 1);
}

// The draws of a distribution for kDraws numbers that lie evenly between 0 and 1: exact to 1 in
// kDraws.
template <typename F>
std::map<uint64_t, double> SharesOf(F at) {
  std::map<uint64_t, double> shares;
  for (uint64_t i = 0; i < kDraws; ++i)
    shares[at((static_cast<double>(i) + 0.5) / kDraws)] += 1.0 / kDraws;
  return shares;
}

TEST(DistributionsTest, TheHashIsThatOfYcsb) {
  EXPECT_EQ(FnvHash64(0), 6284781860667377211);
  EXPECT_EQ(FnvHash64(1), 8517097267634966620);
  EXPECT_EQ(FnvHash64(2), 1820151046732198393);
  EXPECT_EQ(FnvHash64(999), 2071219101098386137);
  EXPECT_EQ(FnvHash64(1'000'000), 1011632231655643464);
  EXPECT_EQ(FnvHash64(123'456'789'012), 2556987882972209844);
}

TEST(DistributionsTest, ZetaInConstantTimeIsTheSum) {
  for (const uint64_t n : {1, 2, 10, 255, 256, 257, 300, 1000, 100'000}) {
    double sum = 0;
    for (uint64_t i = n; i > 0; --i) sum += std::pow(static_cast<double>(i), -0.99);
    EXPECT_NEAR(Zeta(n, 0.99) / sum, 1, 1e-11) << n;
  }
  EXPECT_NEAR(Zeta(10'000'000, 0.99), 18.066242574968303, 1e-9);
  // As in YCSB, summed one by one.
  EXPECT_NEAR(Zeta(ScrambledZipfian::kItems, 0.99), ScrambledZipfian::kZetaItems, 1e-6);
}

TEST(DistributionsTest, ZipfsMostFrequentRanksHaveTheirExactProbability) {
  for (const uint64_t items : {3, 10, 1000, 1'000'000}) {
    const Zipfian zipfian(items);
    std::map<uint64_t, double> shares = SharesOf([&](double u) { return zipfian.At(u); });
    const double zeta = Zeta(items, 0.99);
    EXPECT_NEAR(shares[0], 1 / zeta, 3.0 / kDraws) << items;
    EXPECT_NEAR(shares[1], std::pow(0.5, 0.99) / zeta, 3.0 / kDraws) << items;
    EXPECT_LT(shares.rbegin()->first, items);
  }
}

TEST(DistributionsTest, ZipfsFirstRanksTogetherHaveNearlyTheirProbability) {
  const Zipfian zipfian(1000);
  const std::map<uint64_t, double> shares = SharesOf([&](double u) { return zipfian.At(u); });
  double together = 0;
  uint64_t next = 0;
  for (const uint64_t ranks : {5, 10, 30, 100, 300, 1000}) {
    for (; next < ranks; ++next) together += shares.count(next) > 0 ? shares.at(next) : 0;
    EXPECT_NEAR(together, Zeta(ranks, 0.99) / Zeta(1000, 0.99), 0.03) << ranks;
  }
}

TEST(DistributionsTest, ZipfOfOneOrTwoItemsIsBounded) {
  for (const uint64_t items : {1, 2}) {
    const Zipfian zipfian(items);
    for (const double u : {0.0, 0.5, 0.7, 0.999, 0x1.fffffffffffffp-1})
      EXPECT_LT(zipfian.At(u), items) << u;
  }
}

TEST(DistributionsTest, ZipfThatGrewIsThatOfItsSize) {
  Zipfian grown(10);
  grown.SetItems(5000);
  const Zipfian made(5000);
  for (const double u : {0.01, 0.2, 0.4, 0.6, 0.8, 0.99}) EXPECT_EQ(grown.At(u), made.At(u)) << u;
}

// Computed by YCSB's formulas in Java.
TEST(DistributionsTest, ZipfsDrawsAreThoseOfYcsb) {
  const Zipfian zipfian(1000);
  const std::map<double, uint64_t> expected = {
      {0, 0},      {0.1, 0},   {0.2, 2},    {0.25, 3},   {0.3333, 6},  {0.5, 22},      {0.61, 51},
      {0.75, 151}, {0.9, 471}, {0.95, 687}, {0.99, 927}, {0.999, 992}, {0.999999, 999}};
  for (const auto& [u, rank] : expected) EXPECT_EQ(zipfian.At(u), rank) << u;
}

TEST(DistributionsTest, ScrambledZipfsDrawsAreThoseOfYcsb) {
  struct Draw {
    double u;
    uint64_t of_1001;
    uint64_t of_100000_from_5;
  };
  const ScrambledZipfian small(0, 1000);
  const ScrambledZipfian large(5, 100'004);
  for (const Draw& draw : std::vector<Draw>{{0.0, 144, 77216},
                                            {0.0377, 144, 77216},
                                            {0.0378, 610, 66625},
                                            {0.1, 942, 95592},
                                            {0.2, 421, 379},
                                            {0.25, 809, 33619},
                                            {0.3333, 903, 71250},
                                            {0.5, 367, 80265},
                                            {0.61, 216, 29845},
                                            {0.75, 767, 10444},
                                            {0.9, 991, 81675},
                                            {0.95, 280, 22275},
                                            {0.99, 745, 61526},
                                            {0.999, 483, 90064}}) {
    EXPECT_EQ(small.At(draw.u), draw.of_1001) << draw.u;
    EXPECT_EQ(large.At(draw.u), draw.of_100000_from_5) << draw.u;
  }
}

TEST(DistributionsTest, ScrambledZipfsMostFrequentKeyHasTheProbabilityOfRankZero) {
  const ScrambledZipfian scrambled(0, 999'999);
  Random random(7);
  uint64_t hot = 0;
  const uint64_t key = static_cast<uint64_t>(FnvHash64(0)) % 1'000'000;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const uint64_t drawn = scrambled.Next(random);
    EXPECT_LT(drawn, 1'000'000u);
    hot += drawn == key ? 1 : 0;
  }
  ExpectShare(hot, 1 / ScrambledZipfian::kZetaItems);
}

TEST(DistributionsTest, AHotSetGetsItsShareAndAllItsKeysAlike) {
  const Hotspot hotspot(100, 199, 0.2, 0.8);
  Random random(11);
  std::vector<uint64_t> counts(100);
  for (uint64_t i = 0; i < kDraws; ++i) {
    const uint64_t key = hotspot.Next(random);
    ASSERT_GE(key, 100u);
    ASSERT_LE(key, 199u);
    ++counts[key - 100];
  }
  for (size_t i = 0; i < counts.size(); ++i) ExpectShare(counts[i], i < 20 ? 0.8 / 20 : 0.2 / 80);
}

TEST(DistributionsTest, AHotSetOfNothingOrOfAllLeavesNoDrawWithoutAKey) {
  Random random(12);
  for (const double set : {0.0, 0.001, 1.0}) {
    for (const double draws : {0.0, 0.5, 1.0}) {
      const Hotspot hotspot(3, 7, set, draws);
      for (int i = 0; i < 1000; ++i) {
        const uint64_t key = hotspot.Next(random);
        EXPECT_TRUE(key >= 3 && key <= 7) << key;
      }
    }
  }
}

TEST(DistributionsTest, ExponentialDrawsAreBelowTheRangeAsOftenAsItsPercentileSays) {
  const Exponential exponential(95, 1000);
  Random random(13);
  uint64_t below = 0;
  for (uint64_t i = 0; i < kDraws; ++i) below += exponential.Next(random) < 1000 ? 1 : 0;
  ExpectShare(below, 0.95);
}

TEST(DistributionsTest, NumbersBelowABoundAreAllAlike) {
  Random random(14);
  std::vector<uint64_t> counts(10);
  for (uint64_t i = 0; i < kDraws; ++i) ++counts[random.Below(10)];
  double chi_square = 0;
  for (const uint64_t count : counts) {
    ExpectShare(count, 0.1);
    const double off = static_cast<double>(count) - kDraws / 10.0;
    chi_square += off * off / (kDraws / 10.0);
  }
  EXPECT_LT(chi_square, 27.9);  // nine degrees of freedom, 1 in 1000
}

TEST(DistributionsTest, DoublesStayInTheirRange) {
  Random random(15);
  for (int i = 0; i < 100'000; ++i) {
    const double from_zero = random.NextDouble();
    EXPECT_TRUE(from_zero >= 0 && from_zero < 1);
    const double to_one = random.NextPositive();
    EXPECT_TRUE(to_one > 0 && to_one <= 1);
  }
}

// The quantiles follow from the parameters in the paper: location + scale / shape × ((-ln u)^-shape
// - 1).
TEST(DistributionsTest, EtcKeysHaveTheQuantilesOfTheirDistribution) {
  EXPECT_NEAR(etc::kKeyBytes.At(0.5), 33.849, 0.001);
  EXPECT_NEAR(etc::kKeyBytes.At(0.1), 24.1753, 0.001);
  EXPECT_NEAR(etc::kKeyBytes.At(0.99), 76.2756, 0.001);
  std::map<uint64_t, uint64_t> counts;
  for (uint64_t key = 0; key < kDraws; ++key) ++counts[etc::KeyBytes(key)];
  EXPECT_GE(counts.begin()->first, 1u);
  EXPECT_LE(counts.rbegin()->first, etc::kKeyBytesMax);
  // The share that is rounded to at most 34 bytes: the distribution at 34.5.
  const double t = std::pow(1 + 0.078688 * (34.5 - 30.7984) / 8.20449, -1 / 0.078688);
  uint64_t at_most_34 = 0;
  for (const auto& [bytes, count] : counts) at_most_34 += bytes <= 34 ? count : 0;
  ExpectShare(at_most_34, std::exp(-t));
  EXPECT_EQ(etc::KeyBytes(17), etc::KeyBytes(17));
}

TEST(DistributionsTest, EtcValuesAreShortByTheTableAndLongByPareto) {
  Random random(16);
  std::map<uint64_t, uint64_t> counts;
  for (uint64_t i = 0; i < kDraws; ++i) ++counts[etc::ValueBytes(random)];
  constexpr double kLong = 1 - 0.44155;  // the rest of the table
  // A long value may also have so few bytes: Pareto's share below 1 byte, and so on.
  const auto pareto = [](double bytes) {
    return 1 - std::pow(1 + 0.348238 * bytes / 214.476, -1 / 0.348238);
  };
  ExpectShare(counts[0], 0.00536 + kLong * pareto(1));
  ExpectShare(counts[2], 0.17820 + kLong * (pareto(3) - pareto(2)));
  ExpectShare(counts[11], 0.08989 + kLong * (pareto(12) - pareto(11)));
  uint64_t above_168 = 0;
  for (const auto& [bytes, count] : counts) above_168 += bytes >= 168 ? count : 0;
  ExpectShare(above_168, kLong * (1 - pareto(168)));
  EXPECT_LE(counts.rbegin()->first, etc::kValueBytesMax);
}

TEST(DistributionsTest, EtcGapsHaveTheirMean) {
  EXPECT_NEAR(etc::kGapMicros.mean(), 16.0292 / (1 - 0.154971), 1e-9);
  Random random(17);
  double sum = 0;
  for (uint64_t i = 0; i < kDraws; ++i) sum += etc::kGapMicros.At(random.NextDouble());
  EXPECT_NEAR(sum / kDraws / etc::kGapMicros.mean(), 1, 0.02);
}

}  // namespace
}  // namespace osprey::loadgen
