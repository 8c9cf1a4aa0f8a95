#include "client/read/location_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace osprey::client {
namespace {

constexpr uint64_t kPageBytes = 4096;  // of x86-64

}  // namespace

LocationCache::LocationCache(uint64_t bytes_max) {
  if (bytes_max < kSetBytes) return;
  const uint64_t bytes = std::bit_floor(bytes_max);
  // Mapped, not allocated: unused pages take no memory.
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (memory == MAP_FAILED) return;  // the client works without, with more READs
  // One TLB entry for 2 MiB, if the system has such pages; it works without.
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  sets_ = static_cast<Set*>(memory);
  set_count_ = bytes / kSetBytes;
}

LocationCache::~LocationCache() {
  if (on()) munmap(sets_, bytes());
}

// Returns the pages to the system; they then read as zeros, that is, empty.
void LocationCache::Clear() {
  if (on() && madvise(sets_, bytes(), MADV_DONTNEED) != 0) std::memset(sets_, 0, bytes());
}

void LocationCache::Shrink(uint64_t bytes_max) {
  if (bytes_max >= bytes()) return;
  Clear();
  const uint64_t kept = bytes_max < kSetBytes ? 0 : std::bit_floor(bytes_max);
  // Whole pages: all sizes are powers of two.
  const uint64_t mapped = kept == 0 ? 0 : std::max(kept, kPageBytes);
  if (mapped < bytes()) munmap(reinterpret_cast<std::byte*>(sets_) + mapped, bytes() - mapped);
  set_count_ = kept / kSetBytes;
}

void LocationCache::MoveToFront(Set& set, uint64_t* entry) {
  const uint64_t moved = *entry;
  std::memmove(set.ways + 1, set.ways, static_cast<size_t>(entry - set.ways) * sizeof(uint64_t));
  set.ways[0] = moved;
}

void LocationCache::Erase(Set& set, uint32_t fingerprint) {
  uint64_t* const entry = Locate(set, fingerprint);
  if (entry == nullptr) return;
  uint64_t* const end = set.ways + kWays;
  std::memmove(entry, entry + 1, static_cast<size_t>(end - entry - 1) * sizeof(uint64_t));
  end[-1] = 0;
}

// `slot` is the item's present place. An entry with another place keeps its state, because the
// state counts the moves of the key between two observations.
void LocationCache::Note(uint64_t& entry, uint64_t slot) {
  State state = StateOf(entry);
  if (state == State::kFailing && SamePlace(entry, slot)) state = State::kFailedOnce;
  entry = WithState(slot, state);
}

void LocationCache::Sets::NoteWorked(uint32_t fingerprint, uint64_t slot) const {
  for (Set* set : sets_) {
    uint64_t* const entry = Locate(*set, fingerprint);
    if (entry == nullptr || !SamePlace(*entry, slot)) continue;
    *entry = WithState(slot, State::kGood);
    return MoveToFront(*set, entry);
  }
}

void LocationCache::Failed(Place place, uint64_t slot) {
  if (!on() || place.home == 0) return;
  for (const uint64_t line : {place.home, SecondOf(place.home)}) {
    uint64_t* const entry = Locate(SetOf(line, place.fingerprint), place.fingerprint);
    if (entry == nullptr || !SamePlace(*entry, slot)) continue;
    *entry =
        WithState(slot, StateOf(*entry) == State::kGood ? State::kFailedOnce : State::kFailing);
  }
}

void LocationCache::Saw(uint64_t line, uint64_t slot) {
  if (!on()) return;
  const uint32_t fingerprint = index::Slot::Unpack(slot).fingerprint;
  Set& set = SetOf(line, fingerprint);
  // Usually the slot is cached with state good, in which it equals the slot word.
  static_assert(static_cast<uint64_t>(State::kGood) ==
                static_cast<uint64_t>(index::WordKind::kSlot));
  if (std::find(set.ways, set.ways + kWays, slot) != set.ways + kWays) return;
  if (uint64_t* const entry = Locate(set, fingerprint); entry != nullptr) return Note(*entry, slot);
  for (uint64_t& entry : set.ways) {
    if (StateOf(entry) != State::kEmpty && &entry != set.ways + kWays - 1) continue;
    entry = WithState(slot, State::kGood);
    return;
  }
}

void LocationCache::Used(Place place, uint64_t line, uint64_t slot) {
  if (!on() || place.home == 0) return;
  Set& set = SetOf(line, place.fingerprint);
  uint64_t* const entry = Locate(set, place.fingerprint);
  if (entry != nullptr && SamePlace(*entry, slot)) MoveToFront(set, entry);
  // The other line may hold an entry from a reply to a write, which did not know the key's line.
  const uint64_t other = line == place.home ? SecondOf(place.home) : place.home;
  Set& other_set = SetOf(other, place.fingerprint);
  if (&other_set != &set) Erase(other_set, place.fingerprint);
}

void LocationCache::Wrote(Place place, uint64_t slot) {
  if (!on() || place.home == 0) return;
  bool known = false;
  for (const uint64_t line : {place.home, SecondOf(place.home)}) {
    Set& set = SetOf(line, place.fingerprint);
    uint64_t* const entry = Locate(set, place.fingerprint);
    if (entry == nullptr) continue;
    if (slot == 0 || known) {
      Erase(set, place.fingerprint);
      continue;
    }
    known = true;
    Note(*entry, slot);
    MoveToFront(set, entry);
  }
  if (slot == 0 || known) return;
  Set& set = SetOf(place.home, place.fingerprint);
  uint64_t* const last = set.ways + kWays - 1;
  *last = WithState(slot, State::kGood);
  MoveToFront(set, last);
}

}  // namespace osprey::client
