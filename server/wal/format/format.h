// The files of the log, byte by byte. Little-endian. Reserved bytes are zero.
// checkpoint_format.h has the checkpoint's files, entry_format.h the bodies of records.
//
//   FORMAT            what this directory is. Written once.
//
//   0            128
//   +------------+-----------------+
//   | FormatFile | DirectoryIds    |    of a copy of a copy
//   +------------+-----------------+
//
//   log-0000000000000007       a segment
//
//   0                4 KiB
//   +----------------+---------+---------+------- … --+---------+
//   | segment header | record  | record  |            | close   |
//   +----------------+---------+---------+------- … --+---------+
//
//   record           at a multiple of 64 B
//
//   0                64                       64 + length, rounded up to 64
//   +----------------+------------------------+-------+
//   | record header  | body                   | zeros |
//   +----------------+------------------------+-------+
//
//   header checksum  XXH3-64 of the header's other bytes
//   body checksum    XXH3-64 of the body
//                    The seed of both is made of the segment's life and number, and of the record's
//                    offset. So bytes of another segment, place or life are never valid.
//   chain            the header checksum of the record before. The first record of a segment has
//                    the last checksum of the segment before, which is in the segment's header too.
//   synced to        the number of a record. It and all before were known to be synced when
//                    this header was written.
//
// A close record ends a segment. It names the next one, and is written once the next one's header
// is synced. It has the number of the next record and takes none itself; the next segment's
// header does not count it as a part of this one.

#ifndef OSPREY_SERVER_WAL_FORMAT_FORMAT_H_
#define OSPREY_SERVER_WAL_FORMAT_FORMAT_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/wal/disk/file_system.h"

namespace osprey::server::wal {

static_assert(std::endian::native == std::endian::little);

// Of all files. It is raised by changes that an older program cannot read.
inline constexpr uint32_t kFormat = 1;
// Feature bits that this program has. A file may have unknown compatible ones.
inline constexpr uint64_t kIncompatibleFeatures = 0;

struct DirectoryId {
  uint64_t words[2] = {0, 0};
  friend bool operator==(const DirectoryId& a, const DirectoryId& b) {
    return a.words[0] == b.words[0] && a.words[1] == b.words[1];
  }
};

// --- FORMAT ------------------------------------------------------------------

inline constexpr uint64_t kFormatMagic = 0x54414d524f46534f;  // "OSFORMAT"
// FORMAT fits into 4 KiB. Each copy of a copy has one more.
inline constexpr uint32_t kOriginsMax = 248;

struct FormatFile {
  uint64_t magic = kFormatMagic;
  uint32_t format = kFormat;
  uint32_t shards = 0;  // fixed for the directory's life
  uint64_t compatible_features = 0;
  uint64_t incompatible_features = 0;
  DirectoryId directory;    // random
  DirectoryId copied_from;  // the directory that a backup was made of; zero: none
  uint64_t server = 0;
  uint64_t hash_seed = 0;  // of the index
  uint32_t origins = 0;    // DirectoryIds that follow
  uint32_t reserved0 = 0;
  uint64_t origins_checksum = 0;  // of those; 0 if there is none
  uint8_t reserved[24] = {};
  uint64_t checksum = 0;  // of the bytes before

  // `more_origins`: what copied_from was itself copied from, newest first.
  void Seal(absl::Span<const DirectoryId> more_origins = {});
  // Why this program cannot read it, although it has every byte that was written; empty if it can.
  std::string OtherVersion() const;
  // Why it, or what follows it, is not valid; empty if it is.
  std::string Validate(absl::Span<const DirectoryId> more_origins = {}) const;
};
static_assert(std::is_trivially_copyable_v<FormatFile>);
static_assert(sizeof(FormatFile) == 128);
static_assert(offsetof(FormatFile, shards) == 12);
static_assert(offsetof(FormatFile, compatible_features) == 16);
static_assert(offsetof(FormatFile, incompatible_features) == 24);
static_assert(offsetof(FormatFile, directory) == 32);
static_assert(offsetof(FormatFile, copied_from) == 48);
static_assert(offsetof(FormatFile, server) == 64);
static_assert(offsetof(FormatFile, hash_seed) == 72);
static_assert(offsetof(FormatFile, origins) == 80);
static_assert(offsetof(FormatFile, origins_checksum) == 88);
static_assert(offsetof(FormatFile, checksum) == 120);

// --- Segments ----------------------------------------------------------------

inline constexpr uint64_t kSegmentMagic = 0x4e474d474553534f;  // "OSSEGMGN"
inline constexpr uint64_t kSegmentHeaderBytes = 4096;

struct SegmentHeader {
  uint64_t magic = kSegmentMagic;
  uint32_t format = kFormat;
  uint32_t reserved0 = 0;
  DirectoryId directory;
  uint64_t number = 0;  // 1, 2, 3 …; dropped ones leave gaps
  uint64_t life = 0;    // random
  // Where the log stood when this segment began. All 0 in the first segment.
  uint64_t previous_number = 0;
  uint64_t previous_life = 0;
  uint64_t previous_end = 0;       // the offset behind its last record
  uint64_t previous_checksum = 0;  // of that record's header; the first record's chain
  uint64_t first_record = 0;       // its number
  uint64_t synced_to = 0;
  uint8_t reserved[3992] = {};
  uint64_t checksum = 0;  // of the bytes before

  void Seal();
  // `writers`: the directories whose segments count (DataDirectory::ids).
  std::string Validate(absl::Span<const DirectoryId> writers, uint64_t expected_number) const;
};
static_assert(std::is_trivially_copyable_v<SegmentHeader>);
static_assert(sizeof(SegmentHeader) == kSegmentHeaderBytes);
static_assert(offsetof(SegmentHeader, directory) == 16);
static_assert(offsetof(SegmentHeader, number) == 32);
static_assert(offsetof(SegmentHeader, life) == 40);
static_assert(offsetof(SegmentHeader, previous_number) == 48);
static_assert(offsetof(SegmentHeader, previous_life) == 56);
static_assert(offsetof(SegmentHeader, previous_end) == 64);
static_assert(offsetof(SegmentHeader, previous_checksum) == 72);
static_assert(offsetof(SegmentHeader, first_record) == 80);
static_assert(offsetof(SegmentHeader, synced_to) == 88);
static_assert(offsetof(SegmentHeader, checksum) == 4088);

// --- Records -----------------------------------------------------------------

inline constexpr uint16_t kRecordMagic = 0x524f;  // "OR"
inline constexpr uint64_t kRecordAlignment = 64;
// The longest body. A group of 64 entries with values of 64 KiB and keys of 4 KiB fits.
inline constexpr uint32_t kRecordBodyMax = 8 << 20;
inline constexpr uint32_t kPieceBytesMax = 1 << 20;
// No log has so many records: numbers that are added to do not overflow.
inline constexpr uint64_t kRecordNumberMax = uint64_t{1} << 62;

enum class RecordKind : uint8_t {
  kEntries = 1,   // a group (entry_format.h)
  kPiece = 2,     // a part of a long value; nothing without the entry that names it
  kMark = 3,      // no body: its header's time mark and version ceiling count
  kClose = 4,     // CloseBody
  kCleanEnd = 5,  // CleanEndBody
};

// A program that does not have the kind refuses the log; without the bit it skips the record.
inline constexpr uint8_t kMustUnderstand = 1;

struct RecordHeader {
  uint16_t magic = kRecordMagic;
  uint8_t kind = 0;  // RecordKind
  uint8_t flags = 0;
  uint32_t length = 0;  // of the body
  uint64_t number = 0;  // 1, 2, 3 … in the whole log
  uint64_t chain = 0;
  uint64_t synced_to = 0;
  uint64_t time_mark = 0;        // ns; no expiry was judged by a later time
  uint64_t version_ceiling = 0;  // no version above it was given out
  uint64_t body_checksum = 0;
  uint64_t header_checksum = 0;

  // Sets both checksums, of a record at a place with that seed, whose body has these pieces.
  void Seal(absl::Span<const Bytes> body, uint64_t seed);
  // Of this header at a place with that seed.
  uint64_t HeaderChecksum(uint64_t seed) const;
  // Of the header alone: why it is not valid at a place with that seed.
  std::string Validate(uint64_t seed) const;
  // With the body and its padding.
  uint64_t bytes() const { return RoundUp(sizeof(RecordHeader) + length, kRecordAlignment); }
  // The zeros behind the body.
  Bytes Padding() const;
};
static_assert(std::is_trivially_copyable_v<RecordHeader>);
static_assert(sizeof(RecordHeader) == kRecordAlignment);
static_assert(offsetof(RecordHeader, kind) == 2);
static_assert(offsetof(RecordHeader, length) == 4);
static_assert(offsetof(RecordHeader, number) == 8);
static_assert(offsetof(RecordHeader, chain) == 16);
static_assert(offsetof(RecordHeader, synced_to) == 24);
static_assert(offsetof(RecordHeader, time_mark) == 32);
static_assert(offsetof(RecordHeader, version_ceiling) == 40);
static_assert(offsetof(RecordHeader, body_checksum) == 48);
static_assert(offsetof(RecordHeader, header_checksum) == 56);

struct CloseBody {
  uint64_t next_number = 0;
  uint64_t next_life = 0;
};
static_assert(sizeof(CloseBody) == 16);

struct CleanEndBody {
  uint64_t time = 0;  // ns: the exact time of the end
  uint64_t version_ceiling = 0;
};
static_assert(sizeof(CleanEndBody) == 16);

// --- Names -------------------------------------------------------------------

inline constexpr char kFormatName[] = "FORMAT";
inline constexpr char kFormatNewName[] = "FORMAT.new";
// A segment while recovery writes it.
inline constexpr char kSegmentNewName[] = "log.new";
std::string SegmentName(uint64_t number);
// 0: no name of a segment.
uint64_t SegmentNumber(absl::string_view name);

// A file that a backup copies, before it gets its name.
inline constexpr char kCopyNewName[] = "copy.new";

bool Contains(absl::Span<const DirectoryId> ids, const DirectoryId& id);

// Why a file of that format is not this program's; empty if it is.
std::string CheckFormat(uint32_t format);

// A byte of `bytes` is not zero.
bool HasBits(Bytes bytes);

// DATA_LOSS: "PATH, offset N: WHY; …".
absl::Status DamageError(const FileSystem& files, const std::string& name, uint64_t offset,
                         absl::string_view why);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_FORMAT_FORMAT_H_
