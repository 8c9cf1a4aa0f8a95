#include "server/requests/tables.h"

#include <algorithm>
#include <cassert>

#include "index/layout/hash.h"

namespace osprey::server {
namespace {

// The share of a partition that is reserved for updates by rendezvous, if nothing is evicted.
constexpr uint64_t kUpdateRoomShareInverse = 64;
constexpr uint64_t kUpdateRoomBytesMax = 16 << 20;

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

Tables::Tables(uint32_t partitions, const index::TableOptions& options)
    : hash_seed_(options.hash_seed),
      evicts_(options.evict),
      clock_(options.clock),
      counter_(options.cas_version.value_or(index::FirstCasVersion(options.incarnation)),
               partitions) {}

absl::StatusOr<std::unique_ptr<Tables>> Tables::Create(absl::Span<std::byte> region,
                                                       uint32_t partitions,
                                                       const index::TableOptions& options,
                                                       std::vector<PartitionChanges*> changes) {
  assert(index::IsPartitionCount(partitions) && options.cas_counter == nullptr);
  assert(options.changes == nullptr && (changes.empty() || changes.size() == partitions));
  std::unique_ptr<Tables> tables(new Tables(partitions, options));
  tables->changes_ = std::move(changes);
  for (uint32_t i = 0; i < partitions; ++i) {
    const index::PartitionSpan span = index::SpanOfPartition(region.size(), partitions, i);
    index::TableOptions own = options;
    own.incarnation = index::IncarnationOfPartition(options.incarnation, i);
    own.changes = tables->ChangesOf(i);
    own.cas_counter = &tables->counter_;
    own.update_room_bytes = std::min(span.bytes / kUpdateRoomShareInverse, kUpdateRoomBytesMax);
    absl::StatusOr<std::unique_ptr<index::Table>> table =
        index::Table::Create(region.subspan(span.offset, span.bytes), own);
    if (!table.ok()) return table.status();
    tables->parts_.push_back(*std::move(table));
  }
  return tables;
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
