// A part of the copy of a replica's tables and sessions, byte by byte. Little-endian, reserved bytes and
// padding are zero.
//
//   0        32                                                  (all multiples of 8)
//   +--------+-------+----------------------------------------+----------------------------+
//   | header | part? | items: header | key | value | padding … | sessions: length | bytes … |
//   +--------+-------+----------------------------------------+----------------------------+
//
// Pure functions.

#ifndef OSPREY_SERVER_CLUSTER_TABLE_COPY_CHUNK_H_
#define OSPREY_SERVER_CLUSTER_TABLE_COPY_CHUNK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/requests/sessions.h"
#include "server/wal/disk/file_system.h"

namespace osprey::server {

inline constexpr uint32_t kLastChunk = 1;
inline constexpr uint32_t kPartOfValue = 2;  // one item; ChunkPart follows the header

struct ChunkHeader {
  uint32_t flags = 0;  // kLastChunk
  uint32_t items = 0;
  uint32_t sessions = 0;
  uint32_t reserved = 0;
  uint64_t last_version = 0;  // that the primary had given out when it made the chunk
  uint64_t time_mark = 0;     // ns; the last one that counted then (time_marks.h)
};
static_assert(std::is_trivially_copyable_v<ChunkHeader>);
static_assert(sizeof(ChunkHeader) == 32);
static_assert(offsetof(ChunkHeader, sessions) == 8);
static_assert(offsetof(ChunkHeader, last_version) == 16);
static_assert(offsetof(ChunkHeader, time_mark) == 24);

// Which part of a long value the item has.
struct ChunkPart {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // of the whole value
};
static_assert(std::is_trivially_copyable_v<ChunkPart>);
static_assert(sizeof(ChunkPart) == 16);
static_assert(offsetof(ChunkPart, bytes) == 8);

struct ChunkItemHeader {
  uint32_t key_length = 0;
  uint32_t value_length = 0;
  uint64_t version = 0;
  uint64_t expiry = 0;  // ns, absolute; 0: never
};
static_assert(std::is_trivially_copyable_v<ChunkItemHeader>);
static_assert(sizeof(ChunkItemHeader) == 24);
static_assert(offsetof(ChunkItemHeader, version) == 8);
static_assert(offsetof(ChunkItemHeader, expiry) == 16);

struct CopiedItem {
  absl::string_view key;
  wal::Bytes value;
  uint64_t version = 0;
  uint64_t expiry_ns = 0;
};

class ChunkBuilder {
 public:
  ChunkBuilder() { Clear(); }

  // Copies it. REQUIRES: all items come before all sessions.
  void AddItem(const CopiedItem& item);
  // … of which this is a part. REQUIRES: nothing else is in the chunk.
  void AddPart(const CopiedItem& item, const ChunkPart& part);
  void AddSession(const SessionImage& session);
  uint64_t bytes() const { return bytes_.size(); }
  uint32_t items() const { return header_.items; }
  // The chunk, and begins another one.
  std::string Finish(bool is_last, uint64_t last_version, uint64_t time_mark_ns);

 private:
  void Clear();

  ChunkHeader header_;
  std::string bytes_;
};

struct Chunk {
  bool is_last = false;
  uint64_t last_version = 0;
  uint64_t time_mark_ns = 0;
  std::optional<ChunkPart> part;  // of the one item
  std::vector<CopiedItem> items;  // they point into the bytes
  std::vector<SessionImage> sessions;
};

// Errors: DATA_LOSS (a peer that is not of this version, or hostile; says what is wrong).
absl::StatusOr<Chunk> ParseChunk(absl::string_view bytes);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_TABLE_COPY_CHUNK_H_
