// The fake keeps the contract on which the engines' tests rely: those tests cannot find violations
// that it allows.

#include "tests/support/transports/fake_transport.h"

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "rdma/errors.h"

namespace osprey::fake {
namespace {

using rdma::Access;
using rdma::Bytes;
using rdma::ConnectionId;
using rdma::Event;
using rdma::Memory;
using rdma::ReadRequest;
using rdma::RemoteMemory;
using rdma::Transport;

constexpr char kUri[] = "rdma://server:7411";

Bytes AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string AsText(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class FakeTransportTest : public testing::Test {
 protected:
  explicit FakeTransportTest(const NetworkOptions& options = {}) : network_(options) {
    server_ = server_domain_->NewTransport({}).value();
    client_ = client_domain_->NewTransport({}).value();
    EXPECT_EQ(server_->Listen(kUri, 1).value(), kUri);
  }

  std::vector<Event> Poll(Transport& transport) {
    std::vector<Event> events(64);
    events.resize(transport.Poll(absl::MakeSpan(events)));
    return events;
  }

  Event PollOne(Transport& transport) {
    const std::vector<Event> events = Poll(transport);
    EXPECT_EQ(events.size(), 1);
    return events.empty() ? Event() : events[0];
  }

  void ConnectBoth() {
    client_id_ = client_->Connect(kUri).value();
    const Event request = PollOne(*server_);
    ASSERT_EQ(request.kind, Event::Kind::kConnectRequest);
    server_id_ = request.connection;
    ASSERT_TRUE(server_->Accept(server_id_).ok());
    ASSERT_EQ(PollOne(*server_).kind, Event::Kind::kConnected);
    ASSERT_EQ(PollOne(*client_).kind, Event::Kind::kConnected);
  }

  // A span of the server that the client may READ, filled with 0, 1, 2 …
  RemoteMemory ExposeBytes(size_t bytes) {
    memory_ = server_domain_->Allocate(bytes, Access::kRemoteRead).value();
    for (size_t i = 0; i < memory_->size(); ++i) memory_->data()[i] = static_cast<std::byte>(i);
    return server_->Expose(server_id_, *memory_).value();
  }

  ReadRequest ReadOf(uint64_t address, uint32_t key, uint32_t bytes) {
    if (local_ == nullptr) local_ = client_domain_->Allocate(8192, Access::kLocal).value();
    ReadRequest read;
    read.remote_address = address;
    read.remote_key = key;
    read.segments[0] = {local_->data(), bytes, local_.get()};
    return read;
  }

  Network network_;
  std::unique_ptr<rdma::Domain> server_domain_ = network_.NewDomain("server");
  std::unique_ptr<rdma::Domain> client_domain_ = network_.NewDomain("client");
  std::unique_ptr<Memory> memory_, local_;
  std::unique_ptr<Transport> server_, client_;
  ConnectionId server_id_ = ConnectionId::kNone, client_id_ = ConnectionId::kNone;
};

TEST_F(FakeTransportTest, FramesArriveInOrderAndCreditsComeBackWhenTheyAreFreed) {
  ConnectBoth();
  const size_t credits = client_->SendRoom(client_id_);
  for (size_t i = 0; i < credits; ++i) {
    ASSERT_TRUE(client_->Send(client_id_, {AsBytes("frame "), AsBytes(std::to_string(i))}).ok());
  }
  EXPECT_EQ(client_->Send(client_id_, {AsBytes("x")}).code(), absl::StatusCode::kResourceExhausted);
  const std::vector<Event> events = Poll(*server_);
  ASSERT_EQ(events.size(), credits);
  for (size_t i = 0; i < credits; ++i) {
    EXPECT_EQ(AsText(events[i].frame), "frame " + std::to_string(i));
  }
  EXPECT_EQ(client_->SendRoom(client_id_), 0);  // the frames are still lent
  EXPECT_TRUE(Poll(*server_).empty());
  EXPECT_EQ(client_->SendRoom(client_id_), credits);
}

TEST_F(FakeTransportTest, ReadsBringWhatWasExposed) {
  ConnectBoth();
  const RemoteMemory remote = ExposeBytes(4096);
  ReadRequest read = ReadOf(remote.address + 100, remote.key, 10);
  read.segment_count = 2;
  read.segments[1] = {local_->data() + 1000, 20, local_.get()};
  ASSERT_TRUE(client_->PostReads(client_id_, {&read, 1}, 7).ok());
  const Event done = PollOne(*client_);
  EXPECT_EQ(done.kind, Event::Kind::kReadsDone);
  EXPECT_EQ(done.cookie, 7);
  ASSERT_TRUE(done.status.ok());
  EXPECT_EQ(std::memcmp(local_->data(), memory_->data() + 100, 10), 0);
  EXPECT_EQ(std::memcmp(local_->data() + 1000, memory_->data() + 110, 20), 0);
}

TEST_F(FakeTransportTest, AReadOutsideOfWhatWasExposedEndsBothEnds) {
  for (const auto& [offset, key_offset, length] :
       std::vector<std::tuple<uint64_t, uint32_t, uint32_t>>{{4090, 0, 7}, {0, 1, 1}}) {
    ConnectBoth();
    const RemoteMemory remote = ExposeBytes(4096);
    const ReadRequest read = ReadOf(remote.address + offset, remote.key + key_offset, length);
    ASSERT_TRUE(client_->PostReads(client_id_, {&read, 1}, 7).ok());
    const std::vector<Event> events = Poll(*client_);
    ASSERT_EQ(events.size(), 2);
    EXPECT_EQ(events[0].kind, Event::Kind::kReadsDone);
    EXPECT_FALSE(events[0].status.ok());
    EXPECT_EQ(events[1].kind, Event::Kind::kDisconnected);
    EXPECT_EQ(PollOne(*server_).kind, Event::Kind::kDisconnected);
  }
}

TEST_F(FakeTransportTest, PendingReadsEndBeforeTheConnectionDoes) {
  ConnectBoth();
  const RemoteMemory remote = ExposeBytes(4096);
  const ReadRequest read = ReadOf(remote.address, remote.key, 8);
  network_.HoldReads(client_id_, true);
  ASSERT_TRUE(client_->PostReads(client_id_, {&read, 1}, 1).ok());
  ASSERT_TRUE(client_->PostReads(client_id_, {&read, 1}, 2).ok());
  EXPECT_TRUE(Poll(*client_).empty());
  client_->Disconnect(client_id_);
  const std::vector<Event> events = Poll(*client_);
  ASSERT_EQ(events.size(), 3);
  EXPECT_EQ(events[0].cookie, 1);
  EXPECT_EQ(events[1].cookie, 2);
  EXPECT_EQ(events[2].kind, Event::Kind::kDisconnected);
  EXPECT_TRUE(events[2].status.ok());
  EXPECT_EQ(PollOne(*server_).kind, Event::Kind::kDisconnected);
  EXPECT_EQ(network_.connections(), 0);
}

TEST_F(FakeTransportTest, WhatWasSentBeforeADisconnectStillArrives) {
  ConnectBoth();
  ASSERT_TRUE(server_->Send(server_id_, {AsBytes("last words")}).ok());
  server_->Disconnect(server_id_);
  const std::vector<Event> events = Poll(*client_);
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(AsText(events[0].frame), "last words");
  EXPECT_EQ(events[1].kind, Event::Kind::kDisconnected);
}

TEST_F(FakeTransportTest, CutWireCausesNoEvents) {
  ConnectBoth();
  network_.Cut(client_id_);
  ASSERT_TRUE(client_->Send(client_id_, {AsBytes("lost")}).ok());
  EXPECT_TRUE(Poll(*server_).empty());
  client_->Disconnect(client_id_);
  EXPECT_EQ(PollOne(*client_).kind, Event::Kind::kDisconnected);
  EXPECT_TRUE(Poll(*server_).empty());
  EXPECT_EQ(network_.connections(), 1);
}

TEST_F(FakeTransportTest, HeldFramesArriveLaterOrWhenTheConnectionEnds) {
  ConnectBoth();
  network_.HoldFrames(server_id_, true);
  ASSERT_TRUE(client_->Send(client_id_, {AsBytes("one")}).ok());
  EXPECT_TRUE(Poll(*server_).empty());
  EXPECT_EQ(network_.held_frames(), 1);
  network_.HoldFrames(server_id_, false);
  EXPECT_EQ(AsText(PollOne(*server_).frame), "one");
  network_.HoldFrames(server_id_, true);
  ASSERT_TRUE(client_->Send(client_id_, {AsBytes("two")}).ok());
  client_->Disconnect(client_id_);
  const std::vector<Event> events = Poll(*server_);
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(AsText(events[0].frame), "two");
  EXPECT_EQ(events[1].kind, Event::Kind::kDisconnected);
}

TEST_F(FakeTransportTest, ConnectFailuresCarryTheirReasons) {
  const ConnectionId id = client_->Connect("rdma://absent:1").value();
  Event event = PollOne(*client_);
  EXPECT_EQ(event.connection, id);
  EXPECT_EQ(ReasonOf(event.status), Reason::kNoListener);
  ASSERT_TRUE(client_->Connect(kUri).ok());
  server_->Reject(PollOne(*server_).connection, rdma::RejectReason::kTooManyConnections);
  EXPECT_EQ(ReasonOf(PollOne(*client_).status), Reason::kRefused);
  EXPECT_EQ(PollOne(*server_).kind, Event::Kind::kDisconnected);
}

TEST_F(FakeTransportTest, ArmSaysWhetherThereIsSomethingNow) {
  EXPECT_TRUE(server_->Arm());
  ASSERT_TRUE(client_->Connect(kUri).ok());
  EXPECT_FALSE(server_->Arm());
  Poll(*server_);
  EXPECT_TRUE(server_->Arm());
}

class TornFakeTransportTest : public FakeTransportTest {
 protected:
  TornFakeTransportTest()
      : FakeTransportTest({.seed = 7, .read_piece_bytes = 8, .shuffle_pieces = true}) {}
};

TEST_F(TornFakeTransportTest, AWriterMayRunBetweenThePiecesOfARead) {
  ConnectBoth();
  const RemoteMemory remote = ExposeBytes(4096);
  std::memset(memory_->data(), 0, 64);
  int pieces = 0;
  bool in_order = true;
  const std::byte* last = nullptr;
  network_.before_piece = [&](absl::Span<const std::byte> piece) {
    in_order = in_order && piece.data() > last;
    last = piece.data();
    if (++pieces == 5) std::memset(memory_->data(), 0xFF, 64);
  };
  const ReadRequest read = ReadOf(remote.address, remote.key, 64);
  ASSERT_TRUE(client_->PostReads(client_id_, {&read, 1}, 1).ok());
  ASSERT_TRUE(PollOne(*client_).status.ok());
  EXPECT_EQ(pieces, 8);
  EXPECT_FALSE(in_order);
  int old_bytes = 0;
  for (int i = 0; i < 64; ++i) old_bytes += local_->data()[i] == std::byte{0} ? 1 : 0;
  EXPECT_EQ(old_bytes, 32);
}

class ReplayingFakeTransportTest : public FakeTransportTest {
 protected:
  ReplayingFakeTransportTest()
      : FakeTransportTest({.seed = 7, .read_piece_bytes = 8, .replays_per_10k = 10000}) {}
};

TEST_F(ReplayingFakeTransportTest, PiecesAreCopiedAgainFromWhatTheMemoryHoldsByThen) {
  ConnectBoth();
  const RemoteMemory remote = ExposeBytes(4096);
  // The n-th piece copied finds n everywhere.
  int pieces = 0;
  network_.before_piece = [&](absl::Span<const std::byte>) {
    std::memset(memory_->data(), ++pieces, 64);
  };
  bool changed = false;
  for (uint64_t i = 1; i <= 10; ++i) {
    pieces = 0;
    const ReadRequest read = ReadOf(remote.address, remote.key, 64);
    ASSERT_TRUE(client_->PostReads(client_id_, {&read, 1}, i).ok());
    ASSERT_TRUE(PollOne(*client_).status.ok());
    EXPECT_GT(pieces, 8);
    // Each holds the bytes copied last.
    changed = changed || local_->data()[0] != std::byte{1};
    EXPECT_EQ(local_->data()[56], static_cast<std::byte>(pieces));
  }
  EXPECT_TRUE(changed);
  EXPECT_EQ(network_.replayed_reads(), 10);
  EXPECT_GE(network_.changed_pieces(), 10);
}

}  // namespace
}  // namespace osprey::fake
