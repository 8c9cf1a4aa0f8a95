// Interprets the bytes of an item. The reader uses it on a private copy, the writer on the region.

#ifndef OSPREY_INDEX_LAYOUT_ITEM_H_
#define OSPREY_INDEX_LAYOUT_ITEM_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "index/layout/layout.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"

namespace osprey::index {

enum class ItemVerdict {
  kTorn,      // not a whole record: being written, or not an item
  kTooShort,  // may be this key's item, but is longer than the bytes read: READ `bytes_needed`
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
  // ReadAnyItem only. It also sets version and expiry for kTooShort.
  absl::string_view key;      // kLive, and kTooShort if it is within the bytes given
  uint64_t value_length = 0;  // likewise
};

// The part of an item's checksum that is the header's and the place's: a sum of bijections, each of
// one word. A change of one word alone changes the sum.
[[gnu::always_inline]] inline uint64_t ItemHeaderTerm(const ItemHeader& header, RecordPlace place) {
  // They keep the words of a header from cancelling each other.
  constexpr uint64_t kLengthWordSalt = 0xd6e8feb86659fd93;
  constexpr uint64_t kCasWordSalt = 0xa0761d6478bd642f;
  const bool without_cas = IsMutant(Mutant::kChecksumWithoutVersion);
  const uint64_t cas_word = without_cas ? header.cas_word & ~kCasVersionMax : header.cas_word;
  const uint64_t words = Mix(header.length_word ^ kLengthWordSalt) ^ Mix(cas_word ^ kCasWordSalt);
  return RecordChecksum(words, header.record.version, header.record.tag, place);
}

// The checksum of an item whose data (key, value and padding) have the hash `data_hash`
// (HashBytes). The checksum in `header` is not used. The header is mixed in afterwards, so a new
// header needs no new hash of the data. For given data a change of any one word of the header, or
// of the place, always changes the checksum.
inline uint64_t ItemChecksum(uint64_t data_hash, const ItemHeader& header, RecordPlace place) {
  return data_hash ^ ItemHeaderTerm(header, place);
}
// The inverse: the data_hash of an item with this header, its checksum included.
inline uint64_t ItemDataHash(const ItemHeader& header, RecordPlace place) {
  return header.record.checksum ^ ItemHeaderTerm(header, place);
}

// As RecordIsWhole, for exactly one item. REQUIRES: item.size() >= sizeof(ItemHeader).
bool ItemIsWhole(ByteSpan item, RecordPlace place);

// Judges a copy of the bytes at `place`, at least sizeof(ItemHeader) of them. The order is: parity,
// lengths within the bytes read, checksum, meaning.
ItemReading ReadItem(ByteSpan bytes, RecordPlace place, absl::string_view key);

// The first READ of an item that is too long for one READ: its header and its key.
constexpr uint64_t ItemHeadBytes(uint64_t key_length) {
  return RoundUpToWords(sizeof(ItemHeader) + key_length);
}

// Judges a copy of the first ItemHeadBytes(key.size()) bytes at `place` (fewer only where the
// region ends). As ReadItem, with two differences, since a part has no checksum:
//   kTooShort  means only that the rest should be READ
//   kOther     may also come from torn bytes, but never while an item of `key` is here. The
//              key's bytes are valid from before the first line leads to an item until
//              after the last line does (index/README.md).
ItemReading ReadItemHead(ByteSpan bytes, RecordPlace place, absl::string_view key);

// As ReadItem, for an item of any key: never kOther. kTooShort means a live item or bytes that look
// like one; its fields are not verified.
ItemReading ReadAnyItem(ByteSpan bytes, RecordPlace place);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LAYOUT_ITEM_H_
