// The verbs transport's use of the kernel's resources: ids, queue pairs, completions. Needs the lab.

#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "rdma/errors.h"
#include "rdma/verbs/device/reaper.h"
#include "rdma/verbs/verbs_transport.h"
#include "tests/rdma/transport_contract.h"
#include "tests/rdma/verbs/cm_calls.h"
#include "tests/rdma/verbs/transport_fixture.h"

namespace osprey::rdma {
namespace {

// An id that was migrated has an event before the new transport has read its inbox. (Linux 6.1
// reports no such event before the id is accepted, so the test makes one. A real event of another
// id makes the transport look.)
class VerbsEventOfMigratedIdTest : public VerbsTransportTest {
 protected:
  void MigrateAndPump(Side& first, Side& second, Side& client) {
    const Ids ids = Request(first, client, Listen(first));
    rdma_cm_id* const id = TheCmIds().last_request();
    ASSERT_TRUE(client.transport().Connect(Listen(second)).ok());
    pollfd readable = {second.transport().fd(), POLLIN, 0};
    ASSERT_TRUE(Until({&client}, [&] { return poll(&readable, 1, /*timeout=*/0) == 1; }));
    TheCmIds().Forget();
    TheCmIds().MakeUpEvent(id, RDMA_CM_EVENT_REJECTED);
    ASSERT_TRUE(first.transport().Migrate(ids.server, second.transport()).ok());
    second.Pump();
    EXPECT_EQ(TheCmIds().counts().made_up_events, 1);
  }
};

INSTANTIATE_TEST_SUITE_P(Way, VerbsEventOfMigratedIdTest, testing::ValuesIn(ContractWays()),
                         [](const auto& instance) { return instance.param; });

TEST_P(VerbsEventOfMigratedIdTest, EndsTheConnectionWhereItIs) {
  Side first(*fixture_), second(first), client(*fixture_);
  ASSERT_NO_FATAL_FAILURE(MigrateAndPump(first, second, client));
  ASSERT_NE(second.Find(Kind::kConnectRequest), nullptr);
  EXPECT_NE(second.Find(Kind::kDisconnected, second.Find(Kind::kConnectRequest)->id), nullptr);
  EXPECT_EQ(TheCmIds().counts().destroyed_too_early, 0);
}

// The id is refused and destroyed immediately, since too many wait to be destroyed already.
// rdma_destroy_id waits until the fetched events of its id are acknowledged. Before that, the
// thread that fetched one would wait for itself.
TEST_P(VerbsEventOfMigratedIdTest, IsAcknowledgedBeforeTheIdIsDestroyed) {
  struct EndOfStandIns {
    ~EndOfStandIns() { TheCmIds().UseStandIns(/*made=*/false, /*held=*/false); }
  };
  Side first(*fixture_), second(first), client(*fixture_);
  const EndOfStandIns end;
  // Each connection fails at once, and leaves an id whose destruction the test delays.
  TheCmIds().UseStandIns(/*made=*/true, /*held=*/true);
  for (size_t i = 0; i < CmReaper::kWaitingMax; ++i) {
    ASSERT_TRUE(second.transport().Connect(fixture_->DeadUri()).ok()) << i;
    second.Pump();
    second.Forget();
  }
  EXPECT_EQ(second.transport().Connect(fixture_->DeadUri()).status().code(),
            absl::StatusCode::kResourceExhausted);
  TheCmIds().UseStandIns(/*made=*/false, /*held=*/true);

  ASSERT_NO_FATAL_FAILURE(MigrateAndPump(first, second, client));
  EXPECT_EQ(TheCmIds().counts().destroyed_by_main_thread, 1) << "void unless the id is refused";
  EXPECT_EQ(TheCmIds().counts().destroyed_too_early, 0);
  EXPECT_TRUE(second.events().empty());
  EXPECT_EQ(second.transport().resources().connections, 0u);
}

TEST_P(VerbsTransportTest, MoreConnectionsThanOneCompletionQueueHoldsWork) {
  constexpr size_t kConnections = 60;  // at some 200 completions each, of 4,096
  const int before = KernelQueuePairs();
  {
    Side server(*fixture_), client(*fixture_);
    const std::string uri = Listen(server);
    const std::unique_ptr<Memory> memory = Allocate(server, 4096, Access::kRemoteRead);
    Fill(*memory, 3);
    const std::unique_ptr<Memory> into = Allocate(client, 4096, Access::kLocal);
    std::vector<Ids> all;
    for (size_t i = 0; i < kConnections; i++) all.push_back(Join(server, client, uri));
    EXPECT_EQ(server.transport().resources().queue_pairs, kConnections);
    EXPECT_EQ(KernelQueuePairs(), before + static_cast<int>(2 * kConnections));
    for (const Ids& ids : all) {
      const RemoteMemory remote = Share(server, ids.server, client, ids.client, *memory);
      std::memset(into->data(), 0, 64);
      ASSERT_TRUE(ReadNow(client, ids.client, remote, 128, 64, *into, {&client}).ok());
      ASSERT_EQ(std::memcmp(into->data(), memory->data() + 128, 64), 0);
    }
    for (const Ids& ids : all) client.transport().Disconnect(ids.client);
    ASSERT_TRUE(Until({&server, &client}, [&] {
      return client.transport().resources().connections == 0 &&
             server.transport().resources().connections == 0;
    }));
    EXPECT_EQ(KernelQueuePairs(), before);
    // All clients sent a disconnect notice, so none was declared dead.
    for (const Recorded& event : server.events()) EXPECT_TRUE(event.status.ok()) << event.status;
    Join(server, client, uri);
  }
  EXPECT_EQ(KernelQueuePairs(), before);
}

TEST_P(VerbsTransportTest, APeerThatIsKilledLeavesNothingBehind) {
  const int before = KernelQueuePairs();
  Side server(*fixture_);
  const std::string uri = Listen(server);
  for (int i = 0; i < 3; i++) {
    server.Forget();
    Child child(GetParam(), "client", uri);
    ASSERT_TRUE(Until({&server}, [&] { return server.Find(Kind::kConnectRequest) != nullptr; }));
    EXPECT_TRUE(server.transport().Accept(server.Find(Kind::kConnectRequest)->id).ok());
    ASSERT_TRUE(Until({&server}, [&] { return server.Find(Kind::kReceived) != nullptr; }));
    EXPECT_EQ(KernelQueuePairs(), before + 2);
    child.Kill();
    ASSERT_TRUE(Until({&server}, [&] { return server.Find(Kind::kDisconnected) != nullptr; }));
    EXPECT_EQ(ReasonOf(server.Find(Kind::kDisconnected)->status), Reason::kPeerGone)
        << server.Find(Kind::kDisconnected)->status;
    EXPECT_EQ(KernelQueuePairs(), before);
  }
}

// A sum over the device's counters for receivers that were not ready; -1 without such counters.
int64_t NotReadyCount() {
  int64_t sum = -1;
  for (const char* name : {"rcvd_rnr_err", "send_rnr_err", "retry_rnr_exceeded_err"}) {
    std::ifstream file("/sys/class/infiniband/" + std::string(std::getenv("LAB_DEVICE")) +
                       "/ports/1/hw_counters/" + name);
    int64_t value = 0;
    if (file >> value) sum = std::max<int64_t>(sum, 0) + value;
  }
  return sum;
}

TEST_P(VerbsTransportTest, NoSendEverFindsTheReceiverNotReady) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const int64_t before = NotReadyCount();
  ASSERT_GE(before, 0) << "the device has no such counters";
  for (const uint16_t credits : {uint16_t{2}, uint16_t{3}, uint16_t{16}}) {
    TransportOptions few;
    few.receive_credits = credits;
    few.frame_bytes_max = 512;
    Side server(*fixture_, few), client(*fixture_, few);
    const Ids ids = Join(server, client, Listen(server));
    Side* const sides[] = {&server, &client};
    const ConnectionId of[] = {ids.server, ids.client};
    size_t sent[2] = {0, 0};
    // Each side sends as much as it can and polls at random, few or many events at a time.
    ASSERT_TRUE(Until({&server, &client},
                      [&] {
                        const int who = random() % 2;
                        for (int i = random() % 20;
                             i > 0 && sides[who]->transport().SendRoom(of[who]) > 0; i--) {
                          EXPECT_TRUE(sides[who]->Send(of[who], std::to_string(sent[who]++)).ok());
                        }
                        sides[random() % 2]->Pump(1 + random() % 8);
                        return server.Frames(ids.server).size() >= 1000 &&
                               client.Frames(ids.client).size() >= 1000;
                      }))
        << "credits " << credits;
    for (size_t i = 0; i < 1000; i++) ASSERT_EQ(server.Frames(ids.server)[i], std::to_string(i));
    EXPECT_EQ(server.Find(Kind::kDisconnected), nullptr);
  }
  EXPECT_EQ(NotReadyCount(), before);
}

}  // namespace
}  // namespace osprey::rdma
