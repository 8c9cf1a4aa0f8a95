// Table's writes as a replica (table.h): what they hold, so that they can be made whatever comes in
// between.
//
//   item    a span of the value's length. It is written to only if the value does not fit inline, or into
//           the key's present item.
//   place   a free overflow line, for a key that is new then
//
// So compaction and splits need not be foreseen: begun items are not moved, kept lines are not taken, and
// segments merge only if the chains fit the keys that are awaited.

#include <cassert>
#include <utility>

#include "index/layout/line_search.h"
#include "index/writer/keys/write_results.h"
#include "index/writer/table.h"

namespace osprey::index {
namespace {

// Versions of records that must be left when a write is held, for all that are held then.
constexpr uint64_t kRecordVersionsAhead = CasCounter::kLeftMax;

// Steps of growth that a write takes if its home has no room.
constexpr int kGrowStepsMax = 64;

}  // namespace

// --- Holding ------------------------------------------------------------------

absl::Status Table::CheckHolds() const {
  if (keys_.writer.CasVersionsLeft(kRecordVersionsAhead)) return absl::OkStatus();
  return VersionsUsedUp().status;
}

absl::StatusOr<HeldWrite> Table::HoldPut(const HashedKey& hashed, uint64_t value_length,
                                         bool is_new, absl::Time now) {
  if (absl::Status status = CheckLengths(hashed.key.size(), value_length); !status.ok())
    return status;
  if (absl::Status status = CheckHolds(); !status.ok()) return status;
  HeldWrite held;
  held.hash = hashed.hash;
  if (is_new) {
    if (absl::Status status = HoldPlace(hashed, now); !status.ok()) return status;
    held.has_place = true;
  }
  held.item = item_room_.BeginHeld(hashed.key, value_length, now);
  if (held.item.has_value()) return held;
  DropHeld(held);
  return Full().status;
}

absl::Status Table::HoldPlace(const HashedKey& hashed, absl::Time now) {
  if (!keys_.pending.HoldsPlace(hashed.hash)) {
    int steps = 0;
    while (!HasPlaceAt(keys_.Locate(hashed)) && grower_.Wanted() && steps < kGrowStepsMax) {
      (void)grower_.Step(now);
      ++steps;
    }
    if (!HasPlaceAt(keys_.Locate(hashed))) {
      ++keys_.counts.chains_full;
      return ChainFull().status;
    }
  }
  if (!keys_.chains.Keep()) return Full().status;
  keys_.pending.AddHeldPlace(hashed.hash);
  return absl::OkStatus();
}

absl::StatusOr<HeldWrite> Table::HoldExpire(const HashedKey& hashed, uint64_t expiry_ns,
                                            absl::Time now) {
  if (absl::Status status = CheckLengths(hashed.key.size(), 0); !status.ok()) return status;
  if (absl::Status status = CheckHolds(); !status.ok()) return status;
  HeldWrite held;
  held.hash = hashed.hash;
  // An inline key needs an item to have an expiry. Which value it has by then is not known yet.
  if (expiry_ns == 0 || hashed.key.size() > kInlineKeyBytesMax) return held;
  held.item = item_room_.BeginHeld(hashed.key, kInlineKeyBytesMax - hashed.key.size(), now);
  if (!held.item.has_value()) return Full().status;
  return held;
}

absl::StatusOr<HeldValue> Table::HoldValue(const HashedKey& hashed, uint64_t value_length,
                                           absl::Time now) {
  absl::StatusOr<HeldWrite> held = HoldPut(hashed, value_length, /*is_new=*/true, now);
  if (!held.ok()) return held.status();
  HeldValue value{*held, reservations_.Begin(*held->item)};
  value.place.item.reset();
  return value;
}

void Table::DropPlace(KeyHash hash) {
  keys_.pending.RemoveHeldPlace(hash);
  keys_.chains.Unkeep();
}

void Table::DropHeld(const HeldWrite& held) {
  if (held.item.has_value()) keys_.items.Discard(*held.item);
  if (held.has_place) DropPlace(held.hash);
}

void Table::DropHeldValue(HeldValue held) {
  held.reservation.Abort();
  DropHeld(held.place);
}

uint64_t Table::HeldVersion(const HashedKey& hashed) const {
  const Location at = keys_.Locate(hashed);
  return at.found() ? keys_.CurrentOf(at).version : 0;
}

// --- Making -------------------------------------------------------------------

void Table::MakePut(const HeldWrite& held, const HashedKey& hashed, ByteSpan value,
                    uint64_t version, uint64_t expiry_ns, absl::Time now) {
  const GivenVersion given(*this, version, expiry_ns);
  if (held.has_place) DropPlace(held.hash);
  PendingWrite pending;
  pending.item = held.item;
  const Location at = keys_.Locate(hashed);
  assert(at.found() || held.has_place);
  if (at.found() && keys_.clocks.on()) keys_.clocks.Add(at.line, at.entry.at, kClockPerWrite);
  evictor_.NoteWrite();
  (void)MakeDecided(hashed, at, value, version, expiry_ns, pending, now);
}

void Table::MakeValuePut(HeldValue held, const HashedKey& hashed, uint64_t version,
                         uint64_t expiry_ns, absl::Time now) {
  const GivenVersion given(*this, version, expiry_ns);
  DropHeld(held.place);
  const uint64_t data_hash = held.reservation.HashRest();
  const Location at = keys_.Locate(hashed);
  if (at.found() && keys_.clocks.on()) keys_.clocks.Add(at.line, at.entry.at, kClockPerWrite);
  evictor_.NoteWrite();
  const WriteResult result =
      PublishFilled(std::move(held.reservation), data_hash, at, expiry_ns, now);
  assert(result.status.ok());
  (void)result;
}

bool Table::MakeExpire(const HeldWrite& held, const HashedKey& hashed, uint64_t version,
                       uint64_t expiry_ns, absl::Time now) {
  const GivenVersion given(*this, version, expiry_ns);
  absl::optional<uint64_t> item = held.item;
  const Location at = keys_.Locate(hashed);
  const bool is_present = at.found() && keys_.CurrentOf(at).version == version;
  if (is_present && at.out_of_line()) {
    (void)RenewHidden(at, keys_.items.Hide(at.item()), expiry_ns);
  } else if (is_present && expiry_ns != 0) {
    // It was begun for the longest value.
    keys_.items.BeginAt(*item, hashed.key, at.entry.value.size());
    (void)RenewOutOfLine(at, *std::exchange(item, absl::nullopt), version, expiry_ns, now);
  }
  if (item.has_value()) keys_.items.Discard(*item);
  return is_present;
}

bool Table::MakeDelete(const HashedKey& hashed, uint64_t version, absl::Time now) {
  const Location at = keys_.Locate(hashed);
  if (!at.found() || keys_.CurrentOf(at).version > version) return false;
  const GivenVersion given(*this, version, 0);
  keys_.writer.NextValueVersion();
  placement_.Remove(at, kPromotionsPerDelete, now);
  return true;
}

}  // namespace osprey::index
