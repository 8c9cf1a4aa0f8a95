#include "tests/benchmarks/cache_rivals.h"

#include <algorithm>
#include <cassert>
#include <queue>
#include <utility>
#include <vector>

namespace osprey {

bool Lru::Get(uint64_t key) {
  const auto found = places_.find(key);
  if (found == places_.end()) return false;
  order_.splice(order_.begin(), order_, found->second);
  return true;
}

void Lru::Put(uint64_t key, uint64_t weight) {
  assert(!places_.contains(key));
  order_.push_front({key, weight});
  places_[key] = order_.begin();
  weight_ += weight;
  while (weight_ > weight_max_) {
    weight_ -= order_.back().weight;
    places_.erase(order_.back().key);
    order_.pop_back();
  }
}

std::list<S3Fifo::Entry>::iterator S3Fifo::Queue::Push(const Entry& entry) {
  order.push_front(entry);
  weight += entry.weight;
  return order.begin();
}

S3Fifo::Entry S3Fifo::Queue::Pop() {
  const Entry entry = order.back();
  order.pop_back();
  weight -= entry.weight;
  return entry;
}

bool S3Fifo::Get(uint64_t key) {
  const auto found = places_.find(key);
  if (found == places_.end()) return false;
  found->second->hits = std::min(found->second->hits + 1, kHitsMax);
  return true;
}

void S3Fifo::Put(uint64_t key, uint64_t weight) {
  assert(!places_.contains(key));
  if (weight > weight_max_) return;
  // A key is looked up before others become ghosts, as in the authors' libCacheSim.
  const auto ghost = ghost_places_.find(key);
  const bool returns = ghost != ghost_places_.end();
  if (returns) {
    ghosts_.weight -= ghost->second->weight;
    ghosts_.order.erase(ghost->second);
    ghost_places_.erase(ghost);
  }
  while (small_.weight + main_.weight + weight > weight_max_) Evict();
  places_[key] = (returns ? main_ : small_).Push({key, weight});
}

void S3Fifo::Evict() {
  if (!small_.order.empty() && (small_.weight >= small_max_ || main_.order.empty()))
    EvictFromSmall();
  else
    EvictFromMain();
}

// Keys that were hit often enough go to the main queue, until one was not.
void S3Fifo::EvictFromSmall() {
  while (!small_.order.empty()) {
    Entry entry = small_.Pop();
    if (entry.hits < kHitsToMove) {
      places_.erase(entry.key);
      AddGhost(entry);
      return;
    }
    entry.hits = 0;
    places_[entry.key] = main_.Push(entry);
  }
}

void S3Fifo::EvictFromMain() {
  for (;;) {
    Entry entry = main_.Pop();
    if (entry.hits == 0) {
      places_.erase(entry.key);
      return;
    }
    --entry.hits;
    places_[entry.key] = main_.Push(entry);
  }
}

void S3Fifo::AddGhost(const Entry& entry) {
  ghost_places_[entry.key] = ghosts_.Push(entry);
  while (ghosts_.weight > ghosts_max_) ghost_places_.erase(ghosts_.Pop().key);
}

uint64_t BeladyHits(absl::Span<const uint32_t> trace, uint64_t keys_max, uint64_t counted_from) {
  constexpr uint32_t kNever = UINT32_MAX;
  assert(trace.size() < kNever);
  std::vector<uint32_t> next_use(trace.size());
  absl::flat_hash_map<uint32_t, uint32_t> seen;
  for (uint64_t i = trace.size(); i-- > 0;) {
    const auto [at, is_new] = seen.try_emplace(trace[i], kNever);
    next_use[i] = at->second;
    at->second = static_cast<uint32_t>(i);
  }
  absl::flat_hash_map<uint32_t, uint32_t> kept;               // the next use of each key
  std::priority_queue<std::pair<uint32_t, uint32_t>> latest;  // next use and key; some are outdated
  uint64_t hits = 0;
  for (uint64_t i = 0; i < trace.size(); ++i) {
    const auto [at, is_new] = kept.try_emplace(trace[i], next_use[i]);
    if (!is_new) hits += i >= counted_from;
    at->second = next_use[i];
    latest.emplace(next_use[i], trace[i]);
    while (kept.size() > keys_max) {
      const auto [use, key] = latest.top();
      latest.pop();
      const auto found = kept.find(key);
      if (found != kept.end() && found->second == use) kept.erase(found);
    }
  }
  return hits;
}

}  // namespace osprey
