// Requirements of the verbs transport alone: addresses, limits, turns. Needs the lab.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "rdma/address.h"
#include "rdma/errors.h"
#include "rdma/verbs/verbs_transport.h"
#include "tests/rdma/transport_contract.h"
#include "tests/rdma/verbs/cm_calls.h"
#include "tests/rdma/verbs/transport_fixture.h"
#include "tests/support/running_time.h"

namespace osprey::rdma {
namespace {

INSTANTIATE_TEST_SUITE_P(Way, VerbsTransportTest, testing::ValuesIn(ContractWays()),
                         [](const auto& instance) { return instance.param; });

// ---- Addresses ---------------------------------------------------------------------------------

TEST_P(VerbsTransportTest, ALoopbackAddressIsRefusedAndTheRightOnesAreListed) {
  Side side(*fixture_);
  const auto check = [](const char* uri, const absl::Status& status) {
    EXPECT_EQ(ReasonOf(status), Reason::kNotRdmaAddress) << uri << ": " << status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(LabIp()), absl::string_view::npos) << status;
  };
  for (const char* uri : {"rdma://127.0.0.1:7411", "rdma://localhost:7411", "rdma://127.1.2.3:7411",
                          "rdma://[::1]:7411"}) {
    check(uri, side.transport().Listen(uri, 1).status());
    check(uri, side.transport().Connect(uri).status());
  }
  EXPECT_EQ(side.transport().resources().connections, 0u);
}

TEST_P(VerbsTransportTest, AnAddressOfNoInterfaceCannotBeListenedAt) {
  Side side(*fixture_);
  const absl::Status status = side.transport().Listen("rdma://192.0.2.1:0", 1).status();
  EXPECT_EQ(ReasonOf(status), Reason::kNotRdmaAddress) << status;
}

TEST_P(VerbsTransportTest, AWildcardListensOnAllAddressesAndPrintsAReachableOne) {
  for (const char* uri : {"rdma://0.0.0.0:0", "rdma://[::]:0"}) {
    Side server(*fixture_), client(*fixture_);
    const absl::StatusOr<std::string> ready = server.transport().Listen(uri, 1);
    ASSERT_TRUE(ready.ok()) << ready.status();
    const absl::StatusOr<Address> address = ParseAddress(*ready);
    ASSERT_TRUE(address.ok()) << *ready;
    EXPECT_NE(address->port, 0);
    Join(server, client, *ready);
  }
}

TEST_P(VerbsTransportTest, AHostThatIsNotThereIsUnreachableWithinABoundedTime) {
  Side client(*fixture_);
  const std::string uri =
      GetParam() == "ipv6" ? "rdma://[fd00::beef]:7411" : "rdma://10.0.0.177:7411";
  const absl::Time begin = absl::Now();
  const absl::StatusOr<ConnectionId> id = client.transport().Connect(uri);
  ASSERT_TRUE(id.ok()) << id.status();
  ASSERT_TRUE(Until({&client}, [&] { return client.Find(Kind::kDisconnected, *id) != nullptr; }));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  const absl::Status status = client.Find(Kind::kDisconnected)->status;
  EXPECT_EQ(ReasonOf(status), Reason::kUnreachable) << status;
  EXPECT_NE(status.message().find(uri), absl::string_view::npos) << status;
}

TEST_P(VerbsTransportTest, CallerPastItsDeadlineDoesNotWaitForTheCm) {
  Side client(*fixture_);
  const std::string uri =
      GetParam() == "ipv6" ? "rdma://[fd00::beef]:7411" : "rdma://10.0.0.177:7411";
  const absl::StatusOr<ConnectionId> id = client.transport().Connect(uri);
  ASSERT_TRUE(id.ok()) << id.status();
  for (int i = 0; i < 100; i++) client.Pump();
  const RunningTime time;
  client.transport().Disconnect(*id);
  ASSERT_TRUE(Until({&client}, [&] { return client.Find(Kind::kDisconnected, *id) != nullptr; }));
  EXPECT_LT(time.Passed(), absl::Seconds(1));
  EXPECT_TRUE(client.Find(Kind::kDisconnected)->status.ok());
}

TEST_P(VerbsTransportTest, AHostWithoutARouteIsUnreachable) {
  Side client(*fixture_);
  const std::string uri =
      GetParam() == "ipv6" ? "rdma://[2001:db8::1]:7411" : "rdma://192.0.2.1:7411";
  const absl::StatusOr<ConnectionId> id = client.transport().Connect(uri);
  ASSERT_TRUE(id.ok()) << id.status();
  ASSERT_TRUE(Until({&client}, [&] { return client.Find(Kind::kDisconnected, *id) != nullptr; }));
  EXPECT_EQ(ReasonOf(client.Find(Kind::kDisconnected)->status), Reason::kUnreachable)
      << client.Find(Kind::kDisconnected)->status;
}

// ---- Limits ------------------------------------------------------------------------------------

TEST_P(VerbsTransportTest, AReadLongerThanTheDeviceTakesIsRefusedAtOnce) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const uint32_t bytes_max = client.transport().limits(ids.client).read_bytes_max;
  const std::unique_ptr<Memory> memory =
      Allocate(server, size_t{bytes_max} + 8, Access::kRemoteRead);
  Fill(*memory, 7);
  const RemoteMemory remote = Share(server, ids.server, client, ids.client, *memory);
  const std::unique_ptr<Memory> into = Allocate(client, size_t{bytes_max} + 8, Access::kLocal);
  EXPECT_EQ(ReadNow(client, ids.client, remote, 0, bytes_max + 1, *into, {&server, &client}).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(ReadNow(client, ids.client, remote, 0, bytes_max, *into, {&server, &client}).ok());
  EXPECT_EQ(std::memcmp(into->data(), memory->data(), bytes_max), 0);
}

TEST_P(VerbsTransportTest, CreditsAboveWhatTheTransportProvidesForAreClamped) {
  TransportOptions many;
  many.receive_credits = 60000;
  many.frame_bytes_max = 256;
  Side server(*fixture_, many), client(*fixture_, many);
  const Ids ids = Join(server, client, Listen(server));
  EXPECT_EQ(client.transport().limits(ids.client).send_credits_max, kReceiveCreditsMax);
  EXPECT_EQ(server.transport().limits(ids.server).send_credits_max, kReceiveCreditsMax);
  size_t sent = 0;
  ASSERT_TRUE(Until({&server, &client}, [&] {
    while (sent < 2000 && client.transport().SendRoom(ids.client) > 0) {
      EXPECT_TRUE(client.Send(ids.client, std::to_string(sent++)).ok());
    }
    return server.Frames(ids.server).size() == 2000;
  }));
  for (size_t i = 0; i < 2000; i++) ASSERT_EQ(server.Frames(ids.server)[i], std::to_string(i));
}

// ---- Turns -------------------------------------------------------------------------------------

// All input has arrived before the side that processes it is polled.
TEST_P(VerbsTransportTest, APollTakesInOneConnectionAtMost) {
  constexpr size_t kConnections = 4;
  Side first(*fixture_), second(first), client(*fixture_);
  const std::string uri = Listen(first);
  for (size_t i = 0; i < kConnections; ++i) ASSERT_TRUE(client.transport().Connect(uri).ok());
  const absl::Time end = absl::Now() + absl::Milliseconds(500);
  while (absl::Now() < end) client.Pump();
  EXPECT_EQ(MostAPoll(first, Kind::kConnectRequest, kConnections), 1u);

  for (const Recorded& asked : first.events())
    ASSERT_TRUE(first.transport().Migrate(asked.id, second.transport()).ok());
  EXPECT_EQ(MostAPoll(second, Kind::kConnectRequest, kConnections), 1u);
}

// The kernel takes milliseconds for this, and the frames of other clients would wait meanwhile.
TEST_P(VerbsTransportTest, QueuePairsAreMadeAndDestroyedByAnotherThread) {
  Side server(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  const Ids first = Join(server, client, uri);
  ASSERT_TRUE(client.transport().Connect(uri).ok());
  server.Forget();
  ASSERT_TRUE(
      Until({&server, &client}, [&] { return server.Find(Kind::kConnectRequest) != nullptr; }));
  const ConnectionId second = server.Find(Kind::kConnectRequest)->id;

  const int before = KernelQueuePairs();
  ASSERT_TRUE(server.transport().Accept(second).ok());
  const absl::Time patience = absl::Now() + kContractPatience;  // without a Poll
  while (KernelQueuePairs() == before && absl::Now() < patience) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(KernelQueuePairs(), before + 1);
  EXPECT_EQ(KernelQueuePairs("osprey-verbs"), 2);

  // If a connection ends while its queue pair is being made, the end is reported after that.
  server.transport().Disconnect(second);
  ASSERT_TRUE(Until({&server, &client}, [&] {
    return server.Find(Kind::kDisconnected) != nullptr &&
           client.Find(Kind::kDisconnected) != nullptr;
  }));
  EXPECT_EQ(server.Find(Kind::kDisconnected)->id, second);
  EXPECT_EQ(KernelQueuePairs(), before - 1);  // the client has none left either
  EXPECT_GT(server.transport().SendRoom(first.server), 0u);
}

// The same holds for breaking it and notifying the peer; one Poll may have hundreds of these.
TEST_P(VerbsTransportTest, QueuePairsAreBrokenByAnotherThread) {
  Side server(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  const Ids ids = Join(server, client, uri);
  g_disconnected_by = 0;
  server.transport().Disconnect(ids.server);
  ASSERT_TRUE(Until({&server, &client}, [&] {
    return server.Find(Kind::kDisconnected) != nullptr &&
           client.Find(Kind::kDisconnected) != nullptr;
  }));
  EXPECT_NE(g_disconnected_by, 0);
  EXPECT_NE(g_disconnected_by, gettid());
}

// Clients that connect at once are accepted one after the other. A request that arrives while
// another's queue pair is being made waits until that is done.
TEST_P(VerbsTransportTest, ConnectRequestsWaitForTheQueuePairBeforeThem) {
  constexpr size_t kConnections = 20;
  Side server(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  for (size_t i = 0; i < kConnections; ++i) ASSERT_TRUE(client.transport().Connect(uri).ok());
  const absl::Time end = absl::Now() + kContractPatience;
  size_t accepted = 0;
  while (CountOf(client, Kind::kConnected) < kConnections && absl::Now() < end) {
    server.Pump();
    client.Pump();
    const size_t asked = CountOf(server, Kind::kConnectRequest);
    ASSERT_LE(asked, accepted + 1);
    if (asked == accepted) continue;
    ASSERT_TRUE(server.transport().Accept(LastOf(server, Kind::kConnectRequest)).ok());
    ++accepted;
    // The side has not been polled since.
    EXPECT_EQ(server.transport().limits(LastOf(server, Kind::kConnectRequest)).frame_bytes_max, 0u);
  }
  EXPECT_EQ(CountOf(client, Kind::kConnected), kConnections);
}

}  // namespace
}  // namespace osprey::rdma
