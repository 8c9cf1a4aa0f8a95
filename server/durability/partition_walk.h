// A walk over the keys of one partition, in short holds of its lock, while writes go on. For
// checkpoints, and for copies to other servers.
//
//   PartitionWalk walk(tables, partition);
//   while (!walk.at_end()) { … walk.has_long() ? walk.LongStep(sink) : walk.Step(sink) … }
//
// A key that is present throughout is found, and may be found twice. A long value is copied without the
// lock, under a lease. If its key changes meanwhile, the walk leaves it out: the caller has that change
// from elsewhere.
//
// Thread rule: one thread, which holds no lock of a partition.

#ifndef OSPREY_SERVER_DURABILITY_PARTITION_WALK_H_
#define OSPREY_SERVER_DURABILITY_PARTITION_WALK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "index/writer/line_walk.h"
#include "server/requests/tables.h"
#include "server/wal/checkpoint_writer.h"

namespace osprey::server {

class PartitionWalk {
 public:
  // Takes a key, with its value: item.value_length bytes. Both are valid during the call, which holds no
  // lock. An error ends the step.
  using Sink = absl::FunctionRef<absl::Status(const wal::CheckpointItem& item, wal::Bytes value)>;

  // `tables` outlives this.
  PartitionWalk(Tables& tables, uint32_t partition,
                index::ExpiredKeys expired = index::ExpiredKeys::kAbsent)
      : tables_(tables), partition_(partition), expired_(expired) {}

  // One hold of the lock, and the items that it found, but for long values: some 64 KiB. Returns their
  // bytes. Errors: the sink's. REQUIRES: !at_end() and !has_long().
  absl::StatusOr<uint64_t> Step(Sink sink);
  // One of the long values that the steps left out. Returns the bytes; 0: its key has changed.
  // Errors: the sink's. REQUIRES: has_long().
  absl::StatusOr<uint64_t> LongStep(Sink sink);
  bool has_long() const { return !long_keys_.empty(); }
  bool at_end() const { return at_end_ && !has_long(); }

 private:
  struct LongKey {
    std::string key;
    uint8_t clock = 0;
    index::SegmentDepths depths;
  };

  void Take(const index::WalkedKey& key);
  bool CopyValue(wal::CheckpointItem& item);

  Tables& tables_;
  const uint32_t partition_;
  const index::ExpiredKeys expired_;
  uint64_t cursor_ = 0;
  bool at_end_ = false;
  std::string copied_;                                         // of a step: keys and values
  std::vector<std::pair<wal::CheckpointItem, size_t>> items_;  // likewise; with the key's length
  std::vector<LongKey> long_keys_;
  std::unique_ptr<std::byte[]> value_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_PARTITION_WALK_H_
