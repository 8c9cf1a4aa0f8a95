#include "index/space/item_store.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "index/layout/record.h"

namespace osprey::index {
namespace {

ByteSpan BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

ItemStore::ItemStore(RegionWriter& writer, RegionSpace& space, absl::Duration grace)
    : writer_(writer), space_(space, grace) {}

absl::optional<uint64_t> ItemStore::Begin(absl::string_view key, uint64_t value_length,
                                          absl::Time now, Fit fit) {
  const uint64_t bytes = ItemBytes(key.size(), value_length);
  const absl::optional<uint64_t> offset = space_.Allocate(bytes, now, fit);
  if (offset.has_value()) BeginAt(*offset, key, value_length);
  return offset;
}

void ItemStore::BeginAt(uint64_t offset, absl::string_view key, uint64_t value_length) {
  writer_.Begin(offset, RecordVersion(writer_.cas_version()), LiveItemTag(key.size()));
  writer_.Store(offset + offsetof(ItemHeader, length_word), value_length);
  // The last word first, for its padding; the key's own last word may be the same one.
  writer_.Store(offset + ItemBytes(key.size(), value_length) - kWordBytes, 0);
  writer_.Store(offset + kDataOffset, BytesOf(key));
}

// Header and the key's first bytes, which may lie in the next cache line.
void ItemStore::Prefetch(uint64_t offset) const {
  const std::byte* const header = writer_.Bytes(offset, sizeof(ItemHeader)).data();
  __builtin_prefetch(header);
  __builtin_prefetch(header + sizeof(ItemHeader));
}

absl::Span<std::byte> ItemStore::Value(uint64_t offset) {
  const StoredItem item = At(offset);
  const uint64_t value_at = kDataOffset + item.key.size();
  return writer_.Bytes(offset + value_at, item.value.size());
}

// The value's first bytes share a word with the key's last.
void ItemStore::Fill(uint64_t offset, ByteSpan value) {
  const uint64_t value_at = kDataOffset + At(offset).key.size();
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

ByteSpan ItemStore::Data(uint64_t offset) const {
  return writer_.Bytes(offset + kDataOffset, At(offset).bytes - kDataOffset);
}

Sealing ItemStore::Finish(uint64_t offset, uint64_t cas_version, uint64_t expiry_ns) {
  return FinishHashed(offset, HashBytes(Data(offset)), cas_version, expiry_ns);
}

Sealing ItemStore::FinishHashed(uint64_t offset, uint64_t data_hash, uint64_t cas_version,
                                uint64_t expiry_ns) {
  const StoredItem item = At(offset);
  const ItemHeader header =
      ItemHeaderWith(RecordVersion(writer_.cas_version()), LiveItemTag(item.key.size()),
                     {item.value.size(), cas_version, expiry_ns});
  writer_.Store(offset + offsetof(ItemHeader, length_word), header.length_word);
  writer_.Store(offset + offsetof(ItemHeader, cas_word), header.cas_word);
  return {offset, header.record.version, header.record.tag,
          ItemChecksum(data_hash, header, writer_.PlaceOf(offset))};
}

void ItemStore::Seal(const Sealing& sealing) {
  writer_.Seal(sealing.offset, sealing.version, sealing.tag, sealing.checksum);
}

bool ItemStore::HasRoomInPlace(uint64_t slot, uint64_t key_length, uint64_t value_length) const {
  const Slot at = Slot::Unpack(slot);
  const uint64_t bytes = ItemBytes(key_length, value_length);
  return bytes <= ReadLengthOf(at.length_class) && bytes <= space_.CapacityOf(at.offset);
}

// A moved item has a chunk of its class, or its pages; and a slot of its class.
bool ItemStore::HasRoomAnywhere(uint64_t offset, uint64_t key_length, uint64_t value_length) const {
  const uint64_t present = At(offset).bytes;
  const uint64_t bytes = ItemBytes(key_length, value_length);
  const uint64_t read_bytes = ReadLengthOf(LengthClassOf(present));
  if (present <= kChunkBytesMax) return bytes <= read_bytes;
  return bytes <= read_bytes && (bytes - 1) / kPageBytes <= (present - 1) / kPageBytes;
}

uint64_t ItemStore::DataHash(absl::string_view key, ByteSpan value) {
  const std::byte zeros[kWordBytes] = {};
  const uint64_t bytes = key.size() + value.size();
  BytesHasher hasher;
  hasher.Update(BytesOf(key));
  hasher.Update(value);
  hasher.Update({zeros, RoundUpToWords(bytes) - bytes});
  return hasher.Digest();
}

// The key's bytes are not stored again, since they must be there throughout (long items). The
// value's first bytes share a word with the key's last bytes.
void ItemStore::RewriteHidden(uint64_t offset, absl::string_view key, ByteSpan value,
                              uint64_t data_hash, uint64_t cas_version, uint64_t expiry_ns) {
  // The version under which it was hidden: no other record has had it here.
  const ItemHeader header =
      ItemHeaderWith(writer_.Header(offset).version & ~1u, LiveItemTag(key.size()),
                     {value.size(), cas_version, expiry_ns});
  writer_.Store(offset + offsetof(ItemHeader, length_word), header.length_word);
  writer_.Store(offset + offsetof(ItemHeader, cas_word), header.cas_word);
  const size_t in_word = (kDataOffset + key.size()) % kWordBytes;
  uint64_t from = offset + kDataOffset + key.size() - in_word;
  if (in_word != 0) {
    std::byte word[kWordBytes] = {};
    const size_t head = std::min<size_t>(kWordBytes - in_word, value.size());
    std::memcpy(word, key.data() + key.size() - in_word, in_word);
    if (head > 0) std::memcpy(word + in_word, value.data(), head);
    writer_.Store(from, ByteSpan(word, kWordBytes));
    value.remove_prefix(head);
    from += kWordBytes;
  }
  writer_.Store(from, value);
  writer_.Seal(offset, header.record.version, header.record.tag,
               ItemChecksum(data_hash, header, writer_.PlaceOf(offset)));
}

ItemHeader ItemStore::Hide(uint64_t offset) {
  ItemHeader header;
  std::memcpy(&header, writer_.Bytes(offset, sizeof(header)).data(), sizeof(header));
  assert(!IsBeingWritten(header.record.version));
  writer_.BeginVisibly(offset, writer_.NextRecordVersion(offset), header.record.tag);
  return header;
}

void ItemStore::Renew(uint64_t offset, const ItemHeader& hidden, uint64_t expiry_ns) {
  const RecordPlace place = writer_.PlaceOf(offset);
  ItemFields fields = ItemFields::Unpack(hidden);
  fields.expiry_ns = expiry_ns;
  // The version under which it was hidden: no other record has had it here.
  const ItemHeader header =
      ItemHeaderWith(writer_.Header(offset).version & ~1u, hidden.record.tag, fields);
  writer_.Store(offset + offsetof(ItemHeader, length_word), header.length_word);
  writer_.Store(offset + offsetof(ItemHeader, cas_word), header.cas_word);
  writer_.Seal(offset, header.record.version, header.record.tag,
               ItemChecksum(ItemDataHash(hidden, place), header, place));
}

// The rest of the item does not change; its length is no longer recorded.
void ItemStore::Kill(uint64_t offset) {
  // A dead item has no value, and the version of the write that ended it.
  std::byte item[sizeof(ItemHeader)];
  Write(offset,
        ItemHeaderWith(writer_.NextRecordVersion(offset), ItemTag{0, ItemState::kDead}.Pack(),
                       {0, writer_.cas_version(), 0}),
        absl::MakeSpan(item));
}

}  // namespace osprey::index
