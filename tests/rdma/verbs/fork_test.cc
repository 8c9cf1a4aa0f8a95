// Devices after a fork. Needs the lab.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "rdma/reasons.h"
#include "rdma/verbs/device/device.h"

namespace osprey::rdma {
namespace {

// Whether a child of this process that opens the devices gets `expected`.
bool ChildGets(Reason expected) {
  const pid_t child = fork();
  if (child == 0) _exit(ReasonOf(VerbsDevices::Open().status()) == expected ? 0 : 1);
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

TEST(VerbsForkTest, AChildIsRefusedTheDevicesThatItsParentHasOpen) {
  EXPECT_TRUE(ChildGets(Reason::kNone)) << "nothing is open";
  absl::StatusOr<std::unique_ptr<VerbsDevices>> one = VerbsDevices::Open();
  absl::StatusOr<std::unique_ptr<VerbsDevices>> two = VerbsDevices::Open();
  ASSERT_TRUE(one.ok() && two.ok()) << one.status() << two.status();
  EXPECT_TRUE(ChildGets(Reason::kForked));
  one->reset();
  EXPECT_TRUE(ChildGets(Reason::kForked));
  EXPECT_TRUE(VerbsDevices::Open().ok()) << "this process is the one that has them open";
  two->reset();
  EXPECT_TRUE(ChildGets(Reason::kNone)) << "nothing is open any more";
}

TEST(VerbsForkTest, AChildThatClosesWhatItInheritedOpensTheDevicesItself) {
  absl::StatusOr<std::unique_ptr<VerbsDevices>> inherited = VerbsDevices::Open();
  ASSERT_TRUE(inherited.ok()) << inherited.status();
  const pid_t child = fork();
  if (child == 0) {
    inherited->reset();
    _exit(VerbsDevices::Open().ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE((*inherited)->all().empty());
}

}  // namespace
}  // namespace osprey::rdma
