// Several engines on one region: assignment of connections, and permitted actions. On the fake
// transport and one thread; pollers_test.cc uses threads.

#include "server/engine/pollers.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;

HarnessOptions Options(uint32_t pollers, uint32_t partitions) {
  HarnessOptions options;
  options.pollers = pollers;
  options.partitions = partitions;
  options.connections_max = 64;
  return options;
}

TEST(PollersTest, ConnectionsGoToThePollerWithTheFewest) {
  ServerHarness server(Options(3, 4));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 9; ++i) {
    clients.push_back(std::make_unique<RawClient>(server));
    clients.back()->Establish();
    EXPECT_EQ(PollerOf(clients.back()->session(), 3), i % 3);
  }
  for (size_t poller = 0; poller < 3; ++poller) EXPECT_EQ(server.engine(poller).connections(), 3);
  // The connections of one poller leave: the next ones go there.
  for (int i : {1, 4, 7}) clients[i]->transport().Disconnect(clients[i]->id());
  server.Settle();
  for (int i : {1, 4, 7}) {
    clients[i]->Establish();
    EXPECT_EQ(PollerOf(clients[i]->session(), 3), 1);
  }
}

TEST(PollersTest, ConnectionsThatComeTogetherAreSpreadBeforeAnyIsTaken) {
  ServerHarness server(Options(4, 4));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<RawClient>(server));
    clients.back()->Connect();
  }
  server.Settle();
  for (size_t poller = 0; poller < 4; ++poller) EXPECT_EQ(server.engine(poller).connections(), 2);
}

TEST(PollersTest, EveryPollerWritesEveryPartition) {
  ServerHarness server(Options(2, 4));
  RawClient first(server), second(server);
  first.Establish();
  second.Establish();
  ASSERT_NE(PollerOf(first.session(), 2), PollerOf(second.session(), 2));
  constexpr int kKeys = 200;
  for (int i = 1; i <= kKeys; ++i) {
    RawClient& writer = i % 2 == 0 ? first : second;
    ASSERT_EQ(writer.Ask(writer.PutFrame(i, absl::StrCat("key", i), "value")).code,
              StatusCode::kOk);
    RawClient& reader = i % 2 == 0 ? second : first;
    EXPECT_EQ(reader.Ask(reader.GetFrame(i, absl::StrCat("key", i))).data, "value");
  }
  for (uint32_t p = 0; p < 4; ++p) EXPECT_GT(server.tables().Lock(p)->stats().keys, kKeys / 8);
  EXPECT_EQ(first.welcome().partitions, 4);
}

TEST(PollersTest, ClientResumesItsSessionOnABusierPoller) {
  ServerHarness server(Options(3, 4));
  RawClient other(server), client(server), third(server);
  other.Establish();
  client.Establish();
  const uint64_t session = client.session();
  ASSERT_EQ(PollerOf(session, 3), 1);
  const RawReply written = client.Ask(client.IncrementFrame(1, "counter", 5));
  client.transport().Disconnect(client.id());
  server.Settle();
  third.Establish();  // to the poller with space
  client.Establish(session);
  EXPECT_EQ(client.welcome().resumed, 1);
  EXPECT_EQ(client.session(), session);
  EXPECT_EQ(server.counters(1).sessions_resumed, 1);
  // Once: the repetition is answered from memory.
  const RawReply again = client.Ask(client.IncrementFrame(1, "counter", 5));
  EXPECT_EQ(again.body.version, written.body.version);
  EXPECT_EQ(server.Stored("counter"), "5");
}

// The old connection is fenced there, too.
TEST(PollersTest, ASessionThatIsStillOwnedIsTakenOverOnItsPoller) {
  ServerHarness server(Options(2, 2));
  RawClient filler(server), old_one(server), new_one(server);
  filler.Establish();
  old_one.Establish();
  ASSERT_EQ(PollerOf(old_one.session(), 2), 1);
  server.network().Cut(old_one.id());
  new_one.Establish(old_one.session());
  EXPECT_EQ(new_one.welcome().resumed, 1);
  EXPECT_EQ(server.counters(1).connections_closed[static_cast<size_t>(CloseReason::kSuperseded)],
            1);
}

TEST(PollersTest, EverySessionIdNamesItsPoller) {
  for (const uint32_t pollers : {1u, 2u, 3u, 7u, 64u}) {
    uint64_t low_bytes = 0;
    for (uint64_t random = 0; random < 512; ++random) {
      for (uint32_t poller = 0; poller < pollers; ++poller) {
        const uint64_t id = SessionIdOf(random << 32 | random, poller, pollers);
        EXPECT_EQ(PollerOf(id, pollers), poller);
        EXPECT_EQ(id >> 32, random);
        EXPECT_NE(static_cast<uint32_t>(id), 0);
        low_bytes |= uint64_t{1} << (id & 0x3f);
      }
    }
    EXPECT_EQ(low_bytes, ~uint64_t{0});  // another number of pollers finds them spread
  }
}

TEST(PollersTest, AnAffinityBeyondThePollersIsTakenModulo) {
  ServerHarness server(Options(2, 2));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (uint32_t affinity : {0x1ffu, 0x103u, 0xffffffffu, 0x102u}) {
    clients.push_back(std::make_unique<RawClient>(server));
    clients.back()->Connect(affinity);
    server.Settle();
    EXPECT_TRUE(clients.back()->connected());
  }
  EXPECT_EQ(server.engine(0).connections(), 1);
  EXPECT_EQ(server.engine(1).connections(), 3);
}

TEST(PollersTest, EveryPollerReturnsStatisticsOfAllPollers) {
  ServerHarness server(Options(3, 4));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(server));
    clients.back()->Establish();
    clients.back()->Ask(clients.back()->PutFrame(1, absl::StrCat("key", i), "value"));
  }
  for (const auto& client : clients) {
    const std::string text = client->Ask(client->EmptyFrame(rdma::Opcode::kStats, 2)).data;
    for (const char* line :
         {"\npollers=3\n", "\npartitions=4\n", "\nrequests_put=3\n", "\nconnections=3\n",
          "\nsessions=3\n", "\nkeys=3\n", "\nconnections_accepted=3\n"}) {
      EXPECT_TRUE(absl::StrContains(text, line)) << line << text;
    }
  }
}

// A sweep is due in the same turn in which a write without space has already swept.
TEST(PollersTest, KeysExpireThoughAWriteHasSweptWhenItsPollersTimerWasDue) {
  HarnessOptions options = Options(2, 2);
  options.region_bytes = 2 << 20;
  ServerHarness server(options);
  // The first poller, which owns the partition, has no connection and no timer.
  RawClient second(server);
  {
    RawClient first(server);
    first.Establish();
    second.Establish();
    first.Send(first.EmptyFrame(rdma::Opcode::kDisconnectNotice, 0));
    server.Advance(absl::Seconds(5));
  }
  ASSERT_EQ(PollerOf(second.session(), 3), 1);
  int keys = 0;
  const auto another = [&] {  // of partition 0
    std::string key;
    do {
      key = absl::StrCat("key", ++keys);
    } while (server.tables().PartitionOf(key) != 0);
    return key;
  };
  uint64_t sequence = 0;
  const auto put = [&](absl::string_view key, absl::Duration ttl, size_t bytes) {
    std::string frame = second.PutFrame(++sequence, key, std::string(bytes, 'v'));
    const uint64_t ttl_ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(ttl));
    std::memcpy(frame.data() + sizeof(rdma::FrameHeader) + offsetof(rdma::PutBody, ttl_ns), &ttl_ns,
                sizeof(ttl_ns));
    return second.Ask(frame).code;
  };
  const absl::Time soon = server.now() + absl::Milliseconds(500);
  ASSERT_EQ(put(another(), absl::Milliseconds(500), 100), StatusCode::kOk);
  ASSERT_EQ(put(another(), absl::Seconds(2), 100), StatusCode::kOk);
  while (put(another(), absl::ZeroDuration(), 7000) == StatusCode::kOk) {
  }
  server.Advance(soon - server.now() - absl::Milliseconds(1));
  EXPECT_EQ(server.table().stats().expiring_keys, 2);

  second.Send(second.RendezvousFrame(++sequence, another(), Large(900000)));
  server.Advance(absl::Milliseconds(10), absl::Milliseconds(10));
  EXPECT_EQ(server.table().stats().expiring_keys, 1);
  server.Advance(absl::Seconds(3));
  EXPECT_EQ(server.table().stats().expiring_keys, 0);
  EXPECT_FALSE(second.disconnected());
}

TEST(PollersTest, WhatTimeAloneBringsAboutIsReported) {
  ServerHarness server(Options(2, 2));
  RawClient first(server);
  first.Establish();
  {
    RawClient second(server);
    second.Establish();
    second.transport().Disconnect(second.id());
    server.Settle();
  }
  const auto stats = [&](uint64_t sequence) {
    return first.Ask(first.EmptyFrame(rdma::Opcode::kStats, sequence)).data;
  };
  EXPECT_TRUE(absl::StrContains(stats(1), "\nsessions_kept=1\n"));
  server.Advance(kSessionKept() + absl::Seconds(1));
  EXPECT_TRUE(absl::StrContains(stats(2), "\nsessions=1\nsessions_kept=0\n")) << stats(3);
}

TEST(PollersTest, StoppingPollersRefuseNewConnections) {
  ServerHarness server(Options(2, 2));
  RawClient first(server), second(server), late(server);
  first.Establish();
  second.Establish();
  for (size_t poller : {0, 1}) server.engine(poller).Stop(server.now());
  late.Connect();
  server.Settle();
  EXPECT_TRUE(late.disconnected());
  EXPECT_FALSE(late.connected());
  EXPECT_TRUE(first.got_disconnect_notice());
  EXPECT_TRUE(second.got_disconnect_notice());
  server.Advance(absl::Seconds(1));
  for (size_t poller : {0, 1}) EXPECT_TRUE(server.engine(poller).done());
}

TEST(PollersTest, ReportsAreSummedFieldByField) {
  PollerReport one, other;
  one.counters.puts = 1;
  one.counters.answers[3] = 5;
  one.connections = 7;
  other.counters.puts = 10;
  other.counters.answers[3] = 50;
  other.counters.answers[kStatusCodes - 1] = 2;
  other.sessions_kept = 4;
  one.Add(other);
  EXPECT_EQ(one.counters.puts, 11);
  EXPECT_EQ(one.counters.answers[3], 55);
  EXPECT_EQ(one.counters.answers[kStatusCodes - 1], 2);
  EXPECT_EQ(one.connections, 7);
  EXPECT_EQ(one.sessions_kept, 4);
}

}  // namespace
}  // namespace osprey::server
