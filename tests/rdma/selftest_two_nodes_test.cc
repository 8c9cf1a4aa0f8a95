// The self-test between two machines: node 2 serves each test in turn, by the command in the
// operators' page (tools/test.d/second-node).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "rdma/selftest/selftest.h"
#include "tests/support/subprocess.h"

namespace osprey::rdma::selftest {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kTriesMax = 40;

// Runs with an end that serves; it takes a moment until the next one does.
Report RunWithNodeTwo() {
  const std::string peer = std::getenv("LAB_PEER_IP");
  Report report;
  for (int attempt = 0; attempt < kTriesMax; ++attempt) {
    absl::StatusOr<Report> got = RunWith(peer, {});
    EXPECT_TRUE(got.ok()) << got.status();
    report = *std::move(got);
    if (report.size() > 1) return report;
    absl::SleepFor(absl::Milliseconds(500));
  }
  return report;
}

std::string TextOf(const Report& report) {
  std::string text;
  for (const Step& step : report)
    absl::StrAppend(&text, static_cast<int>(step.outcome), " ", step.layer, ": ", step.detail, "; ",
                    step.hint, "\n");
  return text;
}

std::string FailuresOf(const Report& report, const std::string& layer) {
  std::string text;
  for (const Step& step : report) {
    if (step.outcome == Outcome::kFail && step.layer == layer)
      absl::StrAppend(&text, step.detail, " (", step.hint, ")\n");
  }
  return text;
}

// Drops matching packets that arrive at this node, during its lifetime.
class Drop {
 public:
  explicit Drop(const std::vector<std::string>& match) {
    Tc({"qdisc", "add", "dev", netdev_, "ingress"});
    std::vector<std::string> filter = {"filter",   "add", "dev",  netdev_, "ingress",
                                       "protocol", "ip",  "prio", "1",     "u32"};
    filter.insert(filter.end(), match.begin(), match.end());
    filter.insert(filter.end(), {"action", "drop"});
    Tc(filter);
  }
  ~Drop() { Tc({"qdisc", "del", "dev", netdev_, "ingress"}); }

 private:
  static void Tc(std::vector<std::string> args) {
    args.insert(args.begin(), "tc");
    const ProgramResult result = RunProgram(args);
    EXPECT_EQ(result.exit_status, 0) << result.err;
  }
  const std::string netdev_ = std::getenv("LAB_NETDEV");
};

const std::vector<std::string> kRoce = {"match", "ip", "protocol", "17",   "0xff",
                                        "match", "ip", "dport",    "4791", "0xffff"};

TEST(SelftestTwoNodes, MovesBytesByBothLayers) {
  const Report report = RunWithNodeTwo();
  EXPECT_TRUE(Passed(report)) << TextOf(report);
}

// The lines of the block that begins with `kvcli doctor --self-test=serve`, which node 2 runs.
// Those of the two other machines are run here.
TEST(SelftestTwoNodes, TheOperatorsCommandsWorkAsPrinted) {
  std::ifstream page("server/OPERATING.md");
  ASSERT_TRUE(page.is_open());
  int commands = 0;
  for (std::string line; std::getline(page, line);) {
    if (!absl::StartsWith(line, "kvcli doctor --self-test=10.") &&
        !absl::StartsWith(line, "kvcli doctor --peer="))
      continue;
    ++commands;
    const std::string command =
        absl::StrCat("PATH=tools:$PATH; ",
                     absl::StrReplaceAll(line, {{"10.0.0.7", std::getenv("LAB_PEER_IP")}}));
    ProgramResult result;
    for (int attempt = 0; attempt < kTriesMax; ++attempt) {
      result = RunProgram({"bash", "-c", command});
      if (result.exit_status != 3) break;
      absl::SleepFor(absl::Milliseconds(500));
    }
    EXPECT_EQ(result.exit_status, 0) << command << "\n" << result.out << result.err;
  }
  EXPECT_EQ(commands, 2);
}

TEST(SelftestTwoNodes, WhereUdp4791IsBlockedTcpPassesAndBothLayersPointToIt) {
  const Drop drop(kRoce);
  const Report report = RunWithNodeTwo();
  EXPECT_EQ(FailuresOf(report, "tcp"), "") << TextOf(report);
  EXPECT_THAT(FailuresOf(report, "verbs"), AllOf(HasSubstr("SEND"), HasSubstr("UDP 4791")));
  EXPECT_THAT(FailuresOf(report, "rdma_cm"), AllOf(HasSubstr("connection"), HasSubstr("UDP 4791")));
}

TEST(SelftestTwoNodes, WhereLongPacketsAreLostTheSizesPointToTheMtu) {
  std::vector<std::string> match = kRoce;
  // The length of the IP packet: 4,096 to 8,191 bytes.
  match.insert(match.end(), {"match", "u16", "0x1000", "0xf000", "at", "2"});
  const Drop drop(match);
  const Report report = RunWithNodeTwo();
  EXPECT_THAT(FailuresOf(report, "verbs"),
              AllOf(HasSubstr("of 4096 B"), HasSubstr("64 B came through"), HasSubstr("MTU")))
      << TextOf(report);
}

}  // namespace
}  // namespace osprey::rdma::selftest
