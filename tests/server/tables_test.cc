// The tables of a server: partitions, their locks, and several threads on them.

#include "server/requests/tables.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/partitions.h"
#include "index/reader/directory_cache.h"
#include "tests/index/index_test_util.h"

namespace osprey::server {
namespace {

using index::Condition;
using index::RegionMemory;

constexpr uint64_t kIncarnation = 0x1122334455667788;
const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

index::ByteSpan Bytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::unique_ptr<Tables> Make(RegionMemory& memory, uint32_t partitions,
                             std::optional<uint64_t> cas_version = std::nullopt) {
  index::TableOptions options;
  options.incarnation = kIncarnation;
  options.hash_seed = 42;
  options.cas_version = cas_version;
  return Tables::Create(memory.span(), partitions, options).value();
}

std::optional<std::string> Stored(TableAccess& access, absl::string_view key) {
  const LockedTable table = access.For(key);
  const absl::StatusOr<index::Table::View> view = table->Find(key);
  if (!view.ok()) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(view->value.data()), view->value.size());
}

// Of a table that has drawn versions ahead.
TEST(TablesTest, AWriteAfterARaiseHasAHigherVersion) {
  RegionMemory memory(4 << 20);
  const std::unique_ptr<Tables> tables = Make(memory, 2);
  TableAccess access(*tables);
  const auto put = [&] { return access.For("key")->Put("key", Bytes("value"), {}, kNow).version; };
  for (int i = 0; i < 20000; ++i) put();
  for (int i = 0; i < 100; ++i) {
    const uint64_t raised = put() + 2;
    tables->RaiseVersions(raised);
    ASSERT_GT(put(), raised);
  }
}

TEST(TablesTest, VersionsBeginWhereTheIncarnationSays) {
  std::set<uint64_t> starts;
  for (uint64_t incarnation = 1; incarnation <= 10'000; ++incarnation) {
    starts.insert(index::FirstCasVersion(incarnation));
    EXPECT_LE(index::FirstCasVersion(incarnation), index::kCasVersionMax / 2);
  }
  EXPECT_EQ(starts.size(), 10'000);
  for (uint32_t partitions : {1u, 4u}) {
    RegionMemory memory(4 << 20);
    const std::unique_ptr<Tables> tables = Make(memory, partitions);
    TableAccess access(*tables);
    const index::WriteResult put = access.For("key")->Put("key", Bytes("value"), {}, kNow);
    EXPECT_GT(put.version, index::FirstCasVersion(kIncarnation));
    EXPECT_LE(put.version, index::FirstCasVersion(kIncarnation) + 10);
  }
}

TEST(TablesTest, VersionsGoOnBehindTheOneThatIsGiven) {
  constexpr uint64_t kLast = 1'000'000'007;
  RegionMemory memory(4 << 20);
  const std::unique_ptr<Tables> tables = Make(memory, 4, kLast);
  TableAccess access(*tables);
  const index::WriteResult put = access.For("key")->Put("key", Bytes("value"), {}, kNow);
  EXPECT_GT(put.version, kLast);
  EXPECT_LE(put.version, kLast + 10);
}

// A client has the region, the number of partitions and the server's incarnation, and no more.
TEST(TablesTest, AReaderFindsEveryKeyInThePartitionThatItsHashNames) {
  for (uint32_t partitions : {1u, 2u, 8u}) {
    RegionMemory memory(8 << 20);
    const std::unique_ptr<Tables> tables = Make(memory, partitions);
    TableAccess access(*tables);
    for (int i = 0; i < 500; ++i) {
      const std::string key = absl::StrCat("key", i);
      ASSERT_TRUE(access.For(key)->Put(key, Bytes(std::string(i, 'v')), {}, kNow).status.ok());
    }
    uint64_t found = 0;
    for (uint32_t p = 0; p < partitions; ++p) {
      const index::PartitionSpan span = index::SpanOfPartition(memory.size(), partitions, p);
      index::DirectoryCache map(index::IncarnationOfPartition(kIncarnation, p), span.bytes);
      index::FillMap(map, memory.data() + span.offset);
      for (int i = 0; i < 500; ++i) {
        const std::string key = absl::StrCat("key", i);
        const index::GetResult got = index::Get(map, memory.data() + span.offset, key);
        const bool here = index::PartitionOf(index::HashKey(key, map.hash_seed()), partitions) == p;
        ASSERT_EQ(got.kind, here ? index::Lookup::Kind::kHit : index::Lookup::Kind::kMiss) << key;
        EXPECT_EQ(got.value.size(), here ? static_cast<size_t>(i) : 0);
        found += here;
      }
    }
    EXPECT_EQ(found, 500u);
    EXPECT_EQ(tables->stats().keys, 500u);
    EXPECT_LE(tables->stats().cas_version, tables->CloseVersions());
    EXPECT_LE(tables->stats().region_bytes, memory.size());
  }
}

TEST(TablesTest, OneRegionOfOnePartitionIsLaidOutAsATableAlone) {
  RegionMemory together(1 << 20);
  const std::unique_ptr<Tables> tables = Make(together, 1);
  RegionMemory alone(1 << 20);
  index::TableOptions options;
  options.incarnation = kIncarnation;
  options.hash_seed = 42;
  options.update_room_bytes = (1 << 20) / 64;  // as Tables does
  const auto table = index::Table::Create(alone.span(), options).value();
  table->Put("key", Bytes("value"), {}, kNow);
  tables->Lock(0)->Put("key", Bytes("value"), {}, kNow);
  EXPECT_EQ(std::memcmp(together.data(), alone.data(), alone.size()), 0);
}

TEST(TablesTest, APartitionThatIsTooSmallIsRefusedWithTheBound) {
  RegionMemory memory(1 << 20);
  index::TableOptions options;
  options.incarnation = kIncarnation;
  const auto tables = Tables::Create(memory.span(), 8, options);
  EXPECT_EQ(tables.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(tables.status().message().find("262144"), absl::string_view::npos) << tables.status();
}

TEST(TablesTest, ClearedTablesAreEmptyAndMayHaveBeenStoppedBetween) {
  RegionMemory memory(40 << 20);
  const std::unique_ptr<Tables> tables = Make(memory, 4);
  for (int i = 0; i < 1000; ++i) {
    const std::string key = absl::StrCat("key", i);
    const LockedTable table = tables->Lock(tables->PartitionOf(key));
    ASSERT_TRUE(table->Put(key, Bytes("value"), {}, kNow).status.ok());
  }
  const uint64_t version = tables->LastVersion();
  int steps = 0;
  const auto count = [&] {
    ++steps;
    return absl::OkStatus();
  };
  ASSERT_TRUE(tables->Clear(count).ok());
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(tables->stats().keys, 0u);
  EXPECT_GE(tables->LastVersion(), version);
  const auto stop = [&] { return --steps == 1 ? absl::CancelledError("stop") : absl::OkStatus(); };
  EXPECT_EQ(tables->Clear(stop).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(steps, 1);
}

TEST(TablesTest, SpaceThatIsDroppedOrPublishedIsGivenBackUnderItsOwnLock) {
  RegionMemory memory(4 << 20);
  const std::unique_ptr<Tables> tables = Make(memory, 4);
  TableAccess access(*tables);
  const auto reserve = [&](absl::string_view key) {
    const LockedTable table = access.For(key);
    return TableSpace(access, table.partition(), table->Reserve(key, 10000, kNow).value());
  };
  const uint64_t before = tables->stats().item_bytes;
  {
    TableSpace dropped = reserve("a");
    EXPECT_GT(tables->stats().item_bytes, before);
    TableSpace moved = std::move(dropped);
    EXPECT_FALSE(dropped.valid());
    EXPECT_TRUE(moved.valid());
    moved = reserve("b");  // the first is aborted
  }
  EXPECT_EQ(tables->stats().item_bytes, before);
  TableSpace space = reserve("key");
  std::memset(space.value().data(), 'v', space.value().size());
  space.Hash(5000);
  {
    const LockedTable table = access.For("key");
    EXPECT_TRUE(table->Publish(space.Take(table), {}, kNow).status.ok());
  }
  EXPECT_FALSE(space.valid());
  EXPECT_EQ(Stored(access, "key"), std::string(10000, 'v'));
}

TEST(TablesTest, WhatWasUsedIsRememberedUntilItIsAskedFor) {
  RegionMemory memory(2 << 20);
  const std::unique_ptr<Tables> tables = Make(memory, 4);
  TableAccess access(*tables);
  EXPECT_EQ(access.TakeTouched(), 0u);
  access.At(3);
  access.At(1);
  EXPECT_EQ(access.TakeTouched(), 0b1010u);
  EXPECT_EQ(access.TakeTouched(), 0u);
}

// A writer whose draw was granted can draw so many, even if the others continue with smaller
// grants.
TEST(TablesTest, VersionsThatAWriterCountsOnAreLeftToIt) {
  using index::CasCounter;
  CasCounter counter(index::kCasVersionMax - 3 * CasCounter::kLeftMax, /*writers=*/2);
  RegionMemory memory(1 << 20);
  index::RegionWriter careful(memory.span(), kIncarnation, 0, &counter);
  index::RegionWriter eager(memory.span(), kIncarnation, 0, &counter);
  constexpr uint64_t kMany = CasCounter::kLeftMax / 2;
  ASSERT_TRUE(careful.CasVersionsLeft(kMany));
  uint64_t drawn = 0;
  for (; eager.CasVersionsLeft(1); ++drawn) eager.NextCasVersion();
  EXPECT_GT(drawn, CasCounter::kLeftMax);
  EXPECT_GE(index::kCasVersionMax - counter.Last(), kMany);
}

// The margin covers what each other writer may draw.
TEST(TablesTest, AllPartitionsTogetherNeverGiveOutMoreThanTheLastVersion) {
  RegionMemory memory(2 << 20);
  const std::unique_ptr<Tables> tables =
      Make(memory, 4,
           index::kCasVersionMax -
               3 * (index::CasCounter::kLeftMax + index::CasCounter::kBlockMax) - 10000);
  TableAccess access(*tables);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string key = absl::StrCat("key", i % 50);
    const index::WriteResult result = access.For(key)->Put(key, Bytes("value"), {}, kNow);
    refused += index::IsVersionsUsedUp(result.status);
  }
  EXPECT_GT(refused, 0);
  EXPECT_LE(tables->CloseVersions(), index::kCasVersionMax);
}

// The bound of a flush, for writes of any table: each draws versions from its own blocks.
TEST(TablesTest, ClosedVersionsPartWhatWasWrittenBeforeFromWhatIsWrittenAfter) {
  for (uint32_t partitions : {1u, 8u}) {
    RegionMemory memory(8 << 20);
    const std::unique_ptr<Tables> tables = Make(memory, partitions);
    TableAccess access(*tables);
    uint64_t bound = 0;
    std::vector<uint64_t> last(100);  // by key
    for (int round = 0; round < 5; ++round) {
      uint64_t newest = bound;
      for (int i = 0; i < 100 + round; ++i) {
        const std::string key = absl::StrCat("key", i % 100);
        const uint64_t version = access.For(key)->Put(key, Bytes("value"), {}, kNow).version;
        EXPECT_GT(version, bound);
        EXPECT_GT(version, last[i % 100]);
        last[i % 100] = version;
        newest = std::max(newest, version);
      }
      bound = tables->CloseVersions();
      EXPECT_GE(bound, newest);
      EXPECT_EQ(tables->CloseVersions(), bound);  // nothing was written meanwhile
    }
    EXPECT_LT(bound, index::FirstCasVersion(kIncarnation) + 64 * index::CasCounter::kBlockMax);
  }
}

// Closing the counter drops the rest of each table's block.
TEST(TablesTest, FlushesUseUpFewVersionsAndTablesThatAreWrittenMuchDrawSeldom) {
  constexpr uint32_t kPartitions = 4;
  RegionMemory memory(4 << 20);
  const std::unique_ptr<Tables> tables = Make(memory, kPartitions);
  TableAccess access(*tables);
  std::vector<std::string> keys(kPartitions);  // one of each
  for (int i = 0; absl::c_any_of(keys, [](const auto& key) { return key.empty(); }); ++i) {
    const std::string key = absl::StrCat("key", i);
    keys[tables->PartitionOf(key)] = key;
  }
  std::vector<uint64_t> last(kPartitions);
  uint64_t drawings = 0;
  const auto write_each = [&] {
    for (uint32_t i = 0; i < kPartitions; ++i) {
      const uint64_t version = access.For(keys[i])->Put(keys[i], Bytes("v"), {}, kNow).version;
      drawings += version != std::exchange(last[i], version) + 1;
    }
  };
  // In bursts, each of which ends with a flush.
  for (const uint64_t burst : {1, 10, 100, 1000}) {
    SCOPED_TRACE(burst);
    const uint64_t before = tables->CloseVersions();
    constexpr uint64_t kBursts = 20;
    for (uint64_t i = 0; i < kBursts; ++i) {
      for (uint64_t k = 0; k < burst; ++k) write_each();
      tables->CloseVersions();
    }
    const uint64_t written = kBursts * burst * kPartitions;
    EXPECT_LE(tables->CloseVersions() - before, written + written / 16);
  }
  drawings = 0;
  constexpr uint64_t kRounds = 10000;
  for (uint64_t i = 0; i < kRounds; ++i) write_each();
  EXPECT_LT(drawings, kPartitions * (kRounds / index::CasCounter::kBlockMax + 150));
}

TEST(TablesTest, HeldTableIsUsedAndExcludesOthers) {
  RegionMemory memory(2 << 20);
  const std::unique_ptr<Tables> tables = Make(memory, 4);
  TableAccess access(*tables);
  ASSERT_TRUE(access.Hold(2, /*wait=*/true));
  EXPECT_FALSE(tables->TryLock(2).held());
  access.held().Put("key", Bytes("value"), {}, kNow);
  EXPECT_TRUE(tables->TryLock(1).held());
  std::thread other([&] { EXPECT_FALSE(TableAccess(*tables).Hold(2, /*wait=*/false)); });
  other.join();
  EXPECT_EQ(access.held().stats().keys, 1u);
  access.LetGo(/*wants_nothing=*/true);
  EXPECT_TRUE(tables->TryLock(2).held());
  EXPECT_EQ(access.TakeTouched(), 0u);
  ASSERT_TRUE(access.Hold(2, /*wait=*/false));
  access.LetGo(/*wants_nothing=*/false);
  EXPECT_EQ(access.TakeTouched(), 0b100u);
}

// Longer than a thread spins.
TEST(TablesTest, ThreadsAcquireALockThatIsHeldForLong) {
  RegionMemory memory(1 << 20);
  const std::unique_ptr<Tables> tables = Make(memory, 1);
  int written = 0;  // under the lock
  std::vector<std::thread> threads;
  {
    const LockedTable held = tables->Lock(0);
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        const LockedTable table = tables->Lock(0);
        ++written;
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(written, 0);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(written, 3);
}

// Increments of shared counters, by threads that each may write every partition, with concurrent
// growth, compaction and reservations. No increment is lost, and no version is used twice.
TEST(TablesTest, ThreadsThatWriteTheSameKeysLoseNothing) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 3000;
  constexpr int kKeys = 40;
  RegionMemory memory(8 << 20);
  const std::unique_ptr<Tables> tables = Make(memory, 4);
  std::vector<std::vector<uint64_t>> versions(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      TableAccess access(*tables);
      TableSpace space;
      for (int i = 0; i < kRounds; ++i) {
        const std::string counter = absl::StrCat("counter", (i + t) % kKeys);
        {
          const LockedTable table = access.For(counter);
          const absl::StatusOr<index::Table::View> view = table->Find(counter);
          const int number =
              view.ok() ? std::stoi(std::string(reinterpret_cast<const char*>(view->value.data()),
                                                view->value.size()))
                        : 0;
          const index::WriteResult result =
              table->Put(counter, Bytes(absl::StrCat(number + 1)), {}, kNow);
          ASSERT_TRUE(result.status.ok()) << result.status;
          versions[t].push_back(result.version);
        }
        const std::string own = absl::StrCat("own", t, "/", i);
        {
          const LockedTable table = access.For(own);
          ASSERT_TRUE(table->Put(own, Bytes(own), {}, kNow).status.ok());
          table->GrowStep(kNow);
          table->CompactStep(kNow);
        }
        if (i % 16 != 0) continue;
        space.Drop();
        const LockedTable table = access.For(own);
        absl::StatusOr<index::Reservation> reservation = table->Reserve(own, 20000, kNow);
        ASSERT_TRUE(reservation.ok()) << reservation.status();
        space = TableSpace(access, table.partition(), *std::move(reservation));
        std::memset(space.value().data(), t, space.value().size());
      }
    });
  }
  for (int i = 0; i < 100; ++i) EXPECT_LE(tables->stats().keys, kKeys + kThreads * kRounds);
  for (std::thread& thread : threads) thread.join();
  TableAccess access(*tables);
  int sum = 0;
  for (int k = 0; k < kKeys; ++k)
    sum += std::stoi(Stored(access, absl::StrCat("counter", k)).value());
  EXPECT_EQ(sum, kThreads * kRounds);
  EXPECT_EQ(tables->stats().keys, uint64_t{kKeys} + kThreads * kRounds);
  std::vector<uint64_t> all;
  for (const std::vector<uint64_t>& some : versions)
    all.insert(all.end(), some.begin(), some.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end()) << "a version was given twice";
}

}  // namespace
}  // namespace osprey::server
