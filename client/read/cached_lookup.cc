#include "client/read/cached_lookup.h"

#include <cassert>

namespace osprey::client {

void KeyLookup::Prepare(PartitionMaps& maps, absl::string_view key,
                        const index::LookupOptions& options) {
  key_ = key;
  options_ = options;
  hash_ = index::HashKey(key, maps.hash_seed());
  partition_ = &maps.Of(hash_);
  window_ = partition_->map.WindowOf(hash_);
  place_ = {window_.offset == 0 ? 0 : partition_->offset + window_.offset, hash_.fingerprint()};
}

KeyLookup::Step KeyLookup::Begin() {
  hint_ = context_.cache.Find(place_);
  if (hint_ == 0 && window_.generation != 0) {
    Step step;
    step.kind = index::Lookup::Kind::kRead;
    step.offset = window_.offset;
    step.length = index::kWindowBytes;
    return step;
  }
  if (hint_ != 0) ++context_.counters.hints;
  Open();
  return lookup_->Start(hint_);
}

KeyLookup::Step KeyLookup::BeginAt(uint64_t slot, absl::string_view key,
                                   const index::LookupOptions& options) {
  hint_ = slot;
  key_ = key;
  options_ = options;
  window_ = partition_->map.WindowOf(hash_);
  Open();
  return lookup_->Start(slot);
}

index::Glance KeyLookup::Glance(index::ByteSpan bytes) {
  assert(Glances());
  index::Glance glance(bytes, window_, partition_->map.incarnation(), key_);
  if (!glance.hit()) return glance;
  for (const index::SlotSeen& seen : glance.slots_seen()) {
    context_.cache.Saw(partition_->offset + seen.line, seen.slot);
  }
  if (context_.sampler.Hit()) {
    Sample({index::WordKind::kInline, hash_.fingerprint(), 0, glance.line()});
  }
  return glance;
}

KeyLookup::Step KeyLookup::Resume(index::ByteSpan bytes, index::Lookup::TimeOfRead time) {
  if (Glances()) {
    // The lookup requests the READ that has just been made.
    Open();
    [[maybe_unused]] const Step first = lookup_->Start(/*hint=*/0);
    assert(first.kind == index::Lookup::Kind::kRead && first.offset == window_.offset);
  }
  const Step step = lookup_->Resume(bytes, time);
  Learn(step);
  return step;
}

KeyLookup::Step KeyLookup::FinishValue() {
  const Step step = lookup_->FinishValue();
  Learn(step);
  return step;
}

// Caches all slots of a READ, of this key and of its neighbours: each may save a READ later.
void KeyLookup::Learn(const Step& step) {
  SlotCache& cache = context_.cache;
  const bool misled = lookup_->counters().stale_hints != 0;
  if (misled && hint_ != 0) cache.Failed(place_, hint_), hint_ = 0;
  for (const index::SlotSeen& seen : lookup_->slots_seen())
    cache.Saw(partition_->offset + seen.line, seen.slot);
  const bool hit = step.kind == index::Lookup::Kind::kHit;
  if (hit && context_.sampler.Hit()) Sample(index::AccessHint::Unpack(lookup_->AccessOf(step)));
  if (hit && step.line != 0) {
    cache.Used(place_, partition_->offset + step.line, step.slot);
  } else if (hit && step.slot != 0) {
    cache.Worked(place_, step.slot);
  } else if (misled && (hit || step.kind == index::Lookup::Kind::kMiss)) {
    cache.Forget(place_);
  }
}

// `access`: still without the partition's number.
void KeyLookup::Sample(index::AccessHint access) {
  access.partition = partition_->number;
  context_.sampler.Note(access.Pack());
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
