#include "server/cluster/table/copy_chunk.h"

#include <cassert>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "index/layout/layout.h"
#include "server/cluster/replication/test_hooks.h"
#include "server/cluster/table/value_parts.h"
#include "server/durability/entry_effects.h"
#include "server/durability/session_bytes.h"

namespace osprey::server {
namespace {

constexpr uint64_t kAlignment = 8;

uint64_t Padding(uint64_t bytes) { return (kAlignment - bytes % kAlignment) % kAlignment; }

template <typename T>
bool Take(absl::string_view& bytes, T& to) {
  if (bytes.size() < sizeof(T)) return false;
  std::memcpy(&to, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return true;
}

bool TakeText(absl::string_view& bytes, uint64_t length, absl::string_view& to) {
  if (bytes.size() < length) return false;
  to = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return true;
}

std::string TakeItem(absl::string_view& bytes, CopiedItem& item) {
  ChunkItemHeader header;
  if (!Take(bytes, header)) return "an item is cut off";
  if (header.key_length == 0 || header.key_length > index::kKeyBytesMax)
    return absl::StrCat("an item's key has ", header.key_length, " bytes");
  if (header.value_length > kReplicatedValueBytesMax)
    return absl::StrCat("an item's value has ", header.value_length, " bytes");
  const absl::string_view wrong = WhyImpossible(header.version, header.expiry);
  if (!wrong.empty()) return std::string(wrong);
  absl::string_view value, padding;
  const uint64_t length = uint64_t{header.key_length} + header.value_length;
  if (!TakeText(bytes, header.key_length, item.key) ||
      !TakeText(bytes, header.value_length, value) || !TakeText(bytes, Padding(length), padding)) {
    return "an item is cut off";
  }
  if (padding.find_first_not_of('\0') != absl::string_view::npos) return "padding is not zero";
  item.value = wal::BytesOfText(value);
  item.version = header.version;
  item.expiry_ns = header.expiry;
  return "";
}

std::string TakeSession(absl::string_view& bytes, SessionImage& session) {
  uint64_t length = 0;
  absl::string_view text;
  if (!Take(bytes, length) || !TakeText(bytes, length, text)) return "a session is cut off";
  return DecodeSession(wal::BytesOfText(text), session);
}

std::string WhyWrong(const ChunkPart& part, uint64_t length) {
  if (length > 0 && part.bytes > kReplicatedValueBytesMax && part.bytes <= wal::kValueBytesMax &&
      part.offset < part.bytes && length <= part.bytes - part.offset) {
    return "";
  }
  return absl::StrCat("a part of a value has ", length, " bytes at ", part.offset, " of ",
                      part.bytes);
}

std::string Parse(absl::string_view bytes, Chunk& chunk) {
  ChunkHeader header;
  if (!Take(bytes, header)) return "it is cut off";
  if ((header.flags & ~(kLastChunk | kPartOfValue)) != 0) return "it has unknown flags";
  if (header.reserved != 0) return "reserved bytes are not zero";
  if (header.last_version > index::kCasVersionMax) return "it has an impossible version";
  chunk.is_last = (header.flags & kLastChunk) != 0;
  if (header.time_mark > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return "it has an impossible mark of time";
  chunk.last_version = header.last_version;
  chunk.time_mark_ns = header.time_mark;
  if ((header.flags & kPartOfValue) != 0) {
    if (header.items != 1) return "a part of a value is not alone";
    if (!Take(bytes, chunk.part.emplace())) return "it is cut off";
  }
  for (uint32_t i = 0; i < header.items; ++i) {
    std::string wrong = TakeItem(bytes, chunk.items.emplace_back());
    if (!wrong.empty()) return wrong;
  }
  if (chunk.part.has_value()) {
    if (std::string wrong = WhyWrong(*chunk.part, chunk.items[0].value.size()); !wrong.empty())
      return wrong;
  }
  for (uint32_t i = 0; i < header.sessions; ++i) {
    std::string wrong = TakeSession(bytes, chunk.sessions.emplace_back());
    if (!wrong.empty()) return wrong;
  }
  return bytes.empty() ? "" : "it is longer than its parts";
}

}  // namespace

void ChunkBuilder::Clear() {
  header_ = {};
  bytes_.assign(sizeof(header_), '\0');
}

void ChunkBuilder::AddItem(const CopiedItem& item) {
  assert(header_.sessions == 0 && item.value.size() <= kReplicatedValueBytesMax);
  ChunkItemHeader header;
  header.key_length = static_cast<uint32_t>(item.key.size());
  header.value_length = static_cast<uint32_t>(item.value.size());
  header.version = item.version;
  header.expiry = item.expiry_ns;
  absl::StrAppend(&bytes_, wal::TextOf(wal::BytesOf(header)), item.key, wal::TextOf(item.value));
  bytes_.append(Padding(bytes_.size()), '\0');
  ++header_.items;
}

void ChunkBuilder::AddPart(const CopiedItem& item, const ChunkPart& part) {
  assert(header_.items == 0 && header_.sessions == 0);
  header_.flags = kPartOfValue;
  absl::StrAppend(&bytes_, wal::TextOf(wal::BytesOf(part)));
  AddItem(item);
}

void ChunkBuilder::AddSession(const SessionImage& session) {
  const std::string text = EncodeSession(session);
  const uint64_t length = text.size();
  absl::StrAppend(&bytes_, wal::TextOf(wal::BytesOf(length)), text);
  ++header_.sessions;
}

std::string ChunkBuilder::Finish(bool is_last, uint64_t last_version, uint64_t time_mark_ns) {
  header_.flags |= is_last ? kLastChunk : 0;
  header_.last_version = last_version;
  header_.time_mark = IsMistake(ReplicationMistake::kCopyWithoutMark) ? 0 : time_mark_ns;
  std::memcpy(bytes_.data(), &header_, sizeof(header_));
  std::string bytes = std::move(bytes_);
  Clear();
  return bytes;
}

absl::StatusOr<Chunk> ParseChunk(absl::string_view bytes) {
  Chunk chunk;
  const std::string wrong = Parse(bytes, chunk);
  if (!wrong.empty())
    return absl::DataLossError(absl::StrCat("a chunk of a replica's copy is damaged: ", wrong));
  return chunk;
}

}  // namespace osprey::server
