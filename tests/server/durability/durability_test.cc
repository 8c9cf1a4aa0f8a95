// The data directory of a server: what its log takes, and what a next life makes of it.

#include "server/durability/durability.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/durability/change_log.h"
#include "server/durability/duty_thread.h"
#include "server/requests/requests.h"
#include "server/requests/two_step_writes.h"
#include "tests/server/durability/durable_life.h"
#include "tests/server/durability/durable_server.h"
#include "tests/server/wal/sim_disk.h"

namespace osprey::server {
namespace {

std::string NewDirectory() {
  static int number = 0;
  const std::string directory = absl::StrCat(testing::TempDir(), "/durability", ++number);
  std::filesystem::create_directories(directory);
  return directory;
}

index::ByteSpan BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(DurabilityTest, ASessionBeginsWhileTheLogsQueueIsFull) {
  DurabilityOptions options;
  options.log_memory = 64;
  Life life(NewDirectory(), options);
  life.Put("key", "value");  // which is not written yet
  life.durability().SessionBegun(7);
  life.durability().SessionEnded(7);
  const absl::Status status = life.durability().Commit();
  EXPECT_TRUE(status.ok()) << status;
}

// A client sends the bound of a flush.
TEST(DurabilityTest, AFlushsBoundIsNoVersion) {
  const std::string directory = NewDirectory();
  {
    Life life(directory, {});
    life.access().set_write({1, 1, rdma::Opcode::kFlush});
    rdma::FlushBody flush;
    flush.version_bound = UINT64_MAX;
    EXPECT_EQ(ExecuteFlush(life.access(), flush, absl::Now()).code(), absl::StatusCode::kOk);
    ASSERT_TRUE(life.durability().Commit().ok());
  }
  Life life(directory, {});
  life.Put("key", "value");
  EXPECT_GT(life.stats().versions_left, index::kCasVersionMax / 4);
}

// So that replay takes it whole: the deletions, and the result.
TEST(DurabilityTest, APartOfAFlushIsOneRecord) {
  for (const DurabilityMode mode : {DurabilityMode::kAsync, DurabilityMode::kSync}) {
    DurabilityOptions options;
    options.mode = mode;
    Life life(NewDirectory(), options);
    for (int i = 0; i < 200; ++i) life.Put(absl::StrCat("key", i), "value");
    ASSERT_TRUE(life.durability().Commit().ok());
    const uint64_t before = life.durability().log()->appended();
    life.access().set_write({1, 1, rdma::Opcode::kFlush});
    const Answer answer = ExecuteFlush(life.access(), {}, absl::Now());
    EXPECT_GT(answer.body.value_length, 50u);
    EXPECT_EQ(life.durability().log()->appended(), before + 1);
  }
}

// Else a checkpoint that begins before the change is made does not read the record again.
TEST(DurabilityTest, APendingChangeIsBehindTheRedoRecord) {
  for (const uint64_t bytes : {10u, 5000u, 200000u}) {
    DurabilityOptions options;
    options.mode = DurabilityMode::kSync;
    Life life(NewDirectory(), options);
    life.access().set_write({1, 1, rdma::Opcode::kPut});
    const std::string value(bytes, 'v');
    auto* const changes = dynamic_cast<ChangeLog*>(life.durability().changes()[0]);
    const uint64_t before = life.durability().stats().log_entries;
    {
      const LockedTable table = life.access().At(0);
      changes->BeginPending(1);
      changes->OnPut("key", BytesOf(value), 5, 0);
    }
    ASSERT_TRUE(life.durability().Commit().ok());
    EXPECT_EQ(life.durability().stats().log_entries, before + 1);
    const uint64_t redo = changes->oldest_incomplete();
    changes->EndPending(1);
    EXPECT_EQ(changes->oldest_incomplete(), UINT64_MAX);
    const LockedTable table = life.access().At(0);
    changes->BeginPending(2);
    EXPECT_GT(changes->oldest_incomplete(), redo);
    changes->EndPending(2);
  }
}

// A value needs more segments than the disk has room for.
TEST(DurabilityTest, ALogThatRefusesAPieceCanBeReplayed) {
  wal::SimDisk disk(1);
  disk.set_capacity(uint64_t{1} << 40);
  DurableServer server(disk, {});
  ASSERT_TRUE(server.Start().ok());
  ASSERT_TRUE(server.Put("key", "value").ok());
  std::vector<absl::Status> failures;
  ChangeLog changes(0, [&](absl::Status status) { failures.push_back(std::move(status)); });
  const std::atomic<uint64_t> soon_ns{0};
  changes.Start(server.log(), soon_ns);
  const ClientWrite write{1, 1, rdma::Opcode::kPut};
  changes.SetWrite(&write);
  server.log().SetCheckpointBytes(uint64_t{1} << 60);
  const uint64_t first_piece = server.log().appended() + 1;
  changes.OnPut("long", BytesOf(std::string(5 << 20, 'v')), 2000, 0);
  changes.OnRelease();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(changes.oldest_incomplete(), first_piece) << "a checkpoint needs all pieces";
  changes.OnPut("later", BytesOf("value"), 2001, 0);  // though there is room for it
  changes.OnRelease();
  ASSERT_TRUE(server.log().Write().ok());
  ASSERT_TRUE(server.log().Sync().ok());
  server.Stop();
  const absl::Status status = server.Start();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(server.Difference(), "");
}

// --- The next life -------------------------------------------------------------------------------

TEST(DurabilityTest, SessionsThatEndedDoNotComeBack) {
  const std::string directory = NewDirectory();
  {
    Life life(directory, {});
    for (const uint64_t session : {7, 8, 9}) life.durability().SessionBegun(session);
    life.durability().SessionEnded(8);
    ASSERT_TRUE(life.durability().Commit().ok());
  }
  const Life life(directory, {});
  std::vector<uint64_t> sessions;
  for (const SessionImage& image : life.recovered()->sessions) sessions.push_back(image.id);
  EXPECT_EQ(sessions, (std::vector<uint64_t>{7, 9}));
}

// Versions that a life gave out may have been read, though the log has none of them.
TEST(DurabilityTest, VersionsOfTheLastLifeAreNotGivenOutAgain) {
  const std::string directory = NewDirectory();
  DurabilityOptions options;
  options.lag = absl::Hours(1);
  uint64_t given = 0;
  {
    Life life(directory, options);
    const DurabilityStats before = life.stats();
    given = life.tables().LastVersion() + (uint64_t{1} << 20) + 5;
    life.tables().RaiseVersions(given);
    ASSERT_TRUE(life.durability().Commit().ok());
    EXPECT_GT(life.stats().log_syncs, before.log_syncs) << "no answer precedes the sync";
    EXPECT_LT(life.stats().versions_left, before.versions_left - 5);
  }
  Life life(directory, options);
  EXPECT_GT(life.Put("key", "value"), given);
}

TEST(DurabilityTest, ALifeWhoseKeysExpireBeginsAfterTheLastOne) {
  const std::string directory = NewDirectory();
  {
    Life life(directory, {});
    life.Put("key", "value", absl::Hours(1));
    ASSERT_TRUE(life.durability().Commit().ok());
  }
  const absl::Time before = absl::Now();
  { const Life life(directory, {}); }
  const absl::Time after = absl::Now();
  Life life(directory, {});
  EXPECT_GT(life.durability().clock_start(), before + absl::Seconds(1));
  EXPECT_LT(life.durability().clock_start(), after + absl::Seconds(10));
}

// Its own record has the mark: it may expire before the next round of duties.
TEST(DurabilityTest, ALifeBeginsAfterTheExpiryOfAKeyThatExpiresSoon) {
  const std::string directory = NewDirectory();
  DurabilityOptions no_thread;
  no_thread.checkpoint_step = [] {};
  const absl::Time before = absl::Now();
  {
    Life life(directory, no_thread);
    life.Put("key", "value", absl::Milliseconds(20));
    ASSERT_TRUE(life.durability().Commit().ok());
  }
  const Life life(directory, no_thread);
  EXPECT_GT(life.recovered()->end.time_mark,
            static_cast<uint64_t>(absl::ToUnixNanos(before + absl::Milliseconds(20))));
}

// The log's time mark is before its expiry.
TEST(DurabilityTest, AKeyThatExpiresBeforeTheNextLifeIsNotPut) {
  const std::string directory = NewDirectory();
  {
    Life life(directory, {});
    life.Put("key", "value", absl::Milliseconds(2600));
    life.Put("other", "value", absl::Hours(1));
    ASSERT_TRUE(life.durability().Commit().ok());
  }
  absl::SleepFor(absl::Milliseconds(2700));
  Life life(directory, {});
  EXPECT_EQ(life.recovered()->items, 1u);
}

// The log has a multiple of what memory holds, and no entry of an expiry.
TEST(DurabilityTest, KeysThatHadExpiredTakeNoSpaceWhenLoading) {
  const std::string directory = NewDirectory();
  LifeOptions small;
  small.memory_bytes = 4 << 20;
  constexpr int kPuts = 6000;
  const std::string value(2000, 'v');
  {
    Life life(directory, {}, small);
    for (int i = 0; i < kPuts; ++i) {
      absl::Status status;
      do {
        life.access().set_write({1, static_cast<uint64_t>(i) + 1, rdma::Opcode::kPut});
        const std::string key = absl::StrCat("key", i);
        status = life.access()
                     .For(key)
                     ->Put(key, index::BytesOf(value), {}, absl::Now(),
                           index::Lifetime::For(absl::Milliseconds(5)))
                     .status;
      } while (absl::IsResourceExhausted(status));
      ASSERT_TRUE(status.ok()) << status;
    }
    life.Put("extended", "value", absl::Milliseconds(1500));
    {
      life.access().set_write({1, kPuts + 2, rdma::Opcode::kExpire});
      const LockedTable table = life.access().For("extended");
      ASSERT_TRUE(
          table->Expire("extended", {}, index::Lifetime::Forever(), absl::Now()).status.ok());
    }
    ASSERT_TRUE(life.durability().Commit().ok());
  }
  Life life(directory, {}, small);
  ASSERT_TRUE(life.recovered().ok());
  EXPECT_TRUE(life.Has("extended"));
  EXPECT_LT(life.recovered()->items, 2000u);
}

TEST(DurabilityTest, AClockThatIsFarBehindTheLastLifeIsRefused) {
  const std::string directory = NewDirectory();
  LifeOptions ahead;
  ahead.ahead = absl::Hours(48);
  {
    Life life(directory, {}, ahead);
    life.Put("key", "value");
    ASSERT_TRUE(life.durability().Commit().ok());
    ASSERT_TRUE(life.durability().End().ok());
  }
  LifeOptions refused;
  refused.loads = absl::StatusCode::kFailedPrecondition;
  {
    const Life life(directory, {}, refused);
    EXPECT_THAT(life.recovered().status().message(), testing::HasSubstr("--clock-jump-max"));
  }
  DurabilityOptions options;
  options.clock_jump_max = absl::Hours(49);
  Life life(directory, options, ahead);
  EXPECT_TRUE(life.Has("key")) << "the refusal lost nothing";
}

// A client may have found the key absent, and the log has no entry of the eviction.
TEST(DurabilityTest, KeysThatLoadingEvictedDoNotComeBack) {
  const std::string directory = NewDirectory();
  constexpr int kKeys = 3000;
  const auto key = [](int i) { return absl::StrCat("key", i); };
  {
    Life life(directory, {});
    for (int i = 0; i < kKeys; ++i) life.Put(key(i), std::string(1000, 'v'));
    ASSERT_TRUE(life.durability().Commit().ok());
  }
  LifeOptions small;
  small.memory_bytes = 2 << 20;
  small.evict = true;
  std::vector<int> kept;
  {
    Life life(directory, {}, small);
    EXPECT_GT(life.recovered()->evictions, 0u);
    for (int i = 0; i < kKeys; ++i) {
      if (life.Has(key(i))) kept.push_back(i);
    }
  }
  EXPECT_GT(kept.size(), 0u);
  EXPECT_LT(kept.size(), kKeys);
  Life life(directory, {});
  std::vector<int> loaded;
  for (int i = 0; i < kKeys; ++i) {
    if (life.Has(key(i))) loaded.push_back(i);
  }
  EXPECT_EQ(loaded, kept);
}

// Under sync, a checkpoint may begin and end between the log and the table.
TEST(DurabilityTest, ACheckpointKeepsTheLogOfAPendingChange) {
  const std::string directory = NewDirectory();
  DurabilityOptions options;
  options.mode = DurabilityMode::kSync;
  options.checkpoint_log_bytes = 1 << 20;
  options.segment_bytes = 256 << 10;
  {
    Life life(directory, options);
    const uint32_t partition = life.tables().PartitionOf("pending");
    life.access().set_write({1, 1, rdma::Opcode::kPut});
    {
      const LockedTable table = life.access().At(partition);
      table.changes()->BeginPending(1);
      table.changes()->OnPut("pending", BytesOf("value"), life.tables().LastVersion() + 1, 0);
    }
    ASSERT_TRUE(life.durability().Commit().ok());
    for (int i = 0; i < 5000 && life.stats().checkpoints == 0; ++i) {
      life.Put(absl::StrCat("key", i % 100), std::string(1000, 'v'));
      ASSERT_TRUE(life.durability().Commit().ok());
    }
    EXPECT_TRUE(life.Await([](const DurabilityStats& now) { return now.checkpoints > 0; }));
  }
  Life life(directory, options);
  EXPECT_TRUE(life.Has("pending"));
}

// --- A full disk ---------------------------------------------------------------------------------

TEST(DutyThreadTest, WritesGoOnOnceTheDiskHasSpaceAgain) {
  wal::SimDisk disk(1);
  DurableServer server(disk, {});
  ASSERT_TRUE(server.Start().ok());
  DurabilityOptions options;
  options.log = [](absl::string_view) {};
  disk.set_capacity(server.log().SpaceNeeded());  // and some bytes are used
  std::atomic<int> refusals{0};
  std::atomic<bool> goes_on{false};
  // On the thread, as all use of the disk.
  const auto refuse_writes = [&](bool refuse) {
    if (!refuse) goes_on = true;
    if (refuse && ++refusals == 1) disk.set_capacity(2 * server.log().SpaceNeeded());
  };
  std::atomic<uint64_t> soon_ns{0};
  DutyThread duties({disk, server.directory(), server.log(), server.tables(), options, soon_ns,
                     [] { return UINT64_MAX; }, [] { return false; }, refuse_writes,
                     [](const absl::Status& status) { ADD_FAILURE() << status; }},
                    0, {});
  ASSERT_TRUE(
      duties.Start([] { return absl::Now(); }, [] { return std::vector<SessionImage>(); }).ok());
  EXPECT_EQ(refusals, 1);
  for (int step = 0; step < 3000 && !goes_on; ++step) absl::SleepFor(absl::Milliseconds(10));
  duties.Stop();
  EXPECT_TRUE(goes_on);
  EXPECT_EQ(refusals, 1);
}

// The log line of a checkpoint counts what is in its files.
TEST(DutyThreadTest, AKeyWrittenDuringACheckpointMayBeTwoItems) {
  wal::SimDisk disk(1);
  DurableServer server(disk, {});
  ASSERT_TRUE(server.Start().ok());
  constexpr int kKeys = 3000;
  const auto put = [&](int key, size_t bytes) {
    ASSERT_TRUE(server.Put(absl::StrCat("key", key), std::string(bytes, 'v')).ok());
  };
  for (int key = 0; key < kKeys; ++key) put(key, 500);
  DurabilityOptions options;
  options.checkpoint_step = [&, next = 0]() mutable {
    for (int i = 0; i < 300; ++i, ++next) put(next % kKeys, next / kKeys % 2 == 0 ? 3 : 500);
  };
  std::vector<std::string> lines;
  options.log = [&](absl::string_view line) { lines.emplace_back(line); };
  std::atomic<uint64_t> soon_ns{0};
  DutyThread duties({disk, server.directory(), server.log(), server.tables(), options, soon_ns,
                     [] { return UINT64_MAX; }, [] { return false; }, [](bool) {},
                     [](const absl::Status& status) { ADD_FAILURE() << status; }},
                    /*replayed_bytes=*/options.checkpoint_log_bytes, {});
  ASSERT_TRUE(
      duties.Start([] { return absl::Now(); }, [] { return std::vector<SessionImage>(); }).ok());
  duties.RunOnce();
  ASSERT_EQ(lines.size(), 1u);
  int items = 0;
  int end = 0;
  ASSERT_EQ(std::sscanf(lines[0].c_str(), "checkpoint of %d items, %n", &items, &end), 1);
  EXPECT_GT(end, 0) << lines[0];
  EXPECT_GT(items, kKeys);
}

// A quota does not show in what is free.
TEST(DutyThreadTest, WritesStayRefusedWhileAQuotaIsUsedUp) {
  wal::SimDisk disk(1);
  DurableServer server(disk, {});
  ASSERT_TRUE(server.Start().ok());
  DurabilityOptions options;
  options.checkpoint_step = [] {};
  std::vector<std::string> lines;
  options.log = [&](absl::string_view line) { lines.emplace_back(line); };
  bool refused = false;
  std::atomic<uint64_t> soon_ns{0};
  DutyThread duties(
      {disk, server.directory(), server.log(), server.tables(), options, soon_ns,
       [] { return UINT64_MAX; }, [] { return false; }, [&](bool refuse) { refused = refuse; },
       [](const absl::Status& status) { ADD_FAILURE() << status; }},
      0, {});
  ASSERT_TRUE(
      duties.Start([] { return absl::Now(); }, [] { return std::vector<SessionImage>(); }).ok());
  disk.set_quota_used_up(true);
  for (int i = 0; i < 12; ++i) {  // until another segment begins, which has no spare
    ASSERT_TRUE(server.Put("key", std::string(200 << 10, 'v')).ok());
    ASSERT_TRUE(server.log().Write().ok());
  }
  for (int round = 0; round < 3; ++round) {
    duties.RunOnce();
    EXPECT_TRUE(refused);
  }
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], testing::HasSubstr("raise the disk quota"));
  disk.set_quota_used_up(false);
  duties.RunOnce();
  EXPECT_FALSE(refused);
}

// Whatever takes its last byte, and for however long.
TEST(DutyThreadTest, AFullDiskEndsNoServerWhoseKeysExpire) {
  wal::SimDisk disk(1);
  ServerOptions small;
  small.spare_bytes = 16 << 10;
  DurableServer server(disk, small);
  ASSERT_TRUE(server.Start().ok());
  wal::Log& log = server.log();
  DurabilityOptions options;
  options.checkpoint_step = [] {};
  std::vector<std::string> lines;
  options.log = [&](absl::string_view line) { lines.emplace_back(line); };
  bool refused = false;
  std::atomic<uint64_t> soon_ns{0};
  DutyThread duties(
      {disk, server.directory(), log, server.tables(), options, soon_ns, [] { return UINT64_MAX; },
       [] { return false; }, [&](bool refuse) { refused = refuse; },
       [](const absl::Status& status) { ADD_FAILURE() << status; }},
      0, {});
  // The mark is kept for a clock that is ahead.
  absl::Time now = absl::Now() + absl::Hours(1);
  ASSERT_TRUE(duties.Start([&] { return now; }, [] { return std::vector<SessionImage>(); }).ok());
  const auto marks_in = [&](int seconds) {
    const uint64_t before = log.synced();
    for (int i = 0; i < seconds; ++i) {
      now += absl::Seconds(1);
      duties.RunOnce();
    }
    return log.synced() - before;
  };
  EXPECT_EQ(marks_in(10), 10u);
  EXPECT_FALSE(refused);
  disk.set_capacity(0);
  EXPECT_EQ(marks_in(100), 100u);
  EXPECT_TRUE(refused);
  EXPECT_EQ(lines.size(), 1u);
  marks_in(1000);
  EXPECT_EQ(marks_in(10), 0u) << "the spare is used up";
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], testing::HasSubstr("no space for the time mark"));
  EXPECT_TRUE(log.status().ok());
  disk.set_capacity(UINT64_MAX);
  EXPECT_EQ(marks_in(10), 10u);
  EXPECT_FALSE(refused);
}

}  // namespace
}  // namespace osprey::server
