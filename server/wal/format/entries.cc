#include "server/wal/format/entries.h"

#include <cassert>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/wal/format/checksum.h"
#include "server/wal/format/format.h"

namespace osprey::server::wal {
namespace {

constexpr uint64_t kEntryAlignment = 8;
constexpr uint8_t kEntryFlags = kHasResult | kHasBase | kIsLong | kInPieces | kHasNumber;

// A builder keeps no more memory for its next group.
constexpr uint64_t kKeptBytesMax = 256 << 10;

uint64_t Padding(uint64_t bytes) { return RoundUp(bytes, kEntryAlignment) - bytes; }

// Copies `bytes` to `to`, and moves it behind them.
void Put(Bytes bytes, char*& to) {
  if (bytes.empty()) return;
  std::memcpy(to, bytes.data(), bytes.size());
  to += bytes.size();
}

// Takes objects from the front of bytes, and never more than there are.
class Cursor {
 public:
  explicit Cursor(Bytes bytes) : left_(bytes) {}

  template <typename T>
  bool Take(T& object) {
    if (left_.size() < sizeof(T)) return false;
    std::memcpy(&object, left_.data(), sizeof(T));
    left_.remove_prefix(sizeof(T));
    return true;
  }
  bool Take(uint64_t count, Bytes& bytes) {
    if (left_.size() < count) return false;
    bytes = left_.first(count);
    left_.remove_prefix(count);
    return true;
  }
  uint64_t left() const { return left_.size(); }
  Bytes rest() const { return left_; }

 private:
  Bytes left_;
};

bool HasKey(EntryKind kind) {
  switch (kind) {
    case EntryKind::kPut:
    case EntryKind::kExtend:
    case EntryKind::kDelete:
    case EntryKind::kExpire:
    case EntryKind::kValuePart:
      return true;
    case EntryKind::kSessionBegin:
    case EntryKind::kSessionEnd:
    case EntryKind::kTerm:
    case EntryKind::kShardReset:
    case EntryKind::kFlushBound:
    case EntryKind::kTimeMark:
    case EntryKind::kPartsDropped:
      return false;
  }
  return false;
}

std::string CheckHeader(const EntryHeader& header) {
  const auto kind = static_cast<EntryKind>(header.kind);
  if (kind < EntryKind::kPut || kind > EntryKind::kPartsDropped)
    return absl::StrCat("an entry has the unknown kind ", header.kind);
  if ((header.flags & ~kEntryFlags) != 0) return "an entry has unknown flags";
  if (header.key_length > kKeyBytesMax || (header.key_length == 0) == HasKey(kind))
    return absl::StrCat("an entry's key has ", header.key_length, " bytes");
  if (header.value_length > kValueBytesMax)
    return absl::StrCat("an entry's value has ", header.value_length, " bytes");
  if (((header.flags & kIsLong) != 0) != (header.value_length > kShortValueBytesMax))
    return "an entry's value has a checksum, or none, against its length";
  if ((header.flags & kInPieces) != 0 && (header.flags & kIsLong) == 0)
    return "a short value is in pieces";
  if (((header.flags & kHasBase) != 0) != (kind == EntryKind::kExtend))
    return "an entry has a base, or none, against its kind";
  if ((header.flags & kHasNumber) != 0 && (header.flags & kHasResult) == 0)
    return "an entry has a number and no result";
  return "";
}

std::string ParsePieces(Cursor& cursor, uint32_t count, Entry& entry) {
  if (count == 0 || cursor.left() / sizeof(PieceRef) < count)
    return absl::StrCat("an entry names ", count, " pieces");
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < count; ++i) {
    PieceRef piece;
    cursor.Take(piece);
    if (piece.length == 0 || piece.length > kPieceBytesMax || piece.record == 0 ||
        piece.reserved != 0) {
      return "an entry names an impossible piece";
    }
    bytes += piece.length;
    entry.pieces.push_back(piece);
  }
  if (bytes != entry.value_length) return "an entry's pieces are not as long as its value";
  return "";
}

// `bytes` is the entry from behind its header to its end.
std::string ParseEntry(const EntryHeader& header, Bytes bytes, Entry& entry) {
  if (std::string wrong = CheckHeader(header); !wrong.empty()) return wrong;
  entry.kind = static_cast<EntryKind>(header.kind);
  entry.term = header.term;
  entry.version = header.version;
  entry.expiry = header.expiry;
  entry.client = header.client;
  entry.sequence = header.sequence;
  entry.value_length = header.value_length;
  Cursor cursor(bytes);
  constexpr char kCutOff[] = "an entry is cut off";
  if ((header.flags & kHasResult) != 0 && !cursor.Take(entry.result.emplace())) return kCutOff;
  entry.has_number = (header.flags & kHasNumber) != 0;
  if ((header.flags & kHasBase) != 0 && !cursor.Take(entry.base.emplace())) return kCutOff;
  LongValue long_value;
  if ((header.flags & kIsLong) != 0 && !cursor.Take(long_value)) return kCutOff;
  if (long_value.reserved != 0) return "reserved bytes are not zero";
  entry.value_checksum = long_value.checksum;
  Bytes key;
  if (!cursor.Take(header.key_length, key)) return kCutOff;
  entry.key = TextOf(key);
  if ((header.flags & kInPieces) != 0) {
    std::string wrong = ParsePieces(cursor, long_value.pieces, entry);
    if (!wrong.empty()) return wrong;
  } else {
    if (long_value.pieces != 0) return "an entry has its value both here and in pieces";
    if (!cursor.Take(header.value_length, entry.value)) return kCutOff;
  }
  if (cursor.left() >= kEntryAlignment || HasBits(cursor.rest()))
    return "an entry is longer than its parts";
  return "";
}

}  // namespace

void GroupBuilder::Reset(const GroupHeader& header) {
  header_ = header;
  header_.count = 0;
  if (copied_.size() > kKeptBytesMax) std::string().swap(copied_);
  copied_bytes_ = 0;
  pinned_.clear();
  pinned_bytes_ = 0;
  Extend(sizeof(header_));
}

void GroupBuilder::Grow() { copied_.resize(2 * copied_bytes_); }

// The place behind the header of an entry of so many bytes with it, of which the last but the padding
// may be pinned.
[[gnu::always_inline]] inline char* GroupBuilder::Begin(EntryHeader& header, uint64_t bytes,
                                                        uint64_t pinned_bytes) {
  header.length = static_cast<uint32_t>(RoundUp(bytes, kEntryAlignment));
  char* const to = Extend(header.length - pinned_bytes);
  // The padding and what is before it, which the entry's parts replace.
  static_assert(sizeof(header) >= kEntryAlignment);
  std::memset(to + header.length - pinned_bytes - kEntryAlignment, 0, kEntryAlignment);
  std::memcpy(to, &header, sizeof(header));
  ++header_.count;
  return to + sizeof(header);
}

void GroupBuilder::Add(const ShortPut& put) {
  assert(put.value.size() <= kShortValueBytesMax);
  EntryHeader header;
  header.kind = static_cast<uint8_t>(EntryKind::kPut);
  header.key_length = static_cast<uint16_t>(put.key.size());
  header.value_length = put.value.size();
  header.version = put.version;
  header.expiry = put.expiry;
  header.client = put.client;
  header.sequence = put.sequence;
  char* to = Begin(header, sizeof(header) + put.key.size() + put.value.size(), 0);
  Put(BytesOfText(put.key), to);
  Put(put.value, to);
}

void GroupBuilder::Add(const Entry& entry) {
  const bool in_pieces = !entry.pieces.empty();
  const bool is_long = entry.value_length > kShortValueBytesMax;
  assert(!entry.has_number || entry.result.has_value());
  assert(in_pieces ? entry.value.empty() : entry.value.size() == entry.value_length);
  EntryHeader header;
  header.kind = static_cast<uint8_t>(entry.kind);
  header.flags = static_cast<uint8_t>(
      (entry.result.has_value() ? kHasResult : 0) | (entry.base.has_value() ? kHasBase : 0) |
      (is_long ? kIsLong : 0) | (in_pieces ? kInPieces : 0) | (entry.has_number ? kHasNumber : 0));
  header.key_length = static_cast<uint16_t>(entry.key.size());
  header.value_length = entry.value_length;
  header.term = entry.term;
  header.version = entry.version;
  header.expiry = entry.expiry;
  header.client = entry.client;
  header.sequence = entry.sequence;
  const uint64_t before_value = sizeof(header) +
                                (entry.result.has_value() ? sizeof(EntryResult) : 0) +
                                (entry.base.has_value() ? sizeof(EntryBase) : 0) +
                                (is_long ? sizeof(LongValue) : 0) + entry.key.size();
  const uint64_t value_bytes =
      in_pieces ? entry.pieces.size() * sizeof(PieceRef) : entry.value_length;
  const bool is_pinned = is_long && !in_pieces;
  char* to = Begin(header, before_value + value_bytes, is_pinned ? value_bytes : 0);
  if (entry.result.has_value()) Put(BytesOf(*entry.result), to);
  if (entry.base.has_value()) Put(BytesOf(*entry.base), to);
  if (is_long) {
    const LongValue value{entry.value_checksum, static_cast<uint32_t>(entry.pieces.size()), 0};
    Put(BytesOf(value), to);
  }
  Put(BytesOfText(entry.key), to);
  for (const PieceRef& piece : entry.pieces) Put(BytesOf(piece), to);
  if (is_pinned) {
    pinned_.emplace_back(copied_bytes_ - Padding(before_value + value_bytes), entry.value);
    pinned_bytes_ += entry.value.size();
  } else {
    Put(entry.value, to);
  }
}

BodyParts GroupBuilder::Parts() {
  std::memcpy(copied_.data(), &header_, sizeof(header_));
  BodyParts parts;
  const Bytes copied = BytesOfText(copied_).first(copied_bytes_);
  size_t begin = 0;
  for (const auto& [end, value] : pinned_) {
    parts.push_back({copied.subspan(begin, end - begin), false});
    parts.push_back({value, true});
    begin = end;
  }
  parts.push_back({copied.subspan(begin), false});
  return parts;
}

std::string ParseGroup(Bytes body, Group& group) {
  group.entries.clear();
  Cursor cursor(body);
  if (!cursor.Take(group.header)) return "a group is cut off";
  if (group.header.reserved0 != 0 || group.header.reserved1 != 0)
    return "reserved bytes are not zero";
  if ((group.header.flags & ~kAtomic) != 0) return "a group has unknown flags";
  while (cursor.left() > 0) {
    EntryHeader header;
    Bytes rest;
    if (!cursor.Take(header) || header.length < sizeof(header) ||
        header.length % kEntryAlignment != 0 ||
        !cursor.Take(header.length - sizeof(header), rest)) {
      return "an entry is cut off";
    }
    std::string wrong = ParseEntry(header, rest, group.entries.emplace_back());
    if (!wrong.empty()) return wrong;
  }
  if (group.entries.size() != group.header.count)
    return absl::StrCat("a group has ", group.entries.size(), " entries, and should have ",
                        group.header.count);
  return "";
}

}  // namespace osprey::server::wal
