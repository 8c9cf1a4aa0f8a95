#include "server/cluster/node/spin_trial.h"

#include "gtest/gtest.h"

namespace osprey::server {
namespace {

TEST(SpinTrialTest, AVainSpinIsFollowedByRoundsWithoutOne) {
  SpinTrial trial;
  EXPECT_TRUE(trial.Begins());
  trial.End(true);
  EXPECT_TRUE(trial.Begins());
  trial.End(false);
  for (int i = 0; i < SpinTrial::kRoundsWithout; ++i) EXPECT_FALSE(trial.Begins());
  EXPECT_TRUE(trial.Begins());
}

// As an append that the next one follows soon, until one does not.
TEST(LingeringTest, ItSpinsAfterEachEventUntilOneBringsNoOther) {
  const absl::Duration spin = absl::Microseconds(100);
  Lingering lingering(spin);
  absl::Time now = absl::UnixEpoch();
  EXPECT_FALSE(lingering.Goes(now));
  for (int i = 0; i < 3; ++i) {
    lingering.Came(now);
    EXPECT_TRUE(lingering.Goes(now += spin / 2));
  }
  EXPECT_FALSE(lingering.Goes(now += spin));
  lingering.Came(now);
  EXPECT_FALSE(lingering.Goes(now));
}

TEST(LingeringTest, WithoutATimeItNeverSpins) {
  Lingering lingering(absl::ZeroDuration());
  lingering.Came(absl::UnixEpoch());
  EXPECT_FALSE(lingering.Goes(absl::UnixEpoch()));
}

}  // namespace
}  // namespace osprey::server
