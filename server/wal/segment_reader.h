// Reads one segment past the page cache, record by record.
//
// An answer has three kinds: an error of the disk, a valid record, or the reason why there is no
// valid record. SegmentReader does not judge whether the latter is damage (replay.h does).
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_WAL_SEGMENT_READER_H_
#define OSPREY_SERVER_WAL_SEGMENT_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/wal/disk/direct_reader.h"
#include "server/wal/disk/file_system.h"
#include "server/wal/format/format.h"

namespace osprey::server::wal {

// Where a record begins.
struct Place {
  uint64_t segment = 0;
  uint64_t offset = 0;
};

struct LogRecord {
  RecordHeader header;
  Place place;
  Bytes body;  // valid until the reader's next call; empty: of a piece that is not read
};

class SegmentReader {
 public:
  // Errors: NOT_FOUND and others of FileSystem.
  static absl::StatusOr<std::unique_ptr<SegmentReader>> Open(FileSystem& files, uint64_t number);

  // Why there is no valid header; empty if there is one, which is then in header(). Records need
  // the header's life.
  // `writers`: DataDirectory::ids().
  absl::StatusOr<std::string> ReadHeader(absl::Span<const DirectoryId> writers);
  const SegmentHeader& header() const { return header_; }

  // Why there is no valid record at the offset; empty if there is one. Neither reads nor verifies the
  // bodies of pieces up to the record `skipped_to`. REQUIRES: a valid header.
  absl::StatusOr<std::string> ReadRecord(uint64_t offset, LogRecord& record,
                                         uint64_t skipped_to = 0);

  // The highest synced_to of all valid record headers from the offset on; 0 if there is none. The
  // headers need not follow each other: bodies and the records before may be lost.
  absl::StatusOr<uint64_t> HighestSyncedTo(uint64_t offset);
  // Where the record of the last valid header ends, so far as the file has it. Behind it are zeros, or
  // bytes of other lives. REQUIRES: a valid header.
  absl::StatusOr<uint64_t> EndOfRecords();

 private:
  SegmentReader(std::unique_ptr<File> file, uint64_t number)
      : reader_(std::move(file)), number_(number) {}

  uint64_t SeedAt(uint64_t offset) const;
  // Calls `take` with each valid record header from the offset on, and its place.
  absl::Status ForEachHeader(uint64_t offset,
                             absl::FunctionRef<void(const RecordHeader&, uint64_t)> take);

  DirectReader reader_;
  const uint64_t number_;
  SegmentHeader header_;
};

// Reads records where a replay found them: any other content is damage.
class RecordReader {
 public:
  // `files` and `writers` (DataDirectory::ids) outlive it.
  RecordReader(FileSystem& files, absl::Span<const DirectoryId> writers)
      : files_(files), writers_(writers) {}

  // The body is valid until the next call. Errors: DATA_LOSS (damage; names file and offset), those
  // of FileSystem.
  absl::Status Read(const Place& place, LogRecord& record);

 private:
  FileSystem& files_;
  const absl::Span<const DirectoryId> writers_;
  std::unique_ptr<SegmentReader> segment_;  // of the last record
};

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_SEGMENT_READER_H_
