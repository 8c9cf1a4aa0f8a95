// Declares every byte that clients READ, once. Little-endian. Offsets are from the start of the
// region.
//
//   0               4 KiB                    units of 32 KiB, upwards            downwards
//   +---------------+------------------------+--------+--------+------- … -------+-----------+
//   | region header | directory pages (space | segment| segment|overflow| free   | items     |
//   |               | for the deepest)       |        |        |lines   |        |           |
//   +---------------+------------------------+--------+--------+------- … -------+-----------+
//
// The header's page also has the serving record of a cluster (serving_record.h).
//
// Units of the index and pages of items share the space behind the directory. Units are taken from
// the bottom, pages from the top, and what one gives back the other may take.
//
// Everything that a client accepts from a READ is a *record*:
//
//   byte  0           4           8                      16
//         +-----------+-----------+----------------------+----------------- … -+
//         | version   | tag       | checksum             | contents            |
//         +-----------+-----------+----------------------+----------------- … -+
//
//   version   odd while the record is being written. Never restarts at an offset (space/region_writer.h).
//   tag       a line's generation; an item's key length, state and flags; a constant in the region
//             header and in directory pages
//   checksum  XXH3-64 of the contents, mixed with version, tag, the record's offset and the
//             region's incarnation
//
//   line      128 B: the record header and 14 words. Empty words are 0. The last is the link's.
//
//     word    63     62 61              46 45               38 37                            0
//     slot    | kind=1 | fingerprint (16) | length class (8)  | item offset / 16 (37) | X (1) |
//     link    | kind=2 | 0                                    | line offset / 8 (38)          |
//     inline  | kind=3 | key length (7) | value length (7)    | cas version (48)              |
//             followed by ceil((key length + value length) / 8) words of key, value and zeros
//             X: the item has an expiry
//
//   item      32 B of header {version, tag, checksum, value length, cas version, expiry}, key,
//             value, zeros up to a multiple of 8. A dead item is its header alone: its lengths
//             are 0.

#ifndef OSPREY_INDEX_LAYOUT_LAYOUT_H_
#define OSPREY_INDEX_LAYOUT_LAYOUT_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/types/span.h"

namespace osprey::index {

// Words are stored in the CPU's byte order, and read by another machine in the same order.
static_assert(std::endian::native == std::endian::little);

using ByteSpan = absl::Span<const std::byte>;

inline constexpr uint64_t kWordBytes = 8;
// A unit of index space: a segment, or a batch of overflow lines.
inline constexpr uint64_t kUnitBytes = 32768;
inline constexpr uint32_t kKeyBytesMax = 4096;
inline constexpr uint64_t kValueBytesMax = uint64_t{1} << 30;  // 1 GiB

struct RecordHeader {
  uint32_t version;
  uint32_t tag;
  uint64_t checksum;
};
static_assert(std::is_trivially_copyable_v<RecordHeader>);
static_assert(sizeof(RecordHeader) == 16);
static_assert(offsetof(RecordHeader, tag) == 4);
static_assert(offsetof(RecordHeader, checksum) == 8);

// --- Region header ---------------------------------------------------------

// Spells "OSPREY01". It changes with the layout.
inline constexpr uint64_t kRegionMagic = 0x313059455250534f;
inline constexpr uint32_t kLayoutVersion = 3;
inline constexpr uint32_t kRegionHeaderTag = 1;
inline constexpr uint64_t kDirectoryOffset = 4096;

struct RegionHeader {
  RecordHeader record;
  uint64_t magic;
  uint32_t layout_version;
  uint32_t directory_depth;  // the directory has 2^depth entries
  uint64_t incarnation;
  uint64_t hash_seed;
  uint64_t region_bytes;
  uint64_t units_offset;  // where unit 0 starts
};
static_assert(std::is_trivially_copyable_v<RegionHeader>);
static_assert(sizeof(RegionHeader) == 64);
static_assert(offsetof(RegionHeader, magic) == 16);
static_assert(offsetof(RegionHeader, incarnation) == 32);
static_assert(offsetof(RegionHeader, region_bytes) == 48);

// --- Directory -------------------------------------------------------------

// Entry i of 2^depth serves the keys whose hash ends in the bits of i. So doubling appends. An
// entry that was READ with an old depth still names a segment; its generation shows whether it is
// the right one.

inline constexpr uint32_t kDirectoryDepthMax = 26;
inline constexpr uint32_t kDirectoryEntriesPerPage = 510;
inline constexpr uint64_t kDirectoryPageBytes = 4096;
inline constexpr uint32_t kDirectoryPageTag = 2;

struct DirectoryPage {
  RecordHeader record;
  uint64_t entries[kDirectoryEntriesPerPage];
};
static_assert(sizeof(DirectoryPage) == kDirectoryPageBytes);

// The generation of lines whose segment no longer exists.
inline constexpr uint32_t kGenerationNone = 0;

// generation (32, high) | depth (6) | unit (26, low). A generation identifies one use of one
// segment. It is not used again before 4 billion others, is never kGenerationNone, and never looks
// like the tag of an item (NextGeneration). `depth` is the number of low hash bits that all keys of
// the segment share.
struct DirectoryEntry {
  uint32_t unit = 0;
  uint32_t depth = 0;
  uint32_t generation = 0;

  constexpr uint64_t Pack() const {
    return uint64_t{generation} << 32 | uint64_t{depth} << 26 | unit;
  }
  static constexpr DirectoryEntry Unpack(uint64_t word) {
    return {static_cast<uint32_t>(word & ((1u << 26) - 1)), static_cast<uint32_t>(word >> 26 & 63),
            static_cast<uint32_t>(word >> 32)};
  }
};

// The largest depth of the directory of a region of `region_bytes`, for which space is reserved. It
// allows four entries for every unit that fits. Hashes are uniform, so segments differ in depth by
// one or two. (0.1 % of the region.)
constexpr uint32_t DirectoryDepthLimit(uint64_t region_bytes) {
  const uint64_t units = region_bytes / kUnitBytes;
  const uint32_t depth = units == 0 ? 0 : static_cast<uint32_t>(std::bit_width(4 * units - 1));
  return depth < kDirectoryDepthMax ? depth : kDirectoryDepthMax;
}
constexpr uint64_t DirectoryPages(uint32_t depth) {
  return ((uint64_t{1} << depth) + kDirectoryEntriesPerPage - 1) / kDirectoryEntriesPerPage;
}
// The offset of entry `index`.
constexpr uint64_t DirectoryEntryOffset(uint64_t index) {
  return kDirectoryOffset + index / kDirectoryEntriesPerPage * kDirectoryPageBytes +
         offsetof(DirectoryPage, entries) + index % kDirectoryEntriesPerPage * kWordBytes;
}
// The offset of unit 0, after the space of the deepest directory.
constexpr uint64_t UnitsOffset(uint64_t region_bytes) {
  return kDirectoryOffset + DirectoryPages(DirectoryDepthLimit(region_bytes)) * kDirectoryPageBytes;
}

// --- Lines -----------------------------------------------------------------

inline constexpr uint32_t kLineWords = 14;
inline constexpr uint64_t kLineBytes = 128;
inline constexpr uint64_t kWindowBytes = 2 * kLineBytes;
inline constexpr uint32_t kLinesPerUnit = kUnitBytes / kLineBytes;
// The last line of a segment is no key's home. It is only the second line of the last window.
inline constexpr uint32_t kHomesPerSegment = kLinesPerUnit - 1;
// The last word of every line is reserved for the link, since a key may not be moved out to make
// space for it. The words before it hold keys, without gaps.
inline constexpr uint32_t kLinkWord = kLineWords - 1;
inline constexpr uint32_t kLineWordsUsable = kLineWords - 1;
inline constexpr uint32_t kChainLinesMax = 8;  // overflow lines of one home
// The most words of an inline item, its header word included. Longer ones pack badly into lines,
// and an item outside the line is as cheap.
inline constexpr uint32_t kInlineWordsMax = 6;

struct Line {
  RecordHeader record;  // tag: generation of the segment
  uint64_t words[kLineWords];
};
static_assert(sizeof(Line) == kLineBytes);

enum class WordKind : uint8_t { kEmpty = 0, kSlot = 1, kLink = 2, kInline = 3 };

constexpr WordKind KindOf(uint64_t word) { return static_cast<WordKind>(word >> 62); }

// Cas versions come from one counter for the whole server and have 48 bits. They do not wrap: a
// server that has used all of them (10 million writes a second for 325 days) refuses writes.
inline constexpr uint64_t kCasVersionMax = (uint64_t{1} << 48) - 1;

inline constexpr uint64_t kOffsetBits = 38;  // in words: regions up to 2 TiB
inline constexpr uint64_t kOffsetMask = (uint64_t{1} << kOffsetBits) - 1;
inline constexpr uint64_t kRegionBytesMax = (uint64_t{1} << kOffsetBits) * kWordBytes;

// Items start at multiples of this, so a slot has one bit left.
inline constexpr uint64_t kItemAlignmentBytes = 16;

struct Slot {
  uint64_t offset = 0;  // of the item, in bytes, a multiple of kItemAlignmentBytes
  uint32_t length_class = 0;
  uint32_t fingerprint = 0;
  // The item has an expiry. Readers that count keys or look for expired ones skip slots without it.
  bool has_expiry = false;

  constexpr uint64_t Pack() const {
    return uint64_t{1} << 62 | uint64_t{fingerprint} << 46 | uint64_t{length_class} << kOffsetBits |
           offset / kWordBytes | uint64_t{has_expiry};
  }
  static constexpr Slot Unpack(uint64_t word) {
    return {(word & kOffsetMask & ~uint64_t{1}) * kWordBytes,
            static_cast<uint32_t>(word >> kOffsetBits & 255),
            static_cast<uint32_t>(word >> 46 & 65535), (word & 1) != 0};
  }
};
static_assert(kItemAlignmentBytes == 2 * kWordBytes);

constexpr uint64_t PackLink(uint64_t line_offset) {
  return uint64_t{2} << 62 | line_offset / kWordBytes;
}
constexpr uint64_t LinkOffset(uint64_t word) { return (word & kOffsetMask) * kWordBytes; }

struct InlineHead {
  uint32_t key_length = 0;
  uint32_t value_length = 0;
  uint64_t cas_version = 0;

  constexpr uint64_t Pack() const {
    return uint64_t{3} << 62 | uint64_t{key_length} << 55 | uint64_t{value_length} << 48 |
           cas_version;
  }
  static constexpr InlineHead Unpack(uint64_t word) {
    return {static_cast<uint32_t>(word >> 55 & 127), static_cast<uint32_t>(word >> 48 & 127),
            word & kCasVersionMax};
  }
  // The words of the item, this one included.
  constexpr uint32_t words() const { return 1 + (key_length + value_length + 7) / 8; }
};

// A length class stands for a READ length in bytes, at least the record's. Steps of 16 B up to 1
// KiB, then 8 steps an octave:
//
//   class           0   1   2 …   63    64    65 …   71    72    73 …        255
//   READ length B  16  32  48 … 1024  1152  1280 … 2048  2304  2560 …   16 GiB
//
// ReadLengthOf(LengthClassOf(n)) >= n, and at most 12.5 % above it (or 15 B).
inline constexpr uint64_t kLengthStepBytes = 16;
inline constexpr uint64_t kLengthStepsEndBytes = 1024;
inline constexpr uint32_t kLengthStepsEndClass = kLengthStepsEndBytes / kLengthStepBytes;

// REQUIRES: bytes at most ReadLengthOf(255).
constexpr uint32_t LengthClassOf(uint64_t bytes) {
  if (bytes <= kLengthStepsEndBytes) {
    return bytes == 0 ? 0 : static_cast<uint32_t>((bytes - 1) / kLengthStepBytes);
  }
  const int octave = std::bit_width(bytes - 1) - 1;  // 2^octave < bytes <= 2^(octave + 1)
  const uint64_t step = (bytes - 1) >> (octave - 3) & 7;
  return kLengthStepsEndClass + static_cast<uint32_t>(octave - 10) * 8 +
         static_cast<uint32_t>(step);
}
constexpr uint64_t ReadLengthOf(uint32_t length_class) {
  if (length_class < kLengthStepsEndClass) return (uint64_t{length_class} + 1) * kLengthStepBytes;
  const uint32_t above = length_class - kLengthStepsEndClass;
  return uint64_t{9 + above % 8} << (above / 8 + 7);
}
static_assert(LengthClassOf(ReadLengthOf(255)) == 255);

// --- Items -----------------------------------------------------------------

// Server time at which an item expires: nanoseconds since 1970 in steps of 2^16 (65.5 us), rounded
// up. 48 bits last until 2554. 0: never.
inline constexpr int kExpiryStepBits = 16;
inline constexpr uint64_t kExpiryStepsMax = (uint64_t{1} << 48) - 1;

// The expiry is split, to use the bits that lengths and versions leave.
struct ItemHeader {
  RecordHeader record;
  uint64_t length_word;  // expiry's upper bits (32, high) | value length (32, low)
  uint64_t cas_word;     // expiry's lower bits (16, high) | cas version (48, low)
};
static_assert(sizeof(ItemHeader) == 32);
static_assert(offsetof(ItemHeader, length_word) == 16);
static_assert(offsetof(ItemHeader, cas_word) == 24);

// The fields of an item's header besides the record header.
struct ItemFields {
  uint64_t value_length = 0;
  uint64_t cas_version = 0;
  uint64_t expiry_ns = 0;  // a multiple of the step; 0: none

  constexpr uint64_t length_word() const {
    return expiry_ns >> kExpiryStepBits >> 16 << 32 | value_length;
  }
  constexpr uint64_t cas_word() const {
    return (expiry_ns >> kExpiryStepBits & 65535) << 48 | cas_version;
  }
  static constexpr ItemFields Unpack(const ItemHeader& header) {
    return {header.length_word & 0xffffffff, header.cas_word & kCasVersionMax,
            (header.length_word >> 32 << 16 | header.cas_word >> 48) << kExpiryStepBits};
  }
};
static_assert(kValueBytesMax <= 0xffffffff);

// The first expiry not before that time. Never 0.
constexpr uint64_t RoundUpToExpiry(uint64_t server_time_ns) {
  constexpr uint64_t kRest = (uint64_t{1} << kExpiryStepBits) - 1;
  const uint64_t steps = (server_time_ns >> kExpiryStepBits) + ((server_time_ns & kRest) != 0);
  if (steps == 0) return uint64_t{1} << kExpiryStepBits;
  return (steps < kExpiryStepsMax ? steps : kExpiryStepsMax) << kExpiryStepBits;
}

enum class ItemState : uint8_t { kNone = 0, kLive = 1, kDead = 2 };

// An item's tag: key length (16, low) | state (8) | 0 (8, high).
struct ItemTag {
  uint32_t key_length = 0;
  ItemState state = ItemState::kNone;

  constexpr uint32_t Pack() const {
    return key_length | uint32_t{static_cast<uint8_t>(state)} << 16;
  }
  // A tag whose upper bits are not 0 has no state: no writer wrote it.
  static constexpr ItemTag Unpack(uint32_t tag) {
    return {tag & 65535,
            tag >> 24 == 0 ? static_cast<ItemState>(tag >> 16 & 255) : ItemState::kNone};
  }
};

// The generation after `generation`. Tags of items are passed over, so that no line is taken for an
// item that is at its place later, or was before. After the last one they begin again.
constexpr uint32_t NextGeneration(uint32_t generation) {
  const uint32_t next = generation + 1;
  if (next == kGenerationNone) return 1;
  return next >> 16 != 0 && next >> 24 == 0 ? uint32_t{1} << 24 : next;
}
static_assert(NextGeneration(UINT32_MAX) != kGenerationNone);
static_assert(ItemTag::Unpack(NextGeneration(0xfffe)).state == ItemState::kNone);
static_assert(ItemTag::Unpack(NextGeneration(0xffff)).state == ItemState::kNone);

constexpr uint64_t RoundUpToWords(uint64_t bytes) {
  return (bytes + kWordBytes - 1) / kWordBytes * kWordBytes;
}
// The length of a whole item: header, key, value and padding.
constexpr uint64_t ItemBytes(uint64_t key_length, uint64_t value_length) {
  return RoundUpToWords(sizeof(ItemHeader) + key_length + value_length);
}
inline constexpr uint64_t kItemBytesMax = ItemBytes(kKeyBytesMax, kValueBytesMax);
static_assert(LengthClassOf(kItemBytesMax) < 256);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LAYOUT_LAYOUT_H_
