// A server whose table grows a hundredfold during reads and writes: no GET fails or misses an
// acknowledged write. Over shared memory here, over verbs in the lab.

#include <algorithm>
#include <atomic>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

std::string KeyOf(uint64_t i) { return absl::StrCat("key", i); }
std::string ValueOf(uint64_t i) {
  return absl::StrCat(i, std::string(i % 2 == 0 ? 4 : 90, static_cast<char>('a' + i % 26)));
}

std::unique_ptr<Client> Connect(const std::string& uri) {
  Options options;
  options.deadline = absl::Seconds(10);
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri, options);
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

TEST(GrowingServerTest, KeysAreFoundWhileTheTableGrows) {
  const uint64_t keys = InLab() ? 8000 : 200000;
  constexpr uint64_t kBatch = 50;
  const std::string listen = NewListenAddress();
  absl::StatusOr<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start(listen, {"--memory=256MiB"});
  ASSERT_TRUE(server.ok()) << server.status();
  std::atomic<uint64_t> stored{0};
  std::atomic<bool> stop{false};
  Counters counters;
  // Connected first: its map is of the empty table.
  std::unique_ptr<Client> reader_client = Connect((*server)->uri());
  std::thread reader([&] {
    std::mt19937_64 random(1);
    while (!stop.load()) {
      const uint64_t known = stored.load();
      if (known == 0) continue;
      const uint64_t i = random() % known;
      const absl::StatusOr<Value> value = reader_client->Get(KeyOf(i));
      ASSERT_TRUE(value.ok()) << KeyOf(i) << " of " << known << ": " << value.status();
      ASSERT_EQ(value->bytes, ValueOf(i));
      ASSERT_EQ(reader_client->Get(KeyOf(keys + i)).status().code(), absl::StatusCode::kNotFound);
    }
    counters = reader_client->counters();
  });
  std::unique_ptr<Client> writer = Connect((*server)->uri());
  absl::Duration longest;
  bool all_written = true;
  for (uint64_t first = 0; first < keys && all_written; first += kBatch) {
    std::vector<std::string> texts;
    for (uint64_t i = first; i < first + kBatch; ++i) {
      texts.push_back(KeyOf(i));
      texts.push_back(ValueOf(i));
    }
    std::vector<KeyValue> items;
    for (size_t i = 0; i < texts.size(); i += 2) items.push_back({texts[i], texts[i + 1]});
    const absl::Time before = absl::Now();
    for (const absl::StatusOr<uint64_t>& version : writer->MultiPut(items)) {
      EXPECT_TRUE(version.ok()) << version.status();
      all_written &= version.ok();
    }
    longest = std::max(longest, absl::Now() - before);
    stored = first + kBatch;
  }
  stop = true;
  reader.join();
  ASSERT_TRUE(all_written);
  const std::string stats = writer->ServerStats().value();
  std::cout << "gets " << counters.gets << " reads " << counters.reads << " asked the server "
            << counters.rpc_gets << ", longest batch of " << kBatch << " puts " << longest << "\n"
            << stats.substr(stats.find("segments="), 40) << "\n";
  EXPECT_GT(counters.gets, 100u);
  EXPECT_LT(counters.rpc_gets * 100, counters.gets);
  // And with a new map.
  for (uint64_t i = 0; i < keys; i += 97) {
    ASSERT_EQ(writer->Get(KeyOf(i))->bytes, ValueOf(i));
  }
  EXPECT_THAT(stats, testing::ContainsRegex(InLab() ? "\nsplits=[1-9]" : "\nsplits=[0-9]{3}"));
}

}  // namespace
}  // namespace osprey
