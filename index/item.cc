#include "index/item.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "index/test_hooks.h"

namespace osprey::index {
namespace {

absl::string_view KeyIn(ByteSpan bytes, ItemTag tag) {
  const uint64_t from = std::min<uint64_t>(ItemKeyOffset(tag.flags), bytes.size());
  const uint64_t length = std::min<uint64_t>(tag.key_length, bytes.size() - from);
  return {reinterpret_cast<const char*>(bytes.data() + from), length};
}

// An item longer than the bytes read cannot be checked. It is worth a longer READ only if what was
// read is consistent with the key's item; other bytes must not make a reader fetch as much as they
// please.
ItemReading JudgeLonger(ByteSpan bytes, ItemTag tag, uint64_t needed, absl::string_view key) {
  const absl::string_view begun = KeyIn(bytes, tag);
  const bool plausible = tag.state == ItemState::kLive && tag.key_length == key.size() &&
                         key.substr(0, begun.size()) == begun;
  if (!plausible) return {};
  ItemReading reading;
  reading.verdict = ItemVerdict::kTooShort;
  reading.bytes_needed = needed;
  return reading;
}

ItemReading JudgeWhole(ByteSpan record, const ItemHeader& header, ItemTag tag,
                       absl::string_view key) {
  ItemReading reading;
  if (tag.state != ItemState::kLive && !Seeded(SeededBug::kStateNotCompared)) {
    reading.verdict = ItemVerdict::kDead;
    return reading;
  }
  if (KeyIn(record, tag) != key && !Seeded(SeededBug::kKeyNotCompared)) {
    reading.verdict = ItemVerdict::kOther;
    return reading;
  }
  reading.verdict = ItemVerdict::kLive;
  reading.has_expiry = (tag.flags & kItemHasExpiry) != 0;
  reading.cas_version = header.cas_version;
  reading.value = record.subspan(ItemKeyOffset(tag.flags) + tag.key_length, header.value_length);
  return reading;
}

// Whether the bytes of `key` are where an item with these flags has its key.
bool HoldsKey(ByteSpan bytes, uint8_t flags, absl::string_view key) {
  const uint64_t from = ItemKeyOffset(flags);
  if (bytes.size() < from + key.size()) return false;
  return absl::string_view(reinterpret_cast<const char*>(bytes.data() + from), key.size()) == key;
}

}  // namespace

ItemReading ReadItem(ByteSpan bytes, RecordPlace place, absl::string_view key) {
  assert(bytes.size() >= sizeof(ItemHeader));
  ItemHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const ItemTag tag = ItemTag::Unpack(header.record.tag);
  if (IsBeingWritten(header.record.version)) return {};
  if (tag.key_length > kKeyBytesMax || header.value_length > kValueBytesMax) return {};
  const uint64_t needed = ItemBytes(tag.key_length, header.value_length, tag.flags);
  if (needed > bytes.size()) return JudgeLonger(bytes, tag, needed, key);
  const ByteSpan record = bytes.first(needed);
  if (!Seeded(SeededBug::kNoItemChecksum) && !RecordIsWhole(record, place)) return {};
  return JudgeWhole(record, header, tag, key);
}

ItemReading ReadAnyItem(ByteSpan bytes, RecordPlace place) {
  assert(bytes.size() >= sizeof(ItemHeader));
  ItemHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const ItemTag tag = ItemTag::Unpack(header.record.tag);
  const absl::string_view begun = KeyIn(bytes, tag);
  ItemReading reading = ReadItem(bytes, place, begun);
  const bool possible = !IsBeingWritten(header.record.version) && tag.key_length <= kKeyBytesMax &&
                        header.value_length <= kValueBytesMax;
  const uint64_t needed = ItemBytes(tag.key_length, header.value_length, tag.flags);
  if (possible && needed > bytes.size() && tag.state == ItemState::kLive && tag.key_length > 0) {
    reading.verdict = ItemVerdict::kTooShort;
    reading.bytes_needed = needed;
  }
  if (reading.verdict != ItemVerdict::kLive && reading.verdict != ItemVerdict::kTooShort)
    return reading;
  reading.cas_version = header.cas_version;
  reading.value_length = header.value_length;
  if (begun.size() == tag.key_length) reading.key = begun;
  return reading;
}

// The tag is not asked: it changes when the item dies, and a torn one might name any place and any
// length of the key.
ItemReading ReadItemHead(ByteSpan bytes, RecordPlace place, absl::string_view key) {
  ItemReading reading = ReadItem(bytes, place, key);
  if (reading.verdict == ItemVerdict::kTorn && !HoldsKey(bytes, 0, key) &&
      !HoldsKey(bytes, kItemHasExpiry, key)) {
    reading.verdict = ItemVerdict::kOther;
  }
  return reading;
}

}  // namespace osprey::index
