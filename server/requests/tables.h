// The tables of a server, one for each partition of its region (index/layout/partitions.h), and the locks
// for their use by several threads.
//
//   Tables                       one for the server; thread-safe
//     partition 0: lock, Table
//     partition 1: lock, Table
//     …
//   TableAccess                  one for each engine: its access to the tables
//   LockedTable                  a table while its lock is held
//   TableSpace                   a span reserved in one of them
//
//   LockedTable table = access.For(key);
//   table->Put(key, value, {}, now);
//
// Rules: a thread holds one lock at a time, and does not sleep meanwhile. It holds it for requests of
// kCostPerHold together (direct_batch.h), or for one bounded step. Readers of the region need no
// lock.

#ifndef OSPREY_SERVER_REQUESTS_TABLES_H_
#define OSPREY_SERVER_REQUESTS_TABLES_H_

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "index/layout/partitions.h"
#include "index/space/region_writer.h"
#include "index/writer/table.h"
#include "server/requests/write_log.h"

namespace osprey::server {

// A lock that is mostly free, or free again within some microseconds: it spins for about that time
// and then sleeps. Its state is a word of the table (Table::lock_word).
class PartitionLock {
 public:
  explicit PartitionLock(std::atomic<uint32_t>& word) : word_(word) {}

  void lock() {
    if (!try_lock()) Await();
  }
  bool try_lock() {
    // Loads first: a failed exchange would take the cache line from the lock's holder. Acquire,
    // with unlock's release.
    uint32_t free = kFree;
    return word_.load(std::memory_order_relaxed) == kFree &&
           word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  void unlock() {
    if (word_.exchange(kFree, std::memory_order_release) == kAwaited) word_.notify_one();
  }

 private:
  void Await();

  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kAwaited = 2;  // held, and a thread may sleep until it is free

  std::atomic<uint32_t>& word_;
};

// A table under its lock while this lives. Move-only; empty after a move.
class LockedTable {
 public:
  LockedTable() = default;
  // This thread holds the table's lock, which the destructor releases. `changes` may be null.
  LockedTable(index::Table& table, uint32_t partition, PartitionChanges* changes)
      : table_(&table), partition_(partition), changes_(changes) {}
  ~LockedTable() { Release(); }
  LockedTable(LockedTable&& other) noexcept { *this = std::move(other); }
  LockedTable& operator=(LockedTable&& other) noexcept {
    if (this == &other) return *this;
    Release();
    table_ = std::exchange(other.table_, nullptr);
    partition_ = other.partition_;
    changes_ = other.changes_;
    account_ = std::exchange(other.account_, nullptr);
    effort_before_ = other.effort_before_;
    return *this;
  }

  index::Table& operator*() const { return *table_; }
  index::Table* operator->() const { return table_; }
  uint32_t partition() const { return partition_; }
  bool held() const { return table_ != nullptr; }
  // Null: nothing is logged.
  PartitionChanges* changes() const { return changes_; }
  // Adds the work of the table until this ends (Table::effort) to `account`, which must outlive
  // this.
  void AccountTo(uint64_t& account) {
    account_ = &account;
    effort_before_ = table_->effort();
  }
  // Releases the lock, if it is held.
  void Release() {
    if (table_ == nullptr) return;
    if (account_ != nullptr) Account();
    Unlock();
  }
  // Releases the lock, and accounts nothing more. REQUIRES: it is held.
  void Unlock() {
    if (changes_ != nullptr) changes_->OnRelease();
    PartitionLock(table_->lock_word()).unlock();
    account_ = nullptr;
    table_ = nullptr;
  }
  // Adds the work until now. REQUIRES: AccountTo was called.
  void Account() {
    const uint64_t effort = table_->effort();
    *account_ += effort - std::exchange(effort_before_, effort);
  }

 private:
  index::Table* table_ = nullptr;
  uint32_t partition_ = 0;
  PartitionChanges* changes_ = nullptr;
  uint64_t* account_ = nullptr;
  uint64_t effort_before_ = 0;
};

// Thread-safe.
class Tables {
 public:
  // Lays out `partitions` empty tables in `region` (zeroed, 4 KiB aligned), which must outlive
  // this. `options` apply to all: incarnation and cas_version are the server's, and cas_counter is
  // null. All threads that use the tables read the clock. `changes`: the receivers of the partitions'
  // changes, which must outlive this; empty: none. REQUIRES: index::IsPartitionCount(partitions), and
  // options.changes is null. Errors: those of Table::Create, for one partition.
  static absl::StatusOr<std::unique_ptr<Tables>> Create(
      absl::Span<std::byte> region, uint32_t partitions, const index::TableOptions& options,
      std::vector<PartitionChanges*> changes = {});
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;
  // All tables are new again, as after Create; versions go on. Their changes are not reported. It writes
  // the whole region, and calls `between` before every 16 MiB. REQUIRES: no other thread uses the
  // tables, and no reader the region. Errors: as Create; that of `between`, at once. Then there are no
  // tables any more.
  absl::Status Clear(absl::FunctionRef<absl::Status()> between);

  uint32_t partitions() const { return partitions_; }
  index::KeyHash HashOf(absl::string_view key) const {
    return index::HashKey(key, options_.hash_seed);
  }
  uint32_t PartitionOf(absl::string_view key) const { return PartitionOf(HashOf(key)); }
  uint32_t PartitionOf(index::KeyHash hash) const { return index::PartitionOf(hash, partitions()); }
  // Whether cold keys are evicted when memory is full.
  bool evicts() const { return options_.evict; }
  // As Table::Prefetch, without a lock.
  index::SlotHint Prefetch(uint32_t partition, index::KeyHash hash) const {
    return parts_[partition]->Prefetch(hash);
  }
  // Prefetches the lock and the data that each write of a partition changes, before its lock.
  void PrefetchHot(uint32_t partition) const { parts_[partition]->PrefetchHot(); }
  // Waits until the lock is free. REQUIRES: this thread holds none.
  LockedTable Lock(uint32_t partition) {
    assert(partition < partitions());
    index::Table& table = *parts_[partition];
    PartitionLock(table.lock_word()).lock();
    return LockedTable(table, partition, ChangesOf(partition));
  }
  // Does not wait: holds nothing if another thread holds the lock.
  LockedTable TryLock(uint32_t partition) {
    assert(partition < partitions());
    index::Table& table = *parts_[partition];
    if (!PartitionLock(table.lock_word()).try_lock()) return LockedTable();
    return LockedTable(table, partition, ChangesOf(partition));
  }

  // Whether the partition evicts keys, and ends expired ones, by itself (Table::SetDecides). At first it
  // does. A backup's partitions do not: maintenance does nothing else to their keys. REQUIRES: this
  // thread holds no lock.
  void SetDecides(uint32_t partition, bool decides) { Lock(partition)->SetDecides(decides); }

  // Drops what was decided in two steps and was not made: index::Table::DropPrepared of each partition,
  // whose changes have nothing pending then. So a primary's tables become a backup's. REQUIRES: the
  // engines of these tables are destroyed; this thread holds no lock; as PartitionChanges::DropPending.
  void DropPrepared();

  // The clock of `options`, by which keys expire.
  absl::Time ServerTime() const { return options_.clock(); }

  // A bound for a flush (index::CasCounter::Close). Earlier writes have a version up to it, and
  // later ones a higher one.
  uint64_t CloseVersions() { return counter_.Close(); }
  // The last cas version that was drawn.
  uint64_t LastVersion() const { return counter_.Last(); }
  // Writes that begin after the return have versions above `version`.
  void RaiseVersions(uint64_t version) { counter_.Raise(version); }
  // The statistics of all tables, as by Sum. It locks one after the other: concurrent writes may be
  // included or not.
  index::Table::Stats stats();
  // Sums of several tables; the deepest directory; the load factor of all their segments.
  static index::Table::Stats Sum(absl::Span<const index::Table::Stats> parts);

 private:
  Tables(absl::Span<std::byte> region, uint32_t partitions, const index::TableOptions& options,
         std::vector<PartitionChanges*> changes);
  absl::Status MakeTables();
  PartitionChanges* ChangesOf(uint32_t partition) const {
    return changes_.empty() ? nullptr : changes_[partition];
  }

  const absl::Span<std::byte> region_;
  const uint32_t partitions_;
  const index::TableOptions options_;
  index::CasCounter counter_;
  const std::vector<PartitionChanges*> changes_;
  std::vector<std::unique_ptr<index::Table>> parts_;
};

// One engine's access to the tables. It records the tables that the engine used, because those may
// need growth or compaction. Thread rule: the engine's thread.
class TableAccess {
 public:
  explicit TableAccess(Tables& tables) : tables_(tables) {}

  uint32_t partitions() const { return tables_.partitions(); }
  bool evicts() const { return tables_.evicts(); }
  uint64_t CloseVersions() { return tables_.CloseVersions(); }
  absl::Time ServerTime() const { return tables_.ServerTime(); }
  index::KeyHash HashOf(absl::string_view key) const { return tables_.HashOf(key); }
  uint32_t PartitionOf(index::KeyHash hash) const { return tables_.PartitionOf(hash); }
  // REQUIRES: nothing is held.
  LockedTable At(uint32_t partition);
  index::SlotHint Prefetch(uint32_t partition, index::KeyHash hash) const {
    return tables_.Prefetch(partition, hash);
  }
  void PrefetchHot(uint32_t partition) const { tables_.PrefetchHot(partition); }
  // The table of `key`, present or not.
  LockedTable For(absl::string_view key) {
    return At(partitions() == 1 ? 0 : tables_.PartitionOf(key));
  }

  // Holds a partition's lock until LetGo. False: another thread holds it and `wait` is false;
  // nothing is held then. REQUIRES: nothing is held.
  [[gnu::always_inline]] bool Hold(uint32_t partition, bool wait) {
    assert(!held_.held());
    held_ = wait ? tables_.Lock(partition) : tables_.TryLock(partition);
    if (!held_.held()) return false;
    touched_ |= uint64_t{1} << partition;
    held_.AccountTo(effort_);
    if (held_.changes() != nullptr) held_.changes()->SetWrite(&write_);
    return true;
  }
  // REQUIRES: Hold returned true.
  index::Table& held() { return *held_; }
  uint32_t held_partition() const { return held_.partition(); }
  PartitionChanges* changes() const { return held_.changes(); }
  // `wants_nothing`: the table needs no maintenance (TakeTouched). REQUIRES: TakeEffort was called
  // after the table's last work.
  void LetGo(bool wants_nothing) {
    if (wants_nothing) touched_ &= ~(uint64_t{1} << held_.partition());
    held_.Unlock();
  }

  // The write that this engine executes next, for a server with a log.
  void set_write(const ClientWrite& write) { write_ = write; }
  const ClientWrite& write() const { return write_; }
  // Null: data is held in memory only.
  WriteLog* log() const { return log_; }
  void set_log(WriteLog* log) { log_ = log; }

  // The partitions used since the last call, a bit each.
  uint64_t TakeTouched() { return std::exchange(touched_, 0); }
  // The extra work of the tables for this engine's requests since the last call, in microseconds or
  // so.
  uint64_t TakeEffort() {
    if (held_.held()) held_.Account();
    return std::exchange(effort_, 0);
  }

 private:
  static_assert(index::kPartitionsMax <= 64);

  Tables& tables_;
  LockedTable held_;
  ClientWrite write_;
  WriteLog* log_ = nullptr;
  uint64_t touched_ = 0;
  uint64_t effort_ = 0;
};

// A Reservation that can be dropped at any time: it takes the lock for that itself. Move-only. Must
// not outlive the access. Thread rule: the engine's thread.
class TableSpace {
 public:
  TableSpace() = default;
  TableSpace(TableAccess& access, uint32_t partition, index::Reservation reservation)
      : access_(&access), partition_(partition), reservation_(std::move(reservation)) {}
  TableSpace(TableSpace&& other) noexcept = default;
  TableSpace& operator=(TableSpace&& other) noexcept;
  ~TableSpace() { Drop(); }

  bool valid() const { return reservation_.valid(); }
  // Not shared until it is published: filling and hashing need no lock.
  absl::Span<std::byte> value() const { return reservation_.value(); }
  void Hash(uint64_t bytes) { reservation_.Hash(bytes); }

  // To publish or abort it. REQUIRES: valid(), and `table`, its own, is held until then.
  index::Reservation Take(const LockedTable& table);
  // Frees the span. REQUIRES: this thread holds no lock.
  void Drop();

 private:
  TableAccess* access_ = nullptr;
  uint32_t partition_ = 0;
  index::Reservation reservation_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_REQUESTS_TABLES_H_
