#include "index/writer/table.h"

#include <cassert>
#include <cstring>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"
#include "index/writer/keys/write_results.h"

namespace osprey::index {
namespace {

constexpr uint64_t kRegionBytesSmallest = 256 << 10;

}  // namespace

// --- Creation --------------------------------------------------------------

Table::Table(absl::Span<std::byte> region, const TableOptions& options)
    : keys_(region, options),
      update_room_(keys_.writer, keys_.items.space(),
                   options.evict ? 0 : options.update_room_bytes),
      placement_(keys_),
      expirer_(keys_, placement_),
      compactor_(
          keys_.writer, keys_.items,
          [this](uint64_t from, const Sealing& sealing, absl::Time now) {
            placement_.ReplaceCopied(from, sealing, now);
          },
          [this](uint64_t unit) { return merger_.MoveUnit(unit); }),
      reservations_(keys_.items, update_room_),
      evictor_(keys_, placement_, expirer_, compactor_, reservations_.reserved()),
      item_room_(keys_, expirer_, evictor_, compactor_, update_room_),
      segments_(keys_, expirer_, *this),
      grower_(keys_, placement_, expirer_, evictor_, segments_),
      merger_(keys_, placement_, expirer_, segments_),
      flusher_(keys_) {}

uint64_t Table::RegionBytesMin() { return kRegionBytesSmallest; }

absl::StatusOr<std::unique_ptr<Table>> Table::Create(absl::Span<std::byte> region,
                                                     const TableOptions& options) {
  if (region.size() < kRegionBytesSmallest || region.size() > kRegionBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a region has ", kRegionBytesSmallest, " to ",
                                                   kRegionBytesMax, " bytes, not ", region.size()));
  }
  if (reinterpret_cast<uintptr_t>(region.data()) % kPageBytes != 0) {
    return absl::InvalidArgumentError("the region does not start on a 4 KiB page");
  }
  if (options.incarnation == 0) return absl::InvalidArgumentError("an incarnation is not 0");
  if (options.split_percent > 100) {
    return absl::InvalidArgumentError("split_percent is at most 100");
  }
  std::unique_ptr<Table> table = absl::WrapUnique(new Table(region, options));
  table->segments_.LayOut();
  table->update_room_.TakeBack();
  return table;
}

// --- Reading ---------------------------------------------------------------

absl::StatusOr<Table::View> Table::Find(absl::string_view key, ExpiredKeys expired) const {
  const Location at = keys_.Locate(key);
  if (!at.found()) return NoSuchKey().status;
  const Current current = keys_.CurrentOf(at);
  if (expirer_.HasExpired(current.expiry_ns) && expired == ExpiredKeys::kAbsent &&
      !keys_.items.IsHidden(at.item()))
    return NoSuchKey().status;
  View view;
  view.expiry_ns = current.expiry_ns;
  view.value = current.value;
  view.version = current.version;
  view.slot = at.out_of_line() ? at.entry.head : 0;
  return view;
}

absl::optional<WriteResult> Table::Refuse(const Condition& condition, const Location& at) const {
  const uint64_t present = at.found() ? keys_.CurrentOf(at).version : 0;
  switch (condition.kind) {
    case Condition::Kind::kNone:
      return absl::nullopt;
    case Condition::Kind::kAbsent:
      if (!at.found()) return absl::nullopt;
      return Outcome(absl::AlreadyExistsError("the key exists"), present);
    case Condition::Kind::kVersionIs:
      if (!at.found()) return NoSuchKey();
      if (present == condition.version) return absl::nullopt;
      return Outcome(absl::FailedPreconditionError(absl::StrCat("the key's version is ", present,
                                                                ", not ", condition.version)),
                     present);
  }
  return absl::nullopt;
}

// --- Put -------------------------------------------------------------------

// The instant is the item's. Neither its form changes, nor whether it has an expiry.
[[gnu::always_inline]] inline WriteResult Table::RewriteItem(const Location& at,
                                                             absl::string_view key, ByteSpan value,
                                                             uint64_t expiry_ns) {
  const uint64_t version = keys_.writer.NextValueVersion();
  if (value.size() != keys_.items.ValueLengthAt(at.item()))
    keys_.Recount(at, keys_.AccountOf(at), keys_.AccountOf(key, value, WordKind::kSlot, expiry_ns));
  expirer_.NoteExpiry(at, expiry_ns);
  ++keys_.writer.hot().in_place_updates;
  keys_.items.RewriteInPlace(at.item(), key, value, version, expiry_ns);
  WriteResult result = Written(version);
  result.slot = at.entry.head;
  result.expiry_ns = expiry_ns;
  return result;
}

// Whether the value may be written over the present one. The slot's expiry bit stays right.
inline bool Table::MayRewrite(const Location& at, absl::string_view key, ByteSpan value,
                              uint64_t expiry_ns) const {
  return at.out_of_line() && at.has_expiry() == (expiry_ns != 0) &&
         keys_.items.FitsInPlace(at.entry.head, key.size(), value.size());
}

[[gnu::always_inline]] inline WriteResult Table::PutUnreported(
    const HashedKey& hashed, absl::Span<const std::byte> value, const Condition& condition,
    absl::Time now, const Lifetime& lifetime, const SlotHint& hint) {
  const absl::string_view key = hashed.key;
  assert(!kTestHooks || hashed.hash.bits == keys_.Hashed(key).hash.bits);
  if (!AreLengthsPossible(key.size(), value.size()))
    return Outcome(CheckLengths(key.size(), value.size()));
  if (kTestHooks) placement_.MoveAsNobodyMay(key);
  Location at = expirer_.LocateLive(hashed, now, hint);
  if (condition.kind != Condition::Kind::kNone) {
    if (absl::optional<WriteResult> refusal = Refuse(condition, at)) return *refusal;
  }
  if (!BeginWrite(keys_.writer)) return VersionsUsedUp();
  if (at.found() && keys_.clocks.on()) keys_.clocks.Add(at.line, at.entry.at, kClockPerWrite);
  evictor_.NoteWrite();
  if (MayRewriteInline(at, key, value, lifetime)) return RewriteInline(at, value);
  const uint64_t expiry_ns = expirer_.ExpiryOf(lifetime, at);
  if (expiry_ns == 0 && MayBeInline(key, value) && !at.chained) {
    const absl::optional<uint64_t> line =
        placement_.InlineRoom(at, InlineWords(key.size(), value.size()));
    if (line.has_value()) {
      if (expirer_.Prolongs(condition, at, expiry_ns) && !expirer_.OutlivesTheWrite(at))
        return EndMeanwhile(at, now);
      const uint64_t version = keys_.writer.NextValueVersion();
      placement_.PutInline(at, *line, key, value, version, now);
      grower_.NoteLoad(at);
      return Outcome(absl::OkStatus(), version);
    }
  }
  if (RewritingForced() && at.out_of_line() &&
      keys_.items.HasRoomInPlace(at.entry.head, key.size(), value.size()))
    return RewriteForWant(at, key, value, condition, expiry_ns, now);
  if (MayRewrite(at, key, value, expiry_ns)) {
    if (expirer_.Prolongs(condition, at, expiry_ns) && !expirer_.OutlivesTheWrite(at))
      return EndMeanwhile(at, now);
    return RewriteItem(at, key, value, expiry_ns);
  }
  absl::optional<uint64_t> item = keys_.items.Begin(key, value.size(), now, Fit::kTight);
  const bool fills_half =
      at.out_of_line() && 2 * ItemBytes(key.size(), value.size()) >=
                              ReadLengthOf(Slot::Unpack(at.entry.head).length_class);
  if (!item.has_value() && fills_half &&
      keys_.items.HasRoomInPlace(at.entry.head, key.size(), value.size()))
    return RewriteForWant(at, key, value, condition, expiry_ns, now);
  if (!item.has_value()) item = item_room_.Begin(key, value.size(), &at, now);
  // Freeing space may have ended this key.
  if (absl::optional<WriteResult> refusal = Refuse(condition, at)) {
    if (item.has_value()) keys_.items.Discard(*item);
    return *refusal;
  }
  if (!item.has_value() && at.out_of_line() &&
      keys_.items.HasRoomInPlace(at.entry.head, key.size(), value.size()))
    return RewriteForWant(at, key, value, condition, expiry_ns, now);
  if (!item.has_value()) {
    // A value without an item allows no second clock read, and no expiry.
    if (expiry_ns != 0 || expirer_.Prolongs(condition, at, expiry_ns)) return Full();
    const uint64_t version = keys_.writer.NextValueVersion();
    if (evictor_.PutInline(key, value, version, now)) return Outcome(absl::OkStatus(), version);
    return Full();
  }
  keys_.items.Fill(*item, value);
  if (expirer_.Prolongs(condition, at, expiry_ns) && !expirer_.OutlivesTheWrite(at)) {
    keys_.items.Discard(*item);
    return EndMeanwhile(at, now);
  }
  const uint64_t version = keys_.writer.NextValueVersion();
  return PublishItem(at, keys_.items.Finish(*item, version, expiry_ns), version, now);
}

WriteResult Table::Put(const HashedKey& hashed, absl::Span<const std::byte> value,
                       const Condition& condition, absl::Time now, const Lifetime& lifetime,
                       const SlotHint& hint) {
  WriteResult result = PutUnreported(hashed, value, condition, now, lifetime, hint);
  if (IsToReport(result))
    keys_.options.changes->OnPut(hashed.key, value, result.version, result.expiry_ns);
  return result;
}

// Makes a finished item the key's value, or discards it.
WriteResult Table::PublishItem(const Location& at, const Sealing& sealing, uint64_t version,
                               absl::Time now) {
  const uint64_t item = sealing.offset;
  const StoredItem stored = keys_.items.At(item);
  const uint64_t slot = keys_.items.SlotOf(item, at.hash.fingerprint());
  const KeyAccount account =
      keys_.AccountOf(stored.key, stored.value, WordKind::kSlot, stored.expiry_ns);
  if (at.found()) {
    keys_.Recount(at, keys_.AccountOf(at), account);
    placement_.ReplaceWithItem(at, slot, sealing, now);
  } else if (InsertItem(at, slot, sealing, now)) {
    keys_.Recount(at, {}, account);
    grower_.NoteLoad(at);
  } else {
    keys_.items.Discard(item);
    grower_.NoteLoad(at);
    return NoPlaceAt(at);
  }
  expirer_.NoteExpiry(at, stored.expiry_ns);
  WriteResult result = Outcome(absl::OkStatus(), version);
  result.slot = slot;
  result.expiry_ns = stored.expiry_ns;
  return result;
}

// Why there is no place for another key at its home. Where memory is full, chains lack lines long
// before one of them is at its longest.
WriteResult Table::NoPlaceAt(const Location& at) {
  if (!keys_.chains.IsFull(at.home)) return Full();
  ++keys_.counts.chains_full;
  return ChainFull();
}

// Inserts into the window if it has a free word or can free one, else into the chain. The instant
// is the seal.
bool Table::InsertItem(const Location& at, uint64_t slot, const Sealing& sealing, absl::Time now) {
  const uint32_t clock = keys_.ClockOfNew(at.hash);
  for (int attempt = 0; !placement_.InsertSlot(at.home, slot, clock, now); ++attempt) {
    if (attempt < kEvictionsNearMax && evictor_.EvictNear(at.home, {}, now)) continue;
    // A write that a log has is not refused. Each eviction makes the home line, or its chain, shorter.
    if (keys_.writer.hot().given_version == 0 || !evictor_.EvictFrom(at.home, {}, now))
      return false;
  }
  keys_.items.Seal(sealing);
  return true;
}

// Whether the value fits exactly in the inline place of the present one. Inline keys have no
// expiry.
bool Table::MayRewriteInline(const Location& at, absl::string_view key, ByteSpan value,
                             const Lifetime& lifetime) {
  return at.entry.kind == WordKind::kInline && lifetime.kind != Lifetime::Kind::kLimited &&
         InlineWords(key.size(), value.size()) == at.entry.words;
}

// The instant is the line's. Only the words of this entry are stored.
WriteResult Table::RewriteInline(const Location& at, ByteSpan value) {
  const uint64_t version = keys_.writer.NextValueVersion();
  const LineEntry& entry = at.entry;
  if (value.size() != entry.value.size())
    keys_.counts.value_bytes += value.size() - entry.value.size();
  Line line = LineAt(keys_.writer, at.line);
  line.words[entry.at] = InlineHead{static_cast<uint32_t>(entry.key.size()),
                                    static_cast<uint32_t>(value.size()), version}
                             .Pack();
  auto* const bytes = reinterpret_cast<std::byte*>(&line.words[entry.at + 1]);
  if (!value.empty()) std::memcpy(bytes + entry.key.size(), value.data(), value.size());
  if (value.size() < entry.value.size())
    std::memset(bytes + entry.key.size() + value.size(), 0, entry.value.size() - value.size());
  keys_.writer.AmendRecord(at.line, keys_.writer.NextRecordVersion(at.line), line.record.tag,
                           WordBytesOf(line), entry.at, entry.words);
  return Written(version);
}

// There is no space for a copy, so the value, of any length, replaces the present one in place. The
// instant is the item's. While it is hidden, its line is updated to show whether it has an expiry.
WriteResult Table::RewriteForWant(const Location& at, absl::string_view key, ByteSpan value,
                                  const Condition& condition, uint64_t expiry_ns, absl::Time now) {
  const uint64_t data_hash = ItemStore::DataHash(key, value);
  if (expirer_.Prolongs(condition, at, expiry_ns)) {
    if (!expirer_.OutlivesTheWrite(at)) return EndMeanwhile(at, now);
  } else {
    keys_.items.Hide(at.item());
  }
  return RewriteHidden(at, key, value, data_hash, expiry_ns);
}

WriteResult Table::RewriteHidden(const Location& at, absl::string_view key, ByteSpan value,
                                 uint64_t data_hash, uint64_t expiry_ns) {
  const uint64_t version = keys_.writer.NextValueVersion();
  keys_.Recount(at, keys_.AccountOf(at), keys_.AccountOf(key, value, WordKind::kSlot, expiry_ns));
  expirer_.NoteExpiry(at, expiry_ns);
  ++keys_.writer.hot().in_place_updates;
  WriteResult result = Written(version);
  result.slot = placement_.LeadTo(at, expiry_ns != 0);
  result.expiry_ns = expiry_ns;
  keys_.items.RewriteHidden(at.item(), key, value, data_hash, version, expiry_ns);
  return result;
}

// --- Delete ----------------------------------------------------------------

WriteResult Table::Delete(absl::string_view key, Condition condition, absl::Time now) {
  if (keys_.options.changes == nullptr) return DeleteUnreported(key, condition, now);
  const Location at = keys_.Locate(key);
  const uint64_t present = at.found() ? keys_.CurrentOf(at).version : 0;
  WriteResult result = DeleteUnreported(key, condition, now);
  if (IsToReport(result)) keys_.options.changes->OnDelete(key, present, result.version);
  return result;
}

WriteResult Table::DeleteUnreported(absl::string_view key, Condition condition, absl::Time now) {
  if (absl::Status status = CheckLengths(key.size(), 0); !status.ok()) return Outcome(status);
  const Location at = expirer_.LocateLive(keys_.Hashed(key), now);
  if (absl::optional<WriteResult> refusal = Refuse(condition, at)) return *refusal;
  if (!at.found()) return NoSuchKey();
  if (absl::Status status = CheckVersionsLeft(keys_.writer); !status.ok()) return Outcome(status);
  const uint64_t version = keys_.writer.NextValueVersion();
  placement_.Remove(at, kPromotionsPerDelete, now);
  return Outcome(absl::OkStatus(), version);
}

// --- Rendezvous ------------------------------------------------------------

absl::StatusOr<Reservation> Table::Reserve(absl::string_view key, uint64_t value_length,
                                           absl::Time now) {
  if (absl::Status status = CheckLengths(key.size(), value_length); !status.ok()) return status;
  if (absl::Status status = CheckVersionsLeft(keys_.writer); !status.ok()) return status;
  absl::optional<uint64_t> item = item_room_.Begin(key, value_length, nullptr, now);
  if (!item.has_value()) item = item_room_.BeginUpdate(key, value_length, now);
  if (!item.has_value()) return Full().status;
  return reservations_.Begin(*item);
}

WriteResult Table::Publish(Reservation reservation, Condition condition, absl::Time now,
                           Lifetime lifetime) {
  const std::string key(keys_.options.changes == nullptr ? absl::string_view()
                                                         : keys_.items.At(reservation.item()).key);
  WriteResult result = PublishUnreported(std::move(reservation), condition, now, lifetime);
  if (IsToReport(result)) {
    const Location at = keys_.Locate(key);
    keys_.options.changes->OnPut(key, keys_.CurrentOf(at).value, result.version, result.expiry_ns);
  }
  return result;
}

WriteResult Table::PublishUnreported(Reservation reservation, Condition condition, absl::Time now,
                                     Lifetime lifetime) {
  assert(reservation.owner_ == &reservations_);
  const Location at =
      expirer_.LocateLive(keys_.Hashed(keys_.items.At(reservation.item()).key), now);
  if (absl::optional<WriteResult> refusal = Refuse(condition, at)) return *refusal;
  if (absl::Status status = CheckVersionsLeft(keys_.writer); !status.ok()) return Outcome(status);
  if (at.found()) keys_.clocks.Add(at.line, at.entry.at, kClockPerWrite);
  const uint64_t expiry_ns = expirer_.ExpiryOf(lifetime, at);
  const StoredItem item = keys_.items.At(reservation.item());
  if (!update_room_.full() && item.bytes <= kChunkBytesMax && at.out_of_line() &&
      keys_.items.HasRoomInPlace(at.entry.head, item.key.size(), item.value.size())) {
    // The pages return to the space for updates, since a chunk would not fill them.
    return RewriteForWant(at, item.key, item.value, condition, expiry_ns, now);
  }
  // Hashed before the old value is hidden, since it may take long.
  const uint64_t data_hash = reservation.HashRest();
  if (expirer_.Prolongs(condition, at, expiry_ns) && !expirer_.OutlivesTheWrite(at))
    return EndMeanwhile(at, now);
  return PublishFilled(std::move(reservation), data_hash, at, expiry_ns, now);
}

WriteResult Table::PublishFilled(Reservation reservation, uint64_t data_hash, const Location& at,
                                 uint64_t expiry_ns, absl::Time now) {
  const uint64_t version = keys_.writer.NextValueVersion();
  const Sealing sealing =
      keys_.items.FinishHashed(reservation.item(), data_hash, version, expiry_ns);
  reservation.Release();  // PublishItem keeps or discards the item
  WriteResult result = PublishItem(at, sealing, version, now);
  if (!update_room_.full()) {
    // The old value's space serves the next update.
    keys_.items.space().EndGrace(now);
    update_room_.TakeBack();
  }
  return result;
}

void Table::Lease(uint64_t slot, absl::Time until) {
  const uint64_t offset = Slot::Unpack(slot).offset;
  if (keys_.items.space().IsAllocated(offset))
    keys_.items.space().quarantine().Lease(offset, until);
}

Table::Stats Table::stats() const {
  Stats stats = keys_.counts;
  const ItemSpace::Stats items = keys_.items.space().stats();
  stats.in_place_updates = keys_.writer.hot().in_place_updates;
  stats.region_bytes = keys_.writer.region_bytes();
  stats.index_bytes = keys_.space.units_used() * kUnitBytes;
  stats.item_bytes = items.used_bytes - update_room_.bytes();
  stats.item_space_bytes = items.page_bytes;
  stats.quarantine_bytes = items.waiting_bytes;
  stats.segments = segments_.count();
  stats.directory_depth = keys_.directory.depth();
  stats.overflow_lines = keys_.chains.lines();
  stats.compaction_items = compactor_.stats().moved_items;
  stats.compaction_bytes = compactor_.stats().moved_bytes;
  stats.compaction_windows = compactor_.stats().windows_emptied;
  stats.compaction_windows_given_up = compactor_.stats().windows_given_up;
  stats.cas_version = keys_.writer.cas_version();
  stats.load_factor = static_cast<double>(keys_.occupied_words) /
                      static_cast<double>(stats.segments * kLinesPerUnit * kLineWords);
  return stats;
}

WriteResult Table::EndMeanwhile(const Location& at, absl::Time now) {
  expirer_.EndExpired(at, now);
  return NoSuchKey();
}

// --- Expire ----------------------------------------------------------------

WriteResult Table::Expire(absl::string_view key, Condition condition, Lifetime lifetime,
                          absl::Time now) {
  WriteResult result = ExpireUnreported(key, condition, lifetime, now);
  if (IsToReport(result)) keys_.options.changes->OnExpire(key, result.version, result.expiry_ns);
  return result;
}

WriteResult Table::ExpireUnreported(absl::string_view key, Condition condition, Lifetime lifetime,
                                    absl::Time now) {
  assert(condition.kind != Condition::Kind::kAbsent && lifetime.kind != Lifetime::Kind::kKept);
  if (absl::Status status = CheckLengths(key.size(), 0); !status.ok()) return Outcome(status);
  const Location at = expirer_.LocateLive(keys_.Hashed(key), now);
  if (absl::optional<WriteResult> refusal = Refuse(condition, at)) return *refusal;
  if (!at.found()) return NoSuchKey();
  if (absl::Status status = CheckVersionsLeft(keys_.writer); !status.ok()) return Outcome(status);
  WriteResult result = Outcome(absl::OkStatus(), keys_.CurrentOf(at).version);
  result.expiry_ns = expirer_.ExpiryOf(lifetime, at);
  if (!at.out_of_line()) {
    if (result.expiry_ns == 0) return result;
    return MoveOutOfLine(key, condition, result.expiry_ns, now);
  }
  const ItemHeader hidden = keys_.items.Hide(at.item());
  const uint64_t old_expiry_ns = ItemFields::Unpack(hidden).expiry_ns;
  if (old_expiry_ns != 0 && !expirer_.SecondLook(old_expiry_ns)) return EndMeanwhile(at, now);
  return RenewHidden(at, hidden, result.expiry_ns);
}

WriteResult Table::RenewHidden(const Location& at, const ItemHeader& hidden, uint64_t expiry_ns) {
  WriteResult result = Outcome(absl::OkStatus(), keys_.CurrentOf(at).version);
  result.expiry_ns = expiry_ns;
  const StoredItem item = keys_.items.At(at.item());
  keys_.Recount(at, keys_.AccountOf(at),
                keys_.AccountOf(item.key, item.value, WordKind::kSlot, result.expiry_ns));
  result.slot = placement_.LeadTo(at, result.expiry_ns != 0);
  keys_.items.Renew(at.item(), hidden, result.expiry_ns);
  expirer_.NoteExpiry(at, result.expiry_ns);
  return result;
}

// For an inline key, which has no expiry. It becomes an item with one, as in a demotion.
WriteResult Table::MoveOutOfLine(absl::string_view key, const Condition& condition,
                                 uint64_t expiry_ns, absl::Time now) {
  Location at = keys_.Locate(key);
  const absl::optional<uint64_t> item = item_room_.Begin(key, at.entry.value.size(), &at, now);
  if (!item.has_value()) return Full();
  // Freeing space may have ended this key.
  absl::optional<WriteResult> refusal = Refuse(condition, at);
  if (!refusal.has_value() && !at.found()) refusal = NoSuchKey();
  if (refusal.has_value()) {
    keys_.items.Discard(*item);
    return *refusal;
  }
  assert(!at.out_of_line());
  keys_.items.Fill(*item, at.entry.value);
  const uint64_t version = keys_.CurrentOf(at).version;
  keys_.writer.NextCasVersion();  // for the record alone (W1)
  return PublishItem(at, keys_.items.Finish(*item, version, expiry_ns), version, now);
}

// --- Steps -----------------------------------------------------------------

bool Table::CompactStep(absl::Time now, const CompactionBound& bound) {
  update_room_.TakeBack();
  return compactor_.Step(now, bound);
}

bool Table::GrowStep(absl::Time now) { return grower_.Step(now) || merger_.Step(now); }

bool Table::StepWanted(absl::Time now) {
  return GrowthWanted() || merger_.Wanted(now) || now >= expirer_.next_sweep() ||
         evictor_.Wanted() || EvictionsForced() > 0 || compactor_.StepWanted(now);
}

absl::StatusOr<Table::FlushResult> Table::FlushStep(uint64_t cursor, uint64_t version_bound,
                                                    uint64_t keys_max, absl::Time now) {
  absl::StatusOr<FlushResult> result =
      flusher_.Step(cursor, version_bound, keys_max,
                    [&](absl::string_view key) { return Delete(key, {}, now).status; });
  // Dead space that waits is scattered. A flush makes its pages free at once, for anything.
  if (result.ok()) keys_.items.space().EndGraceOf(2 * result->deleted + kFreedPerFlushStep, now);
  return result;
}

}  // namespace osprey::index
