// Reads the whole log, from the redo point to its end, and finds that end.
//
//      redo point                              cut           end
//      |                                       |             |
//   ---+----------- known to be synced --------+--- tail ----+··· invalid, or nothing
//
//   cut   behind the last record that is known to be synced: a later record, a later segment or
//         CURRENT says so. An invalid record before the cut is damage: an error.
//   end   the first invalid record behind the cut, whatever follows. What follows was never known
//         to be synced, and is dropped.
//
// The segments that count are found from the newest valid one back: each header names the segment
// before, and where it ended. Other segments were dropped by an earlier recovery.
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_WAL_REPLAY_H_
#define OSPREY_SERVER_WAL_REPLAY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/wal/data_directory.h"
#include "server/wal/format/entries.h"
#include "server/wal/segment_reader.h"

namespace osprey::server::wal {

struct SegmentInfo {
  uint64_t number = 0;
  uint64_t life = 0;
  uint64_t first_record = 0;
};

// A segment without the close record, which names the next one.
struct SegmentExtent {
  uint64_t number = 0;
  uint64_t life = 0;
  uint64_t end = 0;  // the offset behind its last record
};

struct PiecePlace {
  Place place;
  uint32_t length = 0;
};

class ReplayVisitor {
 public:
  virtual ~ReplayVisitor() = default;
  // Each group, in the order of record numbers. `pieces` has, for each entry of the group, the
  // places of its value's pieces; none if the value is in the entry. An entry with pieces but
  // without places was applied before the checkpoint's walk began: the checkpoint has what became
  // of its key. All is valid during the call, places until StartLog. An error ends the replay and
  // is its result.
  virtual absl::Status OnGroup(const LogRecord& record, const Group& group,
                               const std::vector<std::vector<PiecePlace>>& pieces) = 0;
  // False: the visitor reads the values that it needs by ReadValue, which verifies their pieces. So the
  // replay need not read pieces that were known to be synced: any damage to them is an error there, or of a
  // value that does not count.
  virtual bool WantsPiecesVerified() const { return true; }
};

// How the log ended.
struct LogEnd {
  std::vector<SegmentInfo> chain;       // the segments up to the cut's, oldest first
  uint64_t newest_number = 0;           // the highest number of any file, whether or not it counts
  std::vector<SegmentExtent> segments;  // all that were read, oldest first: to the log's end
  // Behind the last record that is known to be synced.
  Place cut;
  uint64_t cut_life = 0;      // of its segment
  uint64_t cut_checksum = 0;  // of the record header before it
  uint64_t synced_to = 0;     // the number of that record
  std::vector<Place> tail;    // the records behind the cut
  uint64_t last_record = 0;   // of the log, the tail included
  uint64_t bytes = 0;         // of the records that were read
  uint64_t time_mark = 0;
  uint64_t version_ceiling = 0;
  bool clean = false;       // the last record is a clean end
  uint64_t clean_time = 0;  // ns; of a clean end
};

// `visitor` has seen records that an error makes void: after an error the caller discards all.
// Errors: DATA_LOSS (damage; names file and offset), FAILED_PRECONDITION (a record that this
// program does not have), those of FileSystem and of the visitor.
absl::StatusOr<LogEnd> Replay(const DataDirectory& directory, ReplayVisitor& visitor);

// Reads the records of a value's pieces one after the other, and checks its checksum. Errors as
// Replay.
absl::StatusOr<std::string> ReadValue(const DataDirectory& directory, const Entry& entry,
                                      absl::Span<const PiecePlace> pieces);

// Likewise, of many values. Thread rule: one thread.
class ValueReader {
 public:
  // `directory` outlives it.
  explicit ValueReader(const DataDirectory& directory)
      : files_(directory.files()), reader_(directory.files(), directory.ids()) {}

  // Valid until the next call.
  absl::StatusOr<Bytes> Read(const Entry& entry, absl::Span<const PiecePlace> pieces);

 private:
  // More memory than that is not kept for the next value.
  static constexpr size_t kKeptBytesMax = 64 << 20;

  FileSystem& files_;
  RecordReader reader_;
  std::string value_;  // of several pieces
};

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_REPLAY_H_
