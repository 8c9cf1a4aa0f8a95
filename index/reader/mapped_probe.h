// The mapped probe: for a reader that has the region mapped, finds the likely place of a key by
// searching its window in place.
//
//   if (mapped_probe.Look(window_in_place, map, window, hash, key, read_bytes_max)) {
//     bytes = READ(mapped_probe.read().offset, mapped_probe.read().length);      // a private copy
//     found = mapped_probe.Judge(bytes, map.incarnation(), key);
//     if (found.hit) … found.value …
//   }
//   … otherwise, a Lookup follows …
//
// Words read in place may be half written, and may change at any time. They are only a hint of the
// key's place (R3). The answer comes from a copy, which is checked as ever. It is either a line
// that holds the key, whole and of the right generation, or the key's item, whole and alive
// (ARGUMENT.md). So the reader copies and hashes only the line that answers, or no line if the key
// has an item.

#ifndef OSPREY_INDEX_READER_MAPPED_PROBE_H_
#define OSPREY_INDEX_READER_MAPPED_PROBE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "index/layout/access_hint.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/reader/directory_cache.h"

namespace osprey::index {

class MappedProbe {
 public:
  // The result of Judge. `value` is within the bytes judged.
  struct Found {
    bool hit = false;
    ByteSpan value;
    uint64_t cas_version = 0;
  };

  // Searches the kWindowBytes at `window_in_place`, which a writer may change meanwhile, and never
  // reads outside them. `window` is map.WindowOf(hash). Items whose READ is longer than
  // `read_bytes_max`, at least kLineBytes, are ignored. Returns seen(). May be called again.
  bool Look(const std::byte* window_in_place, const DirectoryCache& map,
            const DirectoryCache::Window& window, KeyHash hash, absl::string_view key,
            uint32_t read_bytes_max);

  bool seen() const { return read_.length != 0; }
  // The bytes to copy: a line or an item, within the region. REQUIRES for all that follows: seen().
  const ReadSpan& read() const { return read_; }
  bool is_item() const { return is_item_; }
  // Judges `bytes`, the copy, and never reads outside it. A hit is what a Lookup would find. No hit
  // says nothing about the key; a key with an expiry is never a hit.
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
  bool SeeSlot(uint64_t word, const DirectoryCache& map, uint32_t read_bytes_max);

  ReadSpan read_;
  bool is_item_ = false;
  uint32_t line_ = 0;        // of the window
  uint32_t generation_ = 0;  // that the line must have
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_READER_MAPPED_PROBE_H_
