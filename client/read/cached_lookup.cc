#include "client/read/cached_lookup.h"

#include <cassert>

namespace osprey::client {

void CachedLookup::Prepare(PartitionMaps& maps, absl::string_view key,
                           const index::LookupOptions& options) {
  key_ = key;
  options_ = options;
  hash_ = index::HashKey(key, maps.hash_seed());
  partition_ = &maps.Of(hash_);
  window_ = partition_->map.WindowOf(hash_);
  place_ = {window_.offset == 0 ? 0 : partition_->offset + window_.offset, hash_.fingerprint()};
}

CachedLookup::Step CachedLookup::Begin() {
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

CachedLookup::Step CachedLookup::BeginAt(uint64_t slot, absl::string_view key,
                                         const index::LookupOptions& options) {
  hint_ = slot;
  key_ = key;
  options_ = options;
  window_ = partition_->map.WindowOf(hash_);
  Open();
  return lookup_->Start(slot);
}

index::InlineProbe CachedLookup::InlineProbe(index::ByteSpan bytes) {
  assert(InlineProbes());
  index::InlineProbe inline_probe(bytes, window_, partition_->map.incarnation(), key_);
  if (!inline_probe.hit()) return inline_probe;
  for (const index::SlotSeen& seen : inline_probe.slots_seen()) {
    context_.cache.Saw(partition_->offset + seen.line, seen.slot);
  }
  if (context_.sampler.Hit()) {
    Sample({index::WordKind::kInline, hash_.fingerprint(), 0, inline_probe.line()});
  }
  return inline_probe;
}

CachedLookup::Step CachedLookup::Resume(index::ByteSpan bytes, index::Lookup::TimeOfRead time) {
  if (InlineProbes()) {
    // The lookup requests the READ that has just been made.
    Open();
    [[maybe_unused]] const Step first = lookup_->Start(/*hint=*/0);
    assert(first.kind == index::Lookup::Kind::kRead && first.offset == window_.offset);
  }
  const Step step = lookup_->Resume(bytes, time);
  Learn(step);
  return step;
}

CachedLookup::Step CachedLookup::FinishValue() {
  const Step step = lookup_->FinishValue();
  Learn(step);
  return step;
}

// Caches all slots of a READ, of this key and of its neighbours: each may save a READ later.
void CachedLookup::Learn(const Step& step) {
  LocationCache& cache = context_.cache;
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
void CachedLookup::Sample(index::AccessHint access) {
  access.partition = partition_->number;
  context_.sampler.Note(access.Pack());
}

void CachedLookup::Drop() {
  if (!lookup_.has_value()) return;
  const index::LookupCounters& counters = lookup_->counters();
  context_.counters.torn += counters.torn;
  context_.counters.stale_hints += counters.stale_hints;
  context_.counters.retries += counters.torn + counters.restarts;
  lookup_.reset();
}

}  // namespace osprey::client
