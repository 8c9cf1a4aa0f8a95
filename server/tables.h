// The tables of a server, one for each partition of its region (index/partitions.h), and the locks
// under which several threads use them.
//
//   Tables                       one for the server; thread-safe
//     partition 0: lock, Table
//     partition 1: lock, Table
//     …
//   TableAccess                  one for each engine: its way to the tables
//   LockedTable                  a table for as long as it is held
//   TableSpace                   a span reserved in one of them
//
//   LockedTable table = access.For(key);
//   table->Put(key, value, {}, now);
//
// Rules: a thread holds one lock at a time, for requests of kCostPerHold together (engine.h) or one
// bounded step, and does not sleep meanwhile. Readers of the region need no lock.

#ifndef OSPREY_SERVER_TABLES_H_
#define OSPREY_SERVER_TABLES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "index/partitions.h"
#include "index/table.h"
#include "index/writer.h"

namespace osprey::server {

// A lock that is mostly free, or free again within some microseconds: it spins for about so long,
// and only then sleeps. Its state is a word of the table's (Table::lock_word).
class PartitionLock {
 public:
  explicit PartitionLock(std::atomic<uint32_t>& word) : word_(word) {}

  void lock();
  bool try_lock() {
    // Looked at first: a failed exchange would take the cache line from whoever holds the lock.
    // Acquires what unlock released.
    uint32_t free = kFree;
    return word_.load(std::memory_order_relaxed) == kFree &&
           word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  void unlock() {
    if (word_.exchange(kFree, std::memory_order_release) == kAwaited) word_.notify_one();
  }

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kAwaited = 2;  // held, and somebody may sleep until it is free

  std::atomic<uint32_t>& word_;
};

// A table that nobody else can use while this lives. Move-only; empty after the move.
class LockedTable {
 public:
  LockedTable() = default;
  // Its lock is held by this thread, and released when this ends if it `owns` it; else somebody
  // sees to that later.
  LockedTable(index::Table& table, uint32_t partition, bool owns)
      : owns_(owns), table_(&table), partition_(partition) {}
  ~LockedTable() { Release(); }
  LockedTable(LockedTable&& other) noexcept { *this = std::move(other); }
  LockedTable& operator=(LockedTable&& other) noexcept {
    if (this == &other) return *this;
    Release();
    owns_ = other.owns_;
    table_ = std::exchange(other.table_, nullptr);
    partition_ = other.partition_;
    account_ = std::exchange(other.account_, nullptr);
    effort_before_ = other.effort_before_;
    return *this;
  }

  index::Table& operator*() const { return *table_; }
  index::Table* operator->() const { return table_; }
  uint32_t partition() const { return partition_; }
  bool held() const { return table_ != nullptr; }
  // What the table does until this ends (Table::effort) is added to `account`, which outlives this.
  void AccountTo(uint64_t& account) {
    account_ = &account;
    effort_before_ = table_->effort();
  }

 private:
  void Release() {
    if (table_ == nullptr) return;
    if (account_ != nullptr) *account_ += table_->effort() - effort_before_;
    if (owns_) PartitionLock(table_->lock_word()).unlock();
    account_ = nullptr;
    table_ = nullptr;
  }

  bool owns_ = false;
  index::Table* table_ = nullptr;
  uint32_t partition_ = 0;
  uint64_t* account_ = nullptr;
  uint64_t effort_before_ = 0;
};

// Thread-safe.
class Tables {
 public:
  // Lays out `partitions` empty tables in `region` (zeroed, 4 KiB aligned), which must outlive
  // this. `options` are for all of them: incarnation and cas_version are the server's, cas_counter
  // null, and the clock is read by all threads that use them. REQUIRES:
  // index::IsPartitionCount(partitions). Errors: Table::Create's, of one partition.
  static absl::StatusOr<std::unique_ptr<Tables>> Create(absl::Span<std::byte> region,
                                                        uint32_t partitions,
                                                        const index::TableOptions& options);
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  uint32_t partitions() const { return static_cast<uint32_t>(parts_.size()); }
  index::KeyHash HashOf(absl::string_view key) const { return index::HashKey(key, hash_seed_); }
  uint32_t PartitionOf(absl::string_view key) const { return PartitionOf(HashOf(key)); }
  uint32_t PartitionOf(index::KeyHash hash) const { return index::PartitionOf(hash, partitions()); }
  // Whether cold keys go when memory is full.
  bool evicts() const { return evicts_; }
  // As Table::Prefetch, without a lock.
  void Prefetch(uint32_t partition, index::KeyHash hash) const {
    parts_[partition]->Prefetch(hash);
  }
  // What each write of a partition changes, the lock included: whoever is about to lock it.
  void PrefetchHot(uint32_t partition) const { parts_[partition]->PrefetchHot(); }
  // Waits until nobody else holds it. REQUIRES: this thread holds none.
  LockedTable Lock(uint32_t partition);
  // Does not wait: holds nothing if somebody else does.
  LockedTable TryLock(uint32_t partition);

  // By which keys expire: the clock of `options`.
  absl::Time ServerTime() const { return clock_(); }

  // A bound for a flush (index::CasCounter::Close): all that was written before has a version up to
  // it, and all that is written from now on has a higher one.
  uint64_t CloseVersions() { return counter_.Close(); }
  // Of all together, as Sum has it. Locks one after the other: what is written meanwhile may be in
  // or not.
  index::Table::Stats stats();
  // Of some, sums; the deepest directory; the load factor of all their segments.
  static index::Table::Stats Sum(absl::Span<const index::Table::Stats> parts);

 private:
  Tables(uint32_t partitions, const index::TableOptions& options);

  const uint64_t hash_seed_;
  const bool evicts_;
  const std::function<absl::Time()> clock_;
  index::CasCounter counter_;
  std::vector<std::unique_ptr<index::Table>> parts_;
};

// What one engine uses of the tables: remembers which of them it used, since those may have come to
// want growth or compaction. Thread rule: the engine's thread.
class TableAccess {
 public:
  explicit TableAccess(Tables& tables) : tables_(tables) {}

  uint32_t partitions() const { return tables_.partitions(); }
  bool evicts() const { return tables_.evicts(); }
  uint64_t CloseVersions() { return tables_.CloseVersions(); }
  absl::Time ServerTime() const { return tables_.ServerTime(); }
  index::KeyHash HashOf(absl::string_view key) const { return tables_.HashOf(key); }
  uint32_t PartitionOf(index::KeyHash hash) const { return tables_.PartitionOf(hash); }
  LockedTable At(uint32_t partition);
  void Prefetch(uint32_t partition, index::KeyHash hash) const {
    tables_.Prefetch(partition, hash);
  }
  void PrefetchHot(uint32_t partition) const { tables_.PrefetchHot(partition); }
  // The table that holds `key`, or would.
  LockedTable For(absl::string_view key) {
    return At(partitions() == 1 ? 0 : tables_.PartitionOf(key));
  }

  // Holds a partition's lock beyond single calls of At, which all must be for that one then, until
  // LetGo. False, and nothing is held: somebody else holds it, and we were not to wait.
  // REQUIRES: nothing is held.
  bool Hold(uint32_t partition, bool wait);
  // REQUIRES: Hold was successful.
  index::Table& held() { return *held_; }
  // `wants_nothing`: the table need not be looked after (TakeTouched).
  void LetGo(bool wants_nothing);

  // The partitions used since the last call, a bit each.
  uint64_t TakeTouched() { return std::exchange(touched_, 0); }
  // What the tables did for this engine's requests since the last call, in microseconds or so,
  // beside the requests themselves.
  uint64_t TakeEffort() { return std::exchange(effort_, 0); }

 private:
  static_assert(index::kPartitionsMax <= 64);

  Tables& tables_;
  LockedTable held_;
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
  // Its own until it is published: no lock is needed to fill and to hash it.
  absl::Span<std::byte> value() const { return reservation_.value(); }
  void Hash(uint64_t bytes) { reservation_.Hash(bytes); }

  // To publish or to abort it. REQUIRES: valid(), and `table`, its own, is held until then.
  index::Reservation Take(const LockedTable& table);
  // Gives the space back. REQUIRES: this thread holds no lock.
  void Drop();

 private:
  TableAccess* access_ = nullptr;
  uint32_t partition_ = 0;
  index::Reservation reservation_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_TABLES_H_
