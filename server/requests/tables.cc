#include "server/requests/tables.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "index/layout/hash.h"

namespace osprey::server {
namespace {

// The share of a partition that is reserved for updates by rendezvous, if nothing is evicted.
constexpr uint64_t kUpdateRoomShareInverse = 64;
constexpr uint64_t kUpdateRoomBytesMax = 16 << 20;

// Some 10 ms, where the pages are new.
constexpr size_t kClearedBytes = 16 << 20;

// Some microseconds: most requests take less. A step of growth takes some 100 us, and a thread that
// waits for it should sleep.
constexpr int kLockSpins = 200;
constexpr int kPausesMax = 8;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void PartitionLock::Await() {
  int pauses = 1;
  for (int i = 0; i < kLockSpins; ++i) {
    if (try_lock()) return;
    for (int pause = 0; pause < pauses; ++pause) Pause();
    pauses = std::min(2 * pauses, kPausesMax);
  }
  // Acquire, with unlock's release.
  while (word_.exchange(kAwaited, std::memory_order_acquire) != kFree) word_.wait(kAwaited);
}

Tables::Tables(absl::Span<std::byte> region, uint32_t partitions,
               const index::TableOptions& options, std::vector<PartitionChanges*> changes)
    : region_(region),
      partitions_(partitions),
      options_(options),
      counter_(options.cas_version.value_or(index::FirstCasVersion(options.incarnation)),
               partitions),
      changes_(std::move(changes)) {}

absl::StatusOr<std::unique_ptr<Tables>> Tables::Create(absl::Span<std::byte> region,
                                                       uint32_t partitions,
                                                       const index::TableOptions& options,
                                                       std::vector<PartitionChanges*> changes) {
  assert(index::IsPartitionCount(partitions) && options.cas_counter == nullptr);
  assert(options.changes == nullptr && (changes.empty() || changes.size() == partitions));
  std::unique_ptr<Tables> tables(new Tables(region, partitions, options, std::move(changes)));
  if (absl::Status status = tables->MakeTables(); !status.ok()) return status;
  return tables;
}

// REQUIRES: there are none, and the region is zeroed.
absl::Status Tables::MakeTables() {
  for (uint32_t i = 0; i < partitions(); ++i) {
    const index::PartitionSpan span = index::SpanOfPartition(region_.size(), partitions(), i);
    index::TableOptions own = options_;
    own.incarnation = index::IncarnationOfPartition(options_.incarnation, i);
    own.changes = ChangesOf(i);
    own.cas_counter = &counter_;
    own.update_room_bytes = std::min(span.bytes / kUpdateRoomShareInverse, kUpdateRoomBytesMax);
    absl::StatusOr<std::unique_ptr<index::Table>> table =
        index::Table::Create(region_.subspan(span.offset, span.bytes), own);
    if (!table.ok()) return table.status();
    parts_.push_back(*std::move(table));
  }
  return absl::OkStatus();
}

absl::Status Tables::Clear(absl::FunctionRef<absl::Status()> between) {
  parts_.clear();
  for (size_t at = 0; at < region_.size(); at += kClearedBytes) {
    if (absl::Status status = between(); !status.ok()) return status;
    const absl::Span<std::byte> step = region_.subspan(at, kClearedBytes);
    std::memset(step.data(), 0, step.size());
  }
  return MakeTables();
}

void Tables::DropPrepared() {
  for (uint32_t i = 0; i < partitions(); ++i) {
    const LockedTable table = Lock(i);
    table->DropPrepared();
    if (table.changes() != nullptr) table.changes()->DropPending();
  }
}

index::Table::Stats Tables::stats() {
  std::vector<index::Table::Stats> parts;
  for (uint32_t i = 0; i < partitions(); ++i) parts.push_back(Lock(i)->stats());
  return Sum(parts);
}

index::Table::Stats Tables::Sum(absl::Span<const index::Table::Stats> parts) {
  index::Table::Stats sum;
  double loaded = 0;  // segments' worth of occupied words
  for (const index::Table::Stats& one : parts) {
    sum.Add(one);
    loaded += one.load_factor * static_cast<double>(one.segments);
  }
  if (sum.segments > 0) sum.load_factor = loaded / static_cast<double>(sum.segments);
  return sum;
}

LockedTable TableAccess::At(uint32_t partition) {
  assert(!held_.held());
  touched_ |= uint64_t{1} << partition;
  LockedTable table = tables_.Lock(partition);
  table.AccountTo(effort_);
  if (table.changes() != nullptr) table.changes()->SetWrite(&write_);
  return table;
}

TableSpace& TableSpace::operator=(TableSpace&& other) noexcept {
  if (this == &other) return *this;
  Drop();
  access_ = other.access_;
  partition_ = other.partition_;
  reservation_ = std::move(other.reservation_);
  return *this;
}

index::Reservation TableSpace::Take(const LockedTable& table) {
  assert(valid() && table.held() && table.partition() == partition_);
  (void)table;
  return std::move(reservation_);
}

void TableSpace::Drop() {
  if (!valid()) return;
  const LockedTable table = access_->At(partition_);
  reservation_.Abort();
}

}  // namespace osprey::server
