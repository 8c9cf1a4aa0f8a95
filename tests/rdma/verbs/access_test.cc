// Access rights and timers of a verbs queue pair, as the device reports them. Needs the lab.

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstring>

#include "rdma/errors.h"
#include "rdma/verbs/device/device.h"
#include "rdma/verbs/device/queue_pair.h"
#include "rdma/verbs/verbs_transport.h"
#include "tests/rdma/transport_contract.h"

namespace osprey::rdma {
namespace {

using Kind = Event::Kind;

class VerbsAccess : public TransportContract {
 protected:
  static ibv_qp* QueuePairOf(Side& side, ConnectionId id) {
    return static_cast<VerbsTransport&>(side.transport()).queue_pair(id);
  }
  static ibv_qp_attr Query(Side& side, ConnectionId id) {
    ibv_qp_attr attributes = {};
    ibv_qp_init_attr ignored = {};
    EXPECT_EQ(
        ibv_query_qp(QueuePairOf(side, id), &attributes,
                     IBV_QP_ACCESS_FLAGS | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC,
                     &ignored),
        0);
    return attributes;
  }
  static constexpr unsigned kRemoteFlags =
      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

  // Lets the client access the server's `bytes` in ways that Osprey never uses. The memory region
  // itself allows everything, so the queue pair must refuse.
  void TryAtAll(ibv_wr_opcode opcode) {
    Side server(*fixture_), client(*fixture_), other(*fixture_);
    const std::string uri = Listen(server);
    const Ids ids = Join(server, client, uri);
    const Ids bystander = Join(server, other, uri);
    const std::unique_ptr<Memory> exposed = Allocate(server, 4096, Access::kRemoteRead);
    Share(server, ids.server, client, ids.client, *exposed);

    alignas(8) static std::byte bytes[4096];
    std::memset(bytes, 0x11, sizeof(bytes));
    const int everything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    const MemoryRegion open(
        ibv_reg_mr(QueuePairOf(server, ids.server)->pd, bytes, sizeof(bytes), everything));
    ASSERT_NE(open, nullptr);
    const std::unique_ptr<Memory> source = Allocate(client, 4096, Access::kLocal);
    std::memset(source->data(), 0x22, 8);
    ibv_qp* const queue_pair = QueuePairOf(client, ids.client);
    const int own = IBV_ACCESS_LOCAL_WRITE;
    const MemoryRegion local(ibv_reg_mr(queue_pair->pd, source->data(), 4096, own));
    ibv_sge segment = {reinterpret_cast<uintptr_t>(source->data()), 8, local->lkey};
    ibv_send_wr request = {};
    request.sg_list = &segment;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    const uint64_t remote_address = reinterpret_cast<uintptr_t>(bytes);
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.wr.atomic = {remote_address, 1, 0, open->rkey};
    } else {
      request.wr.rdma.remote_addr = remote_address;
      request.wr.rdma.rkey = open->rkey;
    }
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(queue_pair, &request, &bad), 0);

    EXPECT_TRUE(Until({&server, &client}, [&] {
      return server.Find(Kind::kDisconnected, ids.server) != nullptr &&
             client.Find(Kind::kDisconnected, ids.client) != nullptr;
    })) << "it was not refused";
    for (const std::byte b : bytes) ASSERT_EQ(b, std::byte{0x11}) << "it was done";
    // No other connection was affected.
    ASSERT_TRUE(other.Send(bystander.client, "still here").ok());
    EXPECT_TRUE(
        Until({&server, &other}, [&] { return server.Frames(bystander.server).size() == 1; }));
  }
};

INSTANTIATE_TEST_SUITE_P(Way, VerbsAccess, testing::ValuesIn(ContractWays()),
                         [](const auto& instance) { return instance.param; });

TEST_P(VerbsAccess, AQueuePairGrantsNothingBeforeExposeAndRemoteReadsAfterIt) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  EXPECT_EQ(Query(server, ids.server).qp_access_flags & kRemoteFlags, 0u);
  EXPECT_EQ(Query(client, ids.client).qp_access_flags & kRemoteFlags, 0u);

  const std::unique_ptr<Memory> memory = Allocate(server, 4096, Access::kRemoteRead);
  ASSERT_TRUE(server.transport().Expose(ids.server, *memory).ok());
  EXPECT_EQ(Query(server, ids.server).qp_access_flags & kRemoteFlags,
            unsigned{IBV_ACCESS_REMOTE_READ});
  EXPECT_EQ(Query(client, ids.client).qp_access_flags & kRemoteFlags, 0u);

  const std::unique_ptr<Memory> of_client = Allocate(client, 4096, Access::kRemoteRead);
  const absl::StatusOr<RemoteMemory> announced =
      client.transport().Announce(ids.client, *of_client);
  ASSERT_TRUE(announced.ok()) << announced.status();
  EXPECT_EQ(Query(client, ids.client).qp_access_flags & kRemoteFlags, 0u);
  const absl::StatusOr<RemoteMemory> exposed = client.transport().Expose(ids.client, *of_client);
  ASSERT_TRUE(exposed.ok()) << exposed.status();
  EXPECT_EQ(exposed->address, announced->address);
  EXPECT_EQ(exposed->key, announced->key);
  EXPECT_EQ(Query(client, ids.client).qp_access_flags & kRemoteFlags,
            unsigned{IBV_ACCESS_REMOTE_READ});
}

TEST_P(VerbsAccess, AReadThroughAConnectionThatWasExposedNothingIsRefused) {
  Side server(*fixture_), trusted(*fixture_), stranger(*fixture_);
  const std::string uri = Listen(server);
  const Ids first = Join(server, trusted, uri);
  const Ids second = Join(server, stranger, uri);
  const std::unique_ptr<Memory> memory = Allocate(server, 4096, Access::kRemoteRead);
  Fill(*memory, 1);
  const RemoteMemory remote = Share(server, first.server, trusted, first.client, *memory);
  const std::unique_ptr<Memory> into = Allocate(stranger, 4096, Access::kLocal);

  // The unauthenticated peer has obtained the rkey.
  const absl::Status status =
      ReadNow(stranger, second.client, remote, 0, 64, *into, {&server, &stranger});
  EXPECT_FALSE(status.ok());
  for (int i = 0; i < 64; i++) EXPECT_EQ(into->data()[i], std::byte{0});
  const std::unique_ptr<Memory> trusted_into = Allocate(trusted, 4096, Access::kLocal);
  EXPECT_TRUE(
      ReadNow(trusted, first.client, remote, 0, 64, *trusted_into, {&server, &trusted}).ok());
  EXPECT_EQ(std::memcmp(trusted_into->data(), memory->data(), 64), 0);
}

TEST_P(VerbsAccess, MemoryForLocalUseCannotBeExposed) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const std::unique_ptr<Memory> memory = Allocate(server, 4096, Access::kLocal);
  EXPECT_EQ(server.transport().Expose(ids.server, *memory).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(VerbsAccess, ARemoteWriteIsRefusedByTheQueuePair) { TryAtAll(IBV_WR_RDMA_WRITE); }

TEST_P(VerbsAccess, AnAtomicIsRefusedByTheQueuePair) { TryAtAll(IBV_WR_ATOMIC_FETCH_AND_ADD); }

TEST_P(VerbsAccess, TimersAndRetriesAreOursAndNotTheDefaults) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  for (const auto& [side, id] : {std::pair(&server, ids.server), std::pair(&client, ids.client)}) {
    const ibv_qp_attr attributes = Query(*side, id);
    EXPECT_EQ(attributes.timeout, kAckTimeoutExponent);
    EXPECT_EQ(attributes.retry_cnt, kRetries);
    EXPECT_EQ(attributes.rnr_retry, kReceiverNotReadyRetries);
    EXPECT_EQ(attributes.min_rnr_timer, kReceiverNotReadyTimer);
  }
}

TEST_P(VerbsAccess, TheReadDepthIsWhatBothDevicesGrant) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  ibv_device_attr device = {};
  ASSERT_EQ(ibv_query_device(QueuePairOf(server, ids.server)->context, &device), 0);
  const int expected =
      std::min({device.max_qp_rd_atom, device.max_qp_init_rd_atom, int{kReadDepthMax}});
  for (const auto& [side, id] : {std::pair(&server, ids.server), std::pair(&client, ids.client)}) {
    const ibv_qp_attr attributes = Query(*side, id);
    EXPECT_EQ(side->transport().limits(id).read_depth, expected);
    EXPECT_EQ(attributes.max_rd_atomic, expected);
    EXPECT_EQ(attributes.max_dest_rd_atomic, expected);
  }
}

TEST_P(VerbsAccess, SmallFramesGoInlineWhereTheDeviceCan) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  ibv_qp_attr attributes = {};
  ibv_qp_init_attr initial = {};
  ASSERT_EQ(ibv_query_qp(QueuePairOf(client, ids.client), &attributes, IBV_QP_CAP, &initial), 0);
  EXPECT_GE(initial.cap.max_inline_data, kInlineBytesWanted);  // soft-RoCE can
  const std::string told = "inline=" + std::to_string(initial.cap.max_inline_data);
  EXPECT_NE(client.transport().Describe(ids.client).find(told), std::string::npos)
      << client.transport().Describe(ids.client);
}

}  // namespace
}  // namespace osprey::rdma
