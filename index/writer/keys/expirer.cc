#include "index/writer/keys/expirer.h"

#include <algorithm>
#include <cassert>

#include "index/layout/test_hooks.h"
#include "index/writer/keys/changes.h"

namespace osprey::index {
namespace {

// The most segments without expired keys that one step passes over.
constexpr uint32_t kSegmentsPassedMax = 4096;

// The most steps of a write that found no space.
constexpr int kSweepsForItemMax = 16;

// An upper bound of the cas versions that one step draws: each record of a key that it ends may
// need some.
constexpr uint64_t kCasVersionsPerSweepMax = 64 * kSweepKeysMax;

absl::Time TimeOf(uint64_t time_ns) {
  return time_ns > INT64_MAX ? absl::InfiniteFuture()
                             : absl::FromUnixNanos(static_cast<int64_t>(time_ns));
}

}  // namespace

uint64_t Expirer::ServerTimeNs() const {
  return static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixNanos(keys_.options.clock()), 0));
}

bool Expirer::HasExpired(uint64_t expiry_ns) const {
  if (expiry_ns == 0 || !keys_.decides || IsMutant(Mutant::kExpiryIgnored)) return false;
  return ServerTimeNs() >= expiry_ns;
}

uint64_t Expirer::ExpiryOfMortal(const Lifetime& lifetime, const Location& at) const {
  if (keys_.writer.hot().given_version != 0) return keys_.writer.hot().given_expiry_ns;
  switch (lifetime.kind) {
    case Lifetime::Kind::kForever:
      return 0;
    case Lifetime::Kind::kKept:
      return at.found() ? keys_.CurrentOf(at).expiry_ns : 0;
    case Lifetime::Kind::kLimited: {
      // Both below 2^63.
      const int64_t ttl_ns = std::max<int64_t>(absl::ToInt64Nanoseconds(lifetime.ttl), 0);
      return RoundUpToExpiry(ServerTimeNs() + static_cast<uint64_t>(ttl_ns));
    }
  }
  return 0;
}

// If so, `at` becomes the place for a new key.
void Expirer::EndIfExpired(const HashedKey& hashed, Location& at, absl::Time now) {
  if (!HasExpired(keys_.CurrentOf(at).expiry_ns)) return;
  if (keys_.writer.CasVersionsLeft(kCasVersionsPerWriteMax)) {
    EndExpired(at, now);
    at = keys_.Locate(hashed);
  } else {
    at.entry = {};  // no write follows
  }
}

void Expirer::EndExpired(const Location& at, absl::Time now) {
  if (keys_.options.changes != nullptr)
    keys_.options.changes->OnExpired(keys_.KeyOf(at), keys_.CurrentOf(at).version);
  placement_.Remove(at, kPromotionsPerDelete, now);
  ++keys_.counts.expiries;
}

// --- The second clock read ---------------------------------------------------
//
// The problem is a write whose success implies that the key was there, and that extends its life.
// If the old expiry passes between the clock read and the instant of the write, a reader may have
// found the key absent. Then it must not come back. So the writer hides the old item first; from
// then on no reader can judge it. If a second clock read after that is before the expiry, no reader
// has found the key expired.

bool Expirer::OutlivesThePresent(const Location& at, uint64_t expiry_ns) const {
  return expiry_ns == 0 || expiry_ns > keys_.CurrentOf(at).expiry_ns;
}

bool Expirer::OutlivesTheWrite(const Location& at) {
  const uint64_t expiry_ns = keys_.CurrentOf(at).expiry_ns;
  keys_.items.Hide(at.item());
  return SecondLook(expiry_ns);
}

bool Expirer::SecondLook(uint64_t expiry_ns) const {
  return IsMutant(Mutant::kNoSecondLook) || !HasExpired(expiry_ns);
}

// --- Sweeping ----------------------------------------------------------------

void Expirer::NoteExpiry(const Location& at, uint64_t expiry_ns) {
  if (expiry_ns == 0) return;
  SegmentState& segment = keys_.segments[keys_.UnitOf(at.home)];
  segment.expires_from_ns = std::min(segment.expires_from_ns, expiry_ns);
  sweep_.passed_from_ns = std::min(sweep_.passed_from_ns, expiry_ns);
}

bool Expirer::IsSweepDue(uint64_t time_ns) const {
  return keys_.counts.expiring_keys > 0 && (sweep_.under_way || sweep_.passed_from_ns <= time_ns);
}

// REQUIRES: some keys expire.
absl::Time Expirer::NextSweepOfSome() const {
  return sweep_.under_way ? sweep_.next : std::max(sweep_.next, TimeOf(sweep_.passed_from_ns));
}

bool Expirer::SweepStep(absl::Time now) {
  if (now < next_sweep()) return false;
  if (now >= sweep_.period_end) {
    sweep_.period_end = now + kSweepPeriod();
    sweep_.lines_left = kSweepLinesPerPeriod;
  }
  SweepSome(ServerTimeNs(), now);
  if (sweep_.lines_left == 0 || !sweep_.under_way) sweep_.next = sweep_.period_end;
  return now >= next_sweep();
}

void Expirer::SweepSome(uint64_t time_ns, absl::Time now) {
  if (!sweep_.under_way) {
    sweep_.under_way = true;
    sweep_.next_unit = 0;
    sweep_.passed_from_ns = UINT64_MAX;
  }
  if (!keys_.writer.CasVersionsLeft(kCasVersionsPerSweepMax)) {
    sweep_.lines_left = 0;
    return;
  }
  if (!sweep_.unit.has_value() && !NextToSweep(time_ns)) return;
  uint64_t keys_left = kSweepKeysMax;
  for (uint32_t i = 0; i < kSweepLinesMax && sweep_.line < kLinesPerUnit; ++i) {
    const uint64_t line = keys_.UnitOffset(*sweep_.unit) + sweep_.line * kLineBytes;
    if (!SweepLine(line, time_ns, keys_left, now)) return;
    ++sweep_.line;
    if (sweep_.lines_left > 0) --sweep_.lines_left;
  }
  if (sweep_.line < kLinesPerUnit) return;
  SegmentState& segment = keys_.segments[*sweep_.unit];
  segment.expires_from_ns = std::min(segment.expires_from_ns, sweep_.expires_from_ns);
  sweep_.passed_from_ns = std::min(sweep_.passed_from_ns, segment.expires_from_ns);
  sweep_.unit.reset();
}

// Finds the next segment with keys that may have expired. False if there is none yet: the sweep has
// ended, or continues later.
bool Expirer::NextToSweep(uint64_t time_ns) {
  for (uint32_t i = 0; i < kSegmentsPassedMax; ++i) {
    if (sweep_.next_unit >= keys_.segments.size()) {
      sweep_.under_way = false;
      return false;
    }
    const uint32_t unit = sweep_.next_unit++;
    SegmentState& segment = keys_.segments[unit];
    if (segment.expiring == 0) continue;
    if (segment.expires_from_ns > time_ns) {
      sweep_.passed_from_ns = std::min(sweep_.passed_from_ns, segment.expires_from_ns);
      continue;
    }
    sweep_.unit = unit;
    sweep_.line = 0;
    sweep_.expires_from_ns = UINT64_MAX;
    segment.expires_from_ns = UINT64_MAX;  // of keys written from here on
    return true;
  }
  return false;
}

// Sweeps one line and the chain of its home. False when the bound on ended keys is reached.
bool Expirer::SweepLine(uint64_t line, uint64_t time_ns, uint64_t& keys_left, absl::Time now) {
  std::string key;
  while (FirstExpired(line, time_ns, key)) {
    if (keys_left-- == 0) return false;
    EndExpired(keys_.Locate(key), now);
  }
  return true;
}

// The first expired key in a line, or in the chain after it. It records the earliest expiry of the
// others.
bool Expirer::FirstExpired(uint64_t line, uint64_t time_ns, std::string& key) {
  for (uint64_t at = line; at != 0;) {
    const Line& bytes = LineAt(keys_.writer, at);
    for (LineCursor cursor(bytes); cursor.Next();) {
      const LineEntry& entry = cursor.entry();
      if (entry.kind != WordKind::kSlot) continue;
      const Slot slot = Slot::Unpack(entry.head);
      if (slot.has_expiry) keys_.items.Prefetch(slot.offset);
    }
    for (LineCursor cursor(bytes); cursor.Next();) {
      const LineEntry& entry = cursor.entry();
      if (entry.kind != WordKind::kSlot || !Slot::Unpack(entry.head).has_expiry) continue;
      const StoredItem item = keys_.items.At(Slot::Unpack(entry.head).offset);
      if (item.expiry_ns <= time_ns) {
        // A pending write extends its life, and notes the new expiry.
        if (keys_.items.IsHidden(Slot::Unpack(entry.head).offset)) continue;
        key.assign(item.key.data(), item.key.size());
        return true;
      }
      sweep_.expires_from_ns = std::min(sweep_.expires_from_ns, item.expiry_ns);
    }
    at = bytes.words[kLinkWord] == 0 ? 0 : LinkOffset(bytes.words[kLinkWord]);
  }
  return false;
}

absl::optional<uint64_t> Expirer::SweepForItem(absl::string_view key, uint64_t value_length,
                                               absl::Time now) {
  if (keys_.counts.expiring_keys == 0) return absl::nullopt;
  const uint64_t time_ns = ServerTimeNs();
  for (int i = 0; i < kSweepsForItemMax && IsSweepDue(time_ns); ++i) {
    const uint64_t expiries = keys_.counts.expiries;
    SweepSome(time_ns, now);
    if (keys_.counts.expiries == expiries) continue;
    const absl::optional<uint64_t> item = keys_.items.Begin(key, value_length, now, Fit::kTight);
    if (item.has_value()) return item;
  }
  return absl::nullopt;
}

void Expirer::NoteSegment(uint64_t expires_from_ns) {
  sweep_.passed_from_ns = std::min(sweep_.passed_from_ns, expires_from_ns);
}

}  // namespace osprey::index
