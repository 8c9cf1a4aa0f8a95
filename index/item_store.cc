#include "index/item_store.h"

#include <cassert>
#include <cstring>

#include "index/hash.h"
#include "index/record.h"

namespace osprey::index {
namespace {

constexpr uint64_t kContentsOffset = sizeof(RecordHeader);

uint32_t LiveTag(uint64_t key_length) {
  return ItemTag{static_cast<uint32_t>(key_length), ItemState::kLive, 0}.Pack();
}

ByteSpan BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

ItemStore::ItemStore(RegionWriter& writer, RegionSpace& space, absl::Duration grace)
    : writer_(writer), space_(space, grace) {}

absl::optional<uint64_t> ItemStore::Begin(absl::string_view key, uint64_t value_length,
                                          absl::Time now, Fit fit) {
  const uint64_t bytes = ItemBytes(key.size(), value_length, 0);
  const absl::optional<uint64_t> offset = space_.Allocate(bytes, now, fit);
  if (!offset.has_value()) return absl::nullopt;
  writer_.Begin(*offset, RecordVersion(writer_.cas_version()), LiveTag(key.size()));
  writer_.Store(*offset + offsetof(ItemHeader, value_length), value_length);
  // The last word first, for its padding; the key's own last word may be the same one.
  writer_.Store(*offset + bytes - kWordBytes, 0);
  writer_.Store(*offset + ItemKeyOffset(0), BytesOf(key));
  return offset;
}

StoredItem ItemStore::At(uint64_t offset) const {
  ItemHeader header;
  std::memcpy(&header, writer_.Bytes(offset, sizeof(header)).data(), sizeof(header));
  const ItemTag tag = ItemTag::Unpack(header.record.tag);
  assert(tag.state == ItemState::kLive);
  const uint64_t key_at = ItemKeyOffset(tag.flags);
  StoredItem item;
  item.bytes = ItemBytes(tag.key_length, header.value_length, tag.flags);
  const ByteSpan record = writer_.Bytes(offset, item.bytes);
  item.key = {reinterpret_cast<const char*>(record.data() + key_at), tag.key_length};
  item.value = record.subspan(key_at + tag.key_length, header.value_length);
  item.cas_version = header.cas_version;
  return item;
}

// Header and the key's first bytes, which may lie in the next cache line.
void ItemStore::Prefetch(uint64_t offset) const {
  const std::byte* const header = writer_.Bytes(offset, sizeof(ItemHeader)).data();
  __builtin_prefetch(header);
  __builtin_prefetch(header + sizeof(ItemHeader));
}

absl::Span<std::byte> ItemStore::Value(uint64_t offset) {
  const StoredItem item = At(offset);
  const uint64_t value_at = ItemKeyOffset(0) + item.key.size();
  return writer_.Bytes(offset + value_at, item.value.size());
}

// The value's first bytes share a word with the key's last.
void ItemStore::Fill(uint64_t offset, ByteSpan value) {
  const uint64_t value_at = ItemKeyOffset(0) + At(offset).key.size();
  const uint64_t in_word = value_at % kWordBytes;
  uint64_t from = offset + value_at - in_word;
  if (in_word != 0) {
    uint64_t word = writer_.Word(from);
    const size_t head = std::min<size_t>(kWordBytes - in_word, value.size());
    if (head > 0) std::memcpy(reinterpret_cast<std::byte*>(&word) + in_word, value.data(), head);
    writer_.Store(from, word);
    value.remove_prefix(head);
    from += kWordBytes;
  }
  writer_.Store(from, value);
}

void ItemStore::SetCasVersion(uint64_t offset, uint64_t cas_version) {
  writer_.Store(offset + offsetof(ItemHeader, cas_version), cas_version);
}

ByteSpan ItemStore::Contents(uint64_t offset) const {
  return writer_.Bytes(offset + kContentsOffset, At(offset).bytes - kContentsOffset);
}

Sealing ItemStore::Finish(uint64_t offset, uint64_t cas_version) {
  SetCasVersion(offset, cas_version);
  return FinishHashed(offset, HashBytes(Contents(offset)));
}

Sealing ItemStore::FinishHashed(uint64_t offset, uint64_t contents_hash) {
  Sealing sealing;
  sealing.offset = offset;
  sealing.version = RecordVersion(writer_.cas_version());
  sealing.tag = LiveTag(At(offset).key.size());
  sealing.checksum =
      RecordChecksum(contents_hash, sealing.version, sealing.tag, writer_.PlaceOf(offset));
  return sealing;
}

void ItemStore::Seal(const Sealing& sealing) {
  writer_.Seal(sealing.offset, sealing.version, sealing.tag, sealing.checksum);
}

bool ItemStore::FitsInPlace(uint64_t slot, uint64_t key_length, uint64_t value_length) const {
  const uint64_t bytes = ItemBytes(key_length, value_length, 0);
  const uint64_t read_bytes = ReadLengthOf(Slot::Unpack(slot).length_class);
  return bytes <= read_bytes && bytes <= kInPlaceBytesMax && 2 * bytes >= read_bytes;
}

void ItemStore::RewriteInPlace(uint64_t offset, absl::string_view key, ByteSpan value,
                               uint64_t cas_version) {
  // The contents are put together first, so that they are hashed before readers are kept waiting.
  std::byte contents[kInPlaceBytesMax] = {};
  const uint64_t bytes = ItemBytes(key.size(), value.size(), 0) - kContentsOffset;
  assert(bytes <= sizeof(contents));
  const uint64_t value_length = value.size();
  std::memcpy(contents, &value_length, kWordBytes);
  std::memcpy(contents + kWordBytes, &cas_version, kWordBytes);
  std::byte* const key_at = contents + ItemKeyOffset(0) - kContentsOffset;
  std::memcpy(key_at, key.data(), key.size());
  if (!value.empty()) std::memcpy(key_at + key.size(), value.data(), value.size());
  writer_.WriteRecord(offset, writer_.NextRecordVersion(offset), LiveTag(key.size()),
                      ByteSpan(contents, bytes));
}

// The rest of the item stays as it is; nobody can tell where it began.
void ItemStore::Kill(uint64_t offset) {
  const uint64_t contents[2] = {0, writer_.cas_version()};  // no value; the version that ended it
  writer_.WriteRecord(offset, writer_.NextRecordVersion(offset),
                      ItemTag{0, ItemState::kDead, 0}.Pack(),
                      ByteSpan(reinterpret_cast<const std::byte*>(contents), sizeof(contents)));
}

uint64_t ItemStore::SlotOf(uint64_t offset, uint32_t fingerprint) const {
  return Slot{offset, LengthClassOf(At(offset).bytes), fingerprint}.Pack();
}

}  // namespace osprey::index
