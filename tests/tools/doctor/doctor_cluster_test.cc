// What kvcli doctor says of a cluster: clocks, memory for copies, etcd.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/doctor/doctor_fixture.h"
#include "tools/doctor/cluster.h"

namespace osprey::doctor {
namespace {

using ::testing::HasSubstr;

std::string OutcomesOf(const std::vector<Finding>& findings) {
  return absl::StrJoin(findings, " ", [](std::string* out, const Finding& finding) {
    EXPECT_EQ(finding.fixes.empty(),
              finding.outcome == Outcome::kPass || finding.outcome == Outcome::kSkip);
    absl::StrAppend(out, NameOf(finding.outcome));
  });
}

TEST_F(DoctorTest, ClocksThatLeasesCannotTrustAreNamed) {
  const auto outcomes = [this] {
    std::vector<Finding> findings;
    CheckClocks(machine_, findings);
    return OutcomesOf(findings);
  };
  EXPECT_EQ(outcomes(), "SKIP PASS PASS");
  machine_.Write("/proc/cpuinfo", "flags\t\t: fpu constant_tsc nonstop_tsc sse");
  EXPECT_EQ(outcomes(), "PASS PASS PASS");
  machine_.Write("/proc/cpuinfo", "flags\t\t: fpu constant_tsc sse");
  EXPECT_EQ(outcomes(), "WARN PASS PASS");
  machine_.clock = KernelClock{-0.06, false};
  EXPECT_EQ(outcomes(), "WARN WARN WARN");
  machine_.clock = KernelClock{0.1, true};
  EXPECT_EQ(outcomes(), "WARN FAIL PASS");
  machine_.clock = std::nullopt;
  EXPECT_EQ(outcomes(), "WARN SKIP");
}

TEST(DoctorRoomTest, ServersThatRunAreToHaveMemoryForAllCopies) {
  ClusterStatus status;
  status.cluster.shards = 4;
  status.cluster.replicas = 2;
  const auto add = [&](const std::string& id, uint32_t slots, bool runs) {
    ClusterStatus::Server& server = status.servers[id];
    server.stored.record = ServerRecord{1, {}, 0, slots};
    server.is_renewed = runs;
  };
  const auto judge = [&] {
    std::vector<Finding> findings;
    CheckRoom(status, findings);
    return OutcomesOf(findings);
  };
  add("a", 9, true);
  EXPECT_EQ(judge(), "") << "each shard has its own warning";
  add("b", 3, true);
  EXPECT_EQ(judge(), "WARN") << "of 4 + 3 copies";
  add("c", 4, false);
  EXPECT_EQ(judge(), "WARN");
  add("c", 1, true);
  EXPECT_EQ(judge(), "PASS");
}

TEST(DoctorEtcdTest, EndpointsAreJudgedByVersionLeaderAlarmsAndTime) {
  EndpointAnswer good;
  good.address = "h:2379";
  good.member.version = "3.4.23";
  good.member.leader_id = 5;
  good.slowest = absl::Milliseconds(90);
  const auto judge = [](const EndpointAnswer& answer) {
    std::vector<Finding> findings;
    CheckEndpoints({answer}, findings);
    return absl::StrCat(OutcomesOf(findings), " ", findings.at(0).reason);
  };
  EXPECT_EQ(judge(good), "PASS h:2379 has etcd 3.4.23, and takes 90 ms for a transaction");
  for (const char* version : {"3.3.27", "2.9.1", "3", ""}) {
    EndpointAnswer old = good;
    old.member.version = version;
    EXPECT_THAT(judge(old), HasSubstr(", and servers need 3.4")) << version;
  }
  for (const char* version : {"3.4.0", "3.5.9", "3.10.1", "4.0.0"}) {
    EndpointAnswer newer = good;
    newer.member.version = version;
    EXPECT_THAT(judge(newer), ::testing::StartsWith("PASS ")) << version;
  }
  EndpointAnswer slow = good;
  slow.slowest = absl::Milliseconds(91);
  EXPECT_THAT(judge(slow), HasSubstr("WARN h:2379 takes 91 ms for a transaction: a server gives up "
                                     "after 900 ms"));
  slow.slowest = absl::Milliseconds(901);
  EXPECT_THAT(judge(slow), ::testing::StartsWith("FAIL "));
  EndpointAnswer alone = good;
  alone.member.leader_id = 0;
  EXPECT_THAT(judge(alone), HasSubstr("FAIL h:2379 has no leader"));
  EndpointAnswer full = good;
  full.member.errors = {"memberID:1 alarm:NOSPACE"};
  EXPECT_THAT(judge(full), HasSubstr("FAIL h:2379 has an alarm: memberID:1 alarm:NOSPACE"));
  EndpointAnswer large = good;
  large.member.database_bytes = (uint64_t{1} << 30) + (1 << 20);
  EXPECT_THAT(judge(large), HasSubstr("WARN h:2379 has a database of 1025 MiB"));
  EndpointAnswer failed = good;
  failed.failure = absl::UnauthenticatedError("etcd at h:2379: no; give a user");
  EXPECT_EQ(judge(failed), "FAIL etcd at h:2379: no");
}

}  // namespace
}  // namespace osprey::doctor
