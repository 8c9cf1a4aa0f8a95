#include "tools/loadgen/workload/operations.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace osprey::loadgen {
namespace {

// The limit for repeated draws of keys that do not exist yet; then any other key is taken.
constexpr int kDrawsMax = 1000;

// In YCSB the popular keys stay the same while keys are inserted. So the space has the keys that
// will exist, with twice the expected number of inserts.
uint64_t LastScrambled(const Workload& workload) {
  const double share = workload.share(OperationKind::kInsert);
  const uint64_t expected =
      share == 0 ? 0
      : workload.operations > 0
          ? static_cast<uint64_t>(static_cast<double>(workload.operations) * share * 2)
          // A run by time has no expected number: as many again as there are.
          : workload.insert_count;
  return workload.insert_start + workload.insert_count + expected;
}

}  // namespace

OperationSource::OperationSource(Phase phase, const Workload& workload, SharedKeys& shared,
                                 uint64_t seed)
    : phase_(phase),
      workload_(workload),
      shared_(shared),
      random_(seed),
      scrambled_(workload.insert_start, LastScrambled(workload)),
      latest_(std::max<uint64_t>(1, shared.inserted.last())),
      hotspot_(workload.insert_start, workload.insert_start + workload.insert_count - 1,
               workload.hot_set, workload.hot_operations),
      exponential_(workload.exponential_percentile,
                   static_cast<double>(workload.records) * workload.exponential_fraction),
      scan_lengths_(workload.scan_max - workload.scan_min + 1) {}

std::optional<Operation> OperationSource::Next() {
  Operation operation;
  if (phase_ == Phase::kLoad) {
    operation.kind = OperationKind::kInsert;
    operation.key = shared_.sequence.fetch_add(1, std::memory_order_relaxed);
    if (operation.key >= workload_.insert_start + workload_.insert_count) return std::nullopt;
    return operation;
  }
  operation.kind = NextKind();
  if (operation.kind == OperationKind::kInsert) {
    const std::optional<uint64_t> number = shared_.inserted.Next();
    if (!number) return std::nullopt;
    operation.key = *number;
    return operation;
  }
  operation.key = NextKey();
  if (operation.kind == OperationKind::kScan) operation.scan_length = NextScanLength();
  return operation;
}

OperationKind OperationSource::NextKind() {
  double u = random_.NextDouble();
  OperationKind last = OperationKind::kRead;
  for (size_t i = 0; i < kOperationKinds; ++i) {
    if (workload_.shares[i] == 0) continue;
    last = static_cast<OperationKind>(i);
    if (u < workload_.shares[i]) return last;
    u -= workload_.shares[i];
  }
  return last;  // the rest, after rounding
}

uint64_t OperationSource::NextKey() {
  uint64_t key = 0;
  for (int draw = 0; draw < kDrawsMax; ++draw) {
    key = DrawKey();
    if (key <= shared_.inserted.last()) return key;
  }
  return random_.Below(shared_.inserted.last() + 1);
}

uint64_t OperationSource::DrawKey() {
  switch (workload_.requests) {
    case Requests::kUniform:
      return workload_.insert_start + random_.Below(workload_.insert_count);
    case Requests::kZipfian:
      return scrambled_.Next(random_);
    case Requests::kLatest: {
      const uint64_t last = shared_.inserted.last();
      latest_.SetItems(std::max<uint64_t>(1, last));
      return last - latest_.Next(random_);
    }
    case Requests::kHotspot:
      return hotspot_.Next(random_);
    case Requests::kSequential:
      return workload_.insert_start +
             (shared_.sequence.fetch_add(1, std::memory_order_relaxed) - workload_.insert_start) %
                 workload_.insert_count;
    case Requests::kExponential: {
      const uint64_t last = shared_.inserted.last();
      const double back = exponential_.Next(random_);
      // One below the first key is not a key: NextKey draws again.
      return back > static_cast<double>(last) ? last + 1 : last - static_cast<uint64_t>(back);
    }
  }
  return 0;
}

uint64_t OperationSource::NextScanLength() {
  const uint64_t choices = workload_.scan_max - workload_.scan_min + 1;
  return workload_.scan_min + (workload_.scan_lengths == Lengths::kZipfian
                                   ? scan_lengths_.Next(random_)
                                   : random_.Below(choices));
}

KeyName::KeyName(const Workload& workload, uint64_t number) {
  const bool etc = workload.sizes == Sizes::kEtc;
  const bool hashed = !etc && !workload.ordered;
  char digits[24];
  const char* end = hashed ? std::to_chars(digits, digits + sizeof(digits), FnvHash64(number)).ptr
                           : std::to_chars(digits, digits + sizeof(digits), number).ptr;
  const auto count = static_cast<size_t>(end - digits);
  const size_t wanted = etc ? etc::KeyBytes(number) : workload.zero_padding;
  if (!etc) {
    std::memcpy(bytes_, "user", 4);
    size_ = 4;
  }
  // The limit of zeropadding ensures that this fits.
  for (size_t i = count; i < wanted; ++i) bytes_[size_++] = '0';
  std::memcpy(bytes_ + size_, digits, count);
  size_ += count;
}

}  // namespace osprey::loadgen
