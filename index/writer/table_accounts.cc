// The table's accounts: counts of keys, bytes and words.

#include <algorithm>

#include "index/writer/table.h"

namespace osprey::index {

Table::Account Table::AccountOf(absl::string_view key, ByteSpan value, WordKind form,
                                uint64_t expiry_ns) {
  Account account;
  account.keys = 1;
  account.inline_keys = form == WordKind::kInline;
  account.key_bytes = key.size();
  account.value_bytes = value.size();
  account.small_items = form == WordKind::kSlot && expiry_ns == 0 && MayBeInline(key, value);
  account.expiring = expiry_ns != 0;
  return account;
}

Table::Account Table::AccountOf(const Location& at) const {
  if (!at.found()) return {};
  const Current current = CurrentOf(at);
  return AccountOf(KeyOf(at), current.value, at.entry.kind, current.expiry_ns);
}

// `before` is the key's account, computed before the change.
void Table::Recount(const Location& at, const Account& before, const Account& after) {
  // The most frequent case: nothing is written, and no cache line of other cores is invalidated.
  if (after == before) return;
  counts_.keys += after.keys - before.keys;
  counts_.inline_keys += after.inline_keys - before.inline_keys;
  counts_.key_bytes += after.key_bytes - before.key_bytes;
  counts_.value_bytes += after.value_bytes - before.value_bytes;
  counts_.expiring_keys += uint64_t{after.expiring} - before.expiring;
  Segment& segment = segments_[UnitOf(at.home)];
  segment.keys += static_cast<uint32_t>(after.keys - before.keys);
  segment.small_items += after.small_items - before.small_items;
  segment.expiring += after.expiring - before.expiring;
}

void Table::Stats::Add(const Stats& other) {
  // A new field must be added here.
  static_assert(sizeof(Stats) == 31 * sizeof(uint64_t));
  for (uint64_t Stats::*field : {
           &Stats::keys,
           &Stats::inline_keys,
           &Stats::key_bytes,
           &Stats::value_bytes,
           &Stats::region_bytes,
           &Stats::index_bytes,
           &Stats::item_bytes,
           &Stats::item_space_bytes,
           &Stats::quarantine_bytes,
           &Stats::segments,
           &Stats::overflow_lines,
           &Stats::expiring_keys,
           &Stats::expiries,
           &Stats::demotions,
           &Stats::promotions,
           &Stats::pull_backs,
           &Stats::chained_inserts,
           &Stats::chains_full,
           &Stats::in_place_updates,
           &Stats::splits,
           &Stats::compaction_items,
           &Stats::compaction_bytes,
           &Stats::compaction_windows,
           &Stats::compaction_windows_given_up,
           &Stats::evictions,
           &Stats::evicted_bytes,
           &Stats::hints,
           &Stats::hints_unmatched,
       }) {
    this->*field += other.*field;
  }
  directory_depth = std::max(directory_depth, other.directory_depth);
  cas_version = std::max(cas_version, other.cas_version);
}

Table::Stats Table::stats() const {
  Stats stats = counts_;
  const ItemSpace::Stats items = items_.space().stats();
  stats.in_place_updates = writer_.hot().in_place_updates;
  stats.region_bytes = writer_.region_bytes();
  stats.index_bytes = space_.units_used() * kUnitBytes;
  stats.item_bytes = items.used_bytes - update_room_.bytes();
  stats.item_space_bytes = items.page_bytes;
  stats.quarantine_bytes = items.waiting_bytes;
  for (const uint64_t segments : segments_of_depth_) stats.segments += segments;
  stats.directory_depth = directory_.depth();
  stats.overflow_lines = chains_.lines();
  stats.compaction_items = compactor_.stats().moved_items;
  stats.compaction_bytes = compactor_.stats().moved_bytes;
  stats.compaction_windows = compactor_.stats().windows_emptied;
  stats.compaction_windows_given_up = compactor_.stats().windows_given_up;
  stats.cas_version = writer_.cas_version();
  stats.load_factor = static_cast<double>(occupied_words_) /
                      static_cast<double>(stats.segments * kLinesPerUnit * kLineWords);
  return stats;
}

}  // namespace osprey::index
