// What the servers that hold a shard send each other.
//
//   primary ── Append: groups of entries, the commit point ──> backup
//   primary <── Ack: what the backup holds, or why it does not ── backup
//
//   Append                                                     (little-endian, multiples of 8)
//   +--------+-------------------+------+--------+-------------------+------+--------+ …
//   | header | group             | body | zeros  | group             | body | zeros  |
//   +--------+-------------------+------+--------+-------------------+------+--------+ …
//
// Messages between two servers arrive in order, while their connection lasts.

#ifndef OSPREY_SERVER_CLUSTER_REPLICATION_REPLICATION_MESSAGES_H_
#define OSPREY_SERVER_CLUSTER_REPLICATION_REPLICATION_MESSAGES_H_

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/cluster/replication/replica_log.h"
#include "server/cluster/replication/replica_name.h"

namespace osprey {

// Groups are put into one Append while it has fewer bytes.
inline constexpr uint64_t kAppendBytes = 64 << 10;
inline constexpr uint64_t kGroupBytesMax = 8 << 20;  // of one body
inline constexpr uint32_t kGroupsInAppendMax = 4096;

struct Append {
  uint32_t shard = 0;
  uint64_t term = 0;
  ReplicaName from;           // the primary
  ReplicaName to;             // the backup
  uint64_t commit_point = 0;  // entries up to this lsn are committed
  uint64_t discard_to = 0;    // all replicas have applied the entries up to this lsn
  std::vector<ReplicatedGroup> groups;
};

enum class AckCode : uint32_t {
  kConfirmed = 0,
  kLowerTerm = 1,  // the sender of the append is not primary any more; `term` says the later one
  // The backup has not read the shard's record of that term; again later. Of a server that has handed over:
  // that term has begun.
  kUnknownTerm = 2,
  kOtherReplica = 3,  // the append is for a replica that this server does not have (any more)
  kGap = 4,           // groups are missing before those; `confirmed` says where to go on
  kNoRoom = 5,        // the backup cannot hold the group, and has to be dropped
};

// As it travels, 64 bytes.
struct Ack {
  uint32_t shard = 0;
  AckCode code = AckCode::kConfirmed;
  uint64_t term = 0;
  ReplicaName from;        // the backup
  ReplicaName to;          // the primary
  uint64_t confirmed = 0;  // in this term: entries up to this lsn are here whole, and have room
  uint64_t applied = 0;
};
static_assert(std::is_trivially_copyable_v<Ack> && sizeof(Ack) == 64);

// Of a server that begins to hold a shard:
//
//   joiner ── kJoin, with the name that it will have ──> primary
//   joiner <── kBegin: groups up to `lsn` are in the copy, appends have those behind ── primary
//   joiner <── kChunk, … , kEnd ── primary          all of it, while appends arrive
//   joiner ── kWhole ──> primary                    it has taken the copy; until it is a member
//   joiner <── kRefused ── primary                  that name was not added, and will not be
enum class CopyKind : uint32_t {
  kJoin = 0,
  kBegin = 1,
  kChunk = 2,
  kEnd = 3,
  kWhole = 4,
  kRefused = 5,
};

struct CopyMessage {
  uint32_t shard = 0;
  CopyKind kind = CopyKind::kJoin;
  uint64_t term = 0;
  ReplicaName joiner;
  uint64_t lsn = 0;   // kBegin
  std::string bytes;  // kChunk: not empty
};

inline constexpr uint64_t kCopyBytesMax = 8 << 20;  // of one chunk

std::string EncodeAppend(const Append& append);
std::string EncodeAck(const Ack& ack);
std::string EncodeCopyMessage(const CopyMessage& message);

// Errors: DATA_LOSS (a peer that is not of this version, or hostile; says what is wrong).
absl::StatusOr<Append> DecodeAppend(absl::string_view bytes);
absl::StatusOr<Ack> DecodeAck(absl::string_view bytes);
absl::StatusOr<CopyMessage> DecodeCopyMessage(absl::string_view bytes);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_REPLICATION_REPLICATION_MESSAGES_H_
