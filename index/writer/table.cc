#include "index/writer/table.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"
#include "index/writer/write_results.h"

namespace osprey::index {
namespace {

// The part of the region that items leave to the index: a sixteenth. A region full of large items,
// which small ones replace, still has an index for keys of 200 B or more each, values included.
// Beyond that the index takes space that items do not use. The minimum is a segment, its two
// halves, and overflow lines.
constexpr uint64_t kIndexShareInverse = 16;
constexpr uint64_t kIndexUnitsMin = 4;

constexpr uint64_t IndexRoom(uint64_t region_bytes) {
  return std::max(region_bytes / kIndexShareInverse, kIndexUnitsMin * kUnitBytes);
}

constexpr uint64_t kRegionBytesSmallest = 256 << 10;

}  // namespace

// --- Creation --------------------------------------------------------------

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
  table->LayOut();
  table->update_room_.TakeBack();
  return table;
}

Table::Table(absl::Span<std::byte> region, const TableOptions& options)
    : writer_(region, options.incarnation,
              options.cas_version.value_or(FirstCasVersion(options.incarnation)),
              options.cas_counter),
      space_(UnitsOffset(region.size()), region.size(), IndexRoom(region.size())),
      items_(writer_, space_, options.reuse_grace),
      update_room_(writer_, items_.space(), options.evict ? 0 : options.update_room_bytes),
      clocks_(space_.units_offset(), options.evict),
      chains_(writer_, space_, clocks_),
      directory_(writer_, options.hash_seed),
      split_(writer_, items_, clocks_, options.hash_seed),
      compactor_(writer_, items_,
                 [this](uint64_t from, const Sealing& sealing, absl::Time now) {
                   ReplaceCopied(from, sealing, now);
                 }),
      options_(options),
      segments_of_depth_(kDirectoryDepthMax + 1) {}

// --- Finding ---------------------------------------------------------------

Table::Location Table::Locate(const HashedKey& hashed) const {
  const absl::string_view key = hashed.key;
  Location at;
  at.hash = hashed.hash;
  at.home = HomeOf(at.hash);
  const EntryPattern pattern(key, at.hash.fingerprint());
  const auto is_its_item = [&](uint64_t slot) { return HoldsKey(slot, key); };
  const Line* const window = WindowAt(writer_, at.home);
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t found = pattern.FindIn(window[i], is_its_item);
    if (found == kLineWords) continue;
    at.line = at.home + i * kLineBytes;
    at.entry = EntryAt(window[i], found);
    return at;
  }
  if (LinkOf(window[0]) != 0) LocateInChain(key, pattern, at);
  return at;
}

void Table::LocateInChain(absl::string_view key, const EntryPattern& pattern, Location& at) const {
  const auto is_its_item = [&](uint64_t slot) { return HoldsKey(slot, key); };
  uint64_t chained = LinkOf(LineAt(writer_, at.home));
  for (; chained != 0; chained = LinkOf(LineAt(writer_, chained))) {
    const Line& line = LineAt(writer_, chained);
    const uint32_t found = pattern.FindIn(line, is_its_item);
    if (found == kLineWords) continue;
    at.line = chained;
    at.entry = EntryAt(line, found);
    at.chained = true;
    return;
  }
}

// Whether the item of `slot` has this key.
bool Table::HoldsKey(uint64_t slot, absl::string_view key) const {
  return items_.HoldsKey(Slot::Unpack(slot).offset, key);
}

absl::string_view Table::KeyOf(const Location& at) const {
  assert(at.found());
  return at.out_of_line() ? items_.At(at.item()).key : at.entry.key;
}

Table::Current Table::CurrentOf(const Location& at) const {
  assert(at.found());
  if (!at.out_of_line()) {
    return {at.entry.value, InlineHead::Unpack(at.entry.head).cas_version};
  }
  const StoredItem item = items_.At(at.item());
  return {item.value, item.cas_version, item.expiry_ns};
}

absl::StatusOr<Table::View> Table::Find(absl::string_view key) const {
  const Location at = Locate(key);
  if (!at.found()) return NoSuchKey().status;
  const Current current = CurrentOf(at);
  if (HasExpired(current.expiry_ns)) return NoSuchKey().status;
  View view;
  view.expiry_ns = current.expiry_ns;
  view.value = current.value;
  view.version = current.version;
  view.slot = at.out_of_line() ? at.entry.head : 0;
  return view;
}

absl::optional<WriteResult> Table::Refuse(const Condition& condition, const Location& at) const {
  const uint64_t present = at.found() ? CurrentOf(at).version : 0;
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

WriteResult Table::Put(const HashedKey& hashed, absl::Span<const std::byte> value,
                       Condition condition, absl::Time now, Lifetime lifetime) {
  const absl::string_view key = hashed.key;
  assert(!kTestHooks || hashed.hash.bits == Hashed(key).hash.bits);
  if (!AreLengthsPossible(key.size(), value.size()))
    return Outcome(CheckLengths(key.size(), value.size()));
  if (kTestHooks) MoveAsNobodyMay(key);
  Location at = LocateLive(hashed, now);
  if (condition.kind != Condition::Kind::kNone) {
    if (absl::optional<WriteResult> refusal = Refuse(condition, at)) return *refusal;
  }
  if (!BeginWrite(writer_)) return VersionsUsedUp();
  if (at.found() && clocks_.on()) clocks_.Add(at.line, at.entry.at, kClockPerWrite);
  if (lines_since_eviction_ != 0) lines_since_eviction_ = 0;
  if (MayRewriteInline(at, key, value, lifetime)) return RewriteInline(at, value);
  const uint64_t expiry_ns = ExpiryOf(lifetime, at);
  if (expiry_ns == 0 && MayBeInline(key, value) && !at.chained) {
    const absl::optional<uint64_t> line = InlineRoom(at, InlineWords(key.size(), value.size()));
    if (line.has_value()) {
      if (Prolongs(condition, at, expiry_ns) && !OutlivesTheWrite(at)) return EndMeanwhile(at, now);
      const uint64_t version = writer_.NextCasVersion();
      PutInline(at, *line, key, value, version, now);
      NoteLoad(at);
      return Outcome(absl::OkStatus(), version);
    }
  }
  if (RewritingForced() && at.out_of_line() &&
      items_.HasRoomInPlace(at.entry.head, key.size(), value.size()))
    return RewriteForWant(at, key, value, condition, expiry_ns, now);
  if (MayRewrite(at, key, value, expiry_ns)) {
    if (Prolongs(condition, at, expiry_ns) && !OutlivesTheWrite(at)) return EndMeanwhile(at, now);
    return RewriteItem(at, key, value, expiry_ns);
  }
  absl::optional<uint64_t> item = items_.Begin(key, value.size(), now, Fit::kTight);
  const bool fills_half =
      at.out_of_line() && 2 * ItemBytes(key.size(), value.size()) >=
                              ReadLengthOf(Slot::Unpack(at.entry.head).length_class);
  if (!item.has_value() && fills_half &&
      items_.HasRoomInPlace(at.entry.head, key.size(), value.size()))
    return RewriteForWant(at, key, value, condition, expiry_ns, now);
  if (!item.has_value()) item = BeginItem(key, value.size(), &at, now);
  // Freeing space may have ended this key.
  if (absl::optional<WriteResult> refusal = Refuse(condition, at)) {
    if (item.has_value()) items_.Discard(*item);
    return *refusal;
  }
  if (!item.has_value() && at.out_of_line() &&
      items_.HasRoomInPlace(at.entry.head, key.size(), value.size()))
    return RewriteForWant(at, key, value, condition, expiry_ns, now);
  if (!item.has_value()) {
    // A value without an item allows no second clock read, and no expiry.
    if (expiry_ns != 0 || Prolongs(condition, at, expiry_ns)) return Full();
    const uint64_t version = writer_.NextCasVersion();
    if (PutInlineEvicting(key, value, version, now)) return Outcome(absl::OkStatus(), version);
    return Full();
  }
  items_.Fill(*item, value);
  if (Prolongs(condition, at, expiry_ns) && !OutlivesTheWrite(at)) {
    items_.Discard(*item);
    return EndMeanwhile(at, now);
  }
  const uint64_t version = writer_.NextCasVersion();
  return PublishItem(at, items_.Finish(*item, version, expiry_ns), version, now);
}

// Makes a finished item the key's value, or discards it.
WriteResult Table::PublishItem(const Location& at, const Sealing& sealing, uint64_t version,
                               absl::Time now) {
  const uint64_t item = sealing.offset;
  const StoredItem stored = items_.At(item);
  const uint64_t slot = items_.SlotOf(item, at.hash.fingerprint());
  const Account account = AccountOf(stored.key, stored.value, WordKind::kSlot, stored.expiry_ns);
  if (at.found()) {
    Recount(at, AccountOf(at), account);
    ReplaceWithItem(at, slot, sealing, now);
  } else if (InsertItem(at, slot, sealing, now)) {
    Recount(at, {}, account);
    NoteLoad(at);
  } else {
    items_.Discard(item);
    NoteLoad(at);
    return NoPlaceAt(at);
  }
  NoteExpiry(at, stored.expiry_ns);
  WriteResult result = Outcome(absl::OkStatus(), version);
  result.slot = slot;
  result.expiry_ns = stored.expiry_ns;
  return result;
}

// Why there is no place for another key at its home. Where memory is full, chains lack lines long
// before one of them is at its longest.
WriteResult Table::NoPlaceAt(const Location& at) {
  if (!chains_.IsFull(at.home)) return Full();
  ++counts_.chains_full;
  return ChainFull();
}

// W2, out of place: the new item is finished but not sealed. Then the old one dies, and the line
// leads to the new one. The instant is the seal.
void Table::ReplaceWithItem(const Location& at, uint64_t slot, const Sealing& sealing,
                            absl::Time now) {
  const bool seal_first = IsMutant(Mutant::kNewItemLiveBeforeOldIsDead);
  const bool out_of_line = at.out_of_line();
  const uint64_t old_item = out_of_line ? at.item() : 0;
  LineEditor line(writer_, clocks_, at.line);
  line.AddSlot(slot, line.Remove(at.entry.at, at.entry.words));
  if (seal_first) items_.Seal(sealing);
  const bool is_move = kTestHooks && out_of_line &&
                       items_.At(sealing.offset).cas_version == items_.At(old_item).cas_version;
  const bool spared = IsMutant(is_move ? Mutant::kNoDeadMarkOnMove : Mutant::kNoDeadMarkOnUpdate);
  if (out_of_line && !spared) items_.Kill(old_item);
  PublishLine(line, at.chained);
  if (!seal_first) items_.Seal(sealing);
  if (out_of_line) {
    items_.Retire(old_item, now);
  } else {
    MoveFromOverflow(at.line);  // a slot is shorter than the inline item was
  }
}

// Inserts into the window if it has a free word or can free one, else into the chain. The instant
// is the seal.
bool Table::InsertItem(const Location& at, uint64_t slot, const Sealing& sealing, absl::Time now) {
  for (int attempt = 0; !InsertSlot(at.home, slot, now); ++attempt) {
    if (attempt == kEvictionsNearMax || !EvictNear(at.home, {}, now)) return false;
  }
  items_.Seal(sealing);
  return true;
}

bool Table::InsertSlot(uint64_t home, uint64_t slot, absl::Time now) {
  absl::optional<uint64_t> room = RoomierLine(home, 1);
  if (!room.has_value() && Demote(home, now)) room = RoomierLine(home, 1);
  if (!room.has_value()) {
    if (!chains_.Add(home, slot)) return false;
    ++counts_.chained_inserts;
    ++segments_[UnitOf(home)].words;
    return true;
  }
  LineEditor line(writer_, clocks_, *room);
  line.AddSlot(slot);
  PublishLine(line);
  return true;
}

// The line for an inline item of `words`: its own, or one of the window. None if it does not fit.
absl::optional<uint64_t> Table::InlineRoom(const Location& at, uint64_t words) const {
  if (!at.found()) return RoomierLine(at.home, static_cast<uint32_t>(words));
  const uint64_t used = UsedWords(LineAt(writer_, at.line)) - at.entry.words;
  return used + words <= kLineWordsUsable ? absl::make_optional(at.line) : absl::nullopt;
}

// The instant is the line's. REQUIRES: InlineRoom found `line_offset`.
void Table::PutInline(const Location& at, uint64_t line_offset, absl::string_view key,
                      ByteSpan value, uint64_t version, absl::Time now) {
  const uint64_t words = InlineWords(key.size(), value.size());
  Recount(at, AccountOf(at), AccountOf(key, value, WordKind::kInline, 0));
  const bool out_of_line = at.out_of_line();
  const uint64_t old_item = out_of_line ? at.item() : 0;
  LineEditor line(writer_, clocks_, line_offset);
  const uint32_t clock = at.found() ? line.Remove(at.entry.at, at.entry.words) : kClockNew;
  line.AddInline(key, value, version, clock);
  // W2, item to inline: a cached location must not yield the old value any more.
  if (out_of_line && !IsMutant(Mutant::kNoDeadMarkOnUpdate)) items_.Kill(old_item);
  PublishLine(line);
  if (out_of_line) items_.Retire(old_item, now);
  if (at.found() && words < at.entry.words) MoveFromOverflow(line_offset);
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
  const uint64_t version = writer_.NextCasVersion();
  const LineEntry& entry = at.entry;
  if (value.size() != entry.value.size()) counts_.value_bytes += value.size() - entry.value.size();
  Line line = LineAt(writer_, at.line);
  line.words[entry.at] = InlineHead{static_cast<uint32_t>(entry.key.size()),
                                    static_cast<uint32_t>(value.size()), version}
                             .Pack();
  auto* const bytes = reinterpret_cast<std::byte*>(&line.words[entry.at + 1]);
  if (!value.empty()) std::memcpy(bytes + entry.key.size(), value.data(), value.size());
  if (value.size() < entry.value.size())
    std::memset(bytes + entry.key.size() + value.size(), 0, entry.value.size() - value.size());
  writer_.AmendRecord(at.line, writer_.NextRecordVersion(at.line), line.record.tag,
                      WordBytesOf(line), entry.at, entry.words);
  return Written(version);
}

// The instant is the item's. Neither its form changes, nor whether it has an expiry.
WriteResult Table::RewriteItem(const Location& at, absl::string_view key, ByteSpan value,
                               uint64_t expiry_ns) {
  const uint64_t version = writer_.NextCasVersion();
  if (value.size() != items_.ValueLengthAt(at.item()))
    Recount(at, AccountOf(at), AccountOf(key, value, WordKind::kSlot, expiry_ns));
  NoteExpiry(at, expiry_ns);
  ++writer_.hot().in_place_updates;
  items_.RewriteInPlace(at.item(), key, value, version, expiry_ns);
  WriteResult result = Written(version);
  result.slot = at.entry.head;
  result.expiry_ns = expiry_ns;
  return result;
}

// Whether the value may be written over the present one. The slot's expiry bit stays right.
bool Table::MayRewrite(const Location& at, absl::string_view key, ByteSpan value,
                       uint64_t expiry_ns) const {
  return at.out_of_line() && at.has_expiry() == (expiry_ns != 0) &&
         items_.FitsInPlace(at.entry.head, key.size(), value.size());
}

// There is no space for a copy, so the value, of any length, replaces the present one in place. The
// instant is the item's. While it is hidden, its line is updated to show whether it has an expiry.
WriteResult Table::RewriteForWant(const Location& at, absl::string_view key, ByteSpan value,
                                  const Condition& condition, uint64_t expiry_ns, absl::Time now) {
  const uint64_t data_hash = ItemStore::DataHash(key, value);
  if (Prolongs(condition, at, expiry_ns)) {
    if (!OutlivesTheWrite(at)) return EndMeanwhile(at, now);
  } else {
    items_.Hide(at.item());
  }
  const uint64_t version = writer_.NextCasVersion();
  Recount(at, AccountOf(at), AccountOf(key, value, WordKind::kSlot, expiry_ns));
  NoteExpiry(at, expiry_ns);
  ++writer_.hot().in_place_updates;
  WriteResult result = Written(version);
  result.slot = LeadTo(at, expiry_ns != 0);
  result.expiry_ns = expiry_ns;
  items_.RewriteHidden(at.item(), key, value, data_hash, version, expiry_ns);
  return result;
}

// The emptier line of the window, if it has enough free words.
absl::optional<uint64_t> Table::RoomierLine(uint64_t home, uint32_t words) const {
  const uint32_t used_in_home = UsedWords(LineAt(writer_, home));
  const uint32_t used_in_next = UsedWords(LineAt(writer_, home + kLineBytes));
  if (std::min(used_in_home, used_in_next) + words > kLineWordsUsable) return absl::nullopt;
  return used_in_home <= used_in_next ? home : home + kLineBytes;
}

// --- Delete ----------------------------------------------------------------

WriteResult Table::Delete(absl::string_view key, Condition condition, absl::Time now) {
  if (absl::Status status = CheckLengths(key.size(), 0); !status.ok()) return Outcome(status);
  const Location at = LocateLive(Hashed(key), now);
  if (absl::optional<WriteResult> refusal = Refuse(condition, at)) return *refusal;
  if (!at.found()) return NoSuchKey();
  if (absl::Status status = CheckVersionsLeft(writer_); !status.ok()) return Outcome(status);
  const uint64_t version = writer_.NextCasVersion();
  Remove(at, kPromotionsPerDelete, now);
  return Outcome(absl::OkStatus(), version);
}

// W2: the item dies, then leaves the line, which is the instant. Up to `promotions_max` small items
// become inline where they now fit.
void Table::Remove(const Location& at, int promotions_max, absl::Time now) {
  const bool out_of_line = at.out_of_line();
  const uint64_t old_item = out_of_line ? at.item() : 0;
  Recount(at, AccountOf(at), {});
  LineEditor line(writer_, clocks_, at.line);
  line.Remove(at.entry.at, at.entry.words);
  const bool line_first = IsMutant(Mutant::kSlotClearedBeforeDeadMark);
  if (line_first) PublishLine(line, at.chained);
  if (out_of_line && !IsMutant(Mutant::kNoDeadMarkOnDelete)) items_.Kill(old_item);
  if (!line_first) PublishLine(line, at.chained);
  if (out_of_line) items_.Retire(old_item, now);
  if (at.chained) {
    --segments_[UnitOf(at.home)].words;
    chains_.Trim(at.home);
  } else {
    MoveFromOverflow(IsMutant(Mutant::kMoveFromOverflowIntoSecondLine) ? at.home : at.line);
    Promote(at.line, promotions_max, now);
  }
}

// --- Rendezvous ------------------------------------------------------------

Reservation::Reservation(Table* table, uint64_t offset)
    : table_(table),
      offset_(offset),
      value_(table->items_.Value(offset)),
      hasher_(std::make_unique<BytesHasher>()) {
  const ByteSpan data = table_->items_.Data(offset);
  hasher_->Update(data.first(static_cast<size_t>(value_.data() - data.data())));
  table_->reserved_.insert(offset);
}

void Reservation::Hash(uint64_t bytes) {
  assert(valid() && bytes <= value_.size() - hashed_);
  hasher_->Update(value_.subspan(hashed_, bytes));
  hashed_ += bytes;
}

// Hashes the rest of the value, and the padding after it.
uint64_t Reservation::HashRest() {
  const ByteSpan data = table_->items_.Data(offset_);
  const auto value_at = static_cast<size_t>(value_.data() - data.data());
  hasher_->Update(data.subspan(value_at + hashed_));
  return hasher_->Digest();
}

Reservation::Reservation(Reservation&& other) noexcept { *this = std::move(other); }

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  Abort();
  table_ = std::exchange(other.table_, nullptr);
  offset_ = other.offset_;
  value_ = std::exchange(other.value_, {});
  hashed_ = other.hashed_;
  hasher_ = std::move(other.hasher_);
  return *this;
}

Reservation::~Reservation() { Abort(); }

void Reservation::Abort() {
  if (table_ == nullptr) return;
  table_->reserved_.erase(offset_);
  table_->items_.Discard(offset_);
  table_->update_room_.TakeBack();
  table_ = nullptr;
  value_ = {};
}

absl::StatusOr<Reservation> Table::Reserve(absl::string_view key, uint64_t value_length,
                                           absl::Time now) {
  if (absl::Status status = CheckLengths(key.size(), value_length); !status.ok()) return status;
  if (absl::Status status = CheckVersionsLeft(writer_); !status.ok()) return status;
  absl::optional<uint64_t> item = BeginItem(key, value_length, nullptr, now);
  if (!item.has_value()) item = BeginUpdate(key, value_length, now);
  if (!item.has_value()) return Full().status;
  return Reservation(this, *item);
}

WriteResult Table::Publish(Reservation reservation, Condition condition, absl::Time now,
                           Lifetime lifetime) {
  assert(reservation.table_ == this);
  const Location at = LocateLive(Hashed(items_.At(reservation.offset_).key), now);
  if (absl::optional<WriteResult> refusal = Refuse(condition, at)) return *refusal;
  if (absl::Status status = CheckVersionsLeft(writer_); !status.ok()) return Outcome(status);
  if (at.found()) clocks_.Add(at.line, at.entry.at, kClockPerWrite);
  const uint64_t expiry_ns = ExpiryOf(lifetime, at);
  const StoredItem item = items_.At(reservation.offset_);
  if (!update_room_.full() && item.bytes <= kChunkBytesMax && at.out_of_line() &&
      items_.HasRoomInPlace(at.entry.head, item.key.size(), item.value.size())) {
    // The pages return to the space for updates, since a chunk would not fill them.
    return RewriteForWant(at, item.key, item.value, condition, expiry_ns, now);
  }
  // Hashed before the old value is hidden, since it may take long.
  const uint64_t data_hash = reservation.HashRest();
  if (Prolongs(condition, at, expiry_ns) && !OutlivesTheWrite(at)) return EndMeanwhile(at, now);
  const uint64_t version = writer_.NextCasVersion();
  const Sealing sealing = items_.FinishHashed(reservation.offset_, data_hash, version, expiry_ns);
  reserved_.erase(reservation.offset_);
  reservation.table_ = nullptr;  // PublishItem keeps or discards it
  const WriteResult result = PublishItem(at, sealing, version, now);
  if (!update_room_.full()) {
    // The old value's space serves the next update.
    items_.space().EndGrace(now);
    update_room_.TakeBack();
  }
  return result;
}

void Table::Lease(uint64_t slot, absl::Time until) {
  const uint64_t offset = Slot::Unpack(slot).offset;
  if (items_.space().IsAllocated(offset)) items_.space().Lease(offset, until);
}

}  // namespace osprey::index
