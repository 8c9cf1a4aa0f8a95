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
// Rules: a thread holds one lock at a time, for the time of one request or one bounded step, and
// does not sleep meanwhile. Readers of the region need no lock.

#ifndef OSPREY_SERVER_TABLES_H_
#define OSPREY_SERVER_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
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

// A lock that is mostly free, or free again within a microsecond: it spins for about so long, and
// only then sleeps. (std::mutex inside, which ThreadSanitizer knows.)
class PartitionLock {
 public:
  void lock();
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// A table that nobody else can use while this lives. Move-only; empty after the move.
class LockedTable {
 public:
  LockedTable() = default;
  LockedTable(PartitionLock& lock, index::Table& table, uint32_t partition)
      : lock_(lock), table_(&table), partition_(partition) {}
  ~LockedTable() {
    if (account_ != nullptr && held()) *account_ += table_->effort() - effort_before_;
  }
  LockedTable(LockedTable&& other) noexcept = default;
  LockedTable& operator=(LockedTable&& other) noexcept = default;

  index::Table& operator*() const { return *table_; }
  index::Table* operator->() const { return table_; }
  uint32_t partition() const { return partition_; }
  bool held() const { return lock_.owns_lock(); }
  // What the table does until this ends (Table::effort) is added to `account`, which outlives this.
  void AccountTo(uint64_t& account) {
    account_ = &account;
    effort_before_ = table_->effort();
  }

 private:
  std::unique_lock<PartitionLock> lock_;
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
  uint32_t PartitionOf(absl::string_view key) const;
  // Whether cold keys go when memory is full.
  bool evicts() const { return evicts_; }
  // As Table::Prefetch, without a lock.
  void Prefetch(absl::string_view key) const { parts_[PartitionOf(key)]->table->Prefetch(key); }
  // Waits until nobody else holds it. REQUIRES: this thread holds none.
  LockedTable Lock(uint32_t partition);

  // By which keys expire: the clock of `options`.
  absl::Time ServerTime() const { return clock_(); }

  // The last version that any of them gave out.
  uint64_t newest_cas_version() const { return counter_.last(); }
  // Of all together: sums; the deepest directory; the load factor of all their segments. Locks one
  // after the other: what is written meanwhile may be in or not.
  index::Table::Stats stats();

 private:
  struct Part {
    PartitionLock lock;
    std::unique_ptr<index::Table> table;
  };

  Tables(uint32_t partitions, const index::TableOptions& options);

  const uint64_t hash_seed_;
  const bool evicts_;
  const std::function<absl::Time()> clock_;
  index::CasCounter counter_;
  std::vector<std::unique_ptr<Part>> parts_;
};

// What one engine uses of the tables: remembers which of them it used, since those may have come to
// want growth or compaction. Thread rule: the engine's thread.
class TableAccess {
 public:
  explicit TableAccess(Tables& tables) : tables_(tables) {}

  uint32_t partitions() const { return tables_.partitions(); }
  bool evicts() const { return tables_.evicts(); }
  uint64_t newest_cas_version() const { return tables_.newest_cas_version(); }
  absl::Time ServerTime() const { return tables_.ServerTime(); }
  uint32_t PartitionOf(absl::string_view key) const { return tables_.PartitionOf(key); }
  LockedTable At(uint32_t partition) {
    touched_ |= uint64_t{1} << partition;
    LockedTable table = tables_.Lock(partition);
    table.AccountTo(effort_);
    return table;
  }
  void Prefetch(absl::string_view key) const { tables_.Prefetch(key); }
  // The table that holds `key`, or would.
  LockedTable For(absl::string_view key) { return At(PartitionOf(key)); }

  // The partitions used since the last call, a bit each.
  uint64_t TakeTouched() { return std::exchange(touched_, 0); }
  // What the tables did for this engine's requests since the last call, in microseconds or so,
  // beside the requests themselves.
  uint64_t TakeEffort() { return std::exchange(effort_, 0); }

 private:
  static_assert(index::kPartitionsMax <= 64);

  Tables& tables_;
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
