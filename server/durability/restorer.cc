#include "server/durability/restorer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "index/layout/layout.h"
#include "index/segments/clock_counters.h"
#include "index/writer/table.h"

namespace osprey::server {
namespace {

constexpr absl::Time kNow = absl::UnixEpoch();

// Steps that make room after a refusal, before memory counts as too small.
constexpr int kRoomStepsMax = 1 << 16;

constexpr int64_t kReportPeriodNs = 100'000'000;

// Of a key in the index and of its item's header, about.
constexpr uint64_t kBytesPerKey = 64;

int64_t SteadyNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool IsNearlyFull(const index::TableStats& stats) {
  return stats.index_bytes + stats.item_space_bytes > stats.region_bytes / 4 * 3;
}

void MakeRoom(index::Table& table) {
  for (int step = 0; step < kRoomStepsMax && table.CompactStep(kNow); ++step) {
  }
}

}  // namespace

void Restorer::Grow(index::Table& table) const {
  if (loads_checkpoint_.load(std::memory_order_relaxed)) return;
  while (table.GrowthWanted() && !IsNearlyFull(table.stats()) && table.GrowStep(kNow)) {
  }
}

void Restorer::GrowFor(const Item& item) {
  const LockedTable table = tables_.Lock(tables_.PartitionOf(item.key.hash));
  table->RestoreDepths(item.key.hash, item.depths, kNow);
}

void Restorer::GrowFor(uint64_t keys, uint64_t bytes) {
  const auto depth = static_cast<uint8_t>(index::Table::DepthOf(keys / tables_.partitions()));
  for (uint32_t partition = 0; partition < tables_.partitions(); ++partition) {
    const LockedTable table = tables_.Lock(partition);
    // A key takes no more memory than its entry takes of the file, or twice as much.
    if (2 * bytes / tables_.partitions() > table->stats().region_bytes / 2) continue;
    table->RestoreDepths({}, {depth, depth}, kNow);
  }
}

void Restorer::Restart() {
  const std::lock_guard<std::mutex> lock(error_mutex_);
  error_ = absl::OkStatus();
  failed_.store(false, std::memory_order_relaxed);
  items_.store(0, std::memory_order_relaxed);
  reported_ns_.store(0, std::memory_order_relaxed);
}

absl::Status Restorer::CheckStop() {
  if (options_.stop == nullptr || !options_.stop->load(std::memory_order_relaxed))
    return absl::OkStatus();
  return Fail(absl::CancelledError("loading was stopped; nothing on the disk was changed"));
}

absl::Status Restorer::Put(const Item& item) {
  if (failed_.load(std::memory_order_relaxed)) return error();
  LockedTable table = tables_.Lock(tables_.PartitionOf(item.key.hash));
  if (item.depths.own > 0) table->RestoreDepths(item.key.hash, item.depths, kNow);
  index::WriteResult result =
      table->Restore(item.key, item.value, item.version, item.expiry_ns, kNow);
  for (bool more = true; more && absl::IsResourceExhausted(result.status);) {
    MakeRoom(*table);
    result = table->Restore(item.key, item.value, item.version, item.expiry_ns, kNow);
    if (absl::IsResourceExhausted(result.status)) more = table->GrowStep(kNow);
  }
  if (result.status.ok()) {
    // A hint adds kClockPerHint.
    for (uint32_t clock = index::kClockNew + index::kClockPerHint / 2;
         tables_.evicts() && clock < item.clock; clock += index::kClockPerHint) {
      table->Touch(item.key.key);
    }
    Grow(*table);
  }
  table.Release();
  if (absl::IsResourceExhausted(result.status) && !index::IsVersionsUsedUp(result.status))
    return Fail(MemoryError(item.key.key.size() + item.value.size()));
  if (!result.status.ok()) return Fail(std::move(result.status));
  NoteVersion(item.version);
  items_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

void Restorer::NoteVersion(uint64_t version) {
  uint64_t max = version_max_.load(std::memory_order_relaxed);
  while (max < version &&
         !version_max_.compare_exchange_weak(max, version, std::memory_order_relaxed)) {
  }
}

// --- Errors ------------------------------------------------------------------

absl::Status Restorer::error() const {
  const std::lock_guard<std::mutex> lock(error_mutex_);
  return error_;
}

absl::Status Restorer::Fail(absl::Status error) {
  const std::lock_guard<std::mutex> lock(error_mutex_);
  if (error_.ok()) error_ = std::move(error);
  failed_.store(true, std::memory_order_relaxed);
  return error_;
}

absl::Status Restorer::MemoryError(uint64_t item_bytes) {
  const index::TableStats held = tables_.stats();
  const uint64_t memory = options_.memory_bytes != 0 ? options_.memory_bytes : held.region_bytes;
  const auto size = [this](uint64_t bytes) {
    return options_.format_size ? options_.format_size(bytes) : absl::StrCat(bytes);
  };
  return absl::ResourceExhaustedError(
      absl::StrCat("the data does not fit into --memory=", size(memory), ", which is full with ",
                   held.keys, " keys; nothing on the disk was changed; start with --memory=",
                   size(MemoryEstimate(item_bytes))));
}

// What is held takes all memory; what is unread takes no more than as much for each of its bytes.
uint64_t Restorer::MemoryEstimate(uint64_t item_bytes) {
  const index::TableStats held = tables_.stats();
  const uint64_t memory = std::max(options_.memory_bytes, held.region_bytes);
  const uint64_t held_bytes = held.key_bytes + held.value_bytes + kBytesPerKey * held.keys;
  const uint64_t total = total_.load(std::memory_order_relaxed);
  const uint64_t left = total > read() ? total - read() : 0;
  const double per_byte =
      held_bytes == 0
          ? 4.0
          : std::clamp(static_cast<double>(memory) / static_cast<double>(held_bytes), 1.25, 4.0);
  const auto for_all =
      static_cast<uint64_t>(per_byte * 1.1 * static_cast<double>(held_bytes + left + item_bytes));
  // A long value needs room in the one partition of its key.
  const uint64_t for_item = 2 * tables_.partitions() * item_bytes;
  const uint64_t bytes = std::max({for_all, for_item, memory + memory / 4});
  constexpr uint64_t kMiB = 1 << 20;
  constexpr uint64_t kGiB = 1 << 30;
  return wal::RoundUp(bytes, bytes < 16 * kGiB ? kMiB : kGiB);
}

// --- Progress ----------------------------------------------------------------

void Restorer::SetTotal(uint64_t read, uint64_t total) {
  read_.store(read, std::memory_order_relaxed);
  total_.store(total, std::memory_order_relaxed);
  reported_ns_.store(0, std::memory_order_relaxed);
}

void Restorer::NoteRead(uint64_t bytes) {
  read_.fetch_add(bytes, std::memory_order_relaxed);
  Report();
}

void Restorer::Report() {
  if (!options_.progress) return;
  const int64_t now = SteadyNs();
  if (now - reported_ns_.load(std::memory_order_relaxed) < kReportPeriodNs) return;
  const std::unique_lock<std::mutex> lock(report_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || now - reported_ns_.load(std::memory_order_relaxed) < kReportPeriodNs)
    return;
  RecoveryProgress progress;
  progress.items = items_.load(std::memory_order_relaxed);
  progress.bytes_total = total_.load(std::memory_order_relaxed);
  progress.bytes = read();
  if (progress.bytes_total != 0) progress.bytes = std::min(progress.bytes, progress.bytes_total);
  options_.progress(progress);
  reported_ns_.store(SteadyNs(), std::memory_order_relaxed);
}

}  // namespace osprey::server
