#include "client/key_lookup.h"

#include "index/access_hint.h"

namespace osprey::client {

void KeyLookup::Prepare(PartitionMaps& maps, absl::string_view key,
                        const index::LookupOptions& options) {
  hash_ = index::HashKey(key, maps.hash_seed());
  partition_ = &maps.Of(hash_);
  lookup_.emplace(partition_->map, key, hash_, options);
  const uint64_t home = lookup_->home();
  place_ = {home == 0 ? 0 : partition_->offset + home, hash_.fingerprint()};
}

KeyLookup::Step KeyLookup::Begin() {
  hint_ = context_.cache.Find(place_);
  if (hint_ != 0) ++context_.counters.hints;
  return lookup_->Start(hint_);
}

KeyLookup::Step KeyLookup::BeginAt(uint64_t slot, absl::string_view key,
                                   const index::LookupOptions& options) {
  hint_ = slot;
  lookup_.emplace(partition_->map, key, hash_, options);
  return lookup_->Start(slot);
}

KeyLookup::Step KeyLookup::Resume(index::ByteSpan bytes, index::Lookup::TimeOfRead time) {
  const Step step = lookup_->Resume(bytes, time);
  Learn(step);
  return step;
}

KeyLookup::Step KeyLookup::FinishValue() {
  const Step step = lookup_->FinishValue();
  Learn(step);
  return step;
}

// Whatever a READ shows, of this key and of its neighbours, saves a READ another time.
void KeyLookup::Learn(const Step& step) {
  SlotCache& cache = context_.cache;
  const bool misled = lookup_->counters().stale_hints != 0;
  if (misled && hint_ != 0) cache.Failed(place_, hint_), hint_ = 0;
  for (const index::Lookup::SlotSeen& seen : lookup_->slots_seen())
    cache.Saw(partition_->offset + seen.line, seen.slot);
  const bool hit = step.kind == index::Lookup::Kind::kHit;
  if (hit && context_.sampler.Hit()) {
    index::AccessHint access = index::AccessHint::Unpack(lookup_->AccessOf(step));
    access.partition = partition_->number;
    context_.sampler.Note(access.Pack());
  }
  if (hit && step.line != 0) {
    cache.Used(place_, partition_->offset + step.line, step.slot);
  } else if (hit && step.slot != 0) {
    cache.Worked(place_, step.slot);
  } else if (misled && (hit || step.kind == index::Lookup::Kind::kMiss)) {
    cache.Forget(place_);
  }
}

void KeyLookup::Drop() {
  if (!lookup_.has_value()) return;
  const index::LookupCounters& counters = lookup_->counters();
  context_.counters.torn += counters.torn;
  context_.counters.stale_hints += counters.stale_hints;
  context_.counters.retries += counters.torn + counters.restarts;
  lookup_.reset();
}

}  // namespace osprey::client
