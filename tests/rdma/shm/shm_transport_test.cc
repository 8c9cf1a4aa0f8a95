// Guarantees of shm beyond the contract of all transports.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "rdma/errors.h"
#include "rdma/shm/socket.h"
#include "tests/rdma/transport_contract.h"
#include "tests/support/allocation_count.h"

// The number of further packets for which the kernel has no memory.
static int packets_failing = 0;

// Replaces that of libc.
extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (packets_failing == 0) return syscall(SYS_sendmsg, fd, message, flags);
  --packets_failing;
  errno = ENOBUFS;
  return -1;
}

namespace osprey::rdma {
namespace {

using Kind = Event::Kind;

class ShmTransportTest : public TransportContract {
 protected:
  void TearDown() override { packets_failing = 0; }
};

INSTANTIATE_TEST_SUITE_P(Way, ShmTransportTest, testing::ValuesIn(ContractWays()),
                         [](const auto& instance) { return instance.param; });

TEST_P(ShmTransportTest, ReadsAndFramesDoNotAllocate) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const std::unique_ptr<Memory> region = Allocate(server, 1 << 16, Access::kRemoteRead);
  const std::unique_ptr<Memory> buffer = Allocate(client, 1 << 16, Access::kLocal);
  const RemoteMemory remote = Share(server, ids.server, client, ids.client, *region);
  std::vector<ReadRequest> reads(16);
  for (size_t i = 0; i < reads.size(); ++i) {
    reads[i].remote_address = i * 256;
    reads[i].remote_key = remote.key;
    reads[i].segments[0] = {buffer->data() + i * 256, 256, buffer.get()};
  }
  const std::string frame(300, 'f');
  const Bytes piece(reinterpret_cast<const std::byte*>(frame.data()), frame.size());
  std::vector<Event> events(16);
  size_t done = 0, received = 0;
  const auto round = [&] {
    EXPECT_TRUE(client.transport().PostReads(ids.client, reads, 1).ok());
    EXPECT_TRUE(client.transport().Send(ids.client, {&piece, 1}).ok());
    for (Side* side : {&client, &server}) {
      const size_t count = side->transport().Poll(absl::MakeSpan(events));
      for (size_t i = 0; i < count; ++i) {
        done += events[i].kind == Kind::kReadsDone && events[i].status.ok() ? 1 : 0;
        received += events[i].kind == Kind::kReceived ? 1 : 0;
      }
    }
  };
  for (int i = 0; i < 100; ++i) round();
  const uint64_t before = AllocationsSoFar();
  for (int i = 0; i < 1000; ++i) round();
  EXPECT_EQ(AllocationsSoFar() - before, 0u);
  EXPECT_EQ(done, 1100u);
  EXPECT_EQ(received, 1100u);
}

// --- Connections that rest

// More Polls than it takes until all connections of a transport rest.
constexpr int kPollsUntilRest = 5000;

bool IsReadable(const Transport& transport) {
  pollfd waited = {transport.fd(), POLLIN, 0};
  return poll(&waited, 1, 0) == 1;
}

TEST_P(ShmTransportTest, AConnectionThatRestsWakesTheServerWithItsNextFrame) {
  Side server(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  std::vector<Ids> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(Join(server, client, uri));
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kPollsUntilRest; ++i) server.Pump();
    EXPECT_FALSE(IsReadable(server.transport()));
    EXPECT_TRUE(client.Send(ids[7].client, "one").ok());
    EXPECT_TRUE(IsReadable(server.transport()));
    EXPECT_TRUE(Until({&server}, [&] { return server.Frames(ids[7].server).size() == 1; }));
    // Until it rests again, no more packets are needed.
    EXPECT_TRUE(client.Send(ids[7].client, "two").ok());
    EXPECT_FALSE(IsReadable(server.transport()));
    for (const Ids& each : ids) EXPECT_TRUE(client.Send(each.client, "three").ok());
    EXPECT_TRUE(Until({&server}, [&] {
      return std::all_of(ids.begin(), ids.end(), [&](const Ids& each) {
        const std::vector<std::string> frames = server.Frames(each.server);
        return !frames.empty() && frames.back() == "three";
      });
    }));
    EXPECT_EQ(server.Frames(ids[7].server), (std::vector<std::string>{"one", "two", "three"}));
    server.Forget();
  }
}

TEST_P(ShmTransportTest, WhatAConnectionThatRestsHadSentComesBeforeItsEnd) {
  Side server(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  std::vector<Ids> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(Join(server, client, uri));
  for (int i = 0; i < kPollsUntilRest; ++i) server.Pump();
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(client.Send(ids[i].client, "last").ok());
  client.DestroyTransport();
  EXPECT_TRUE(Until({&server}, [&] {
    return std::all_of(ids.begin(), ids.end(), [&](const Ids& each) {
      return server.Find(Kind::kDisconnected, each.server) != nullptr;
    });
  }));
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(server.Frames(ids[i].server).size(), i < 10 ? 1u : 0u) << i;
}

TEST_P(ShmTransportTest, FewConnectionsDoNotRest) {
  Side server(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  std::vector<Ids> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(Join(server, client, uri));
  for (int i = 0; i < 2 * kPollsUntilRest; ++i) server.Pump();
  EXPECT_TRUE(client.Send(ids[3].client, "one").ok());
  EXPECT_FALSE(IsReadable(server.transport()));
  EXPECT_TRUE(Until({&server}, [&] { return server.Frames(ids[3].server).size() == 1; }));
}

// --- Views of the peer's memory

TEST_P(ShmTransportTest, AViewShowsWhatThePeerExposedAsLongAsTheConnectionLasts) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const std::unique_ptr<Memory> region = Allocate(server, 1 << 16, Access::kRemoteRead);
  Fill(*region, 1);
  const RemoteMemory remote = Share(server, ids.server, client, ids.client, *region);
  const MappedReads& reader = *client.transport().mapped_reads();
  const Bytes view = reader.View(ids.client, remote);
  ASSERT_EQ(view.size(), region->size());
  EXPECT_EQ(std::memcmp(view.data(), region->data(), view.size()), 0);
  region->data()[100] ^= std::byte{0xff};
  EXPECT_EQ(view[100], region->data()[100]);
  const RemoteMemory part = {remote.address + 4096, 100, remote.key};
  EXPECT_EQ(reader.View(ids.client, part).data(), view.data() + 4096);
  EXPECT_EQ(reader.View(ids.client, part).size(), 100u);
  // Memory that it did not expose, or the other end of the connection.
  EXPECT_TRUE(reader.View(ids.client, {remote.address, remote.length + 1, remote.key}).empty());
  EXPECT_TRUE(reader.View(ids.client, {~uint64_t{0}, 64, remote.key}).empty());
  EXPECT_TRUE(reader.View(ids.client, {remote.address, 64, remote.key + 1}).empty());
  EXPECT_TRUE(reader.View(ids.client, {remote.address + 4, 64, remote.key}).empty());
  EXPECT_TRUE(server.transport().mapped_reads()->View(ids.server, remote).empty());
  EXPECT_TRUE(reader.View(ConnectionId::kNone, remote).empty());
  client.transport().Disconnect(ids.client);
  EXPECT_TRUE(reader.View(ids.client, remote).empty());
}

TEST_P(ShmTransportTest, AReadNowHasLandedWhenItReturnsAndNothingFollows) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const std::unique_ptr<Memory> region = Allocate(server, 1 << 16, Access::kRemoteRead);
  Fill(*region, 1);
  const std::unique_ptr<Memory> buffer = Allocate(client, 1 << 16, Access::kLocal);
  const RemoteMemory remote = Share(server, ids.server, client, ids.client, *region);
  std::vector<ReadRequest> reads(40);
  for (size_t i = 0; i < reads.size(); ++i) {
    reads[i].remote_address = remote.address + i * 1000;
    reads[i].remote_key = remote.key;
    reads[i].segments[0] = {buffer->data() + i * 1000, 1000, buffer.get()};
  }
  const size_t room = client.transport().ReadRoom(ids.client);
  ASSERT_TRUE(client.transport().mapped_reads()->ReadNow(ids.client, reads).ok());
  EXPECT_EQ(std::memcmp(buffer->data(), region->data(), 40000), 0);
  EXPECT_EQ(client.transport().ReadRoom(ids.client), room);
  client.Pump();
  EXPECT_EQ(client.Find(Kind::kReadsDone), nullptr);
  EXPECT_EQ(client.Find(Kind::kDisconnected), nullptr);
  // Outside the exposed memory: as with a posted READ, it ends the connection.
  reads[39].remote_address = remote.address + remote.length - 999;
  EXPECT_TRUE(
      absl::IsInvalidArgument(client.transport().mapped_reads()->ReadNow(ids.client, reads)));
  EXPECT_TRUE(absl::IsUnavailable(client.transport().mapped_reads()->ReadNow(ids.client, reads)));
  EXPECT_TRUE(Until({&server, &client}, [&] {
    return client.Find(Kind::kDisconnected, ids.client) != nullptr &&
           server.Find(Kind::kDisconnected, ids.server) != nullptr;
  }));
}

// --- Disconnects

TEST_P(ShmTransportTest, FramesSentBeforeAFarewellArriveAndTheEndIsCleanAtBothSides) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client.Send(ids.client, std::to_string(i)).ok());
  client.transport().Disconnect(ids.client);
  for (int i = 0; i < 1000 && server.Find(Kind::kDisconnected) == nullptr; ++i) server.Pump(3);
  ASSERT_NE(server.Find(Kind::kDisconnected), nullptr);
  EXPECT_EQ(server.Frames(ids.server).size(), 20u);
  EXPECT_TRUE(server.Find(Kind::kDisconnected)->status.ok());
}

TEST_P(ShmTransportTest, TheDeathOfAPeerWakesASleeperAtOnceAndIsCalledADeath) {
  Side server(*fixture_);
  const std::string uri = Listen(server);
  Child child(GetParam(), "client", uri);
  ASSERT_TRUE(Until({&server}, [&] { return server.Find(Kind::kConnectRequest) != nullptr; }));
  const ConnectionId id = server.Find(Kind::kConnectRequest)->id;
  ASSERT_TRUE(server.transport().Accept(id).ok());
  ASSERT_TRUE(Until({&server}, [&] { return server.Frames(id).size() == 1; }));
  ASSERT_TRUE(Until({&server}, [&] { return server.transport().Arm(); }));
  child.Kill();
  pollfd entry = {server.transport().fd(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 1000), 1);
  for (int i = 0; i < 5; ++i) server.Pump();
  ASSERT_NE(server.Find(Kind::kDisconnected, id), nullptr) << "a few Polls after waking suffice";
  EXPECT_EQ(ReasonOf(server.Find(Kind::kDisconnected, id)->status), Reason::kPeerGone);
}

TEST_P(ShmTransportTest, ACreditThatComesBackWakesTheSenderThatLackedIt) {
  TransportOptions few;
  few.receive_credits = 2;
  Side server(*fixture_, few), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  while (client.Send(ids.client, "x").ok()) continue;
  ASSERT_TRUE(Until({&client}, [&] { return client.transport().Arm(); }));
  pollfd entry = {client.transport().fd(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 0);
  ASSERT_TRUE(Until({&server}, [&] { return server.Frames(ids.server).size() == 2; }));
  EXPECT_EQ(poll(&entry, 1, 1000), 1);
  EXPECT_EQ(client.transport().SendRoom(ids.client), 2u);
}

TEST_P(ShmTransportTest, AWakeUpThatTheKernelHadNoMemoryForIsSentAgain) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  ASSERT_TRUE(Until({&client}, [&] { return client.transport().Arm(); }));
  pollfd entry = {client.transport().fd(), POLLIN, 0};
  packets_failing = 3;
  ASSERT_TRUE(server.Send(ids.server, "reply").ok());
  EXPECT_EQ(packets_failing, 2);
  EXPECT_EQ(poll(&entry, 1, 0), 0);
  EXPECT_FALSE(server.transport().Arm()) << "it must not go to sleep before";
  server.Pump();
  server.Pump();
  EXPECT_EQ(poll(&entry, 1, 0), 0);
  server.Pump();
  EXPECT_EQ(poll(&entry, 1, 0), 1);
  EXPECT_TRUE(Until({&server}, [&] { return server.transport().Arm(); }));
  ASSERT_TRUE(Until({&client}, [&] { return client.Frames(ids.client).size() == 1; }));
}

TEST_P(ShmTransportTest, AWakeUpThatIsDueIsForgottenWithItsConnection) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  ASSERT_TRUE(Until({&client}, [&] { return client.transport().Arm(); }));
  packets_failing = 1;
  ASSERT_TRUE(server.Send(ids.server, "reply").ok());
  server.transport().Disconnect(ids.server);
  EXPECT_TRUE(Until({&server}, [&] { return server.transport().Arm(); }));
}

// As a server that receives large values: each READ that ends makes space for the next.
TEST_P(ShmTransportTest, FramesArriveHoweverManyReadsEndInEachPoll) {
  Side server(*fixture_), large(*fixture_), small(*fixture_);
  const std::string uri = Listen(server);
  const Ids large_ids = Join(server, large, uri);
  const Ids small_ids = Join(server, small, uri);
  const std::unique_ptr<Memory> source = Allocate(large, 4096, Access::kRemoteRead);
  const std::unique_ptr<Memory> buffer = Allocate(server, 4096, Access::kLocal);
  const RemoteMemory remote = Share(large, large_ids.client, server, large_ids.server, *source);
  ReadRequest read;
  read.remote_address = remote.address;
  read.remote_key = remote.key;
  read.segments[0] = {buffer->data(), 64, buffer.get()};
  constexpr size_t kEventsMax = 64;
  const size_t room = server.transport().ReadRoom(large_ids.server) - kEventsMax;
  for (size_t i = 0; i < kEventsMax; ++i)
    ASSERT_TRUE(server.Post(large_ids.server, {read}, 1).ok());
  ASSERT_TRUE(small.Send(small_ids.client, "hello").ok());
  server.Forget();
  for (int turn = 0; turn < 10 && server.Find(Kind::kReceived) == nullptr; ++turn) {
    server.Pump(kEventsMax);
    while (server.transport().ReadRoom(large_ids.server) > room)
      ASSERT_TRUE(server.Post(large_ids.server, {read}, 1).ok());
  }
  EXPECT_NE(server.Find(Kind::kReceived, small_ids.server), nullptr);
}

// A peer that polls is never sent a wake-up: the socket between the two stays silent.
TEST_P(ShmTransportTest, NoPacketGoesOverTheSocketWhileBothPoll) {
  Side server(*fixture_);
  const std::string uri = Listen(server);
  // A client reduced to its socket, which shows the packets of the server's transport.
  const UniqueFd socket = NewSocket().value();
  ASSERT_EQ(ConnectSocket(socket.get(), SocketAddress(uri.substr(6)).value()), 0);
  ShmPacket greeting;
  greeting.connect.receive_credits = 32;
  greeting.connect.frame_bytes_max = 4096;
  greeting.kind = static_cast<uint32_t>(PacketKind::kConnect);
  ASSERT_EQ(SendPacket(socket.get(), greeting), 0);
  ASSERT_TRUE(Until({&server}, [&] { return server.Find(Kind::kConnectRequest) != nullptr; }));
  const ConnectionId id = server.Find(Kind::kConnectRequest)->id;
  ASSERT_TRUE(server.transport().Accept(id).ok());
  ReceivedPacket packet;
  const std::shared_ptr<CloserLane> lane = CloserLane::Create();
  ASSERT_EQ(ReceivePacket(socket.get(), lane, &packet), ReceiveResult::kPacket);
  for (int i = 0; i < 32; ++i) ASSERT_TRUE(server.Send(id, "frame").ok());
  EXPECT_EQ(ReceivePacket(socket.get(), lane, &packet), ReceiveResult::kNothing);
}

// INVALID_ARGUMENT would mean the peer's fault, and its write would be answered finally.
TEST_P(ShmTransportTest, AttachOnAConnectionThatHasJustEndedIsUnavailable) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  client.DestroyTransport();  // the server has not read the socket since
  EXPECT_EQ(server.transport().Attach(ids.server, {0, 4096, 1}).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_TRUE(
      Until({&server}, [&] { return server.Find(Kind::kDisconnected, ids.server) != nullptr; }));
}

TEST_P(ShmTransportTest, MemoryForLocalUseIsNotExposedAndOtherMemoryOnlyOnce) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const std::unique_ptr<Memory> local = Allocate(server, 4096, Access::kLocal);
  const std::unique_ptr<Memory> shared = Allocate(server, 4096, Access::kRemoteRead);
  EXPECT_EQ(server.transport().Expose(ids.server, *local).status().code(),
            absl::StatusCode::kInvalidArgument);
  const RemoteMemory first = server.transport().Expose(ids.server, *shared).value();
  for (int i = 0; i < 1000; ++i) {
    const RemoteMemory again = server.transport().Expose(ids.server, *shared).value();
    EXPECT_EQ(again.key, first.key);
  }
  EXPECT_TRUE(client.transport().Attach(ids.client, first).ok());
}

// A closer without work ends within 1 s.
constexpr absl::Duration kClosersMax = absl::Seconds(60);

// Closers are threads that outlive their domain: what they hold, of this test or of an earlier one, is closed
// once they have ended.
size_t OpenDescriptorsOfOwners() {
  const auto has_closer = [] {
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      if (std::getline(std::ifstream(thread.path() / "comm"), name) && name == "osprey-closer")
        return true;
    }
    return false;
  };
  for (const absl::Time end = absl::Now() + kClosersMax; has_closer() && absl::Now() < end;)
    absl::SleepFor(absl::Milliseconds(10));
  EXPECT_FALSE(has_closer());
  return OpenDescriptors();
}

TEST_P(ShmTransportTest, ASideThatOnlyConnectsHoldsADescriptorForEachPart) {
  Side server(*fixture_);
  const std::string uri = Listen(server);
  size_t before = OpenDescriptorsOfOwners();
  TransportOptions options;
  options.accepts = false;
  Side client(*fixture_, options);
  EXPECT_EQ(OpenDescriptors() - before, 1u);  // epoll's
  before = OpenDescriptors();
  const std::unique_ptr<Memory> local = Allocate(client, 1 << 16, Access::kLocal);
  EXPECT_EQ(OpenDescriptors(), before);
  Fill(*local, 1);
  const std::unique_ptr<Memory> readable = Allocate(client, 1 << 16, Access::kRemoteRead);
  EXPECT_EQ(OpenDescriptors() - before, 1u);
  before = OpenDescriptors();
  Join(server, client, uri);
  EXPECT_EQ(OpenDescriptorsOfOwners() - before, 2u);  // a socket at each end
}

TEST_P(ShmTransportTest, OptionsOutOfRangeAreRefused) {
  Side side(*fixture_);
  TransportOptions credits, frame, long_frame, reads;
  credits.receive_credits = 1;
  frame.frame_bytes_max = 0;
  long_frame.frame_bytes_max = 1u << 30;
  reads.reads_in_flight_max = 0;
  for (const TransportOptions& options : {credits, frame, long_frame, reads}) {
    EXPECT_EQ(side.domain().NewTransport(options).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace osprey::rdma
