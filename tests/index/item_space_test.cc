// The allocator of item space against a model that records the owner of all bytes.

#include "index/space/item_space.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "index/space/region_space.h"
#include "tests/support/volume.h"

namespace osprey::index {
namespace {

constexpr uint64_t kUnitsOffset = 8192;

absl::Time At(int64_t milliseconds) { return absl::UnixEpoch() + absl::Milliseconds(milliseconds); }

TEST(RegionSpaceTest, UnitsGrowUpwardsAndRunsDownwardsUntilTheyMeet) {
  RegionSpace space(kUnitsOffset, 1 << 20);
  uint64_t units_end = kUnitsOffset;
  uint64_t runs_begin = space.end();
  for (bool more = true; more;) {
    const auto unit = space.TakeUnit();
    const auto run = space.Take(3, 1);
    if (unit.has_value()) {
      EXPECT_EQ(*unit, units_end);
      units_end += kUnitBytes;
    }
    if (run.has_value()) {
      EXPECT_EQ(*run, runs_begin - 3 * kPageBytes);
      runs_begin = *run;
    }
    more = unit.has_value() || run.has_value();
    ASSERT_LE(units_end, runs_begin);
  }
  EXPECT_LT(runs_begin - units_end, 3 * kPageBytes);
}

TEST(RegionSpaceTest, EachTakesWhatTheOtherGivesBack) {
  RegionSpace space(kUnitsOffset, kUnitsOffset + 8 * kUnitBytes, kUnitBytes);
  EXPECT_EQ(space.pages(), 7 * kPagesPerUnit);  // one unit is the index's
  std::vector<uint64_t> units;
  while (const auto unit = space.TakeUnit()) units.push_back(*unit);
  ASSERT_EQ(units.size(), 8u);
  EXPECT_EQ(space.pages(), 0u);
  EXPECT_FALSE(space.Take(1, 1).has_value());
  space.FreeUnit(units[0]);  // in the index's room
  EXPECT_FALSE(space.Take(1, 1).has_value());
  space.FreeUnit(units[4]);
  space.FreeUnit(units[5]);
  EXPECT_EQ(space.units_left(), 3u);
  const auto run = space.Take(2 * kPagesPerUnit, 1);
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(*run, units[4]);
  EXPECT_TRUE(space.IsTaken(*run));
  EXPECT_FALSE(space.IsUnit(*run));
  EXPECT_EQ(*space.TakeUnit(), units[0]);
  EXPECT_FALSE(space.TakeUnit().has_value());
  space.Free(*run, 2 * kPagesPerUnit);
  EXPECT_EQ(*space.TakeUnit(), units[4]);
  EXPECT_TRUE(space.IsUnit(units[4] + kUnitBytes - 1));
  EXPECT_FALSE(space.IsUnit(units[5]));
}

TEST(RegionSpaceTest, SpareUnitIsForReplacementsAlone) {
  RegionSpace space(kUnitsOffset, kUnitsOffset + 4 * kUnitBytes, 4 * kUnitBytes);
  std::vector<uint64_t> units;
  while (const auto unit = space.TakeUnit()) units.push_back(*unit);
  ASSERT_EQ(units.size(), 3u);
  const auto spare = space.TakeReplacement();
  ASSERT_TRUE(spare.has_value());
  EXPECT_FALSE(space.TakeReplacement().has_value());
  space.FreeUnit(units[0]);  // the spare one from here on
  EXPECT_TRUE(space.IsSpare(units[0]));
  EXPECT_FALSE(space.TakeUnit().has_value());
  EXPECT_FALSE(space.VacateSpare(units[0]));
  space.FreeUnit(units[1]);
  EXPECT_EQ(space.units_left(), 1u);
  ASSERT_TRUE(space.VacateSpare(units[0]));
  EXPECT_TRUE(space.IsSpare(units[1]));
  EXPECT_EQ(*space.TakeUnit(), units[0]);
  EXPECT_EQ(space.units_used(), 3u);
}

// Else a segment that moves out of a window would move into it again.
TEST(RegionSpaceTest, SpareUnitInAClosedRangeIsNotTaken) {
  RegionSpace space(kUnitsOffset, kUnitsOffset + 6 * kUnitBytes, 2 * kUnitBytes,
                    RegionSpace::Sharing::kBorder);
  std::vector<uint64_t> units;
  while (const auto unit = space.TakeUnit()) units.push_back(*unit);
  ASSERT_EQ(units.size(), 5u);
  space.FreeUnit(units[3]);  // a second spare one
  EXPECT_EQ(space.units_left(), 1u);
  space.Close(units[3], units[3] + kUnitBytes);
  // The other one, which is the last outside the range, may replace a unit.
  EXPECT_EQ(space.units_left(), 1u);
  EXPECT_EQ(space.replacements_left(), 1u);
  const auto replacement = space.TakeReplacement();
  ASSERT_TRUE(replacement.has_value());
  EXPECT_NE(*replacement, units[3]);
  EXPECT_EQ(space.units_left(), 0u);
  EXPECT_EQ(space.replacements_left(), 0u);
  EXPECT_FALSE(space.TakeReplacement().has_value());
  space.FreeUnit(*replacement);
  ASSERT_TRUE(space.VacateSpare(units[3]));
  EXPECT_FALSE(space.IsUnit(units[3]));
  space.Open();
}

TEST(RegionSpaceTest, UnitsAreAlignedWithinFreeRuns) {
  RegionSpace space(kUnitsOffset, kUnitsOffset + 3 * kUnitBytes);
  std::vector<uint64_t> pages;
  while (const auto page = space.Take(1, 1)) pages.push_back(*page);
  ASSERT_EQ(pages.size(), 3 * kPagesPerUnit);
  // 15 pages in a row contain a unit; 14 that begin one page too late do not.
  for (uint64_t i = 1; i < 2 * kPagesPerUnit - 1; ++i) space.Free(kUnitsOffset + i * kPageBytes, 1);
  EXPECT_EQ(space.units_left(), 0u);
  EXPECT_FALSE(space.TakeUnit().has_value());
  space.Free(kUnitsOffset + (2 * kPagesPerUnit - 1) * kPageBytes, 1);
  EXPECT_EQ(space.units_left(), 1u);
  EXPECT_EQ(*space.TakeUnit(), kUnitsOffset + kUnitBytes);
}

TEST(ItemSpaceTest, DeadSpaceRestsForItsGrace) {
  RegionSpace space(kUnitsOffset, 4 << 20);
  ItemSpace items(space, absl::Seconds(1));
  const uint64_t first = *items.Allocate(200, At(0));
  items.Retire(first, At(0));
  EXPECT_EQ(items.stats().waiting_bytes, 208u);
  for (int i = 0; i < 50; ++i) ASSERT_NE(*items.Allocate(200, At(999)), first);
  EXPECT_EQ(*items.Allocate(200, At(1000)), first);
  EXPECT_EQ(items.stats().waiting_bytes, 0u);
}

TEST(ItemSpaceTest, DeadSpaceThatWaitsIsBoundedInBytes) {
  constexpr uint64_t kRegionBytes = uint64_t{1} << 30;
  RegionSpace space(kUnitsOffset, kRegionBytes);
  ItemSpace items(space, absl::Hours(1));
  EXPECT_EQ(items.quarantine().next_due(), absl::InfiniteFuture());
  const uint64_t leased = *items.Allocate(4 << 20, At(0));
  items.quarantine().Lease(leased, At(3'600'000));
  items.Retire(leased, At(0));
  uint64_t waiting_max = 0;
  for (int i = 0; i < 1000; ++i) {
    items.Retire(*items.Allocate(4 << 20, At(i)), At(i));
    waiting_max = std::max(waiting_max, items.stats().waiting_bytes);
  }
  EXPECT_LE(waiting_max, kRegionBytes / 16 + (8 << 20));
  EXPECT_GT(waiting_max, kRegionBytes / 16 - (8 << 20));
  EXPECT_TRUE(items.quarantine().IsLeased(leased, At(1000)));
  EXPECT_TRUE(items.IsAllocated(leased));
  // Small ones wait for their grace, unless many bytes wait.
  while (items.FreeDue(At(3'700'000))) {
  }
  EXPECT_EQ(items.stats().waiting_bytes, 0u);
  for (int i = 0; i < 1000; ++i) items.Retire(*items.Allocate(200, At(0)), At(0));
  EXPECT_EQ(items.stats().waiting_bytes, 1000u * 208);
  EXPECT_EQ(items.quarantine().next_due(), At(3'600'000));
}

TEST(ItemSpaceTest, AnItemAboveTheBoundWaitsAsLongAsItIsAlone) {
  RegionSpace space(kUnitsOffset, uint64_t{1} << 30);
  ItemSpace items(space, absl::Hours(1));
  const uint64_t first = *items.Allocate(100 << 20, At(0));
  items.Retire(first, At(0));
  EXPECT_TRUE(items.IsAllocated(first));
  items.Retire(*items.Allocate(100 << 20, At(0)), At(0));
  EXPECT_FALSE(items.IsAllocated(first));
}

TEST(ItemSpaceTest, MemoryShortageEndsTheGracePeriodButNotALease) {
  RegionSpace space(kUnitsOffset, 640 << 10);  // space for two
  ItemSpace items(space, absl::Hours(1));
  const uint64_t leased = *items.Allocate(300000, At(0));
  const uint64_t other = *items.Allocate(300000, At(0));
  items.quarantine().Lease(leased, At(5000));
  items.quarantine().Lease(leased, At(2000));  // the later end counts
  items.Retire(leased, At(0));
  items.Retire(other, At(0));
  EXPECT_EQ(*items.Allocate(300000, At(1)), other);
  EXPECT_FALSE(items.Allocate(500000, At(1)).has_value());
  EXPECT_FALSE(items.Allocate(500000, At(4999)).has_value());
  items.Release(other);
  // Both are free again, and one.
  EXPECT_TRUE(items.Allocate(600000, At(5000)).has_value());
  EXPECT_EQ(items.stats().waiting_bytes, 0u);
}

TEST(ItemSpaceTest, ALeaseThatIsRenewedWithoutEndIsRememberedOnce) {
  RegionSpace space(kUnitsOffset, 4 << 20);
  ItemSpace items(space, absl::ZeroDuration());
  const uint64_t leased = *items.Allocate(300000, At(0));
  for (int i = 1; i <= 1000; ++i) items.quarantine().Lease(leased, At(i));
  EXPECT_EQ(items.quarantine().leases(), 1u);
  items.Retire(leased, At(0));
  for (int i = 0; i < 10; ++i) items.FreeDue(At(999));
  EXPECT_TRUE(items.quarantine().IsLeased(leased, At(999)));
  EXPECT_GT(items.stats().waiting_bytes, 0u);
  items.FreeDue(At(1000));
  EXPECT_EQ(items.stats().waiting_bytes, 0u);
  EXPECT_EQ(items.quarantine().leases(), 0u);
}

TEST(ItemSpaceTest, EmptySlabsServeOtherSizesAndRunsJoin) {
  constexpr uint64_t kBytes = 4 << 20;
  RegionSpace space(kUnitsOffset, kBytes);
  ItemSpace items(space, absl::ZeroDuration());
  // Fills all of it with one size after the other; each time nearly all must be usable.
  for (const uint64_t bytes :
       {40u, 100u, 1000u, 3000u, 8192u, 9000u, 50000u, 1000000u, 64u, 2000u}) {
    std::vector<uint64_t> all;
    for (;;) {
      const auto offset = items.Allocate(bytes, At(0));
      if (!offset.has_value()) break;
      all.push_back(*offset);
    }
    // Rounding to a class or to pages, slabs' ends, and a last piece that is too short.
    const double share = static_cast<double>(all.size() * bytes) / (kBytes - kUnitsOffset);
    EXPECT_GT(share, bytes == 1000000 ? 0.70 : bytes == 40 ? 0.80 : 0.70) << bytes;
    for (size_t i = 0; i < all.size(); i += 2) items.Release(all[i]);
    for (size_t i = 1; i < all.size(); i += 2) items.Release(all[i]);
    const ItemSpace::Stats stats = items.stats();
    EXPECT_EQ(stats.used_bytes, 0u);
    EXPECT_EQ(stats.slabs, 0u);
    EXPECT_EQ(stats.free_runs, 1u);
    EXPECT_EQ(stats.free_page_bytes, items.bytes());
    EXPECT_EQ(stats.page_bytes, 0u);
  }
}

TEST(ItemSpaceTest, NothingIsAllocatedInAClosedRangeUntilItIsOpened) {
  RegionSpace space(kUnitsOffset, kUnitsOffset + 64 * kPageBytes);
  ItemSpace items(space, absl::ZeroDuration());
  std::vector<uint64_t> runs;  // of four pages each, from the top downwards; all of it
  for (int i = 0; i < 16; ++i) runs.push_back(*items.Allocate(4 * kPageBytes, At(0)));
  const uint64_t begin = runs[9], end = runs[7] + 4 * kPageBytes;
  for (const int i : {12, 9, 7}) items.Release(runs[i]);
  items.Close(begin, end);
  EXPECT_EQ(items.LargestFreeRun(), 4u);
  EXPECT_EQ(items.FreeBytes(), 12 * kPageBytes);
  EXPECT_FALSE(items.Allocate(5 * kPageBytes, At(0)).has_value());
  // Space that becomes free beside it, or in it, stays on its side.
  for (const int i : {10, 6, 8}) items.Release(runs[i]);
  EXPECT_EQ(items.LargestFreeRun(), 4u);
  EXPECT_FALSE(items.NextItem(begin, end).has_value());
  for (int i = 0; i < 3; ++i) {
    const absl::optional<uint64_t> offset = items.Allocate(4 * kPageBytes, At(0));
    ASSERT_TRUE(offset.has_value());
    EXPECT_TRUE(*offset < begin || *offset >= end);
  }
  EXPECT_FALSE(items.Allocate(100, At(0)).has_value());
  items.Open();
  EXPECT_EQ(items.LargestFreeRun(), 12u);
  EXPECT_EQ(*items.Allocate(12 * kPageBytes, At(0)), begin);
}

TEST(ItemSpaceTest, SlabsOfAClosedRangeTakeNoMoreItems) {
  RegionSpace space(kUnitsOffset, 1 << 20);
  ItemSpace items(space, absl::ZeroDuration());
  const uint64_t first = *items.Allocate(1000, At(0));
  const ItemSpace::Extent slab = items.ExtentAt(first);
  EXPECT_EQ(slab.kind, ItemSpace::Extent::Kind::kSlab);
  EXPECT_EQ(slab.used_chunks, 1u);
  items.Close(slab.begin, slab.end());
  const uint64_t second = *items.Allocate(1000, At(0));
  EXPECT_TRUE(second < slab.begin || second >= slab.end());
  EXPECT_EQ(*items.NextItem(slab.begin, slab.end()), first);
  items.Release(first);  // and with it the slab
  EXPECT_EQ(items.ExtentAt(first).kind, ItemSpace::Extent::Kind::kFree);
  items.Open();
  EXPECT_EQ(items.stats().slabs, 1u);
}

TEST(ItemSpaceTest, ASpanIsOneItemUntilItIsFreed) {
  RegionSpace space(kUnitsOffset, kUnitsOffset + 4 * kPageBytes);
  ItemSpace items(space, absl::ZeroDuration());
  std::vector<uint64_t> all;
  while (const auto offset = items.Allocate(100, At(0))) all.push_back(*offset);
  ASSERT_GT(all.size(), 100u);
  std::sort(all.begin(), all.end());
  EXPECT_FALSE(items.FindSpan(1000, At(0)).has_value());
  // Nine chunks that are free, but not adjacent: as many other items can move there.
  for (int i = 0; i < 9; ++i) items.Release(all[i * 10]);
  const auto span = items.FindSpan(1000, At(0));
  ASSERT_TRUE(span.has_value());
  EXPECT_EQ(span->free.size() + span->used.size(), 9u);
  EXPECT_EQ(span->free.size(), 1u);
  items.HoldSpan(*span);
  for (const uint64_t used : span->used) {
    const auto to = items.AllocateForMove(100);
    ASSERT_TRUE(to.has_value());
    EXPECT_TRUE(*to < span->begin || *to >= span->begin + 9 * span->chunk_bytes);
    items.Retire(used, At(0));
  }
  items.EndGrace(At(0));
  const auto item = items.TakeSpan(*span);
  ASSERT_EQ(item, span->begin);
  EXPECT_GE(items.CapacityOf(*item), 1000u);
  EXPECT_TRUE(items.IsAllocated(*item));
  for (uint64_t i = 1; i < 9; ++i)
    EXPECT_FALSE(items.IsAllocated(*item + i * span->chunk_bytes)) << i;
  const auto next = items.NextItem(*item + 1, space.end());
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(*next, *item + 9 * span->chunk_bytes);
  EXPECT_FALSE(items.Allocate(100, At(0)).has_value());
  items.Release(*item);
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(items.Allocate(100, At(0)).has_value()) << i;
  EXPECT_FALSE(items.Allocate(100, At(0)).has_value());
}

TEST(ItemSpaceTest, SpanWithChunksThatStayInUseIsAbandoned) {
  RegionSpace space(kUnitsOffset, kUnitsOffset + 4 * kPageBytes);
  ItemSpace items(space, absl::ZeroDuration());
  std::vector<uint64_t> all;
  while (const auto offset = items.Allocate(100, At(0))) all.push_back(*offset);
  for (int i = 0; i < 20; ++i) items.Release(all[i * 5]);
  const auto span = items.FindSpan(1000, At(0));
  ASSERT_TRUE(span.has_value());
  const uint64_t free_bytes = items.FreeBytes();
  items.HoldSpan(*span);
  EXPECT_FALSE(items.TakeSpan(*span).has_value());
  EXPECT_EQ(items.FreeBytes(), free_bytes);
}

TEST(ItemSpaceTest, GigabyteValuesHaveTheirSpace) {
  const uint64_t bytes = uint64_t{5} << 30;
  RegionSpace space(kUnitsOffset, bytes);
  ItemSpace items(space, absl::ZeroDuration());
  const uint64_t first = *items.Allocate(kItemBytesMax, At(0));
  const uint64_t small = *items.Allocate(100, At(0));
  const uint64_t second = *items.Allocate(kItemBytesMax, At(0));
  EXPECT_GE(items.CapacityOf(first), kItemBytesMax);
  EXPECT_LE(second + kItemBytesMax, small);
  items.Retire(first, At(0));
  EXPECT_EQ(*items.Allocate(kItemBytesMax, At(0)), first);
}

class ItemSpaceModelTest : public testing::TestWithParam<uint64_t> {};

// Random sizes, deaths and leases in a full region. No two items share bytes, and none lies
// outside. None is reused early (grace period: unless memory was short; lease: never). All space
// comes back.
TEST_P(ItemSpaceModelTest, AllocatedItemsNeverOverlap) {
  const uint64_t seed = GetParam();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  const uint64_t region_bytes = 1 << (20 + random() % 3);
  RegionSpace space(kUnitsOffset, region_bytes);
  ItemSpace items(space, absl::Milliseconds(50));
  struct Span {
    uint64_t end;
    int64_t free_from;  // INT64_MAX: alive
    int64_t leased_until;
  };
  std::map<uint64_t, Span> spans;  // alive, or dead and not seen used again
  std::vector<uint64_t> alive;
  int64_t now = 0;
  int full = 0;
  int reused = 0;
  for (int i = 0; i < 30000; ++i) {
    now += static_cast<int64_t>(random() % 3);
    const uint64_t rng = random() % 100;
    if (rng < (i / 5000 % 2 == 0 ? 60 : 45) || alive.empty()) {
      const uint64_t sizes[] = {40 + random() % 200, 40 + random() % 2000, 40 + random() % 20000,
                                random() % 20 == 0 ? 200000u : 400u};
      const uint64_t bytes = sizes[random() % 4];
      const auto offset = items.Allocate(bytes, At(now));
      if (!offset.has_value()) {
        ++full;
        continue;
      }
      const uint64_t end = *offset + items.CapacityOf(*offset);
      ASSERT_GE(items.CapacityOf(*offset), bytes);
      ASSERT_EQ(*offset % 16, 0u);
      ASSERT_GE(*offset, kUnitsOffset);
      ASSERT_LE(end, region_bytes);
      ASSERT_TRUE(items.IsAllocated(*offset));
      auto at = spans.upper_bound(*offset);
      if (at != spans.begin() && std::prev(at)->second.end > *offset) --at;
      while (at != spans.end() && at->first < end) {
        ASSERT_NE(at->second.free_from, INT64_MAX) << "an overlap with what is alive";
        ASSERT_LE(at->second.leased_until, now) << "a lease was broken";
        ++reused;
        at = spans.erase(at);
      }
      spans[*offset] = {end, INT64_MAX, 0};
      alive.push_back(*offset);
      continue;
    }
    const size_t which = random() % alive.size();
    const uint64_t offset = alive[which];
    if (rng < 65 && random() % 10 == 0) {
      const int64_t until = now + static_cast<int64_t>(random() % 200);
      items.quarantine().Lease(offset, At(until));
      spans[offset].leased_until = std::max(spans[offset].leased_until, until);
      continue;
    }
    alive[which] = alive.back();
    alive.pop_back();
    if (random() % 4 == 0) {
      spans.erase(offset);
      items.Release(offset);
    } else {
      spans[offset].free_from = now + 50;
      items.Retire(offset, At(now));
    }
  }
  EXPECT_GT(full, 0);
  EXPECT_GT(reused, 1000);
  uint64_t used = 0;
  for (const uint64_t offset : alive) used += items.CapacityOf(offset);
  EXPECT_EQ(items.stats().used_bytes, used);
  for (const uint64_t offset : alive) items.Retire(offset, At(now));
  now += 10000;
  for (int i = 0; i < 30000; ++i) items.Release(*items.Allocate(100, At(now)));
  const ItemSpace::Stats stats = items.stats();
  EXPECT_EQ(stats.used_bytes, 0u);
  EXPECT_EQ(stats.waiting_bytes, 0u);
  EXPECT_EQ(stats.slabs, 0u);
  EXPECT_EQ(stats.free_runs, 1u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ItemSpaceModelTest,
                         testing::Range(uint64_t{1}, uint64_t{1 + 8 / kVolumeParts}));

}  // namespace
}  // namespace osprey::index
