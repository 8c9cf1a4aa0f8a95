// The contract, part three: connections that one thread migrates to another.

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "tests/rdma/transport_contract.h"

namespace osprey::rdma {
namespace {

using Kind = Event::Kind;

class TransportMigration : public TransportContract {
 protected:
  // Migrates the request `id` from `first` to `second`; returns its id there.
  static ConnectionId Move(Side& first, ConnectionId id, Side& second) {
    const size_t seen = second.events().size();
    const absl::Status status = first.transport().Migrate(id, second.transport());
    EXPECT_TRUE(status.ok()) << status;
    ConnectionId moved = ConnectionId::kNone;
    EXPECT_TRUE(Until({&second}, [&] {
      for (size_t i = seen; i < second.events().size(); ++i) {
        if (second.events()[i].kind == Kind::kConnectRequest) moved = second.events()[i].id;
      }
      return moved != ConnectionId::kNone;
    }));
    return moved;
  }
};

INSTANTIATE_TEST_SUITE_P(Way, TransportMigration, testing::ValuesIn(ContractWays()),
                         [](const auto& instance) { return instance.param; });

TEST_P(TransportMigration, AConnectionLivesWhereItWasHandedTo) {
  Side first(*fixture_), second(first), client(*fixture_);
  const std::string uri = Listen(first);
  const absl::StatusOr<ConnectionId> id = client.transport().Connect(uri, /*affinity=*/0xfeedf00d);
  ASSERT_TRUE(id.ok()) << id.status();
  ASSERT_TRUE(
      Until({&first, &client}, [&] { return first.Find(Kind::kConnectRequest) != nullptr; }));
  const Recorded asked = *first.Find(Kind::kConnectRequest);
  EXPECT_EQ(asked.affinity, 0xfeedf00d);
  const ConnectionId moved = Move(first, asked.id, second);
  const Recorded asks_there = *second.Find(Kind::kConnectRequest);
  EXPECT_EQ(asks_there.affinity, asked.affinity);
  EXPECT_EQ(asks_there.text, asked.text);
  EXPECT_EQ(asks_there.source, asked.source);
  EXPECT_NE(moved, asked.id);
  EXPECT_EQ(first.transport().resources().connections, 0u);
  // The first transport has no such connection any more.
  EXPECT_FALSE(first.transport().Accept(asked.id).ok());
  EXPECT_FALSE(first.transport().Migrate(asked.id, second.transport()).ok());
  first.transport().Reject(asked.id, RejectReason::kShuttingDown);
  first.transport().Disconnect(asked.id);

  ASSERT_TRUE(second.transport().Accept(moved).ok());
  // The first is not polled: it takes no part in this.
  ASSERT_TRUE(Until({&second, &client}, [&] {
    return second.Find(Kind::kConnected, moved) != nullptr &&
           client.Find(Kind::kConnected, *id) != nullptr;
  }));
  ASSERT_TRUE(client.Send(*id, "question").ok());
  ASSERT_TRUE(Until({&second, &client}, [&] { return !second.Frames(moved).empty(); }));
  ASSERT_TRUE(second.Send(moved, "answer").ok());
  ASSERT_TRUE(Until({&second, &client}, [&] { return !client.Frames(*id).empty(); }));
  const std::unique_ptr<Memory> memory = Allocate(second, 8192, Access::kRemoteRead);
  const std::unique_ptr<Memory> sink = Allocate(client, 8192, Access::kLocal);
  Fill(*memory, 7);
  const RemoteMemory remote = Share(second, moved, client, *id, *memory);
  ASSERT_TRUE(ReadNow(client, *id, remote, 0, 8192, *sink, {&second, &client}).ok());
  EXPECT_EQ(std::memcmp(sink->data(), memory->data(), 8192), 0);

  client.transport().Disconnect(*id);
  ASSERT_TRUE(Until({&second, &client},
                    [&] { return second.Find(Kind::kDisconnected, moved) != nullptr; }));
  for (int i = 0; i < 1000; ++i) first.Pump();
  EXPECT_EQ(first.events().size(), 1u) << "more events than the request arrived";
  EXPECT_EQ(second.transport().resources().connections, 0u);
}

TEST_P(TransportMigration, ARejectionAfterItReachesTheClient) {
  Side first(*fixture_), second(first), client(*fixture_);
  const Ids ids = Request(first, client, Listen(first));
  const ConnectionId moved = Move(first, ids.server, second);
  second.transport().Reject(moved, RejectReason::kTooManyConnections);
  ASSERT_TRUE(Until({&second, &client}, [&] {
    return client.Find(Kind::kDisconnected, ids.client) != nullptr &&
           second.Find(Kind::kDisconnected, moved) != nullptr;
  }));
  EXPECT_FALSE(client.Find(Kind::kDisconnected)->status.ok());
}

// Whether it ends before the other thread has looked, or after.
TEST_P(TransportMigration, AClientThatGoesMeanwhileIsNoticedWhereItIs) {
  Side first(*fixture_), second(first), client(*fixture_);
  const std::string uri = Listen(first);
  for (const bool looked : {false, true}) {
    const Ids ids = Request(first, client, uri);
    if (looked) {
      (void)Move(first, ids.server, second);
    } else {
      ASSERT_TRUE(first.transport().Migrate(ids.server, second.transport()).ok());
    }
    client.transport().Disconnect(ids.client);
    ASSERT_TRUE(
        Until({&client}, [&] { return client.Find(Kind::kDisconnected, ids.client) != nullptr; }));
    ASSERT_TRUE(Until({&second, &client}, [&] {
      const Recorded* const asked = second.Find(Kind::kConnectRequest);
      if (asked == nullptr) return false;
      // Verbs may not report it before an attempt.
      (void)second.transport().Accept(asked->id);
      return second.Find(Kind::kDisconnected, asked->id) != nullptr;
    }));
    second.Forget();
    EXPECT_EQ(second.transport().resources().connections, 0u);
  }
  const Ids ids = Request(first, client, uri);
  EXPECT_TRUE(second.transport().Accept(Move(first, ids.server, second)).ok());
}

TEST_P(TransportMigration, WhatWasHandedOverToATransportThatEndsIsRefused) {
  Side first(*fixture_), second(first), client(*fixture_);
  const Ids ids = Request(first, client, Listen(first));
  ASSERT_TRUE(first.transport().Migrate(ids.server, second.transport()).ok());
  second.DestroyTransport();
  ASSERT_TRUE(Until({&first, &client},
                    [&] { return client.Find(Kind::kDisconnected, ids.client) != nullptr; }));
  EXPECT_FALSE(client.Find(Kind::kDisconnected)->status.ok());
}

// As in a server: one thread listens and migrates connections, another sleeps until it gets one.
TEST_P(TransportMigration, AThreadThatSleepsIsWokenByWhatItIsGiven) {
  constexpr int kConnections = 20;
  Side first(*fixture_), second(first), client(*fixture_);
  const std::string uri = Listen(first);
  std::atomic<bool> stop{false};
  std::atomic<int> served{0};
  std::thread thread([&] {
    Transport& transport = second.transport();
    std::vector<Event> events(16);
    while (!stop.load()) {
      const size_t count = transport.Poll(absl::MakeSpan(events));
      for (size_t i = 0; i < count; ++i) {
        if (events[i].kind == Kind::kConnectRequest) (void)transport.Accept(events[i].connection);
        if (events[i].kind != Kind::kReceived) continue;
        (void)transport.Send(events[i].connection, {events[i].frame});
        ++served;
      }
      if (count > 0 || !transport.Arm()) continue;
      pollfd wait = {transport.fd(), POLLIN, 0};
      poll(&wait, 1, /*timeout=*/100);
    }
  });
  std::vector<ConnectionId> ids;
  for (int i = 0; i < kConnections; ++i) {
    const Ids asked = Request(first, client, uri);
    EXPECT_TRUE(first.transport().Migrate(asked.server, second.transport()).ok());
    ids.push_back(asked.client);
  }
  EXPECT_TRUE(Until({&first, &client}, [&] {
    return std::all_of(ids.begin(), ids.end(), [&](ConnectionId id) {
      return client.Find(Kind::kConnected, id) != nullptr;
    });
  }));
  for (ConnectionId id : ids) EXPECT_TRUE(client.Send(id, "echo").ok());
  EXPECT_TRUE(Until({&first, &client}, [&] {
    return std::all_of(ids.begin(), ids.end(),
                       [&](ConnectionId id) { return !client.Frames(id).empty(); });
  }));
  stop.store(true);
  thread.join();
  EXPECT_EQ(served.load(), kConnections);
}

}  // namespace
}  // namespace osprey::rdma
