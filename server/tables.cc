#include "server/tables.h"

#include <algorithm>
#include <cassert>

#include "index/hash.h"

namespace osprey::server {
namespace {

// Some microseconds: most requests take less. A step of growth takes some 100 us, for which a
// waiting thread had better sleep.
constexpr int kLockSpins = 200;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void PartitionLock::lock() {
  for (int i = 0; i < kLockSpins; ++i) {
    if (mutex_.try_lock()) return;
    Pause();
  }
  mutex_.lock();
}

Tables::Tables(uint32_t partitions, const index::TableOptions& options)
    : hash_seed_(options.hash_seed),
      evicts_(options.evict),
      clock_(options.clock),
      counter_(options.cas_version, partitions) {}

absl::StatusOr<std::unique_ptr<Tables>> Tables::Create(absl::Span<std::byte> region,
                                                       uint32_t partitions,
                                                       const index::TableOptions& options) {
  assert(index::IsPartitionCount(partitions) && options.cas_counter == nullptr);
  std::unique_ptr<Tables> tables(new Tables(partitions, options));
  for (uint32_t i = 0; i < partitions; ++i) {
    const index::PartitionSpan span = index::SpanOfPartition(region.size(), partitions, i);
    index::TableOptions own = options;
    own.incarnation = index::IncarnationOfPartition(options.incarnation, i);
    own.cas_counter = &tables->counter_;
    absl::StatusOr<std::unique_ptr<index::Table>> table =
        index::Table::Create(region.subspan(span.offset, span.bytes), own);
    if (!table.ok()) return table.status();
    tables->parts_.push_back(std::make_unique<Part>());
    tables->parts_.back()->table = *std::move(table);
  }
  return tables;
}

uint32_t Tables::PartitionOf(absl::string_view key) const {
  if (partitions() == 1) return 0;
  return index::PartitionOf(index::HashKey(key, hash_seed_), partitions());
}

LockedTable Tables::Lock(uint32_t partition) {
  assert(partition < partitions());
  Part& part = *parts_[partition];
  return LockedTable(part.lock, *part.table, partition);
}

index::Table::Stats Tables::stats() {
  index::Table::Stats sum;
  double loaded = 0;  // segments' worth of occupied words
  for (uint32_t i = 0; i < partitions(); ++i) {
    const index::Table::Stats one = Lock(i)->stats();
    sum.Add(one);
    loaded += one.load_factor * static_cast<double>(one.segments);
  }
  sum.load_factor = loaded / static_cast<double>(sum.segments);
  return sum;
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
