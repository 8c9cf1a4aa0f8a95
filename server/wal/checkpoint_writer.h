// Writes a checkpoint beside the running log, and makes it the current one.
//
//   CheckpointWriter::Begin(directory, log, parts, redo_record)
//      part(i).AddItem … AddSession … AddShard …     each part on any one thread
//      part(i).Finish()
//   Commit(log.appended())                           after the walk
//
// Commit keeps this order, so that each step stands on files that are on the disk (rule D9):
//
//   parts synced ─> read back and verified ─> log synced up to the walk's end ─> directory synced
//     ─> CURRENT replaced ─> directory synced ─> old parts and segments removed
//
// A checkpoint that is not committed is removed by its destructor, and can be tried again.
//
// Thread rule: each part has one thread; all else runs on one thread after those. One checkpoint of
// a directory at a time.

#ifndef OSPREY_SERVER_WAL_CHECKPOINT_WRITER_H_
#define OSPREY_SERVER_WAL_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/wal/data_directory.h"
#include "server/wal/format/checkpoint_format.h"
#include "server/wal/log.h"

namespace osprey::server::wal {

struct CheckpointItem {
  uint32_t shard = 0;
  uint8_t lives = 0;      // of the CLOCK hand
  uint8_t depth = 0;      // of the segment of the index; 0: unknown
  uint8_t depth_min = 0;  // of the shallowest segment
  absl::string_view key;
  uint64_t value_length = 0;
  uint64_t version = 0;
  uint64_t expiry = 0;  // ns, absolute; 0: none
};

// A part syncs itself every few MiB: a long sync at its end would hold up the log's. Errors of all
// methods: those of FileSystem. After one the part is of no use.
class PartWriter {
 public:
  static absl::StatusOr<std::unique_ptr<PartWriter>> Create(FileSystem& files,
                                                            const PartHeader& header);

  // `value` may be the first bytes of the value, or none: AddValue brings the others, before
  // anything else is added. REQUIRES: 1 … kKeyBytesMax bytes of key.
  absl::Status AddItem(const CheckpointItem& item, Bytes value);
  absl::Status AddValue(Bytes bytes);
  // Opaque. REQUIRES: at most 64 KiB.
  absl::Status AddSession(Bytes session);
  absl::Status AddShard(const ShardState& shard);
  // Writes what is left and the footer, and syncs. REQUIRES: no value is incomplete.
  absl::Status Finish();

  bool finished() const { return finished_; }
  // REQUIRES: finished.
  const PartSummary& summary() const { return summary_; }

 private:
  PartWriter(std::unique_ptr<File> file, const PartHeader& header);

  // Appends to the block of that kind, which it begins if the present one is of another kind or has
  // no room.
  absl::Status Add(BlockKind kind, absl::Span<const Bytes> pieces, uint64_t bytes);
  absl::Status WriteBuffered();
  absl::Status WriteBlock(BlockKind kind, uint32_t count, Bytes body);

  const std::unique_ptr<File> file_;
  const PartHeader header_;
  BlockKind kind_ = BlockKind::kItems;
  std::string buffer_;  // the body of the block that is being filled
  uint32_t count_ = 0;  // in it
  uint64_t offset_ = sizeof(PartHeader);
  uint64_t unsynced_ = 0;    // bytes
  uint64_t value_left_ = 0;  // bytes that the last item's value still needs
  PartFooter footer_;
  PartSummary summary_;
  bool finished_ = false;
};

class CheckpointWriter {
 public:
  // `redo_record`: the first record whose effect the walk may miss. REQUIRES: at most
  // log.synced() + 1 by the time of Commit; 1 … kPartsMax parts. `directory` and `log` outlive it.
  // Errors: FAILED_PRECONDITION (directory.uncertain(): its parts are those that CURRENT may name).
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> Begin(DataDirectory& directory, Log& log,
                                                                 uint32_t parts,
                                                                 uint64_t redo_record);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  PartWriter& part(uint32_t number) { return *parts_[number]; }
  uint64_t id() const { return id_; }

  // `walk_end`: no record after it has an effect on the items. REQUIRES: all parts are finished.
  // After an error the checkpoint before it still counts. If directory.uncertain() is true then,
  // it may be this one, and the process has to end. Calls `pause`, if any, after each MiB that it
  // reads back.
  absl::Status Commit(uint64_t walk_end, const std::function<void()>& pause = {});
  // Of the removal of old files, which does not make a checkpoint fail; the next one tries again.
  const absl::Status& removal() const { return removal_; }

 private:
  CheckpointWriter(DataDirectory& directory, Log& log, uint32_t parts, uint64_t redo_record)
      : directory_(directory),
        log_(log),
        id_(directory.current().header.checkpoint + 1),
        redo_record_(redo_record),
        parts_max_(parts) {}
  absl::Status Verify(const std::function<void()>& pause) const;

  DataDirectory& directory_;
  Log& log_;
  const uint64_t id_;
  const uint64_t redo_record_;
  const uint32_t parts_max_;
  std::vector<std::unique_ptr<PartWriter>> parts_;
  bool keep_ = false;  // the parts are, or may be, named by CURRENT
  absl::Status removal_;
};

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_CHECKPOINT_WRITER_H_
