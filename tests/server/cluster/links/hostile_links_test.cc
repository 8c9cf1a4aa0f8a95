// Peers that connect, and are no servers of the cluster or do not keep to the protocol.

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/cluster/links/link_frames.h"
#include "server/cluster/links/peer_links.h"
#include "tests/server/cluster/links/link_world.h"
#include "tests/server/cluster/links/raw_peer.h"

namespace osprey {
namespace {

class HostileLinksTest : public RawPeerTest {
 protected:
  const LinkCounters& counters() { return world_.links("a").counters(); }
  void ExpectNothingTaken() {
    EXPECT_TRUE(world_.at("a").events.empty());
    EXPECT_EQ(counters().messages_received, 0u);
  }
  // Each of these, after Welcome, ends the connection as a bad frame.
  void ExpectBad(const std::vector<std::string>& frames, absl::string_view logged) {
    const uint64_t before = counters().bad_frames;
    RawPeer peer(world_);
    peer.Greet();
    for (const std::string& frame : frames) {
      ASSERT_FALSE(peer.ended());
      peer.Send(frame);
    }
    EXPECT_TRUE(peer.ended());
    EXPECT_EQ(counters().bad_frames, before + 1);
    EXPECT_TRUE(world_.HasLogged(logged)) << logged;
    world_.Run(absl::Seconds(2));  // the next line is logged again
  }
};

std::string Piece(const PieceHeader& piece, absl::string_view bytes) {
  return LinkFrameOf(LinkFrame::kData, piece) + std::string(bytes);
}

TEST_F(HostileLinksTest, APeerThatProvesTheKeyIsAccepted) {
  RawPeer peer(world_);
  peer.Greet();
  peer.Send(Piece({3, 3, 9, {}}, "abc"));
  ASSERT_EQ(world_.at("a").events.size(), 1u);
  EXPECT_EQ(world_.at("a").events[0].incarnation, 2u);
  EXPECT_EQ(world_.at("a").events[0].message_kind, 9);
  EXPECT_EQ(world_.at("a").events[0].body, "abc");
  peer.Send(LinkFrameOf(LinkFrame::kPing));
  EXPECT_EQ(peer.Next(), static_cast<int>(LinkFrame::kPong));
}

TEST_F(HostileLinksTest, AnotherClustersServerIsRefused) {
  RawPeer peer(world_);
  peer.Connect();
  LinkHelloBody hello = peer.Hello();
  hello.cluster_id = 5;
  peer.Send(LinkFrameOf(LinkFrame::kHello, hello));
  EXPECT_EQ(peer.Refusal(), static_cast<uint32_t>(LinkRefusal::kCluster));
  EXPECT_TRUE(world_.HasLogged("names itself server b, b#"));
  EXPECT_TRUE(world_.HasLogged("is refused: it belongs to another cluster; correct"));
  world_.Run(absl::Seconds(1));
  peer.Step();
  EXPECT_TRUE(peer.ended());
}

TEST_F(HostileLinksTest, AnotherVersionIsRefused) {
  RawPeer peer(world_);
  peer.Connect();
  LinkHelloBody hello = peer.Hello();
  hello.version_min = kLinkVersionMax + 1;
  hello.version_max = kLinkVersionMax + 2;
  peer.Send(LinkFrameOf(LinkFrame::kHello, hello));
  EXPECT_EQ(peer.Refusal(), static_cast<uint32_t>(LinkRefusal::kVersion));
  EXPECT_TRUE(world_.HasLogged("it speaks versions 2 to 3 of the protocol of links"));
}

TEST_F(HostileLinksTest, AHelloForAnotherIncarnationIsRefused) {
  RawPeer peer(world_);
  peer.Connect();
  LinkHelloBody hello = peer.Hello();
  hello.expected_incarnation = 11;
  peer.Send(LinkFrameOf(LinkFrame::kHello, hello));
  EXPECT_EQ(peer.Refusal(), static_cast<uint32_t>(LinkRefusal::kIncarnation));
}

TEST_F(HostileLinksTest, AnUnknownServerIsRefusedAfterItsProof) {
  for (const bool known_name : {true, false}) {
    RawPeer peer(world_);
    peer.Connect();
    LinkHelloBody hello = peer.Hello();
    hello.incarnation = 22;
    if (!known_name) hello.server = LinkServerNameOf("d");
    peer.Send(LinkFrameOf(LinkFrame::kHello, hello));
    std::string challenge;
    ASSERT_EQ(peer.Next(&challenge), static_cast<int>(LinkFrame::kChallenge));
    peer.Send(LinkFrameOf(LinkFrame::kResponse, peer.Response(hello, challenge, 'k')));
    EXPECT_EQ(peer.Refusal(), static_cast<uint32_t>(LinkRefusal::kUnknownServer));
    peer.Send(Piece({3, 3, 9, {}}, "abc"));
  }
  ExpectNothingTaken();
}

TEST_F(HostileLinksTest, TheWrongKeyIsRefused) {
  RawPeer peer(world_);
  peer.Connect();
  peer.Send(LinkFrameOf(LinkFrame::kHello, peer.Hello()));
  std::string challenge;
  ASSERT_EQ(peer.Next(&challenge), static_cast<int>(LinkFrame::kChallenge));
  peer.Send(LinkFrameOf(LinkFrame::kResponse, peer.Response(peer.Hello(), challenge, 'x')));
  EXPECT_EQ(peer.Refusal(), static_cast<uint32_t>(LinkRefusal::kWrongKey));
  peer.Send(Piece({3, 3, 9, {}}, "abc"));
  ExpectNothingTaken();
  EXPECT_TRUE(world_.HasLogged("its proof is not made with this server's key; start both"));
}

TEST_F(HostileLinksTest, AReplayedProofIsRefused) {
  RawPeer peer(world_);
  peer.Connect();
  peer.Send(LinkFrameOf(LinkFrame::kHello, peer.Hello()));
  std::string challenge;
  ASSERT_EQ(peer.Next(&challenge), static_cast<int>(LinkFrame::kChallenge));
  const LinkResponseBody recorded = peer.Response(peer.Hello(), challenge, 'k');
  peer.Send(LinkFrameOf(LinkFrame::kResponse, recorded));
  ASSERT_EQ(peer.Next(), static_cast<int>(LinkFrame::kWelcome));
  peer.Connect();
  peer.Send(LinkFrameOf(LinkFrame::kHello, peer.Hello()));
  ASSERT_EQ(peer.Next(), static_cast<int>(LinkFrame::kChallenge));
  peer.Send(LinkFrameOf(LinkFrame::kResponse, recorded));
  EXPECT_EQ(peer.Refusal(), static_cast<uint32_t>(LinkRefusal::kWrongKey));
}

TEST_F(HostileLinksTest, AProofOfAnotherHelloIsRefused) {
  RawPeer peer(world_);
  peer.Connect();
  peer.Send(LinkFrameOf(LinkFrame::kHello, peer.Hello()));
  std::string challenge;
  ASSERT_EQ(peer.Next(&challenge), static_cast<int>(LinkFrame::kChallenge));
  LinkHelloBody other = peer.Hello();
  other.version_max = 3;
  peer.Send(LinkFrameOf(LinkFrame::kResponse, peer.Response(other, challenge, 'k')));
  EXPECT_EQ(peer.Refusal(), static_cast<uint32_t>(LinkRefusal::kWrongKey));
}

TEST_F(HostileLinksTest, NothingIsTakenBeforeTheProof) {
  for (const bool after_hello : {false, true}) {
    const uint64_t before = counters().bad_frames;
    RawPeer peer(world_);
    peer.Connect();
    if (after_hello) peer.Send(LinkFrameOf(LinkFrame::kHello, peer.Hello()));
    peer.Send(Piece({3, 3, 9, {}}, "abc"));
    EXPECT_TRUE(peer.ended());
    EXPECT_EQ(counters().bad_frames, before + 1);
  }
  ExpectNothingTaken();
}

TEST_F(HostileLinksTest, WrongPiecesEndTheirConnection) {
  ExpectBad({Piece({uint64_t{1} << 63, 3, 1, {}}, "abc")},
            "message_bytes of a piece is 9223372036854775808; expected at most 16777216");
  ExpectBad({Piece({3, 0xffffffff, 1, {}}, "abc")}, "piece_bytes of a piece is 4294967295");
  ExpectBad({Piece({100, 0, 1, {}}, "")}, "expected a part of what the message lacks, 100");
  ExpectBad({Piece({4, 3, 1, {}}, "abc"), Piece({5, 1, 1, {}}, "d")}, "under way, 4");
  ExpectBad({Piece({4, 3, 1, {}}, "abc"), Piece({4, 2, 1, {}}, "de")}, "lacks, 1");
  ExpectBad({LinkFrameOf(LinkFrame::kData)}, "a Data frame has no piece");
  ExpectBad({LinkFrameOf(LinkFrame::kPing) + "x"}, "length of a frame is 9; expected 8");
  ExpectBad({LinkFrameOf(LinkFrame::kPong)}, "a frame of type 8 after Welcome");
  ExpectBad({"x"}, "length of a frame is 1; expected at least 8");
  ExpectBad({std::string(24, 'V')}, "magic");
  ExpectNothingTaken();
}

TEST_F(HostileLinksTest, AMessageThatNeverEndsIsBounded) {
  RawPeer peer(world_);
  peer.Greet();
  const std::string bytes(8192, 'x');
  uint64_t sent = 0;
  while (sent < kLinkMessageBytesMax - bytes.size()) {
    peer.Send(Piece({kLinkMessageBytesMax, 8192, 1, {}}, bytes));
    sent += bytes.size();
  }
  ASSERT_FALSE(peer.ended());
  ExpectNothingTaken();
  peer.Send(Piece({kLinkMessageBytesMax, 8193, 1, {}}, bytes + "x"));
  EXPECT_TRUE(peer.ended());
}

TEST_F(HostileLinksTest, ShortFramesAreRefused) {
  RawPeer peer(world_);
  rdma::TransportOptions options = kLinkTransportOptions;
  options.frame_bytes_max = kLinkFrameBytesMin - 1;
  peer.Connect(options);
  EXPECT_TRUE(peer.ended());
  EXPECT_TRUE(world_.HasLogged("it takes frames of 511 bytes at most; 512 are the least"));
}

// A Pong waits for a credit, and answers all Pings that have arrived by then.
TEST_F(HostileLinksTest, APeerThatReadsNothingGetsItsPongLater) {
  RawPeer peer(world_);
  rdma::TransportOptions options = kLinkTransportOptions;
  options.receive_credits = 2;
  peer.Greet(options);
  for (int i = 0; i < 10; ++i) peer.SendUnread(LinkFrameOf(LinkFrame::kPing));
  peer.Step();
  ASSERT_FALSE(peer.ended());
  int pongs = 0;
  while (peer.Next() == static_cast<int>(LinkFrame::kPong)) ++pongs;
  EXPECT_EQ(pongs, 3) << "one for each of two credits, and one for the other Pings";
}

TEST_F(HostileLinksTest, APeerThatSaysNothingIsLeft) {
  RawPeer peer(world_);
  peer.Connect();
  EXPECT_TRUE(peer.connected());
  world_.Run(absl::Milliseconds(2900));
  peer.Step();
  EXPECT_FALSE(peer.ended());
  world_.Run(absl::Milliseconds(200));
  peer.Step();
  EXPECT_TRUE(peer.ended());
  EXPECT_TRUE(world_.HasLogged("it has not proved in time"));
}

TEST_F(HostileLinksTest, AFloodOfOneSourceLeavesRoomForServers) {
  std::vector<std::unique_ptr<RawPeer>> flood;
  size_t connected = 0;
  for (int i = 0; i < 300; ++i) {
    flood.push_back(std::make_unique<RawPeer>(world_, "attacker"));
    flood.back()->Connect();
    connected += flood.back()->connected() ? 1 : 0;
  }
  EXPECT_LE(world_.links("a").incoming(), 16u);
  EXPECT_EQ(connected, 16u);
  EXPECT_TRUE(world_.HasLogged("a connection of attacker#"));
  RawPeer peer(world_);
  peer.Greet();
  peer.Send(Piece({3, 3, 9, {}}, "abc"));
  EXPECT_EQ(world_.at("a").events.size(), 1u);
}

TEST_F(HostileLinksTest, AProvedPeerTakesNoRoomOfOthers) {
  RawPeer peer(world_);
  peer.Greet();
  std::vector<std::unique_ptr<RawPeer>> others;
  size_t connected = 0;
  for (int i = 0; i < 20; ++i) {
    others.push_back(std::make_unique<RawPeer>(world_));  // of the same source
    others.back()->Connect();
    connected += others.back()->connected() ? 1 : 0;
  }
  EXPECT_EQ(connected, 16u);
}

TEST_F(HostileLinksTest, ASourceThatHoldsDescriptorsIsRefused) {
  world_.network.FailRequests("attacker", absl::ResourceExhaustedError("it holds 9 descriptors"));
  RawPeer attacker(world_, "attacker"), peer(world_);
  attacker.Connect();
  EXPECT_FALSE(attacker.connected());
  EXPECT_EQ(counters().refused, 1u);
  EXPECT_TRUE(world_.HasLogged("links is refused: it holds 9 descriptors; end the processes"));
  peer.Greet();
}

TEST_F(HostileLinksTest, BadFramesAreLoggedAtMostOnceASecond) {
  const absl::Time begin = world_.now;
  const size_t before = world_.log.size();
  for (int i = 0; i < 200; ++i) {
    RawPeer peer(world_);
    peer.Connect();
    peer.Send("x");
  }
  const auto seconds = static_cast<size_t>(absl::ToInt64Seconds(world_.now - begin));
  EXPECT_EQ(counters().bad_frames, 200u);
  // Two more are of the servers that cannot be connected to.
  EXPECT_LE(world_.log.size() - before, seconds + 3);
}

TEST_F(HostileLinksTest, ANewConnectionTakesTheOldOnesPlace) {
  RawPeer old(world_), peer(world_);
  old.Greet();
  old.Send(Piece({4, 3, 9, {}}, "abc"));
  peer.Greet();
  old.Step();
  EXPECT_TRUE(old.ended());
  peer.Send(Piece({1, 1, 9, {}}, "d"));
  ASSERT_EQ(world_.at("a").events.size(), 1u);
  EXPECT_EQ(world_.at("a").events[0].body, "d");
}

TEST_F(HostileLinksTest, AnUnprovedPeerEndsNoOthersConnection) {
  RawPeer peer(world_), thief(world_, "attacker");
  peer.Greet();
  thief.Connect();
  thief.Send(LinkFrameOf(LinkFrame::kHello, thief.Hello()));
  std::string challenge;
  ASSERT_EQ(thief.Next(&challenge), static_cast<int>(LinkFrame::kChallenge));
  thief.Send(LinkFrameOf(LinkFrame::kResponse, thief.Response(thief.Hello(), challenge, 'x')));
  peer.Send(Piece({3, 3, 9, {}}, "abc"));
  EXPECT_FALSE(peer.ended());
  EXPECT_EQ(world_.at("a").events.size(), 1u);
}

// --- Servers without the same key

TEST(KeylessLinksTest, ServersWithDifferentKeysDoNotConnect) {
  LinkWorld world;
  world.Start("a", 1);
  LinkOptions options = world.Options();
  options.key = KeyOf('x');
  world.Start("b", 2, options);
  world.Run(absl::Seconds(3));
  EXPECT_TRUE(world.at("a").connected.empty());
  EXPECT_TRUE(world.at("b").connected.empty());
  EXPECT_TRUE(world.HasLogged("it does not accept this server's proof"));
}

}  // namespace
}  // namespace osprey
