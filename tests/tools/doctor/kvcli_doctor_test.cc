// kvcli doctor as people run it. Over shared memory; in the lab, the same over verbs.

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ProgramResult Doctor(std::vector<std::string> args) {
  args.insert(args.begin(), {"env", "-u", "OSPREY_SERVER", "tools/kvcli", "doctor"});
  return RunProgram(args);
}

// The results of the findings of `check`, in order.
std::string OutcomesOf(const Json& json, const std::string& check) {
  std::string outcomes;
  for (const Json& finding : json["findings"]) {
    if (finding["check"] == check)
      absl::StrAppend(&outcomes, outcomes.empty() ? "" : " ",
                      finding["outcome"].get<std::string>());
  }
  return outcomes;
}

TEST(KvcliDoctorTest, ItsExitStatusIsTheWorstFindingAndJsonHasThemAll) {
  const ProgramResult result = Doctor({"--json", "--memory=64MiB"});
  EXPECT_THAT(result.err, IsEmpty());
  const Json json = Json::parse(result.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << result.out;
  const std::string worst = json["worst"];
  EXPECT_EQ(result.exit_status, worst == "PASS" ? 0 : worst == "WARN" ? 1 : 4) << result.out;
  for (const Json& finding : json["findings"]) {
    EXPECT_FALSE(finding["reason"].get<std::string>().empty());
    EXPECT_EQ(finding["mends"].empty(),
              finding["outcome"] == "PASS" || finding["outcome"] == "SKIP")
        << finding;
  }
  if (!InLab()) return;
  EXPECT_NE(worst, "FAIL") << result.out;
  for (const char* check : {"devices", "provider", "port", "gids", "roce", "mtu", "self-test"})
    EXPECT_EQ(OutcomesOf(json, check), "PASS") << check << result.out;
  EXPECT_EQ(OutcomesOf(json, "nodes"), "PASS PASS") << result.out;
  // (The guest's root is the host's, which may be a container.)
  EXPECT_THAT(result.out, HasSubstr("this is none"));
}

TEST(KvcliDoctorTest, PipedItPrintsAFindingALineWithTabs) {
  const ProgramResult result = Doctor({"--memory=64MiB"});
  EXPECT_THAT(result.out, HasSubstr("\tmemory\ta table of 64MiB"));
}

TEST(KvcliDoctorTest, AServerIsProbedAtEverySizeAndLeftAsItWas) {
  absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(NewListenAddress());
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string uri = (*server)->uri();
  const ProgramResult result = Doctor({absl::StrCat("--peer=", uri)});
  EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
  for (const char* size : {"64B:", "1KiB:", "8KiB:", "64KiB:", "256KiB:", "1MiB:"})
    EXPECT_THAT(result.out, HasSubstr(size));
  const ProgramResult count = RunProgram({"tools/kvcli", absl::StrCat("--server=", uri), "count"});
  EXPECT_EQ(count.out, "0\n");
  EXPECT_EQ((*server)->Stop(), 0);
}

TEST(KvcliDoctorTest, AServerThatTakesNoLongValuesIsAWarning) {
  absl::StatusOr<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start(NewListenAddress(), {"--value-max=100KiB"});
  ASSERT_TRUE(server.ok()) << server.status();
  const ProgramResult result = Doctor({absl::StrCat("--peer=", (*server)->uri())});
  EXPECT_EQ(result.exit_status, 1) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("64KiB: GET"), HasSubstr("WARN\tpeer\t256KiB")));
}

TEST(KvcliDoctorTest, AServerThatIsNotThereIsStatusThree) {
  const ProgramResult result = Doctor({"--peer=shm:///absent/socket", "--timeout=1"});
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_THAT(result.out, AllOf(HasSubstr("FAIL\tpeer\t"), HasSubstr("/absent/socket")));
}

TEST(KvcliDoctorTest, WithoutADeviceASelfTestSaysSoInOneLine) {
  if (InLab() || access("/dev/infiniband/rdma_cm", F_OK) == 0) GTEST_SKIP() << "there is a device";
  const ProgramResult here = Doctor({"--self-test"});
  EXPECT_EQ(here.exit_status, 4);
  EXPECT_THAT(here.out, ::testing::MatchesRegex("FAIL\tdevice\tthis machine has no RDMA [^\n]+\n"));
  EXPECT_EQ(Doctor({"--self-test=10.0.0.7"}).out, here.out);
  const ProgramResult serve = Doctor({"--self-test=serve", "--bind=10.0.0.7"});
  EXPECT_EQ(serve.exit_status, 4);
  EXPECT_THAT(serve.err, ::testing::MatchesRegex("kvcli: [^\n]+no RDMA device[^\n]+\n"));
}

TEST(KvcliDoctorTest, WrongFlagsAreStatusTwoAndOneLine) {
  for (const char* flag :
       {"--memory=lots", "--memory=0", "--limit=3", "--peer=", "--peer=10.0.0.7",
        "--self-test=serve", "--self-test=", "--gid-index=1", "--device=rxe0", "--bind=10.0.0.7"}) {
    const ProgramResult result = Doctor({flag});
    EXPECT_EQ(result.exit_status, 2) << flag;
    EXPECT_THAT(result.err, ::testing::MatchesRegex("kvcli: [^\n]+\n"));
  }
  EXPECT_EQ(RunProgram({"tools/kvcli", "--peer=shm:///x", "ping"}).exit_status, 2);
  EXPECT_EQ(Doctor({"--self-test", "--gid-index=256"}).exit_status, 2);
  EXPECT_EQ(Doctor({"--self-test", "--ib-port=0"}).exit_status, 2);
  EXPECT_EQ(Doctor({"--self-test", "--peer=shm:///x"}).exit_status, 2);
  EXPECT_EQ(Doctor({"--self-test=serve", "--bind=127.0.0.1"}).exit_status, 2);
}

}  // namespace
}  // namespace osprey
