// The build itself: every library links, and assert is alive in every mode that the tests use.

#include <cassert>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gflags/gflags.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "infiniband/verbs.h"
#include "rdma/rdma_cma.h"
#include "xxhash.h"

DEFINE_int32(build_test_flag, 7, "used by this test only");

namespace {

TEST(BuildTest, EveryLibraryLinks) {
  absl::flat_hash_map<std::string, int> map;
  map[absl::StrCat("a", 1)] = FLAGS_build_test_flag;
  absl::AnyInvocable<absl::StatusOr<int>()> f = [&] { return map.at("a1"); };
  EXPECT_THAT(*f(), testing::Eq(7));
  EXPECT_NE(XXH3_64bits("x", 1), 0u);
  EXPECT_GT(absl::Now(), absl::UnixEpoch());
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_SUCCESS), "success");
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED");
}

TEST(BuildDeathTest, AssertIsAliveInOptimisedBuilds) {
  EXPECT_DEATH(assert(FLAGS_build_test_flag == 8), "build_test_flag");
}

}  // namespace
