// The data directory of a server: what its log takes, and what a next life makes of it.

#include "server/durability/durability.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/durability/change_log.h"
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
  changes.Start(server.log());
  const ClientWrite write{1, 1, rdma::Opcode::kPut};
  changes.SetWrite(&write);
  server.log().SetCheckpointBytes(uint64_t{1} << 60);
  changes.OnPut("long", BytesOf(std::string(5 << 20, 'v')), 2000, 0);
  changes.OnRelease();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].code(), absl::StatusCode::kResourceExhausted);
  changes.OnPut("later", BytesOf("value"), 2001, 0);  // though there is room for it
  changes.OnRelease();
  ASSERT_TRUE(server.log().Write().ok());
  ASSERT_TRUE(server.log().Sync().ok());
  server.Stop();
  const absl::Status status = server.Start();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(server.Difference(), "");
}

}  // namespace
}  // namespace osprey::server
