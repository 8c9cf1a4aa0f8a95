#include "server/cluster/beat/serving_beat.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "index/writer/table.h"
#include "rdma/lease_time.h"
#include "tests/index/index_test_util.h"

namespace osprey {
namespace {

using index::kTestIncarnation;
using index::ServingState;

constexpr uint64_t kIncarnation = 0xABCD;

absl::Time At(int64_t ms) { return absl::UnixEpoch() + absl::Milliseconds(ms); }

class ServingBeatTest : public testing::Test {
 protected:
  absl::optional<ServingState> Read() {
    const std::vector<std::byte> copy = index::ReadRegion(
        memory_.data(), index::kServingRecordOffset, sizeof(index::ServingRecord));
    return index::ReadServingRecord(copy, kTestIncarnation);
  }

  index::RegionMemory memory_{1 << 20};
  ServingBeat beat_{memory_.span(), kTestIncarnation, kIncarnation};
};

TEST_F(ServingBeatTest, ServesNothingAtFirst) {
  ASSERT_TRUE(Read().has_value());
  EXPECT_EQ(*Read(), (ServingState{0, 1, 0, kIncarnation, 0}));
}

TEST_F(ServingBeatTest, BeatsOnceACheckWhileALeaseEndsBeforeTheRight) {
  EXPECT_FALSE(beat_.Check(At(0), {absl::InfinitePast()}));
  beat_.Store();
  EXPECT_EQ(Read()->beat, 0u);
  EXPECT_TRUE(beat_.Check(At(0), {At(400)}));
  EXPECT_EQ(Read()->beat, 0u);
  beat_.Store();
  EXPECT_EQ(Read()->beat, 1u);
  beat_.Store();
  EXPECT_EQ(Read()->beat, 1u) << "one check is for one beat";
  EXPECT_FALSE(beat_.Check(At(1), {At(400)}));
  beat_.Store();
  EXPECT_EQ(Read()->beat, 1u);
  EXPECT_TRUE(beat_.Check(At(1), {At(401)}));
  EXPECT_FALSE(beat_.Check(At(2), {At(401)})) << "the last check counts";
  beat_.Store();
  EXPECT_EQ(Read()->beat, 1u);
}

TEST_F(ServingBeatTest, BeatsNotBeyondTheMarkOfExpiries) {
  EXPECT_FALSE(beat_.Check(At(0), {At(3000), At(399)}));
  EXPECT_FALSE(beat_.Check(At(0), {At(399), At(3000)}));
  EXPECT_TRUE(beat_.Check(At(0), {At(3000), At(400)}));
  EXPECT_FALSE(beat_.Grant(At(0), {At(3000), At(399)}).has_value());
}

TEST_F(ServingBeatTest, SaysAtOnceWhichShardsItServes) {
  beat_.Gains(0b1011);
  EXPECT_EQ(*Read(), (ServingState{0, 1, 1, kIncarnation, 0b1011}));
  beat_.Loses(0b0010);
  EXPECT_EQ(*Read(), (ServingState{0, 2, 1, kIncarnation, 0b1001}));
  beat_.Gains(uint64_t{1} << 63);
  EXPECT_TRUE(Read()->Serves(63));
  EXPECT_FALSE(Read()->Serves(1));
  EXPECT_EQ(Read()->gain_revision, 2u);
  EXPECT_EQ(beat_.state(), *Read());
}

// The thread that beats was stopped between its check and its store.
TEST_F(ServingBeatTest, ABeatCheckedBeforeALossNamesNoLostShard) {
  beat_.Gains(3);
  ASSERT_TRUE(beat_.Check(At(0), {At(3000)}));
  beat_.Loses(1);
  beat_.Store();
  EXPECT_EQ(*Read(), (ServingState{1, 2, 1, kIncarnation, 2}));
}

TEST_F(ServingBeatTest, ACheckIsForOneIncarnation) {
  beat_.Gains(3);
  ASSERT_TRUE(beat_.Check(At(0), {At(3000)}));
  beat_.TakeIncarnation(kIncarnation + 1);
  EXPECT_EQ(*Read(), (ServingState{0, 2, 1, kIncarnation + 1, 0}));
  beat_.Store();
  EXPECT_EQ(Read()->beat, 0u);
}

TEST_F(ServingBeatTest, GrantsALeaseThatEndsBeforeTheRight) {
  beat_.Gains(3);
  EXPECT_FALSE(beat_.Grant(At(1), {At(400)}).has_value());
  const absl::optional<ServingState> granted = beat_.Grant(At(0), {At(400)});
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(*granted, *Read());
}

// Byte by byte a copy mixes two states of the record: none is taken for whole.
TEST_F(ServingBeatTest, TornCopiesAreNoticed) {
  beat_.Gains(1);
  const auto copy = [&] {
    return index::ReadRegion(memory_.data(), index::kServingRecordOffset,
                             sizeof(index::ServingRecord));
  };
  const std::vector<std::byte> before = copy();
  beat_.Loses(1);
  const std::vector<std::byte> after = copy();
  int torn = 0;
  for (size_t cut = 0; cut <= before.size(); ++cut) {
    std::vector<std::byte> mixed = before;
    std::copy(after.begin() + static_cast<ptrdiff_t>(cut), after.end(),
              mixed.begin() + static_cast<ptrdiff_t>(cut));
    if (mixed == before || mixed == after) continue;
    ++torn;
    EXPECT_FALSE(index::ReadServingRecord(mixed, kTestIncarnation).has_value()) << cut;
  }
  EXPECT_GT(torn, 20);
}

TEST_F(ServingBeatTest, CopiesOfOtherRegionsAndBytesAreNone) {
  const std::vector<std::byte> good =
      index::ReadRegion(memory_.data(), index::kServingRecordOffset, sizeof(index::ServingRecord));
  EXPECT_TRUE(index::ReadServingRecord(good, kTestIncarnation).has_value());
  EXPECT_FALSE(index::ReadServingRecord(good, kTestIncarnation + 1).has_value());
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bad = good;
    bad[i] ^= std::byte{1};
    EXPECT_FALSE(index::ReadServingRecord(bad, kTestIncarnation).has_value()) << i;
  }
  EXPECT_FALSE(
      index::ReadServingRecord(std::vector<std::byte>(good.size()), kTestIncarnation).has_value());
}

index::TableOptions Options() {
  index::TableOptions options;
  options.incarnation = kTestIncarnation;
  options.hash_seed = index::kTestSeed;
  return options;
}

// What clients READ of the region's first page in a server without a cluster: a header, and zeros.
TEST(ServingRecordTest, ARegionWithoutAClusterHasNone) {
  index::RegionMemory memory(1 << 20);
  const auto table = index::Table::Create(memory.span(), Options());
  ASSERT_TRUE(table.ok()) << table.status();
  const std::vector<std::byte> page =
      index::ReadRegion(memory.data(), sizeof(index::RegionHeader),
                        index::kDirectoryOffset - sizeof(index::RegionHeader));
  EXPECT_EQ(page, std::vector<std::byte>(page.size()));
}

// The same with a table beside it: neither changes the other's bytes.
TEST(ServingRecordTest, LeavesTheHeaderAsItIs) {
  index::RegionMemory memory(1 << 20);
  const auto table = index::Table::Create(memory.span(), Options());
  ASSERT_TRUE(table.ok()) << table.status();
  const auto header = [&] {
    return index::ReadRegion(memory.data(), 0, sizeof(index::RegionHeader));
  };
  const std::vector<std::byte> before = header();
  ServingBeat beat(memory.span(), kTestIncarnation, kIncarnation);
  beat.Gains(1);
  EXPECT_EQ(header(), before);
  EXPECT_TRUE(index::RecordIsWhole(before, {0, kTestIncarnation}));
}

}  // namespace
}  // namespace osprey
