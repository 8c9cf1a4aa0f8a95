// The records that are appended and not written: laid out as they will stand in their segments, but
// for what is known only when they are written (chain, synced-to, marks, checksums).
//
// Thread rule: all methods may run on any threads.

#ifndef OSPREY_SERVER_WAL_LOG_QUEUE_H_
#define OSPREY_SERVER_WAL_LOG_QUEUE_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/wal/format/entries.h"
#include "server/wal/format/format.h"

namespace osprey::server::wal {

struct NewRecord {
  RecordKind kind = RecordKind::kEntries;
  absl::Span<const BodyPart> body;
};

// Records that follow each other in one segment.
struct LogChunk {
  bool begins_segment = false;
  std::string bytes;                             // headers, copied bodies, padding
  std::vector<std::pair<size_t, Bytes>> pinned;  // each behind so many of `bytes`
  uint64_t disk_bytes = 0;                       // of both, and of what a new segment adds
};

class LogQueue {
 public:
  // The first record has the number `next_number`, and stands at `offset` of the present segment.
  LogQueue(uint64_t segment_bytes, uint64_t bytes_max, uint64_t next_number, uint64_t offset)
      : segment_bytes_(segment_bytes),
        bytes_max_(bytes_max),
        next_number_(next_number),
        offset_(offset) {}

  // As Log::Append. Before the records begin new segments, `check_space` is called with the bytes
  // of these and of the queue: the queue is not on the disk yet. If it refuses them, the present
  // segment becomes longer instead, up to `spare_end`. Pieces are refused then.
  absl::StatusOr<uint64_t> Append(absl::Span<const NewRecord> records,
                                  absl::FunctionRef<absl::Status(uint64_t)> check_space,
                                  uint64_t spare_end = 0);
  // Moves all that is queued into `chunks`, which is empty. It counts as queued until Release.
  void Take(std::vector<LogChunk>& chunks);
  // The chunk was written, or cannot be. Its memory may serve later records.
  void Release(LogChunk& chunk);
  bool HasRoom() const;

 private:
  bool NeedsSegment(uint64_t offset, uint64_t record_bytes) const;
  void Add(const NewRecord& record, uint64_t length, bool may_begin_segment);

  const uint64_t segment_bytes_;
  const uint64_t bytes_max_;
  mutable std::mutex mutex_;
  std::vector<LogChunk> chunks_;
  std::string spare_;   // memory of a chunk that was released
  uint64_t bytes_ = 0;  // queued, and taken but not released
  uint64_t next_number_;
  uint64_t offset_;  // where the next record will stand
};

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_LOG_QUEUE_H_
