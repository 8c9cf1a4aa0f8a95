// Sessions of a data directory across a restart of the server. The second incarnation of a test has
// the images of the first one's sessions, and none of its keys: a write that is applied again shows.

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/engine/pollers.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;

constexpr uint64_t kDataId = 0xDA7A;
constexpr uint64_t kNextIncarnation = kIncarnation + 2;

class RestartTest : public testing::Test {
 protected:
  HarnessOptions Options(uint64_t incarnation, uint32_t pollers = 1) {
    HarnessOptions options;
    options.incarnation = incarnation;
    options.data_id = kDataId;
    options.pollers = pollers;
    options.session_begun = [this](uint64_t id) { begun_.push_back(id); };
    options.session_ended = [this](uint64_t id) { ended_.push_back(id); };
    return options;
  }

  std::vector<uint64_t> begun_, ended_;
};

TEST_F(RestartTest, ResumedSessionAnswersFromItsMemory) {
  ServerHarness first(Options(kIncarnation));
  RawClient client(first);
  client.Establish();
  EXPECT_EQ(client.welcome().data_id, kDataId);
  const RawReply put = client.Ask(client.PutFrame(1, "key", Large(100)));
  const RawReply sum = client.Ask(client.IncrementFrame(2, "counter", 5));
  EXPECT_EQ(client.Ask(client.DeleteFrame(3, "none")).code, StatusCode::kNotFound);

  ServerHarness second(Options(kNextIncarnation));
  second.engine().RestoreSessions(first.engine().SessionImages(), second.now());
  RawClient again(second);
  again.Establish(client.session(), kIncarnation, kDataId);
  EXPECT_EQ(again.welcome().resumed, 1);
  EXPECT_EQ(again.welcome().incarnation, kNextIncarnation);
  EXPECT_EQ(again.session(), client.session());
  const RawReply put_again = again.Ask(again.PutFrame(1, "key", Large(100)));
  EXPECT_EQ(put_again.code, StatusCode::kOk);
  EXPECT_EQ(put_again.body.version, put.body.version);
  EXPECT_EQ(put_again.body.slot, 0);
  EXPECT_NE(put.body.slot, 0);
  const RawReply sum_again = again.Ask(again.IncrementFrame(2, "counter", 5));
  EXPECT_EQ(sum_again.data, "5");
  EXPECT_EQ(sum_again.body.version, sum.body.version);
  EXPECT_EQ(again.Ask(again.DeleteFrame(3, "none")).code, StatusCode::kNotFound);
  EXPECT_EQ(second.Stored("key"), std::nullopt);
  EXPECT_EQ(second.Stored("counter"), std::nullopt);
  EXPECT_EQ(second.counters().writes_repeated, 3);
  // New numbers are new writes.
  EXPECT_EQ(again.Ask(again.IncrementFrame(4, "counter", 5)).data, "5");
  EXPECT_EQ(begun_, (std::vector<uint64_t>{client.session()}));
}

TEST_F(RestartTest, SessionOfOtherDataIsRefused) {
  ServerHarness first(Options(kIncarnation));
  RawClient client(first);
  client.Establish();
  const std::vector<SessionImage> images = first.engine().SessionImages();
  for (const uint64_t claimed : {uint64_t{0}, kDataId + 1}) {
    ServerHarness second(Options(kNextIncarnation));
    second.engine().RestoreSessions(images, second.now());
    RawClient again(second);
    again.Establish(client.session(), kIncarnation, claimed);
    EXPECT_EQ(again.welcome().resumed, 0);
    EXPECT_NE(again.session(), client.session());
    EXPECT_EQ(second.counters().sessions_refused, 1);
  }
  // Data in memory has no id, so no Hello can name it.
  HarnessOptions in_memory = Options(kNextIncarnation);
  in_memory.data_id = 0;
  ServerHarness second(in_memory);
  second.engine().RestoreSessions(images, second.now());
  RawClient again(second);
  again.Establish(client.session(), kIncarnation, 0);
  EXPECT_EQ(again.welcome().resumed, 0);
  EXPECT_EQ(again.welcome().data_id, 0);
}

TEST_F(RestartTest, RestoredSessionIsKeptForAMinute) {
  ServerHarness first(Options(kIncarnation));
  RawClient client(first);
  client.Establish();
  ServerHarness second(Options(kNextIncarnation));
  second.engine().RestoreSessions(first.engine().SessionImages(), second.now());
  second.Advance(kSessionKept() - absl::Seconds(1), absl::Seconds(1));
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(second.engine().sessions(), 1);
  second.Advance(absl::Seconds(2), absl::Seconds(1));
  EXPECT_EQ(ended_, (std::vector<uint64_t>{client.session()}));
  EXPECT_EQ(second.engine().sessions(), 0);
}

TEST_F(RestartTest, EachEndOfASessionIsReported) {
  ServerHarness server(Options(kIncarnation));
  RawClient leaver(server), sleeper(server);
  leaver.Establish();
  sleeper.Establish();
  EXPECT_EQ(begun_, (std::vector<uint64_t>{leaver.session(), sleeper.session()}));
  leaver.Send(leaver.EmptyFrame(rdma::Opcode::kDisconnectNotice, 0));
  server.Settle();
  EXPECT_EQ(ended_, (std::vector<uint64_t>{leaver.session()}));
  sleeper.transport().Disconnect(sleeper.id());
  server.Advance(kSessionKept() + absl::Seconds(1), absl::Seconds(1));
  EXPECT_EQ(ended_, (std::vector<uint64_t>{leaver.session(), sleeper.session()}));
}

TEST_F(RestartTest, SessionIsReportedBeforeItsWelcome) {
  RawClient* watched = nullptr;
  HarnessOptions options = Options(kIncarnation);
  bool welcomed = true;
  options.session_begun = [&](uint64_t) { welcomed = watched->welcomed(); };
  ServerHarness server(options);
  RawClient client(server);
  watched = &client;
  client.Establish();
  EXPECT_FALSE(welcomed);
  EXPECT_TRUE(client.welcomed());
}

// A session leads its client to the poller that has it, whatever the number of pollers.
class RestartPollersTest : public RestartTest,
                           public testing::WithParamInterface<std::pair<uint32_t, uint32_t>> {};

TEST_P(RestartPollersTest, SessionsAreFoundAfterAChangeOfPollers) {
  const auto [before, after] = GetParam();
  std::vector<SessionImage> images;
  {
    ServerHarness first(Options(kIncarnation, before));
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 7; ++i) {
      clients.push_back(std::make_unique<RawClient>(first));
      clients.back()->Establish();
      ASSERT_EQ(clients.back()->Ask(clients.back()->IncrementFrame(1, "sum", 1)).code,
                StatusCode::kOk);
    }
    for (uint32_t poller = 0; poller < before; ++poller) {
      const std::vector<SessionImage> own = first.engine(poller).SessionImages();
      images.insert(images.end(), own.begin(), own.end());
    }
  }
  ASSERT_EQ(images.size(), 7);
  ServerHarness second(Options(kNextIncarnation, after));
  for (uint32_t poller = 0; poller < after; ++poller)
    second.engine(poller).RestoreSessions(images, second.now());
  for (const SessionImage& image : images) {
    ASSERT_NE(static_cast<uint32_t>(image.id), 0);
    RawClient client(second);
    client.Establish(image.id, kIncarnation, kDataId);
    EXPECT_EQ(client.welcome().resumed, 1);
    EXPECT_EQ(second.counters(PollerOf(image.id, after)).sessions_refused, 0);
    EXPECT_NE(client.Ask(client.IncrementFrame(1, "sum", 1)).data, "");
  }
  EXPECT_EQ(second.Stored("sum"), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Numbers, RestartPollersTest,
                         testing::Values(std::pair(1, 1), std::pair(1, 4), std::pair(4, 1),
                                         std::pair(4, 3), std::pair(2, 5)));

}  // namespace
}  // namespace osprey::server
