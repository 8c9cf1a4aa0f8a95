// The self-test over soft-RoCE: both ends on one machine.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "rdma/selftest/control.h"
#include "rdma/selftest/path.h"
#include "rdma/selftest/selftest.h"
#include "tests/support/subprocess.h"

namespace osprey::rdma::selftest {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string LabIp() { return std::getenv("LAB_IP"); }

std::string TextOf(const Report& report) {
  std::string text;
  for (const Step& step : report) {
    absl::StrAppend(&text, static_cast<int>(step.outcome), " ", step.layer, ": ", step.detail, "; ",
                    step.hint, "\n");
  }
  return text;
}

// The first step that failed.
Step FailureOf(const Report& report) {
  for (const Step& step : report) {
    if (step.outcome == Outcome::kFail) return step;
  }
  return {};
}

Server MustListen(const Options& options = {}) {
  absl::StatusOr<Server> server = Server::Listen(absl::StrCat(LabIp(), ":0"), options);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(Selftest, MovesBytesByBothLayersInOneProcess) {
  const Report report = RunHere({});
  EXPECT_TRUE(Passed(report)) << TextOf(report);
  for (const char* step : {"INIT to RTR", "SEND and RECV", "READ of", "WRITE of", "connection"})
    EXPECT_THAT(TextOf(report), HasSubstr(step));
}

TEST(Selftest, MovesBytesBetweenTwoEndsThatFindEachOtherOverTcp) {
  Server server = MustListen();
  absl::StatusOr<Report> theirs = absl::UnknownError("not run");
  std::thread other([&] { theirs = server.ServeOne(absl::Seconds(20)); });
  const absl::StatusOr<Report> ours = RunWith(server.address(), {});
  other.join();
  ASSERT_TRUE(ours.ok() && theirs.ok()) << ours.status() << theirs.status();
  EXPECT_TRUE(Passed(*ours)) << TextOf(*ours);
  EXPECT_TRUE(Passed(*theirs)) << TextOf(*theirs);
}

TEST(Selftest, AnIndexWithoutAGidIsRefusedWithThoseThatThereAre) {
  Options options;
  options.gid_index = 99;
  const Step failure = FailureOf(RunHere(options));
  EXPECT_EQ(failure.layer, "device");
  EXPECT_THAT(failure.detail, HasSubstr("no GID 99; it has: 0 "));
  EXPECT_THAT(failure.detail, HasSubstr(LabIp()));
}

TEST(Selftest, GidsOfTwoNetworksFailAtRtrAndTheOtherLayerIsTriedAllTheSame) {
  Options ipv6;
  ipv6.gid_index = 2;
  Server server = MustListen();
  absl::StatusOr<Report> theirs = absl::UnknownError("not run");
  std::thread other([&] { theirs = server.ServeOne(absl::Seconds(20)); });
  const absl::StatusOr<Report> ours = RunWith(server.address(), ipv6);
  other.join();
  ASSERT_TRUE(ours.ok() && theirs.ok()) << ours.status() << theirs.status();
  for (const Report& report : {*ours, *theirs}) {
    EXPECT_EQ(FailureOf(report).layer, "verbs") << TextOf(report);
    EXPECT_THAT(FailureOf(report).detail, HasSubstr("INIT to RTR"));
    EXPECT_THAT(FailureOf(report).hint, HasSubstr("--gid-index"));
    EXPECT_EQ(report.back().layer, "rdma_cm");
    EXPECT_EQ(report.back().outcome, Outcome::kPass) << TextOf(report);
  }
}

TEST(Selftest, ADeviceOrPortThatIsNotThereIsNamed) {
  Options options;
  options.device = "mlx5_7";
  EXPECT_THAT(FailureOf(RunHere(options)).detail, HasSubstr("mlx5_7; there are: rxe0 port 1"));
  options.device = "rxe0";
  options.port = 2;
  EXPECT_THAT(FailureOf(RunHere(options)).detail, HasSubstr("rxe0 port 2"));
}

UniqueFd ConnectTo(const std::string& address) {
  const std::string port = address.substr(address.rfind(':') + 1);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where = {};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
  where.sin_addr.s_addr = inet_addr(LabIp().c_str());
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof(where)), 0);
  return fd;
}

TEST(Selftest, ForeignTcpPeersAreRejectedAndTheClientIsServed) {
  Server server = MustListen();
  absl::StatusOr<Report> theirs = absl::UnknownError("not run");
  std::thread other([&] { theirs = server.ServeOne(absl::Seconds(20)); });
  const UniqueFd silent = ConnectTo(server.address());
  const UniqueFd http = ConnectTo(server.address());
  EXPECT_EQ(write(http.get(), "GET / HTTP/1.1\r\n\r\n", 18), 18);
  ConnectTo(server.address());  // and disconnects
  const absl::StatusOr<Report> ours = RunWith(server.address(), {});
  other.join();
  ASSERT_TRUE(ours.ok() && theirs.ok()) << ours.status() << theirs.status();
  EXPECT_TRUE(Passed(*ours)) << TextOf(*ours);
}

TEST(Selftest, AnEndThatSaysHelloAndThenNonsenseEndsTheTestInTime) {
  Options options;
  options.limit = absl::Seconds(5);
  Server server = MustListen(options);
  absl::StatusOr<Report> theirs = absl::UnknownError("not run");
  std::thread other([&] { theirs = server.ServeOne(absl::Seconds(20)); });
  const UniqueFd liar = ConnectTo(server.address());
  Message hello;
  hello.step = 1;
  EXPECT_EQ(write(liar.get(), &hello, sizeof(hello)), static_cast<ssize_t>(sizeof(hello)));
  for (uint32_t step = 2; step <= 3; ++step) {
    Message ok;
    ok.step = step;
    EXPECT_EQ(write(liar.get(), &ok, sizeof(ok)), static_cast<ssize_t>(sizeof(ok)));
  }
  Message parameters;  // all zero: an impossible queue pair and memory
  parameters.step = 4;
  EXPECT_EQ(write(liar.get(), &parameters, sizeof(parameters)),
            static_cast<ssize_t>(sizeof(parameters)));
  const absl::Time begin = absl::Now();
  other.join();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  EXPECT_EQ(FailureOf(*theirs).layer, "verbs") << TextOf(*theirs);
  EXPECT_THAT(FailureOf(*theirs).detail, HasSubstr("bytes of memory"));
}

TEST(Selftest, MissingServerIsReportedWithTheCommandToStartIt) {
  const absl::StatusOr<Report> report = RunWith(absl::StrCat(LabIp(), ":7499"), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->size(), 1U);
  EXPECT_EQ(FailureOf(*report).layer, "tcp");
  EXPECT_THAT(FailureOf(*report).hint, HasSubstr("--self-test=serve --bind="));
}

TEST(Selftest, AWaitWithoutAPeerEnds) {
  Server server = MustListen();
  EXPECT_EQ(server.ServeOne(absl::Milliseconds(300)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(Selftest, KvcliRunsItBetweenTwoProcesses) {
  const std::string address = absl::StrCat(LabIp(), ":7498");
  ProgramResult serving;
  std::thread other([&] {
    serving = RunProgram(
        {"tools/kvcli", "doctor", "--self-test=serve", absl::StrCat("--bind=", address)});
  });
  ProgramResult ours;
  for (int attempt = 0; attempt < 20; ++attempt) {
    ours = RunProgram({"tools/kvcli", "doctor", absl::StrCat("--self-test=", address)});
    if (ours.exit_status != 3) break;
    absl::SleepFor(absl::Milliseconds(300));
  }
  other.join();
  EXPECT_EQ(ours.exit_status, 0) << ours.out << ours.err;
  EXPECT_EQ(serving.exit_status, 0) << serving.out << serving.err;
  EXPECT_THAT(ours.out, HasSubstr("PASS\trdma_cm\tWRITE"));
  EXPECT_EQ(RunProgram({"tools/kvcli", "doctor", "--self-test"}).exit_status, 0);
}

// The index of the device's GID that is the lab's IPv4 address, as sysfs has it.
int GidIndexOfLabIp() {
  in_addr address = {};
  EXPECT_EQ(inet_pton(AF_INET, LabIp().c_str(), &address), 1);
  const uint32_t host = ntohl(address.s_addr);
  const std::string wanted =
      absl::StrFormat("0000:0000:0000:0000:0000:ffff:%04x:%04x", host >> 16, host & 0xffff);
  for (int index = 0; index < 16; ++index) {
    std::ifstream file(
        absl::StrCat("/sys/class/infiniband/", std::getenv("LAB_DEVICE"), "/ports/1/gids/", index));
    std::string gid;
    if (std::getline(file, gid) && gid == wanted) return index;
  }
  ADD_FAILURE() << "no GID " << wanted;
  return -1;
}

TEST(Selftest, KvcliTakesDevicePortAndGidAndPrintsThemInJson) {
  const std::string index = absl::StrCat(GidIndexOfLabIp());
  const std::string device = std::getenv("LAB_DEVICE");
  const ProgramResult result =
      RunProgram({"tools/kvcli", "doctor", "--self-test", "--device=" + device, "--ib-port=1",
                  "--gid-index=" + index, "--json"});
  EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << result.out;
  EXPECT_EQ(json["worst"], "PASS");
  std::set<std::string> layers;
  for (const nlohmann::json& finding : json["findings"]) {
    EXPECT_EQ(finding["outcome"], "PASS") << finding;
    layers.insert(finding["check"].get<std::string>());
  }
  EXPECT_THAT(layers, ::testing::IsSupersetOf({"device", "verbs", "rdma_cm"}));
  EXPECT_THAT(json["findings"][0]["reason"].get<std::string>(),
              AllOf(HasSubstr(device), HasSubstr("GID " + index), HasSubstr(LabIp())));
  // These are used: others are refused by name.
  EXPECT_EQ(RunProgram({"tools/kvcli", "doctor", "--self-test", "--device=" + device, "--ib-port=2",
                        "--gid-index=" + index})
                .exit_status,
            4);
}

}  // namespace
}  // namespace osprey::rdma::selftest
