// The READs of one item, from the slot that leads to it, and the judgement of their bytes.
//
//   span = fetch.Begin(slot, line, key)       the whole item, or header and key if it is long
//   reading = fetch.Judge(READ(span), key)
//     kTooShort, fetch.is_head()              the value follows, in pieces:
//       fields = fetch.BeginValue(bytes, key)
//       fetch.TakeValue(piece) …              READs from fetch.value_offset(key) on, in order
//       fetch.FinishValue(key)
//     kTooShort, else                         span = fetch.Lengthen(…), once
//
// No READ reaches outside the region (R4), whatever the slot and the bytes say.

#ifndef OSPREY_INDEX_READER_ITEM_FETCH_H_
#define OSPREY_INDEX_READER_ITEM_FETCH_H_

#include <cassert>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "index/layout/hash.h"
#include "index/layout/item.h"
#include "index/layout/layout.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"
#include "index/reader/directory_cache.h"

namespace osprey::index {

// The longest READ that a lookup requests: an item with a value of 256 KiB. Of a longer one, it
// requests header and key first, and then the value in pieces.
inline constexpr uint64_t kWholeValueBytesMax = 256 << 10;
inline constexpr uint64_t kLookupReadBytesMax =
    ReadLengthOf(LengthClassOf(ItemBytes(kKeyBytesMax, kWholeValueBytesMax)));

// Whether a lookup READs the item of `slot` whole: with this option, or the default one.
inline bool IsReadWhole(uint64_t slot, uint64_t bytes_max = kLookupReadBytesMax) {
  return ReadLengthOf(Slot::Unpack(slot).length_class) <= WholeReadBytesMax(bytes_max);
}

// Not thread-safe. `key` of all methods is the same key, at any address.
class ItemFetch {
 public:
  // Of an item whose READ is longer than `whole_bytes_max`, header and key are READ first. `map`
  // must outlive this.
  ItemFetch(const DirectoryCache& map, uint64_t whole_bytes_max)
      : map_(map), whole_bytes_max_(whole_bytes_max) {}

  // Begins with the item of `slot`, which comes from remote bytes or from the caller. `line` is
  // kept for the caller. Returns the first READ; length 0: no item can be there.
  ReadSpan Begin(uint64_t slot, uint64_t line, absl::string_view key);
  uint64_t slot() const { return slot_; }
  uint64_t line() const { return line_; }

  // Judges the bytes of the READ. Without a checksum (item.h, ReadItemHead) if is_head().
  ItemReading Judge(ByteSpan bytes, absl::string_view key) const {
    const RecordPlace place{offset_, map_.incarnation()};
    return is_head_ ? ReadItemHead(bytes, place, key) : ReadItem(bytes, place, key);
  }
  // The READ is of header and key alone.
  bool is_head() const { return is_head_; }

  // Whether an item of `bytes` at the READ's place is within the region.
  bool IsInside(uint64_t bytes) const { return map_.Contains(offset_, bytes); }
  // Likewise, and not longer than the slot tells. The slot, in a line with a checksum, bounds the
  // length of the item; a longer head was torn. After Lengthen the slot bounds nothing.
  bool IsWithinSlot(uint64_t bytes) const {
    return IsInside(bytes) &&
           (lengthened_ || bytes <= ReadLengthOf(Slot::Unpack(slot_).length_class));
  }
  // True once Lengthen was called. An item does not grow, so a longer one would be another item.
  bool lengthened() const { return lengthened_; }
  // The READ of an item of `bytes`, which is longer than its slot told. REQUIRES: IsInside(bytes).
  ReadSpan Lengthen(uint64_t bytes, absl::string_view key);

  // Takes `head`, the bytes of a READ with is_head(). Its fields are not valid before FinishValue.
  ItemFields BeginValue(ByteSpan head, absl::string_view key);
  uint64_t value_offset(absl::string_view key) const {
    return offset_ + sizeof(ItemHeader) + key.size();
  }
  // The value's bytes, private copies, in order and each once. They are hashed and not kept.
  void TakeValue(ByteSpan piece) {
    assert(value_hasher_.has_value() && piece.size() <= value_left_);
    value_hasher_->Update(piece);
    value_left_ -= piece.size();
  }
  // After the whole value: kLive or kTorn. The reading's value is empty.
  ItemReading FinishValue(absl::string_view key);

 private:
  const DirectoryCache& map_;
  const uint64_t whole_bytes_max_;
  uint64_t slot_ = 0;
  uint64_t line_ = 0;
  uint64_t offset_ = 0;
  bool is_head_ = false;
  bool lengthened_ = false;

  // Of the value that is being READ in pieces.
  ItemHeader head_;
  uint64_t value_left_ = 0;  // bytes not yet taken
  absl::optional<BytesHasher> value_hasher_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_READER_ITEM_FETCH_H_
