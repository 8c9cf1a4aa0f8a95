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
  absl::Status ReleaseReserve() override { return Unused(); }
  absl::StatusOr<uint64_t> ReadPastCache(uint64_t, absl::Span<std::byte>) override {
    return Unused();
  }

  absl::Status answer;
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
  file.answer = absl::ResourceExhaustedError("full");
  EXPECT_FALSE(spare.KeepBehind(file, 100, 200));
  EXPECT_EQ(spare.end(), 0u);
  EXPECT_TRUE(spare.is_supported());
  file.answer = absl::OkStatus();
  EXPECT_TRUE(spare.KeepBehind(file, 100, 200));
  EXPECT_EQ(spare.end(), 1200u);
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
