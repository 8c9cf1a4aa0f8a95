// A long value on its way to the other replicas: groups with its parts, and then that of its put.
//
//   whole value ──> part, part, … ──> put, which names the parts        groups of one shard, in their order
//                      other writes in between
//
// Rules:
//
// - One value of a shard at a time has parts without a put. So a replica keeps one such value, and a part
//   needs no name.
// - Parts follow when the value is whole. *Else* a slow client keeps others, and copies, waiting.
// - The put names the term's own parts. What is left of an earlier term ends with the first group of a later
//   one. *Else* it takes room on the backups alone.
// - A primary counts parts as applied when the put is made. *Else* a joiner, whose groups begin behind those,
//   has the put without its parts; or this server, when it is a backup. Replicas keep the groups until then.
//
// As entries, a part is {key, version: bytes of the value up to its end, sequence: bytes of the whole value,
// value: the part}. The put has PieceRefs: each part by its number from 1 on, and its length.

#ifndef OSPREY_SERVER_CLUSTER_TABLE_VALUE_PARTS_H_
#define OSPREY_SERVER_CLUSTER_TABLE_VALUE_PARTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "index/layout/layout.h"
#include "server/requests/write_log.h"
#include "server/wal/format/entries.h"

namespace osprey::server {

// The longest value in the entry of its put, or in an item of a copy.
inline constexpr uint64_t kReplicatedValueBytesMax = 1 << 20;
// Of a part at most.
inline constexpr uint64_t kValuePartBytesMax = 256 << 10;

// How a primary sends values. Only simulations have others, of the same proportions.
struct PartLengths {
  uint64_t value = kReplicatedValueBytesMax;  // a longer one goes in parts
  uint64_t part = kValuePartBytesMax;         // but for the last one
};

// The value of a put, as PartitionChanges::SetUpload is given it.
class PartedValue : public ValueUpload {
 public:
  explicit PartedValue(uint64_t part_bytes) : part_bytes_(part_bytes) {}
  uint64_t part_bytes() const { return part_bytes_; }
  // The group with its put is decided.
  void NoteNamed() const { is_named_ = true; }

 protected:
  bool is_named() const { return is_named_; }

 private:
  const uint64_t part_bytes_;
  mutable bool is_named_ = false;
};

// The body of a group: one entry, with the part of that length at most that begins at `offset`.
std::string ValuePartBody(uint32_t partition, absl::string_view key, index::ByteSpan value,
                          uint64_t offset, uint64_t part_bytes);
// … that says that no put will name the parts before it.
std::string PartsDroppedBody(uint32_t partition);
// Of the put of such a value.
std::vector<wal::PieceRef> PartsOf(uint64_t value_bytes, uint64_t part_bytes);
// Why no primary sends such an entry; empty if it may. REQUIRES: a part, or it names parts.
std::string WhyWrongParts(const wal::Entry& entry);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_TABLE_VALUE_PARTS_H_
