// Creates and ends items for the writer. This is the order of an item's states, and what readers
// see in each:
//
//   Begin   odd version, lengths and key        readers: torn
//   (fill)  the value                           readers: torn
//   Finish  cas version, expiry; hashed         readers: torn
//   Seal    checksum, even version              readers: live      <- an instant (W2)
//   Hide    odd version                         readers: torn
//   Renew   new expiry, even version            readers: live      <- an instant (W2)
//   Kill    the header says dead                readers: dead, back to the line
//   Retire  the space waits and is used again   readers: dead, then torn, then another item

#ifndef OSPREY_INDEX_SPACE_ITEM_STORE_H_
#define OSPREY_INDEX_SPACE_ITEM_STORE_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "index/layout/hash.h"
#include "index/layout/item.h"
#include "index/layout/layout.h"
#include "index/layout/short_bytes.h"
#include "index/space/item_space.h"
#include "index/space/region_writer.h"

namespace osprey::index {

// Items up to this length are rewritten in place if the new value fits. Readers would find longer
// ones half-written too often.
inline constexpr uint64_t kInPlaceBytesMax = 1024;

// The stores that make a finished item live.
struct Sealing {
  uint64_t offset = 0;
  uint32_t version = 0;
  uint32_t tag = 0;
  uint64_t checksum = 0;
};

// An item as it is in the region now.
struct StoredItem {
  absl::string_view key;
  ByteSpan value;
  uint64_t cas_version = 0;
  uint64_t expiry_ns = 0;  // as ItemFields
  uint64_t bytes = 0;      // of the whole record
};

// The tag of a live item with a key of that length.
constexpr uint32_t LiveItemTag(uint64_t key_length) {
  return ItemTag{static_cast<uint32_t>(key_length), ItemState::kLive}.Pack();
}

// Without the checksum.
constexpr ItemHeader ItemHeaderWith(uint32_t version, uint32_t tag, const ItemFields& fields) {
  return {{version, tag, 0}, fields.length_word(), fields.cas_word()};
}

// Not thread-safe.
class ItemStore {
 public:
  // Both must outlive this, and only this may take pages from `space`.
  ItemStore(RegionWriter& writer, RegionSpace& space, absl::Duration grace);

  // Begins a new item without its value; nullopt if there is no space.
  absl::optional<uint64_t> Begin(absl::string_view key, uint64_t value_length, absl::Time now,
                                 Fit fit = Fit::kLoose);
  // The same, at a place that was allocated for it.
  void BeginAt(uint64_t offset, absl::string_view key, uint64_t value_length);
  // Of a begun item: the memory of its value.
  absl::Span<std::byte> Value(uint64_t offset);
  void Fill(uint64_t offset, ByteSpan value);
  // Finishes a begun item, which may not change any more.
  Sealing Finish(uint64_t offset, uint64_t cas_version, uint64_t expiry_ns);
  // The same, for an item that is hashed while it is filled. The caller passes HashBytes of its
  // Data.
  ByteSpan Data(uint64_t offset) const;  // key, value and padding
  Sealing FinishHashed(uint64_t offset, uint64_t data_hash, uint64_t cas_version,
                       uint64_t expiry_ns);
  void Seal(const Sealing& sealing);

  // Whether a new value of this length can be written over the item of `slot`. The item has space,
  // readers of the slot READ enough, and little space would be unused.
  static bool FitsInPlace(uint64_t slot, uint64_t key_length, uint64_t value_length) {
    const uint64_t bytes = ItemBytes(key_length, value_length);
    const uint64_t read_bytes = ReadLengthOf(Slot::Unpack(slot).length_class);
    return bytes <= read_bytes && bytes <= kInPlaceBytesMax && 2 * bytes >= read_bytes;
  }
  void RewriteInPlace(uint64_t offset, absl::string_view key, ByteSpan value, uint64_t cas_version,
                      uint64_t expiry_ns);

  // Whether the item of `slot` has space for a new value of this length, and readers of the slot
  // READ enough.
  bool HasRoomInPlace(uint64_t slot, uint64_t key_length, uint64_t value_length) const;
  // Whether the item has such space wherever compaction moves it.
  bool HasRoomAnywhere(uint64_t offset, uint64_t key_length, uint64_t value_length) const;
  // Writes another value over a hidden item of any length, and makes it live. Its key does not
  // change. `data_hash` is DataHash of both.
  static uint64_t DataHash(absl::string_view key, ByteSpan value);
  void RewriteHidden(uint64_t offset, absl::string_view key, ByteSpan value, uint64_t data_hash,
                     uint64_t cas_version, uint64_t expiry_ns);

  // W1's first store alone. No reader that fetches the item after the return accepts it, until it
  // is renewed, rewritten or killed. Returns its previous header.
  ItemHeader Hide(uint64_t offset);
  bool IsHidden(uint64_t offset) const { return IsBeingWritten(writer_.Header(offset).version); }
  // Makes a hidden item live again, with a new expiry. Takes the same time for any length, since it
  // does not touch the data.
  void Renew(uint64_t offset, const ItemHeader& hidden, uint64_t expiry_ns);

  void Kill(uint64_t offset);
  void Retire(uint64_t offset, absl::Time now) { space_.Retire(offset, now); }
  // Frees an item that was never sealed.
  void Discard(uint64_t offset) { space_.Release(offset); }

  // REQUIRES: begun and not killed. In line, since most callers use few members.
  StoredItem At(uint64_t offset) const {
    ItemHeader header;
    std::memcpy(&header, writer_.Bytes(offset, sizeof(header)).data(), sizeof(header));
    const ItemTag tag = ItemTag::Unpack(header.record.tag);
    assert(tag.state == ItemState::kLive);
    const ItemFields fields = ItemFields::Unpack(header);
    StoredItem item;
    item.bytes = ItemBytes(tag.key_length, fields.value_length);
    const ByteSpan record = writer_.Bytes(offset, item.bytes);
    item.key = {reinterpret_cast<const char*>(record.data() + sizeof(ItemHeader)), tag.key_length};
    item.value = record.subspan(sizeof(ItemHeader) + tag.key_length, fields.value_length);
    item.cas_version = fields.cas_version;
    item.expiry_ns = fields.expiry_ns;
    return item;
  }
  // Only the length of that item's value.
  uint64_t ValueLengthAt(uint64_t offset) const {
    return writer_.Word(offset + offsetof(ItemHeader, length_word)) & 0xffffffff;
  }
  // Whether the item has this key.
  bool HoldsKey(uint64_t offset, absl::string_view key) const {
    const std::byte* const item = writer_.Bytes(offset, sizeof(ItemHeader) + key.size()).data();
    uint32_t tag;
    std::memcpy(&tag, item + offsetof(RecordHeader, tag), sizeof(tag));
    if (tag == LiveItemTag(key.size()))
      return EqualBytes(item + sizeof(ItemHeader), key.data(), key.size());
    assert(ItemTag::Unpack(tag).state == ItemState::kLive);
    return false;
  }
  // Prefetches the memory that At reads.
  void Prefetch(uint64_t offset) const;
  // The slot that leads to the item.
  uint64_t SlotOf(uint64_t offset, uint32_t fingerprint) const {
    const StoredItem item = At(offset);
    return Slot{offset, LengthClassOf(item.bytes), fingerprint, item.expiry_ns != 0}.Pack();
  }

  ItemSpace& space() { return space_; }
  const ItemSpace& space() const { return space_; }

 private:
  static constexpr uint64_t kDataOffset = sizeof(ItemHeader);
  void Write(uint64_t offset, ItemHeader header, absl::Span<std::byte> item);

  RegionWriter& writer_;
  ItemSpace space_;
};

// W1 of a whole item. `item` has its data already, and space for the header before them. In line
// for the most frequent write.
[[gnu::always_inline]] inline void ItemStore::Write(uint64_t offset, ItemHeader header,
                                                    absl::Span<std::byte> item) {
  header.record.checksum =
      ItemChecksum(HashBytes(item.subspan(kDataOffset)), header, writer_.PlaceOf(offset));
  std::memcpy(item.data(), &header, sizeof(header));
  writer_.StoreRecord(offset, header.record, 0, item.subspan(sizeof(header.record)));
}

[[gnu::always_inline]] inline void ItemStore::RewriteInPlace(uint64_t offset, absl::string_view key,
                                                             ByteSpan value, uint64_t cas_version,
                                                             uint64_t expiry_ns) {
  // Assembled first, so that it is hashed before readers have to wait.
  std::byte item[kInPlaceBytesMax];
  const uint64_t bytes = ItemBytes(key.size(), value.size());
  assert(bytes >= kDataOffset + kWordBytes && bytes <= sizeof(item));
  std::memset(item + bytes - kWordBytes, 0, kWordBytes);  // the padding
  CopyBytes(item + kDataOffset, key.data(), key.size());
  if (!value.empty()) std::memcpy(item + kDataOffset + key.size(), value.data(), value.size());
  Write(offset,
        ItemHeaderWith(writer_.NextRecordVersion(offset), LiveItemTag(key.size()),
                       {value.size(), cas_version, expiry_ns}),
        absl::MakeSpan(item, bytes));
}

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SPACE_ITEM_STORE_H_
