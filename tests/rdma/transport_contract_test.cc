// The contract, part one: connections and frames. Part two, READs and failures, is
// transport_contract_reads_test.cc.

#include "tests/rdma/transport_contract.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "rdma/errors.h"

namespace osprey::rdma {
namespace {

INSTANTIATE_TEST_SUITE_P(Way, TransportContract, testing::ValuesIn(ContractWays()),
                         [](const auto& instance) { return instance.param; });

using Kind = Event::Kind;

TEST_P(TransportContract, ConnectAndAcceptConnectBothEnds) {
  Side server(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  const Ids ids = Join(server, client, uri);
  EXPECT_FALSE(server.Find(Kind::kConnectRequest)->text.empty());
  EXPECT_NE(ids.server, ids.client);
  for (const auto& [side, id] : {std::pair(&server, ids.server), std::pair(&client, ids.client)}) {
    const ConnectionLimits limits = side->transport().limits(id);
    EXPECT_EQ(limits.frame_bytes_max, TransportOptions().frame_bytes_max);
    EXPECT_GE(limits.send_credits_max, 2);
    EXPECT_GE(limits.reads_in_flight_max, 1);
    EXPECT_GE(limits.read_depth, 1);
    EXPECT_GE(limits.read_bytes_max, 1u << 20);
    EXPECT_EQ(side->transport().SendRoom(id), limits.send_credits_max);
    EXPECT_EQ(side->transport().ReadRoom(id), limits.reads_in_flight_max);
    EXPECT_NE(side->transport().Describe(id).find("transport="), std::string::npos);
    EXPECT_EQ(side->transport().resources().connections, 1u);
  }
}

TEST_P(TransportContract, AllConnectionsFromOnePlaceHaveOneSource) {
  Side server(*fixture_), client(*fixture_), other(*fixture_);
  const std::string uri = Listen(server);
  const Ids first = Join(server, client, uri), second = Join(server, client, uri);
  const Ids third = Join(server, other, uri);
  const std::string source = server.Find(Kind::kConnectRequest, first.server)->source;
  EXPECT_FALSE(source.empty());
  EXPECT_NE(source,
            server.Find(Kind::kConnectRequest, first.server)->text);  // which distinguishes them
  EXPECT_EQ(server.Find(Kind::kConnectRequest, second.server)->source, source);
  EXPECT_EQ(server.Find(Kind::kConnectRequest, third.server)->source, source);
  EXPECT_TRUE(server.Find(Kind::kConnected, first.server)->source.empty());
}

TEST_P(TransportContract, TheReadyUriNamesWhereClientsConnect) {
  Side server(*fixture_), client(*fixture_);
  const std::string asked = fixture_->ListenUri();
  const absl::StatusOr<std::string> ready = server.transport().Listen(asked, 1);
  ASSERT_TRUE(ready.ok()) << ready.status();
  if (asked.substr(0, 4) == "rdma") {
    EXPECT_NE(*ready, asked);  // port 0 was asked for
    EXPECT_EQ(ready->substr(0, asked.size() - 1), asked.substr(0, asked.size() - 1));
  } else {
    EXPECT_EQ(*ready, asked);
  }
  Join(server, client, *ready);
}

TEST_P(TransportContract, FramesArriveCompleteAndInOrderBothWays) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  constexpr size_t kFrames = 300;
  const auto frame = [](char from, size_t i) {
    return from + std::to_string(i) + std::string(i % 500, from);
  };
  size_t from_server = 0, from_client = 0;
  ASSERT_TRUE(Until({&server, &client}, [&] {
    while (from_client < kFrames && client.transport().SendRoom(ids.client) > 0) {
      EXPECT_TRUE(client.Send(ids.client, frame('c', from_client++)).ok());
    }
    while (from_server < kFrames && server.transport().SendRoom(ids.server) > 0) {
      EXPECT_TRUE(server.Send(ids.server, frame('s', from_server++)).ok());
    }
    return server.Frames(ids.server).size() == kFrames &&
           client.Frames(ids.client).size() == kFrames;
  }));
  for (size_t i = 0; i < kFrames; ++i) {
    EXPECT_EQ(server.Frames(ids.server)[i], frame('c', i));
    EXPECT_EQ(client.Frames(ids.client)[i], frame('s', i));
  }
}

TEST_P(TransportContract, PiecesAreJoinedAndEmptyOnesDoNotShow) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const std::string a = "key", b, c = "value";
  const auto bytes = [](const std::string& s) {
    return Bytes(reinterpret_cast<const std::byte*>(s.data()), s.size());
  };
  ASSERT_TRUE(client.transport().Send(ids.client, {bytes(a), bytes(b), bytes(c)}).ok());
  ASSERT_TRUE(Until({&server, &client}, [&] { return !server.Frames(ids.server).empty(); }));
  EXPECT_EQ(server.Frames(ids.server)[0], "keyvalue");
}

TEST_P(TransportContract, TheLongestFrameArrivesAndALongerOneIsRefused) {
  TransportOptions smaller;
  smaller.frame_bytes_max = 1000;
  Side server(*fixture_), client(*fixture_, smaller);
  const Ids ids = Join(server, client, Listen(server));
  EXPECT_EQ(server.transport().limits(ids.server).frame_bytes_max, 1000u);
  EXPECT_EQ(client.transport().limits(ids.client).frame_bytes_max, 1000u);
  std::string longest(1000, 'x');
  for (size_t i = 0; i < longest.size(); ++i) longest[i] = static_cast<char>(i * 7);
  EXPECT_EQ(client.Send(ids.client, longest + "y").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client.Send(ids.client, "").code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(client.Send(ids.client, longest).ok());
  ASSERT_TRUE(server.Send(ids.server, longest).ok());
  ASSERT_TRUE(Until({&server, &client}, [&] {
    return !server.Frames(ids.server).empty() && !client.Frames(ids.client).empty();
  }));
  EXPECT_EQ(server.Frames(ids.server), std::vector<std::string>{longest});
  EXPECT_EQ(client.Frames(ids.client), std::vector<std::string>{longest});
}

TEST_P(TransportContract, CreditsRunOutExactlyWhenThePeerDoesNotPollAndComeBack) {
  TransportOptions few;
  few.receive_credits = 8;
  Side server(*fixture_, few), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const size_t credits = client.transport().limits(ids.client).send_credits_max;
  EXPECT_GE(credits, 2u);
  EXPECT_LE(credits, 8u);
  size_t sent = 0;
  for (int round = 0; round < 3; ++round) {
    // The server sleeps; the client may take its own completions.
    absl::Status status;
    for (size_t i = 0; i <= credits && status.ok(); ++i) {
      EXPECT_EQ(client.transport().SendRoom(ids.client), credits - i);
      status = client.Send(ids.client, "frame " + std::to_string(sent));
      if (status.ok()) ++sent;
      client.Pump();
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(sent, credits * (round + 1));
    EXPECT_TRUE(Until({&server, &client},
                      [&] { return client.transport().SendRoom(ids.client) == credits; }));
  }
  ASSERT_TRUE(Until({&server, &client}, [&] { return server.Frames(ids.server).size() == sent; }));
  for (size_t i = 0; i < sent; ++i)
    EXPECT_EQ(server.Frames(ids.server)[i], "frame " + std::to_string(i));
}

TEST_P(TransportContract, PollWithSpaceForOneEventLosesNothing) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(client.Send(ids.client, std::to_string(i)).ok());
  const absl::Time end = absl::Now() + kContractPatience;
  while (server.Frames(ids.server).size() < 5 && absl::Now() < end) {
    server.Pump(1);
    client.Pump(1);
  }
  EXPECT_EQ(server.Frames(ids.server), (std::vector<std::string>{"0", "1", "2", "3", "4"}));
}

TEST_P(TransportContract, TwoClientsAtOnceDoNotMix) {
  Side server(*fixture_), one(*fixture_), two(*fixture_);
  const std::string uri = Listen(server);
  const Ids first = Join(server, one, uri);
  const Ids second = Join(server, two, uri);
  const Ids third = Join(server, two, uri);  // and two connections of one transport
  ASSERT_TRUE(one.Send(first.client, "one").ok());
  ASSERT_TRUE(two.Send(second.client, "two").ok());
  ASSERT_TRUE(two.Send(third.client, "three").ok());
  ASSERT_TRUE(server.Send(second.server, "to two").ok());
  ASSERT_TRUE(Until({&server, &one, &two}, [&] {
    return server.Frames(first.server).size() == 1 && server.Frames(second.server).size() == 1 &&
           server.Frames(third.server).size() == 1 && two.Frames(second.client).size() == 1;
  }));
  EXPECT_EQ(server.Frames(first.server)[0], "one");
  EXPECT_EQ(server.Frames(second.server)[0], "two");
  EXPECT_EQ(server.Frames(third.server)[0], "three");
  EXPECT_TRUE(one.Frames(first.client).empty());
  EXPECT_TRUE(two.Frames(third.client).empty());
  EXPECT_EQ(server.transport().resources().connections, 3u);
}

TEST_P(TransportContract, AddressesThatCannotBeMeantAreRefusedAtOnce) {
  Side side(*fixture_);
  const bool rdma = fixture_->ListenUri().substr(0, 4) == "rdma";
  const std::vector<std::string> uris = {"", "nonsense", "tcp://x:1",
                                         rdma ? "shm:///x" : "rdma://10.0.0.7:1"};
  for (const std::string& uri : uris) {
    EXPECT_EQ(side.transport().Connect(uri).status().code(), absl::StatusCode::kInvalidArgument)
        << uri;
    EXPECT_EQ(side.transport().Listen(uri, 1).status().code(), absl::StatusCode::kInvalidArgument)
        << uri;
  }
  EXPECT_EQ(side.transport().resources().connections, 0u);
}

TEST_P(TransportContract, NoListenerIsSaidSo) {
  Side client(*fixture_);
  const absl::StatusOr<ConnectionId> id = client.transport().Connect(fixture_->DeadUri());
  ASSERT_TRUE(id.ok()) << id.status();
  ASSERT_TRUE(Until({&client}, [&] { return client.Find(Kind::kDisconnected, *id) != nullptr; }));
  const absl::Status status = client.Find(Kind::kDisconnected)->status;
  EXPECT_EQ(ReasonOf(status), Reason::kNoListener) << status;
  EXPECT_NE(status.message().find(fixture_->DeadUri()), absl::string_view::npos) << status;
}

TEST_P(TransportContract, AnAddressInUseIsRefusedAndItsOwnerUndisturbed) {
  Side server(*fixture_), second(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  const absl::StatusOr<std::string> again = second.transport().Listen(uri, 2);
  EXPECT_TRUE(absl::IsAlreadyExists(again.status())) << again.status();
  Join(server, client, uri);
}

TEST_P(TransportContract, ARejectionBringsItsReason) {
  Side server(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  for (const auto& [reason, expected] :
       {std::pair(RejectReason::kTooManyConnections, Reason::kRefused),
        std::pair(RejectReason::kShuttingDown, Reason::kShuttingDown),
        std::pair(RejectReason::kNotServing, Reason::kNotServing)}) {
    const Ids ids = Request(server, client, uri);
    server.transport().Reject(ids.server, reason);
    ASSERT_TRUE(Until({&server, &client}, [&] {
      return server.Find(Kind::kDisconnected, ids.server) != nullptr &&
             client.Find(Kind::kDisconnected, ids.client) != nullptr;
    }));
    EXPECT_EQ(ReasonOf(client.Find(Kind::kDisconnected, ids.client)->status), expected);
    EXPECT_TRUE(server.Find(Kind::kDisconnected, ids.server)->status.ok());
    EXPECT_EQ(client.Find(Kind::kConnected, ids.client), nullptr);
  }
  Join(server, client, uri);
}

TEST_P(TransportContract, AnotherProtocolVersionIsRefusedAndNamed) {
  Side server(*fixture_), client(*fixture_), stranger(*fixture_, {}, kProtocolVersion + 1);
  const std::string uri = Listen(server);
  const absl::StatusOr<ConnectionId> id = stranger.transport().Connect(uri);
  ASSERT_TRUE(id.ok()) << id.status();
  ASSERT_TRUE(Until({&server, &stranger},
                    [&] { return stranger.Find(Kind::kDisconnected, *id) != nullptr; }));
  const absl::Status status = stranger.Find(Kind::kDisconnected)->status;
  EXPECT_EQ(ReasonOf(status), Reason::kVersionMismatch) << status;
  const std::string spoken = absl::StrCat("speaks protocol version ", kProtocolVersion + 1);
  EXPECT_NE(status.message().find(spoken), absl::string_view::npos) << status;
  EXPECT_EQ(server.Find(Kind::kConnectRequest), nullptr);
  Join(server, client, uri);
}

TEST_P(TransportContract, AClientOfTheVersionBeforeIsServed) {
  Side server(*fixture_), old(*fixture_, {}, kProtocolVersion - 1);
  const std::string uri = Listen(server);
  const Ids ids = Join(server, old, uri);
  EXPECT_EQ(server.transport().limits(ids.server).version, kProtocolVersion - 1);
  EXPECT_EQ(old.transport().limits(ids.client).version, kProtocolVersion - 1);
  // It reads why it is rejected.
  const Ids rejected = Request(server, old, uri);
  server.transport().Reject(rejected.server, RejectReason::kNotServing);
  ASSERT_TRUE(Until({&server, &old},
                    [&] { return old.Find(Kind::kDisconnected, rejected.client) != nullptr; }));
  EXPECT_EQ(ReasonOf(old.Find(Kind::kDisconnected, rejected.client)->status), Reason::kNotServing);
}

TEST_P(TransportContract, AServerOfTheVersionBeforeIsReachedInItsVersion) {
  Side old(*fixture_, {}, kProtocolVersion - 1), client(*fixture_);
  const std::string uri = Listen(old);
  const ConnectionId newest = client.transport().Connect(uri).value();
  ASSERT_TRUE(
      Until({&old, &client}, [&] { return client.Find(Kind::kDisconnected, newest) != nullptr; }));
  EXPECT_EQ(ReasonOf(client.Find(Kind::kDisconnected, newest)->status), Reason::kVersionMismatch);
  const ConnectionId before =
      client.transport().Connect(uri, /*affinity=*/0, kProtocolVersion - 1).value();
  ASSERT_TRUE(Until({&old, &client}, [&] { return old.Find(Kind::kConnectRequest) != nullptr; }));
  ASSERT_TRUE(old.transport().Accept(old.Find(Kind::kConnectRequest)->id).ok());
  ASSERT_TRUE(
      Until({&old, &client}, [&] { return client.Find(Kind::kConnected, before) != nullptr; }));
  EXPECT_EQ(client.transport().limits(before).version, kProtocolVersion - 1);
}

TEST_P(TransportContract, DisconnectByEitherEndEndsBothOnce) {
  for (const bool by_client : {true, false}) {
    Side server(*fixture_), client(*fixture_);
    const Ids ids = Join(server, client, Listen(server));
    Side& leaver = by_client ? client : server;
    const ConnectionId id = by_client ? ids.client : ids.server;
    leaver.transport().Disconnect(id);
    leaver.transport().Disconnect(id);  // again, before it was polled
    ASSERT_TRUE(Until({&server, &client}, [&] {
      return server.Find(Kind::kDisconnected, ids.server) != nullptr &&
             client.Find(Kind::kDisconnected, ids.client) != nullptr;
    }));
    EXPECT_TRUE(leaver.Find(Kind::kDisconnected)->status.ok())
        << leaver.Find(Kind::kDisconnected)->status;
    leaver.transport().Disconnect(id);  // and after
    for (int i = 0; i < 1000; ++i) {    // Side checks that nothing follows
      server.Pump();
      client.Pump();
    }
    EXPECT_EQ(client.transport().resources().connections, 0u);
    EXPECT_EQ(server.transport().resources().connections, 0u);
  }
}

TEST_P(TransportContract, DisconnectByBothAtOnceEndsBothOnce) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  client.transport().Disconnect(ids.client);
  server.transport().Disconnect(ids.server);
  EXPECT_TRUE(Until({&server, &client}, [&] {
    return server.Find(Kind::kDisconnected, ids.server) != nullptr &&
           client.Find(Kind::kDisconnected, ids.client) != nullptr;
  }));
}

TEST_P(TransportContract, CancelledConnectEndsWithoutAffectingOthers) {
  Side server(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  const absl::StatusOr<ConnectionId> id = client.transport().Connect(uri);
  ASSERT_TRUE(id.ok());
  client.transport().Disconnect(*id);
  ASSERT_TRUE(Until({&client}, [&] { return client.Find(Kind::kDisconnected, *id) != nullptr; }));
  EXPECT_TRUE(client.Find(Kind::kDisconnected, *id)->status.ok());

  // And one that the server has received already, which it accepts too late.
  const Ids late = Request(server, client, uri);
  client.transport().Disconnect(late.client);
  ASSERT_TRUE(
      Until({&client}, [&] { return client.Find(Kind::kDisconnected, late.client) != nullptr; }));
  (void)server.transport().Accept(late.server);
  ASSERT_TRUE(Until({&server, &client},
                    [&] { return server.Find(Kind::kDisconnected, late.server) != nullptr; }));
  Side other(*fixture_);
  Join(server, other, uri);
}

TEST_P(TransportContract, ARequestThatIsDisconnectedUnansweredEndsAtTheClientToo) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Request(server, client, Listen(server));
  server.transport().Disconnect(ids.server);
  ASSERT_TRUE(Until({&server, &client}, [&] {
    return server.Find(Kind::kDisconnected, ids.server) != nullptr &&
           client.Find(Kind::kDisconnected, ids.client) != nullptr;
  }));
  EXPECT_FALSE(client.Find(Kind::kDisconnected, ids.client)->status.ok());
}

TEST_P(TransportContract, AnIdThatIsGoneOrNeverWasIsRefusedOrIgnored) {
  Side server(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  const std::unique_ptr<Memory> memory = Allocate(client, 4096, Access::kRemoteRead);
  const Ids ids = Join(server, client, uri);
  client.transport().Disconnect(ids.client);
  ASSERT_TRUE(Until({&server, &client}, [&] {
    return server.Find(Kind::kDisconnected) != nullptr &&
           client.Find(Kind::kDisconnected) != nullptr;
  }));
  ReadRequest read;
  read.segments[0] = {memory->data(), 8, memory.get()};
  for (const ConnectionId id : {ids.client, ConnectionId::kNone, ConnectionId{uint64_t{1} << 40}}) {
    EXPECT_EQ(client.Send(id, "x").code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(client.Post(id, {read}, 1).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(client.transport().SendRoom(id), 0u);
    EXPECT_EQ(client.transport().ReadRoom(id), 0u);
    EXPECT_FALSE(client.transport().Expose(id, *memory).ok());
    EXPECT_FALSE(client.transport().Attach(id, RemoteMemory{0, 8, 1}).ok());
    EXPECT_FALSE(client.transport().Accept(id).ok());
    client.transport().Reject(id, RejectReason::kShuttingDown);
    client.transport().Disconnect(id);
  }
  EXPECT_NE(Join(server, client, uri).client, ids.client);  // ids are not reused
}

// --- Sleeping.

// Pumps until Arm returns that there is nothing to do.
bool ArmWhenIdle(Side& side) {
  return Until({&side}, [&] { return side.transport().Arm(); });
}

bool Wakes(Side& side, absl::Duration timeout) {
  pollfd entry = {side.transport().fd(), POLLIN, 0};
  return poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) > 0;
}

// Sleeps until `done`, as a program that waits for events does.
bool SleepUntil(Side& side, const std::function<bool()>& done) {
  const absl::Time end = absl::Now() + kContractPatience;
  while (!done() && absl::Now() < end) {
    if (side.transport().Arm() && !Wakes(side, kContractPatience)) return false;  // slept through
    side.Pump();
  }
  return done();
}

TEST_P(TransportContract, ASleeperIsWokenByFramesAndByTheEnd) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  std::atomic<size_t> taken{0};
  std::thread sleeper([&] {
    for (size_t i = 1; i <= 3; ++i) {
      EXPECT_TRUE(SleepUntil(server, [&] { return server.Frames(ids.server).size() == i; }));
      taken.store(i);
    }
    EXPECT_TRUE(SleepUntil(server, [&] { return server.Find(Kind::kDisconnected) != nullptr; }));
  });
  for (size_t i = 1; i <= 3; ++i) {
    absl::SleepFor(absl::Milliseconds(50));  // so that it has fallen asleep
    EXPECT_TRUE(client.Send(ids.client, "wake up").ok());
    // Nothing else happens that could wake it.
    EXPECT_TRUE(Until(
        {&client}, [&] { return taken.load() == i; }, kContractPatience / 2))
        << i;
  }
  absl::SleepFor(absl::Milliseconds(50));
  client.transport().Disconnect(ids.client);
  EXPECT_TRUE(Until({&client}, [&] { return client.Find(Kind::kDisconnected) != nullptr; }));
  sleeper.join();
}

TEST_P(TransportContract, ASleepingServerIsWokenByAConnectRequest) {
  Side server(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  std::thread sleeper([&] {
    EXPECT_TRUE(SleepUntil(server, [&] { return server.Find(Kind::kConnectRequest) != nullptr; }));
    EXPECT_TRUE(server.transport().Accept(server.Find(Kind::kConnectRequest)->id).ok());
    EXPECT_TRUE(SleepUntil(server, [&] { return server.Find(Kind::kConnected) != nullptr; }));
  });
  absl::SleepFor(absl::Milliseconds(50));
  const absl::StatusOr<ConnectionId> id = client.transport().Connect(uri);
  ASSERT_TRUE(id.ok());
  EXPECT_TRUE(SleepUntil(client, [&] { return client.Find(Kind::kConnected, *id) != nullptr; }));
  sleeper.join();
}

TEST_P(TransportContract, ArmRefusesWhileThereIsSomethingToDo) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  ASSERT_TRUE(ArmWhenIdle(server));
  ASSERT_TRUE(client.Send(ids.client, "first").ok());
  ASSERT_TRUE(client.Send(ids.client, "second").ok());
  ASSERT_TRUE(Wakes(server, kContractPatience));
  // At most one of the two is consumed: either Arm returns that there is more, or the descriptor
  // signals it.
  const absl::Time end = absl::Now() + kContractPatience;
  while (server.Frames(ids.server).size() < 2 && absl::Now() < end) {
    if (server.transport().Arm()) {
      EXPECT_TRUE(Wakes(server, kContractPatience));
    }
    server.Pump(1);
  }
  EXPECT_EQ(server.Frames(ids.server).size(), 2u);
}

TEST_P(TransportContract, AnIdleSleeperIsLeftAsleep) {
  Side server(*fixture_), client(*fixture_);
  Join(server, client, Listen(server));
  bool slept = false;
  for (int attempt = 0; attempt < 20 && !slept;
       ++attempt) {  // spurious wake-ups are allowed, not endless ones
    ASSERT_TRUE(ArmWhenIdle(server));
    slept = !Wakes(server, absl::Milliseconds(100));
  }
  EXPECT_TRUE(slept);
}

}  // namespace
}  // namespace osprey::rdma
