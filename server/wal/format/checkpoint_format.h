// The files of a checkpoint, byte by byte. Little-endian. Reserved bytes are zero.
//
//   checkpoint-0000000000000003-0000     a part; it is written once and never changed
//
//   0             128
//   +-------------+--------------+------+--------------+------+-- … --+--------------+--------+
//   | part header | block header | body | block header | body |       | block header | footer |
//   +-------------+--------------+------+--------------+------+-- … --+--------------+--------+
//
//   Each body has at most 1 MiB. The seed of a block's checksums is made of the part's life and
//   number, and of the block's offset.
//
//   items      item headers, each with its key and value, padded to a multiple of 8
//   value      the value of the last item of the block before, or its continuation, if its header
//              has kValueFollows
//   sessions   each a u32 length and so many bytes, padded to a multiple of 8
//   shards     ShardStates
//   footer     PartFooter; the file ends behind it
//
//   CURRENT    header and one PartSummary for each part. It is replaced by a rename of CURRENT.new,
//              so it is always whole. Everything that it names is synced.

#ifndef OSPREY_SERVER_WAL_FORMAT_CHECKPOINT_FORMAT_H_
#define OSPREY_SERVER_WAL_FORMAT_CHECKPOINT_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/wal/format/format.h"

namespace osprey::server::wal {

inline constexpr uint32_t kPartsMax = 1024;
inline constexpr uint32_t kBlockBytesMax = 1 << 20;
inline constexpr uint64_t kBlockAlignment = 8;  // of items and sessions in a body

inline constexpr uint64_t kPartMagic = 0x5452415045534f;  // "OSEPART"

struct PartHeader {
  uint64_t magic = kPartMagic;
  uint32_t format = kFormat;
  uint32_t part = 0;
  DirectoryId directory;
  uint64_t checkpoint = 0;  // id
  uint64_t life = 0;        // random
  uint32_t parts = 0;
  uint32_t reserved0 = 0;
  uint64_t redo_record = 0;
  uint8_t reserved[56] = {};
  uint64_t checksum = 0;  // of the bytes before

  void Seal();
  std::string Validate() const;
};
static_assert(std::is_trivially_copyable_v<PartHeader>);
static_assert(sizeof(PartHeader) == 128);
static_assert(offsetof(PartHeader, directory) == 16);
static_assert(offsetof(PartHeader, checkpoint) == 32);
static_assert(offsetof(PartHeader, life) == 40);
static_assert(offsetof(PartHeader, parts) == 48);
static_assert(offsetof(PartHeader, redo_record) == 56);
static_assert(offsetof(PartHeader, checksum) == 120);

enum class BlockKind : uint32_t {
  kItems = 1,
  kValue = 2,
  kSessions = 3,
  kShards = 4,
  kFooter = 5,
};

inline constexpr uint32_t kBlockMagic = 0x4b42534f;  // "OSBK"

struct BlockHeader {
  uint32_t magic = kBlockMagic;
  uint32_t kind = 0;    // BlockKind
  uint32_t length = 0;  // of the body
  uint32_t count = 0;   // of what the body has: items, sessions, shards
  uint64_t body_checksum = 0;
  uint64_t header_checksum = 0;  // of the bytes before

  // Sets both checksums, of a block at a place with that seed.
  void Seal(Bytes body, uint64_t seed);
  uint64_t HeaderChecksum(uint64_t seed) const;
  std::string Validate(uint64_t seed) const;
};
static_assert(std::is_trivially_copyable_v<BlockHeader>);
static_assert(sizeof(BlockHeader) == 32);
static_assert(offsetof(BlockHeader, length) == 8);
static_assert(offsetof(BlockHeader, body_checksum) == 16);
static_assert(offsetof(BlockHeader, header_checksum) == 24);

inline constexpr uint8_t kValueFollows = 1;

struct ItemHeader {
  uint32_t length = 0;  // with the key, the value if it is here, and the padding
  uint16_t key_length = 0;
  uint8_t flags = 0;
  uint8_t lives = 0;  // of the CLOCK hand
  uint64_t value_length = 0;
  uint64_t version = 0;
  uint64_t expiry = 0;  // ns, absolute; 0: none
  uint32_t shard = 0;
  // Of the segment of the index that had the key, and of the shallowest segment: loading grows the
  // index as far. 0: unknown.
  uint8_t depth = 0;
  uint8_t depth_min = 0;
  uint16_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<ItemHeader>);
static_assert(sizeof(ItemHeader) == 40);
static_assert(offsetof(ItemHeader, flags) == 6);
static_assert(offsetof(ItemHeader, value_length) == 8);
static_assert(offsetof(ItemHeader, version) == 16);
static_assert(offsetof(ItemHeader, shard) == 32);
static_assert(offsetof(ItemHeader, depth) == 36);

struct ShardState {
  uint32_t shard = 0;
  uint32_t reserved = 0;
  uint64_t lsn = 0;
  uint64_t term = 0;
  uint64_t commit_point = 0;
  uint64_t version = 0;
};
static_assert(std::is_trivially_copyable_v<ShardState>);
static_assert(sizeof(ShardState) == 40);
static_assert(offsetof(ShardState, lsn) == 8);
static_assert(offsetof(ShardState, version) == 32);

struct PartFooter {
  uint64_t items = 0;
  uint64_t bytes = 0;     // of keys and values
  uint64_t blocks = 0;    // before the footer's
  uint64_t checksum = 0;  // of their header checksums, in order
};
static_assert(sizeof(PartFooter) == 32);

// --- CURRENT -----------------------------------------------------------------

inline constexpr uint64_t kCurrentMagic = 0x544e455252554353;  // "SCURRENT"

struct CurrentHeader {
  uint64_t magic = kCurrentMagic;
  uint32_t format = kFormat;
  uint32_t parts = 0;
  DirectoryId directory;
  uint64_t generation = 0;  // 1, 2, 3 …
  uint64_t checkpoint = 0;  // id; 0: none yet
  // Replay begins at this segment's first record, where the chain is anchored, and skips the
  // records before redo_record.
  uint64_t redo_segment = 0;
  uint64_t redo_record = 0;
  // All segments from redo_segment to this one must exist, each named by the next.
  uint64_t newest_segment = 0;
  uint64_t newest_life = 0;
  uint64_t synced_to = 0;  // a record's number; at least the last one before newest_segment
  uint64_t version_ceiling = 0;
  uint64_t time_mark = 0;
  uint8_t reserved[8] = {};
  uint64_t checksum = 0;  // of the bytes before, and of the parts

  std::string Validate(const DirectoryId& expected_directory) const;
};
static_assert(std::is_trivially_copyable_v<CurrentHeader>);
static_assert(sizeof(CurrentHeader) == 120);
static_assert(offsetof(CurrentHeader, directory) == 16);
static_assert(offsetof(CurrentHeader, generation) == 32);
static_assert(offsetof(CurrentHeader, checkpoint) == 40);
static_assert(offsetof(CurrentHeader, redo_segment) == 48);
static_assert(offsetof(CurrentHeader, redo_record) == 56);
static_assert(offsetof(CurrentHeader, newest_segment) == 64);
static_assert(offsetof(CurrentHeader, newest_life) == 72);
static_assert(offsetof(CurrentHeader, synced_to) == 80);
static_assert(offsetof(CurrentHeader, time_mark) == 96);
static_assert(offsetof(CurrentHeader, checksum) == 112);

struct PartSummary {
  uint64_t length = 0;    // of the file
  uint64_t life = 0;      // as in the part's header
  uint64_t checksum = 0;  // as in its footer
};
static_assert(sizeof(PartSummary) == 24);

inline constexpr char kCurrentName[] = "CURRENT";
inline constexpr char kCurrentNewName[] = "CURRENT.new";

uint64_t CurrentChecksum(const CurrentHeader& header, absl::Span<const PartSummary> parts);

std::string PartName(uint64_t checkpoint, uint32_t part);
// False: no name of a part.
bool ParsePartName(absl::string_view name, uint64_t& checkpoint, uint32_t& part);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_FORMAT_CHECKPOINT_FORMAT_H_
