#include "server/wal/spare_space.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace osprey::server::wal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Answers reservations alone.
class ReservedFile final : public File {
 public:
  absl::Status Write(uint64_t, absl::Span<const Bytes>) override { return Unused(); }
  absl::Status Sync() override { return Unused(); }
  absl::Status Reserve(uint64_t offset, uint64_t bytes) override {
    reservations.emplace_back(offset, bytes);
    return answer;
  }
  absl::Status ReleaseReserve() override {
    ++releases;
    answer = after_release;
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> ReadPastCache(uint64_t, absl::Span<std::byte>) override {
    return Unused();
  }

  absl::Status answer;
  absl::Status after_release;  // the answer since then
  int releases = 0;
  std::vector<std::pair<uint64_t, uint64_t>> reservations;

 private:
  static absl::Status Unused() { return absl::InternalError("not of this test"); }
};

TEST(SpareSpaceTest, ReservesAgainOnceHalfOfItIsUsed) {
  SpareSpace spare(1000);
  ReservedFile file;
  EXPECT_TRUE(spare.KeepBehind(file, 100, 100));
  EXPECT_EQ(spare.end(), 1100u);
  EXPECT_TRUE(spare.KeepBehind(file, 100, 600));
  EXPECT_THAT(file.reservations, ElementsAre(Pair(100, 1000)));
  EXPECT_TRUE(spare.KeepBehind(file, 600, 601));
  EXPECT_EQ(spare.end(), 1601u);
}

// They are not on the disk yet, and a full one must not lack space for them.
TEST(SpareSpaceTest, NewRecordsComeBeforeWhatIsBehindThem) {
  SpareSpace spare(1000);
  ReservedFile file;
  EXPECT_TRUE(spare.KeepBehind(file, 100, 5000));
  EXPECT_THAT(file.reservations, ElementsAre(Pair(100, 5900)));
}

TEST(SpareSpaceTest, AFullDiskIsAskedAgain) {
  SpareSpace spare(1000);
  ReservedFile file;
  file.answer = file.after_release = absl::ResourceExhaustedError("full");
  EXPECT_FALSE(spare.KeepBehind(file, 100, 200));
  EXPECT_TRUE(spare.is_missing());
  EXPECT_EQ(spare.end(), 0u);
  EXPECT_TRUE(spare.is_supported());
  file.answer = absl::OkStatus();
  EXPECT_TRUE(spare.KeepBehind(file, 100, 200));
  EXPECT_FALSE(spare.is_missing());
  EXPECT_EQ(spare.end(), 1200u);
}

// ext4 keeps what it found. A checkpoint may need that.
TEST(SpareSpaceTest, WhatARefusalKeptIsGivenBackUnlessSomeOfTheSpareIsLeft) {
  SpareSpace spare(1000);
  ReservedFile file;
  file.answer = file.after_release = absl::ResourceExhaustedError("full");
  EXPECT_FALSE(spare.KeepBehind(file, 100, 200));
  EXPECT_EQ(file.releases, 0) << "the records are not written yet";
  spare.GiveBackPart(file, 200);
  EXPECT_EQ(file.releases, 1);

  file.answer = absl::OkStatus();
  EXPECT_TRUE(spare.KeepBehind(file, 200, 300));
  spare.GiveBackPart(file, 300);
  file.answer = absl::ResourceExhaustedError("full");
  EXPECT_FALSE(spare.KeepBehind(file, 300, 1000));
  spare.GiveBackPart(file, 1000);
  EXPECT_EQ(file.releases, 1);
  EXPECT_EQ(spare.end(), 1300u);
  EXPECT_FALSE(spare.KeepBehind(file, 1000, 1400));
  spare.GiveBackPart(file, 1400);
  EXPECT_EQ(file.releases, 2);
}

TEST(SpareSpaceTest, AFileSystemThatCannotIsAskedOnce) {
  SpareSpace spare(1000);
  ReservedFile file;
  file.answer = absl::UnavailableError("not supported");
  EXPECT_TRUE(spare.KeepBehind(file, 100, 200));
  EXPECT_FALSE(spare.is_supported());
  EXPECT_TRUE(spare.KeepBehind(file, 200, 5000));
  EXPECT_THAT(file.reservations, ElementsAre(Pair(100, 1100)));
  SpareSpace none(0);
  file.reservations.clear();
  EXPECT_TRUE(none.KeepBehind(file, 100, 200));
  EXPECT_THAT(file.reservations, IsEmpty());
}

}  // namespace
}  // namespace osprey::server::wal
