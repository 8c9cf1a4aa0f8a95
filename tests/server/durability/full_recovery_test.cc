// Memory: what a server held, the same server loads again; and what a smaller one says.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/durability/durable_lives.h"
#include "tests/support/volume.h"

namespace osprey::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string KeyOf(uint64_t i) { return absl::StrCat("key-", i); }

// Puts and deletes until the memory has refused many writes.
void FillAndChurn(DurableServer& server, SplitMix64& random,
                  const std::function<uint64_t()>& length, int rounds) {
  uint64_t next = 0;
  for (int refused = 0; refused < 20;) {
    const absl::Status status = server.Put(KeyOf(next++), std::string(length(), 'f'));
    refused += status.ok() ? 0 : 1;
    server.RunMaintenance();
  }
  for (int i = 0; i < rounds; ++i) {
    if (random.Chance(50)) {
      (void)server.Delete(KeyOf(random.Below(next)));
    } else {
      const std::string key = KeyOf(random.Chance(50) ? random.Below(next) : next++);
      (void)server.Put(key, std::string(length(), 'c'));
    }
    server.Advance(absl::Milliseconds(10));
    server.RunMaintenance();
  }
}

void FillAndChurn(DurableServer& server, SplitMix64& random, uint64_t bytes_max, int rounds) {
  FillAndChurn(
      server, random, [&] { return random.Below(bytes_max + 1); }, rounds);
}

void FillAgain(DurableServer& server, SplitMix64& random, uint64_t bytes_max) {
  for (int refused = 0; refused < 50;) {
    const std::string key = absl::StrCat("again-", random.Next());
    const absl::Status status = server.Put(key, std::string(random.Below(bytes_max + 1), 'a'));
    refused += status.ok() ? 0 : 1;
    server.Advance(absl::Milliseconds(10));
    server.RunMaintenance();
  }
}

void ExpectSameAfterRestart(DurableServer& server) {
  ASSERT_TRUE(server.log().Write().ok());
  const absl::Status status = server.Start();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(server.Difference(), "");
}

TEST(FullRecoveryTest, FullTablesLoadIntoTheSameMemory) {
  for (const uint64_t bytes_max : {8, 100, 1000, 6000}) {
    for (uint64_t seed = 1; seed <= (kVolumeParts == 1 ? 4 : 1); ++seed) {
      SCOPED_TRACE(absl::StrCat(bytes_max, " B, seed ", seed));
      wal::SimDisk disk(seed);
      SplitMix64 random(seed);
      ServerOptions options;
      options.memory_bytes = (kVolumeParts == 1 ? 4 : 2) << 20;
      options.partitions = 2;
      DurableServer server(disk, options);
      ASSERT_TRUE(server.Start().ok());
      FillAndChurn(server, random, bytes_max, 5000 / kVolumeParts);
      ExpectSameAfterRestart(server);  // from the log alone
      ASSERT_TRUE(server.Checkpoint().ok());
      ExpectSameAfterRestart(server);  // from the checkpoint alone
      FillAgain(server, random, bytes_max);
      ExpectSameAfterRestart(server);
      FillAndChurn(server, random, bytes_max, 5000 / kVolumeParts);
      ExpectSameAfterRestart(server);  // the log replaces most of the checkpoint
      EXPECT_GT(server.live_keys(), 100u);
    }
  }
}

// As many lengths from 8 to 15 as from 16 to 31, and so on, so that few long values have most bytes.
uint64_t AnyLength(SplitMix64& random, uint64_t magnitudes) {
  const uint64_t least = uint64_t{8} << random.Below(magnitudes);
  return least + random.Below(least);
}

// Without a second attempt, longest values first, about half of these loads are refused.
TEST(FullRecoveryTest, FullTablesOfAllLengthsLoadIntoTheSameMemory) {
  for (const uint64_t magnitudes : {8, 12, 18}) {  // up to 2 KiB, 32 KiB, 2 MiB
    for (uint64_t seed = 1; seed <= (kVolumeParts == 1 ? 8 : 1); ++seed) {
      SCOPED_TRACE(absl::StrCat(magnitudes, " magnitudes, seed ", seed));
      wal::SimDisk disk(seed);
      SplitMix64 random(seed);
      ServerOptions options;
      options.memory_bytes = 8 << 20;
      options.partitions = 2;
      options.threads = 1 + static_cast<uint32_t>(random.Below(3));
      DurableServer server(disk, options);
      ASSERT_TRUE(server.Start().ok());
      const auto length = [&] { return AnyLength(random, magnitudes); };
      FillAndChurn(server, random, length, 2000);
      ExpectSameAfterRestart(server);  // from the log alone
      ASSERT_TRUE(server.Checkpoint().ok());
      ExpectSameAfterRestart(server);  // from the checkpoint alone
      FillAndChurn(server, random, length, 1000);
      ExpectSameAfterRestart(server);  // from both
      EXPECT_GT(server.live_keys(), 30u);
    }
  }
}

// A server whose keys fit only with the longest values first: the first of some that is such a one.
struct RefusedAtFirst {
  RefusedAtFirst() {
    for (uint64_t seed = 1; seed <= 20 && !is_found; ++seed) Fill(seed);
    EXPECT_TRUE(is_found);
  }
  void Fill(uint64_t seed) {
    SplitMix64 random(seed);
    ServerOptions options;
    options.memory_bytes = kMemoryBytes;
    options.partitions = 2;
    server.reset();
    disk = std::make_unique<wal::SimDisk>(seed);
    server = std::make_unique<DurableServer>(*disk, options);
    ASSERT_TRUE(server->Start().ok());
    FillAndChurn(
        *server, random, [&] { return AnyLength(random, 18); }, 2000);
    ASSERT_TRUE(server->Checkpoint().ok());
    ASSERT_TRUE(server->log().Write().ok());
    server->loading_log = [&](absl::string_view) { is_found = true; };
    ASSERT_TRUE(server->Start().ok());
    server->loading_log = nullptr;
  }

  static constexpr uint64_t kMemoryBytes = 8 << 20;
  bool is_found = false;
  std::unique_ptr<wal::SimDisk> disk;
  std::unique_ptr<DurableServer> server;
};

TEST(FullRecoveryTest, ASecondAttemptIsLoggedAndGoesOnInProgress) {
  RefusedAtFirst refused;
  DurableServer& server = *refused.server;
  std::vector<std::string> lines;
  server.loading_log = [&](absl::string_view line) { lines.emplace_back(line); };
  std::vector<RecoveryProgress> reports;  // of the second attempt
  server.progress = [&](const RecoveryProgress& progress) {
    if (!lines.empty()) reports.push_back(progress);
  };
  ASSERT_TRUE(server.Start().ok());
  EXPECT_EQ(server.Difference(), "");
  EXPECT_THAT(lines, ElementsAre(HasSubstr("loading again, longest values first")));
  // The first one comes while memory is cleared.
  ASSERT_GT(reports.size(), 2u);
  EXPECT_EQ(reports.front().items, 0u);
  EXPECT_GT(reports.front().bytes, RefusedAtFirst::kMemoryBytes / 2);
  EXPECT_GT(reports.back().bytes_total, reports.front().bytes_total);
  for (size_t i = 0; i < reports.size(); ++i) {
    EXPECT_LE(reports[i].bytes, reports[i].bytes_total);
    if (i > 0) {
      EXPECT_GE(reports[i].bytes, reports[i - 1].bytes);
    }
  }
}

TEST(FullRecoveryTest, ASecondAttemptIsStoppedWhileMemoryIsCleared) {
  RefusedAtFirst refused;
  DurableServer& server = *refused.server;
  bool is_second = false;
  server.loading_log = [&](absl::string_view) { is_second = true; };
  server.progress = [&](const RecoveryProgress&) { server.stop_loading = is_second; };
  EXPECT_EQ(server.Start().code(), absl::StatusCode::kCancelled);
  const absl::Span<const std::byte> region = server.region();
  EXPECT_GT(region.size() - static_cast<size_t>(absl::c_count(region, std::byte{0})),
            RefusedAtFirst::kMemoryBytes / 2);
  server.stop_loading = false;
  server.loading_log = nullptr;
  server.progress = nullptr;
  ASSERT_TRUE(server.Start().ok());
  EXPECT_EQ(server.Difference(), "");
}

TEST(FullRecoveryTest, SmallerMemoryIsAnErrorThatSaysHowMuchWillDo) {
  for (const uint64_t bytes_max : {8, 1000, 20000}) {
    for (const bool has_checkpoint : {false, true}) {
      if (kVolumeParts > 1 && has_checkpoint != (bytes_max == 1000)) continue;
      SCOPED_TRACE(absl::StrCat(bytes_max, " B, checkpoint ", has_checkpoint));
      wal::SimDisk disk(1);
      SplitMix64 random(1);
      ServerOptions options;
      options.memory_bytes = 8 << 20;
      DurableServer server(disk, options);
      ASSERT_TRUE(server.Start().ok());
      FillAndChurn(server, random, bytes_max, 100);
      if (has_checkpoint) {
        ASSERT_TRUE(server.Checkpoint().ok());
      }
      ASSERT_TRUE(server.log().Write().ok());
      server.set_memory(3 << 20);
      const absl::Status status = server.Start();
      ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_THAT(status.message(), HasSubstr("does not fit into --memory=3145728"));
      const std::string message(status.message());
      const std::string flag = "start with --memory=";
      uint64_t enough = 0;
      ASSERT_TRUE(absl::SimpleAtoi(message.substr(message.find(flag) + flag.size()), &enough))
          << status;
      EXPECT_LT(enough, uint64_t{64} << 20);
      server.set_memory(enough);
      const absl::Status again = server.Start();
      ASSERT_TRUE(again.ok()) << again;
      EXPECT_EQ(server.Difference(), "");
    }
  }
}

}  // namespace
}  // namespace osprey::server
