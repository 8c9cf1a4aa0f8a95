// Checkpoints beside threads that write, and loading on several threads, on a real file system.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/wal/disk/posix_file_system.h"
#include "tests/server/durability/durable_server.h"
#include "tests/support/split_mix64.h"
#include "tests/support/subprocess.h"

namespace osprey::server {
namespace {

using ::testing::HasSubstr;

std::string ValueOf(uint64_t bytes, uint64_t seed) {
  std::string value(bytes, static_cast<char>(seed));
  for (size_t at = 0; at + sizeof(seed) <= bytes; at += 512)
    value[at] = static_cast<char>(seed + at);
  return value;
}

// Long values are rewritten in place or moved while the checkpoint copies them.
void WriteUntil(const std::atomic<bool>& stop, DurableServer& server, uint64_t seed) {
  SplitMix64 random(seed);
  while (!stop) {
    const std::string key = absl::StrCat("key-", random.Below(400));
    const bool is_long = random.Chance(10);
    if (random.Chance(20)) {
      (void)server.Delete(key);
    } else if (random.Chance(10)) {
      (void)server.Expire(key, absl::Hours(random.Below(3)));
    } else {
      (void)server.Put(
          key, ValueOf(is_long ? 70000 + random.Below(200000) : random.Below(3000), random.Next()));
    }
    if (random.Chance(10)) server.RunMaintenance();
  }
}

TEST(DurableThreadsTest, CheckpointsBesideWritersLoseNothing) {
  const std::string path = NewTemporaryDirectory();
  {
    const std::unique_ptr<wal::FileSystem> files = *wal::OpenPosixFileSystem(path);
    ServerOptions options;
    options.memory_bytes = 64 << 20;
    options.threads = 4;
    options.segment_bytes = 16 << 20;
    DurableServer server(*files, options);
    for (uint64_t life = 0; life < 3; ++life) {
      const absl::Status status = server.Start();
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(server.Difference(), "") << "life " << life;
      std::atomic<bool> stop{false};
      std::vector<std::thread> writers;
      for (uint64_t writer = 0; writer < 2; ++writer) {
        writers.emplace_back(
            [&stop, &server, seed = 2 * life + writer] { WriteUntil(stop, server, seed); });
      }
      for (int checkpoints = 0; checkpoints < 3; ++checkpoints) {
        const auto size = server.Checkpoint();
        EXPECT_TRUE(size.ok()) << size.status();
        EXPECT_TRUE(size.ok() && size->removal.ok());
      }
      stop = true;
      for (std::thread& writer : writers) writer.join();
      ASSERT_TRUE(server.log().Write().ok());
    }
    EXPECT_GT(server.live_keys(), 100u);
  }
}

// Each thread reads some values, and one of them meets the damage.
TEST(DurableThreadsTest, DamageToOneOfManyLongValuesEndsTheLoad) {
  const std::string path = NewTemporaryDirectory();
  const std::unique_ptr<wal::FileSystem> files = *wal::OpenPosixFileSystem(path);
  ServerOptions options;
  options.threads = 4;
  DurableServer server(*files, options);
  ASSERT_TRUE(server.Start().ok());
  for (uint64_t i = 0; i < 30; ++i)
    ASSERT_TRUE(server.Put(absl::StrCat("key-", i), ValueOf(100'000, i)).ok());
  ASSERT_TRUE(server.log().Write().ok());
  // From now on all of them are known to be synced.
  ASSERT_TRUE(server.Start().ok());
  server.Stop();

  std::string damaged;
  for (const auto& file : std::filesystem::directory_iterator(path)) {
    std::ifstream in(file.path(), std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(in), {});
    const size_t at = bytes.find(ValueOf(100'000, 17).substr(50'000, 100));
    if (at == std::string::npos) continue;
    bytes[at] ^= 1;
    std::ofstream(file.path(), std::ios::binary) << bytes;
    damaged = file.path().filename();
  }
  ASSERT_NE(damaged, "");
  const absl::Status status = server.Start();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(status.message(), HasSubstr(damaged));
}

}  // namespace
}  // namespace osprey::server
