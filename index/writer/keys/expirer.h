// Time to live (R8): when a key counts as absent, how its life is extended, and how it is ended.

#ifndef OSPREY_INDEX_WRITER_KEYS_EXPIRER_H_
#define OSPREY_INDEX_WRITER_KEYS_EXPIRER_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "index/writer/keys/keys.h"
#include "index/writer/keys/placement.h"

namespace osprey::index {

// Not thread-safe.
class Expirer {
 public:
  // Both must outlive this.
  Expirer(Keys& keys, Placement& placement) : keys_(keys), placement_(placement) {}

  // --- The clock.
  uint64_t ServerTimeNs() const;
  bool HasExpired(uint64_t expiry_ns) const;
  // The expiry of a value written now with that lifetime; 0: none.
  uint64_t ExpiryOf(const Lifetime& lifetime, const Location& at) const {
    return lifetime.kind == Lifetime::Kind::kForever ? 0 : ExpiryOfMortal(lifetime, at);
  }

  // --- Ending keys.
  // The place of the key if it is alive. An expired key is ended first.
  Location LocateLive(const HashedKey& hashed, absl::Time now) {
    Location at = keys_.Locate(hashed);
    if (at.has_expiry()) EndIfExpired(hashed, at, now);
    return at;
  }
  // Likewise, by a hint.
  [[gnu::always_inline]] Location LocateLive(const HashedKey& hashed, absl::Time now,
                                             const SlotHint& hint) {
    Location at = keys_.Locate(hashed, hint);
    if (at.has_expiry()) EndIfExpired(hashed, at, now);
    return at;
  }
  void EndExpired(const Location& at, absl::Time now);

  // --- The second clock read (expirer.cc has the reason).
  // Whether a write under that condition extends the life of a key that has an expiry.
  bool Prolongs(const Condition& condition, const Location& at, uint64_t expiry_ns) const {
    return condition.kind == Condition::Kind::kVersionIs && at.has_expiry() &&
           OutlivesThePresent(at, expiry_ns);
  }
  // Hides the item. False: the old expiry has passed, and the key must end.
  bool OutlivesTheWrite(const Location& at);
  bool SecondLook(uint64_t expiry_ns) const;

  // --- Sweeping.
  // Records that a key has got an expiry.
  void NoteExpiry(const Location& at, uint64_t expiry_ns);
  // As Table::SweepStep and Table::next_sweep.
  bool SweepStep(absl::Time now);
  absl::Time next_sweep() const {
    if (keys_.counts.expiring_keys == 0 || !keys_.decides) return absl::InfiniteFuture();
    return NextSweepOfSome();
  }
  // Space for a new item from expired keys that no sweep has reached: some steps of work.
  absl::optional<uint64_t> SweepForItem(absl::string_view key, uint64_t value_length,
                                        absl::Time now);
  // No key of the segment expires before that.
  uint64_t ExpiresFrom(uint32_t unit) const {
    return sweep_.unit == unit ? 0 : keys_.segments[unit].expires_from_ns;
  }
  // The segment has ended, and a sweep of it.
  void Forget(uint32_t unit) {
    if (sweep_.unit == unit) sweep_.unit.reset();
  }
  // A new segment has keys that expire from then on. The sweep may have passed its unit.
  void NoteSegment(uint64_t expires_from_ns);

 private:
  // The progress of a sweep through the segments whose keys may have expired.
  struct Sweep {
    bool under_way = false;
    uint32_t next_unit = 0;
    // The segment under way.
    absl::optional<uint32_t> unit;
    uint32_t line = 0;
    uint64_t expires_from_ns = UINT64_MAX;  // of its keys visited so far
    // No key expires before that, among those that this sweep has passed and those written since it
    // began.
    uint64_t passed_from_ns = UINT64_MAX;
    uint32_t lines_left = kSweepLinesPerPeriod;  // of this period
    absl::Time period_end = absl::InfinitePast();
    absl::Time next = absl::InfinitePast();  // no step before this time
  };

  uint64_t ExpiryOfMortal(const Lifetime& lifetime, const Location& at) const;
  void EndIfExpired(const HashedKey& hashed, Location& at, absl::Time now);
  bool OutlivesThePresent(const Location& at, uint64_t expiry_ns) const;
  absl::Time NextSweepOfSome() const;
  bool IsSweepDue(uint64_t time_ns) const;
  void SweepSome(uint64_t time_ns, absl::Time now);
  bool NextToSweep(uint64_t time_ns);
  bool SweepLine(uint64_t line, uint64_t time_ns, uint64_t& keys_left, absl::Time now);
  bool FirstExpired(uint64_t line, uint64_t time_ns, std::string& key);

  Keys& keys_;
  Placement& placement_;
  Sweep sweep_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_KEYS_EXPIRER_H_
