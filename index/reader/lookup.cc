#include "index/reader/lookup.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "index/layout/access_hint.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"

namespace osprey::index {

Lookup::Lookup(DirectoryCache& map, absl::string_view key, uint64_t hint,
               const LookupOptions& options)
    : Lookup(map, key, HashKey(key, map.hash_seed()), hint, options) {}

Lookup::Lookup(DirectoryCache& map, absl::string_view key, KeyHash hash, uint64_t hint,
               const LookupOptions& options)
    : Lookup(map, key, hash, map.WindowOf(hash), options) {
  hint_ = hint;
}

// --- Steps -----------------------------------------------------------------

Lookup::Step Lookup::Start(uint64_t hint) {
  assert(state_ == State::kDone && counters_.reads == 0);
  hint_ = hint;
  const bool plausible =
      KindOf(hint_) == WordKind::kSlot && Slot::Unpack(hint_).fingerprint == hash_.fingerprint();
  if (plausible) {
    const Step step = ReadSlot(State::kHint, hint_);
    if (step.kind == Kind::kRead) return step;
  }
  return ReadHome(/*backoff=*/0);
}

Lookup::Step Lookup::Resume(ByteSpan bytes, TimeOfRead time) {
  assert(state_ != State::kDone && bytes.size() == length_);
  time_of_read_ = &time;
  lines_.DropSlotsSeen();
  const Step step = Take(bytes);
  time_of_read_ = nullptr;
  return step;
}

Lookup::Step Lookup::Take(ByteSpan bytes) {
  switch (state_) {
    case State::kHint:
      return OnHint(bytes);
    case State::kWindow:
      return OnWindow(bytes);
    case State::kItem:
      return OnItem(bytes);
    case State::kChainLine:
      return OnChainLine(bytes);
    case State::kConfirmChainLine:
      return OnConfirmChainLine(bytes);
    case State::kConfirmWindow:
      return OnConfirmWindow(bytes);
    case State::kHeader:
      return OnHeader(bytes);
    case State::kPage:
      return OnPage(bytes);
    case State::kDone:
      break;
  }
  return AskServer();
}

// R4: every READ is counted here, so no lookup makes more than kReadsMax.
Lookup::Step Lookup::Read(State state, uint64_t offset, uint64_t length, int backoff) {
  assert(length <= kLookupReadBytesMax && length <= map_.region_bytes() &&
         offset <= map_.region_bytes() - length);
  if (counters_.reads >= kReadsMax) return AskServer();
  ++counters_.reads;
  state_ = state;
  offset_ = offset;
  length_ = length;
  Step step;
  step.kind = Kind::kRead;
  step.offset = offset;
  step.length = static_cast<uint32_t>(length);
  step.backoff = backoff;
  return step;
}

Lookup::Step Lookup::ReadWindow(int backoff) {
  window_ = map_.WindowOf(hash_);
  return ReadHome(backoff);
}

Lookup::Step Lookup::ReadHome(int backoff) {
  if (window_.generation == 0) return Refresh();
  return Read(State::kWindow, window_.offset, kWindowBytes, backoff);
}

// A slot comes from remote bytes or from the caller. It is checked here, before the READ of its
// place.
Lookup::Step Lookup::ReadSlot(State state, uint64_t word, int backoff) {
  const ReadSpan item = map_.ItemSpan(word);
  if (item.length == 0) return AskServer();
  head_only_ = !IsReadWhole(word, options_.whole_read_bytes_max);
  const uint64_t head = head_only_ ? ItemHeadBytes(key_.size()) : item.length;
  return Read(state, item.offset, std::min<uint64_t>(head, item.length), backoff);
}

Lookup::Step Lookup::AskServer() {
  state_ = State::kDone;
  return {};
}

Lookup::Step Lookup::Hit(const ItemReading& item, uint64_t slot, uint64_t line) {
  // An expired item was the key's current one at an instant of its READ. So the key was absent
  // then, and no other READ is needed.
  switch (LifeOf(item.cas_version, item.expiry_ns)) {
    case Life::kExpired:
      return Miss();
    case Life::kUnknown:
      return AskServer();
    case Life::kAlive:
      break;
  }
  state_ = State::kDone;
  Step step;
  step.kind = Kind::kHit;
  step.value = item.value;
  step.version = item.cas_version;
  step.expiry_ns = item.expiry_ns;
  step.landed_ns = time_.latest_ns;
  step.slot = slot;
  step.line = line;
  return step;
}

Lookup::Step Lookup::HitCandidate(const ItemReading& item) {
  const SearchedLines::Candidate& candidate = *lines_.candidate();
  return Hit(item, candidate.slot, lines_.FiledUnder(candidate.line));
}

// Inline items have no expiry.
Lookup::Step Lookup::HitInline(const InlineItem& item) {
  state_ = State::kDone;
  Step step;
  step.kind = Kind::kHit;
  step.value = item.value;
  step.version = item.cas_version;
  return step;
}

uint64_t Lookup::AccessOf(const Step& hit) const {
  assert(hit.kind == Kind::kHit);
  const WordKind kind = hit.slot != 0 ? WordKind::kSlot : WordKind::kInline;
  const uint64_t at =
      hit.slot != 0 ? Slot::Unpack(hit.slot).offset : lines_.offset(lines_.count() - 1);
  return AccessHint{kind, hash_.fingerprint(), 0, at}.Pack();
}

Life Lookup::LifeOf(uint64_t cas_version, uint64_t expiry_ns) {
  if (expiry_ns == 0) return Life::kAlive;
  if (time_of_read_ != nullptr) time_ = (*time_of_read_)();
  const bool told = options_.present_version != 0 && options_.present_version == cas_version;
  return told ? Life::kAlive : LifeAt(expiry_ns, time_);
}

Lookup::Step Lookup::Miss() {
  state_ = State::kDone;
  Step step;
  step.kind = Kind::kMiss;
  return step;
}

// Discards all results so far. (R7 still holds: later READs come after the start.)
Lookup::Step Lookup::Restart() {
  ++counters_.restarts;
  if (++restarts_ > kRestartsMax) return AskServer();
  return ReadWindow(restarts_ - 1);
}

// A line is torn for a moment while it is written, and permanently if its segment has ended and items
// use its space. So after some attempts the map is READ again. That leads to the present lines.
Lookup::Step Lookup::TornLine() {
  ++counters_.torn;
  if (counters_.torn >= kReadAttemptsMax) return AskServer();
  if (++torn_in_a_row_ < kLineAttemptsMax || state_ == State::kHeader)
    return Read(state_, offset_, length_, torn_in_a_row_);
  return Refresh();
}

// An item is torn for a moment while it is written, and permanently if its space was reused. So
// after a second attempt the line is READ again.
Lookup::Step Lookup::TornItem() {
  ++counters_.torn;
  if (counters_.torn >= kReadAttemptsMax) return AskServer();
  if (++torn_in_a_row_ < kItemAttemptsMax) return Read(state_, offset_, length_, torn_in_a_row_);
  return Restart();
}

// --- Hint (R3) -------------------------------------------------------------

Lookup::Step Lookup::OnHint(ByteSpan bytes) {
  const ItemReading item = Judge(bytes);
  switch (item.verdict) {
    case ItemVerdict::kLive:
      return Hit(item, hint_);
    case ItemVerdict::kTorn:
      return TornHint();
    case ItemVerdict::kTooShort:
      if (head_only_ && IsWithinSlot(hint_, item.bytes_needed)) return ReadValue(bytes);
      return StaleHint();
    case ItemVerdict::kDead:
    case ItemVerdict::kOther:
      return StaleHint();
  }
  return AskServer();
}

Lookup::Step Lookup::TornHint() {
  ++counters_.torn;
  if (++torn_in_a_row_ < kItemAttemptsMax) return Read(state_, offset_, length_, torn_in_a_row_);
  return StaleHint();
}

Lookup::Step Lookup::StaleHint() {
  ++counters_.stale_hints;
  torn_in_a_row_ = 0;
  return ReadWindow();
}

// --- Long items ------------------------------------------------------------

ItemReading Lookup::Judge(ByteSpan item_bytes) const {
  const RecordPlace place{offset_, map_.incarnation()};
  return head_only_ ? ReadItemHead(item_bytes, place, key_) : ReadItem(item_bytes, place, key_);
}

// The item may be the key's, and is longer than the bytes READ.
Lookup::Step Lookup::ReadMore(ByteSpan bytes, uint64_t bytes_needed) {
  if (!map_.Contains(offset_, bytes_needed)) return AskServer();
  // The slot, in a line with a checksum, bounds the length of the item. A longer head was torn.
  if (head_only_ && !lengthened_ && !IsWithinSlot(lines_.candidate()->slot, bytes_needed))
    return TornItem();
  if (head_only_) return ReadValue(bytes);
  // Only once: an item does not grow, so a longer one would be another item.
  if (lengthened_) return AskServer();
  lengthened_ = true;
  head_only_ = bytes_needed > WholeReadBytesMax(options_.whole_read_bytes_max);
  return Read(State::kItem, offset_, head_only_ ? ItemHeadBytes(key_.size()) : bytes_needed);
}

// Whether `slot` can lead to an item of `bytes` at the READ's place.
bool Lookup::IsWithinSlot(uint64_t slot, uint64_t bytes) const {
  return bytes <= ReadLengthOf(Slot::Unpack(slot).length_class) && map_.Contains(offset_, bytes);
}

// The head is not accepted until the final checksum shows that it belongs to the value. Its lengths
// have been checked against the region, so the READs lie within it.
Lookup::Step Lookup::ReadValue(ByteSpan head) {
  std::memcpy(&head_, head.data(), sizeof(head_));
  const ItemFields fields = ItemFields::Unpack(head_);
  // The value is not READ unless the item is certainly alive. (That it has expired needs the
  // checksum.)
  const bool alive = LifeOf(fields.cas_version, fields.expiry_ns) == Life::kAlive;
  if (!alive || !options_.want_value) return AskServer();
  const uint64_t value_at = sizeof(ItemHeader) + key_.size();
  value_hasher_.emplace();
  value_hasher_->Update(head.subspan(sizeof(ItemHeader), key_.size()));
  value_left_ = fields.value_length;
  Step step;
  step.kind = Kind::kReadValue;
  step.offset = offset_ + value_at;
  step.value_length = fields.value_length;
  return step;
}

void Lookup::TakeValue(ByteSpan piece) {
  assert(value_hasher_.has_value() && piece.size() <= value_left_);
  value_hasher_->Update(piece);
  value_left_ -= piece.size();
}

Lookup::Step Lookup::FinishValue() {
  assert(value_hasher_.has_value() && value_left_ == 0);
  // The padding is zeros, so it is hashed without a READ.
  const std::byte zeros[kWordBytes] = {};
  const ItemFields fields = ItemFields::Unpack(head_);
  const uint64_t bytes = sizeof(ItemHeader) + key_.size() + fields.value_length;
  value_hasher_->Update({zeros, RoundUpToWords(bytes) - bytes});
  const uint64_t checksum =
      ItemChecksum(value_hasher_->Digest(), head_, {offset_, map_.incarnation()});
  value_hasher_.reset();
  lines_.DropSlotsSeen();
  if (checksum != head_.record.checksum && !IsMutant(Mutant::kNoItemChecksum) &&
      !IsMutant(Mutant::kPiecesNotVerified)) {
    return state_ == State::kHint ? TornHint() : TornItem();
  }
  ItemReading item;
  item.cas_version = fields.cas_version;
  item.expiry_ns = fields.expiry_ns;
  Step step = state_ == State::kHint ? Hit(item, hint_) : HitCandidate(item);
  step.in_pieces = true;
  return step;
}

// --- Window ----------------------------------------------------------------

bool Lookup::IsWholeLine(ByteSpan line_bytes, uint64_t offset) const {
  return RecordIsWhole(line_bytes, {offset, map_.incarnation()});
}

bool Lookup::IsBelieved(ByteSpan line_bytes, uint32_t number) const {
  return IsOfSegment(line_bytes, number) && IsWholeLine(line_bytes, lines_.offset(number));
}

// First interprets the copy, then validates it. An inline hit needs only its own line to be valid;
// the other need not be hashed.
Lookup::Step Lookup::OnWindow(ByteSpan bytes) {
  lines_.Clear(window_.offset);
  confirm_next_ = 0;
  confirmed_early_ = false;
  InLine found[2];
  for (uint32_t i = 0; i < 2; ++i) {
    const uint64_t offset = window_.offset + i * kLineBytes;
    const ByteSpan line_bytes = bytes.subspan(i * kLineBytes, kLineBytes);
    InlineItem item;
    found[i] = Search(line_bytes, offset, item);
    if (found[i] != InLine::kKey || !IsBelieved(line_bytes, i)) continue;
    // The slots seen may include those of the home line.
    if (i == 1 && !slots_seen().empty() && !IsBelieved(bytes.first(kLineBytes), 0))
      lines_.DropSlotsSeen();
    return HitInline(item);
  }
  // R2: a key that is not in one line of the window may be in the other.
  bool whole = true;
  for (uint32_t i = 0; i < 2; ++i) {
    const ByteSpan line_bytes = bytes.subspan(i * kLineBytes, kLineBytes);
    if (!IsWholeLine(line_bytes, lines_.offset(i))) {
      whole = false;
      continue;
    }
    if (!IsOfSegment(line_bytes, i)) return lines_.DropSlotsSeen(), Refresh();
    if (found[i] == InLine::kNonsense) return lines_.DropSlotsSeen(), AskServer();
  }
  if (!whole) return lines_.DropSlotsSeen(), TornLine();
  torn_in_a_row_ = 0;
  return NextCandidate();
}

InLine Lookup::Search(ByteSpan line_bytes, uint64_t offset, InlineItem& item) {
  return lines_.Search(line_bytes, offset, map_, pattern_, key_, item);
}

// --- Items, chain ----------------------------------------------------------

Lookup::Step Lookup::NextCandidate() {
  torn_in_a_row_ = 0;
  lengthened_ = false;
  if (lines_.candidate() != nullptr) return ReadSlot(State::kItem, lines_.candidate()->slot);
  if (lines_.next_link() == 0) return Conclude();
  if (lines_.full()) return AskServer();  // R4: longer than any chain of a writer
  if (IsMutant(Mutant::kChainMissConfirmedTooEarly) && !confirmed_early_) {
    return Read(State::kConfirmWindow, window_.offset, kWindowBytes);
  }
  return Read(State::kChainLine, lines_.next_link(), kLineBytes);
}

Lookup::Step Lookup::OnItem(ByteSpan bytes) {
  const ItemReading item = Judge(bytes);
  switch (item.verdict) {
    case ItemVerdict::kLive:
      return HitCandidate(item);
    case ItemVerdict::kDead:
      // Neither torn nor a miss: the key was written meanwhile, and its line leads to its present
      // place.
      if (IsMutant(Mutant::kDeadIsMiss)) return Miss();
      return Restart();
    case ItemVerdict::kTorn:
      return TornItem();
    case ItemVerdict::kTooShort:
      return ReadMore(bytes, item.bytes_needed);
    case ItemVerdict::kOther:
      lines_.PassOver(/*confirm=*/!IsMutant(Mutant::kFingerprintNotConfirmed));
      return NextCandidate();
  }
  return AskServer();
}

Lookup::Step Lookup::OnChainLine(ByteSpan bytes) {
  if (!IsWholeLine(bytes, offset_)) return TornLine();
  // The line belongs to another segment by now, so the chain has changed.
  if (HeaderOf(bytes).tag != window_.generation) return Restart();
  lines_.DropCandidates();
  InlineItem item;
  switch (Search(bytes, offset_, item)) {
    case InLine::kKey:
      return HitInline(item);
    case InLine::kNonsense:
      return AskServer();
    case InLine::kNothing:
      break;
  }
  return NextCandidate();
}

// --- Miss (R2) -------------------------------------------------------------

// The search is complete. Lines that were followed from one READ to another must not have changed.
// READs posted only now, after all others have completed, confirm that.
Lookup::Step Lookup::Conclude() {
  if (confirmed_early_) return Miss();
  const bool chained = lines_.count() > 2 && !IsMutant(Mutant::kChainMissNotConfirmed);
  if (!chained && lines_.NextToConfirm(0) == lines_.count()) return Miss();
  confirm_next_ = 2;
  return ConfirmNext();
}

Lookup::Step Lookup::ConfirmNext() {
  confirm_next_ = lines_.NextToConfirm(confirm_next_);
  if (confirm_next_ < lines_.count())
    return Read(State::kConfirmChainLine, lines_.offset(confirm_next_), sizeof(RecordHeader));
  // READs the whole window rather than its headers. If it has changed, the search restarts from it.
  return Read(State::kConfirmWindow, window_.offset, kWindowBytes);
}

Lookup::Step Lookup::OnConfirmChainLine(ByteSpan bytes) {
  if (!lines_.IsUnchanged(confirm_next_, bytes)) return Restart();
  ++confirm_next_;
  return ConfirmNext();
}

Lookup::Step Lookup::OnConfirmWindow(ByteSpan bytes) {
  const ByteSpan second = bytes.subspan(kLineBytes);
  const bool second_matters = lines_.NextToConfirm(1) == 1;
  bool unchanged =
      lines_.IsUnchanged(0, bytes) && (!second_matters || lines_.IsUnchanged(1, second));
  if (IsMutant(Mutant::kConfirmedBySlot) && lines_.count() == 2) {
    unchanged = lines_.HoldsCandidates(0, bytes) && lines_.HoldsCandidates(1, second);
  }
  if (unchanged && IsMutant(Mutant::kChainMissConfirmedTooEarly) && lines_.next_link() != 0) {
    confirmed_early_ = true;
    return NextCandidate();
  }
  if (unchanged) return Miss();
  ++counters_.restarts;
  if (++restarts_ > kRestartsMax) return AskServer();
  state_ = State::kWindow;
  return OnWindow(bytes);
}

// --- An old map ------------------------------------------------------------

Lookup::Step Lookup::Refresh() {
  if (++refreshes_ > kRefreshesMax) return AskServer();
  torn_in_a_row_ = 0;
  const ReadSpan span = DirectoryCache::HeaderSpan();
  return Read(State::kHeader, span.offset, span.length);
}

Lookup::Step Lookup::OnHeader(ByteSpan bytes) {
  switch (map_.TakeHeader(bytes)) {
    case DirectoryCache::Taken::kTorn:
      return TornLine();
    case DirectoryCache::Taken::kNonsense:
      return AskServer();
    case DirectoryCache::Taken::kYes:
      break;
  }
  page_ = map_.PageOf(hash_);  // kept: other lookups may deepen the map while this page is READ
  const ReadSpan span = map_.PageSpan(page_);
  return Read(State::kPage, span.offset, span.length);
}

Lookup::Step Lookup::OnPage(ByteSpan bytes) {
  switch (map_.TakePage(page_, bytes)) {
    case DirectoryCache::Taken::kTorn:
      return TornLine();
    case DirectoryCache::Taken::kNonsense:
      return AskServer();
    case DirectoryCache::Taken::kYes:
      break;
  }
  ++counters_.restarts;
  return ReadWindow();
}

}  // namespace osprey::index
