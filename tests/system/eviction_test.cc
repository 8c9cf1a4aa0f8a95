// A server that evicts, and its clients: keys that are only READ stay while others are written and
// evicted. Over shared memory here, over verbs in the lab.

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

class EvictionTest : public ::testing::Test {
 protected:
  void Start(const std::vector<std::string>& flags) {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(NewListenAddress(), flags);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = Connect();
  }
  std::unique_ptr<Client> Connect() {
    Options options;
    options.deadline = absl::Seconds(10);
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  uint64_t Stat(absl::string_view name) {
    uint64_t value = 0;
    EXPECT_TRUE(absl::SimpleAtoi(StatIn(client_->ServerStats().value_or(""), name), &value))
        << name;
    return value;
  }
  // `count` keys, many in flight.
  uint64_t PutMany(const std::string& prefix, uint64_t count, uint64_t value_bytes) {
    const std::string value(value_bytes, 'v');
    uint64_t taken = 0;
    for (uint64_t i = 0; i < count; ++i) {
      while (client_->in_flight() >= 64) client_->Wait(absl::Seconds(1));
      EXPECT_TRUE(client_
                      ->StartPut(absl::StrCat(prefix, i), value, {},
                                 [&](absl::StatusOr<uint64_t> put) { taken += put.ok(); })
                      .ok());
    }
    while (client_->in_flight() > 0) client_->Wait(absl::Seconds(1));
    return taken;
  }

  void ReadSomeWhileOthersComeAndGo();

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
};

void EvictionTest::ReadSomeWhileOthersComeAndGo() {
  constexpr uint64_t kHot = 300;
  ASSERT_EQ(PutMany("hot", kHot, 1000), kHot);
  const uint64_t rounds = InLab() ? 15 : 40;
  uint64_t missing = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    for (int times = 0; times < 4; ++times) {
      for (uint64_t i = 0; i < kHot; ++i) {
        if (!client_->Get(absl::StrCat("hot", i)).ok()) ++missing;
      }
    }
    ASSERT_EQ(PutMany(absl::StrCat("cold", round, "#"), 500, 1000), 500u);
  }
  // Half a megabyte a round went through 4 MiB, or 6.
  EXPECT_GT(Stat("evictions"), rounds * 500 - 7000);
  EXPECT_GT(Stat("hints"), 1000u);
  EXPECT_LT(Stat("hints_unmatched"), Stat("hints") / 10);
  uint64_t hot = 0;
  for (uint64_t i = 0; i < kHot; ++i) hot += client_->Get(absl::StrCat("hot", i)).ok();
  EXPECT_GT(hot, kHot * 95 / 100) << "missing in between: " << missing;
  EXPECT_EQ(Stat("requests"), Stat("requests_put") + Stat("requests_get"));
  EXPECT_GT(client_->counters().told_hits, 1000u);
}

TEST_F(EvictionTest, KeysThatAreOnlyReadStayWhileOthersComeAndGo) {
  Start({"--memory=4MiB", "--evict=clock"});
  ReadSomeWhileOthersComeAndGo();
}

TEST_F(EvictionTest, SoTheyDoInAllPartitionsOfSeveralPollers) {
  Start({"--memory=6MiB", "--evict=clock", "--pollers=2"});
  ReadSomeWhileOthersComeAndGo();
}

TEST_F(EvictionTest, GetsAloneSendHintsOnceASecond) {
  Start({"--memory=4MiB", "--evict=clock"});
  ASSERT_EQ(PutMany("key", 100, 1000), 100u);
  const uint64_t frames = Stat("hint_frames"), requests = Stat("requests");
  const absl::Time begin = absl::Now();
  while (absl::Now() < begin + absl::Milliseconds(2500)) {
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(client_->Get(absl::StrCat("key", i)).ok());
  }
  const auto seconds = static_cast<uint64_t>(absl::ToInt64Seconds(absl::Now() - begin));
  EXPECT_GE(Stat("hint_frames") - frames, 1u);
  EXPECT_LE(Stat("hint_frames") - frames, seconds + 3);  // each Stat may bring one along
  EXPECT_EQ(Stat("requests"), requests);
}

TEST_F(EvictionTest, LargeValueIsStoredInATableFullOfSmallOnes) {
  Start({"--memory=12MiB", "--evict=clock"});
  ASSERT_EQ(PutMany("small", 30000, 400), 30000u);
  EXPECT_GT(Stat("evictions"), 0u);
  const std::string value(5 << 20, 'L');
  const absl::StatusOr<uint64_t> put = client_->Put("long", value);
  ASSERT_TRUE(put.ok()) << put.status();
  const absl::StatusOr<Value> got = client_->Get("long");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(got->bytes == value);
}

TEST_F(EvictionTest, WithoutEvictionEverythingStaysAndOnlyNewWritesAreRefused) {
  Start({"--memory=4MiB"});
  const uint64_t stored = PutMany("key", 10000, 1000);
  EXPECT_LT(stored, 10000u);
  const absl::StatusOr<uint64_t> more = client_->Put("more", std::string(1000, 'v'));
  EXPECT_EQ(ReasonOf(more.status()), Reason::kServerFull) << more.status();
  uint64_t found = 0;
  for (uint64_t i = 0; i < 10000; ++i) found += client_->Get(absl::StrCat("key", i)).ok();
  EXPECT_EQ(found, stored);
  EXPECT_EQ(Stat("evictions"), 0u);
  EXPECT_EQ(Stat("hints"), 0u);
}

}  // namespace
}  // namespace osprey
