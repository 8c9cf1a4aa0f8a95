// kvcli doctor's fixes, run as printed. The lab's machine is broken in one way after the other.
// Each time doctor names the fix after which the self-test moves bytes again. Needs the lab, and
// alone: it takes away the lab's device and addresses.

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr int kTriesMax = 50;

ProgramResult Sh(const std::string& command) { return RunProgram({"bash", "-c", command}); }

void MustRun(const std::string& command) {
  const ProgramResult result = Sh(command);
  ASSERT_EQ(result.exit_status, 0) << command << "\n" << result.out << result.err;
}

// Doctor's findings. `before` is run in the same shell.
Json Findings(const std::string& before = "", const std::string& as = "") {
  const ProgramResult result = Sh(absl::StrCat(before, before.empty() ? "" : "\n", as,
                                               " tools/kvcli doctor --memory=64MiB --json"));
  const Json json = Json::parse(result.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << result.out << result.err;
  return json.is_object() ? json["findings"] : Json::array();
}

// The worst of `check`: "FAIL", "WARN", "PASS"; empty if there is none.
std::string OutcomeOf(const Json& findings, const std::string& check) {
  std::string worst;
  for (const Json& finding : findings) {
    if (finding["check"] != check) continue;
    const std::string outcome = finding["outcome"];
    if (outcome == "FAIL" || worst.empty() || (outcome == "WARN" && worst != "FAIL"))
      worst = outcome;
  }
  return worst;
}

// The first fix of `check` that contains this text.
std::string FixOf(const Json& findings, const std::string& check, const std::string& part) {
  for (const Json& finding : findings) {
    if (finding["check"] != check) continue;
    for (const Json& fix : finding["mends"]) {
      if (absl::StrContains(fix.get<std::string>(), part)) return fix;
    }
  }
  ADD_FAILURE() << "no fix of " << check << " has " << part << ": " << findings;
  return "false";
}

// GIDs come a moment after their addresses.
void ExpectThatBytesMove(const std::string& check) {
  Json findings;
  for (int i = 0; i < kTriesMax; ++i) {
    findings = Findings();
    if (OutcomeOf(findings, check) == "PASS" && OutcomeOf(findings, "gids") == "PASS") break;
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_EQ(OutcomeOf(findings, check), "PASS") << findings;
  const ProgramResult result = RunProgram({"tools/kvcli", "doctor", "--self-test"});
  EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
}

std::string Env(const char* name) { return std::getenv(name); }

TEST(DoctorMends, MissingDeviceIsRecreated) {
  MustRun(absl::StrCat("rdma link delete ", Env("LAB_DEVICE")));
  const Json findings = Findings();
  EXPECT_EQ(OutcomeOf(findings, "devices"), "FAIL");
  MustRun(FixOf(findings, "devices", "rdma link add"));
  ExpectThatBytesMove("devices");
}

TEST(DoctorMends, AnInterfaceThatIsDownIsSetUp) {
  MustRun(absl::StrCat("ip link set dev ", Env("LAB_NETDEV"), " down"));
  const Json findings = Findings();
  EXPECT_EQ(OutcomeOf(findings, "port"), "FAIL") << findings;
  MustRun(FixOf(findings, "port", "ip link set"));
  ExpectThatBytesMove("port");
}

TEST(DoctorMends, AMissingAddressIsGiven) {
  MustRun(absl::StrCat("ip address flush dev ", Env("LAB_NETDEV")));
  Json findings;
  for (int i = 0; i < kTriesMax; ++i) {
    findings = Findings();
    if (OutcomeOf(findings, "gids") != "PASS") break;
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_THAT(OutcomeOf(findings, "gids"), ::testing::AnyOf("WARN", "FAIL")) << findings;
  MustRun(FixOf(findings, "gids", "ip address add"));
  ExpectThatBytesMove("gids");
}

// Without CAP_IPC_LOCK, for which there is no limit.
TEST(DoctorMends, ALimitOfLockedMemoryIsRaised) {
  const std::string low = "ulimit -l 8192";
  const std::string as = "setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock";
  const Json findings = Findings(low, as);
  EXPECT_EQ(OutcomeOf(findings, "memlock"), "FAIL") << findings;
  const std::string fix = FixOf(findings, "memlock", "ulimit");
  EXPECT_EQ(OutcomeOf(Findings(low + "\n" + fix, as), "memlock"), "PASS");
}

// The block of server/OPERATING.md, with less memory.
TEST(DoctorMends, TheOperatorsHugePagesAreUsed) {
  MustRun(absl::StrCat("ip address replace 10.0.0.7/24 dev ", Env("LAB_NETDEV")));
  ExpectThatBytesMove("gids");
  std::ifstream page("server/OPERATING.md");
  ASSERT_TRUE(page.is_open());
  std::string block;
  for (std::string line; std::getline(page, line) && (block.empty() || line != "```");) {
    if (!block.empty() || absl::StartsWith(line, "sysctl -w vm.nr_hugepages="))
      absl::StrAppend(&block, line, "\n");
  }
  // Its foreground process is ended when it is ready.
  const std::string script = absl::StrCat(
      R"(set -e
serve() {
  server/kvserver "$@" > "$directory/out" 2> "$directory/err" & local server=$!
  for _ in {1..300}; do ! grep -q '^ready ' "$directory/out" || break; sleep 0.1; done
  kill -TERM $server
  wait $server
  cat "$directory/out" "$directory/err"
}
directory=)",
      NewTemporaryDirectory(), "\n",
      absl::StrReplaceAll(block, {{"nr_hugepages=2048", "nr_hugepages=64"},
                                  {"\nkvserver ", "\nserve "},
                                  {"--memory=4GiB", "--memory=64MiB"}}));
  const ProgramResult result = Sh(script);
  EXPECT_EQ(result.exit_status, 0) << script << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("ready rdma://"));
  EXPECT_THAT(result.out, HasSubstr("page_bytes=2097152"));
  EXPECT_EQ(OutcomeOf(Findings(), "huge pages"), "PASS");
}

}  // namespace
}  // namespace osprey
