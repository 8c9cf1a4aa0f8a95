#include "server/config/sizing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "index/layout/layout.h"
#include "rdma/host_memory.h"
#include "server/engine/pollers.h"
#include "server/requests/tables.h"

namespace osprey::server {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
// Of a table that is filled.
constexpr uint64_t kKeysMax = uint64_t{256} << 10;
constexpr uint64_t kBytesMax = 64 * kMiB;
// Longer values take memory in proportion.
constexpr uint64_t kValueBytesFilledMax = 4 * kMiB;
constexpr uint64_t kKeysLeast = 8;
constexpr double kFilledShare = 0.9;
// Of a region: some times what is filled.
constexpr uint64_t kRegionShare = 8;
constexpr uint64_t kRegionBytesLeast = 4 * kMiB;
// So many more keys, so that segments which split a little later have split.
constexpr double kSplitsSpread = 1.06;
constexpr double kDeviations = 4;
// More need more address space than there is.
constexpr uint64_t kTotalMax = uint64_t{1} << 46;

uint64_t BytesOf(const Pairs& pairs) { return pairs.keys * (pairs.key_bytes + pairs.value_bytes); }

index::TableOptions Options() {
  index::TableOptions options;
  options.incarnation = 1;
  options.hash_seed = 0x9e3779b97f4a7c15;  // any
  return options;
}

// The number, and padding.
std::string KeyOf(uint64_t number, uint64_t bytes) {
  std::string key(bytes, 'k');
  std::memcpy(key.data(), &number, std::min<uint64_t>(sizeof(number), bytes));
  return key;
}

absl::Status Wrong(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "--memory-for=", absl::CEscape(text), ": ", why,
      "; say how many keys, and the bytes of a key and of a value: --memory-for=1000000,16,100"));
}

}  // namespace

absl::StatusOr<Pairs> ParsePairs(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  Pairs pairs;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &pairs.keys) ||
      !absl::SimpleAtoi(parts[1], &pairs.key_bytes) ||
      !absl::SimpleAtoi(parts[2], &pairs.value_bytes)) {
    return Wrong(text, "not three whole numbers with commas between");
  }
  if (pairs.keys == 0) return Wrong(text, "no keys");
  if (pairs.key_bytes == 0 || pairs.key_bytes > index::kKeyBytesMax)
    return Wrong(text, absl::StrCat("a key has 1 to ", index::kKeyBytesMax, " bytes"));
  if (pairs.value_bytes > index::kValueBytesMax)
    return Wrong(text, absl::StrCat("a value has at most ", index::kValueBytesMax, " bytes"));
  if (pairs.key_bytes < 8 && pairs.keys > uint64_t{1} << 8 * pairs.key_bytes)
    return Wrong(text, absl::StrCat("there are fewer keys of ", pairs.key_bytes, " bytes"));
  if (pairs.keys > kTotalMax / (pairs.key_bytes + pairs.value_bytes))
    return Wrong(text, "more than 64 TiB of keys and values");
  return pairs;
}

absl::StatusOr<uint64_t> BytesTaken(const Pairs& pairs) {
  Pairs filled = pairs;
  filled.value_bytes = std::min(filled.value_bytes, kValueBytesFilledMax);
  while (filled.keys > kKeysLeast && (filled.keys > kKeysMax || BytesOf(filled) > kBytesMax))
    filled.keys = (filled.keys + 1) / 2;
  const auto keys = static_cast<uint64_t>(static_cast<double>(filled.keys) * kSplitsSpread) + 1;
  const uint64_t region_bytes = kRegionShare * BytesOf(filled) + kRegionBytesLeast;
  absl::StatusOr<rdma::HostMemory> memory = rdma::HostMemory::Create("osprey-sizing", region_bytes);
  if (!memory.ok()) return memory.status();
  const absl::StatusOr<std::unique_ptr<Tables>> tables =
      Tables::Create({memory->data(), region_bytes}, 1, Options());
  if (!tables.ok()) return tables.status();
  TableAccess access(**tables);
  const LockedTable table = access.At(0);
  const std::vector<std::byte> value(filled.value_bytes);
  for (uint64_t i = 0; i < keys; ++i) {
    const absl::Status status =
        table->Put(KeyOf(i, filled.key_bytes), value, {}, absl::UnixEpoch()).status;
    if (!status.ok()) return status;
    while (table->GrowthWanted() && table->GrowStep(absl::UnixEpoch())) {
    }
  }
  const index::TableStats stats = table->stats();
  const double scale = static_cast<double>(BytesOf(pairs)) / static_cast<double>(BytesOf(filled));
  const double bytes = static_cast<double>(stats.index_bytes + stats.item_space_bytes) * scale;
  // Items get fifteen sixteenths of a region, and updates of long values a 64th of it.
  const double region = std::max(
      bytes * 64 / 63, static_cast<double>(stats.item_space_bytes) * scale * 16 / 15 * 64 / 63);
  return static_cast<uint64_t>(region) + index::Table::RegionBytesMin();
}

absl::StatusOr<uint64_t> MemoryFor(const Pairs& pairs, uint32_t pollers) {
  const uint32_t partitions = PartitionsFor(pollers);
  Pairs of_one = pairs;
  if (partitions > 1) {
    // The fullest one has more than its share.
    const double share = static_cast<double>(pairs.keys) / partitions;
    of_one.keys = static_cast<uint64_t>(share + kDeviations * std::sqrt(share)) + 1;
  }
  const absl::StatusOr<uint64_t> taken = BytesTaken(of_one);
  if (!taken.ok()) return taken;
  const double bytes = static_cast<double>(*taken) * partitions / kFilledShare;
  if (bytes > static_cast<double>(index::kRegionBytesMax)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--memory-for: these pairs take %.1f TiB, and a server has at most %d TiB; use several",
        bytes / 0x1p40, index::kRegionBytesMax >> 40));
  }
  return (static_cast<uint64_t>(bytes) / kMiB + 1) * kMiB;
}

}  // namespace osprey::server
