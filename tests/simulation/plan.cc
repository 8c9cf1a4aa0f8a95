#include "tests/simulation/plan.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "index/layout/hash.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/simulation/world.h"

namespace osprey {
namespace {

using Strings = std::vector<std::string>;

constexpr uint32_t kHome = 77;

// `count` keys of one home.
Strings KeysOfOneHome(size_t count) {
  static const Strings keys = index::KeysOfHome(kHome, 90, false, kSimulatedHashSeed);
  return {keys.begin(), keys.begin() + static_cast<ptrdiff_t>(std::min(count, keys.size()))};
}

// Keys that share windows, so that there are chains.
Strings CrowdedKeys(size_t count) {
  static const Strings crowded = [] {
    const Strings of_home = KeysOfOneHome(45);
    const Strings of_next = index::KeysOfHome(kHome + 1, 45, false, kSimulatedHashSeed);
    Strings keys;
    for (size_t i = 0; i < of_home.size(); ++i) {
      keys.push_back(of_home[i]);
      keys.push_back(of_next[i]);
    }
    return keys;
  }();
  return {crowded.begin(), crowded.begin() + static_cast<ptrdiff_t>(count)};
}

// Two keys that differ only in their items.
const Strings& Twins() {
  static const Strings twins = [] {
    std::map<std::pair<uint32_t, uint32_t>, std::string> seen;
    for (uint64_t i = 0;; ++i) {
      const std::string key = absl::StrCat("t", i);
      const index::KeyHash hash = index::HashKey(key, kSimulatedHashSeed);
      const auto [at, is_new] = seen.emplace(std::make_pair(hash.home(), hash.fingerprint()), key);
      if (!is_new) return Strings{at->second, key};
    }
  }();
  return twins;
}

void AddPlainKeys(Plan& plan, absl::string_view prefix, uint64_t count) {
  for (uint64_t i = 1; i <= count; ++i) plan.keys.push_back(absl::StrCat(prefix, i));
}
void AddKeys(Plan& plan, const Strings& keys) {
  plan.keys.insert(plan.keys.end(), keys.begin(), keys.end());
}

void DrawReads(Plan& plan, SplitMix64& rng) {
  const uint32_t pieces[] = {0, 1, 8, 16, 64};
  plan.piece_bytes = pieces[rng.Below(5)];
  plan.shuffle_pieces = rng.Chance(80);
  // About the same frequency for any piece length.
  plan.pieces_per_10k = plan.piece_bytes == 1 ? 100 : 400 + 100 * rng.Below(20);
  plan.stores_per_10k = rng.Chance(50) ? 100 * (1 + rng.Below(5)) : 1000 + 100 * rng.Below(50);
  if (rng.Chance(30)) plan.stalls_per_10k = plan.piece_bytes == 1 ? 1 : 10;
  if (rng.Chance(20)) plan.read_bytes_max = rng.Chance(50) ? 4096 : 8192;
}

void DrawMixture(Plan& plan, SplitMix64& rng) {
  const uint32_t bounds[] = {20, 60, 300, 3000, 20000};
  const uint32_t bound = bounds[rng.Below(5)];
  // Values of one size reuse each other's space.
  plan.value_bytes = {{rng.Chance(50) ? bound - 1 : 0, bound}};
  plan.partitions = rng.Chance(30) ? 2 : 1;
  if (rng.Chance(20)) plan.partitions = 4;
  plan.pollers = rng.Chance(25) ? 1 + static_cast<uint32_t>(rng.Below(3)) : 1;
  plan.region_bytes = uint64_t{256} << 10 << rng.Below(3);
  plan.faults_per_mille = rng.Chance(40) ? 0 : 1 + static_cast<uint32_t>(rng.Below(20));
  plan.split_percent = rng.Chance(40) ? 0 : index::kSplitPercent;
  if (rng.Chance(40)) {
    plan.ttl_percent = 33;
    plan.mix.expire = 6;
  }
  plan.server_dies = rng.Chance(30);
  plan.clients_die = rng.Chance(30);
  plan.needs_key = rng.Chance(20);
  plan.moves = rng.Chance(20);
  plan.evicts = rng.Chance(15);
  plan.nested_ns_max = rng.Chance(30) ? 20000 : 1;
  plan.deadline_ms_min = rng.Chance(10) ? 2 : 100;
  if (rng.Chance(30)) plan.whole_read_bytes_max = 64 + rng.Below(2000);
  if (rng.Chance(40)) plan.mix.get_into = plan.mix.put_from = 8;
  if (rng.Chance(30)) plan.mix.scan = 1;
  if (rng.Chance(30)) plan.mix.burst = 3;
  if (rng.Chance(50)) {
    AddKeys(plan, CrowdedKeys(20 + rng.Below(70)));
    plan.mix.remove = 1 + static_cast<uint32_t>(rng.Below(10));
  } else {
    const uint64_t most = rng.Chance(50) ? 2 : 7;
    AddPlainKeys(plan, "k", 1 + rng.Below(most));
  }
  if (rng.Chance(50)) AddKeys(plan, Twins());
  // Many keys that are rarely written, so that the table grows.
  if (rng.Chance(20)) AddPlainKeys(plan, "many", 200);
}

void DrawOneKey(Plan& plan, SplitMix64& rng) {
  AddPlainKeys(plan, "k", 1 + rng.Below(2));
  // Neither fits in the other's place; or both are too long to be rewritten in place.
  if (rng.Chance(80)) {
    plan.value_bytes = {{60, 64}, {300, 304}};
  } else {
    plan.value_bytes = {{1100, 1104}};
  }
  plan.grace_ms_max = 0;
  plan.split_percent = index::kSplitPercent;
  plan.clients = 3 + static_cast<int>(rng.Below(2));
  plan.cache_percent = 60;
  plan.stores_per_10k = 50;
  plan.first_words_per_10k = 1500;
  plan.long_nest_percent = 60;
  plan.mix = {.get = 60, .put = 22, .put_if_absent = 4, .remove = 12, .burst = 2};
  if (rng.Chance(50)) {
    // Long enough between two pieces of a READ for another client to get an answer.
    plan.piece_bytes = 64;
    plan.pieces_per_10k = 6000;
  }
}

void DrawTwins(Plan& plan, SplitMix64& rng) {
  AddKeys(plan, Twins());
  plan.value_bytes = {{1100, 1104}};
  plan.grace_ms_max = 0;
  plan.split_percent = index::kSplitPercent;
  plan.cache_percent = 0;
  plan.clients = 3;
  plan.slow_factor = 20;
  plan.piece_bytes = 0;
  plan.stores_per_10k = 20;
  plan.mix = {.get = 40, .put = 50, .remove = rng.Chance(50) ? 0u : 10u};
}

void DrawWindow(Plan& plan, SplitMix64& rng) {
  AddKeys(plan, KeysOfOneHome(3 + rng.Below(20)));
  plan.value_bytes = {{1, 20}, {50, 60}, {50, 60}};
  plan.cache_percent = 10;
  plan.grace_ms_max = 0;
  plan.split_percent = index::kSplitPercent;
  plan.piece_bytes = 64;
  plan.pieces_per_10k = 4000;
  plan.stores_per_10k = 200;
  plan.first_words_per_10k = 1500;
  plan.mix = {.get = 50, .put = 30, .remove = 16, .append = 4};
}

void DrawChain(Plan& plan, SplitMix64& rng) {
  if (rng.Chance(70)) {
    AddKeys(plan, KeysOfOneHome(30 + rng.Below(8)));  // a few more than the window holds
  } else {
    AddKeys(plan, CrowdedKeys(40 + rng.Below(50)));
  }
  plan.value_bytes = {{40, 60}};
  plan.grace_ms_max = 1;
  plan.split_percent = index::kSplitPercent;
  plan.hot_keys = plan.keys.size();
  plan.slow_factor = rng.Chance(50) ? 10 : 1;
  plan.cache_percent = 20;
  plan.stores_per_10k = 50;
  plan.first_words_per_10k = 1500;
  plan.long_nest_percent = 50;
  plan.mix = {.get = 60, .put = 34, .remove = 6};
}

void DrawMiddle(Plan& plan, SplitMix64& rng) {
  AddKeys(plan, KeysOfOneHome(70 + rng.Below(12)));
  plan.hot_keys = plan.keys.size();
  plan.first_in_order = true;
  plan.group = index::kLineWordsUsable;
  plan.value_bytes = {{50, 60}};
  plan.split_percent = index::kSplitPercent;
  plan.clients = 3;
  plan.slow_factor = 10 + static_cast<uint32_t>(rng.Below(40));
  plan.cache_percent = 0;
  plan.stores_per_10k = 50;
  plan.mix = {.get = 90, .put = 10};
}

void DrawGrowth(Plan& plan, SplitMix64& rng) {
  AddKeys(plan, KeysOfOneHome(20));
  AddPlainKeys(plan, "k", 30);
  plan.hot_keys = 12;
  plan.region_bytes = uint64_t{1} << 20 << rng.Below(2);
  plan.value_bytes = {{1, 60}};
  plan.split_percent = 0;
  plan.moves = rng.Chance(20);
  plan.faults_per_mille = 10;
  plan.server_dies = true;
  plan.cache_percent = 10;
  plan.backoff_us = 100;
  plan.piece_bytes = 64;
  plan.shuffle_pieces = rng.Chance(50);
  plan.pieces_per_10k = 5000;
  plan.stores_per_10k = rng.Chance(50) ? 5 : 50;
  // So that segments split during READs.
  plan.server_percent = rng.Chance(50) ? 4 : 50;
  plan.nested_server_percent = 90;
  plan.mix = {.get = 60, .put = 25, .remove = 15};
}

void DrawExpiry(Plan& plan, SplitMix64& rng) {
  AddPlainKeys(plan, "k", 1 + rng.Below(4));
  plan.value_bytes = {{1, 60}};
  plan.split_percent = index::kSplitPercent;
  plan.clients = 3 + static_cast<int>(rng.Below(2));
  plan.slow_factor = rng.Chance(50) ? 30 : 1;
  plan.stores_per_10k = 100;
  plan.first_words_per_10k = 2500;
  plan.nested_ns_max = rng.Chance(50) ? 30000 : 300000;
  plan.step_ns_max = rng.Chance(50) ? 300 : 3000;
  plan.rare_step_ns_max = 10 * plan.step_ns_max;
  plan.jump_ns_max = 500000;
  plan.ttl_percent = 80;
  plan.ttl_us_max = rng.Chance(50) ? 500 : 3000;
  plan.mix = {.get = 50,
              .put = 10,
              .put_if_absent = 5,
              .put_if_version = 10,
              .remove = 3,
              .remove_if_version = 2,
              .increment = 2,
              .append = 2,
              .expire = 16};
}

void DrawMoves(Plan& plan, SplitMix64& rng) {
  AddPlainKeys(plan, "k", 2 + rng.Below(6));
  plan.value_bytes = {{100, 4000}};
  plan.moves = true;
  plan.moves_bytes = 64 + rng.Below(1000);
  plan.grace_ms_max = 1;
  plan.split_percent = index::kSplitPercent;
  plan.stores_per_10k = rng.Chance(50) ? 100 : 1000;
  plan.mix.expire = 5;
}

void DrawPieces(Plan& plan, SplitMix64& rng) {
  AddPlainKeys(plan, "k", 1 + rng.Below(3));
  plan.whole_read_bytes_max = 64 + rng.Below(500);
  plan.read_bytes_max = 4096;
  plan.value_bytes = {{600, 900}, {2000, 6000}};
  plan.grace_ms_max = 0;
  plan.split_percent = index::kSplitPercent;
  plan.piece_bytes = 64;
  plan.pieces_per_10k = 1500;
  plan.stores_per_10k = 100;
  plan.moves = rng.Chance(30);
  plan.mix = {.get = 30, .put = 25, .remove = 3, .append = 2, .get_into = 25, .put_from = 15};
}

void DrawEviction(Plan& plan, SplitMix64& rng) {
  AddPlainKeys(plan, "k", 60 + rng.Below(100));
  plan.region_bytes = 256 << 10;
  plan.value_bytes = {{1000, 6000}};
  plan.split_percent = index::kSplitPercent;
  plan.evicts = true;
  plan.grace_ms_max = 1;
  plan.stores_per_10k = 20;
  plan.mix.touch = 4;
  plan.mix.scan = 1;
}

void DrawScans(Plan& plan, SplitMix64& rng) {
  if (rng.Chance(70)) {
    AddKeys(plan, KeysOfOneHome(30 + rng.Below(8)));
    plan.value_bytes = {{40, 60}};
  } else {
    AddKeys(plan, CrowdedKeys(60 + rng.Below(30)));
    plan.value_bytes = {{1, 60}};
  }
  plan.hot_keys = plan.keys.size();
  plan.split_percent = rng.Chance(30) ? 0 : index::kSplitPercent;
  plan.region_bytes = 512 << 10;
  plan.clients = 3;
  plan.slow_factor = rng.Chance(70) ? 5 : 1;
  plan.stores_per_10k = 20;
  plan.moves = rng.Chance(20);
  plan.mix = {.get = 10, .put = 60, .remove = 10, .scan = 20};
}

void DrawLives(Plan& plan, SplitMix64& rng) {
  AddPlainKeys(plan, "k", 1 + rng.Below(6));
  plan.value_bytes = {{1, 60}};
  plan.split_percent = index::kSplitPercent;
  plan.server_dies = true;
  plan.deaths_percent = 30;
  // Soon enough for READs of an earlier incarnation.
  plan.back_ms_max = rng.Chance(70) ? 1 : 300;
  plan.haunts = true;
  plan.first_reads_only = rng.Chance(70);
  plan.seed_of_each_life = true;
  plan.needs_key = rng.Chance(20);
  plan.faults_per_mille = 10;
  plan.clients = 3;
  plan.slow_factor = 5;
  plan.cache_percent = 20;
  plan.backoff_us = 100;
  plan.mix = {.get = 60, .put = 38, .remove = 2};
}

void DrawForgery(Plan& plan, SplitMix64& rng) {
  // Keys of 16 bytes, so that a record within a value lies where a record may.
  plan.keys = {"victim_of_forger", "forger_of_record"};
  if (rng.Chance(50)) plan.keys.push_back("second_forger___");
  plan.forges = true;
  plan.value_bytes = {{80, 80}};
  plan.grace_ms_max = 0;
  plan.split_percent = index::kSplitPercent;
  plan.cache_percent = 100;
  plan.clients = 3;
  plan.stores_per_10k = 5;
  plan.mix = {.get = 50, .put = 30, .remove = 20};
}

void DrawRepeats(Plan& plan, SplitMix64& rng) {
  AddPlainKeys(plan, "k", 1);
  plan.value_bytes = {{1100, 1100}};
  plan.distinct_values = 1 + static_cast<uint32_t>(rng.Below(2));
  plan.grace_ms_max = 0;
  plan.split_percent = index::kSplitPercent;
  plan.cache_percent = 100;
  plan.piece_bytes = 8;
  plan.shuffle_pieces = true;
  plan.pieces_per_10k = 100;
  plan.stores_per_10k = 100;
  plan.mix = {.get = 50, .put = 40, .put_if_version = 5, .remove = 5};
}

// A key is deleted, another one moves from the chain into its place, and the first is put again
// into its old item space. A scan's earlier READ of the window then seems to be whole.
void DrawScanRace(Plan& plan, SplitMix64& rng) {
  AddKeys(plan, KeysOfOneHome(28 + rng.Below(8)));
  plan.hot_keys = plan.keys.size();
  plan.first_in_order = true;
  plan.group = 1;
  plan.group_percent = 90;
  plan.value_bytes = {{50, 60}};
  plan.grace_ms_max = 0;
  plan.split_percent = index::kSplitPercent;
  plan.clients = 3;
  plan.slow_factor = 5 + static_cast<uint32_t>(rng.Below(30));
  plan.cache_percent = 0;
  plan.piece_bytes = 0;
  plan.stores_per_10k = 20;
  plan.mix = {.get = 20, .scan = 80};
}

}  // namespace

const char* NameOf(Aim aim) {
  switch (aim) {
    case Aim::kMixture:
      return "mixture";
    case Aim::kOneKey:
      return "one-key";
    case Aim::kTwins:
      return "twins";
    case Aim::kWindow:
      return "window";
    case Aim::kChain:
      return "chain";
    case Aim::kMiddle:
      return "middle";
    case Aim::kGrowth:
      return "growth";
    case Aim::kExpiry:
      return "expiry";
    case Aim::kMoves:
      return "moves";
    case Aim::kPieces:
      return "pieces";
    case Aim::kEviction:
      return "eviction";
    case Aim::kScans:
      return "scans";
    case Aim::kLives:
      return "lives";
    case Aim::kForgery:
      return "forgery";
    case Aim::kRepeats:
      return "repeats";
    case Aim::kScanRace:
      return "scan-race";
  }
  return "?";
}

Aim AimOf(uint64_t seed) {
  const uint64_t number = seed % 20;
  return number < kAims ? static_cast<Aim>(number) : Aim::kMixture;
}

Plan MakePlan(Aim aim, SplitMix64& rng) {
  Plan plan;
  plan.aim = aim;
  DrawReads(plan, rng);
  plan.clients = 2 + static_cast<int>(rng.Below(3));
  switch (aim) {
    case Aim::kMixture:
      DrawMixture(plan, rng);
      break;
    case Aim::kOneKey:
      DrawOneKey(plan, rng);
      break;
    case Aim::kTwins:
      DrawTwins(plan, rng);
      break;
    case Aim::kWindow:
      DrawWindow(plan, rng);
      break;
    case Aim::kChain:
      DrawChain(plan, rng);
      break;
    case Aim::kMiddle:
      DrawMiddle(plan, rng);
      break;
    case Aim::kGrowth:
      DrawGrowth(plan, rng);
      break;
    case Aim::kExpiry:
      DrawExpiry(plan, rng);
      break;
    case Aim::kMoves:
      DrawMoves(plan, rng);
      break;
    case Aim::kPieces:
      DrawPieces(plan, rng);
      break;
    case Aim::kEviction:
      DrawEviction(plan, rng);
      break;
    case Aim::kScans:
      DrawScans(plan, rng);
      break;
    case Aim::kLives:
      DrawLives(plan, rng);
      break;
    case Aim::kForgery:
      DrawForgery(plan, rng);
      break;
    case Aim::kRepeats:
      DrawRepeats(plan, rng);
      break;
    case Aim::kScanRace:
      DrawScanRace(plan, rng);
      break;
  }
  if (plan.pollers > 1 && plan.partitions == 1) plan.partitions = 2;
  if (plan.first_words_per_10k == 0)
    plan.first_words_per_10k = std::min<uint32_t>(4 * plan.stores_per_10k, 5000);
  plan.hot_keys = std::min<uint64_t>(plan.hot_keys, plan.keys.size());
  // (Other random numbers: so that the rest is what it would be without.)
  SplitMix64 more(SplitMix64(rng).Next());
  if (more.Chance(25)) plan.replays_per_10k = 100 + static_cast<uint32_t>(more.Below(900));
  plan.has_views = more.Chance(30);
  plan.merges = plan.split_percent == 0 && more.Chance(40);
  // The judge's work grows with the concurrent operations on one key.
  if (plan.keys.size() < 4) plan.depth_max = 2;
  return plan;
}

void MakeDurable(Plan& plan, SplitMix64& rng) {
  plan.durability = rng.Chance(60) ? Plan::Durability::kSync : Plan::Durability::kAsync;
  plan.checkpoint_log_bytes = uint64_t{4096} << rng.Below(5);
  plan.power_percent = rng.Chance(30) ? 100 : 50;
  plan.server_dies = true;
  plan.deaths_percent = 50;
  plan.faults_per_mille = std::max<uint32_t>(plan.faults_per_mille, 6);
  // Soon enough for clients that repeat a write.
  plan.back_ms_max = rng.Chance(70) ? 5 : 100;
  plan.backoff_us = 100;
  // A full table loads again only if its segments split as they ship. With 256 KiB, half of which is
  // the index's, 2 of 4000 seeds have a table that does not.
  plan.split_percent = index::kSplitPercent;
  plan.merges = false;
  if (!plan.evicts) plan.region_bytes = std::max<uint64_t>(plan.region_bytes, 512 << 10);
  // Values in pieces of the log, which clients' own buffers are too short for. They are READ whole,
  // since they have many bytes.
  const bool has_buffers = plan.mix.put_from + plan.mix.get_into > 0;
  if (!plan.evicts && !has_buffers && rng.Chance(15)) {
    plan.value_bytes.emplace_back((64 << 10) + 1, 100 << 10);
    plan.region_bytes = std::max<uint64_t>(plan.region_bytes, 2 << 20);
    plan.piece_bytes = 0;
  }
  plan.haunts = false;
  plan.seed_of_each_life = false;
  plan.mix.increment = std::max(plan.mix.increment, plan.mix.put / 4);
  plan.mix.append = std::max(plan.mix.append, plan.mix.put / 8);
  plan.mix.expire = std::max(plan.mix.expire, plan.mix.put / 8);
  plan.mix.flush = 1 + (plan.mix.put >= 24 ? 1 : 0);
}

}  // namespace osprey
