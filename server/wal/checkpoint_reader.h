// Reads the parts of a checkpoint past the page cache, and checks every byte.
//
// Thread rule: ReadPart of different parts may run at the same time.

#ifndef OSPREY_SERVER_WAL_CHECKPOINT_READER_H_
#define OSPREY_SERVER_WAL_CHECKPOINT_READER_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/wal/checkpoint_writer.h"
#include "server/wal/data_directory.h"
#include "server/wal/format/checkpoint_format.h"

namespace osprey::server::wal {

// What a part holds, in the order in which it was added. All is valid during the call. An error
// ends the reading and is its result.
class PartVisitor {
 public:
  virtual ~PartVisitor() = default;
  // OnItem will bring these, one after the other: their memory can be prefetched.
  virtual void Expect(absl::Span<const CheckpointItem> items) { (void)items; }
  // `value` is the whole value, or its first bytes: OnValue brings the others.
  virtual absl::Status OnItem(const CheckpointItem& item, Bytes value) = 0;
  virtual absl::Status OnValue(Bytes bytes) = 0;
  virtual absl::Status OnSession(Bytes session) = 0;
  virtual absl::Status OnShard(const ShardState& shard) = 0;
};

// Items come before the footer that confirms them: after an error the caller discards them. Errors:
// DATA_LOSS (damage; names file and offset), those of FileSystem and of the visitor.
absl::Status ReadPart(const DataDirectory& directory, uint64_t checkpoint, uint32_t part,
                      uint32_t parts, const PartSummary& summary, PartVisitor& visitor);

// Reads all parts of the current checkpoint on so many threads, the calling one included, or on
// fewer if the system has no more. The others block all signals. `visitor_of` is called on these
// threads, and its visitors live until the end. OK without a checkpoint.
absl::Status ReadCheckpoint(const DataDirectory& directory, uint32_t threads,
                            const std::function<PartVisitor&(uint32_t part)>& visitor_of);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_CHECKPOINT_READER_H_
