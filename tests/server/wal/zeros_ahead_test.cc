#include "server/wal/zeros_ahead.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/wal/snapshot.h"
#include "tests/server/wal/wal_fixture.h"

namespace osprey::server::wal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr uint64_t kKiB = 1 << 10;
constexpr uint64_t kMiB = 1 << 20;

// Keeps where zeros were written.
class ZeroedFile final : public File {
 public:
  absl::Status Write(uint64_t offset, absl::Span<const Bytes> pieces) override {
    uint64_t bytes = 0;
    for (const Bytes& piece : pieces) {
      EXPECT_FALSE(HasBits(piece));
      bytes += piece.size();
    }
    zeros.emplace_back(offset, bytes);
    return answer;
  }
  absl::Status Sync() override { return Unused(); }
  absl::Status Reserve(uint64_t, uint64_t) override { return Unused(); }
  absl::Status ReleaseReserve() override { return Unused(); }
  absl::StatusOr<uint64_t> ReadPastCache(uint64_t, absl::Span<std::byte>) override {
    return Unused();
  }

  absl::Status answer;
  std::vector<std::pair<uint64_t, uint64_t>> zeros;

 private:
  static absl::Status Unused() { return absl::InternalError("not of this test"); }
};

TEST(ZerosAheadTest, BeginBehindTheRecordsAtWholeBlocks) {
  ZerosAhead zeros(64 * kKiB);
  ZeroedFile file;
  ASSERT_TRUE(zeros.KeepBehind(file, 4097, kMiB, 0, 0).ok());
  EXPECT_THAT(file.zeros, ElementsAre(Pair(8 * kKiB, 64 * kKiB)));
  // These are not used up.
  ASSERT_TRUE(zeros.KeepBehind(file, 72 * kKiB - 1, kMiB, 64 * kKiB, 10).ok());
  ASSERT_EQ(file.zeros.size(), 1u);
  ASSERT_TRUE(zeros.KeepBehind(file, 72 * kKiB, kMiB, 68 * kKiB, 11).ok());
  EXPECT_THAT(file.zeros, ElementsAre(Pair(8 * kKiB, 64 * kKiB), Pair(72 * kKiB, 64 * kKiB)));
}

TEST(ZerosAheadTest, EndAtTheLimit) {
  ZerosAhead zeros(64 * kKiB);
  ZeroedFile file;
  ASSERT_TRUE(zeros.KeepBehind(file, 4096, 10000, 0, 0).ok());
  EXPECT_THAT(file.zeros, ElementsAre(Pair(4096, 4096)));
  // Nothing is left before it, or it is unknown.
  ASSERT_TRUE(zeros.KeepBehind(file, 8192, 10000, 0, 0).ok());
  zeros.Restart();
  ASSERT_TRUE(zeros.KeepBehind(file, 4096, 0, 0, 0).ok());
  EXPECT_EQ(file.zeros.size(), 1u);
}

TEST(ZerosAheadTest, AreNotWrittenWhereSyncsAreOfManyBytes) {
  ZerosAhead zeros(kMiB);
  ZeroedFile file;
  ASSERT_TRUE(zeros.KeepBehind(file, 4096, UINT64_MAX, 0, 0).ok());
  const uint64_t end = zeros.end();
  ASSERT_TRUE(
      zeros.KeepBehind(file, end, UINT64_MAX, 10 * ZerosAhead::kBytesPerSyncMax + 1, 9).ok());
  EXPECT_EQ(file.zeros.size(), 1u);
  // Looks again a mebibyte later.
  ASSERT_TRUE(zeros.KeepBehind(file, end + kMiB, UINT64_MAX, 12 * kMiB, 1000).ok());
  EXPECT_EQ(file.zeros.size(), 2u);
}

TEST(ZerosAheadTest, DiskThatIsFullHasNone) {
  ZerosAhead zeros(64 * kKiB);
  ZeroedFile file;
  file.answer = absl::ResourceExhaustedError("full");
  EXPECT_TRUE(zeros.KeepBehind(file, 4096, kMiB, 0, 0).ok());
  zeros.Restart();
  file.answer = absl::UnavailableError("the disk fails");
  EXPECT_EQ(zeros.KeepBehind(file, 4096, kMiB, 0, 0), file.answer);
}

// A log with zeros.
class ZerosInLogTest : public WalFixture {
 protected:
  ZerosInLogTest() {
    options_.spare_bytes = 16 * kKiB;
    options_.zeros_bytes = 8 * kKiB;
  }
  uint64_t Length() const { return disk_.SizeOf(disk_.Names().back()); }
};

TEST_F(ZerosInLogTest, LengthStaysWhileRecordsReplaceZeros) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("key0", "value");
  const uint64_t length = Length();
  EXPECT_EQ(length, 16 * kKiB);
  for (int i = 1; i < 20; ++i) Put(absl::StrCat("key", i), "value");
  EXPECT_EQ(Length(), length);
}

TEST_F(ZerosInLogTest, AreTheEndOfTheLogAfterALossOfPower) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", "1");
  Put("b", "2");
  disk_.LosePower();
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(Keys(), "a b ");
}

TEST_F(ZerosInLogTest, BitThatFlipsBeforeThemIsDamage) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", "1");
  const uint64_t second = log_->bytes_written() + kSegmentHeaderBytes;
  Put("b", "2");
  Put("c", "3");
  Close();
  disk_.FlipBit(disk_.Names().back(), second, 0);
  const absl::Status status = Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(disk_.Names().back()));
  EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("offset ", second)));
}

// The file has its length before the snapshot, so that alone would not leave them out.
TEST_F(ZerosInLogTest, SnapshotLeavesOutWhatReplacesThemLater) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", "1");
  KeepingVisitor visitor;
  ASSERT_EQ(ReadSnapshot(disk_,
                         [&](const DataDirectory& directory) {
                           Put("b", "2");
                           Put("c", "3");
                           return Replay(directory, visitor).status();
                         }),
            absl::OkStatus());
  ASSERT_EQ(visitor.puts.size(), 1u);
  EXPECT_EQ(visitor.puts[0].key, "a");
}

TEST_F(ZerosInLogTest, SnapshotHasARecordThatEndsWithZeros) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", std::string(1000, '\0'));
  KeepingVisitor visitor;
  ASSERT_EQ(ReadSnapshot(disk_,
                         [&](const DataDirectory& directory) {
                           return Replay(directory, visitor).status();
                         }),
            absl::OkStatus());
  ASSERT_EQ(visitor.puts.size(), 1u);
  EXPECT_EQ(visitor.puts[0].value, std::string(1000, '\0'));
}

TEST_F(ZerosInLogTest, ThereAreNoneWhereNothingIsReserved) {
  disk_.set_reserves(false);
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", "1");
  EXPECT_EQ(Length(), kSegmentHeaderBytes + log_->bytes_written());
}

}  // namespace
}  // namespace osprey::server::wal
