// The lookup of one key, with what the client's GETs know from before and learn from it: where the
// key begins to be looked for, and what its READs show for the next ones.
//
//   KeyLookup lookup(context);
//   lookup.Prepare(maps, key, options);              // where it will look
//   step = lookup.Begin();                           // then as index::Lookup, until it is done
//   step = lookup.Resume(bytes, time) …
//   lookup.Drop();                                   // its counts are the client's
//
// Offsets in steps are from the start of the key's partition: a READ's is offset() more.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_KEY_LOOKUP_H_
#define OSPREY_CLIENT_KEY_LOOKUP_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "client/client.h"
#include "client/hit_sampler.h"
#include "client/partition_maps.h"
#include "client/server_clock.h"
#include "client/slot_cache.h"
#include "index/access_hint.h"
#include "index/glance.h"
#include "index/hash.h"
#include "index/lookup.h"

namespace osprey::client {

// What the GETs of one client share.
struct GetContext {
  Counters& counters;
  SlotCache& cache;
  HitSampler& sampler;
};

class KeyLookup {
 public:
  using Step = index::Lookup::Step;

  explicit KeyLookup(GetContext& context) : context_(context) {}

  // With the maps of the present connection, which must outlive what follows until Drop, as `key`
  // must.
  void Prepare(PartitionMaps& maps, absl::string_view key, const index::LookupOptions& options);
  // After Prepare: begins to fetch what Begin needs of the cache.
  void Prefetch() const { context_.cache.Prefetch(place_); }
  // After Prepare: from the slot that the cache knows, if there is one.
  Step Begin();
  // After Drop: anew, from a slot that the server has named.
  Step BeginAt(uint64_t slot, absl::string_view key, const index::LookupOptions& options);
  // The key stands here from now on.
  void set_key(absl::string_view key) {
    key_ = key;
    if (lookup_.has_value()) lookup_->set_key(key);
  }

  // Instead of Resume, of the first READ if that is the window's: a hit ends it; nothing comes of
  // anything else, and Resume takes the same bytes.
  bool Glances() const { return !lookup_.has_value(); }
  index::Glance Glance(index::ByteSpan bytes);
  // As index::Lookup's.
  Step Resume(index::ByteSpan bytes, index::Lookup::TimeOfRead time);
  void TakeValue(index::ByteSpan piece) { lookup_->TakeValue(piece); }
  Step FinishValue();

  // The server says where it has put the key.
  void Wrote(uint64_t slot) { context_.cache.Wrote(place_, slot); }
  // Ends it, at any time.
  void Drop();

  // Of the key's partition, in the region. REQUIRES: Prepare.
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
  index::RegionMap::Window window_;
  SlotCache::Place place_;
  uint64_t hint_ = 0;  // with which it began
  // None while the window is READ for the first time, at which mostly a glance is enough.
  std::optional<index::Lookup> lookup_;
};

// What was left of a hit's expiry when it was READ.
inline absl::Duration TtlOf(const KeyLookup::Step& hit) {
  return TtlOf(hit.expiry_ns, hit.landed_ns);
}

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_KEY_LOOKUP_H_
