// The lookup of one key. It begins at the location that earlier GETs have cached, and its READs
// update the cache for later ones.
//
//   CachedLookup lookup(context);
//   lookup.Prepare(KeyStart(maps, key), key, options);
//   step = lookup.Begin();                           // then as index::Lookup, until it is done
//   step = lookup.Resume(bytes, time) …
//   lookup.Drop();                                   // adds its counts to the client's
//
// Offsets in steps are from the start of the key's partition. The offset of a READ is greater by
// offset().
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_READ_CACHED_LOOKUP_H_
#define OSPREY_CLIENT_READ_CACHED_LOOKUP_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "client/client.h"
#include "client/common/server_clock.h"
#include "client/read/access_sampler.h"
#include "client/read/key_start.h"
#include "client/read/location_cache.h"
#include "client/read/partition_maps.h"
#include "client/read/read_lease.h"
#include "index/layout/access_hint.h"
#include "index/layout/hash.h"
#include "index/layout/line_search.h"
#include "index/reader/lookup.h"

namespace osprey::client {

// Shared by all GETs of one client.
struct GetContext {
  Counters& counters;
  LocationCache& cache;
  AccessSampler& sampler;
  ReadLease& lease;

  // Caches all slots of a READ, of its key and of the neighbours: each may save a READ later.
  void Saw(const KeyStart& start, absl::Span<const index::SlotSeen> slots) {
    for (const index::SlotSeen& seen : slots)
      cache.Saw(start.partition->offset + seen.line, seen.slot);
  }
  // A hit, of this key at `offset` in its partition, for the server's statistics.
  [[gnu::always_inline]] void Hit(const KeyStart& start, index::WordKind kind, uint64_t offset) {
    if (sampler.Hit()) Note(start, kind, offset);
  }
  void Note(const KeyStart& start, index::WordKind kind, uint64_t offset) {
    sampler.Note(
        index::AccessHint{kind, start.hash.fingerprint(), start.partition->number, offset}.Pack());
  }
};

class CachedLookup {
 public:
  using Step = index::Lookup::Step;

  explicit CachedLookup(GetContext& context) : context_(context) {}

  // The partition of `start` and the bytes of `key` must stay valid until Drop.
  void Prepare(const KeyStart& start, absl::string_view key,
               const index::LookupOptions& options = {});
  // After Prepare: prefetches the cache lines for Begin.
  void Prefetch() const { context_.cache.SetsOf(start_.place()).Prefetch(); }
  // After Prepare: begins at the cached slot, if there is one.
  Step Begin();
  // After Prepare: as Begin and Resume, if Begin had asked for the READ of these bytes: of the
  // window, or of the item of `hint` if that is not 0.
  Step BeginWith(uint64_t hint, index::ByteSpan bytes, index::Lookup::TimeOfRead time);
  // After Drop: starts over, from a slot that the server has named.
  Step BeginAt(uint64_t slot, absl::string_view key, const index::LookupOptions& options);
  // Sets the key's new address.
  void set_key(absl::string_view key) {
    key_ = key;
    if (lookup_.has_value()) lookup_->set_key(key);
  }

  // As index::Lookup's.
  Step Resume(index::ByteSpan bytes, index::Lookup::TimeOfRead time);
  void TakeValue(index::ByteSpan piece) { lookup_->TakeValue(piece); }
  Step FinishValue();

  // Records where the server has written the key.
  void Wrote(uint64_t slot) { context_.cache.Wrote(start_.place(), slot); }
  // Ends the lookup, at any time.
  void Drop();

  // The offset of the key's partition in the region. REQUIRES: Prepare.
  uint64_t offset() const { return start_.partition->offset; }
  // Its number. REQUIRES: Prepare.
  uint32_t partition() const { return start_.partition->number; }

  // For a trace; the slot of the cache or of a reply, with which the lookup began, or 0.
  const KeyStart& start() const { return start_; }
  uint64_t hint() const { return hint_; }
  // REQUIRES: Begin, BeginWith or BeginAt, and no Drop since.
  const index::Lookup& lookup() const { return *lookup_; }

 private:
  void Open() {
    lookup_.emplace(start_.partition->map, key_, start_.hash, start_.window, options_);
  }
  void Learn(const Step& step);

  GetContext& context_;
  absl::string_view key_;
  index::LookupOptions options_;
  KeyStart start_;
  uint64_t hint_ = 0;  // with which the lookup began
  std::optional<index::Lookup> lookup_;
};

// The rest of a hit's time to live when it was READ.
inline absl::Duration TtlOf(const CachedLookup::Step& hit) {
  return TtlOf(hit.expiry_ns, hit.landed_ns);
}

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_CACHED_LOOKUP_H_
