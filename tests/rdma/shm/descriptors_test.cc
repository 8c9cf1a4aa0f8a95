// Descriptors whose close blocks, in the hands of hostile peers: neither a server that polls nor a
// client waits for them.
//
// The descriptor is a TCP socket with SO_LINGER and data that its peer does not read: its last close
// waits for kLinger. Each test does what an honest process does, and it must be done long before.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "rdma/shm/domain.h"
#include "rdma/shm/listener.h"
#include "rdma/shm/peer/slow_closer.h"
#include "rdma/shm/socket.h"
#include "tests/rdma/shm/packets.h"
#include "tests/rdma/transport_contract.h"

namespace osprey::rdma {
namespace {

using Kind = Event::Kind;

// What is not held up takes milliseconds.
constexpr absl::Duration kLinger = absl::Seconds(20), kHeldUp = absl::Seconds(10);
constexpr uid_t kOtherUser = 65534;

// The last close of `writer` blocks for kLinger, or until `reader` is closed.
struct Lingering {
  UniqueFd writer, reader;

  Lingering() {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    writer.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        listen(listener.get(), 1) != 0 ||
        getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
        connect(writer.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
      return;
    reader.reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string bytes(64 << 10, 'x');
    while (send(writer.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
    const linger linger = {1, static_cast<int>(absl::ToInt64Seconds(kLinger))};
    if (setsockopt(writer.get(), SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) != 0)
      reader.reset();
  }
  bool valid() const { return reader.valid(); }
};

// With all fields that any kind of packet uses.
ShmPacket FullPacket(PacketKind kind) {
  ShmPacket packet = ConnectPacket();
  packet.kind = static_cast<uint32_t>(kind);
  packet.key = 1;
  packet.length = 4096;
  return packet;
}

class ShmDescriptorsTest : public TransportContract {
 protected:
  void SetUp() override {
    TransportContract::SetUp();
    char name[] = "/tmp/osprey-descriptors-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    ASSERT_EQ(chmod(name, 0755), 0);
    began_ = absl::Now();
  }
  void TearDown() override {
    EXPECT_LT(absl::Now() - began_, kHeldUp) << "it waited for the hostile peer";
    std::filesystem::remove_all(directory_);
  }
  std::string Path() const { return directory_ + "/a"; }

  // A raw client that the server has accepted, and that has received its rings.
  UniqueFd Intrude(Side& server, ConnectionId& id) {
    UniqueFd socket = NewSocket().value();
    EXPECT_EQ(ConnectSocket(socket.get(), SocketAddress(Path()).value()), 0);
    EXPECT_EQ(SendPacket(socket.get(), FullPacket(PacketKind::kConnect)), 0);
    server.Forget();
    EXPECT_TRUE(Until({&server}, [&] { return server.Find(Kind::kConnectRequest) != nullptr; }));
    id = server.Find(Kind::kConnectRequest)->id;
    EXPECT_TRUE(server.transport().Accept(id).ok());
    ReceivedPacket rings;
    EXPECT_EQ(ReceivePacket(socket.get(), CloserLane::Create(), &rings), ReceiveResult::kPacket);
    return socket;
  }
  void ExpectServes(Side& server) {
    Side honest(*fixture_);
    const Ids ids = Join(server, honest, "shm://" + Path());
    ASSERT_TRUE(honest.Send(ids.client, "hello").ok());
    EXPECT_TRUE(Until({&server, &honest}, [&] { return server.Frames(ids.server).size() == 1; }));
    EXPECT_LT(absl::Now() - began_, kHeldUp);
  }

  std::string directory_;
  absl::Time began_;
};

INSTANTIATE_TEST_SUITE_P(Way, ShmDescriptorsTest, testing::ValuesIn(ContractWays()),
                         [](const auto& instance) { return instance.param; });

TEST_P(ShmDescriptorsTest, AServerServesWhateverDescriptorsItIsSent) {
  const UniqueFd memory = NewMemfd(4096);
  const auto in_kind = [&](PacketKind kind, size_t memories) {
    Side server(*fixture_);
    ASSERT_TRUE(server.transport().Listen("shm://" + Path(), 1).ok());
    Lingering lingering;
    ASSERT_TRUE(lingering.valid());
    ConnectionId id = ConnectionId::kNone;
    const UniqueFd socket = Intrude(server, id);
    std::vector<int> fds(memories, memory.get());
    fds.push_back(lingering.writer.get());
    const ShmPacket packet = FullPacket(kind);
    ASSERT_EQ(SendWithDescriptors(
                  socket.get(), {reinterpret_cast<const std::byte*>(&packet), sizeof(packet)}, fds),
              0);
    lingering.writer.reset();
    EXPECT_TRUE(Until(
        {&server}, [&] { return server.Find(Kind::kDisconnected, id) != nullptr; }, kHeldUp));
    ExpectServes(server);
  };
  for (const size_t memories : {0, 1, 2, 3}) {  // more than two do not fit into a packet
    in_kind(PacketKind::kExpose, memories);
    in_kind(PacketKind::kWake, memories);
  }
}

TEST_P(ShmDescriptorsTest, AServerEndsAConnectionInWhichADescriptorLiesUnread) {
  Side server(*fixture_);
  ASSERT_TRUE(server.transport().Listen("shm://" + Path(), 1).ok());
  ConnectionId id = ConnectionId::kNone;
  const UniqueFd socket = Intrude(server, id);
  Lingering lingering;
  ASSERT_TRUE(lingering.valid());
  ASSERT_EQ(SendPacket(socket.get(), FullPacket(PacketKind::kWake), {lingering.writer.get()}), 0);
  lingering.writer.reset();
  server.transport().Disconnect(id);
  char bytes[64];
  EXPECT_TRUE(Until({&server}, [&] {
    return recv(socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT) == 0;
  })) << "the connection ends at once for the peer";
  ExpectServes(server);
}

TEST_P(ShmDescriptorsTest, AServerEndsWithAConnectionInWhichADescriptorLiesUnread) {
  Lingering lingering;
  ASSERT_TRUE(lingering.valid());
  Side server(*fixture_);
  ASSERT_TRUE(server.transport().Listen("shm://" + Path(), 1).ok());
  ConnectionId id = ConnectionId::kNone;
  const UniqueFd socket = Intrude(server, id);
  ASSERT_EQ(SendPacket(socket.get(), FullPacket(PacketKind::kWake), {lingering.writer.get()}), 0);
  lingering.writer.reset();
}

TEST_P(ShmDescriptorsTest, UserWithAFullCloseQueueIsRefusedUntilItDrains) {
  Side server(*fixture_);
  ASSERT_TRUE(server.transport().Listen("shm://" + Path(), 1).ok());
  Lingering lingering;
  ASSERT_TRUE(lingering.valid());
  for (size_t i = 0; i < CloserLane::kWaitingMax; ++i) {
    ConnectionId id = ConnectionId::kNone;
    const UniqueFd socket = Intrude(server, id);
    EXPECT_TRUE(server.Find(Kind::kConnectRequest)->status.ok()) << i;
    if (i == 0) {
      ASSERT_EQ(SendPacket(socket.get(), FullPacket(PacketKind::kWake), {lingering.writer.get()}),
                0);
      lingering.writer.reset();
    }
    server.transport().Disconnect(id);
  }
  ConnectionId id = ConnectionId::kNone;
  Intrude(server, id);
  EXPECT_EQ(server.Find(Kind::kConnectRequest)->status.code(),
            absl::StatusCode::kResourceExhausted);
  lingering.reader.reset();
  EXPECT_TRUE(Until({&server}, [&] {
    Intrude(server, id);
    return server.Find(Kind::kConnectRequest)->status.ok();
  }));
}

// What an unauthenticated process of another user sends before it is accepted.
TEST_P(ShmDescriptorsTest, UnacceptedPeerOfAnotherUserDelaysNoClient) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can play another user";
  ShmDomainOptions options;
  options.socket_mode = 0666;
  const std::unique_ptr<Domain> domain = OpenShmDomain(options).value();
  const std::unique_ptr<Transport> server = domain->NewTransport({}).value();
  ASSERT_TRUE(server->Listen("shm://" + Path(), 1).ok());
  const UniqueFd probe = NewSocket().value();
  const bool kernel_forbids = SetTakesDescriptors(probe.get(), false);
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t hostile = fork();
  if (hostile == 0) {
    Lingering lingering;
    const UniqueFd socket = NewSocket().value();
    int error = setuid(kOtherUser) != 0 || !lingering.valid() ? EINVAL : 0;
    if (error == 0) error = ConnectSocket(socket.get(), SocketAddress(Path()).value());
    if (error == 0)
      error = SendPacket(socket.get(), FullPacket(PacketKind::kConnect), {lingering.writer.get()});
    if (error == 0) lingering.writer.reset();  // else it is the last
    (void)!write(told[1], &error, sizeof(error));
    for (;;) pause();
  }
  int error = -1;
  ASSERT_EQ(read(told[0], &error, sizeof(error)), static_cast<ssize_t>(sizeof(error)));
  EXPECT_EQ(error, kernel_forbids ? EPERM : 0);
  std::vector<Event> events(4);
  const UniqueFd honest = NewSocket().value();
  ASSERT_EQ(ConnectSocket(honest.get(), SocketAddress(Path()).value()), 0);
  ASSERT_EQ(SendPacket(honest.get(), FullPacket(PacketKind::kConnect)), 0);
  size_t count = 0;
  const absl::Time end = absl::Now() + kHeldUp;
  while (count == 0 && absl::Now() < end) count = server->Poll(absl::MakeSpan(events));
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(events[0].kind, Kind::kConnectRequest);
  EXPECT_EQ(events[0].source, "uid=0");
  EXPECT_LT(absl::Now() - began_, kHeldUp);
  kill(hostile, SIGKILL);
  waitpid(hostile, nullptr, 0);
  close(told[0]);
  close(told[1]);
}

// --- A hostile server.

// The client, a process of its own, meets a server that answers with these descriptors and the one
// that lingers; it must come to its end.
TEST_P(ShmDescriptorsTest, AClientEndsInTimeWhateverDescriptorsItIsSent) {
  const UniqueFd memory = NewMemfd(1 << 20);
  for (const size_t memories : {0, 1, 2, 3}) {
    const UniqueFd listener = NewSocket().value();
    const sockaddr_un address = SocketAddress(Path()).value();
    unlink(Path().c_str());
    ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    ASSERT_EQ(listen(listener.get(), 1), 0);
    Lingering lingering;
    ASSERT_TRUE(lingering.valid());
    const absl::Time began = absl::Now();
    const pid_t client = fork();
    if (client == 0) {
      lingering.writer.reset();
      lingering.reader.reset();
      {
        Side side(*fixture_);
        const ConnectionId id = side.transport().Connect("shm://" + Path()).value();
        Until({&side}, [&] { return side.Find(Kind::kDisconnected, id) != nullptr; });
      }
      _exit(0);
    }
    pollfd ready = {listener.get(), POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, /*timeout=*/-1), 1);
    const UniqueFd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::vector<int> fds(memories, memory.get());
    fds.push_back(lingering.writer.get());
    const ShmPacket packet = FullPacket(PacketKind::kConnect);
    // The client stands still, or it might close the descriptor first: then the close below would wait.
    int status = -1;
    kill(client, SIGSTOP);
    ASSERT_EQ(waitpid(client, &status, WUNTRACED), client);
    ASSERT_EQ(SendWithDescriptors(
                  socket.get(), {reinterpret_cast<const std::byte*>(&packet), sizeof(packet)}, fds),
              0);
    lingering.writer.reset();
    kill(client, SIGCONT);
    EXPECT_EQ(waitpid(client, &status, 0), client);
    EXPECT_EQ(status, 0);
    EXPECT_LT(absl::Now() - began, kHeldUp) << memories;
  }
}

// --- The lanes.

TEST(SlowCloserTest, BlockingDescriptorDelaysOnlyItsOwnUser) {
  Lingering lingering;
  ASSERT_TRUE(lingering.valid());
  SlowCloser closer;
  const std::shared_ptr<CloserLane> hostile = closer.LaneOf(1), honest = closer.LaneOf(2);
  EXPECT_EQ(closer.LaneOf(1), hostile);
  EXPECT_NE(hostile, honest);
  hostile->Close(lingering.writer.release());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd in(ends[0]);
  honest->Close(ends[1]);
  char byte;
  EXPECT_EQ(read(in.get(), &byte, 1), 0) << "its other end is closed";
  for (size_t i = 1; i < CloserLane::kWaitingMax; ++i) {
    EXPECT_FALSE(hostile->full());
    hostile->Close(dup(in.get()));
  }
  EXPECT_TRUE(hostile->full());
  EXPECT_FALSE(honest->full());
  lingering.reader.reset();
  while (hostile->waiting() > 0) absl::SleepFor(absl::Milliseconds(1));
}

TEST(SlowCloserTest, UsersBeyondTheMostShareALane) {
  SlowCloser closer;
  std::vector<std::shared_ptr<CloserLane>> lanes;
  for (uid_t uid = 0; uid < SlowCloser::kLanesMax; ++uid) lanes.push_back(closer.LaneOf(uid));
  const std::shared_ptr<CloserLane> shared = closer.LaneOf(1000);
  EXPECT_EQ(closer.LaneOf(1001), shared);
  EXPECT_EQ(closer.LaneOf(5), lanes[5]);
  lanes.clear();
  EXPECT_NE(closer.LaneOf(1001), shared) << "there is room for one of its own again";
}

}  // namespace
}  // namespace osprey::rdma
