// The lookup of one key. It begins at the location that earlier GETs have cached, and its READs
// update the cache for later ones.
//
//   CachedLookup lookup(context);
//   lookup.Prepare(maps, key, options);              // sets the start
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
#include "client/read/location_cache.h"
#include "client/read/partition_maps.h"
#include "index/layout/access_hint.h"
#include "index/layout/hash.h"
#include "index/reader/inline_probe.h"
#include "index/reader/lookup.h"

namespace osprey::client {

// Shared by all GETs of one client.
struct GetContext {
  Counters& counters;
  LocationCache& cache;
  AccessSampler& sampler;
};

class CachedLookup {
 public:
  using Step = index::Lookup::Step;

  explicit CachedLookup(GetContext& context) : context_(context) {}

  // Takes the maps of the present connection. They and `key` must stay valid until Drop.
  void Prepare(PartitionMaps& maps, absl::string_view key, const index::LookupOptions& options);
  // After Prepare: prefetches the cache lines for Begin.
  void Prefetch() const { context_.cache.Prefetch(place_); }
  // After Prepare: begins at the cached slot, if there is one.
  Step Begin();
  // After Drop: starts over, from a slot that the server has named.
  Step BeginAt(uint64_t slot, absl::string_view key, const index::LookupOptions& options);
  // Sets the key's new address.
  void set_key(absl::string_view key) {
    key_ = key;
    if (lookup_.has_value()) lookup_->set_key(key);
  }

  // Instead of Resume for the first READ, if that is of the window. A hit ends the lookup. Any
  // other result has no effect, and Resume takes the same bytes.
  bool InlineProbes() const { return !lookup_.has_value(); }
  index::InlineProbe InlineProbe(index::ByteSpan bytes);
  // As index::Lookup's.
  Step Resume(index::ByteSpan bytes, index::Lookup::TimeOfRead time);
  void TakeValue(index::ByteSpan piece) { lookup_->TakeValue(piece); }
  Step FinishValue();

  // Records where the server has written the key.
  void Wrote(uint64_t slot) { context_.cache.Wrote(place_, slot); }
  // Ends the lookup, at any time.
  void Drop();

  // The offset of the key's partition in the region. REQUIRES: Prepare.
  uint64_t offset() const { return partition_->offset; }

 private:
  void Open() { lookup_.emplace(partition_->map, key_, hash_, window_, options_); }
  void Learn(const Step& step);
  void Sample(index::AccessHint access);

  GetContext& context_;
  absl::string_view key_;
  index::LookupOptions options_;
  index::KeyHash hash_;
  MappedPartition* partition_ = nullptr;
  index::DirectoryCache::Window window_;
  LocationCache::Place place_;
  uint64_t hint_ = 0;  // with which the lookup began
  // Empty during the first READ of the window, for which an inline probe usually suffices.
  std::optional<index::Lookup> lookup_;
};

// The rest of a hit's time to live when it was READ.
inline absl::Duration TtlOf(const CachedLookup::Step& hit) {
  return TtlOf(hit.expiry_ns, hit.landed_ns);
}

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_CACHED_LOOKUP_H_
