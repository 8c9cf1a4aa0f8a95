// Two machines whose cable is pulled: no end sends a disconnect notice, and no error is reported.
// Both sides must detect it within a bounded time, release their resources, and continue once the
// cable is back.
//
// Runs on node 1; OSPREY_TEST_SERVER is the kvserver of node 2.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/support/running_time.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

// The permitted overrun of an operation's deadline: two machines share two cores here.
constexpr absl::Duration kLateness = absl::Seconds(1);
// Retransmissions end after half a second. The server probes a silent client after one second, and
// declares it dead after three more. The rest is the speed of two emulated machines.
constexpr absl::Duration kNoticeMax = absl::Seconds(15);
// After the fault's end: the client's longest pause between attempts is a second.
constexpr absl::Duration kRecoveryMax = absl::Seconds(15);

class PartitionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* server = std::getenv("OSPREY_TEST_SERVER");
    ASSERT_NE(server, nullptr) << "needs a server on another machine";
    uri_ = server;
  }
  void TearDown() override { Heal(); }

  std::unique_ptr<Client> Connect() {
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri_);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  // Every frame from this machine is lost; the other's answers need requests.
  void Cut() {
    const ProgramResult result = RunProgram(
        {"tc", "qdisc", "add", "dev", std::getenv("LAB_NETDEV"), "root", "netem", "loss", "100%"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    cut_ = true;
  }
  void Heal() {
    if (!std::exchange(cut_, false)) return;
    const ProgramResult result =
        RunProgram({"tc", "qdisc", "del", "dev", std::getenv("LAB_NETDEV"), "root"});
    EXPECT_EQ(result.exit_status, 0) << result.err;
  }

  static uint64_t Stat(Client& client, const std::string& name) {
    const absl::StatusOr<std::string> text = client.ServerStats(absl::Seconds(10));
    EXPECT_TRUE(text.ok()) << text.status();
    uint64_t value = 0;
    EXPECT_TRUE(absl::SimpleAtoi(StatIn(text.value_or(""), name), &value)) << name;
    return value;
  }

  static size_t OpenDescriptors() {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      count += entry.exists() ? 1 : 0;
    }
    return count;
  }

  std::string uri_;
  bool cut_ = false;
};

TEST_F(PartitionTest, OperationsEndByTheirDeadlinesAndGoOnWhenTheCableIsBack) {
  std::unique_ptr<Client> client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->Put("kept", "through the cut").ok());
  Cut();
  for (const absl::Duration deadline : {absl::Milliseconds(200), absl::Seconds(2)}) {
    const RunningTime time_of_get;
    const absl::StatusOr<Value> value = client->Get("kept", deadline);
    EXPECT_FALSE(value.ok());
    EXPECT_FALSE(absl::IsNotFound(value.status())) << "silence is no evidence of absence";
    EXPECT_LE(time_of_get.Passed(), deadline + kLateness);

    const RunningTime time_of_put;
    WriteOptions options;
    options.deadline = deadline;
    EXPECT_FALSE(client->Put("kept", "through the cut", options).ok());
    EXPECT_LE(time_of_put.Passed(), deadline + kLateness);
  }
  Heal();
  const absl::Time mended = absl::Now();
  absl::StatusOr<Value> value = client->Get("kept", kRecoveryMax);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->bytes, "through the cut");
  EXPECT_LE(absl::Now() - mended, kRecoveryMax);
}

TEST_F(PartitionTest, BothSidesNoticeAndGiveBackWhatTheyHeld) {
  std::unique_ptr<Client> observer = Connect();
  ASSERT_NE(observer, nullptr);
  // Resources of earlier clients are gone by now, or soon.
  uint64_t before = Stat(*observer, "connections");
  for (const absl::Time until = absl::Now() + kNoticeMax; before > 1 && absl::Now() < until;) {
    absl::SleepFor(absl::Milliseconds(200));
    before = Stat(*observer, "connections");
  }
  ASSERT_EQ(before, 1u);
  observer.reset();
  const size_t descriptors = OpenDescriptors();
  {
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(Connect());
      ASSERT_NE(clients.back(), nullptr);
      ASSERT_TRUE(clients.back()->Put(absl::StrCat("key", i), "value").ok());
    }
    ASSERT_EQ(Stat(*clients[0], "connections"), 4u);
    Cut();
    const absl::Time cut = absl::Now();
    // Our side: clients that are closed while the peer is silent end in bounded time.
    clients.clear();
    EXPECT_LE(absl::Now() - cut, kNoticeMax);
    EXPECT_EQ(OpenDescriptors(), descriptors);
    // Their side is not notified. It has to detect it by itself.
    absl::SleepFor(std::max(absl::ZeroDuration(), cut + kNoticeMax - absl::Now()));
  }
  Heal();
  observer = Connect();
  ASSERT_NE(observer, nullptr);
  EXPECT_EQ(Stat(*observer, "connections"), 1u) << "the server still holds vanished clients";
}

}  // namespace
}  // namespace osprey
