#include "server/cluster/configuration/placement.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/split_mix64.h"
#include "tests/support/volume.h"

namespace osprey {
namespace {

using Ids = std::vector<std::string>;

PlacementView View(uint32_t replicas, std::map<std::string, PlacementServer> servers,
                   size_t shards) {
  PlacementView view;
  view.replicas = replicas;
  view.servers = std::move(servers);
  view.shards.resize(shards);
  return view;
}

TEST(MissingCopiesTest, TheFirstServerBeginsAsManyShardsAsItHasSlots) {
  const PlacementView view = View(2, {{"a", {.slots = 3, .zone = ""}}}, 4);
  EXPECT_EQ(MissingCopies(view), (std::vector<Ids>{{"a"}, {"a"}, {"a"}, {}}));
}

TEST(MissingCopiesTest, ShardsWithoutACopyComeBeforeSecondCopies) {
  PlacementView view =
      View(2, {{"a", {.slots = 2, .zone = ""}}, {"b", {.slots = 2, .zone = ""}}}, 4);
  view.shards[0] = {.primary = "a", .members = {"a"}};
  view.shards[1] = {.primary = "a", .members = {"a"}};
  EXPECT_EQ(MissingCopies(view), (std::vector<Ids>{{}, {}, {"b"}, {"b"}}));
}

TEST(MissingCopiesTest, CopiesGoToTheServerWithTheMostFreeSlots) {
  PlacementView view = View(2,
                            {{"a", {.slots = 4, .zone = ""}},
                             {"b", {.slots = 2, .zone = ""}},
                             {"c", {.slots = 3, .zone = ""}}},
                            2);
  view.shards[0] = {.primary = "a", .members = {"a"}};
  view.shards[1] = {.primary = "a", .members = {"a"}};
  EXPECT_EQ(MissingCopies(view), (std::vector<Ids>{{"c"}, {"b"}}));
}

TEST(MissingCopiesTest, CopiesGoToOtherZonesFirst) {
  PlacementView view = View(3,
                            {{"a", {.slots = 9, .zone = "one"}},
                             {"b", {.slots = 9, .zone = "one"}},
                             {"c", {.slots = 1, .zone = "two"}}},
                            1);
  view.shards[0] = {.primary = "a", .members = {"a"}};
  EXPECT_EQ(MissingCopies(view), (std::vector<Ids>{{"c", "b"}}));
}

TEST(MissingCopiesTest, MembersThatHaveEndedAreMissing) {
  PlacementView view =
      View(2, {{"a", {.slots = 2, .zone = ""}}, {"c", {.slots = 2, .zone = ""}}}, 2);
  view.shards[0] = {.primary = "a", .members = {"a", "b"}};
  view.shards[1] = {.primary = "b", .members = {"b"}};  // lost: no server can join it
  EXPECT_EQ(MissingCopies(view), (std::vector<Ids>{{"c"}, {}}));
}

TEST(MissingCopiesTest, ACopyThatMovesIsGivenToItsServer) {
  PlacementView view = View(2,
                            {{"a", {.slots = 2, .zone = ""}},
                             {"b", {.slots = 2, .zone = ""}},
                             {"c", {.slots = 1, .zone = ""}},
                             {"d", {.slots = 9, .zone = ""}}},
                            2);
  view.shards[0] = {.move = ShardMove{"a", "c"}, .primary = "a", .members = {"a", "b"}};
  view.shards[1] = {.primary = "a", .members = {"a"}};
  EXPECT_EQ(MissingCopies(view), (std::vector<Ids>{{"c"}, {"d"}}));
  view.servers["c"].slots = 0;
  EXPECT_EQ(MissingCopies(view), (std::vector<Ids>{{}, {"d"}})) << "it waits for room";
  view.servers["c"].slots = 1;
  view.shards[0].members.push_back("c");
  EXPECT_EQ(MissingCopies(view), (std::vector<Ids>{{}, {"d"}}));
}

TEST(NextReliefTest, ACopyMovesWhereTheServersWithRoomHaveTheShard) {
  PlacementView view = View(2,
                            {{"a", {.slots = 3, .zone = ""}},
                             {"b", {.slots = 3, .zone = ""}},
                             {"c", {.slots = 3, .zone = ""}}},
                            4);
  for (size_t i = 0; i < 3; ++i) view.shards[i] = {.primary = "b", .members = {"b", "c"}};
  view.shards[3] = {.primary = "a", .members = {"a"}};
  EXPECT_EQ(NextRelief(view), (PlacedMove{0, {"b", "a"}}));
  view.shards[0].move = ShardMove{"b", "a"};
  EXPECT_EQ(NextRelief(view), std::nullopt) << "it is under way";
  view.shards[0] = {.primary = "c", .members = {"c", "a"}};
  EXPECT_EQ(NextRelief(view), std::nullopt) << "b has room now";
  EXPECT_EQ(MissingCopies(view), (std::vector<Ids>{{}, {}, {}, {"b"}}));
}

// *Else* a copy of shard 1 moves between e and f for ever.
TEST(NextReliefTest, AMoveThatWaitsForRoomIsNoMissingCopy) {
  PlacementView view = View(2,
                            {{"a", {.slots = 4, .zone = ""}},
                             {"b", {.slots = 2, .zone = ""}},
                             {"d", {.slots = 1, .zone = ""}},
                             {"e", {.slots = 1, .zone = ""}},
                             {"f", {.slots = 1, .zone = ""}}},
                            4);
  view.shards[0] = {.move = ShardMove{"a", "d"}, .primary = "a", .members = {"a", "b"}};
  view.shards[1] = {.primary = "a", .members = {"a", "f"}};
  view.shards[2] = {.primary = "a", .members = {"a", "d"}};
  view.shards[3] = {.primary = "b", .members = {"b", "a"}};
  EXPECT_EQ(NextRelief(view), std::nullopt);
}

TEST(IsMoveStuckTest, AMoveEndsWhereItsServerHasNoRoomLeft) {
  PlacementView view = View(2,
                            {{"a", {.slots = 2, .zone = ""}},
                             {"b", {.slots = 2, .zone = ""}},
                             {"c", {.slots = 1, .zone = ""}}},
                            2);
  view.shards[0] = {.move = ShardMove{"a", "c"}, .primary = "a", .members = {"a", "b"}};
  view.shards[1] = {.primary = "a", .members = {"a"}};
  EXPECT_FALSE(IsMoveStuck(view, 0));
  EXPECT_FALSE(IsMoveStuck(view, 1));
  view.shards[1].members.push_back("c");
  EXPECT_TRUE(IsMoveStuck(view, 0));
  view.shards[1].move = ShardMove{"c", "b"};
  EXPECT_FALSE(IsMoveStuck(view, 0)) << "c gets room";
  view.shards[1].move.reset();
  view.servers["c"].is_away = true;
  EXPECT_FALSE(IsMoveStuck(view, 0)) << "it ends with its server";
}

TEST(IsMoveStuckTest, MovesThatWaitForEachOtherEnd) {
  PlacementView view = View(2,
                            {{"a", {.slots = 2, .zone = ""}},
                             {"b", {.slots = 2, .zone = ""}},
                             {"c", {.slots = 2, .zone = ""}},
                             {"d", {.slots = 1, .zone = ""}}},
                            3);
  view.shards[0] = {.move = ShardMove{"a", "c"}, .primary = "a", .members = {"a", "b"}};
  view.shards[1] = {.move = ShardMove{"b", "a"}, .primary = "b", .members = {"b", "c"}};
  view.shards[2] = {.move = ShardMove{"c", "b"}, .primary = "c", .members = {"c", "a"}};
  for (uint32_t shard = 0; shard < 3; ++shard) EXPECT_TRUE(IsMoveStuck(view, shard)) << shard;
  view.shards[2].move = ShardMove{"c", "d"};
  for (uint32_t shard = 0; shard < 3; ++shard) EXPECT_FALSE(IsMoveStuck(view, shard)) << shard;
  view.servers["d"].slots = 0;
  for (uint32_t shard = 0; shard < 3; ++shard) EXPECT_TRUE(IsMoveStuck(view, shard)) << shard;
  view.shards[2].members.push_back("d");
  EXPECT_FALSE(IsMoveStuck(view, 0)) << "the last step makes room at c";
}

TEST(IsMoveStuckTest, AMoveMayWaitForItsTurn) {
  PlacementView view = View(2,
                            {{"a", {.slots = 2, .zone = ""}},
                             {"b", {.slots = 2, .zone = ""}},
                             {"c", {.slots = 2, .zone = ""}}},
                            2);
  for (PlacementShard& shard : view.shards)
    shard = {.move = ShardMove{"a", "c"}, .primary = "a", .members = {"a", "b"}};
  EXPECT_EQ(MissingCopies(view), (std::vector<Ids>{{"c"}, {}})) << "one at a time";
  EXPECT_FALSE(IsMoveStuck(view, 1));
  view.servers["c"].slots = 1;
  EXPECT_FALSE(IsMoveStuck(view, 0));
  EXPECT_TRUE(IsMoveStuck(view, 1));
}

TEST(IsMoveStuckTest, AMoveEndsWhereItsCopyIsNeededAndNoOtherServerHasRoom) {
  PlacementView view = View(2,
                            {{"a", {.slots = 2, .zone = ""}},
                             {"b", {.slots = 1, .zone = ""}},
                             {"c", {.slots = 2, .zone = ""}}},
                            2);
  // A copy was lost before c had joined.
  view.shards[0] = {.move = ShardMove{"a", "c"}, .primary = "a", .members = {"a", "c"}};
  view.shards[1] = {.primary = "a", .members = {"a", "b"}};
  EXPECT_TRUE(IsMoveStuck(view, 0));
  view.servers["b"].slots = 2;
  EXPECT_FALSE(IsMoveStuck(view, 0)) << "b joins";
  view.servers["b"].slots = 1;
  view.shards[0].members.push_back("b");
  EXPECT_FALSE(IsMoveStuck(view, 0)) << "the last step is left";
}

TEST(MissingCopiesTest, CopiesOfAServerThatRestartsWaitForIt) {
  PlacementView view = View(2,
                            {{"a", {.slots = 2, .zone = ""}},
                             {"b", {.slots = 2, .zone = "", .is_away = true}},
                             {"c", {.slots = 9, .zone = ""}}},
                            2);
  view.shards[0] = {.primary = "a", .members = {"a"}};
  view.shards[1] = {.primary = "a", .members = {"a", "b"}};
  EXPECT_EQ(MissingCopies(view), (std::vector<Ids>{{"b"}, {}}));
  EXPECT_EQ(NextRelief(view), std::nullopt);
  view.min_in_sync = 2;
  EXPECT_EQ(MissingCopies(view), (std::vector<Ids>{{"c"}, {"c"}})) << "writes do not wait";
}

PlacementView RandomView(SplitMix64& random) {
  PlacementView view;
  view.replicas = static_cast<uint32_t>(1 + random.Below(4));
  const uint64_t servers = 1 + random.Below(8);
  for (uint64_t i = 0; i < servers; ++i) {
    view.servers[absl::StrCat("s", i)] = {.slots = static_cast<uint32_t>(random.Below(12)),
                                          .zone = absl::StrCat(random.Below(3))};
  }
  view.shards.resize(size_t{1} << random.Below(5));
  return view;
}

// What the servers do: each joins what is missing to it, in any order and with other changes between.
void JoinSome(PlacementView& view, SplitMix64& random) {
  const std::vector<Ids> missing = MissingCopies(view);
  for (size_t i = 0; i < missing.size(); ++i) {
    PlacementShard& shard = view.shards[i];
    for (const std::string& id : missing[i]) {
      if (random.Chance(50)) continue;
      if (shard.members.empty()) shard.primary = id;
      shard.members.push_back(id);
    }
  }
}

std::map<std::string, uint32_t> Loads(const PlacementView& view) {
  std::map<std::string, uint32_t> loads;
  for (const PlacementShard& shard : view.shards) {
    for (const std::string& id : shard.members) ++loads[id];
  }
  return loads;
}

// As an operator and servers do: a copy that moves joins, and then the other leaves.
void CompleteMove(PlacementView& view, const PlacedMove& move) {
  PlacementShard& shard = view.shards[move.shard];
  shard.move = move.move;
  const std::vector<Ids> missing = MissingCopies(view);
  ASSERT_EQ(missing[move.shard], Ids{move.move.to});
  shard.members.push_back(move.move.to);
  std::erase(shard.members, move.move.from);
  shard.move.reset();
  if (shard.primary == move.move.from) shard.primary = move.move.to;
}

// Copies that could still be placed: a server with a free slot that lacks a shard with a missing copy.
bool HasRoom(const PlacementView& view) {
  const std::map<std::string, uint32_t> loads = Loads(view);
  for (const PlacementShard& shard : view.shards) {
    if (shard.members.size() >= view.replicas) continue;
    for (const auto& [id, server] : view.servers) {
      const auto load = loads.find(id);
      const uint32_t taken = load == loads.end() ? 0 : load->second;
      if (taken < server.slots &&
          std::find(shard.members.begin(), shard.members.end(), id) == shard.members.end())
        return true;
    }
  }
  return false;
}

TEST(MissingCopiesTest, FillsWhateverThereIsAndNeverMore) {
  SplitMix64 random(1);
  for (int world = 0; world < 2000 / kVolumeParts; ++world) {
    PlacementView view = RandomView(random);
    for (int step = 0; step < 60; ++step) JoinSome(view, random);
    EXPECT_FALSE(HasRoom(view)) << "world " << world;
    for (const auto& [id, load] : Loads(view)) EXPECT_LE(load, view.servers[id].slots);
    size_t least = view.replicas, most = 0;
    for (const PlacementShard& shard : view.shards) {
      EXPECT_LE(shard.members.size(), view.replicas);
      EXPECT_EQ(std::set<std::string>(shard.members.begin(), shard.members.end()).size(),
                shard.members.size());
      least = std::min(least, shard.members.size());
      most = std::max(most, shard.members.size());
    }
    // No shard is without a copy because of another one's second.
    EXPECT_TRUE(least > 0 || most <= 1) << "world " << world;
  }
}

// Whether hand-overs lead from a server to one with at least two primaries fewer, by exhaustion.
bool IsUnbalanced(const PlacementView& view) {
  std::map<std::string, uint64_t> primaries;
  std::map<std::string, std::set<std::string>> reached;
  for (const auto& [id, server] : view.servers) {
    primaries[id] = 0;
    reached[id] = {id};
  }
  for (const PlacementShard& shard : view.shards) {
    if (!shard.primary.empty()) ++primaries[shard.primary];
  }
  const size_t copies = std::min<size_t>(view.replicas, view.servers.size());
  for (size_t round = 0; round < view.servers.size(); ++round) {
    for (auto& [id, places] : reached) {
      for (const PlacementShard& shard : view.shards) {
        if (shard.members.size() < copies || !places.contains(shard.primary)) continue;
        places.insert(shard.members.begin(), shard.members.end());
      }
    }
  }
  for (const auto& [id, places] : reached) {
    for (const std::string& other : places) {
      if (primaries[other] + 2 <= primaries[id]) return true;
    }
  }
  return false;
}

// Where the slots suffice: as many as copies, of which no server can have two of one shard.
TEST(NextReliefTest, AllCopiesFindRoom) {
  SplitMix64 random(3);
  constexpr int kWorlds = 3000 / kVolumeParts;
  int reliefs = 0;
  for (int world = 0; world < kWorlds; ++world) {
    PlacementView view = RandomView(random);
    while (view.servers.size() < view.replicas)
      view.servers[absl::StrCat("t", view.servers.size())] = {.slots = 1, .zone = ""};
    // Just enough, in whatever shares.
    size_t slots = 0;
    for (auto& [id, server] : view.servers) {
      server.slots = std::min<uint32_t>(server.slots, static_cast<uint32_t>(view.shards.size()));
      slots += server.slots;
    }
    for (const size_t copies = view.shards.size() * view.replicas; slots < copies;) {
      for (auto& [id, server] : view.servers) {
        if (slots < copies && server.slots < view.shards.size() && random.Chance(50)) {
          ++server.slots;
          ++slots;
        }
      }
    }
    for (int step = 0; step < 200; ++step) {
      JoinSome(view, random);
      if (step % 10 != 9) continue;
      for (int moves = 0; moves < 8; ++moves) {
        const std::optional<PlacedMove> relief = NextRelief(view);
        if (!relief.has_value()) break;
        ++reliefs;
        ASSERT_NO_FATAL_FAILURE(CompleteMove(view, *relief)) << "world " << world;
        JoinSome(view, random);
      }
    }
    for (const PlacementShard& shard : view.shards)
      ASSERT_EQ(shard.members.size(), view.replicas) << "world " << world;
    for (const auto& [id, load] : Loads(view)) ASSERT_LE(load, view.servers[id].slots);
  }
  EXPECT_GT(reliefs, kWorlds / 30);
}

TEST(NextHandOverTest, EndsInBalance) {
  SplitMix64 random(2);
  for (int world = 0; world < 2000 / kVolumeParts; ++world) {
    PlacementView view = RandomView(random);
    for (int step = 0; step < 20; ++step) JoinSome(view, random);
    int hand_overs = 0;
    while (const std::optional<PlacedHandOver> next = NextHandOver(view)) {
      ASSERT_LT(++hand_overs, 100) << "world " << world;
      PlacementShard& shard = view.shards[next->shard];
      ASSERT_EQ(shard.primary, next->from);
      ASSERT_NE(std::find(shard.members.begin(), shard.members.end(), next->to),
                shard.members.end());
      ASSERT_GT(next->primaries_from, next->primaries_to);
      shard.primary = next->to;
    }
    EXPECT_FALSE(IsUnbalanced(view)) << "world " << world;
  }
}

TEST(NextHandOverTest, WaitsForMissingCopies) {
  PlacementView view =
      View(2, {{"a", {.slots = 3, .zone = ""}}, {"b", {.slots = 3, .zone = ""}}}, 3);
  for (PlacementShard& shard : view.shards) shard = {.primary = "a", .members = {"a"}};
  EXPECT_EQ(NextHandOver(view), std::nullopt);
  view.shards[1].members.push_back("b");
  EXPECT_EQ(NextHandOver(view), (PlacedHandOver{1, "a", "b", 3, 0}));
  view.shards[1].primary = "b";
  view.shards[2].members.push_back("b");
  EXPECT_EQ(NextHandOver(view), std::nullopt) << "2 and 1";
}

TEST(NextHandOverTest, LeadsOverOtherServers) {
  PlacementView view = View(2,
                            {{"a", {.slots = 2, .zone = ""}},
                             {"b", {.slots = 2, .zone = ""}},
                             {"c", {.slots = 2, .zone = ""}}},
                            3);
  view.shards[0] = {.primary = "a", .members = {"a", "b"}};
  view.shards[1] = {.primary = "a", .members = {"b", "a"}};
  view.shards[2] = {.primary = "b", .members = {"b", "c"}};
  EXPECT_EQ(NextHandOver(view), (PlacedHandOver{2, "b", "c", 1, 0}));
  view.shards[2].primary = "c";
  EXPECT_EQ(NextHandOver(view), (PlacedHandOver{0, "a", "b", 2, 0}));
  view.shards[0].primary = "b";
  EXPECT_EQ(NextHandOver(view), std::nullopt);
}

TEST(HandOverPlanTest, AStepOnTheWayToOthersNeedsASecondLook) {
  PlacementView view = View(2,
                            {{"a", {.slots = 2, .zone = ""}},
                             {"b", {.slots = 2, .zone = ""}},
                             {"c", {.slots = 2, .zone = ""}}},
                            3);
  view.shards[0] = {.primary = "a", .members = {"a", "b"}};
  view.shards[1] = {.primary = "a", .members = {"b", "a"}};
  view.shards[2] = {.primary = "b", .members = {"b", "c"}};
  HandOverPlan plan;
  EXPECT_EQ(plan.Look(view), std::nullopt);
  PlacementView other = view;
  other.shards[2].members = {"b"};  // no way leads to c
  EXPECT_EQ(plan.Look(other), std::nullopt);
  EXPECT_EQ(plan.Look(view), std::nullopt) << "the look before was of something else";
  EXPECT_EQ(plan.Look(view), (PlacedHandOver{2, "b", "c", 1, 0}));
  view.shards[2].primary = "c";
  EXPECT_EQ(plan.Look(view), (PlacedHandOver{0, "a", "b", 2, 0})) << "of two fewer, at once";
}

TEST(NextHandOverTest, TheServerWithTheMostPrimariesComesFirst) {
  PlacementView view = View(2,
                            {{"a", {.slots = 9, .zone = ""}},
                             {"b", {.slots = 9, .zone = ""}},
                             {"c", {.slots = 9, .zone = ""}}},
                            5);
  for (size_t i = 0; i < 5; ++i) {
    const std::string primary = i < 2 ? "a" : "b";
    view.shards[i] = {.primary = primary, .members = {primary, "c"}};
  }
  EXPECT_EQ(NextHandOver(view), (PlacedHandOver{2, "b", "c", 3, 0}));
}

}  // namespace
}  // namespace osprey
