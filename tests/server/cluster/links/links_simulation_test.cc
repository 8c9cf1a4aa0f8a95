// Three servers send each other messages of all lengths, while connections break, are cut and
// delayed, servers restart, and the configuration comes late. What must hold:
//
//   each message arrives whole, from the incarnation that sent it, to the one that it is for
//
//   within a link, messages arrive in order and none is missing but the last ones
//
//   once the faults end, all are connected, and what is sent then arrives
//
// A failure prints the seed.

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/cluster/links/link_world.h"
#include "tests/support/split_mix64.h"
#include "tests/support/volume.h"

namespace osprey {
namespace {

// The beginning of each message; random bytes follow, made from these fields.
struct Head {
  uint64_t from = 0;  // incarnations
  uint64_t to = 0;
  uint64_t link = 0;    // of the sender to that receiver: 1, 2 …
  uint64_t number = 0;  // in that link: 1, 2 …
  uint64_t bytes = 0;   // of the whole message
};

std::string BodyOf(const Head& head) {
  std::string body(head.bytes, '\0');
  SplitMix64 random(head.from * 1000003 + head.to * 10007 + head.link * 101 + head.number);
  const auto first = static_cast<char>(random.Next());
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(first + i * 31 + (i >> 8));
  std::memcpy(body.data(), &head, std::min(sizeof(head), body.size()));
  return body;
}

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed), world_(seed) {
    for (const char* const name : kNames) world_.Start(name, ++last_incarnation_);
  }

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      Fault();
      for (const char* const name : kNames) SendSome(name);
      world_.Step(absl::Microseconds(200 + random_.Below(4000)));
      Take();
    }
    End();
  }

  uint64_t received_ = 0;
  uint64_t received_long_ = 0;
  uint64_t links_ = 0;

 private:
  static constexpr const char* kNames[] = {"a", "b", "c"};
  using Pair = std::pair<uint64_t, uint64_t>;  // sender, receiver

  std::string Any() { return kNames[random_.Below(std::size(kNames))]; }

  void Fault() {
    if (random_.Below(1000) >= 20) return;
    const std::vector<rdma::ConnectionId> connections = world_.Connections();
    const rdma::ConnectionId id = connections.empty()
                                      ? rdma::ConnectionId::kNone
                                      : connections[random_.Below(connections.size())];
    switch (random_.Below(8)) {
      case 0:
      case 1:
        return world_.network.Break(id, random_.Chance(50));
      case 2:
        return world_.network.Cut(id);
      case 3:
      case 4:
        held_.push_back(id);
        return world_.network.HoldFrames(id, true);
      case 5:
      case 6:
        Release();
        return;
      default:
        return Restart();
    }
  }

  void Release() {
    for (const rdma::ConnectionId id : held_) world_.network.HoldFrames(id, false);
    held_.clear();
  }

  // The configuration reaches each of the others now, or later.
  void Restart() {
    const std::string name = Any();
    if (random_.Chance(50)) {
      LinkPeers peers = world_.peers();
      peers.erase(name);
      for (const char* const other : kNames)
        if (other != name) world_.links(other).SetPeers(peers);
      return;  // until the next Restart
    }
    world_.Start(name, ++last_incarnation_);
  }

  void SendSome(const std::string& name) {
    const LinkWorld::Server& server = world_.at(name);
    for (const uint64_t to : server.connected) {
      if (!random_.Chance(30)) continue;
      for (uint64_t left = 1 + random_.Below(4); left > 0; --left) {
        // A link that has ended since the last step, or is full, takes none.
        const uint64_t room = world_.links(name).RoomFor(to);
        if (room < 16 << 10) break;
        const auto times = server.times.find(to);
        Head head = {server.incarnation, to, times->second, 0, Length(room)};
        head.number = ++sent_[{head.from, to}][head.link];
        ASSERT_TRUE(
            world_.links(name).Send(to, static_cast<uint8_t>(head.number), BodyOf(head)).ok());
      }
    }
  }

  uint64_t Length(uint64_t room) {
    if (random_.Below(1000) == 0)
      return std::min<uint64_t>(room, sizeof(Head) + random_.Below(8 << 20));
    if (random_.Chance(3)) return std::min<uint64_t>(room, sizeof(Head) + random_.Below(100000));
    return sizeof(Head) + random_.Below(400);
  }

  void Take() {
    for (const char* const name : kNames) {
      LinkWorld::Server& server = world_.at(name);
      for (const LinkEvent& event : server.events) TakeMessage(server, event);
      server.events.clear();
    }
  }

  void TakeMessage(const LinkWorld::Server& server, const LinkEvent& event) {
    Head head;
    ASSERT_GE(event.body.size(), sizeof(head));
    std::memcpy(&head, event.body.data(), sizeof(head));
    ASSERT_EQ(head.from, event.incarnation);
    ASSERT_EQ(head.to, server.incarnation);
    ASSERT_EQ(head.bytes, event.body.size());
    ASSERT_TRUE(event.body == BodyOf(head));
    ASSERT_EQ(event.message_kind, static_cast<uint8_t>(head.number));
    auto& [link, number] = last_[{head.from, head.to}];
    if (head.link != link) {
      ASSERT_GT(head.link, link);
      link = head.link;
      number = 0;
      ++links_;
    }
    ASSERT_EQ(head.number, ++number);
    ++received_;
    received_long_ += head.bytes > 1 << 20 ? 1 : 0;
  }

  void End() {
    Release();
    world_.Configure();
    ASSERT_TRUE(world_.Until([&] { return world_.AllConnected(); }, absl::Seconds(8)));
    world_.Run(absl::Milliseconds(1200));  // links that were cut end, and come back
    ASSERT_TRUE(world_.Until([&] { return world_.AllConnected(); }, absl::Seconds(8)));
    Take();
    const auto all_arrived = [&] {
      Take();
      for (const char* const name : kNames) {
        const LinkWorld::Server& server = world_.at(name);
        for (const uint64_t to : server.connected) {
          const uint64_t link = server.times.at(to);
          const uint64_t sent = sent_[{server.incarnation, to}][link];
          if (sent > 0 && last_[{server.incarnation, to}] != Pair(link, sent)) return false;
        }
      }
      return true;
    };
    for (const char* const name : kNames) SendSome(name);
    EXPECT_TRUE(world_.Until(all_arrived, absl::Seconds(8)));
    // One connection for each link, of two ends, and what was left is gone.
    EXPECT_EQ(world_.network.connections(), 12u);
  }

  SplitMix64 random_;
  LinkWorld world_;
  uint64_t last_incarnation_ = 0;
  std::vector<rdma::ConnectionId> held_;
  std::map<Pair, std::map<uint64_t, uint64_t>> sent_;  // of each link
  std::map<Pair, Pair> last_;                          // received: link, number
};

TEST(LinksSimulationTest, NothingIsLostWithinALink) {
  uint64_t received = 0, received_long = 0, links = 0;
  for (uint64_t seed = 1; seed <= 16 / kVolumeParts; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulation simulation(seed);
    simulation.Run(1200);
    if (HasFailure()) break;
    received += simulation.received_;
    received_long += simulation.received_long_;
    links += simulation.links_;
  }
  EXPECT_GT(received, 20000u / kVolumeParts);
  EXPECT_GT(received_long, 10u / kVolumeParts);
  EXPECT_GT(links, 110u / kVolumeParts);
}

}  // namespace
}  // namespace osprey
