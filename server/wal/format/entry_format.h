// The body of a record of kind kEntries: a group of entries of one shard, decided together.
//
//   0              48                                          (all multiples of 8)
//   +--------------+----------------+----------------+-- … --+
//   | group header | entry          | entry          |       |
//   +--------------+----------------+----------------+-- … --+
//
//   entry
//   +--------------+---------+---------+---------+---------+-----------------+-------+
//   | entry header | result? | base?   | long?   | key     | value or pieces | zeros |
//   +--------------+---------+---------+---------+---------+-----------------+-------+
//                    kHasResult kHasBase  kIsLong            kInPieces: PieceRefs
//
// Replay takes a group whole or not at all, since it is one record.
//
// A piece is named by the number of its record. The number stays when recovery writes a tail again
// at another place; its segment and offset would not.

#ifndef OSPREY_SERVER_WAL_FORMAT_ENTRY_FORMAT_H_
#define OSPREY_SERVER_WAL_FORMAT_ENTRY_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace osprey::server::wal {

inline constexpr uint32_t kKeyBytesMax = 4096;
inline constexpr uint64_t kValueBytesMax = uint64_t{1} << 30;
// A longer value has its own checksum in the entry.
inline constexpr uint64_t kShortValueBytesMax = 4096;

// All entries of the group count, or none: a replica may not take a part of it either.
inline constexpr uint16_t kAtomic = 1;

struct GroupHeader {
  uint32_t shard = 0;
  uint16_t flags = 0;
  uint16_t reserved0 = 0;
  uint64_t replica_life = 0;
  uint64_t append_term = 0;
  uint64_t first_lsn = 0;  // of the shard; the entries' lsns follow each other
  uint32_t count = 0;      // of entries
  uint32_t reserved1 = 0;
  uint64_t commit_point = 0;  // lsn
};
static_assert(std::is_trivially_copyable_v<GroupHeader>);
static_assert(sizeof(GroupHeader) == 48);
static_assert(offsetof(GroupHeader, replica_life) == 8);
static_assert(offsetof(GroupHeader, append_term) == 16);
static_assert(offsetof(GroupHeader, first_lsn) == 24);
static_assert(offsetof(GroupHeader, count) == 32);
static_assert(offsetof(GroupHeader, commit_point) == 40);

enum class EntryKind : uint8_t {
  kPut = 1,
  kExtend = 2,  // the value follows the base's
  kDelete = 3,
  kExpire = 4,
  kSessionBegin = 5,
  kSessionEnd = 6,
  kTerm = 7,
  kShardReset = 8,
  kFlushBound = 9,
  kTimeMark = 10,
  // Only between replicas, and in no file (server/cluster/table/value_parts.h):
  kValuePart = 11,    // of a value whose put follows
  kPartsDropped = 12  // … whose put does not follow
};

inline constexpr uint8_t kHasResult =
    1;  // else the result is OK, with the entry's version and expiry
inline constexpr uint8_t kHasBase = 2;
inline constexpr uint8_t kIsLong = 4;  // above kShortValueBytesMax
inline constexpr uint8_t kInPieces = 8;
inline constexpr uint8_t kHasNumber = 16;  // the result's number is that of an increment

struct EntryHeader {
  uint32_t length = 0;  // of the whole entry
  uint8_t kind = 0;     // EntryKind
  uint8_t flags = 0;
  uint16_t key_length = 0;
  uint64_t value_length = 0;
  uint64_t term = 0;  // of the decision
  uint64_t version = 0;
  uint64_t expiry = 0;    // ns, absolute; 0: none
  uint64_t client = 0;    // 0: no client's
  uint64_t sequence = 0;  // per client and shard
};
static_assert(std::is_trivially_copyable_v<EntryHeader>);
static_assert(sizeof(EntryHeader) == 56);
static_assert(offsetof(EntryHeader, kind) == 4);
static_assert(offsetof(EntryHeader, key_length) == 6);
static_assert(offsetof(EntryHeader, value_length) == 8);
static_assert(offsetof(EntryHeader, term) == 16);
static_assert(offsetof(EntryHeader, version) == 24);
static_assert(offsetof(EntryHeader, expiry) == 32);
static_assert(offsetof(EntryHeader, client) == 40);
static_assert(offsetof(EntryHeader, sequence) == 48);

// The answer to the write, as a repetition needs it.
struct EntryResult {
  uint32_t status = 0;  // absl::StatusCode
  uint32_t reason = 0;
  uint64_t version = 0;
  int64_t number = 0;  // kHasNumber
  uint64_t length = 0;
  uint64_t cursor = 0;
  uint64_t expiry = 0;
};
static_assert(sizeof(EntryResult) == 48);
static_assert(offsetof(EntryResult, version) == 8);
static_assert(offsetof(EntryResult, expiry) == 40);

// What an extension counts on.
struct EntryBase {
  uint64_t version = 0;
  uint64_t length = 0;
};
static_assert(sizeof(EntryBase) == 16);

struct LongValue {
  uint64_t checksum = 0;  // XXH3-64 of the value, unseeded
  uint32_t pieces = 0;    // PieceRefs; 0: the value is here
  uint32_t reserved = 0;
};
static_assert(sizeof(LongValue) == 16);

struct PieceRef {
  uint64_t record = 0;  // its number
  uint32_t length = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(PieceRef) == 16);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_FORMAT_ENTRY_FORMAT_H_
