// For a reader that has the region mapped: where a key seems to be, by a look at its window where
// that stands.
//
//   if (sighting.Look(window_in_place, map, window, hash, key, read_bytes_max)) {
//     bytes = READ(sighting.read().offset, sighting.read().length);      // a private copy
//     found = sighting.Judge(bytes, map.incarnation(), key);
//     if (found.hit) … found.value …
//   }
//   … else, and whatever is no hit, is a Lookup's …
//
// What is seen in place may be half of a write, or change at the next look: it is a hint of where
// the key is, and no more (R3). What answers is judged in the copy, as ever: a line that holds the
// key, whole and of the right generation, or the key's item, whole and alive (ARGUMENT.md). So of a
// window only the line that answers is copied and hashed, and of one that leads to an item none.

#ifndef OSPREY_INDEX_SIGHTING_H_
#define OSPREY_INDEX_SIGHTING_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "index/access_hint.h"
#include "index/hash.h"
#include "index/layout.h"
#include "index/region_map.h"

namespace osprey::index {

class Sighting {
 public:
  // A hit of it. `value` is within the bytes that were judged.
  struct Found {
    bool hit = false;
    ByteSpan value;
    uint64_t cas_version = 0;
  };

  // Looks at the kWindowBytes at `window_in_place`, which a writer may change meanwhile; never
  // outside of them. `window` is what map.WindowOf(hash) is. Items whose READ is longer than
  // `read_bytes_max`, at least kLineBytes, are not seen. Returns seen(). May be called again.
  bool Look(const std::byte* window_in_place, const RegionMap& map, const RegionMap::Window& window,
            KeyHash hash, absl::string_view key, uint32_t read_bytes_max);

  bool seen() const { return read_.length != 0; }
  // REQUIRES for what follows: seen(). What to copy: a line, or an item. It lies in the region.
  const ReadSpan& read() const { return read_; }
  bool is_item() const { return is_item_; }
  // Never reads outside of `bytes`, the copy. A hit is what a Lookup would find. No hit says
  // nothing, and nor does a key that has an expiry.
  Found Judge(ByteSpan bytes, uint64_t incarnation, absl::string_view key) const;
  // Of a hit; of partition 0.
  AccessHint access(KeyHash hash) const {
    return {is_item_ ? WordKind::kSlot : WordKind::kInline, hash.fingerprint(), 0, read_.offset};
  }

 private:
  bool See(uint64_t offset, uint64_t length, bool is_item) {
    read_ = {offset, static_cast<uint32_t>(length)};
    is_item_ = is_item;
    return true;
  }
  bool SeeSlot(uint64_t word, const RegionMap& map, uint32_t read_bytes_max);

  ReadSpan read_;
  bool is_item_ = false;
  uint32_t line_ = 0;        // of the window
  uint32_t generation_ = 0;  // that it must carry
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SIGHTING_H_
