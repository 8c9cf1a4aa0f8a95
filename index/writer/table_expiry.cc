// Time to live (R8): when a key counts as absent, how its life is extended, and how it is ended.

#include <algorithm>
#include <cassert>
#include <string>

#include "index/layout/test_hooks.h"
#include "index/writer/table.h"
#include "index/writer/write_results.h"

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

// --- The clock ---------------------------------------------------------------

uint64_t Table::ServerTimeNs() const {
  return static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixNanos(options_.clock()), 0));
}

bool Table::HasExpired(uint64_t expiry_ns) const {
  if (expiry_ns == 0 || IsMutant(Mutant::kExpiryIgnored)) return false;
  return ServerTimeNs() >= expiry_ns;
}

uint64_t Table::ExpiryOfMortal(const Lifetime& lifetime, const Location& at) const {
  switch (lifetime.kind) {
    case Lifetime::Kind::kForever:
      return 0;
    case Lifetime::Kind::kKept:
      return at.found() ? CurrentOf(at).expiry_ns : 0;
    case Lifetime::Kind::kLimited: {
      // Both below 2^63.
      const int64_t ttl_ns = std::max<int64_t>(absl::ToInt64Nanoseconds(lifetime.ttl), 0);
      return RoundUpToExpiry(ServerTimeNs() + static_cast<uint64_t>(ttl_ns));
    }
  }
  return 0;
}

// If so, `at` becomes the place for a new key.
void Table::EndIfExpired(const HashedKey& hashed, Location& at, absl::Time now) {
  if (!HasExpired(CurrentOf(at).expiry_ns)) return;
  if (writer_.CasVersionsLeft(kCasVersionsPerWriteMax)) {
    EndExpired(at, now);
    at = Locate(hashed);
  } else {
    at.entry = {};  // no write follows
  }
}

void Table::EndExpired(const Location& at, absl::Time now) {
  Remove(at, kPromotionsPerDelete, now);
  ++counts_.expiries;
}

// --- The second clock read ---------------------------------------------------
//
// The problem is a write whose success implies that the key was there, and that extends its life.
// If the old expiry passes between the clock read and the instant of the write, a reader may have
// found the key absent. Then it must not come back. So the writer hides the old item first; from
// then on no reader can judge it. If a second clock read after that is before the expiry, no reader
// has found the key expired.

bool Table::OutlivesThePresent(const Location& at, uint64_t expiry_ns) const {
  return expiry_ns == 0 || expiry_ns > CurrentOf(at).expiry_ns;
}

// Hides the item.
bool Table::OutlivesTheWrite(const Location& at) {
  const uint64_t expiry_ns = CurrentOf(at).expiry_ns;
  items_.Hide(at.item());
  return SecondLook(expiry_ns);
}

bool Table::SecondLook(uint64_t expiry_ns) const {
  return IsMutant(Mutant::kNoSecondLook) || !HasExpired(expiry_ns);
}

WriteResult Table::EndMeanwhile(const Location& at, absl::Time now) {
  EndExpired(at, now);
  return NoSuchKey();
}

// --- Expire ------------------------------------------------------------------

WriteResult Table::Expire(absl::string_view key, Condition condition, Lifetime lifetime,
                          absl::Time now) {
  assert(condition.kind != Condition::Kind::kAbsent && lifetime.kind != Lifetime::Kind::kKept);
  if (absl::Status status = CheckLengths(key.size(), 0); !status.ok()) return Outcome(status);
  const Location at = LocateLive(Hashed(key), now);
  if (absl::optional<WriteResult> refusal = Refuse(condition, at)) return *refusal;
  if (!at.found()) return NoSuchKey();
  if (absl::Status status = CheckVersionsLeft(writer_); !status.ok()) return Outcome(status);
  WriteResult result = Outcome(absl::OkStatus(), CurrentOf(at).version);
  result.expiry_ns = ExpiryOf(lifetime, at);
  if (!at.out_of_line()) {
    if (result.expiry_ns == 0) return result;
    return MoveOutOfLine(key, condition, result.expiry_ns, now);
  }
  const ItemHeader hidden = items_.Hide(at.item());
  const uint64_t old_expiry_ns = ItemFields::Unpack(hidden).expiry_ns;
  if (old_expiry_ns != 0 && !SecondLook(old_expiry_ns)) return EndMeanwhile(at, now);
  const StoredItem item = items_.At(at.item());
  Recount(at, AccountOf(at), AccountOf(item.key, item.value, WordKind::kSlot, result.expiry_ns));
  result.slot = LeadTo(at, result.expiry_ns != 0);
  items_.Renew(at.item(), hidden, result.expiry_ns);
  NoteExpiry(at, result.expiry_ns);
  return result;
}

// Updates the expiry bit in the slot of a hidden item, and returns the slot.
uint64_t Table::LeadTo(const Location& at, bool has_expiry) {
  Slot slot = Slot::Unpack(at.entry.head);
  if (slot.has_expiry == has_expiry) return at.entry.head;
  slot.has_expiry = has_expiry;
  LineEditor line(writer_, clocks_, at.line);
  line.AddSlot(slot.Pack(), line.Remove(at.entry.at, 1));
  PublishLine(line, at.chained);
  return slot.Pack();
}

// For an inline key, which has no expiry. It becomes an item with one, as in a demotion.
WriteResult Table::MoveOutOfLine(absl::string_view key, const Condition& condition,
                                 uint64_t expiry_ns, absl::Time now) {
  Location at = Locate(key);
  const absl::optional<uint64_t> item = BeginItem(key, at.entry.value.size(), &at, now);
  if (!item.has_value()) return Full();
  // Freeing space may have ended this key.
  absl::optional<WriteResult> refusal = Refuse(condition, at);
  if (!refusal.has_value() && !at.found()) refusal = NoSuchKey();
  if (refusal.has_value()) {
    items_.Discard(*item);
    return *refusal;
  }
  assert(!at.out_of_line());
  items_.Fill(*item, at.entry.value);
  const uint64_t version = CurrentOf(at).version;
  writer_.NextCasVersion();  // for the record alone (W1)
  return PublishItem(at, items_.Finish(*item, version, expiry_ns), version, now);
}

// --- Sweeping ----------------------------------------------------------------

// Records that a key has got an expiry.
void Table::NoteExpiry(const Location& at, uint64_t expiry_ns) {
  if (expiry_ns == 0) return;
  Segment& segment = segments_[UnitOf(at.home)];
  segment.expires_from_ns = std::min(segment.expires_from_ns, expiry_ns);
  sweep_.passed_from_ns = std::min(sweep_.passed_from_ns, expiry_ns);
}

bool Table::IsSweepDue(uint64_t time_ns) const {
  return counts_.expiring_keys > 0 && (sweep_.under_way || sweep_.passed_from_ns <= time_ns);
}

absl::Time Table::next_sweep() const {
  if (counts_.expiring_keys == 0) return absl::InfiniteFuture();
  return sweep_.under_way ? sweep_.next : std::max(sweep_.next, TimeOf(sweep_.passed_from_ns));
}

bool Table::SweepStep(absl::Time now) {
  if (now < next_sweep()) return false;
  if (now >= sweep_.period_end) {
    sweep_.period_end = now + kSweepPeriod();
    sweep_.lines_left = kSweepLinesPerPeriod;
  }
  SweepSome(ServerTimeNs(), now);
  if (sweep_.lines_left == 0 || !sweep_.under_way) sweep_.next = sweep_.period_end;
  return now >= next_sweep();
}

void Table::SweepSome(uint64_t time_ns, absl::Time now) {
  if (!sweep_.under_way) {
    sweep_.under_way = true;
    sweep_.next_unit = 0;
    sweep_.passed_from_ns = UINT64_MAX;
  }
  if (!writer_.CasVersionsLeft(kCasVersionsPerSweepMax)) {
    sweep_.lines_left = 0;
    return;
  }
  if (!sweep_.unit.has_value() && !NextToSweep(time_ns)) return;
  uint64_t keys_left = kSweepKeysMax;
  for (uint32_t i = 0; i < kSweepLinesMax && sweep_.line < kLinesPerUnit; ++i) {
    const uint64_t line = UnitOffset(*sweep_.unit) + sweep_.line * kLineBytes;
    if (!SweepLine(line, time_ns, keys_left, now)) return;
    ++sweep_.line;
    if (sweep_.lines_left > 0) --sweep_.lines_left;
  }
  if (sweep_.line < kLinesPerUnit) return;
  Segment& segment = segments_[*sweep_.unit];
  segment.expires_from_ns = std::min(segment.expires_from_ns, sweep_.expires_from_ns);
  sweep_.passed_from_ns = std::min(sweep_.passed_from_ns, segment.expires_from_ns);
  sweep_.unit.reset();
}

// Finds the next segment with keys that may have expired. False if there is none yet: the sweep has
// ended, or continues later.
bool Table::NextToSweep(uint64_t time_ns) {
  for (uint32_t i = 0; i < kSegmentsPassedMax; ++i) {
    if (sweep_.next_unit >= segments_.size()) {
      sweep_.under_way = false;
      return false;
    }
    const uint32_t unit = sweep_.next_unit++;
    Segment& segment = segments_[unit];
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
bool Table::SweepLine(uint64_t line, uint64_t time_ns, uint64_t& keys_left, absl::Time now) {
  std::string key;
  while (FirstExpired(line, time_ns, key)) {
    if (keys_left-- == 0) return false;
    EndExpired(Locate(key), now);
  }
  return true;
}

// The first expired key in a line, or in the chain after it. It records the earliest expiry of the
// others.
bool Table::FirstExpired(uint64_t line, uint64_t time_ns, std::string& key) {
  for (uint64_t at = line; at != 0;) {
    const Line& bytes = LineAt(writer_, at);
    for (LineCursor cursor(bytes); cursor.Next();) {
      const LineEntry& entry = cursor.entry();
      if (entry.kind != WordKind::kSlot) continue;
      const Slot slot = Slot::Unpack(entry.head);
      if (slot.has_expiry) items_.Prefetch(slot.offset);
    }
    for (LineCursor cursor(bytes); cursor.Next();) {
      const LineEntry& entry = cursor.entry();
      if (entry.kind != WordKind::kSlot || !Slot::Unpack(entry.head).has_expiry) continue;
      const StoredItem item = items_.At(Slot::Unpack(entry.head).offset);
      if (item.expiry_ns <= time_ns) {
        key.assign(item.key.data(), item.key.size());
        return true;
      }
      sweep_.expires_from_ns = std::min(sweep_.expires_from_ns, item.expiry_ns);
    }
    at = bytes.words[kLinkWord] == 0 ? 0 : LinkOffset(bytes.words[kLinkWord]);
  }
  return false;
}

// Space for a new item from expired keys that no sweep has reached: some steps of work.
absl::optional<uint64_t> Table::SweepForItem(absl::string_view key, uint64_t value_length,
                                             absl::Time now) {
  if (counts_.expiring_keys == 0) return absl::nullopt;
  const uint64_t time_ns = ServerTimeNs();
  for (int i = 0; i < kSweepsForItemMax && IsSweepDue(time_ns); ++i) {
    const uint64_t expiries = counts_.expiries;
    SweepSome(time_ns, now);
    if (counts_.expiries == expiries) continue;
    const absl::optional<uint64_t> item = items_.Begin(key, value_length, now, Fit::kTight);
    if (item.has_value()) return item;
  }
  return absl::nullopt;
}

}  // namespace osprey::index
