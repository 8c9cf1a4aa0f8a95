// A long value at one replica: its parts, its put, and what ends it without one.

#include "server/cluster/table/value_parts.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "server/cluster/table/copy_chunk.h"
#include "server/cluster/table/replicated_changes.h"
#include "server/cluster/table/table_copy.h"
#include "server/cluster/table/table_replica.h"
#include "tests/server/cluster/table/replica_fixture.h"
#include "tests/support/split_mix64.h"

namespace osprey::server {
namespace {

constexpr uint64_t kPartBytes = kValuePartBytesMax;

std::string AnyValue(uint64_t bytes) {
  SplitMix64 random(bytes);
  std::string value;
  value.reserve(bytes + sizeof(uint64_t));
  while (value.size() < bytes) {
    const uint64_t word = random.Next();
    value.append(reinterpret_cast<const char*>(&word), sizeof(word));
  }
  value.resize(bytes);
  return value;
}

class ValuePartsTest : public ::testing::Test {
 protected:
  ReplicatedGroup Part(uint64_t number) {
    return one_.Group(
        ValuePartBody(0, "key", wal::BytesOfText(value_), number * kPartBytes, kPartBytes), 1);
  }
  // Takes a group, and applies it.
  void Take(ReplicatedGroup group, uint64_t term = 1) {
    group.term = term;
    ASSERT_EQ(one_.replica->Reserve(group), absl::OkStatus());
    one_.last = group.last_lsn;
    one_.replica->Apply(group);
  }
  void TakeParts(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) Take(Part(i));
  }
  ReplicatedGroup Put(uint64_t version) {
    wal::Entry entry = PutOf("key", "", version);
    entry.value_length = value_.size();
    entry.pieces = PartsOf(value_.size(), kPartBytes);
    return one_.Group(BodyOf({entry}), 1);
  }
  ReplicatedGroup Dropped() { return one_.Group(PartsDroppedBody(0), 1); }
  void ExpectDamage(const ReplicatedGroup& group, absl::string_view why) {
    const absl::Status status = one_.replica->Reserve(group);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_NE(status.message().find(why), std::string::npos) << status;
  }
  uint64_t UsedBytes() { return one_.tables->stats().item_bytes; }

  ReplicaFixture one_{16 << 20};
  const std::string value_ = AnyValue(5 * kPartBytes + 77);
  static constexpr uint64_t kParts = 6;
};

TEST_F(ValuePartsTest, AreTheValueOfTheirPut) {
  TakeParts(kParts);
  EXPECT_EQ(one_.ValueOf("key"), "absent");
  Take(Put(7));
  EXPECT_EQ(one_.ValueOf("key"), absl::StrCat(value_, " 7 0"));
  // Over itself, with other writes in between.
  for (uint64_t i = 0; i < kParts; ++i) {
    Take(Part(i));
    one_.Make({PutOf("key", "short", 8 + i)});
    one_.Make({KeyOf(EntryKind::kDelete, "key", 8 + i)});
  }
  Take(Put(20));
  EXPECT_EQ(one_.ValueOf("key"), absl::StrCat(value_, " 20 0"));
}

TEST_F(ValuePartsTest, MayAllBePendingTogether) {
  std::vector<ReplicatedGroup> groups;
  const auto reserve = [&](ReplicatedGroup group) {
    ASSERT_EQ(one_.replica->Reserve(group), absl::OkStatus());
    one_.last = group.last_lsn;
    groups.push_back(std::move(group));
  };
  for (const uint64_t version : {5, 6}) {
    for (uint64_t i = 0; i < kParts; ++i) reserve(Part(i));
    reserve(Put(version));
  }
  for (const ReplicatedGroup& group : groups) one_.replica->Apply(group);
  EXPECT_EQ(one_.ValueOf("key"), absl::StrCat(value_, " 6 0"));
}

TEST_F(ValuePartsTest, AreReplacedAsOtherGroupsAre) {
  const uint64_t used = UsedBytes();
  for (int round = 0; round < 50; ++round) {
    std::vector<ReplicatedGroup> groups;
    for (uint64_t i = 0; i < kParts; ++i) groups.push_back(Part(i)), ++one_.last;
    groups.push_back(Put(5));
    for (const ReplicatedGroup& group : groups)
      ASSERT_EQ(one_.replica->Reserve(group), absl::OkStatus());
    // From any of them on.
    const size_t kept = static_cast<size_t>(round) % groups.size();
    for (size_t i = groups.size(); i-- > kept;) one_.replica->Release(groups[i]);
    one_.last = kept == 0 ? 0 : groups[kept - 1].last_lsn;
    if (kept > 0 && kept < kParts) {
      const ReplicatedGroup next = Part(kept);
      ASSERT_EQ(one_.replica->Reserve(next), absl::OkStatus()) << "it goes on where it was";
      one_.replica->Release(next);
    }
    for (size_t i = kept; i-- > 0;) one_.replica->Release(groups[i]);
    one_.last = 0;
  }
  EXPECT_EQ(UsedBytes(), used);
}

TEST_F(ValuePartsTest, GoWithoutAPut) {
  one_.Make({PutOf("other", "value", 1)});
  const uint64_t used = UsedBytes();
  const auto expect_gone = [&](const char* why) {
    EXPECT_EQ(UsedBytes(), used) << why;
    ExpectDamage(Put(9), "parts of a put's value are missing");
    EXPECT_EQ(one_.ValueOf("key"), "absent") << why;
  };
  TakeParts(3);
  EXPECT_GT(UsedBytes(), used);
  Take(Dropped());
  expect_gone("dropped");
  TakeParts(kParts);
  Take(one_.Group(BodyOf({KeyOf(EntryKind::kDelete, "other", 0 + 1)}), 1), /*term=*/2);
  EXPECT_LE(UsedBytes(), used) << "a later term";
  ExpectDamage(Put(9), "parts of a put's value are missing");
  TakeParts(2);
  one_.replica->BeginClear();
  while (!one_.replica->ClearSome()) {
  }
  EXPECT_EQ(UsedBytes(), 0u) << "the replica left";
}

TEST_F(ValuePartsTest, OfALaterValueReplaceThem) {
  TakeParts(2);
  TakeParts(kParts);
  Take(Put(3));
  EXPECT_EQ(one_.ValueOf("key"), absl::StrCat(value_, " 3 0"));
}

TEST_F(ValuePartsTest, OfAPrimaryThatIsOneNoMoreAreGone) {
  one_.Make({PutOf("other", "value", 1)});
  const uint64_t used = UsedBytes();
  TakeParts(kParts);
  (void)one_.replica->TakeOver();
  EXPECT_EQ(UsedBytes(), used);
}

TEST_F(ValuePartsTest, AreRefusedOutOfOrder) {
  ExpectDamage(Part(1), "the parts before one of a value are missing");
  TakeParts(2);
  ExpectDamage(Part(3), "the parts before one of a value are missing");
  ExpectDamage(Put(3), "parts of a put's value are missing");
  const std::string other = AnyValue(value_.size() + 1);
  ExpectDamage(
      one_.Group(ValuePartBody(0, "key", wal::BytesOfText(other), 2 * kPartBytes, kPartBytes), 1),
      "the parts before one of a value are missing");
  ExpectDamage(
      one_.Group(ValuePartBody(0, "k", wal::BytesOfText(value_), 2 * kPartBytes, kPartBytes), 1),
      "the parts before one of a value are missing");
  // It goes on as if they had not come.
  for (uint64_t i = 2; i < kParts; ++i) Take(Part(i));
  Take(Put(3));
  EXPECT_EQ(one_.ValueOf("key"), absl::StrCat(value_, " 3 0"));
}

TEST_F(ValuePartsTest, ImpossibleOnesAreRefusedByName) {
  const auto expect = [&](const std::function<void(wal::Entry&)>& change, absl::string_view why) {
    wal::Entry entry;
    entry.kind = EntryKind::kValuePart;
    entry.key = "key";
    const std::string part(100, 'p');
    entry.value = wal::BytesOfText(part);
    entry.value_length = part.size();
    entry.version = 100;
    entry.sequence = 2 << 20;
    change(entry);
    ExpectDamage(one_.Group(BodyOf({entry}), 1), why);
  };
  constexpr char kPartOf[] = "a part of a value has the bytes up to";
  expect([](wal::Entry& entry) { entry.version = 99; }, kPartOf);
  expect([](wal::Entry& entry) { entry.version = (2 << 20) + 1; }, kPartOf);
  expect([](wal::Entry& entry) { entry.sequence = 99; }, kPartOf);
  expect([](wal::Entry& entry) { entry.sequence = uint64_t{1} << 31; }, kPartOf);
  expect([](wal::Entry& entry) { entry.value = {}, entry.value_length = 0; }, kPartOf);
  const std::string longer(kValuePartBytesMax + 1, 'p');
  expect(
      [&](wal::Entry& entry) {
        entry = PutOf("key", longer, 0);
        entry.kind = EntryKind::kValuePart;
        entry.version = longer.size();
        entry.sequence = 2 << 20;
      },
      kPartOf);
  // A change of a byte of it.
  std::string body = ValuePartBody(0, "key", wal::BytesOfText(value_), 0, kPartBytes);
  body[body.size() / 2] ^= 1;
  ExpectDamage(one_.Group(body, 1), "another checksum");
  wal::Entry dropped;
  dropped.kind = EntryKind::kPartsDropped;
  ExpectDamage(one_.Group(BodyOf({dropped, KeyOf(EntryKind::kDelete, "key", 3)}), 2),
               "not alone in its group");
  wal::Entry deletion = KeyOf(EntryKind::kDelete, "key", 3);
  deletion.value_length = 1 << 20;
  deletion.pieces = PartsOf(deletion.value_length, kPartBytes);
  ExpectDamage(one_.Group(BodyOf({deletion}), 1), "what is no put has parts");
  EXPECT_EQ(UsedBytes(), 0u);
}

TEST_F(ValuePartsTest, WithoutRoomNameTheFix) {
  const std::string value = AnyValue(20 << 20);
  const absl::Status status = one_.replica->Reserve(
      one_.Group(ValuePartBody(0, "key", wal::BytesOfText(value), 0, kPartBytes), 1));
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("--memory"), std::string::npos) << status;
}

// Groups in any order, some of them damaged, are reserved or refused, and applied or replaced. Nothing is left
// of them.
TEST_F(ValuePartsTest, InAnyOrderAreRefusedOrHarmless) {
  SplitMix64 random(11);
  uint64_t term = 1, next = 0, refused = 0, applied = 0, made = 0;
  std::vector<ReplicatedGroup> pending;
  for (int i = 0; i < 4000; ++i) {
    const uint64_t what = random.Below(100);
    if (what < 25 && !pending.empty()) {
      one_.replica->Apply(pending.front());
      pending.erase(pending.begin());
      ++applied;
      continue;
    }
    if (what < 30 && !pending.empty()) {
      one_.replica->Release(pending.back());
      one_.last = pending.back().first_lsn - 1;
      pending.pop_back();
      continue;
    }
    term += random.Chance(1);
    // Mostly the next part of some value.
    const uint64_t number = random.Chance(85) ? next : random.Below(kParts);
    const bool is_put = number == kParts || random.Chance(3);
    ReplicatedGroup group = is_put             ? Put(1000 + static_cast<uint64_t>(i))
                            : random.Chance(2) ? Dropped()
                                               : Part(number);
    group.term = term;
    if (random.Chance(10)) {
      std::string damaged = *group.body;
      damaged[random.Below(std::min<size_t>(damaged.size(), 130))] =
          static_cast<char>(random.Next());
      group.body = std::make_shared<const std::string>(std::move(damaged));
    }
    const absl::Status status = one_.replica->Reserve(group);
    if (!status.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(status) || absl::IsResourceExhausted(status)) << status;
      ++refused;
      next = 0;
      continue;
    }
    made += is_put;
    next = is_put ? 0 : number + 1;
    one_.last = group.last_lsn;
    pending.push_back(std::move(group));
  }
  EXPECT_GT(refused, 200u);
  EXPECT_GT(applied, 500u);
  EXPECT_GT(made, 50u);
  while (!pending.empty()) {
    one_.replica->Release(pending.back());
    pending.pop_back();
  }
  one_.replica->BeginClear();
  while (!one_.replica->ClearSome()) {
  }
  EXPECT_EQ(UsedBytes(), 0u);
}

// --- The copy --------------------------------------------------------------------

class CopiedPartsTest : public ValuePartsTest {
 protected:
  CopiedPartsTest() {
    source_.Make({PutOf("short", "value", 1)});
    for (uint64_t i = 0; i < kParts; ++i) {
      TakeAt(source_,
             ValuePartBody(0, "key", wal::BytesOfText(value_), i * kPartBytes, kPartBytes));
    }
    wal::Entry entry = PutOf("key", "", 3, kSecondNs * 5000);
    entry.value_length = value_.size();
    entry.pieces = PartsOf(value_.size(), kPartBytes);
    TakeAt(source_, BodyOf({entry}));
    one_.replica->BeginCopy();
  }
  static void TakeAt(ReplicaFixture& to, std::string body) {
    const ReplicatedGroup group = to.Group(std::move(body), 1);
    ASSERT_EQ(to.replica->Reserve(group), absl::OkStatus());
    to.last = group.last_lsn;
    to.replica->Apply(group);
  }
  std::vector<std::string> Chunks() {
    TableCopy copy(*source_.tables, {});
    std::vector<std::string> chunks;
    while (!copy.at_end()) chunks.push_back(copy.NextChunk(0));
    return chunks;
  }

  ReplicaFixture source_{16 << 20};
};

TEST_F(CopiedPartsTest, AreTheValueOfTheSource) {
  const std::vector<std::string> chunks = Chunks();
  EXPECT_GE(chunks.size(), 3u);
  for (const std::string& chunk : chunks) {
    EXPECT_LE(chunk.size(), kReplicatedValueBytesMax + 1000);
    ASSERT_EQ(one_.replica->TakeChunk(chunk), absl::OkStatus());
  }
  EXPECT_FALSE(one_.replica->is_copying());
  EXPECT_EQ(one_.ValueOf("key"), source_.ValueOf("key"));
  EXPECT_EQ(one_.ValueOf("short"), source_.ValueOf("short"));
}

TEST_F(CopiedPartsTest, GiveWayToAGroupThatNamesTheKeyBetweenThem) {
  std::vector<std::string> chunks = Chunks();
  ASSERT_EQ(one_.replica->TakeChunk(chunks[0]), absl::OkStatus());
  ASSERT_EQ(one_.replica->TakeChunk(chunks[1]), absl::OkStatus());
  one_.Make({PutOf("key", "newer", 9)});
  for (size_t i = 2; i < chunks.size(); ++i)
    ASSERT_EQ(one_.replica->TakeChunk(chunks[i]), absl::OkStatus());
  EXPECT_EQ(one_.ValueOf("key"), "newer 9 0");
  one_.Make({KeyOf(EntryKind::kDelete, "key", 9), KeyOf(EntryKind::kDelete, "short", 1)});
  EXPECT_EQ(UsedBytes(), 0u) << "what was copied is free";
}

TEST_F(CopiedPartsTest, GetTheExpiryOfAGroupBetweenThem) {
  std::vector<std::string> chunks = Chunks();
  ASSERT_EQ(one_.replica->TakeChunk(chunks[0]), absl::OkStatus());
  ASSERT_EQ(one_.replica->TakeChunk(chunks[1]), absl::OkStatus());
  one_.Make({KeyOf(EntryKind::kExpire, "key", 3, 0)});
  for (size_t i = 2; i < chunks.size(); ++i)
    ASSERT_EQ(one_.replica->TakeChunk(chunks[i]), absl::OkStatus());
  EXPECT_EQ(one_.ValueOf("key"), absl::StrCat(value_, " 3 0"));
}

TEST_F(CopiedPartsTest, AreRefusedOutOfOrder) {
  const std::vector<std::string> chunks = Chunks();
  size_t first = 0;
  while (!ParseChunk(chunks[first])->part.has_value()) ++first;
  EXPECT_TRUE(absl::IsDataLoss(one_.replica->TakeChunk(chunks[first + 1])));
  ASSERT_EQ(one_.replica->TakeChunk(chunks[first]), absl::OkStatus());
  // The next value begins, and this one is free.
  ASSERT_EQ(one_.replica->TakeChunk(chunks[first]), absl::OkStatus());
  one_.replica->BeginClear();
  while (!one_.replica->ClearSome()) {
  }
  EXPECT_EQ(UsedBytes(), 0u);
}

TEST_F(CopiedPartsTest, ImpossibleOnesAreRefused) {
  const auto is_refused = [](absl::string_view value, const ChunkPart& part) {
    ChunkBuilder chunk;
    chunk.AddPart(ItemOf("key", value, 3), part);
    return absl::IsDataLoss(ParseChunk(chunk.Finish(false, 3, 0)).status());
  };
  EXPECT_FALSE(is_refused("part", {0, 2 << 20}));
  EXPECT_FALSE(is_refused("part", {(2 << 20) - 4, 2 << 20}));
  EXPECT_TRUE(is_refused("part", {(2 << 20) - 3, 2 << 20}));
  EXPECT_TRUE(is_refused("part", {UINT64_MAX - 2, 2 << 20}));
  EXPECT_TRUE(is_refused("part", {0, 1 << 20}));
  EXPECT_TRUE(is_refused("part", {0, uint64_t{1} << 31}));
  EXPECT_TRUE(is_refused("", {0, 2 << 20}));
  ChunkBuilder chunk;
  chunk.AddPart(ItemOf("key", "part", 3), {0, 2 << 20});
  chunk.AddItem(ItemOf("another", "value", 4));
  EXPECT_TRUE(absl::IsDataLoss(ParseChunk(chunk.Finish(false, 3, 0)).status()));
}

// --- The primary's side ------------------------------------------------------------

struct Recorder final : GroupSink {
  void Decide(uint32_t, std::string body, uint64_t) override { bodies.push_back(std::move(body)); }
  void NoteExpiry() override {}
  uint64_t decided() const override { return bodies.size(); }
  std::vector<std::string> bodies;
};

struct WholeValue final : PartedValue {
  WholeValue() : PartedValue(kPartBytes) {}
  absl::Status Log(index::ByteSpan, uint64_t) override { return absl::OkStatus(); }
  bool IsLogged() const override { return true; }
  bool IsBehind() const override { return false; }
  using PartedValue::is_named;
};

TEST_F(ValuePartsTest, ArePutByAnEntryWithoutTheValue) {
  Recorder recorder;
  ReplicatedChanges changes(0, recorder, [] { return uint64_t{100}; });
  const ClientWrite write{4, 5, rdma::Opcode::kAppend};
  changes.SetWrite(&write);
  const WholeValue whole;
  changes.SetUpload(&whole);
  changes.OnPut("key", wal::BytesOfText(value_), 8, 0);
  changes.SetUpload(nullptr);
  EXPECT_TRUE(whole.is_named());
  const ClientWrite next{4, 6, rdma::Opcode::kPut};
  changes.SetWrite(&next);
  changes.OnPut("short", wal::BytesOfText("value"), 9, 0);
  changes.OnRelease();
  ASSERT_EQ(recorder.bodies.size(), 1u);
  EXPECT_LT(recorder.bodies[0].size(), 1000u);
  TakeParts(kParts);
  Take(one_.Group(recorder.bodies[0], 2));
  EXPECT_EQ(one_.ValueOf("key"), absl::StrCat(value_, " 8 0"));
  const std::vector<SessionImage> sessions = one_.replica->Sessions();
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].results[0].second.value_length, value_.size());
}

}  // namespace
}  // namespace osprey::server
