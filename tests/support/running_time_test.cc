// RunningTime: what tests of lateness judge by.

#include "tests/support/running_time.h"

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

constexpr absl::Duration kPause = absl::Seconds(1);

TEST(RunningTimeTest, ACallThatTakesLongTakesLong) {
  const RunningTime time;
  absl::SleepFor(kPause);
  EXPECT_GT(time.Passed(), kPause / 2);
}

// As if the machine had stopped it: all its threads stand still.
TEST(RunningTimeTest, APauseOfTheProcessDoesNotCount) {
  const std::string resume = absl::StrCat("until grep -q 'State:.T' /proc/", getpid(),
                                          "/status; do sleep 0.1; done; sleep ",
                                          absl::ToDoubleSeconds(kPause), "; kill -CONT ", getpid());
  const pid_t helper = StartProgram({"sh", "-c", resume}, "/dev/null");
  ASSERT_GT(helper, 0);
  const RunningTime time;
  const absl::Time stopped = absl::Now();
  raise(SIGSTOP);
  const absl::Duration at_once = time.Passed();
  EXPECT_GT(absl::Now() - stopped, kPause);
  EXPECT_LT(at_once, kPause / 2);
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_LT(time.Passed(), kPause / 2);
  waitpid(helper, nullptr, 0);
}

}  // namespace
}  // namespace osprey
