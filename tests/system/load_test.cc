// A kvserver with thousands of connections, over verbs. Needs the lab.

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "rdma/open_domain.h"
#include "tests/support/raw_clients.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

constexpr absl::Duration kCrowdPatience =
    absl::Seconds(100);  // the guest is emulated, and shares its CPUs
constexpr int kMany = 2000;
constexpr int kAtOnce = 32;
constexpr int kStorm = 500;

// The server's resources for a connection, which must be released.
struct Holdings {
  int connections = 0;
  int descriptors = 0;
  int64_t pinned_kib = 0;
  int queue_pairs = 0;  // of the whole guest
};

bool operator==(const Holdings& a, const Holdings& b) {
  return a.connections == b.connections && a.descriptors == b.descriptors &&
         a.pinned_kib == b.pinned_kib && a.queue_pairs == b.queue_pairs;
}

std::ostream& operator<<(std::ostream& out, const Holdings& it) {
  return out << it.connections << " connections, " << it.descriptors << " descriptors, "
             << it.pinned_kib << " KiB pinned, " << it.queue_pairs << " queue pairs";
}

// "0: rxe0: pd 3 cq 4 qp 3 cm_id 2 mr 5 …"
int QueuePairs() {
  const ProgramResult result = RunProgram({"rdma", "resource", "show"});
  const std::vector<std::string> words = absl::StrSplit(result.out, absl::ByAnyChar(" \n"));
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    int count = 0;
    if (words[i] == "qp" && absl::SimpleAtoi(words[i + 1], &count)) return count;
  }
  return -1;
}

class LoadTest : public testing::Test {
 protected:
  void SetUp() override {
    Start(NewListenAddress());
    Options options;
    options.deadline = kCrowdPatience / 2;
    absl::StatusOr<std::unique_ptr<Client>> watcher = Client::Connect(server_->uri(), options);
    ASSERT_TRUE(watcher.ok()) << watcher.status();
    watcher_ = *std::move(watcher);
    ASSERT_TRUE(watcher_->Put("planet", "saturn").ok());
  }
  void Start(const std::string& listen) {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(
        listen, {absl::StrCat("--connections-max=", kMany + 100)});  // the default is fewer
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  Holdings Now() {
    Holdings now;
    const absl::StatusOr<std::string> stats = watcher_->ServerStats();
    EXPECT_TRUE(stats.ok()) << stats.status();
    EXPECT_TRUE(absl::SimpleAtoi(StatIn(stats.value_or(""), "connections"), &now.connections));
    now.descriptors = DescriptorsOf(server_->pid());
    now.pinned_kib = StatusNumber(server_->pid(), "VmPin");
    now.queue_pairs = QueuePairs();
    return now;
  }
  // The server releases a few connections a turn.
  Holdings NowOrWhen(const Holdings& expected) {
    const absl::Time end = absl::Now() + kCrowdPatience;
    Holdings now = Now();
    for (; !(now == expected) && absl::Now() < end; now = Now()) absl::SleepFor(absl::Seconds(0.2));
    return now;
  }
  bool Serves() {
    const absl::StatusOr<Value> value = watcher_->Get("planet");
    return value.ok() && value->bytes == "saturn" && watcher_->Put("moon", "titan").ok();
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> watcher_;
};

double SecondsSince(absl::Time begin) { return absl::ToDoubleSeconds(absl::Now() - begin); }

TEST_F(LoadTest, TwoThousandConnectionsAreOpenUsedAndClosedAndNothingIsLeft) {
  const Holdings before = Now();
  RawClients clients(server_->uri(), RawClients::kSmall);
  absl::Time begin = absl::Now();
  clients.Connect(kMany, kAtOnce);
  ASSERT_TRUE(clients.Until([&] { return clients.welcomed() == kMany; }, kCrowdPatience))
      << clients.welcomed() << ", " << clients.last_end();
  std::printf("%d opened in %.1f s\n", kMany, SecondsSince(begin));

  begin = absl::Now();
  clients.Use();
  ASSERT_TRUE(clients.Until([&] { return clients.used() == kMany; }, kCrowdPatience))
      << clients.used() << ", " << clients.last_end();
  EXPECT_EQ(clients.welcomed(), kMany) << clients.last_end();
  EXPECT_TRUE(Serves());
  const Holdings open = Now();
  EXPECT_EQ(open.connections, before.connections + kMany);
  std::printf("each used in %.1f s; the server pins %.0f KiB for each of them\n",
              SecondsSince(begin),
              static_cast<double>(open.pinned_kib - before.pinned_kib) / kMany);

  begin = absl::Now();
  clients.Disconnect(/*farewell=*/true);
  EXPECT_TRUE(clients.Until([&] { return clients.connections() == 0; }, kCrowdPatience));
  EXPECT_EQ(NowOrWhen(before), before);
  EXPECT_TRUE(Serves());
  std::printf("closed, and all of it given back, in %.1f s\n", SecondsSince(begin));
}

// As with Clients with default options.
TEST_F(LoadTest, AConnectionOfADefaultClientPinsAtMost128KibibytesAtTheServer) {
  constexpr int kFew = 20;
  const Holdings before = Now();
  RawClients clients(server_->uri(), rdma::TransportOptionsOf(rdma::Address::Scheme::kRdma));
  clients.Connect(kFew, kFew);
  ASSERT_TRUE(clients.Until([&] { return clients.welcomed() == kFew; }, kCrowdPatience));
  const int64_t each_kib = (Now().pinned_kib - before.pinned_kib) / kFew;
  std::printf("the server pins %d KiB for each\n", static_cast<int>(each_kib));
  EXPECT_LE(each_kib, 128);
}

TEST_F(LoadTest, FiveHundredThatReconnectAtOnceHaveTheirSessionsBack) {
  RawClients clients(server_->uri(), RawClients::kSmall);
  clients.Connect(kStorm, kAtOnce);
  ASSERT_TRUE(clients.Until([&] { return clients.welcomed() == kStorm; }, kCrowdPatience));
  clients.Disconnect(/*farewell=*/false);
  ASSERT_TRUE(clients.Until([&] { return clients.connections() == 0; }, kCrowdPatience));

  const absl::Time begin = absl::Now();
  clients.Reconnect();
  EXPECT_TRUE(clients.Until([&] { return clients.welcomed() == kStorm; }, kCrowdPatience))
      << clients.welcomed() << ", " << clients.last_end();
  EXPECT_EQ(clients.resumed(), kStorm);
  clients.Use();
  EXPECT_TRUE(clients.Until([&] { return clients.used() == kStorm; }, kCrowdPatience))
      << clients.used();
  EXPECT_TRUE(Serves());
  std::printf("%d are back in %.1f s, after %d attempts that failed\n", kStorm, SecondsSince(begin),
              clients.retries());
}

TEST_F(LoadTest, FiveHundredClientsReconnectAfterAServerKill) {
  RawClients clients(server_->uri(), RawClients::kSmall);
  clients.Connect(kStorm, kAtOnce);
  ASSERT_TRUE(clients.Until([&] { return clients.welcomed() == kStorm; }, kCrowdPatience));
  const std::string uri = server_->uri();
  server_.reset();
  ASSERT_TRUE(clients.Until([&] { return clients.connections() == 0; }, kCrowdPatience));
  Start(uri);

  const absl::Time begin = absl::Now();
  clients.Reconnect();
  EXPECT_TRUE(clients.Until([&] { return clients.welcomed() == kStorm; }, kCrowdPatience))
      << clients.welcomed() << ", " << clients.last_end();
  clients.Use();
  EXPECT_TRUE(clients.Until([&] { return clients.used() == kStorm; }, kCrowdPatience))
      << clients.used();
  std::printf("%d are served in %.1f s, after %d attempts that failed\n", kStorm,
              SecondsSince(begin), clients.retries());
}

}  // namespace
}  // namespace osprey
