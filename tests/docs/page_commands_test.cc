// The commands in the pages for people (code blocks marked "sh") have the results that the pages
// state. tests/docs/docs_test.py checks that every such block is run here, or by another test.

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/cluster/etcd/etcd_process.h"
#include "tests/support/free_ports.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Changes = std::vector<std::pair<std::string, std::string>>;

// The lines of all "sh" blocks of `page`, starting with those that begin with `prefix`.
std::string CommandsOf(const std::string& page, const std::string& prefix) {
  std::ifstream file(page);
  EXPECT_TRUE(file.is_open()) << page;
  std::string commands, block;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (!inside) {
      inside = line == "```sh";
      block.clear();
    } else if (line == "```") {
      inside = false;
      if (absl::StartsWith(block, prefix)) commands += block;
    } else {
      absl::StrAppend(&block, line, "\n");
    }
  }
  EXPECT_NE(commands, "") << page << " has no such block";
  return commands;
}

class PageCommandsTest : public ::testing::Test {
 protected:
  // Runs in a new folder, where bazel-bin is the present build. `changes` shortens long commands.
  ProgramResult Run(const std::string& commands, Changes changes = {}) {
    // A busy machine takes longer than the page allows. The flag is that of a socket that listens;
    // its file exists a little earlier.
    changes.push_back({"sleep 1", "until grep -q ' 00010000 .*" + directory_ +
                                      "/osprey.sock' /proc/net/unix; do sleep 0.05; done"});
    changes.push_back({"/tmp/", directory_ + "/"});
    const std::string script =
        absl::StrCat("set -euo pipefail; trap 'kill $(jobs -p) 2> /dev/null || true' EXIT; ",
                     "export XDG_RUNTIME_DIR=", directory_, "; mkdir ", directory_,
                     "/here; ln -s \"$PWD\" ", directory_, "/here/bazel-bin; cd ", directory_,
                     "/here\n", absl::StrReplaceAll(commands, changes));
    ProgramOptions options;
    options.timeout = absl::Seconds(200);
    return RunProgram({"bash", "-c", script}, options);
  }

  const std::string directory_ = NewTemporaryDirectory();
};

TEST_F(PageCommandsTest, TheFirstPageLeadsToAGet) {
  const ProgramResult result =
      Run(CommandsOf("README.md", "export OSPREY_SERVER"), {{"--memory=1GiB", "--memory=64MiB"}});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_TRUE(absl::EndsWith(result.out, "\nsaturn")) << result.out;
}

TEST_F(PageCommandsTest, TheOperatorsCommandsMeasureRecordsAndRestoreABackup) {
  const ProgramResult result =
      Run(CommandsOf("server/OPERATING.md", "bazel-bin/"), {{"--records=20000", "--records=2000"}});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  // An item of 160 bytes, as the page computes it; the bytes returned are counted last.
  EXPECT_THAT(result.out, AllOf(HasSubstr("\nkeys=2000\n"), HasSubstr("\nvalue_bytes=200000\n"),
                                HasSubstr("\nitem_bytes=320000\n"), HasSubstr("\nindex_bytes=")));
  EXPECT_TRUE(absl::EndsWith(result.out, "\n2000\n")) << result.out;
}

TEST_F(PageCommandsTest, AClusterOutlivesItsPrimary) {
  const std::vector<uint16_t> ports = FreePorts(2);
  const std::string url = absl::StrCat("http://127.0.0.1:", ports[0]);
  const ProgramResult result =
      Run(CommandsOf("server/cluster/OPERATING.md", "D="),
          {{"mktemp -d", "mktemp -d -p " + directory_},
           {":2379", absl::StrCat(":", ports[0])},
           {":2380", absl::StrCat(":", ports[1])},
           {"sleep 2", "until etcdctl --endpoints=" + url + " endpoint health; do sleep 0.1; done"},
           {"--memory=64MiB", "--memory=16MiB"}});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nsaturn"));
  const std::string status = result.out.substr(result.out.find("\nsaturn"));
  EXPECT_THAT(status, AllOf(HasSubstr("term=2"), HasSubstr("missing=1"))) << result.out;
}

TEST_F(PageCommandsTest, SimulationsRunAsTheirPageSays) {
  const ProgramResult result =
      Run(CommandsOf("tests/SIMULATION.md", "bazel run //tests/simulation:simulate"),
          {{"bazel run //tests/simulation:simulate --", "bazel-bin/tests/simulation/simulate"},
           {"--seeds=100000", "--seeds=2"},
           {"--operations=5000", "--operations=200"}});
  EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
}

// Of the sessions shown as pictures: the input, and parts of the output.
TEST_F(PageCommandsTest, PicturesShowWhatWasTypedAndWhatWasAnswered) {
  ProgramOptions options;
  options.timeout = absl::Seconds(200);
  const ProgramResult result = RunProgram({"tools/record", "--short", "--programs=.",
                                           "--listen=shm://" + directory_ + "/socket", directory_},
                                          options);
  ASSERT_EQ(result.exit_status, 0) << result.err;
  const std::vector<std::pair<std::string, std::vector<std::string>>> pictures = {
      {"kvcli", {">kvcli<", ">put planet saturn --ttl=3600<", ">saturn<", "1 READ, "}},
      {"latency", {">kvcli latency --duration=0.3<", "GET 64 B, by READ", "bare READ of 8 B"}},
      {"doctor", {">kvcli doctor --memory=512MiB<", "memory"}},
      {"kvbench", {"Latency by percentile"}}};
  for (const auto& [name, texts] : pictures) {
    const std::string path = absl::StrCat(directory_, "/", name, ".svg");
    // Well-formed, and its root is a picture.
    const ProgramResult parsed = RunProgram(
        {"/usr/bin/python3", "-c",
         "import sys, xml.etree.ElementTree as tree; print(tree.parse(sys.argv[1]).getroot().tag)",
         path});
    EXPECT_THAT(parsed.out, HasSubstr("svg")) << path << ": " << parsed.err;
    std::ifstream file(path);
    const std::string svg(std::istreambuf_iterator<char>(file), {});
    for (const std::string& text : texts) EXPECT_THAT(svg, HasSubstr(text)) << path;
  }
}

}  // namespace
}  // namespace osprey
