#include "index/reader/lookup.h"

#include <cassert>

#include "index/layout/access_hint.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"

namespace osprey::index {

Lookup::Lookup(DirectoryCache& map, absl::string_view key, const LookupOptions& options)
    : Lookup(map, key, HashKey(key, map.hash_seed()), options) {}

// --- Steps -----------------------------------------------------------------

Lookup::Step Lookup::Start(uint64_t hint) {
  assert(state_ == State::kDone && counters_.reads == 0);
  const bool plausible =
      KindOf(hint) == WordKind::kSlot && Slot::Unpack(hint).fingerprint == hash_.fingerprint();
  if (plausible) {
    const Step step = ReadItem(State::kHint, hint, /*line=*/0);
    if (step.kind == Kind::kRead) return step;
  }
  return ReadHome();
}

Lookup::Step Lookup::Resume(ByteSpan bytes, TimeOfRead time) {
  assert(state_ != State::kDone && bytes.size() == read_.length);
  time_of_read_ = &time;
  lines_.DropSlotsSeen();
  const Step step = Take(bytes);
  time_of_read_ = nullptr;
  return step;
}

absl::string_view Lookup::Reading() const {
  switch (state_) {
    case State::kDone:
      return "";
    case State::kHint:
      return "the item at a known location";
    case State::kWindow:
      return "the key's window";
    case State::kItem:
      return "an item of the key's fingerprint";
    case State::kChainLine:
      return "an overflow line";
    case State::kConfirmChainLine:
      return "an overflow line again, to confirm that the key is absent";
    case State::kConfirmWindow:
      return "the window again, to confirm that the key is absent";
    case State::kRefresh:
      return "the directory, which has changed";
  }
  return "";
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
    case State::kRefresh:
      return OnRefresh(bytes);
    case State::kDone:
      break;
  }
  return AskServer();
}

// R4: every READ is counted here, so no lookup makes more than kReadsMax.
Lookup::Step Lookup::Read(State state, ReadSpan span, int backoff) {
  assert(span.length <= kLookupReadBytesMax && span.length <= map_.region_bytes() &&
         span.offset <= map_.region_bytes() - span.length);
  if (counters_.reads >= kReadsMax) return AskServer();
  ++counters_.reads;
  state_ = state;
  read_ = span;
  Step step;
  step.kind = Kind::kRead;
  step.offset = span.offset;
  step.length = span.length;
  step.backoff = backoff;
  return step;
}

Lookup::Step Lookup::ReadWindow(int backoff) {
  window_ = map_.WindowOf(hash_);
  return ReadHome(backoff);
}

Lookup::Step Lookup::ReadHome(int backoff) {
  if (window_.generation == 0) return Refresh();
  return Read(State::kWindow, {window_.offset, kWindowBytes}, backoff);
}

// `line`: as Step::line of a hit.
Lookup::Step Lookup::ReadItem(State state, uint64_t slot, uint64_t line) {
  const ReadSpan span = fetch_.Begin(slot, line, key_);
  return span.length == 0 ? AskServer() : Read(state, span);
}

Lookup::Step Lookup::AskServer() {
  state_ = State::kDone;
  return {};
}

Lookup::Step Lookup::Hit(const ItemReading& item) {
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
  step.slot = fetch_.slot();
  step.line = fetch_.line();
  return step;
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

// R1: READs the record again. It is torn for a moment while it is written, and permanently if its
// space is used for something else. So after some attempts at an item its line is READ again. After
// some attempts at a line, the map is: the line's segment may have ended.
Lookup::Step Lookup::Torn() {
  ++counters_.torn;
  if (counters_.torn >= kReadAttemptsMax) return AskServer();
  ++torn_in_a_row_;
  const bool is_item = state_ == State::kHint || state_ == State::kItem;
  const bool is_header = state_ == State::kRefresh && !refresh_.in_page();
  if (is_header || torn_in_a_row_ < (is_item ? kItemAttemptsMax : kLineAttemptsMax))
    return Read(state_, read_, torn_in_a_row_);
  if (!is_item) return Refresh();
  return state_ == State::kHint ? StaleHint() : Restart();
}

// --- Hint (R3) -------------------------------------------------------------

Lookup::Step Lookup::OnHint(ByteSpan bytes) {
  const ItemReading item = fetch_.Judge(bytes, key_);
  switch (item.verdict) {
    case ItemVerdict::kLive:
      return Hit(item);
    case ItemVerdict::kTorn:
      return Torn();
    case ItemVerdict::kTooShort:
      if (fetch_.is_head() && fetch_.IsWithinSlot(item.bytes_needed)) return ReadValue(bytes);
      return StaleHint();
    case ItemVerdict::kDead:
    case ItemVerdict::kOther:
      return StaleHint();
  }
  return AskServer();
}

Lookup::Step Lookup::StaleHint() {
  ++counters_.stale_hints;
  torn_in_a_row_ = 0;
  return ReadWindow();
}

// --- Long items ------------------------------------------------------------

// The item may be the key's, and is longer than the bytes READ.
Lookup::Step Lookup::ReadMore(ByteSpan bytes, uint64_t bytes_needed) {
  if (!fetch_.IsInside(bytes_needed)) return AskServer();
  if (fetch_.is_head()) return fetch_.IsWithinSlot(bytes_needed) ? ReadValue(bytes) : Torn();
  if (fetch_.lengthened()) return AskServer();
  return Read(State::kItem, fetch_.Lengthen(bytes_needed, key_));
}

// The head is not accepted until the final checksum shows that it belongs to the value. Its lengths
// have been checked against the region, so the READs lie within it.
Lookup::Step Lookup::ReadValue(ByteSpan head) {
  const ItemFields fields = fetch_.BeginValue(head, key_);
  // The value is not READ unless the item is certainly alive. (That it has expired needs the
  // checksum.)
  const bool alive = LifeOf(fields.cas_version, fields.expiry_ns) == Life::kAlive;
  if (!alive || !options_.want_value) return AskServer();
  Step step;
  step.kind = Kind::kReadValue;
  step.offset = fetch_.value_offset(key_);
  step.value_length = fields.value_length;
  return step;
}

Lookup::Step Lookup::FinishValue() {
  const ItemReading item = fetch_.FinishValue(key_);
  lines_.DropSlotsSeen();
  if (item.verdict != ItemVerdict::kLive) return Torn();
  Step step = Hit(item);
  step.in_pieces = true;
  return step;
}

// --- Window ----------------------------------------------------------------

// First interprets the copy, then validates it. An inline hit needs only its own line to be valid;
// the other need not be hashed.
Lookup::Step Lookup::OnWindow(ByteSpan bytes) {
  lines_.Clear(window_.offset);
  confirmed_early_ = false;
  const auto copy_of = [bytes](uint32_t number) {
    return ByteSpan(bytes.data() + number * kLineBytes, kLineBytes);
  };
  const uint64_t incarnation = map_.incarnation();
  InLine found[2];
  for (uint32_t i = 0; i < 2; ++i) {
    InlineItem item;
    found[i] = lines_.Search(copy_of(i), window_.OffsetOf(i), map_, key_, item);
    if (found[i] != InLine::kKey || !window_.IsBelieved(copy_of(i), i, incarnation)) continue;
    // The slots seen may include those of the home line.
    if (i == 1 && !slots_seen().empty() && !window_.IsBelieved(copy_of(0), 0, incarnation))
      lines_.DropSlotsSeen();
    return HitInline(item);
  }
  // R2: a key that is not in one line of the window may be in the other.
  bool whole = true;
  for (uint32_t i = 0; i < 2; ++i) {
    if (!window_.IsWhole(copy_of(i), i, incarnation)) {
      whole = false;
      continue;
    }
    if (!window_.IsOfSegment(copy_of(i), i)) return lines_.DropSlotsSeen(), Refresh();
    if (found[i] == InLine::kNonsense) return lines_.DropSlotsSeen(), AskServer();
  }
  if (!whole) return lines_.DropSlotsSeen(), Torn();
  return NextCandidate();
}

// --- Items, chain ----------------------------------------------------------

Lookup::Step Lookup::NextCandidate() {
  torn_in_a_row_ = 0;
  if (const SearchedLines::Candidate* candidate = lines_.candidate(); candidate != nullptr)
    return ReadItem(State::kItem, candidate->slot, lines_.FiledUnder(candidate->line));
  if (lines_.next_link() == 0) return Conclude();
  if (lines_.full()) return AskServer();  // R4: longer than any chain of a writer
  if (IsMutant(Mutant::kChainMissConfirmedTooEarly) && !confirmed_early_) {
    return Read(State::kConfirmWindow, {window_.offset, kWindowBytes});
  }
  return Read(State::kChainLine, {lines_.next_link(), kLineBytes});
}

Lookup::Step Lookup::OnItem(ByteSpan bytes) {
  const ItemReading item = fetch_.Judge(bytes, key_);
  switch (item.verdict) {
    case ItemVerdict::kLive:
      return Hit(item);
    case ItemVerdict::kDead:
      // Neither torn nor a miss: the key was written meanwhile, and its line leads to its present
      // place.
      if (IsMutant(Mutant::kDeadIsMiss)) return Miss();
      return Restart();
    case ItemVerdict::kTorn:
      return Torn();
    case ItemVerdict::kTooShort:
      return ReadMore(bytes, item.bytes_needed);
    case ItemVerdict::kOther:
      lines_.PassOver(/*confirm=*/!IsMutant(Mutant::kFingerprintNotConfirmed));
      return NextCandidate();
  }
  return AskServer();
}

Lookup::Step Lookup::OnChainLine(ByteSpan bytes) {
  if (!RecordIsWhole(bytes, {read_.offset, map_.incarnation()})) return Torn();
  // The line belongs to another segment by now, so the chain has changed.
  if (HeaderOf(bytes).tag != window_.generation) return Restart();
  lines_.DropCandidates();
  InlineItem item;
  switch (lines_.Search(bytes, read_.offset, map_, key_, item)) {
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
    return Read(State::kConfirmChainLine, {lines_.offset(confirm_next_), sizeof(RecordHeader)});
  // READs the whole window rather than its headers. If it has changed, the search restarts from it.
  return Read(State::kConfirmWindow, {window_.offset, kWindowBytes});
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
  return Read(State::kRefresh, refresh_.Begin());
}

Lookup::Step Lookup::OnRefresh(ByteSpan bytes) {
  switch (refresh_.Take(bytes, map_, hash_)) {
    case DirectoryRefresh::Taken::kMore:
      return Read(State::kRefresh, refresh_.span());
    case DirectoryRefresh::Taken::kTorn:
      return Torn();
    case DirectoryRefresh::Taken::kNonsense:
      return AskServer();
    case DirectoryRefresh::Taken::kDone:
      break;
  }
  ++counters_.restarts;
  return ReadWindow();
}

}  // namespace osprey::index
