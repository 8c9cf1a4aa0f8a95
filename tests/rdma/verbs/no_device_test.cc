// The errors of the verbs transport on a machine without RDMA, such as most build machines.

#include <gtest/gtest.h>

#include <filesystem>

#include "rdma/errors.h"
#include "rdma/open_domain.h"

namespace osprey::rdma {
namespace {

TEST(VerbsNoDevice, OpeningSaysThatThereIsNoDeviceAndNamesTheWaysOut) {
  if (std::filesystem::exists("/sys/class/infiniband") &&
      !std::filesystem::is_empty("/sys/class/infiniband")) {
    GTEST_SKIP() << "this machine has an RDMA device";
  }
  const absl::StatusOr<std::unique_ptr<Domain>> domain = OpenDomain("rdma://10.0.0.7:7411");
  ASSERT_FALSE(domain.ok());
  EXPECT_EQ(domain.status().code(), absl::StatusCode::kFailedPrecondition) << domain.status();
  EXPECT_EQ(ReasonOf(domain.status()), Reason::kNoDevice) << domain.status();
  for (const char* way : {"rdma link add", "tools/lab", "shm://"}) {
    EXPECT_NE(domain.status().message().find(way), absl::string_view::npos)
        << way << ": " << domain.status();
  }
}

}  // namespace
}  // namespace osprey::rdma
