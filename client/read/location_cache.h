// The location cache: the last known places of items. A hint from it saves a GET the READ of the
// window.
//
//   LocationCache cache(16 << 20);
//   hint = cache.Find({home, fingerprint});          // 0: none
//   cache.Saw(line, slot);                           // a window held it, of any key
//   cache.Used({home, fingerprint}, line, slot);     // and it led to this key
//   cache.Worked / cache.Failed({home, fingerprint}, hint);
//
// An entry is the slot word itself (8 bytes). Its fingerprint distinguishes keys. Its kind is the
// same in every slot, so its two bits hold the state:
//
//              Saw, Wrote                    Failed                 Failed
//   (empty) ---------------> good ------------------> failed once ---------> failing: no hint given
//                             ^                          |    ^                  |
//                             +--------- Worked ---------+    +---- Saw again ---+
//                                                                   at the same place
//
// A key that other clients often move would cost a wasted READ each time. Its hints stop after two
// failures. The windows that are READ meanwhile show when they are right again.
//
// Entries are in sets of 8 (a CPU cache line), chosen by line and fingerprint. The slots of a
// window are cached under the line that holds them. A key's home is that line or the one before, so
// a lookup searches both sets. Keys used last are first in their set; the last entry is evicted
// from a full set. A slot that was only seen enters at the end, so that neighbours of the keys in
// use do not evict them.
//
// A wrong hint costs READs and nothing else (R3): this class checks no value that a server sends.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_READ_LOCATION_CACHE_H_
#define OSPREY_CLIENT_READ_LOCATION_CACHE_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "index/layout/hash.h"
#include "index/layout/layout.h"

namespace osprey::client {

class LocationCache {
 public:
  static constexpr size_t kWays = 8;
  static constexpr uint64_t kSetBytes = kWays * sizeof(uint64_t);

  // The name of a key here: its home line, by its offset in the region or any other fixed name of a
  // line. `home` 0: unknown; nothing is found or noted.
  struct Place {
    uint64_t home = 0;
    uint32_t fingerprint = 0;
  };

  // Uses the largest power of two of bytes up to `bytes_max`; below kSetBytes it stays empty. It
  // reserves the memory now and commits it as it is used.
  explicit LocationCache(uint64_t bytes_max);
  ~LocationCache();
  LocationCache(const LocationCache&) = delete;
  LocationCache& operator=(const LocationCache&) = delete;

  // Where the slots of a key may be.
  class Sets;
  Sets SetsOf(Place place) const;
  // A slot for a lookup to begin with, or 0.
  uint64_t Find(Place place) const;
  // The lookup that began with `slot` found the key there, or did not.
  void Worked(Place place, uint64_t slot);
  void Failed(Place place, uint64_t slot);
  // A window shows `slot` at `line` (index::SlotSeen).
  void Saw(uint64_t line, uint64_t slot);
  // The slot that was Seen there led to the key.
  void Used(Place place, uint64_t line, uint64_t slot);
  // The server has written the key at `slot`; 0: it is deleted, or in the line itself.
  void Wrote(Place place, uint64_t slot);
  // The key is absent, or in the line itself.
  void Forget(Place place) { Wrote(place, 0); }
  // Another server: clears the cache.
  void Clear();
  // Clears it, and returns memory above `bytes_max`. REQUIRES: no lookup holds Sets.
  void Shrink(uint64_t bytes_max);

  uint64_t bytes() const { return set_count_ * kSetBytes; }

 private:
  // In the place of a slot's kind.
  enum class State : uint64_t { kEmpty = 0, kGood = 1, kFailedOnce = 2, kFailing = 3 };
  struct alignas(kSetBytes) Set {
    uint64_t ways[kWays];
  };

  static State StateOf(uint64_t entry) { return static_cast<State>(entry >> 62); }
  static uint64_t WithState(uint64_t word, State state) {
    return (word << 2 >> 2) | static_cast<uint64_t>(state) << 62;
  }
  static bool SamePlace(uint64_t entry, uint64_t slot) { return (entry ^ slot) << 2 == 0; }
  // The second line of the window.
  static uint64_t SecondOf(uint64_t home) { return home + index::kLineBytes; }
  static uint64_t* Locate(Set& set, uint32_t fingerprint);
  static void MoveToFront(Set& set, uint64_t* entry);
  static void Erase(Set& set, uint32_t fingerprint);
  static void Note(uint64_t& entry, uint64_t slot);
  Set& SetOf(uint64_t line, uint32_t fingerprint) const;
  bool on() const { return set_count_ != 0; }

  uint64_t set_count_ = 0;  // a power of two, or 0
  Set* sets_ = nullptr;     // of set_count_, mapped
};

// Lines are 128 bytes apart and fingerprints dense. A multiplication by a large odd number (2^64
// divided by the golden ratio) spreads every bit of both to the high ones.
inline LocationCache::Set& LocationCache::SetOf(uint64_t line, uint32_t fingerprint) const {
  assert(on());
  const uint64_t mixed =
      (line / index::kLineBytes << 16 ^ fingerprint) * uint64_t{0x9E3779B97F4A7C15};
  return sets_[(mixed ^ mixed >> 32) * uint64_t{0x9E3779B97F4A7C15} >> 24 & (set_count_ - 1)];
}

inline uint64_t* LocationCache::Locate(Set& set, uint32_t fingerprint) {
  for (uint64_t& entry : set.ways) {
    if (StateOf(entry) == State::kEmpty) return nullptr;  // empty entries are behind all others
    if (index::Slot::Unpack(entry).fingerprint == fingerprint) return &entry;
  }
  return nullptr;
}

class LocationCache::Sets {
 public:
  Sets() = default;
  // Prefetches the cache lines for Find: the cache is larger than the CPU's. Several keys
  // prefetched at once cost as much as one.
  void Prefetch() const {
    for (const Set* set : sets_) __builtin_prefetch(set);
  }
  // As LocationCache::Find. (Inlined: each GET begins with it.)
  [[gnu::always_inline]] uint64_t Find(uint32_t fingerprint) const {
    if (sets_[0] == nullptr) return 0;
    for (Set* set : sets_) {
      const uint64_t* const entry = Locate(*set, fingerprint);
      if (entry != nullptr && StateOf(*entry) != State::kFailing)
        return WithState(*entry, static_cast<State>(index::WordKind::kSlot));
    }
    return 0;
  }
  // As LocationCache::Worked.
  void Worked(uint32_t fingerprint, uint64_t slot) const {
    if (sets_[0] == nullptr) return;
    // Usually the slot is the first entry with state good, in which it equals the slot word.
    static_assert(static_cast<uint64_t>(State::kGood) ==
                  static_cast<uint64_t>(index::WordKind::kSlot));
    if (sets_[0]->ways[0] != slot) NoteWorked(fingerprint, slot);
  }

 private:
  friend class LocationCache;
  void NoteWorked(uint32_t fingerprint, uint64_t slot) const;

  Set* sets_[2] = {};  // null: the cache is off, or the key's place is unknown
};

[[gnu::always_inline]] inline LocationCache::Sets LocationCache::SetsOf(Place place) const {
  Sets sets;
  if (!on() || place.home == 0) return sets;
  sets.sets_[0] = &SetOf(place.home, place.fingerprint);
  sets.sets_[1] = &SetOf(SecondOf(place.home), place.fingerprint);
  return sets;
}

inline void LocationCache::Worked(Place place, uint64_t slot) {
  SetsOf(place).Worked(place.fingerprint, slot);
}

inline uint64_t LocationCache::Find(Place place) const {
  return SetsOf(place).Find(place.fingerprint);
}

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_LOCATION_CACHE_H_
