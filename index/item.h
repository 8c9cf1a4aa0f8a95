// What the bytes of an item mean. Used by the reader on a private copy and by the writer on the
// region.

#ifndef OSPREY_INDEX_ITEM_H_
#define OSPREY_INDEX_ITEM_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "index/layout.h"
#include "index/record.h"

namespace osprey::index {

enum class ItemVerdict {
  kTorn,      // not a whole record: being written, or no item at all
  kTooShort,  // looks like this key's item, but is longer than the bytes read: READ `bytes_needed`
  kDead,
  kOther,  // a whole, live item of another key
  kLive,   // this key's
};

struct ItemReading {
  ItemVerdict verdict = ItemVerdict::kTorn;
  uint64_t bytes_needed = 0;  // kTooShort
  uint64_t cas_version = 0;   // kLive
  uint64_t expiry_ns = 0;     // kLive: as ItemFields
  ByteSpan value;             // kLive: within the bytes given
  // ReadAnyItem only, which says the version and the expiry of what is kTooShort as well.
  absl::string_view key;      // kLive, and kTooShort if it is within the bytes given
  uint64_t value_length = 0;  // likewise
};

// The checksum of an item whose data (key, value and padding) hash (HashBytes) to `data_hash`; that
// in its header is not looked at. The header is mixed in afterwards, so that another header makes
// another checksum without the data being hashed again. For given data a change of any one word of
// it, or of the place, gives another checksum for certain.
uint64_t ItemChecksum(uint64_t data_hash, const ItemHeader& header, RecordPlace place);
// The other way round: the data_hash of an item with this header, its checksum included.
uint64_t ItemDataHash(const ItemHeader& header, RecordPlace place);

// As RecordIsWhole, of exactly one item. REQUIRES: item.size() >= sizeof(ItemHeader).
bool ItemIsWhole(ByteSpan item, RecordPlace place);

// Judges a copy of the bytes at `place`, at least sizeof(ItemHeader) of them. In this order:
// parity, lengths within the bytes read, checksum, and only then the meaning.
ItemReading ReadItem(ByteSpan bytes, RecordPlace place, absl::string_view key);

// What is READ first of an item that is too long to be READ at once: its header and its key.
constexpr uint64_t ItemHeadBytes(uint64_t key_length) {
  return RoundUpToWords(sizeof(ItemHeader) + key_length);
}

// Judges a copy of the first ItemHeadBytes(key.size()) bytes at `place` (fewer only where the
// region ends). As ReadItem, with two differences, as there is no checksum of a part:
//   kTooShort  says only that it is worth READing the rest
//   kOther     may also come of bytes that were torn, but never while an item of `key` is here. The
//              key's bytes tell: they stand from before the first line leads to an item until after
//              the last line does (index/README.md).
ItemReading ReadItemHead(ByteSpan bytes, RecordPlace place, absl::string_view key);

// As ReadItem, of an item of whatever key: never kOther. kTooShort: of a live item, or what looks
// like one; nothing vouches for what it says.
ItemReading ReadAnyItem(ByteSpan bytes, RecordPlace place);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_ITEM_H_
