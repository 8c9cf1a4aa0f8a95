// Table's writes in two steps (table.h): what the first one holds, so that the second one cannot fail.

#include <cassert>
#include <utility>

#include "index/layout/record.h"
#include "index/layout/test_hooks.h"
#include "index/writer/keys/changes.h"
#include "index/writer/keys/write_results.h"
#include "index/writer/table.h"

namespace osprey::index {
namespace {

// Versions that must be left when a write is decided. What is drawn before it is made is far less.
constexpr uint64_t kCasVersionsAhead = CasCounter::kLeftMax;

bool IsPresenceImplied(const Table::Intent& intent) {
  return intent.kind == Table::Intent::Kind::kExpire ||
         intent.condition.kind == Condition::Kind::kVersionIs;
}

// Of a key with expiry `old_ns`: the write lets it live longer.
bool Lengthens(uint64_t expiry_ns, uint64_t old_ns) { return expiry_ns == 0 || expiry_ns > old_ns; }

WriteResult ForecastVoid() { return Outcome(absl::AbortedError("expired")); }

}  // namespace

// --- The first step -----------------------------------------------------------

Table::Forecast Table::Foresee(const HashedKey& hashed, Condition condition, Lifetime lifetime,
                               absl::Time now) {
  const Location at = expirer_.LocateLive(hashed, now);
  Forecast forecast;
  forecast.present = at.found();
  forecast.refusal = Refuse(condition, at);
  if (!forecast.refusal.has_value() &&
      (!BeginWrite(keys_.writer) || !keys_.writer.CasVersionsLeft(kCasVersionsAhead)))
    forecast.refusal = VersionsUsedUp();
  if (forecast.refusal.has_value()) return forecast;
  forecast.present_version = at.found() ? keys_.CurrentOf(at).version : 0;
  forecast.expiry_ns = expirer_.ExpiryOf(lifetime, at);
  return forecast;
}

absl::optional<WriteResult> Table::Prepare(const HashedKey& hashed, const Intent& intent,
                                           const Forecast& forecast, absl::Time now) {
  assert(!forecast.refusal.has_value());
  PendingWrite pending;
  Location at = keys_.Locate(hashed);
  absl::optional<WriteResult> refusal;
  if (!PrepareItem(hashed, intent, forecast.expiry_ns, pending, at, now)) refusal = Full();
  // Freeing space may have ended this key.
  if (at.found() != forecast.present) refusal = ForecastVoid();
  if (!refusal.has_value()) refusal = PrepareHidden(intent, forecast.expiry_ns, at, pending, now);
  if (!refusal.has_value() && MayBeNew(intent, forecast.expiry_ns, at, pending))
    refusal = PreparePlace(at, pending);
  if (refusal.has_value()) {
    if (pending.item.has_value()) keys_.items.Discard(*pending.item);
    return refusal;
  }
  keys_.pending.Add(hashed.hash, pending);
  return absl::nullopt;
}

// Whether the value has room in the key's present place, however long it waits: where compaction
// moves the item, and as an item if other keys displace it from its line. The key stays: it does not
// expire before the write does, and is not evicted.
bool Table::NeedsNoItem(const HashedKey& hashed, const Intent& intent, uint64_t expiry_ns,
                        const Location& at) const {
  if (!at.found()) return false;
  if (intent.kind == Intent::Kind::kExpire) return at.out_of_line() || expiry_ns == 0;
  if (keys_.options.evict) return false;
  const absl::string_view key = hashed.key;
  if (!at.out_of_line()) {
    return expiry_ns == 0 && InlineWords(key.size(), intent.value.size()) <= at.entry.words;
  }
  const uint64_t present_ns = keys_.CurrentOf(at).expiry_ns;
  return keys_.items.FitsInPlace(at.entry.head, key.size(), intent.value.size()) &&
         keys_.items.HasRoomAnywhere(at.item(), key.size(), intent.value.size()) &&
         (present_ns == 0 || !Lengthens(expiry_ns, present_ns) || IsPresenceImplied(intent));
}

// False if memory is full. May move and end any key.
bool Table::PrepareItem(const HashedKey& hashed, const Intent& intent, uint64_t expiry_ns,
                        PendingWrite& pending, Location& at, absl::Time now) {
  if (intent.kind == Intent::Kind::kPublish || NeedsNoItem(hashed, intent, expiry_ns, at))
    return true;
  const uint64_t length =
      intent.kind == Intent::Kind::kExpire ? at.entry.value.size() : intent.value.size();
  pending.item = item_room_.Begin(hashed.key, length, &at, now);
  if (pending.item.has_value()) return true;
  if (intent.kind == Intent::Kind::kExpire) return false;
  // A small value evicts others from its line.
  if (keys_.options.evict) return expiry_ns == 0 && MayBeInline(hashed.key, intent.value);
  return at.out_of_line() &&
         keys_.items.HasRoomAnywhere(at.item(), hashed.key.size(), intent.value.size());
}

// Hides the item of a key whose life the write extends; and that of a key that may not end, since the
// write counts on the item's space. The clock is read after that, as in every such write (expirer.cc).
absl::optional<WriteResult> Table::PrepareHidden(const Intent& intent, uint64_t expiry_ns,
                                                 const Location& at, PendingWrite& pending,
                                                 absl::Time now) {
  if (!at.has_expiry()) return absl::nullopt;
  const uint64_t present_ns = keys_.CurrentOf(at).expiry_ns;
  if (!Lengthens(expiry_ns, present_ns)) return absl::nullopt;
  const bool is_implied = IsPresenceImplied(intent);
  const bool counts_on_item = intent.kind == Intent::Kind::kPut && !pending.item.has_value();
  if (!is_implied && !counts_on_item) return absl::nullopt;
  if (is_implied && IsMutant(Mutant::kDecidedUnhidden)) return absl::nullopt;
  const ItemHeader header = keys_.items.Hide(at.item());
  if (!expirer_.SecondLook(present_ns)) {
    expirer_.EndExpired(at, now);
    return is_implied ? NoSuchKey() : ForecastVoid();
  }
  pending.hidden = header;
  pending.hidden_at = at.item();
  return absl::nullopt;
}

// Whether the write may find no key, and then adds one: it is absent, or ends before its new expiry.
bool Table::MayBeNew(const Intent& intent, uint64_t expiry_ns, const Location& at,
                     const PendingWrite& pending) const {
  if (intent.kind == Intent::Kind::kExpire) return false;
  if (!at.found()) return true;
  return at.has_expiry() && !pending.hidden.has_value() &&
         Lengthens(expiry_ns, keys_.CurrentOf(at).expiry_ns);
}

// Whether the chain has room for one key more than those that pending writes may add.
bool Table::HasPlaceAt(const Location& at) const {
  const uint64_t room = keys_.chains.RoomAt(at.home);
  if (room > keys_.pending.places()) return true;
  uint64_t awaited = 0;
  keys_.pending.ForEachPlaceLike(at.hash,
                                 [&](KeyHash hash) { awaited += keys_.HomeOf(hash) == at.home; });
  return room > awaited;
}

absl::optional<WriteResult> Table::PreparePlace(const Location& at, PendingWrite& pending) {
  if (keys_.options.evict) return absl::nullopt;
  if (!HasPlaceAt(at)) {
    ++keys_.counts.chains_full;
    return ChainFull();
  }
  if (!keys_.chains.Keep()) return Full();
  pending.has_place = true;
  return absl::nullopt;
}

bool Table::AnswersLater(const HashedKey& hashed, uint64_t bytes_max) const {
  if (keys_.pending.hidden() == 0) return false;
  const Location at = keys_.Locate(hashed);
  if (!at.out_of_line() || !keys_.items.IsHidden(at.item())) return false;
  const Current current = keys_.CurrentOf(at);
  return current.value.size() > bytes_max || expirer_.HasExpired(current.expiry_ns);
}

// --- Instead of the second step -----------------------------------------------

void Table::DropPrepared() {
  for (const PendingWrite& pending : keys_.pending.TakeAll()) {
    if (pending.has_place) keys_.chains.Unkeep();
    if (pending.item.has_value()) keys_.items.Discard(*pending.item);
    // An evicted key's item is gone.
    if (!pending.hidden.has_value() || pending.was_evicted) continue;
    const uint64_t expiry_ns = ItemFields::Unpack(*pending.hidden).expiry_ns;
    keys_.items.Renew(pending.hidden_at, *pending.hidden, expiry_ns);
    const absl::optional<Location> at = keys_.LocateItem(pending.hidden_at);
    assert(at.has_value());
    // Sweeps have passed over it.
    expirer_.NoteExpiry(*at, expiry_ns);
  }
}

// --- The second step ----------------------------------------------------------

// The place becomes free for the key.
PendingWrite Table::TakePrepared(KeyHash hash) {
  const PendingWrite pending = keys_.pending.Take(hash);
  if (pending.has_place) keys_.chains.Unkeep();
  return pending;
}

// A hidden item has not expired, whatever the time: the write was decided before.
Location Table::LocatePrepared(const HashedKey& hashed, const PendingWrite& pending,
                               absl::Time now) {
  return pending.hidden.has_value() ? keys_.Locate(hashed) : expirer_.LocateLive(hashed, now);
}

// The value that was decided is evicted before any reader could find it.
WriteResult Table::EvictedBefore(absl::string_view key, uint64_t version, uint64_t expiry_ns) {
  if (keys_.options.changes != nullptr) keys_.options.changes->OnEvict(key, version);
  WriteResult result = Written(version);
  result.expiry_ns = expiry_ns;
  return result;
}

// The value that was decided has expired before any reader could find it.
WriteResult Table::EndedBefore(absl::string_view key, const Location& at, uint64_t version,
                               uint64_t expiry_ns, absl::Time now) {
  if (at.found()) expirer_.EndExpired(at, now);
  if (keys_.options.changes != nullptr) keys_.options.changes->OnExpired(key, version);
  WriteResult result = Written(version);
  result.expiry_ns = expiry_ns;
  return result;
}

WriteResult Table::ApplyPut(const HashedKey& hashed, ByteSpan value, uint64_t version,
                            uint64_t expiry_ns, absl::Time now) {
  const GivenVersion given(*this, version, expiry_ns);
  const absl::string_view key = hashed.key;
  PendingWrite pending = TakePrepared(hashed.hash);
  if (pending.was_evicted) {
    if (pending.item.has_value()) keys_.items.Discard(*pending.item);
    return EvictedBefore(key, version, expiry_ns);
  }
  const Location at = LocatePrepared(hashed, pending, now);
  if (at.found() && keys_.clocks.on()) keys_.clocks.Add(at.line, at.entry.at, kClockPerWrite);
  evictor_.NoteWrite();
  if (expirer_.HasExpired(expiry_ns)) {
    if (pending.item.has_value()) keys_.items.Discard(*pending.item);
    return EndedBefore(key, at, version, expiry_ns, now);
  }
  return MakeDecided(hashed, at, value, version, expiry_ns, pending, now);
}

// Makes a put that has what it needs.
WriteResult Table::MakeDecided(const HashedKey& hashed, const Location& at, ByteSpan value,
                               uint64_t version, uint64_t expiry_ns, PendingWrite& pending,
                               absl::Time now) {
  const absl::string_view key = hashed.key;
  const bool may_be_inline = expiry_ns == 0 && MayBeInline(key, value) && !at.chained;
  absl::optional<uint64_t> line;
  if (may_be_inline) line = placement_.InlineRoom(at, InlineWords(key.size(), value.size()));
  const bool has_room =
      at.out_of_line() && keys_.items.HasRoomInPlace(at.entry.head, key.size(), value.size());
  WriteResult result = Written(version);
  if (may_be_inline && MayRewriteInline(at, key, value, Lifetime::Forever())) {
    result = RewriteInline(at, value);
  } else if (line.has_value()) {
    placement_.PutInline(at, *line, key, value, keys_.writer.NextValueVersion(), now);
    grower_.NoteLoad(at);
  } else if (has_room && (!pending.item.has_value() ||
                          keys_.items.FitsInPlace(at.entry.head, key.size(), value.size()))) {
    const uint64_t data_hash = ItemStore::DataHash(key, value);
    if (!pending.hidden.has_value()) keys_.items.Hide(at.item());
    result = RewriteHidden(at, key, value, data_hash, expiry_ns);
  } else if (pending.item.has_value()) {
    const uint64_t item = *std::exchange(pending.item, absl::nullopt);
    keys_.items.Fill(item, value);
    const uint64_t drawn = keys_.writer.NextValueVersion();
    result = PublishItem(at, keys_.items.Finish(item, drawn, expiry_ns), drawn, now);
  } else {
    PutInlineAtLast(hashed, value, version, now);
  }
  assert(result.status.ok());
  if (pending.item.has_value()) keys_.items.Discard(*pending.item);
  return result;
}

// There was no item for a small value when it was decided, and now its line has no room. Keys of the
// line give way: no matter which, since each of them makes it emptier.
void Table::PutInlineAtLast(const HashedKey& hashed, ByteSpan value, uint64_t version,
                            absl::Time now) {
  assert(keys_.options.evict);
  while (!evictor_.PutInline(hashed.key, value, version, now)) {
    const Location at = keys_.Locate(hashed);
    const uint64_t line = at.found() && !at.chained ? at.line : at.home;
    // The key itself stays: a reader must not miss it in between.
    const bool is_emptier = evictor_.EvictFrom(line, hashed.key, now);
    assert(is_emptier);
    (void)is_emptier;
  }
}

WriteResult Table::ApplyPublish(Reservation reservation, uint64_t version, uint64_t expiry_ns,
                                absl::Time now) {
  assert(reservation.owner_ == &reservations_);
  const GivenVersion given(*this, version, expiry_ns);
  const StoredItem item = keys_.items.At(reservation.item());
  const HashedKey hashed = keys_.Hashed(item.key);
  const PendingWrite pending = TakePrepared(hashed.hash);
  if (pending.was_evicted) {
    const WriteResult result = EvictedBefore(item.key, version, expiry_ns);
    reservation.Abort();
    return result;
  }
  const Location at = LocatePrepared(hashed, pending, now);
  if (at.found()) keys_.clocks.Add(at.line, at.entry.at, kClockPerWrite);
  if (expirer_.HasExpired(expiry_ns)) return EndedBefore(item.key, at, version, expiry_ns, now);
  if (!update_room_.full() && item.bytes <= kChunkBytesMax && at.out_of_line() &&
      keys_.items.HasRoomInPlace(at.entry.head, item.key.size(), item.value.size())) {
    // As PublishUnreported.
    const uint64_t data_hash = ItemStore::DataHash(item.key, item.value);
    if (!pending.hidden.has_value()) keys_.items.Hide(at.item());
    return RewriteHidden(at, item.key, item.value, data_hash, expiry_ns);
  }
  const uint64_t data_hash = reservation.HashRest();
  WriteResult result = PublishFilled(std::move(reservation), data_hash, at, expiry_ns, now);
  assert(result.status.ok());
  return result;
}

WriteResult Table::ApplyExpire(const HashedKey& hashed, uint64_t version, uint64_t expiry_ns,
                               absl::Time now) {
  const GivenVersion given(*this, version, expiry_ns);
  PendingWrite pending = TakePrepared(hashed.hash);
  const Location at = LocatePrepared(hashed, pending, now);
  WriteResult result = Written(version);
  result.expiry_ns = expiry_ns;
  if (expirer_.HasExpired(expiry_ns)) {
    result = EndedBefore(hashed.key, at, version, expiry_ns, now);
  } else if (at.out_of_line()) {
    result = RenewHidden(
        at, pending.hidden.has_value() ? *pending.hidden : keys_.items.Hide(at.item()), expiry_ns);
  } else if (at.found() && expiry_ns != 0) {
    result =
        RenewOutOfLine(at, *std::exchange(pending.item, absl::nullopt), version, expiry_ns, now);
  }
  assert(result.status.ok());
  if (pending.item.has_value()) keys_.items.Discard(*pending.item);
  return result;
}

// As in MoveOutOfLine.
WriteResult Table::RenewOutOfLine(const Location& at, uint64_t item, uint64_t version,
                                  uint64_t expiry_ns, absl::Time now) {
  keys_.items.Fill(item, at.entry.value);
  keys_.writer.NextCasVersion();  // for the record alone (W1)
  return PublishItem(at, keys_.items.Finish(item, version, expiry_ns), version, now);
}

WriteResult Table::ApplyDelete(const HashedKey& hashed, uint64_t version, absl::Time now) {
  const GivenVersion given(*this, version, 0);
  const Location at = expirer_.LocateLive(hashed, now);
  if (at.found()) {
    keys_.writer.NextValueVersion();
    placement_.Remove(at, kPromotionsPerDelete, now);
  }
  return Written(version);
}

}  // namespace osprey::index
