// Clients that do not receive the descriptors which a server sends them. These count as in flight
// for the server's user, and with too many of them the server could accept no client.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "rdma/errors.h"
#include "rdma/shm/domain.h"
#include "rdma/shm/peer_ledger.h"
#include "rdma/shm/socket.h"
#include "tests/rdma/shm/packets.h"
#include "tests/rdma/transport_contract.h"

namespace osprey::rdma {
namespace {

using Kind = Event::Kind;

constexpr uid_t kHostileUser = 65534;

// A server that accepts every client and ends its connection at once.
class EndingServer {
 public:
  explicit EndingServer(const std::string& path) {
    ShmDomainOptions options;
    options.socket_mode = 0666;
    domain_ = OpenShmDomain(options).value();
    transport_ = domain_->NewTransport({}).value();
    EXPECT_TRUE(transport_->Listen("shm://" + path, 1).ok());
  }

  // Accepts and ends what has come, or refuses it.
  void Pump() {
    std::vector<Event> events(16);
    const size_t count = transport_->Poll(absl::MakeSpan(events));
    for (size_t i = 0; i < count; ++i) {
      const ConnectionId id = events[i].connection;
      if (events[i].kind == Kind::kConnected) transport_->Disconnect(id);
      if (events[i].kind != Kind::kConnectRequest) continue;
      if (events[i].status.ok()) {
        ++accepted_;
        EXPECT_TRUE(transport_->Accept(id).ok());
      } else {
        ++refused_;
        reason_ = events[i].status;
        transport_->Reject(id, RejectReason::kSourceHoldsDescriptors);
      }
    }
  }
  // Accepts the next client and leaves it so.
  ConnectionId AcceptOne() {
    std::vector<Event> events(1);
    const absl::Time end = absl::Now() + kContractPatience;
    while (absl::Now() < end) {
      if (transport_->Poll(absl::MakeSpan(events)) == 0) continue;
      if (events[0].kind == Kind::kConnectRequest) break;
    }
    EXPECT_TRUE(transport_->Accept(events[0].connection).ok());
    return events[0].connection;
  }
  size_t accepted() const { return accepted_; }
  size_t refused() const { return refused_; }
  const absl::Status& reason() const { return reason_; }
  Transport& transport() { return *transport_; }

 private:
  std::unique_ptr<Domain> domain_;
  std::unique_ptr<Transport> transport_;
  size_t accepted_ = 0, refused_ = 0;
  absl::Status reason_;
};

class ShmUnreadTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/osprey-unread-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    ASSERT_EQ(chmod(name, 0755), 0);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string Path() const { return directory_ + "/a"; }

  // Connects and reads nothing.
  UniqueFd Intrude() {
    UniqueFd socket = NewSocket().value();
    if (ConnectSocket(socket.get(), SocketAddress(Path()).value()) != 0 ||
        SendPacket(socket.get(), ConnectPacket()) != 0)
      return UniqueFd();
    return socket;
  }
  // Until the server has accepted or refused one more.
  void Meet(EndingServer& server) {
    const size_t before = server.accepted() + server.refused();
    const absl::Time end = absl::Now() + kContractPatience;
    while (server.accepted() + server.refused() == before && absl::Now() < end) server.Pump();
    for (int i = 0; i < 4; ++i) server.Pump();  // and ended it
  }

  std::string directory_;
};

TEST_F(ShmUnreadTest, AUserThatReceivesNothingIsRefusedUntilItDoes) {
  EndingServer server(Path());
  std::vector<UniqueFd> sockets;
  for (size_t i = 0; i < 2 * ShmPeerLedger::kKeptMax; ++i) {
    sockets.push_back(Intrude());
    ASSERT_TRUE(sockets.back().valid());
    Meet(server);
  }
  EXPECT_EQ(server.accepted(), ShmPeerLedger::kKeptMax / 2);
  EXPECT_EQ(server.refused(), sockets.size() - server.accepted());
  EXPECT_EQ(server.reason().code(), absl::StatusCode::kResourceExhausted);
  const std::shared_ptr<CloserLane> lane = CloserLane::Create();
  ReceivedPacket answer;
  ASSERT_EQ(ReceivePacket(sockets.back().get(), lane, &answer), ReceiveResult::kPacket);
  EXPECT_EQ(ReasonOf(RejectionError(answer.packet.connect, "shm:///x")), Reason::kRefused);
  // One receives what it was sent; to look at it does not count.
  char byte;
  EXPECT_EQ(recv(sockets.front().get(), &byte, 1, MSG_PEEK), 1);
  sockets.push_back(Intrude());
  Meet(server);
  EXPECT_EQ(server.accepted(), ShmPeerLedger::kKeptMax / 2);
  while (ReceivePacket(sockets.front().get(), lane, &answer) == ReceiveResult::kPacket) continue;
  sockets.push_back(Intrude());
  Meet(server);
  EXPECT_EQ(server.accepted(), ShmPeerLedger::kKeptMax / 2 + 1);
}

TEST_F(ShmUnreadTest, WhatOneUserLeavesUnreadCostsOthersNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can play another user";
  const size_t descriptors = OpenDescriptors();
  {
    EndingServer server(Path());
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t hostile = fork();
    constexpr size_t kSockets = 100;
    if (hostile == 0) {
      std::vector<UniqueFd> sockets;
      char ok = setuid(kHostileUser) == 0 ? 1 : 0;
      for (size_t i = 0; i < kSockets; ++i) sockets.push_back(Intrude());
      (void)!write(told[1], &ok, 1);
      for (;;) pause();
    }
    char ok = 0;
    ASSERT_EQ(read(told[0], &ok, 1), 1);
    EXPECT_EQ(ok, 1);
    const absl::Time end = absl::Now() + kContractPatience;
    while (server.accepted() + server.refused() < kSockets && absl::Now() < end) server.Pump();
    EXPECT_GT(server.refused(), 0u);
    const size_t accepted = server.accepted();
    for (int i = 0; i < 10; ++i) {
      const UniqueFd honest = Intrude();
      Meet(server);
    }
    EXPECT_EQ(server.accepted(), accepted + 10);
    kill(hostile, SIGKILL);
    waitpid(hostile, nullptr, 0);
    close(told[0]);
    close(told[1]);
    // Its sockets are given back, although it was killed.
    const absl::Time later = absl::Now() + kContractPatience;
    while (OpenDescriptors() > descriptors + 10 && absl::Now() < later) server.Pump();
    EXPECT_LE(OpenDescriptors(), descriptors + 10) << "listener, epoll and the like";
  }
}

// Its end of the connection lies unread in the server's, where it is kept open.
TEST_F(ShmUnreadTest, AClientThatSendsItsOwnEndIsNotKeptForEver) {
  const size_t descriptors = OpenDescriptors();
  EndingServer server(Path());
  for (size_t i = 0; i < 2 * ShmPeerLedger::kKeptMax; ++i) {
    const UniqueFd socket = Intrude();
    const ConnectionId id = server.AcceptOne();
    EXPECT_EQ(SendWithDescriptors(socket.get(), {}, {socket.get()}), 0);  // looks like an end
    EXPECT_EQ(SendWithDescriptors(socket.get(), {}, {socket.get()}), 0);
    server.transport().Disconnect(id);
  }
  const absl::Time end = absl::Now() + kContractPatience;
  while (OpenDescriptors() > descriptors + 10 && absl::Now() < end) server.Pump();
  EXPECT_LE(OpenDescriptors(), descriptors + 10) << "listener, epoll and the like";
}

// An honest client whose connection the server ends is not kept. It may be refused for what its user's
// lane has still to close: on a busy machine the thread that closes comes late.
TEST_F(ShmUnreadTest, AClientThatReceivesIsNotKept) {
  EndingServer server(Path());
  const std::shared_ptr<CloserLane> lane = CloserLane::Create();
  const absl::Time end = absl::Now() + kContractPatience;
  while (server.accepted() < 2 * ShmPeerLedger::kKeptMax && absl::Now() < end) {
    const size_t refused = server.refused();
    const UniqueFd socket = Intrude();
    Meet(server);
    ReceivedPacket answer;
    EXPECT_EQ(ReceivePacket(socket.get(), lane, &answer), ReceiveResult::kPacket);
    if (server.refused() == refused) {
      EXPECT_EQ(answer.packet.connect.reason, 0);
      continue;
    }
    EXPECT_THAT(server.reason().message(), testing::HasSubstr("wait to be closed"));
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(server.accepted(), 2 * ShmPeerLedger::kKeptMax);
}

TEST_F(ShmUnreadTest, UsersShareWhatIsKept) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can play other users";
  // A pair's ends are of one user: so the sockets come from connections of several.
  const UniqueFd listener = NewSocket().value();
  const sockaddr_un address = SocketAddress(Path()).value();
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener.get(), 128), 0);
  ASSERT_EQ(chmod(Path().c_str(), 0666), 0);
  ShmPeerLedger ledger;
  const std::shared_ptr<CloserLane> lane = CloserLane::Create();
  std::vector<UniqueFd> theirs;
  const auto fill = [&](uid_t uid) {
    size_t count = 0;
    for (; count < 2 * ShmPeerLedger::kKeptMax && !ledger.IsFull(uid); ++count) {
      theirs.push_back(NewSocket().value());
      EXPECT_EQ(seteuid(uid), 0);
      EXPECT_EQ(ConnectSocket(theirs.back().get(), address), 0);
      EXPECT_EQ(seteuid(0), 0);
      PeerFd ours(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC), lane);
      EXPECT_EQ(SendPacket(ours.get(), ConnectPacket()), 0);
      ledger.Keep(std::move(ours));
    }
    return count;
  };
  EXPECT_EQ(fill(1), 32u);
  EXPECT_EQ(fill(2), 16u);
  EXPECT_EQ(fill(3), 8u);
  EXPECT_EQ(ledger.KeptOf(1), 32u);
  EXPECT_FALSE(ledger.IsFull(4));
  theirs.clear();
  const absl::Time end = absl::Now() + kContractPatience;
  while (ledger.kept() > 0 && absl::Now() < end) ledger.Sweep();
  EXPECT_EQ(ledger.kept(), 0u);
  EXPECT_FALSE(ledger.IsFull(1));
}

}  // namespace
}  // namespace osprey::rdma
