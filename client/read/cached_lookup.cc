#include "client/read/cached_lookup.h"

#include <cassert>

namespace osprey::client {

void CachedLookup::Prepare(const KeyStart& start, absl::string_view key,
                           const index::LookupOptions& options) {
  start_ = start;
  key_ = key;
  options_ = options;
}

CachedLookup::Step CachedLookup::Begin() {
  hint_ = context_.cache.Find(start_.place());
  if (hint_ != 0) ++context_.counters.hints;
  Open();
  return lookup_->Start(hint_);
}

CachedLookup::Step CachedLookup::BeginWith(uint64_t hint, index::ByteSpan bytes,
                                           index::Lookup::TimeOfRead time) {
  hint_ = hint;
  Open();
  [[maybe_unused]] const Step first = lookup_->Start(hint);
  assert(first.kind == index::Lookup::Kind::kRead && first.length == bytes.size());
  return Resume(bytes, time);
}

CachedLookup::Step CachedLookup::BeginAt(uint64_t slot, absl::string_view key,
                                         const index::LookupOptions& options) {
  hint_ = slot;
  key_ = key;
  options_ = options;
  start_.window = start_.partition->map.WindowOf(start_.hash);
  Open();
  return lookup_->Start(slot);
}

CachedLookup::Step CachedLookup::Resume(index::ByteSpan bytes, index::Lookup::TimeOfRead time) {
  const Step step = lookup_->Resume(bytes, time);
  Learn(step);
  return step;
}

CachedLookup::Step CachedLookup::FinishValue() {
  const Step step = lookup_->FinishValue();
  Learn(step);
  return step;
}

void CachedLookup::Learn(const Step& step) {
  LocationCache& cache = context_.cache;
  const LocationCache::Place place = start_.place();
  const bool misled = lookup_->counters().stale_hints != 0;
  if (misled && hint_ != 0) cache.Failed(place, hint_), hint_ = 0;
  context_.Saw(start_, lookup_->slots_seen());
  const bool hit = step.kind == index::Lookup::Kind::kHit;
  if (hit) {
    const auto access = index::AccessHint::Unpack(lookup_->AccessOf(step));
    context_.Hit(start_, access.kind, access.offset);
  }
  if (hit && step.line != 0) {
    cache.Used(place, start_.partition->offset + step.line, step.slot);
  } else if (hit && step.slot != 0) {
    cache.Worked(place, step.slot);
  } else if (misled && (hit || step.kind == index::Lookup::Kind::kMiss)) {
    cache.Forget(place);
  }
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
