#include "server/cluster/links/peer_links.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/authentication.h"
#include "rdma/handshake.h"
#include "tests/server/cluster/links/link_world.h"

namespace osprey {
namespace {

using testing::HasSubstr;

TEST(PeerLinksTest, EachServerSendsToEachOther) {
  LinkWorld world;
  for (const auto& [name, incarnation] : {std::pair{"a", 1}, {"b", 2}, {"c", 3}})
    world.Start(name, incarnation);
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }));
  EXPECT_TRUE(world.links("a").Send(2, 7, "to b").ok());
  EXPECT_TRUE(world.links("b").Send(1, 8, "to a").ok());
  EXPECT_TRUE(world.links("c").Send(1, 9, "").ok());
  ASSERT_TRUE(world.Until(
      [&] { return world.at("a").events.size() == 2 && !world.at("b").events.empty(); }));
  const LinkEvent& event = world.at("b").events[0];
  EXPECT_EQ(event.incarnation, 1u);
  EXPECT_EQ(event.message_kind, 7);
  EXPECT_EQ(event.body, "to b");
  EXPECT_EQ(world.at("c").events.size(), 0u);
}

TEST(PeerLinksTest, AServerOfTheVersionBeforeIsLinked) {
  LinkWorld world;
  world.network.SetVersion("rdma://b:7471", rdma::kProtocolVersion - 1);
  world.Start("a", 1);
  world.Start("b", 2);
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }, absl::Milliseconds(100)))
      << "without a pause";
  EXPECT_TRUE(world.links("a").Send(2, 7, "to b").ok());
  ASSERT_TRUE(world.Until([&] { return !world.at("b").events.empty(); }));
  EXPECT_FALSE(world.HasLogged("cannot connect"));
  // It is upgraded, by two versions: the one before is not served any more.
  world.network.SetVersion("rdma://b:7471", rdma::kProtocolVersion + 1);
  for (const rdma::ConnectionId id : world.Connections()) world.network.Cut(id);
  ASSERT_TRUE(world.Until([&] { return world.at("a").connected.empty(); }));
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }));
}

TEST(PeerLinksTest, WhatHasNoLinkIsAnError) {
  LinkWorld world;
  world.Start("a", 1);
  world.Start("b", 2);
  EXPECT_EQ(world.links("a").Send(2, 1, "x").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(world.links("a").RoomFor(2), 0u);
  EXPECT_EQ(world.links("a").Send(1, 1, "x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(world.links("a").Send(9, 1, "x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(world.links("a").RoomFor(9), 0u);
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }));
  EXPECT_EQ(world.links("a").RoomFor(2), kLinkMessageBytesMax);
}

TEST(PeerLinksTest, AFullQueueRefusesAndEmptiesAgain) {
  LinkWorld world;
  world.Start("a", 1);
  world.Start("b", 2);
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }));
  size_t sent = 0;
  while (sent < 1000 && world.links("a").Send(2, 1, std::string(100000, 'x')).ok()) ++sent;
  EXPECT_LT(sent, 50u);
  EXPECT_EQ(world.links("a").Send(2, 1, std::string(100000, 'x')).code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(world.Until([&] { return world.at("b").events.size() == sent; }));
  EXPECT_EQ(world.links("a").RoomFor(2), kLinkMessageBytesMax);
}

TEST(PeerLinksTest, AnIdleLinkLastsByPings) {
  LinkWorld world;
  world.Start("a", 1);
  world.Start("b", 2);
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }));
  world.Run(absl::Seconds(20));
  EXPECT_TRUE(world.AllConnected());
  EXPECT_EQ(world.at("a").times[2], 1u);
  EXPECT_EQ(world.at("b").times[1], 1u);
}

TEST(PeerLinksTest, SilenceEndsALinkAtBothEnds) {
  LinkWorld world;
  world.Start("a", 1);
  world.Start("b", 2);
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }));
  world.Run(absl::Milliseconds(300));
  for (const rdma::ConnectionId id : world.Connections()) world.network.Cut(id);
  const absl::Time cut = world.now;
  ASSERT_TRUE(world.Until(
      [&] { return world.at("a").connected.empty() && world.at("b").connected.empty(); }));
  EXPECT_GE(world.now - cut, absl::Milliseconds(700));
  EXPECT_LE(world.now - cut, absl::Milliseconds(1100));
  EXPECT_TRUE(
      world.HasLogged("the link to server b at rdma://b:7471 has ended: it has been silent"));
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }, absl::Seconds(1)));
  // Nothing is left of the old ones.
  EXPECT_EQ(world.links("a").incoming(), 1u);
  EXPECT_EQ(world.network.connections(), 4u);
}

TEST(PeerLinksTest, ADelayOfItsOwnIsNoSilence) {
  LinkWorld world;
  world.Start("a", 1);
  world.Start("b", 2);
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }));
  world.Step(absl::Seconds(5));
  world.Run(absl::Seconds(2));
  EXPECT_EQ(world.at("a").times[2], 1u);
  EXPECT_EQ(world.at("b").times[1], 1u);
}

TEST(PeerLinksTest, ALostConnectionComesBackSoon) {
  LinkWorld world;
  world.Start("a", 1);
  world.Start("b", 2);
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }));
  for (const rdma::ConnectionId id : world.Connections()) world.network.Break(id);
  ASSERT_TRUE(world.Until([&] { return !world.AllConnected(); }));
  EXPECT_TRUE(world.Until([&] { return world.AllConnected(); }, absl::Milliseconds(50)));
}

TEST(PeerLinksTest, AttemptsHavePausesThatGrowToABound) {
  LinkWorld world;
  world.Start("a", 1);
  LinkPeers peers = world.peers();
  peers["b"] = {2, {AddressOf("b")}};
  world.links("a").SetPeers(peers);
  world.Run(absl::Seconds(20));
  const uint64_t attempts = world.links("a").counters().failed_attempts;
  EXPECT_GE(attempts, 40u);
  EXPECT_LE(attempts, 110u);
  EXPECT_TRUE(world.HasLogged("cannot connect to server b at rdma://b:7471: no server listens"));
  EXPECT_LE(world.log.size(), 3u);
  world.Start("b", 2);
  EXPECT_TRUE(world.Until([&] { return world.AllConnected(); }, absl::Milliseconds(600)));
}

TEST(PeerLinksTest, AddressesAreTriedInTurn) {
  LinkWorld world;
  world.Start("a", 1);
  world.Start("b", 2);
  LinkPeers peers = world.peers();
  peers["b"].addresses = {"rdma://dead:1", "shm:///b", AddressOf("b")};
  world.links("a").SetPeers(peers);
  EXPECT_TRUE(world.Until([&] { return world.AllConnected(); }, absl::Milliseconds(100)));
}

TEST(PeerLinksTest, ANewIncarnationEndsTheLinksOfTheOld) {
  LinkWorld world;
  world.Start("a", 1);
  world.Start("b", 2);
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }));
  LinkPeers peers = world.peers();
  peers["b"].incarnation = 22;
  world.links("a").SetPeers(peers);
  EXPECT_EQ(world.links("a").RoomFor(2), 0u);
  EXPECT_EQ(world.links("a").incoming(), 0u);
  EXPECT_EQ(world.links("a").Send(2, 1, "x").code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(world.Until([&] { return world.at("a").connected.empty(); }));
  // b is the old one still: it sends nothing, and receives nothing.
  world.Run(absl::Seconds(2));
  EXPECT_TRUE(world.at("a").connected.empty());
  EXPECT_TRUE(world.at("b").connected.empty());
  EXPECT_TRUE(world.HasLogged("server b at rdma://b:7471: it is not the incarnation that"));
  EXPECT_TRUE(world.HasLogged("server b, b#"));
  EXPECT_TRUE(world.HasLogged("is refused: the configuration does not name that incarnation"));
  world.Start("b", 22);
  EXPECT_TRUE(world.Until([&] { return world.AllConnected(); }, absl::Seconds(1)));
}

// It may connect, and send.
TEST(PeerLinksTest, AServerThatIsNotNeededIsNotConnectedTo) {
  LinkWorld world;
  world.Start("a", 1);
  LinkPeers peers = {{"b", {2, {AddressOf("b")}, /*is_needed=*/false}}};
  world.Start("b", 2);
  world.links("a").SetPeers(peers);
  ASSERT_TRUE(world.Until([&] { return world.at("b").connected.contains(1); }));
  ASSERT_TRUE(world.links("b").Send(1, 7, "to a").ok());
  ASSERT_TRUE(world.Until([&] { return !world.at("a").events.empty(); }));
  world.Run(absl::Seconds(2));
  EXPECT_FALSE(world.at("a").connected.contains(2));
  EXPECT_EQ(world.links("a").Send(2, 1, "x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(world.links("a").RoomFor(2), 0u);

  peers["b"].is_needed = true;
  world.links("a").SetPeers(peers);
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }));
  EXPECT_TRUE(world.links("a").Send(2, 8, "to b").ok());

  // b's own link goes on.
  peers["b"].is_needed = false;
  world.links("a").SetPeers(peers);
  ASSERT_TRUE(world.Until([&] { return !world.at("a").connected.contains(2); }));
  world.Run(absl::Seconds(2));
  EXPECT_EQ(world.at("b").times[1], 1u);
  EXPECT_TRUE(world.at("b").connected.contains(1));
  EXPECT_EQ(world.links("b").incoming(), 0u);
  EXPECT_EQ(world.links("a").incoming(), 1u);
}

TEST(PeerLinksTest, AServerThatIsNoPeerAnyMoreIsLeft) {
  LinkWorld world;
  world.Start("a", 1);
  world.Start("b", 2);
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }));
  world.links("a").SetPeers({});
  world.links("b").SetPeers({});
  world.Run(absl::Milliseconds(10));
  EXPECT_EQ(world.network.connections(), 0u);
  EXPECT_TRUE(world.at("a").connected.empty());
  EXPECT_TRUE(world.at("b").connected.empty());
}

TEST(PeerLinksTest, ItsEndLeavesNoConnection) {
  LinkWorld world;
  world.Start("a", 1);
  world.Start("b", 2);
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }));
  ASSERT_TRUE(world.links("a").Send(2, 1, std::string(1 << 20, 'x')).ok());
  world.Stop("a");
  world.Run(absl::Milliseconds(10));
  EXPECT_EQ(world.network.connections(), 0u);
  EXPECT_EQ(world.links("b").incoming(), 0u);
}

TEST(PeerLinksTest, SleepsOnlyWithoutWork) {
  LinkWorld world;
  world.Start("a", 1);
  world.Start("b", 2);
  ASSERT_TRUE(world.Until([&] { return world.AllConnected(); }));
  world.Run(absl::Milliseconds(5));
  PeerLinks& a = world.links("a");
  EXPECT_TRUE(a.Arm());
  EXPECT_GT(a.next_timer(), world.now);
  EXPECT_LE(a.next_timer(), world.now + absl::Milliseconds(200));
  ASSERT_TRUE(a.Send(2, 1, std::string(4 << 20, 'x')).ok());
  EXPECT_FALSE(a.Arm());
  std::vector<LinkEvent> events;
  EXPECT_TRUE(a.Poll(world.now, events));
  // Without credits it awaits them, for a short time.
  EXPECT_TRUE(a.Arm());
  EXPECT_EQ(a.next_timer(), world.now + kLinkBlockedStep());
  a.SetPeers({});
  EXPECT_FALSE(a.Arm());
}

TEST(PeerLinksTest, TheLossOfTheDeviceIsReported) {
  LinkWorld world;
  world.Start("a", 1);
  world.Step();
  EXPECT_TRUE(world.links("a").failure().ok());
  world.network.LoseDevice("a");
  world.Step();
  EXPECT_THAT(std::string(world.links("a").failure().message()), HasSubstr("device"));
}

TEST(PeerLinksTest, WrongOptionsAreNamed) {
  fake::Network network;
  const auto domain = network.NewDomain("a");
  const auto error = [&](void (*change)(LinkOptions&), rdma::Address::Scheme scheme) {
    LinkOptions options;
    options.server = "a";
    options.incarnation = options.cluster_id = 1;
    options.key = KeyOf('k');
    options.random = [] { return uint64_t{1}; };
    change(options);
    std::vector<LinkPort> ports;
    ports.push_back({scheme, domain->NewTransport(kLinkTransportOptions).value()});
    const auto links = PeerLinks::Create(options, std::move(ports), absl::UnixEpoch());
    return std::string(links.status().message());
  };
  constexpr auto kRdma = rdma::Address::Scheme::kRdma;
  EXPECT_EQ(error([](LinkOptions&) {}, kRdma), "");
  EXPECT_EQ(error([](LinkOptions& o) { o.key = nullptr; }, rdma::Address::Scheme::kShm), "");
  EXPECT_THAT(error([](LinkOptions& o) { o.key = nullptr; }, kRdma),
              HasSubstr("--cluster-key-file"));
  EXPECT_THAT(error([](LinkOptions& o) { o.server = "A"; }, kRdma), HasSubstr("::server"));
  EXPECT_THAT(error([](LinkOptions& o) { o.incarnation = 0; }, kRdma), HasSubstr("::incarnation"));
  EXPECT_THAT(error([](LinkOptions& o) { o.cluster_id = 0; }, kRdma), HasSubstr("::cluster_id"));
  EXPECT_THAT(error([](LinkOptions& o) { o.random = nullptr; }, kRdma), HasSubstr("::random"));
  EXPECT_THAT(error([](LinkOptions& o) { o.silence_max = o.ping_after; }, kRdma),
              HasSubstr("::silence_max"));
  EXPECT_THAT(error([](LinkOptions& o) { o.backoff_last = absl::ZeroDuration(); }, kRdma),
              HasSubstr("::backoff_last"));
}

}  // namespace
}  // namespace osprey
