// kvbench as people and scripts use it, on a kvserver. Over shared memory; in the lab, tests that
// depend on the transport run over verbs: a process takes seconds there.

#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/config.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/subprocess.h"
#include "tools/loadgen/workload/workload.h"

namespace osprey {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

constexpr char kOneLine[] = "kvbench: [^\n]+\n";

class KvbenchTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = NewTemporaryDirectory();
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(NewListenAddress());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  static void TearDownTestSuite() {
    if (server_ == nullptr) return;
    EXPECT_EQ(server_->Stop(), 0);
    server_.reset();
  }

  // Without a server.
  static ProgramResult Bare(std::vector<std::string> args) {
    args.insert(args.begin(), {"env", "-u", "OSPREY_SERVER", "tools/kvbench"});
    return RunProgram(args);
  }

  static ProgramResult Kvbench(std::vector<std::string> args) {
    args.push_back(absl::StrCat("--server=", server_->uri()));
    // Before the test's own options, which override these. On a machine that is busy with other
    // tests the server may not run for a second.
    args.insert(args.begin() + 1, "--timeout=30");
    return Bare(args);
  }

  static void Load(std::vector<std::string> args = {}) {
    args.insert(args.begin(), {"load", "--records=500", "--depth=8"});
    const ProgramResult load = Kvbench(args);
    ASSERT_EQ(load.exit_status, 0) << load.err;
    EXPECT_EQ(MetricRow(load.out, "[INSERT], Return=OK"), 500);
  }

  // The number after "[READ], Operations, "; -1 if there is no such line.
  static double MetricRow(const std::string& out, const std::string& name) {
    for (const absl::string_view line : absl::StrSplit(out, '\n')) {
      double figure = 0;
      if (absl::StartsWith(line, name + ", ") &&
          absl::SimpleAtod(line.substr(name.size() + 2), &figure))
        return figure;
    }
    return -1;
  }

  static std::string InDirectory(const std::string& name) {
    return absl::StrCat(directory_, "/", name);
  }

  static std::string Contents(const std::string& path) {
    std::ifstream file(path);
    EXPECT_TRUE(file.good()) << path;
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  static void ExpectUsageError(const ProgramResult& result, const std::string& message) {
    EXPECT_EQ(result.exit_status, 2) << message;
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, AllOf(MatchesRegex(kOneLine), HasSubstr(message)));
  }

  static std::string directory_;
  static std::unique_ptr<ServerProcess> server_;
};

class KvbenchOnAnyTransportTest : public KvbenchTest {
 protected:
  void SetUp() override {
    if (InLab()) GTEST_SKIP() << "it is the same over every transport";
  }
};

std::string KvbenchTest::directory_;
std::unique_ptr<ServerProcess> KvbenchTest::server_;

TEST_F(KvbenchTest, EveryCoreWorkloadReadsWhatWasWritten) {
  Load();
  for (const std::string workload : {"a", "b", "c", "d", "e", "f"}) {
    SCOPED_TRACE(workload);
    // Two clients and a server on the two processors of a guest, beside soft-RoCE's own work, take
    // many times as long as one client.
    const ProgramResult run =
        Kvbench({"run", "--workload", workload, "--records=500", "--operations=1000",
                 InLab() ? "--threads=1" : "--threads=2", "--depth=4", "--verify"});
    EXPECT_EQ(run.exit_status, 0) << run.err;
    EXPECT_THAT(run.err, IsEmpty());
    EXPECT_EQ(MetricRow(run.out, "[OVERALL], Operations"), 1000);
    EXPECT_GT(MetricRow(run.out, "[OVERALL], Throughput(ops/sec)"), 0);
    EXPECT_GT(MetricRow(run.out, "[VERIFY], Return=OK"), 400);
    EXPECT_EQ(MetricRow(run.out, "[VERIFY], Return=UNEXPECTED_STATE"), 0);
    EXPECT_THAT(run.out, AllOf(HasSubstr("transport="), HasSubstr("device=")));
    EXPECT_EQ(absl::StrContains(run.out, "# SCAN: keys have no order"), workload == "e");
    if (workload == "c") {
      EXPECT_EQ(MetricRow(run.out, "[READ], Return=OK"), 1000);
      EXPECT_LE(MetricRow(run.out, "[CLIENT], ReadsPerGet"), 2.1);
      EXPECT_GE(MetricRow(run.out, "[READ], 99thPercentileLatency(us)"),
                MetricRow(run.out, "[READ], 50thPercentileLatency(us)"));
    }
  }
}

TEST_F(KvbenchTest, AValueThatAnotherWroteIsFoundAndTheStatusIsFour) {
  Load({"-p", "insertorder=ordered"});
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri());
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->Put("user123", std::string(1000, 'x')).ok());
  const std::vector<std::string> verify = {"run",
                                           "--workload=c",
                                           "--records=500",
                                           "--verify",
                                           "--operations=500",
                                           "-p",
                                           "insertorder=ordered",
                                           "-p",
                                           "requestdistribution=sequential"};
  const ProgramResult run = Kvbench(verify);
  EXPECT_EQ(run.exit_status, 4);
  EXPECT_EQ(MetricRow(run.out, "[VERIFY], Return=UNEXPECTED_STATE"), 1);
  EXPECT_THAT(run.err, AllOf(MatchesRegex(kOneLine), HasSubstr("user123")));
  ASSERT_TRUE((*client)->Delete("user123").ok());
  const ProgramResult missing = Kvbench(verify);
  EXPECT_EQ(missing.exit_status, 0);
  EXPECT_EQ(MetricRow(missing.out, "[READ], Return=NOT_FOUND"), 1);
  EXPECT_EQ(MetricRow(missing.out, "[READ-FAILED], Operations"), 1);
  EXPECT_THAT(missing.err, AllOf(MatchesRegex(kOneLine), HasSubstr("found no value")));
}

TEST_F(KvbenchTest, FilesHoldTheSameFiguresAndTwoProcessesAreMerged) {
  Load();
  std::vector<std::string> files;
  for (const std::string name : {"one", "two"}) {
    const ProgramResult run =
        Kvbench({"run", "--workload=a", "--records=500", "--operations=600", "--json",
                 InDirectory(name + ".json"), "--hdr", InDirectory(name + ".hdr"), "--series",
                 InDirectory(name + ".csv"), "--plot", InDirectory(name + ".svg")});
    ASSERT_EQ(run.exit_status, 0) << run.err;
    files.push_back(InDirectory(name + ".json"));
    const Json json = Json::parse(Contents(files.back()));
    EXPECT_EQ(json["operations"], 600);
    EXPECT_EQ(json["environment"]["transport"], InLab() ? "verbs" : "shm");
    EXPECT_EQ(json["settings"]["workload"], "a");
    EXPECT_EQ(json["kinds"]["READ"]["returns"]["OK"],
              static_cast<int>(MetricRow(run.out, "[READ], Operations")));
  }
  EXPECT_THAT(Contents(InDirectory("one.READ.hdr")), HasSubstr("#[Max     ="));
  EXPECT_THAT(Contents(InDirectory("one.UPDATE.hdr")), HasSubstr("1/(1-Percentile)"));
  EXPECT_THAT(Contents(InDirectory("one.csv")), HasSubstr("second,operations,p50_us"));
  EXPECT_THAT(Contents(InDirectory("one.svg")), HasSubstr("</svg>"));
  const ProgramResult merged =
      Bare({"merge", files[0], files[1], "--json=" + InDirectory("merged.json")});
  EXPECT_EQ(merged.exit_status, 0) << merged.err;
  EXPECT_EQ(MetricRow(merged.out, "[OVERALL], Operations"), 1200);
  EXPECT_EQ(Json::parse(Contents(InDirectory("merged.json")))["processes"], 2);
  ExpectUsageError(Bare({"merge"}), "JSON");
  ExpectUsageError(Bare({"merge", InDirectory("one.csv")}), "one.csv");
}

TEST_F(KvbenchTest, AnOpenLoopKeepsItsRateAndPrintsBothTimes) {
  Load();
  const ProgramResult run =
      Kvbench({"run", "--workload=b", "--records=500", "--target=500", "--duration=1.5s",
               "--warmup=0.2", "--arrivals=fixed", "--depth=16", "-s"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  // Operations that were due at the end but not begun, since the machine stood still, are reported
  // as being behind.
  const double behind_s = MetricRow(run.out, "[OVERALL], BehindAtEnd(ms)") / 1000;
  EXPECT_GE(behind_s, 0);
  EXPECT_GE(MetricRow(run.out, "[OVERALL], Operations"), 710 - 500 * behind_s);
  // A machine that stands still at the end makes the run longer. One that stands still during the
  // warm-up of 0.2 s moves operations of the warm-up into the run.
  const double run_s = MetricRow(run.out, "[OVERALL], RunTime(ms)") / 1000 + 0.2;
  EXPECT_LE(MetricRow(run.out, "[OVERALL], Operations"), 500 * run_s + 40);
  EXPECT_GT(MetricRow(run.out, "[Intended-READ], Operations"), 0);
  EXPECT_GE(MetricRow(run.out, "[Intended-READ], MaxLatency(us)"),
            MetricRow(run.out, "[READ], MinLatency(us)"));
  EXPECT_THAT(run.err, MatchesRegex("1 s: [0-9]+ operations, [0-9]+/s, p50 [0-9.]+ us, p99 [0-9.]+ "
                                    "us, [0-9]+s? left\n(2 s: .*\n)?"));
}

TEST_F(KvbenchOnAnyTransportTest, YcsbsFilesAndOptionsAreTaken) {
  const std::string file = InDirectory("workload");
  std::ofstream(file) << "recordcount=500\noperationcount=300\n"
                         "workload=site.ycsb.workloads.CoreWorkload\nreadallfields=true\n"
                         "readproportion=0.5\nupdateproportion=0.5\nscanproportion=0\n"
                         "insertproportion=0\nrequestdistribution=zipfian\nredis.host=localhost\n";
  const ProgramResult load = Kvbench({"load", "-P", file, "-threads", "2"});
  EXPECT_EQ(load.exit_status, 0) << load.err;
  EXPECT_EQ(MetricRow(load.out, "[INSERT], Operations"), 500);
  const ProgramResult run = Kvbench({"run", "-P", file, "-p", "operationcount=200", "-p",
                                     "writeallfields=false", "--verify", "-target", "100000"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(MetricRow(run.out, "[OVERALL], Operations"), 200);
  EXPECT_EQ(MetricRow(run.out, "[CLIENT], Messages"), MetricRow(run.out, "[UPDATE], Operations"));
  EXPECT_THAT(run.out, AllOf(HasSubstr("redis.host is of another database"),
                             HasSubstr("changes one field")));
  EXPECT_EQ(MetricRow(run.out, "[VERIFY], Operations"), 200) << "an update reads, too";
}

TEST_F(KvbenchOnAnyTransportTest, FlagsMayStandInAFile) {
  std::ofstream(InDirectory("flags")) << "# a\n--workload=c\n--operations=70\n--server=null:\n";
  const ProgramResult run = Bare({"run", "--flagfile=" + InDirectory("flags")});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(MetricRow(run.out, "[READ], Operations"), 70);
}

TEST_F(KvbenchOnAnyTransportTest, WithoutMemoryTheStatusIsFourAndALineSaysSo) {
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
  GTEST_SKIP() << "a sanitizer's shadow memory does not fit under a limit of address space";
#endif
  // In memory a JSON number takes many times the two bytes that it takes here.
  std::string json = "[1";
  for (int i = 0; i < 8'000'000; ++i) json += ",1";
  std::ofstream(InDirectory("much.json")) << json << "]";
  const ProgramResult merge = RunProgram(
      {"bash", "-c", "ulimit -v 150000; exec tools/kvbench merge " + InDirectory("much.json")});
  EXPECT_EQ(merge.exit_status, 4) << merge.out;
  EXPECT_THAT(merge.err, MatchesRegex("kvbench: out of memory; [^\n]+\n"));
}

TEST_F(KvbenchOnAnyTransportTest, TheEtcPoolsSizesAreWrittenAndRead) {
  const std::vector<std::string> etc = {"--workload=etc", "--records=300", "--verify", "--depth=4"};
  std::vector<std::string> load = etc;
  load.insert(load.begin(), "load");
  EXPECT_EQ(Kvbench(load).exit_status, 0);
  std::vector<std::string> run = etc;
  run.insert(run.begin(), {"run", "--target=20000", "--arrivals=etc", "--operations=600"});
  const ProgramResult ran = Kvbench(run);
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_EQ(MetricRow(ran.out, "[VERIFY], Return=UNEXPECTED_STATE"), 0);
  EXPECT_GT(MetricRow(ran.out, "[READ], Return=OK"), 500);
}

TEST_F(KvbenchOnAnyTransportTest, FilesAreWrittenIfStdoutIsClosed) {
  const ProgramResult run = RunProgram(
      {"sh", "-c",
       absl::StrCat("tools/kvbench run --server=null: --workload=a --operations=100 --json=",
                    InDirectory("unread.json"), " | true")});
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_EQ(Json::parse(Contents(InDirectory("unread.json")))["operations"], 100);
}

TEST_F(KvbenchTest, AnInterruptionIsStatusFourWithTheReportOfWhatWasDone) {
  Load();
  const auto interrupted = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {"timeout", "--foreground", "--preserve-status", "--signal=INT", "3",
                               "tools/kvbench"});
    return RunProgram(args);
  };
  const ProgramResult run = interrupted({"run", "--workload=c", "--records=500", "--duration=60",
                                         absl::StrCat("--server=", server_->uri())});
  EXPECT_EQ(run.exit_status, 4);
  EXPECT_THAT(run.err, AllOf(MatchesRegex(kOneLine), HasSubstr("interrupted after")));
  EXPECT_THAT(run.out, HasSubstr("# interrupted"));
  EXPECT_GT(MetricRow(run.out, "[READ], Return=OK"), 0);
  const ProgramResult load = interrupted({"load", "--records=1000000000", "--server=null:"});
  EXPECT_EQ(load.exit_status, 4);
  EXPECT_THAT(load.err, AllOf(MatchesRegex(kOneLine), HasSubstr("of 1000000000 records")));
  EXPECT_GT(MetricRow(load.out, "[INSERT], Return=OK"), 0);
}

TEST_F(KvbenchOnAnyTransportTest, AFullServerEndsALoadWithStatusFour) {
  absl::StatusOr<std::unique_ptr<ServerProcess>> small =
      ServerProcess::Start(NewListenAddress(), {"--memory=16MiB"});
  ASSERT_TRUE(small.ok()) << small.status();
  const ProgramResult load =
      Bare({"load", "--records=100000", "--depth=16", "--server", (*small)->uri()});
  EXPECT_EQ(load.exit_status, 4);
  EXPECT_THAT(load.err, AllOf(MatchesRegex(kOneLine), HasSubstr("RESOURCE_EXHAUSTED")));
  EXPECT_LT(MetricRow(load.out, "[INSERT], Operations"), 100'000);
  EXPECT_EQ((*small)->Stop(), 0);
}

// The lines of the code block of tools/README.md that begins with this line.
std::vector<std::string> BlockOfReadme(const std::string& beginning) {
  std::ifstream file("tools/README.md");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line) && (lines.empty() || line != "```");) {
    if (!lines.empty() || absl::StartsWith(line, beginning)) lines.push_back(line);
  }
  EXPECT_FALSE(lines.empty()) << "no block begins with " << beginning;
  return lines;
}

// The commands as printed, including two processes side by side; and their output as the page shows
// it.
TEST_F(KvbenchOnAnyTransportTest, TheReadmesCommandsWorkAndPrintWhatItShows) {
  std::string script = "set -eu\n";
  int commands = 0;
  for (const std::string& line : BlockOfReadme("export OSPREY_SERVER")) {
    const bool is_command = absl::StartsWith(line, "bazel-bin/tools/kvbench ");
    if (is_command) ++commands;
    absl::StrAppend(&script,
                    absl::StrReplaceAll(
                        line, {{"shm://$XDG_RUNTIME_DIR/osprey.sock", server_->uri()},
                               {"/tmp/", directory_ + "/"},
                               // As above.
                               {"bazel-bin/tools/kvbench run", "tools/kvbench run --timeout=30"},
                               {"bazel-bin/", ""}}),
                    "\n");
  }
  EXPECT_EQ(commands, 6);
  const ProgramResult result = RunProgram({"bash", "-c", script});
  EXPECT_EQ(result.exit_status, 0) << script << result.err;
  EXPECT_THAT(result.err, IsEmpty()) << "merge: two that did not run side by side?";
  const Json merged = Json::parse(Contents(InDirectory("a.json")), nullptr, false);
  EXPECT_TRUE(merged.is_object());
  for (const std::string& line : BlockOfReadme("# kvbench run: workload=b")) {
    if (absl::StartsWith(line, "[")) {
      // Except for the number.
      EXPECT_THAT(result.out, HasSubstr("\n" + line.substr(0, line.rfind(", ") + 2)));
      continue;
    }
    for (const absl::string_view word : absl::StrSplit(line, ' ')) {
      const size_t equals = word.find('=');
      if (equals == word.npos) continue;
      EXPECT_THAT(result.out, HasSubstr(absl::StrCat(" ", word.substr(0, equals + 1))));
    }
  }
}

TEST_F(KvbenchOnAnyTransportTest, ItsReportNamesTheCommitThatItWasBuiltFromWhereverItRuns) {
  // The page here is a link into the sources.
  if (RunProgram(
          {"sh", "-c", "git -C \"$(dirname \"$(readlink -f tools/README.md)\")\" rev-parse HEAD"})
          .exit_status != 0)
    GTEST_SKIP() << "the sources are no checkout";
  const std::string path = InDirectory("commit.json");
  const ProgramResult run =
      RunProgram({"sh", "-c",
                  "kvbench=$PWD/tools/kvbench; cd / && $kvbench run --server=null: --workload=c "
                  "--operations=100 --json=" +
                      path});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  const Json json = Json::parse(Contents(path), nullptr, false);
  ASSERT_TRUE(json.is_object());
  ASSERT_TRUE(json["environment"].contains("commit")) << json["environment"];
  EXPECT_THAT(json["environment"]["commit"].get<std::string>(),
              MatchesRegex("[-.0-9a-zA-Z]*[0-9a-f]{7,}(-dirty)?"));
}

TEST_F(KvbenchOnAnyTransportTest, TheNullServerMeasuresTheLoadAlone) {
  const ProgramResult run =
      Bare({"run", "--server=null:", "--workload=a", "--operations=10000", "--depth=16"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("transport=null"));
  EXPECT_EQ(MetricRow(run.out, "[OVERALL], Operations"), 10'000);
  ExpectUsageError(Bare({"run", "--server=null:", "--workload=a", "--verify"}), "null:");
}

TEST_F(KvbenchOnAnyTransportTest, WrongCommandLinesAreStatusTwoAndSayWhatIsWrong) {
  ExpectUsageError(Bare({}), "load, run or merge");
  ExpectUsageError(Bare({"test"}), "'test'");
  ExpectUsageError(Bare({"run", "more"}), "'more'");
  ExpectUsageError(Bare({"run", "--workload=a"}), "OSPREY_SERVER");
  for (const char* server : {"localhost", "rdma://", "shm://", "rdma://h:99999", "null"}) {
    ExpectUsageError(Bare({"run", "--workload=a", "--server", server}), "rdma://10.0.0.7:7411");
    ExpectUsageError(Bare({"load", "--server", server}), "or null:");
  }
  ExpectUsageError(Bare({"merge", "a.json", "--workload=zz"}), "--workload means nothing to merge");
  ExpectUsageError(Bare({"merge", "a.json", "--value-size=1"}), "--value-size means nothing");
  ExpectUsageError(Bare({"merge", "a.json", "-p", "recordcount=5"}), "-p and -P mean nothing");
  ExpectUsageError(Bare({"merge", "a.json", "--json="}), "--json: it is given and empty");
  ExpectUsageError(Kvbench({"load", "--warmup=1"}), "--warmup means nothing to load");
  ExpectUsageError(Kvbench({"load", "--operations=1"}), "--operations means nothing to load");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--wokload=b"}), "is it --workload?");
  ExpectUsageError(Kvbench({"run", "--flagfile=/absent/flags"}), "/absent/flags");
  ExpectUsageError(Kvbench({"run"}), "--workload");
  ExpectUsageError(Kvbench({"run", "--workload=g"}), "a, b, c");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--bogus"}), "--bogus");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--depth=0"}), "--depth=0");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--depth=16384", "--threads=1024"}),
                   "--threads");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--threads=0"}), "threadcount");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--records=0"}), "recordcount");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--target=-1"}), "target");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--duration=soon"}), "soon");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--warmup=-1"}), "--warmup");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--timeout=100"}), "--timeout");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--value-size=2GiB"}), "fieldlength");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--value-size=x"}), "--value-size");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--value-size=1GiB", "--depth=16"}), "buffers");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--wait=sleep\nor not"}), "--wait");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--arrivals=now"}), "--arrivals");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--slot-cache=2TiB"}), "--slot-cache");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--json=/absent/x"}), "/absent/x");
  ExpectUsageError(Kvbench({"run", "--workload=a", "--json="}), "--json");
  ExpectUsageError(Kvbench({"run", "-p", "recordcoutn=5", "--workload=a"}), "is it recordcount?");
  ExpectUsageError(Bare({"run", "-p"}), "NAME=VALUE");
  ExpectUsageError(Kvbench({"run", "-P", "/absent/w"}), "/absent/w");
}

TEST_F(KvbenchOnAnyTransportTest, HelpNeedsNoServerAndNamesEveryFlag) {
  const ProgramResult help = Bare({"--help"});
  EXPECT_EQ(help.exit_status, 0);
  for (const char* word : {"--workload", "--depth", "--hdr", "-p NAME=VALUE", "recordcount",
                           "xit status", "--slot-cache", "merge A.json"})
    EXPECT_THAT(help.out, HasSubstr(word));
  for (const absl::string_view line : absl::StrSplit(help.out, '\n')) EXPECT_LE(line.size(), 110u);
  const std::vector<std::string> words =
      absl::StrSplit(help.out, absl::ByAnyChar(" =\n"), absl::SkipEmpty());
  for (const absl::string_view property : loadgen::PropertyNames())
    EXPECT_THAT(words, Contains(property));
  EXPECT_EQ(Bare({"-h"}).out, help.out);
  EXPECT_EQ(Bare({"help"}).out, help.out);
  EXPECT_EQ(Bare({"run", "--help"}).out, help.out);
}

TEST_F(KvbenchOnAnyTransportTest, TheVersionIsPrinted) {
  const ProgramResult version = Bare({"--version"});
  EXPECT_EQ(version.exit_status, 0) << version.err;
  EXPECT_THAT(
      version.out,
      MatchesRegex("kvbench [0-9.]+ \\(protocol [0-9]+, layout [0-9]+(, commit [^)]+)?\\)\n"));
}

TEST_F(KvbenchOnAnyTransportTest, WithoutAServerTheStatusIsThreeAndTheLineNamesIt) {
  const ProgramResult result = Bare({"load", "--server=shm:///absent/socket", "--records=1"});
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, AllOf(MatchesRegex(kOneLine), HasSubstr("/absent/socket")));
}

}  // namespace
}  // namespace osprey
