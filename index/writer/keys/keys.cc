#include "index/writer/keys/keys.h"

#include <algorithm>
#include <bit>
#include <cassert>

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

constexpr uint64_t kCacheLineBytes = 64;

// Bytes prefetched of an item, so that a batch fits the cache.
constexpr uint64_t kPrefetchedBytesMax = 256;

}  // namespace

Keys::Keys(absl::Span<std::byte> region, const TableOptions& table_options)
    : writer(region, table_options.incarnation,
             table_options.cas_version.value_or(FirstCasVersion(table_options.incarnation)),
             table_options.cas_counter),
      space(UnitsOffset(region.size()), region.size(), IndexRoom(region.size()),
            table_options.evict ? RegionSpace::Sharing::kBorder : RegionSpace::Sharing::kAllRuns),
      items(writer, space, table_options.reuse_grace),
      clocks(space.units_offset(), table_options.evict),
      chains(writer, space, clocks),
      directory(writer, table_options.hash_seed),
      options(table_options) {}

Location Keys::LocateFrom(uint64_t home, const HashedKey& hashed) const {
  const absl::string_view key = hashed.key;
  Location at;
  at.hash = hashed.hash;
  at.home = home;
  const EntrySearch search(key, at.hash);
  const auto is_its_item = [&](uint64_t slot) { return HoldsKey(slot, key); };
  const Line* const window = WindowAt(writer, at.home);
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t found = search.FindIn(window[i], is_its_item);
    if (found == kLineWords) continue;
    at.line = at.home + i * kLineBytes;
    at.entry = EntryAt(window[i], found);
    return at;
  }
  if (LinkOf(window[0]) != 0) LocateInChain(key, search, at);
  return at;
}

void Keys::LocateInChain(absl::string_view key, const EntrySearch& search, Location& at) const {
  const auto is_its_item = [&](uint64_t slot) { return HoldsKey(slot, key); };
  uint64_t chained = LinkOf(LineAt(writer, at.home));
  for (; chained != 0; chained = LinkOf(LineAt(writer, chained))) {
    const Line& line = LineAt(writer, chained);
    const uint32_t found = search.FindIn(line, is_its_item);
    if (found == kLineWords) continue;
    at.line = chained;
    at.entry = EntryAt(line, found);
    at.chained = true;
    return;
  }
}

absl::optional<Location> Keys::LocateItem(uint64_t offset) const {
  const RecordHeader header = writer.Header(offset);
  // Only a sealed, live item belongs to a key. Any other is being created or removed.
  if (IsBeingWritten(header.version) || ItemTag::Unpack(header.tag).state != ItemState::kLive)
    return absl::nullopt;
  const Location at = Locate(items.At(offset).key);
  if (!at.out_of_line() || at.item() != offset) return absl::nullopt;
  return at;
}

absl::string_view Keys::KeyOf(const Location& at) const {
  assert(at.found());
  return at.out_of_line() ? items.At(at.item()).key : at.entry.key;
}

Current Keys::CurrentOf(const Location& at) const {
  assert(at.found());
  if (!at.out_of_line()) {
    return {at.entry.value, InlineHead::Unpack(at.entry.head).cas_version};
  }
  const StoredItem item = items.At(at.item());
  return {item.value, item.cas_version, item.expiry_ns};
}

void Keys::PublishLine(LineEditor& line, bool chained) {
  if (!chained && line.used() != line.used_before()) {
    occupied_words += line.used();
    occupied_words -= line.used_before();
    uint32_t& words = segments[UnitOf(line.offset())].words;
    words += line.used();
    words -= line.used_before();
  }
  line.Publish();
}

KeyAccount Keys::AccountOf(absl::string_view key, ByteSpan value, WordKind form,
                           uint64_t expiry_ns) {
  KeyAccount account;
  account.keys = 1;
  account.inline_keys = form == WordKind::kInline;
  account.key_bytes = key.size();
  account.value_bytes = value.size();
  account.small_items = form == WordKind::kSlot && expiry_ns == 0 && MayBeInline(key, value);
  account.expiring = expiry_ns != 0;
  return account;
}

KeyAccount Keys::AccountOf(const Location& at) const {
  if (!at.found()) return {};
  const Current current = CurrentOf(at);
  return AccountOf(KeyOf(at), current.value, at.entry.kind, current.expiry_ns);
}

void Keys::Recount(const Location& at, const KeyAccount& before, const KeyAccount& after) {
  // The most frequent case: nothing is written, and no cache line of other cores is invalidated.
  if (after == before) return;
  counts.keys += after.keys - before.keys;
  counts.inline_keys += after.inline_keys - before.inline_keys;
  counts.key_bytes += after.key_bytes - before.key_bytes;
  counts.value_bytes += after.value_bytes - before.value_bytes;
  counts.expiring_keys += uint64_t{after.expiring} - before.expiring;
  SegmentState& segment = segments[UnitOf(at.home)];
  segment.keys += static_cast<uint32_t>(after.keys - before.keys);
  segment.small_items += after.small_items - before.small_items;
  segment.expiring += after.expiring - before.expiring;
}

SlotHint Keys::Prefetch(KeyHash hash) const {
  SlotHint hint;
  hint.directory_changes = directory.changes();
  hint.home = UnitOffset(directory.Peek(hash.bits).unit) + hash.home() * kLineBytes;
  const std::byte* const window = writer.Bytes(hint.home, kWindowBytes).data();
  for (uint64_t at = 0; at < kWindowBytes; at += kCacheLineBytes) __builtin_prefetch(window + at);
  return hint;
}

void Keys::PrefetchItem(KeyHash hash, SlotHint& hint) const {
  if (2 * counts.inline_keys > counts.keys || hint.directory_changes != directory.changes()) return;
  const Line* const window = WindowAt(writer, hint.home);
  for (uint32_t i = 0; i < 2; ++i) {
    const LineSearch search(window[i], hash.fingerprint());
    if (search.slots() == 0) continue;
    const auto at = static_cast<uint32_t>(std::countr_zero(search.slots()));
    if (!search.IsHead(at)) continue;
    // Almost certainly the key's slot.
    const Slot slot = Slot::Unpack(window[i].words[at]);
    // The whole item, if it may be written in place and is short.
    const uint64_t bytes = std::min(ReadLengthOf(slot.length_class), kPrefetchedBytesMax);
    const std::byte* const item = writer.Bytes(slot.offset, sizeof(ItemHeader)).data();
    for (uint64_t from = 0; from < bytes; from += kCacheLineBytes)
      __builtin_prefetch(item + from, 1);
    __builtin_prefetch(item + bytes - 1, 1);  // items are not aligned to cache lines
    hint.line_version = window[i].record.version;
    hint.line = i;
    hint.at = at;
    return;
  }
}

void TableStats::Add(const TableStats& other) {
  // A new field must be added here.
  static_assert(sizeof(TableStats) == 33 * sizeof(uint64_t));
  for (uint64_t TableStats::*field : {
           &TableStats::keys,
           &TableStats::inline_keys,
           &TableStats::key_bytes,
           &TableStats::value_bytes,
           &TableStats::region_bytes,
           &TableStats::index_bytes,
           &TableStats::item_bytes,
           &TableStats::item_space_bytes,
           &TableStats::quarantine_bytes,
           &TableStats::segments,
           &TableStats::overflow_lines,
           &TableStats::expiring_keys,
           &TableStats::expiries,
           &TableStats::demotions,
           &TableStats::promotions,
           &TableStats::pull_backs,
           &TableStats::chained_inserts,
           &TableStats::chains_full,
           &TableStats::in_place_updates,
           &TableStats::splits,
           &TableStats::merges,
           &TableStats::segment_moves,
           &TableStats::compaction_items,
           &TableStats::compaction_bytes,
           &TableStats::compaction_windows,
           &TableStats::compaction_windows_given_up,
           &TableStats::evictions,
           &TableStats::evicted_bytes,
           &TableStats::hints,
           &TableStats::hints_unmatched,
       }) {
    this->*field += other.*field;
  }
  directory_depth = std::max(directory_depth, other.directory_depth);
  cas_version = std::max(cas_version, other.cas_version);
}

}  // namespace osprey::index
