// The copy of a primary's tables and sessions for a replica that joins, in chunks, while writes go on.
//
//   ShardPrimary::AddJoiner ──> TableCopy: sessions, then each partition ──NextChunk──> joiner
//                                             groups of the same time ──appends──────> joiner
//
// Expired keys that were not removed yet are copied, too. *Else* another replica, which has them, keeps
// them when this joiner has become the primary: it does not know that they need an entry.
//
// Each key and result is in the copy, or in a group behind those that were applied when the copy began.
// Most are in one of them, some are in both. A primary evicts and sweeps when it decides. So the copy ends when
// all has its place that was decided before its last chunk, and the joiner counts when all members have that.
//
// Thread rule: one thread, which holds no lock of a partition.

#ifndef OSPREY_SERVER_CLUSTER_TABLE_TABLE_COPY_H_
#define OSPREY_SERVER_CLUSTER_TABLE_TABLE_COPY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "server/cluster/table/copy_chunk.h"
#include "server/durability/partition_walk.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"

namespace osprey::server {

class TableCopy {
 public:
  // `sessions` were read after the copy began, each with at most kResultsKept results. `tables` outlives
  // this.
  TableCopy(Tables& tables, std::vector<SessionImage> sessions);

  // The next part: some 64 KiB, or one longer value, or a part of it. `time_mark_ns`: the last mark of time that counts.
  // REQUIRES: !at_end().
  std::string NextChunk(uint64_t time_mark_ns);
  // The last chunk was returned.
  bool at_end() const { return at_end_; }

 private:
  void AddSessions();
  void BeginWalk();
  void StepWalk();
  void AddPart();

  Tables& tables_;
  std::vector<SessionImage> sessions_;  // those that are left
  uint32_t partition_ = 0;
  absl::optional<PartitionWalk> walk_;  // of the partition; none: of the next one, or at the end
  // A long value, of which parts are left; empty: there is none.
  struct LongItem {
    std::string key, value;
    uint64_t version = 0;
    uint64_t expiry_ns = 0;
    uint64_t copied = 0;
  } long_;
  ChunkBuilder chunk_;
  bool at_end_ = false;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_TABLE_TABLE_COPY_H_
