// One replica, group by group: room, order, damaged groups and chunks, and copies.

#include "server/cluster/table/table_replica.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/cluster/replication/test_hooks.h"
#include "server/cluster/table/copy_chunk.h"
#include "server/cluster/table/replicated_changes.h"
#include "server/cluster/table/table_copy.h"
#include "tests/index/index_test_util.h"
#include "tests/server/cluster/table/replica_fixture.h"
#include "tests/support/split_mix64.h"
#include "tests/support/volume.h"
#include "xxhash.h"

namespace osprey::server {
namespace {

using Fixture = ReplicaFixture;

// --- Groups ------------------------------------------------------------------------

TEST(TableReplicaTest, WritesOfOneKeyWaitTogether) {
  Fixture one;
  ASSERT_TRUE(one.Reserve({PutOf("k", "a", 1), PutOf("k", "bb", 2, kSecondNs)}).ok());
  ASSERT_TRUE(one.Reserve({KeyOf(EntryKind::kDelete, "k", 2), PutOf("k", "c", 4)}).ok());
  ASSERT_TRUE(one.Reserve({KeyOf(EntryKind::kExpire, "k", 4, 99 * kSecondNs)}).ok());
  EXPECT_EQ(one.ValueOf("k"), "absent");
  one.Apply();
  EXPECT_EQ(one.ValueOf("k"), absl::StrCat("bb 2 ", kSecondNs)) << "no replica judges the time";
  one.Apply();
  EXPECT_EQ(one.ValueOf("k"), "c 4 0");
  one.Apply();
  EXPECT_EQ(one.ValueOf("k"), absl::StrCat("c 4 ", 99 * kSecondNs));
}

TEST(TableReplicaTest, AnEvictionOfTheEarlierValueSparesTheLaterOne) {
  Fixture one;
  one.Make({PutOf("k", "old", 1)});
  one.Make({PutOf("k", "new", 2), KeyOf(EntryKind::kDelete, "k", 1)});
  EXPECT_EQ(one.ValueOf("k"), "new 2 0");
  active_mistake = ReplicationMistake::kDeletesNewer;
  one.Make({PutOf("k", "newer", 3), KeyOf(EntryKind::kDelete, "k", 2)});
  active_mistake = ReplicationMistake::kNone;
  EXPECT_EQ(one.ValueOf("k"), "absent");
}

TEST(TableReplicaTest, AReplacedTailLeavesNothing) {
  Fixture one;
  one.Make({PutOf("k", "a", 1)});
  ASSERT_TRUE(one.Reserve({KeyOf(EntryKind::kDelete, "k", 1)}).ok());
  ASSERT_TRUE(one.Reserve({PutOf("k", std::string(5000, 'b'), 2)}).ok());
  one.Release();
  one.Release();
  one.Make({PutOf("k", "c", 3)});
  EXPECT_EQ(one.ValueOf("k"), "c 3 0");
  one.replica->BeginClear();
  EXPECT_TRUE(one.replica->ClearSome());
  one.now += absl::Seconds(10);
  for (int i = 0; i < 100; ++i) (void)one.tables->Lock(0)->CompactStep(one.now);
  EXPECT_EQ(one.tables->stats().item_bytes, 0u);
}

TEST(TableReplicaTest, ManyKeysAreClearedInSteps) {
  Fixture one(64 << 20);
  constexpr int kKeys = 30'000;
  for (int i = 0; i < kKeys;) {
    std::vector<wal::Entry> puts;
    std::deque<std::string> keys;
    for (int n = 0; n < 1000; ++n, ++i)
      puts.push_back(PutOf(keys.emplace_back(absl::StrCat("k", i)), "v", i + 1));
    one.Make(puts);
  }
  ASSERT_EQ(one.tables->stats().keys, uint64_t{kKeys});
  one.replica->BeginClear();
  EXPECT_FALSE(one.replica->ClearSome());
  const uint64_t left = one.tables->stats().keys;
  EXPECT_GT(left, 0u);
  EXPECT_LE(left, 10'000u);
  EXPECT_TRUE(one.replica->is_clearing());
  EXPECT_TRUE(one.replica->ClearSome());
  EXPECT_EQ(one.tables->stats().keys, 0u);
}

TEST(TableReplicaTest, SessionsAndTheFloorSurviveATakeOver) {
  Fixture one;
  wal::Entry put = PutOf("k", "a", 10);
  put.client = 3;
  put.sequence = 8;
  wal::Entry deletion = KeyOf(EntryKind::kDelete, "k", 10);
  deletion.client = 3;
  deletion.sequence = 9;
  deletion.result.emplace().version = uint64_t{1} << 47;
  one.Make({SessionOf(EntryKind::kSessionBegin, 3), SessionOf(EntryKind::kSessionBegin, 4), put});
  one.Make({deletion, SessionOf(EntryKind::kSessionEnd, 4)});
  const std::vector<SessionImage> sessions = one.replica->TakeOver();
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].id, 3u);
  ASSERT_EQ(sessions[0].results.size(), 2u);
  EXPECT_EQ(sessions[0].results[0].second.version, 10u);
  const LockedTable table = one.tables->Lock(0);
  EXPECT_TRUE(table->decides());
  EXPECT_GT(table->Put("k", {}, {}, one.now).version, uint64_t{1} << 47);
}

wal::Entry MarkOf(uint64_t mark_ns) {
  wal::Entry entry;
  entry.kind = EntryKind::kTimeMark;
  entry.expiry = mark_ns;
  return entry;
}

TEST(TableReplicaTest, AMarkCountsOnceItIsApplied) {
  Fixture one;
  EXPECT_EQ(one.replica->time_mark_ns(), 0u);
  ASSERT_TRUE(one.Reserve({MarkOf(kSecondNs)}).ok());
  ASSERT_TRUE(one.Reserve({MarkOf(9 * kSecondNs)}).ok());
  EXPECT_EQ(one.replica->time_mark_ns(), 0u);
  one.Apply();
  one.Release();
  EXPECT_EQ(one.replica->time_mark_ns(), kSecondNs) << "the other one was replaced";
  one.Make({MarkOf(kSecondNs / 2)});
  EXPECT_EQ(one.replica->time_mark_ns(), kSecondNs);
  ReplicatedGroup group = one.Group(TimeMarkBody(3 * kSecondNs), 1);
  ASSERT_TRUE(one.replica->Reserve(group).ok());
  one.replica->Apply(group);
  (void)one.replica->TakeOver();
  EXPECT_EQ(one.replica->time_mark_ns(), 3 * kSecondNs);
}

// *Else* the next shard's keys end early.
TEST(TableReplicaTest, AMarkGoesWithItsShard) {
  Fixture one;
  one.Make({MarkOf(kSecondNs)});
  ASSERT_EQ(one.replica->time_mark_ns(), kSecondNs);
  one.replica->BeginClear();
  while (!one.replica->ClearSome()) continue;
  EXPECT_EQ(one.replica->time_mark_ns(), 0u);
}

// --- Room ----------------------------------------------------------------------------

// Groups of random sizes until one is refused; then some are replaced, and the rest is applied.
TEST(TableReplicaTest, WhatIsReservedIsAppliedInAFullMemory) {
  uint64_t refused = 0;
  for (uint64_t seed = 1; seed <= 30 / kVolumeParts; ++seed) {
    Fixture one(512 << 10, /*evict=*/seed % 3 == 0);
    SplitMix64 random(seed);
    const uint64_t bytes[] = {4, 30, 200, 2000, 20000};
    uint64_t version = 0;
    for (int step = 0; step < 3000; ++step) {
      std::vector<std::string> keys, values;
      std::vector<wal::Entry> entries;
      const uint64_t count = 1 + random.Below(8);
      for (uint64_t i = 0; i < count; ++i) {
        keys.push_back(absl::StrCat("key", random.Below(seed % 2 == 0 ? 40 : 4000)));
        values.push_back(std::string(random.Below(bytes[random.Below(5)]), 'v'));
      }
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t kind = random.Below(8);
        ++version;
        if (kind == 0) {
          entries.push_back(KeyOf(EntryKind::kDelete, keys[i], version));
        } else if (kind == 1) {
          const uint64_t present =
              one.tables->Lock(0)->HeldVersion({keys[i], one.tables->HashOf(keys[i])});
          entries.push_back(KeyOf(EntryKind::kExpire, keys[i], present == 0 ? version : present,
                                  random.Below(2) * 9999 * kSecondNs));
        } else {
          entries.push_back(
              PutOf(keys[i], values[i], version, random.Below(3) == 0 ? 9999 * kSecondNs : 0));
        }
      }
      if (absl::Status status = one.Reserve(entries); !status.ok()) {
        ++refused;
        EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
        EXPECT_NE(status.message().find("--memory"), absl::string_view::npos) << status;
        for (uint64_t i = random.Below(4); i > 0 && !one.groups.empty(); --i) one.Release();
        for (uint64_t i = random.Below(20); i > 0 && !one.groups.empty(); --i) one.Apply();
      }
      while (one.groups.size() > 50 + random.Below(50)) one.Apply();
      if (random.Chance(20)) {
        const LockedTable table = one.tables->Lock(0);
        (void)table->GrowStep(one.now);
        (void)table->CompactStep(one.now);
        (void)table->SweepStep(one.now);
        (void)table->EvictStep(one.now);
      }
      if (random.Chance(1)) one.now += absl::Seconds(1);
    }
    while (!one.groups.empty()) one.Apply();
    EXPECT_EQ(one.tables->stats().evictions + one.tables->stats().expiries, 0u);
  }
  EXPECT_GT(refused, 1000u);
}

struct Decisions {
  uint64_t evictions = 0, expiries = 0;
};

// Of a backup whose memory is nearly full, and whose keys expire.
Decisions DecisionsOfBackup() {
  Fixture one(1 << 20, /*evict=*/true);
  uint64_t version = 0;
  const auto put = [&] {
    ++version;
    const std::string key = absl::StrCat("key", version);
    const uint64_t expiry_ns = version % 8 == 0 ? 3601 * kSecondNs : 0;
    if (!one.Reserve({PutOf(key, std::string(2000, 'v'), version, expiry_ns)}).ok()) return false;
    one.Apply();
    return true;
  };
  while (put()) {
  }
  one.now += absl::Hours(2);
  for (int i = 0; i < 100; ++i) {
    const LockedTable table = one.tables->Lock(0);
    (void)table->GrowStep(one.now);
    (void)table->SweepStep(one.now);
    (void)table->EvictStep(one.now);
  }
  const index::TableStats stats = one.tables->stats();
  return {stats.evictions, stats.expiries};
}

TEST(TableReplicaTest, ABackupEvictsNothingAndEndsNoExpiredKey) {
  Decisions decisions = DecisionsOfBackup();
  EXPECT_EQ(decisions.evictions, 0u);
  EXPECT_EQ(decisions.expiries, 0u);
  active_mistake = ReplicationMistake::kBackupDecides;
  decisions = DecisionsOfBackup();
  active_mistake = ReplicationMistake::kNone;
  EXPECT_GT(decisions.evictions, 0u);
  EXPECT_GT(decisions.expiries, 0u);
}

TEST(TableReplicaDeathTest, APutBehindAPendingDeletionNeedsAPlace) {
  const auto put_behind_deletion = [] {
    Fixture one;
    one.Make({PutOf("k", std::string(100, 'a'), 1)});
    (void)one.Reserve({KeyOf(EntryKind::kDelete, "k", 1)});
    (void)one.Reserve({PutOf("k", std::string(100, 'b'), 2)});
    one.Apply();
    one.Apply();
  };
  put_behind_deletion();
  active_mistake = ReplicationMistake::kReservesNoPlace;
  EXPECT_DEATH(put_behind_deletion(), "has_place");
  active_mistake = ReplicationMistake::kNone;
}

// --- Damaged groups ------------------------------------------------------------------

void ExpectDamage(Fixture& one, const ReplicatedGroup& group, absl::string_view why) {
  const absl::Status status = one.replica->Reserve(group);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_NE(status.message().find(why), absl::string_view::npos) << status << ", not " << why;
}

TEST(TableReplicaTest, ImpossibleEntriesAreRefusedByName) {
  Fixture one;
  const auto expect = [&](const wal::Entry& entry, absl::string_view why) {
    ExpectDamage(one, one.Group(BodyOf({entry}), 1), why);
  };
  expect(PutOf("k", "v", 0), "impossible version");
  expect(PutOf("k", "v", uint64_t{1} << 60), "impossible version");
  expect(PutOf("k", "v", 1, UINT64_MAX), "impossible expiry");
  expect(PutOf("k", std::string((1 << 20) + 1, 'v'), 1), "1048577 bytes");
  expect(KeyOf(EntryKind::kShardReset, "", 0), "never sends");
  expect(SessionOf(EntryKind::kSessionBegin, 0), "no client");
  const std::string value(5000, 'v');
  wal::Entry changed = PutOf("k", value, 1);
  ++changed.value_checksum;
  expect(changed, "another checksum");
  wal::Entry status = PutOf("k", "v", 1);
  status.client = 1;
  status.result.emplace().status = 99;
  expect(status, "status 99");
  ExpectDamage(one, one.Group(BodyOf({PutOf("k", "v", 1)}), 2), "1 entries");
  ExpectDamage(one, one.Group(BodyOf({PutOf("k", "v", 1)}, 9), 1), "partition 9");
  ExpectDamage(one, one.Group("", 1), "cut off");
  ExpectDamage(one, one.Group(BodyOf({MarkOf(UINT64_MAX)}), 1), "mark of time");
}

TEST(TableReplicaTest, DamagedBytesAreRefusedOrHarmless) {
  const std::string long_value(6000, 'v');
  const std::string body =
      BodyOf({PutOf("key", "value", 5, kSecondNs), PutOf("b", long_value, 6),
              KeyOf(EntryKind::kDelete, "key", 5), KeyOf(EntryKind::kExpire, "b", 6, kSecondNs)});
  SplitMix64 random(3);
  Fixture one;
  uint64_t refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = body;
    for (uint64_t change = 1 + random.Below(3); change > 0; --change) {
      // Mostly not in the long value.
      const uint64_t at = random.Chance(90) ? random.Below(300) : random.Below(damaged.size());
      damaged[at] = static_cast<char>(random.Next());
    }
    if (random.Chance(10)) damaged.resize(random.Below(damaged.size()));
    const ReplicatedGroup group = one.Group(damaged, 4);
    const absl::Status status = one.replica->Reserve(group);
    if (status.ok()) {
      one.replica->Apply(group);
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000u);
}

// --- The copy ------------------------------------------------------------------------

TEST(TableReplicaTest, GroupsPrecedeTheCopyOfWhatTheyName) {
  Fixture one;
  one.replica->BeginCopy();
  one.Make({PutOf("put", "new", 9), KeyOf(EntryKind::kDelete, "deleted", 4),
            KeyOf(EntryKind::kExpire, "expiry", 5, 7 * kSecondNs)});
  ASSERT_TRUE(one.replica
                  ->TakeChunk(ChunkOf({ItemOf("put", "old", 3), ItemOf("deleted", "old", 4),
                                       ItemOf("expiry", "old", 5), ItemOf("other", "old", 6)},
                                      {}, /*is_last=*/true))
                  .ok());
  EXPECT_FALSE(one.replica->is_copying());
  EXPECT_EQ(one.ValueOf("put"), "new 9 0");
  EXPECT_EQ(one.ValueOf("deleted"), "absent");
  EXPECT_EQ(one.ValueOf("expiry"), absl::StrCat("old 5 ", 7 * kSecondNs));
  EXPECT_EQ(one.ValueOf("other"), "old 6 0");
  EXPECT_EQ(one.replica->version_floor(), kLastVersion);
  EXPECT_EQ(one.replica->time_mark_ns(), kMarkNs);
}

std::vector<SessionImage> SessionsAfterCopy() {
  Fixture one;
  one.replica->BeginCopy();
  wal::Entry put = PutOf("k", "v", 9);
  put.client = 1;
  put.sequence = 20;
  one.Make({put, SessionOf(EntryKind::kSessionBegin, 2), SessionOf(EntryKind::kSessionEnd, 2)});
  Result result;
  result.code = absl::StatusCode::kOk;
  result.version = 3;
  EXPECT_TRUE(one.replica
                  ->TakeChunk(ChunkOf({}, {{1, {{5, result}}}, {2, {{6, result}}}},
                                      /*is_last=*/true))
                  .ok());
  return one.replica->Sessions();
}

TEST(TableReplicaTest, SessionsOfCopyAndGroupsAreOne) {
  std::vector<SessionImage> sessions = SessionsAfterCopy();
  ASSERT_EQ(sessions.size(), 1u) << "a group has ended the other one";
  ASSERT_EQ(sessions[0].results.size(), 2u);
  EXPECT_EQ(sessions[0].results[0].first, 5u);
  EXPECT_EQ(sessions[0].results[1].second.version, 9u);
  active_mistake = ReplicationMistake::kCopyRevivesSessions;
  sessions = SessionsAfterCopy();
  active_mistake = ReplicationMistake::kNone;
  EXPECT_EQ(sessions.size(), 2u);
}

TEST(TableReplicaTest, DamagedChunksAreRefused) {
  Result result;
  result.code = absl::StatusCode::kOk;
  const std::string chunk = ChunkOf({ItemOf("key", "value", 3), ItemOf("k", "", 4)},
                                    {{1, {{5, result}}}}, /*is_last=*/false);
  ASSERT_TRUE(ParseChunk(chunk).ok());
  for (size_t length = 0; length < chunk.size(); ++length)
    EXPECT_TRUE(absl::IsDataLoss(ParseChunk(chunk.substr(0, length)).status())) << length;
  EXPECT_TRUE(absl::IsDataLoss(ParseChunk(chunk + "x").status()));
  SplitMix64 random(4);
  uint64_t refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = chunk;
    damaged[random.Below(damaged.size())] = static_cast<char>(random.Next());
    refused += !ParseChunk(damaged).ok();
  }
  EXPECT_GT(refused, 5000u);
}

// --- The primary's side ----------------------------------------------------------------

struct Recorder final : GroupSink {
  void Decide(uint32_t partition, std::string body, uint64_t entries) override {
    wal::Group group;
    EXPECT_EQ(wal::ParseGroup(wal::BytesOfText(body), group), "");
    EXPECT_EQ(group.header.shard, partition);
    EXPECT_EQ(group.entries.size(), entries);
    bodies.push_back(std::move(body));
  }
  void NoteExpiry() override { noted_behind.push_back(bodies.size()); }
  uint64_t decided() const override { return bodies.size(); }
  std::vector<std::string> bodies;
  std::vector<size_t> noted_behind;  // so many bodies
};

TEST(ReplicatedChangesTest, EachLongValueEndsItsGroup) {
  Recorder recorder;
  ReplicatedChanges changes(3, recorder, [] { return uint64_t{100}; });
  const ClientWrite write{1, 2, rdma::Opcode::kPut};
  changes.SetWrite(&write);
  std::string value(1 << 20, 'v');
  changes.OnPut("a", wal::BytesOfText("short"), 1, 0);
  changes.OnPut("b", wal::BytesOfText(value), 2, 0);
  value.assign(value.size(), 'w');  // the table may move it
  changes.OnPut("c", wal::BytesOfText("short"), 3, 0);
  changes.OnRelease();
  changes.OnRelease();
  ASSERT_EQ(recorder.bodies.size(), 2u);
  wal::Group group;
  ASSERT_EQ(wal::ParseGroup(wal::BytesOfText(recorder.bodies[0]), group), "");
  ASSERT_EQ(group.entries.size(), 2u);
  EXPECT_EQ(wal::TextOf(group.entries[1].value), std::string(1 << 20, 'v'));
}

TEST(ReplicatedChangesTest, AnExpiryIsNotedBeforeItsGroup) {
  Recorder recorder;
  ReplicatedChanges changes(0, recorder, [] { return uint64_t{100}; });
  const ClientWrite write{1, 2, rdma::Opcode::kPut};
  changes.SetWrite(&write);
  changes.OnPut("a", wal::BytesOfText("x"), 1, 0);
  changes.OnDelete("a", 1, 2);
  changes.OnRelease();
  EXPECT_TRUE(recorder.noted_behind.empty()) << "nothing expires";
  changes.OnPut("a", wal::BytesOfText("x"), 3, kSecondNs);
  changes.OnRelease();
  changes.OnExpire("a", 3, 2 * kSecondNs);
  changes.OnRelease();
  EXPECT_EQ(recorder.noted_behind, (std::vector<size_t>{1, 2}));
  EXPECT_EQ(recorder.bodies.size(), 3u);
}

TEST(ReplicatedChangesTest, ABoundIsNoVersionAboveThoseGivenOut) {
  Recorder recorder;
  ReplicatedChanges changes(0, recorder, [] { return uint64_t{100}; });
  const ClientWrite write{1, 2, rdma::Opcode::kFlush};
  changes.SetWrite(&write);
  for (const uint64_t bound : {uint64_t{90}, index::kCasVersionMax}) {
    Result result;
    result.code = absl::StatusCode::kOk;
    result.version = bound;
    changes.OnResult(result);
    changes.OnRelease();
  }
  for (const auto& [body, version] :
       {std::pair(recorder.bodies.at(0), 90u), std::pair(recorder.bodies.at(1), 100u)}) {
    wal::Group group;
    ASSERT_EQ(wal::ParseGroup(wal::BytesOfText(body), group), "");
    EXPECT_EQ(group.entries[0].version, version);
  }
}

}  // namespace
}  // namespace osprey::server
