// Caches with which eviction is compared, as simulations: they hold keys' numbers and weights, no values.
//
//   Lru      exact: evicts the key that was used least recently
//   S3Fifo   Yang et al., "FIFO queues are all you need for cache eviction", SOSP '23, with its authors'
//            parameters: a tenth for new keys, as many ghosts as keys of the main queue, two hits to move
//   Belady   evicts the key whose next use is the latest, which no cache can know
//
// A weight is 1 for a cache of so many keys, or the bytes of key and value. Each cache is asked by Get
// and filled by Put after a miss. Not thread-safe.

#ifndef OSPREY_TESTS_BENCHMARKS_CACHE_RIVALS_H_
#define OSPREY_TESTS_BENCHMARKS_CACHE_RIVALS_H_

#include <cstdint>
#include <list>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace osprey {

class Lru {
 public:
  explicit Lru(uint64_t weight_max) : weight_max_(weight_max) {}
  bool Get(uint64_t key);
  // REQUIRES: the key is absent.
  void Put(uint64_t key, uint64_t weight = 1);

 private:
  struct Entry {
    uint64_t key;
    uint64_t weight;
  };
  uint64_t weight_max_;
  uint64_t weight_ = 0;
  std::list<Entry> order_;  // most recently used first
  absl::flat_hash_map<uint64_t, std::list<Entry>::iterator> places_;
};

class S3Fifo {
 public:
  explicit S3Fifo(uint64_t weight_max)
      : weight_max_(weight_max),
        small_max_(weight_max / 10 > 0 ? weight_max / 10 : 1),
        ghosts_max_(weight_max - small_max_) {}
  bool Get(uint64_t key);
  // REQUIRES: the key is absent.
  void Put(uint64_t key, uint64_t weight = 1);

 private:
  static constexpr uint32_t kHitsMax = 3;
  static constexpr uint32_t kHitsToMove = 2;

  struct Entry {
    uint64_t key;
    uint64_t weight;
    uint32_t hits = 0;
  };
  struct Queue {
    std::list<Entry> order;  // the newest first
    uint64_t weight = 0;
    std::list<Entry>::iterator Push(const Entry& entry);
    Entry Pop();
  };

  void Evict();
  void EvictFromSmall();
  void EvictFromMain();
  void AddGhost(const Entry& entry);

  uint64_t weight_max_;
  uint64_t small_max_;
  uint64_t ghosts_max_;  // their weight
  Queue small_;
  Queue main_;
  Queue ghosts_;
  absl::flat_hash_map<uint64_t, std::list<Entry>::iterator> places_;
  absl::flat_hash_map<uint64_t, std::list<Entry>::iterator> ghost_places_;
};

// How many of the trace's GETs hit from number `counted_from` on, if `keys_max` keys are kept. A key
// that comes may itself be the one that is not kept.
uint64_t BeladyHits(absl::Span<const uint32_t> trace, uint64_t keys_max, uint64_t counted_from);

}  // namespace osprey

#endif  // OSPREY_TESTS_BENCHMARKS_CACHE_RIVALS_H_
