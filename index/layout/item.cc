#include "index/layout/item.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "index/layout/hash.h"
#include "index/layout/short_bytes.h"
#include "index/layout/test_hooks.h"

namespace osprey::index {
namespace {

absl::string_view KeyIn(ByteSpan bytes, ItemTag tag) {
  const uint64_t from = std::min<uint64_t>(sizeof(ItemHeader), bytes.size());
  const uint64_t length = std::min<uint64_t>(tag.key_length, bytes.size() - from);
  return {reinterpret_cast<const char*>(bytes.data() + from), length};
}

// Of a whole item.
bool HoldsKey(ByteSpan record, ItemTag tag, absl::string_view key) {
  return tag.key_length == key.size() &&
         EqualBytes(record.data() + sizeof(ItemHeader), key.data(), key.size());
}

// An item longer than the bytes read cannot be checked. It is READ in full only if the bytes read
// are consistent with the key's item. Otherwise arbitrary bytes could make a reader fetch any
// amount.
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
  if (tag.state != ItemState::kLive && !IsMutant(Mutant::kStateNotCompared)) {
    reading.verdict = ItemVerdict::kDead;
    return reading;
  }
  if (!HoldsKey(record, tag, key) && !IsMutant(Mutant::kKeyNotCompared)) {
    reading.verdict = ItemVerdict::kOther;
    return reading;
  }
  reading.verdict = ItemVerdict::kLive;
  const ItemFields fields = ItemFields::Unpack(header);
  reading.cas_version = fields.cas_version;
  reading.expiry_ns = fields.expiry_ns;
  reading.value = record.subspan(sizeof(ItemHeader) + tag.key_length, fields.value_length);
  return reading;
}

// Whether `bytes` holds `key` at an item's key position.
bool HoldsKey(ByteSpan bytes, absl::string_view key) {
  if (bytes.size() < sizeof(ItemHeader) + key.size()) return false;
  return std::memcmp(bytes.data() + sizeof(ItemHeader), key.data(), key.size()) == 0;
}

}  // namespace

bool ItemIsWhole(ByteSpan item, RecordPlace place) {
  assert(item.size() >= sizeof(ItemHeader));
  ItemHeader header;
  std::memcpy(&header, item.data(), sizeof(header));
  if (IsBeingWritten(header.record.version)) return false;
  return header.record.checksum ==
         ItemChecksum(HashBytes(item.subspan(sizeof(ItemHeader))), header, place);
}

ItemReading ReadItem(ByteSpan bytes, RecordPlace place, absl::string_view key) {
  assert(bytes.size() >= sizeof(ItemHeader));
  ItemHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const ItemTag tag = ItemTag::Unpack(header.record.tag);
  if (IsBeingWritten(header.record.version)) return {};
  const uint64_t value_length = ItemFields::Unpack(header).value_length;
  if (tag.key_length > kKeyBytesMax || value_length > kValueBytesMax) return {};
  const uint64_t needed = ItemBytes(tag.key_length, value_length);
  if (needed > bytes.size()) return JudgeLonger(bytes, tag, needed, key);
  const ByteSpan record = bytes.first(needed);
  if (!IsMutant(Mutant::kNoItemChecksum) && !ItemIsWhole(record, place)) return {};
  return JudgeWhole(record, header, tag, key);
}

ItemReading ReadAnyItem(ByteSpan bytes, RecordPlace place) {
  assert(bytes.size() >= sizeof(ItemHeader));
  ItemHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const ItemTag tag = ItemTag::Unpack(header.record.tag);
  const absl::string_view begun = KeyIn(bytes, tag);
  const ItemFields fields = ItemFields::Unpack(header);
  ItemReading reading = ReadItem(bytes, place, begun);
  const bool possible = !IsBeingWritten(header.record.version) && tag.key_length <= kKeyBytesMax &&
                        fields.value_length <= kValueBytesMax;
  const uint64_t needed = ItemBytes(tag.key_length, fields.value_length);
  if (possible && needed > bytes.size() && tag.state == ItemState::kLive && tag.key_length > 0) {
    reading.verdict = ItemVerdict::kTooShort;
    reading.bytes_needed = needed;
  }
  if (reading.verdict != ItemVerdict::kLive && reading.verdict != ItemVerdict::kTooShort)
    return reading;
  reading.cas_version = fields.cas_version;
  reading.expiry_ns = fields.expiry_ns;
  reading.value_length = fields.value_length;
  if (begun.size() == tag.key_length) reading.key = begun;
  return reading;
}

// The tag is not used. It changes when the item dies, and a torn tag may name any state and any key
// length.
ItemReading ReadItemHead(ByteSpan bytes, RecordPlace place, absl::string_view key) {
  ItemReading reading = ReadItem(bytes, place, key);
  if (reading.verdict == ItemVerdict::kTorn && !HoldsKey(bytes, key)) {
    reading.verdict = ItemVerdict::kOther;
  }
  return reading;
}

}  // namespace osprey::index
