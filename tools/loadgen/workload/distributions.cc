#include "tools/loadgen/workload/distributions.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>

namespace osprey::loadgen {
namespace {

// The terms of zeta that are added one by one.
constexpr uint64_t kZetaTerms = 256;

// The probabilities of 0 … 14 bytes: 56 % of all values are longer.
constexpr double kShortValues[] = {0.00536, 0.00047, 0.17820, 0.09239, 0.00018,
                                   0.02740, 0.00065, 0.00606, 0.00023, 0.00837,
                                   0.00837, 0.08989, 0.00092, 0.00326, 0.01980};

}  // namespace

int64_t FnvHash64(uint64_t value) {
  constexpr uint64_t kOffsetBasis = 0xcbf29ce484222325;
  constexpr uint64_t kPrime = 1099511628211;
  uint64_t hash = kOffsetBasis;
  for (int i = 0; i < 8; ++i) {
    hash = (hash ^ (value & 0xff)) * kPrime;
    value >>= 8;
  }
  return static_cast<int64_t>(static_cast<int64_t>(hash) < 0 ? 0 - hash : hash);
}

double Zeta(uint64_t n, double theta) {
  assert(n > 0 && theta > 0 && theta < 1);
  const uint64_t head = std::min(n, kZetaTerms);
  double sum = 0;
  for (uint64_t i = head; i > 0; --i) sum += std::pow(static_cast<double>(i), -theta);
  if (n == head) return sum;
  const auto a = static_cast<double>(head);
  const auto b = static_cast<double>(n);
  const double integral = (std::pow(b, 1 - theta) - std::pow(a, 1 - theta)) / (1 - theta);
  const double ends = (std::pow(b, -theta) - std::pow(a, -theta)) / 2;
  const double slopes = theta / 12 * (std::pow(a, -theta - 1) - std::pow(b, -theta - 1));
  return sum + integral + ends + slopes;
}

Zipfian::Zipfian(uint64_t items, double theta) : Zipfian(items, theta, Zeta(items, theta)) {}

Zipfian::Zipfian(uint64_t items, double theta, double zeta_items)
    : theta_(theta), alpha_(1 / (1 - theta)), second_(1 + std::pow(0.5, theta)) {
  assert(items > 0 && theta > 0 && theta < 1);
  Set(items, zeta_items);
}

void Zipfian::SetItems(uint64_t items) {
  assert(items > 0);
  if (items != items_) Set(items, Zeta(items, theta_));
}

void Zipfian::Set(uint64_t items, double zeta_items) {
  items_ = items;
  zeta_items_ = zeta_items;
  // With one or two items, the first two cases of At cover all.
  eta_ = items <= 2 ? 0
                    : (1 - std::pow(2.0 / static_cast<double>(items), 1 - theta_)) /
                          (1 - second_ / zeta_items_);
}

uint64_t Zipfian::At(double u) const {
  assert(u >= 0 && u < 1);
  const double uz = u * zeta_items_;
  if (uz < 1 || items_ == 1) return 0;
  if (uz < second_ || items_ == 2) return 1;
  const double at = static_cast<double>(items_) * std::pow(eta_ * u - eta_ + 1, alpha_);
  return std::min(static_cast<uint64_t>(at), items_ - 1);
}

// YCSB's generator includes both ends of 0 … kItems.
ScrambledZipfian::ScrambledZipfian(uint64_t first, uint64_t last)
    : first_(first), count_(last - first + 1), ranks_(kItems + 1, Zipfian::kTheta, kZetaItems) {
  assert(first <= last);
}

uint64_t ScrambledZipfian::At(double u) const {
  // No rank below kItems hashes to -2^63, for which Java's remainder would be negative.
  return first_ + static_cast<uint64_t>(FnvHash64(ranks_.At(u))) % count_;
}

Hotspot::Hotspot(uint64_t first, uint64_t last, double hot_set, double hot_draws)
    : first_(first), hot_draws_(hot_draws) {
  assert(first <= last && hot_set >= 0 && hot_set <= 1 && hot_draws >= 0 && hot_draws <= 1);
  const uint64_t count = last - first + 1;
  hot_ = std::min(count, static_cast<uint64_t>(static_cast<double>(count) * hot_set));
  cold_ = count - hot_;
}

uint64_t Hotspot::Next(Random& random) const {
  const bool hot = random.NextDouble() < hot_draws_;
  // An empty set leaves its draws to the other.
  if ((hot && hot_ > 0) || cold_ == 0) return first_ + random.Below(hot_);
  return first_ + hot_ + random.Below(cold_);
}

Exponential::Exponential(double percentile, double range)
    : scale_(range / -std::log(1 - percentile / 100)) {
  assert(percentile > 0 && percentile < 100 && range > 0);
}

double Exponential::At(double u) const { return -std::log(u) * scale_; }

double ExtremeValue::At(double u) const {
  return location + scale * (std::pow(-std::log(u), -shape) - 1) / shape;
}

double Pareto::At(double u) const {
  return location + scale * (std::pow(1 - u, -shape) - 1) / shape;
}

namespace etc {

uint64_t KeyBytes(uint64_t number) {
  // Between 0 and 1, excluding both.
  const double u = (static_cast<double>(Mix64(number) >> 11) + 0.5) * 0x1p-53;
  return std::min(kKeyBytesMax, static_cast<uint64_t>(std::max(1.0, std::round(kKeyBytes.At(u)))));
}

uint64_t ValueBytes(Random& random) {
  double u = random.NextDouble();
  for (uint64_t bytes = 0; bytes < std::size(kShortValues); ++bytes) {
    if (u < kShortValues[bytes]) return bytes;
    u -= kShortValues[bytes];
  }
  return std::min(kValueBytesMax, static_cast<uint64_t>(kValueBytes.At(random.NextDouble())));
}

}  // namespace etc
}  // namespace osprey::loadgen
