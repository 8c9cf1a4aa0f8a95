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
  bool has_expiry = false;    // kLive
  uint64_t cas_version = 0;   // kLive
  ByteSpan value;             // kLive: within the bytes given
};

// Judges a copy of the bytes at `place`, at least sizeof(ItemHeader) of them. In this order:
// parity, lengths within the bytes read, checksum, and only then the meaning.
ItemReading ReadItem(ByteSpan bytes, RecordPlace place, absl::string_view key);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_ITEM_H_
