// Puts the keys of an earlier life into tables, counts them, and reports progress.
//
// Thread rule: all methods may run on any threads.

#ifndef OSPREY_SERVER_DURABILITY_RESTORER_H_
#define OSPREY_SERVER_DURABILITY_RESTORER_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/durability/recovery.h"
#include "server/requests/tables.h"
#include "server/wal/disk/file_system.h"

namespace osprey::server {

class Restorer {
 public:
  // Both outlive this.
  Restorer(Tables& tables, const RecoveryOptions& options) : tables_(tables), options_(options) {}

  struct Item {
    index::HashedKey key;
    wal::Bytes value;
    uint64_t version = 0;
    uint64_t expiry_ns = 0;
    uint8_t clock = 0;            // CLOCK counter, which is restored approximately
    index::SegmentDepths depths;  // of a checkpoint's item: as GrowFor
  };
  // Lets the index grow as far as a checkpoint's item says. These items come before all others.
  //
  // Otherwise the index grows only while much memory is free, or if a key is refused. At the end of
  // a full memory some segments were too full and could not split. Here they would split early, in
  // memory that other keys need.
  void GrowFor(const Item& item);
  // Lets the index grow as far as it will when so many keys are put, which have no order. *Else* their
  // segments split with them, and read each key again. Does nothing if files of so many `bytes` may
  // fill the memory: then every segment splits when it must.
  void GrowFor(uint64_t keys, uint64_t bytes);
  // Before and after a reading of the checkpoint. At first one has begun.
  void BeginCheckpoint() { loads_checkpoint_.store(true, std::memory_order_relaxed); }
  void EndCheckpoint() { loads_checkpoint_.store(false, std::memory_order_relaxed); }

  // The tables will be cleared: forgets what was put, and the error. Progress is due at the next
  // NoteRead. REQUIRES: no other thread is here.
  void Restart();

  // Prefetches the memory that Put reads first. Returns the key's hash.
  index::KeyHash Prefetch(absl::string_view key) const {
    const index::KeyHash hash = tables_.HashOf(key);
    tables_.Prefetch(tables_.PartitionOf(hash), hash);
    return hash;
  }
  // Errors: RESOURCE_EXHAUSTED (memory is too small); after an error of any thread, that error.
  absl::Status Put(const Item& item);
  void NoteVersion(uint64_t version);

  // Before each group and item. Errors: CANCELLED (RecoveryOptions::stop).
  absl::Status CheckStop();
  // Of files, for progress, which is due at the next NoteRead.
  void SetTotal(uint64_t read, uint64_t total);
  void NoteRead(uint64_t bytes);
  uint64_t read() const { return read_.load(std::memory_order_relaxed); }

  // The first error.
  absl::Status error() const;
  // The highest version noted, or put.
  uint64_t version_max() const { return version_max_.load(std::memory_order_relaxed); }

 private:
  void Grow(index::Table& table) const;
  absl::Status Fail(absl::Status error);
  absl::Status MemoryError(uint64_t item_bytes);
  uint64_t MemoryEstimate(uint64_t item_bytes);
  void Report();

  Tables& tables_;
  const RecoveryOptions& options_;
  std::atomic<bool> loads_checkpoint_{true};
  std::atomic<uint64_t> items_{0};
  std::atomic<uint64_t> read_{0};
  std::atomic<uint64_t> total_{0};
  std::atomic<uint64_t> version_max_{0};
  std::atomic<int64_t> reported_ns_{0};
  std::mutex report_mutex_;  // held by a call of progress
  std::atomic<bool> failed_{false};
  mutable std::mutex error_mutex_;
  absl::Status error_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_RESTORER_H_
