#include "index/reader/scan.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "index/layout/record.h"
#include "index/layout/test_hooks.h"

namespace osprey::index {
namespace {

// The first READ of an item that is too long to be READ whole. Most keys are shorter.
constexpr uint64_t kHeadBytes = 256;
// The most READs of a slot in one round: whole or head; longer; head with a long key.
constexpr int kItemReadsMax = 3;
// Approximate keys of a home, to compute how many homes a block needs for a few entries.
constexpr uint64_t kKeysPerHome = 8;
// Limits the values of a block to some 10 MB.
constexpr uint64_t kHomesWithValuesMax = 16;

uint64_t Reversed(uint64_t bits) {
  uint64_t reversed = 0;
  for (uint32_t i = 0; i < kDirectoryDepthMax; ++i) reversed = reversed << 1 | (bits >> i & 1);
  return reversed;
}

// A hash of the segment at the cursor.
KeyHash HashAt(const ScanCursor& cursor) { return {Reversed(cursor.position)}; }

constexpr uint64_t LowBits(uint64_t bits, uint32_t depth) {
  return bits & ((uint64_t{1} << depth) - 1);
}

}  // namespace

Scan::Scan(DirectoryCache& map, ScanCursor from, const ScanOptions& options)
    : map_(map), options_(options), cursor_(from) {
  assert(map.ready() && !from.at_end() && from.depth <= kDirectoryDepthMax &&
         from.home < kHomesPerSegment);
}

// --- Steps -------------------------------------------------------------------------------------

Scan::Step Scan::Resume(ByteSpan bytes, const ServerTimeBounds& time) {
  time_ = time;
  while (reads_.has_posted()) {
    const uint32_t length = reads_.next_length();
    assert(bytes.size() >= length);
    const bool same_life = Take(reads_.TakeNext(), bytes.first(length));
    if (nonsense_) return GiveUp();
    if (!same_life) return Refresh();
    bytes.remove_prefix(length);
  }
  return reads_.all_taken() ? EndPhase() : ReadMore();
}

Scan::Step Scan::Reads::Post() {
  Step step;
  step.kind = Kind::kRead;
  posted_ = taken_;
  while (posted_ < spans_.size() && posted_ - taken_ < kScanReadsMax) {
    const uint32_t length = spans_[posted_].length;
    if (step.bytes > 0 && step.bytes + length > kScanBytesMax) break;
    step.bytes += length;
    ++posted_;
  }
  step.reads = absl::MakeConstSpan(spans_).subspan(taken_, posted_ - taken_);
  return step;
}

Scan::Step Scan::ReadMore() {
  Step step = reads_.Post();
  for (const ReadSpan& read : step.reads)
    assert(read.length <= map_.region_bytes() && read.offset <= map_.region_bytes() - read.length);
  if (phase_ == Phase::kLines) step.backoff = block_.rounds;
  return step;
}

Scan::Step Scan::GiveUp() { return {}; }

Scan::Step Scan::Done() {
  Step step;
  step.kind = Kind::kDone;
  return step;
}

bool Scan::Take(const Purpose& purpose, ByteSpan bytes) {
  switch (purpose.kind) {
    case Purpose::Kind::kLines:
      for (uint32_t i = 0; i < purpose.count; ++i) {
        if (!TakeLine(purpose.index + i, bytes.subspan(i * kLineBytes, kLineBytes))) return false;
      }
      return true;
    case Purpose::Kind::kChain:
      TakeChainLine(chains_[purpose.index], bytes);
      return true;
    case Purpose::Kind::kItem:
      TakeItem(items_[purpose.index], bytes);
      return true;
    case Purpose::Kind::kConfirmLines:
      for (uint32_t i = 0; i < purpose.count; ++i) {
        LineCopy& line = lines_[purpose.index + i];
        const bool unchanged =
            std::memcmp(bytes.data() + i * kLineBytes, &line.header, sizeof(line.header)) == 0;
        if (line.followed && !unchanged && !IsMutant(Mutant::kScanNotConfirmed))
          line.settled = false;
      }
      return true;
    case Purpose::Kind::kConfirmHead: {
      const Head& head = heads_[purpose.index];
      const bool unchanged = std::memcmp(bytes.data(), &head.header, sizeof(head.header)) == 0;
      if (!unchanged) lines_[head.line].settled = false;
      return true;
    }
    case Purpose::Kind::kMap: {
      const DirectoryRefresh::Taken taken = refresh_.Take(bytes, map_, HashAt(cursor_));
      nonsense_ |= taken == DirectoryRefresh::Taken::kNonsense;
      if (taken == DirectoryRefresh::Taken::kMore)
        reads_.Add(refresh_.span(), {Purpose::Kind::kMap, 0, 1});
      return taken != DirectoryRefresh::Taken::kTorn;  // torn: READ from the header again
    }
  }
  return false;
}

Scan::Step Scan::EndPhase() {
  switch (phase_) {
    case Phase::kLines:
    case Phase::kChains:
      phase_ = Phase::kChains;
      reads_.Clear();
      for (uint32_t i = 0; i < chains_.size(); ++i) {
        if (chains_[i].next != 0)
          reads_.Add({chains_[i].next, kLineBytes}, {Purpose::Kind::kChain, i, 1});
      }
      if (!reads_.all_taken()) return ReadMore();
      phase_ = Phase::kItems;
      for (const Item& item : std::vector<Item>(std::exchange(items_, {}))) {
        WantItem(item, ReadLengthOf(Slot::Unpack(item.slot).length_class));
      }
      if (!reads_.all_taken()) return ReadMore();
      [[fallthrough]];
    case Phase::kItems:
      phase_ = Phase::kConfirm;
      reads_.Clear();
      WantLines(Phase::kConfirm);
      for (uint32_t i = 0; i < heads_.size(); ++i) {
        reads_.Add({heads_[i].offset, sizeof(ItemHeader)}, {Purpose::Kind::kConfirmHead, i, 1});
      }
      if (!reads_.all_taken()) return ReadMore();
      [[fallthrough]];
    case Phase::kConfirm:
      return EndRound();
    case Phase::kRefresh:
      return NextBlock();
  }
  return GiveUp();
}

// --- Blocks ------------------------------------------------------------------------------------

Scan::Step Scan::NextBlock() {
  if (cursor_.at_end() || count_ >= options_.entries_max) return Done();
  const absl::optional<DirectoryCache::Segment> segment = map_.SegmentOf(HashAt(cursor_));
  if (!segment.has_value()) return Refresh();
  block_.segment = segment->offset;
  block_.entry = segment->entry;
  // Few homes for a few entries; increasingly more if those hold too few.
  const uint64_t left = options_.entries_max - count_;
  const uint64_t homes_max = options_.want_values ? kHomesWithValuesMax : kHomesPerSegment;
  const uint64_t homes = std::min(std::max(left / kKeysPerHome + 1, homes_of_next_), homes_max);
  homes_of_next_ = 2 * homes;
  block_.home_end =
      static_cast<uint32_t>(std::min<uint64_t>(cursor_.home + homes, kHomesPerSegment));
  block_.homes.clear();
  for (uint32_t home = cursor_.home; home < block_.home_end; ++home) block_.homes.push_back(home);
  block_.found.clear();
  block_.count = 0;
  block_.rounds = 0;
  return BeginRound();
}

// Leaves entries above the limit to the scan that continues from the cursor. The order depends on
// the keys alone, so keys added or deleted in between do not affect the others.
void Scan::KeepUpToLimit(ScanCursor& next) {
  const uint64_t left = options_.entries_max - count_;
  if (block_.found.size() <= left) return;
  const auto order = [](const Found& found) {
    return std::make_pair(found.hash.home(), found.hash.bits);
  };
  std::sort(block_.found.begin(), block_.found.end(),
            [&](const Found& a, const Found& b) { return order(a) < order(b); });
  size_t end = left;
  while (end < block_.found.size() && order(block_.found[end]) == order(block_.found[end - 1]))
    ++end;
  if (end == block_.found.size()) return;
  next.home = block_.found[end].hash.home();
  next.from_hash = block_.found[end].hash.bits;
  block_.found.resize(end);
  block_.count = end;
}

Scan::Step Scan::EndBlock() {
  // The segment may be a part of the one in which the cursor began, or contain it.
  const uint32_t depth = std::max(cursor_.depth, block_.entry.depth);
  ScanCursor next = {cursor_.position, depth, block_.home_end, 0};
  if (!options_.count_only) KeepUpToLimit(next);
  for (Found& found : block_.found) entries_.push_back(std::move(found.entry));
  count_ += block_.count;
  refreshes_ = 0;
  cursor_ = next;
  if (cursor_.home == kHomesPerSegment) {
    const uint64_t span = ScanCursor::kPositions >>
                          (IsMutant(Mutant::kMergeMissedByCursor) ? block_.entry.depth : depth);
    cursor_ = {cursor_.position / span * span + span, 0, 0, 0};
  }
  return NextBlock();
}

// The segment was split, or the map does not contain it yet. The whole block is void.
Scan::Step Scan::Refresh() {
  if (++refreshes_ > kScanRefreshesMax) return GiveUp();
  phase_ = Phase::kRefresh;
  reads_.Clear();
  reads_.Add(refresh_.Begin(), {Purpose::Kind::kMap, 0, 1});
  Step step = ReadMore();
  step.backoff = refreshes_ - 1;
  return step;
}

// --- Rounds ------------------------------------------------------------------------------------

Scan::Step Scan::BeginRound() {
  lines_.clear();
  chains_.clear();
  items_.clear();
  heads_.clear();
  found_.clear();
  reads_.Clear();
  line_at_.fill(UINT32_MAX);
  for (const uint32_t home : block_.homes) {
    for (const uint32_t number : {home, home + 1}) {
      if (line_at_[number] != UINT32_MAX) continue;
      line_at_[number] = static_cast<uint32_t>(lines_.size());
      LineCopy line;
      line.offset = block_.segment + number * kLineBytes;
      line.number = number;
      lines_.push_back(line);
    }
  }
  phase_ = Phase::kLines;
  WantLines(phase_);
  return ReadMore();
}

// Neighbouring lines are fetched by one READ. The confirmation READs the lines that were followed,
// and those between them.
void Scan::WantLines(Phase phase) {
  const bool confirm = phase == Phase::kConfirm;
  for (uint32_t first = 0; first < lines_.size();) {
    if (confirm && !lines_[first].followed) {
      ++first;
      continue;
    }
    uint32_t end = first + 1;
    while (end < lines_.size() && (!confirm || lines_[end].followed) &&
           lines_[end].offset == lines_[end - 1].offset + kLineBytes) {
      ++end;
    }
    const uint32_t count = end - first;
    const uint64_t length =
        confirm ? (count - 1) * kLineBytes + sizeof(RecordHeader) : count * kLineBytes;
    reads_.Add({lines_[first].offset, static_cast<uint32_t>(length)},
               {confirm ? Purpose::Kind::kConfirmLines : Purpose::Kind::kLines, first, count});
    first = end;
  }
}

// A home is settled if no contradiction was found in its two lines and its chain.
Scan::Step Scan::EndRound() {
  std::array<bool, kHomesPerSegment> settled{};
  for (const uint32_t home : block_.homes)
    settled[home] = lines_[line_at_[home]].settled && lines_[line_at_[home + 1]].settled;
  for (const LineCopy& line : lines_) {
    if (line.number == kChainLine && !line.settled) settled[line.home] = false;
  }
  if (options_.count_only) CountEntries(settled);
  for (Found& found : found_) {
    if (!settled[found.hash.home()]) continue;
    block_.found.push_back(std::move(found));
    ++block_.count;
  }
  block_.homes.erase(std::remove_if(block_.homes.begin(), block_.homes.end(),
                                    [&](uint32_t home) { return settled[home]; }),
                     block_.homes.end());
  if (block_.homes.empty()) return EndBlock();
  if (++block_.rounds > kScanRoundsMax) return GiveUp();
  // Lines that stay torn may be those of a segment that has ended, whose space items use.
  if (block_.rounds >= kScanRoundsBeforeRefresh && refreshes_ == 0) return Refresh();
  return BeginRound();
}

// Counts each line once: the first of the window; the segment's last; the chain.
void Scan::CountEntries(const std::array<bool, kHomesPerSegment>& settled) {
  for (const uint32_t home : block_.homes) {
    if (!settled[home]) continue;
    block_.count += lines_[line_at_[home]].entries;
    if (home + 1 == kHomesPerSegment) block_.count += lines_[line_at_[home + 1]].entries;
  }
  for (const LineCopy& line : lines_) {
    if (line.number == kChainLine && settled[line.home]) block_.count += line.entries;
  }
}

// --- Completed READs ---------------------------------------------------------------------------

bool Scan::TakeLine(uint32_t index, ByteSpan bytes, Chain* chain) {
  LineCopy& copy = lines_[index];
  if (!RecordIsWhole(bytes, {copy.offset, map_.incarnation()})) {
    copy.settled = false;
    return true;
  }
  Line line;
  std::memcpy(&line, bytes.data(), sizeof(line));
  copy.header = line.record;
  if (line.record.tag != block_.entry.generation) {
    // The line belongs to another chain by now, or the segment was split.
    copy.settled = false;
    return copy.number == kChainLine;
  }
  LineCursor cursor(line);
  while (cursor.Next()) {
    const LineEntry& entry = cursor.entry();
    const bool expires = entry.kind == WordKind::kSlot && Slot::Unpack(entry.head).has_expiry;
    if (options_.count_only && !expires) {
      ++copy.entries;
      continue;
    }
    if (entry.kind == WordKind::kSlot) {
      copy.followed = true;
      items_.push_back({entry.head, index, false, 0});
      continue;
    }
    ItemReading item;
    item.key = entry.key;
    item.value = entry.value;
    item.value_length = entry.value.size();
    item.cas_version = InlineHead::Unpack(entry.head).cas_version;
    TakeEntry(index, HashKey(item.key, map_.hash_seed()).fingerprint(), item, /*is_inline=*/true);
  }
  nonsense_ |= cursor.malformed();
  // If the line is only the second of a window, its link leads to another home's chain.
  const bool is_home = copy.number != kChainLine &&
                       std::binary_search(block_.homes.begin(), block_.homes.end(), copy.number);
  const uint64_t link = line.words[kLinkWord];
  if (copy.number != kChainLine && !is_home) return true;
  nonsense_ |= link != 0 && (KindOf(link) != WordKind::kLink || !map_.IsLine(LinkOffset(link)));
  if (nonsense_) return true;
  if (chain != nullptr) {
    chain->next = link == 0 ? 0 : LinkOffset(link);
  } else if (link != 0) {
    chains_.push_back({copy.number, LinkOffset(link), 0});
  }
  copy.followed |= link != 0;
  return true;
}

void Scan::TakeChainLine(Chain& chain, ByteSpan bytes) {
  LineCopy line;
  line.offset = std::exchange(chain.next, 0);
  line.number = kChainLine;
  line.home = chain.home;
  // If h has not changed, the chain begins where it did. If this line has not changed, it led to
  // these items and lines throughout.
  line.followed = true;
  nonsense_ |= ++chain.lines > kChainLinesMax;
  lines_.push_back(line);
  if (!nonsense_) (void)TakeLine(static_cast<uint32_t>(lines_.size() - 1), bytes, &chain);
}

// `bytes`: the length by the slot, or a known longer one.
void Scan::WantItem(Item item, uint64_t bytes) {
  const uint64_t offset = Slot::Unpack(item.slot).offset;
  if (!map_.Contains(offset, sizeof(ItemHeader))) {
    nonsense_ = true;
    return;
  }
  const uint64_t whole_max = options_.want_values ? kScanWholeBytesMax : kScanWholeBytesMaxForKeys;
  bytes = std::max(bytes, sizeof(ItemHeader));
  if (!item.head_only && bytes > whole_max) {
    item.head_only = true;
    bytes = kHeadBytes;
  }
  ++item.attempts;
  items_.push_back(item);
  const uint64_t length = std::min(bytes, map_.region_bytes() - offset);
  reads_.Add({offset, static_cast<uint32_t>(length)},
             {Purpose::Kind::kItem, static_cast<uint32_t>(items_.size() - 1), 1});
}

void Scan::TakeItem(Item item, ByteSpan bytes) {
  const Slot slot = Slot::Unpack(item.slot);
  const ItemReading reading = ReadAnyItem(bytes, {slot.offset, map_.incarnation()});
  switch (reading.verdict) {
    case ItemVerdict::kLive:
      return TakeEntry(item.line, slot.fingerprint, reading);
    case ItemVerdict::kTooShort: {
      if (reading.key.empty() || !item.head_only) {
        if (item.attempts >= kItemReadsMax) break;
        return WantItem(item, item.head_only ? ItemHeadBytes(kKeyBytesMax) : reading.bytes_needed);
      }
      Head head;
      head.offset = slot.offset;
      head.line = item.line;
      std::memcpy(&head.header, bytes.data(), sizeof(head.header));
      heads_.push_back(head);
      return TakeEntry(item.line, slot.fingerprint, reading);
    }
    case ItemVerdict::kTorn:
    case ItemVerdict::kDead:
    case ItemVerdict::kOther:
      break;
  }
  lines_[item.line].settled = false;
}

bool Scan::BelongsTo(const LineCopy& line, KeyHash hash) const {
  const uint32_t depth = block_.entry.depth;
  if (LowBits(hash.bits, depth) != LowBits(HashAt(cursor_).bits, depth)) return false;
  if (line.number == kChainLine) return hash.home() == line.home;
  return hash.home() == line.number || hash.home() + 1 == line.number;
}

void Scan::TakeEntry(uint32_t line, uint32_t fingerprint, const ItemReading& item, bool is_inline) {
  const KeyHash hash = HashKey(item.key, map_.hash_seed());
  if (!BelongsTo(lines_[line], hash) || hash.fingerprint() != fingerprint) {
    // Not the item that the line led to: the line has changed.
    lines_[line].settled = false;
    return;
  }
  switch (LifeAt(item.expiry_ns, time_)) {
    case Life::kExpired:
      return;
    case Life::kUnknown:
      lines_[line].settled = false;
      return;
    case Life::kAlive:
      break;
  }
  if (options_.count_only) {
    // Counted by its line, as any other entry: the key may get or lose its expiry between two
    // blocks.
    ++lines_[line].entries;
    return;
  }
  if (!std::binary_search(block_.homes.begin(), block_.homes.end(), hash.home())) return;
  if (hash.home() == cursor_.home && hash.bits < cursor_.from_hash) return;
  if (item.key.substr(0, options_.prefix.size()) != options_.prefix) return;
  Found found;
  found.hash = hash;
  found.entry.key.assign(item.key.data(), item.key.size());
  found.entry.value_length = item.value_length;
  found.entry.version = item.cas_version;
  found.entry.expiry_ns = item.expiry_ns;
  found.entry.is_inline = is_inline;
  found.entry.has_value = options_.want_values && item.value.size() == item.value_length;
  if (found.entry.has_value) {
    found.entry.value.assign(reinterpret_cast<const char*>(item.value.data()), item.value.size());
  }
  found_.push_back(std::move(found));
}

}  // namespace osprey::index
