// The write-ahead log: records are appended to a queue, written, and synced.
//
//   Append ──> queue ──> Write ──> page cache ──> Sync ──> disk
//      |                   |                       |
//   appended()          written()               synced()      numbers of records, each the last one
//
//   absl::StatusOr<uint64_t> number = log.Append({{RecordKind::kEntries, group.Parts()}});
//   status = log.Write();               at the end of a turn, for all that was appended
//   log.written() >= *number            survives the end of the process
//   log.synced() >= *number             survives a crash of the machine
//
// An append costs an addition and a copy. Records of one Write share a pwritev, and those of one
// Sync an fdatasync (group commit). Writes go on while a sync runs.
//
// A failed Write or Sync ends the log: status() is that error from then on, and neither number
// rises again (rule D7).
//
// The destructor neither writes nor syncs.
//
// Thread rule: all methods may run on any threads. Write waits for another thread's Write, and
// waits for a Sync only if a second segment is full before the first one's sync.

#ifndef OSPREY_SERVER_WAL_LOG_H_
#define OSPREY_SERVER_WAL_LOG_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/wal/data_directory.h"
#include "server/wal/log_queue.h"
#include "server/wal/replay.h"
#include "server/wal/spare_space.h"
#include "server/wal/zeros_ahead.h"

namespace osprey::server::wal {

struct LogOptions {
  // A segment ends before it has more, unless its only record is longer.
  uint64_t segment_bytes = 256 << 20;
  // Of appended records that are not written: above it Append refuses, unless the queue is empty.
  uint64_t queue_bytes_max = 64 << 20;
  // Disk space that is reserved behind the newest record, if the file system can (SpareSpace). A mark
  // takes 64 B of it, so at one a second they go on for more than a day.
  uint64_t spare_bytes = 16 << 20;
  // Zeros that are written ahead of the records (ZerosAhead), where that space is reserved and the file
  // system writes in place. 0: none.
  uint64_t zeros_bytes = 0;
  // Called after synced() rose, or the log failed, on the thread that called Sync or Write. It
  // calls neither of the two.
  std::function<void()> progressed;
  // Called by Write, on its thread, while the disk has no space for the spare. No more should be
  // appended. It calls nothing of the log.
  std::function<void()> space_is_low;
};

// What CURRENT says of the log.
struct LogPosition {
  uint64_t redo_segment = 0;
  uint64_t newest_segment = 0;
  uint64_t newest_life = 0;
  uint64_t synced_to = 0;
};

// What was done since StartLog.
struct LogStats {
  uint64_t written_bytes = 0;
  uint64_t synced_bytes = 0;  // of those
  uint64_t syncs = 0;
  // When the oldest record that is not synced was written; time_point::max(): all are.
  std::chrono::steady_clock::time_point oldest_unsynced =
      std::chrono::steady_clock::time_point::max();
};

// Appending, writing and syncing go on side by side, each under a lock of its own: so its members are more
// than other classes have.
class Log {
 public:
  // Appends all of the records or none. Returns the number of the last one. Numbers follow each
  // other without gaps in the order of the calls. Errors: ABORTED (the queue is full: Write, then
  // try again); RESOURCE_EXHAUSTED (the disk is too full for another segment beside the next
  // checkpoint, and the spare is used up, or they are pieces); INVALID_ARGUMENT (a record is too
  // long); status().
  absl::StatusOr<uint64_t> Append(absl::Span<const NewRecord> records);
  // False: Append would find the queue full.
  bool HasRoom() const;

  // Writes what was appended before the call. On return, with an error too, pinned parts of it are
  // no longer used.
  absl::Status Write();
  // Syncs what was written before the call.
  absl::Status Sync();
  // Appends a clean end with the exact time in ns, writes and syncs. Nothing may be appended later.
  absl::Status End(uint64_t time);

  uint64_t appended() const { return appended_.load(std::memory_order_acquire); }
  uint64_t written() const { return written_.load(std::memory_order_acquire); }
  uint64_t synced() const { return synced_.load(std::memory_order_acquire); }
  absl::Status status() const;

  // Headers written from now on carry these; they never fall. They count once a record appended
  // after the call is synced (kMark, if there is no other).
  void RaiseMarks(uint64_t time_mark, uint64_t version_ceiling);

  // What the next checkpoint needs on the disk: a new segment is begun only while it fits as well.
  void SetCheckpointBytes(uint64_t bytes) { checkpoint_bytes_.store(bytes); }
  // Bytes that must be free on the disk for further writes: two segments, the queue, the spare, the
  // next checkpoint, and what is reserved.
  uint64_t SpaceNeeded() const;
  // On a full disk: whether a record without a body can be written.
  bool HasSpare() const;
  // After space_is_low: whether there is space for the spare again, which FreeBytes does not show where
  // a quota is used up. It may wait for a Write.
  bool FindSpare();
  // Takes disk space for records that follow, so that Append need not refuse them. Released as they
  // are appended, or given up. Errors: RESOURCE_EXHAUSTED (less than SpaceNeeded() would be free),
  // those of FileSystem.
  absl::Status ReserveSpace(uint64_t bytes);
  void ReleaseSpace(uint64_t bytes) { reserved_bytes_.fetch_sub(bytes); }

  // The segment with that record, and what is synced. REQUIRES: redo_record <= synced() + 1.
  LogPosition PositionOf(uint64_t redo_record) const;
  // Raises those of CURRENT to what records carry.
  void RaiseCurrentMarks(CurrentHeader& current) const;
  LogStats stats() const;
  // Since StartLog. LogEnd::bytes has what was there before.
  uint64_t bytes_written() const { return stats().written_bytes; }

 private:
  friend absl::StatusOr<std::unique_ptr<Log>> StartLog(DataDirectory& directory, const LogEnd& end,
                                                       LogOptions options);

  struct Segment {
    std::shared_ptr<File> file;
    SegmentInfo info;
    uint64_t end = kSegmentHeaderBytes;  // offset behind the last record
    uint64_t checksum = 0;               // of that record's header
  };

  Log(DataDirectory& directory, LogOptions options, std::vector<SegmentInfo> chain, Segment current,
      uint64_t last_record);

  // Whether the disk has so many free bytes, beside the next checkpoint and what is reserved.
  absl::Status CheckSpace(uint64_t bytes) const;
  // Likewise, beside nothing.
  absl::Status CheckFree(uint64_t needed) const;
  absl::Status WriteChunk(LogChunk& chunk);
  absl::Status BeginSegment();
  absl::Status SyncSegments(const std::optional<Segment>& old, const Segment& current);
  absl::Status WriteClose(const Segment& old, const SegmentInfo& next);
  absl::Status Fail(absl::Status error);

  DataDirectory& directory_;
  const LogOptions options_;

  LogQueue queue_;
  SpareSpace spare_;  // changed under write_mutex_
  ZerosAhead zeros_;  // used under write_mutex_
  std::atomic<uint64_t> appended_;
  std::atomic<uint64_t> checkpoint_bytes_{0};
  std::mutex reserve_mutex_;  // held while reserved_bytes_ rises
  std::atomic<uint64_t> reserved_bytes_{0};
  std::atomic<uint64_t> time_mark_;
  std::atomic<uint64_t> version_ceiling_;

  std::mutex write_mutex_;         // held by Write; before the others
  std::vector<LogChunk> writing_;  // taken from the queue by Write
  std::mutex sync_mutex_;          // held by Sync; before state_mutex_

  mutable std::mutex state_mutex_;  // short
  Segment current_;                 // changed under write_mutex_ and state_mutex_
  std::optional<Segment> old_;      // full; its sync, its close record and its successor's are due
  std::vector<SegmentInfo> chain_;  // the segments whose names and headers are synced
  absl::Status error_;
  std::atomic<uint64_t> written_;
  // oldest_unsynced: of those that no Sync has begun to sync.
  LogStats stats_;
  std::chrono::steady_clock::time_point syncing_ =  // the oldest record that a Sync has to sync
      std::chrono::steady_clock::time_point::max();
  std::atomic<uint64_t> synced_;
  std::atomic<bool> failed_{false};
};

// Writes the tail again into a new segment, syncs it, makes CURRENT name it, and removes what was
// dropped. The log goes on behind it. Nothing of the tail may be answered or readable before
// (rule D3). `directory` outlives the log. Errors: those of FileSystem.
absl::StatusOr<std::unique_ptr<Log>> StartLog(DataDirectory& directory, const LogEnd& end,
                                              LogOptions options);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_LOG_H_
