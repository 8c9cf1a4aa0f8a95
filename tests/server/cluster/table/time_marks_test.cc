// How far a primary may judge expiries.

#include "server/cluster/table/time_marks.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace osprey::server {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

uint64_t NanosOf(absl::Time time) { return static_cast<uint64_t>(absl::ToUnixNanos(time)); }

// A review that finds so many keys with an expiry, and all that was decided made.
void Review(TimeMarks& marks, absl::Time now, uint64_t keys) {
  marks.Review(
      now, [keys] { return keys; }, [] { return true; });
}

TEST(TimeMarksTest, NothingIsBoundWhileNoKeyExpires) {
  TimeMarks marks;
  marks.Begin(NanosOf(kStart), /*has_expiring=*/false);
  const absl::Time later = kStart + absl::Hours(1);
  EXPECT_TRUE(marks.MayJudge(later));
  EXPECT_EQ(marks.ReadsUntil(), absl::InfiniteFuture());
  EXPECT_FALSE(marks.Due(later).has_value());
}

TEST(TimeMarksTest, ANoteBindsReadsAtOnceAndAnswersOnceAMarkIsHeld) {
  TimeMarks marks;
  marks.Begin(0, /*has_expiring=*/false);
  marks.NoteExpiry();
  EXPECT_EQ(marks.ReadsUntil(), absl::UnixEpoch());
  EXPECT_TRUE(marks.MayJudge(kStart)) << "the write takes effect behind the mark";
  const std::optional<uint64_t> mark_ns = marks.Due(kStart);
  ASSERT_EQ(mark_ns, NanosOf(kStart + TimeMarks::kAhead()));
  EXPECT_EQ(marks.ReadsUntil(), absl::UnixEpoch()) << "it is decided, and not held";
  marks.NoteHeld(*mark_ns);
  EXPECT_EQ(marks.ReadsUntil(), kStart + TimeMarks::kAhead());
  EXPECT_TRUE(marks.MayJudge(kStart + TimeMarks::kAhead()));
  EXPECT_FALSE(marks.MayJudge(kStart + TimeMarks::kAhead() + absl::Nanoseconds(1)));
}

TEST(TimeMarksTest, MarksFollowEachOther) {
  TimeMarks marks;
  marks.Begin(0, /*has_expiring=*/true);
  marks.NoteHeld(marks.Due(kStart).value());
  EXPECT_FALSE(marks.Due(kStart).has_value());
  const absl::Time next = kStart + TimeMarks::kEvery();
  EXPECT_FALSE(marks.Due(next - absl::Nanoseconds(1)).has_value());
  EXPECT_EQ(marks.Due(next), NanosOf(next + TimeMarks::kAhead()));
  EXPECT_EQ(marks.ReadsUntil(), kStart + TimeMarks::kAhead());
  marks.NoteHeld(NanosOf(kStart));
  EXPECT_EQ(marks.ReadsUntil(), kStart + TimeMarks::kAhead()) << "none is taken back";
}

TEST(TimeMarksTest, ANewPrimaryAwaitsItsFirstMark) {
  TimeMarks marks;
  marks.Begin(NanosOf(kStart), /*has_expiring=*/true);
  EXPECT_TRUE(marks.MayJudge(kStart));
  const absl::Time now = kStart + absl::Seconds(1);  // its own clock was ahead
  EXPECT_FALSE(marks.MayJudge(now));
  const std::optional<uint64_t> mark_ns = marks.Due(now);
  ASSERT_TRUE(mark_ns.has_value());
  EXPECT_FALSE(marks.MayJudge(now));
  marks.NoteHeld(*mark_ns);
  EXPECT_TRUE(marks.MayJudge(now));
}

TEST(TimeMarksTest, TheBoundEndsWithTheLastKey) {
  TimeMarks marks;
  marks.Begin(0, /*has_expiring=*/false);
  marks.NoteExpiry();
  marks.NoteHeld(marks.Due(kStart).value());
  absl::Time now = kStart;
  const auto is_bound = [&] { return marks.ReadsUntil() != absl::InfiniteFuture(); };
  Review(marks, now, 0);
  EXPECT_TRUE(is_bound()) << "the write may not be made yet";
  Review(marks, now + TimeMarks::kReviewEvery() / 2, 0);
  EXPECT_TRUE(is_bound()) << "too early";
  Review(marks, now += TimeMarks::kReviewEvery(), 1);
  EXPECT_TRUE(is_bound());
  marks.Review(
      now += TimeMarks::kReviewEvery(), [] { return 0; }, [] { return false; });
  EXPECT_TRUE(is_bound()) << "a write is decided, and not made";
  Review(marks, now += TimeMarks::kReviewEvery(), 0);
  EXPECT_FALSE(is_bound());
  EXPECT_TRUE(marks.MayJudge(now + absl::Hours(1)));
  EXPECT_FALSE(marks.Due(now).has_value());
}

TEST(TimeMarksTest, AWriteDuringAReviewGetsAMarkOfItsOwn) {
  TimeMarks marks;
  marks.Begin(0, /*has_expiring=*/true);
  marks.NoteHeld(marks.Due(kStart).value());
  marks.Review(
      kStart,
      [&] {
        marks.NoteExpiry();
        return 0;
      },
      [] { return true; });
  EXPECT_EQ(marks.ReadsUntil(), kStart + TimeMarks::kAhead());
  EXPECT_TRUE(marks.Due(kStart).has_value()) << "the last one does not bind answers any more";
}

}  // namespace
}  // namespace osprey::server
