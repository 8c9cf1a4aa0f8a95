// tools/README.md shows the real output of kvcli: the test runs every command there. Times, sizes
// with a unit and versions may differ.
//
//   console  lines "$ COMMAND" and their output, piped
//   kvcli    lines "osprey> COMMAND", as typed into the shell, and its output on a terminal

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pty_process.h"
#include "tests/support/subprocess.h"
#include "tests/tools/kvcli_fixture.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

constexpr char kUri[] = "shm:///run/user/1000/osprey.sock";

struct Step {
  std::string command;
  std::string output;
};

// The steps of all blocks of one kind.
std::vector<Step> StepsOf(const std::string& kind, const std::string& prompt) {
  std::ifstream file("tools/README.md");
  EXPECT_TRUE(file.is_open());
  std::vector<Step> steps;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "```")) {
      inside = line == "```" + kind;
    } else if (inside && absl::StartsWith(line, prompt)) {
      steps.push_back({line.substr(prompt.size()), ""});
    } else if (inside && !steps.empty()) {
      absl::StrAppend(&steps.back().output, line, "\n");
    }
  }
  return steps;
}

// The lines of the block without a kind that begins with this line.
std::string ShownFrom(const std::string& beginning) {
  std::ifstream file("tools/README.md");
  std::string shown;
  for (std::string line; std::getline(file, line) && (shown.empty() || line != "```");) {
    if (!shown.empty() || absl::StartsWith(line, beginning)) absl::StrAppend(&shown, line, "\n");
  }
  EXPECT_NE(shown, "") << "no block begins with " << beginning;
  return shown;
}

enum class Numbers { kExact, kAny };

// Whether the number in [from, to) may differ each time. It is a fraction, as times and sizes are;
// or a version, in a field of that name or alone on its line.
bool MayDiffer(absl::string_view text, size_t from, size_t to) {
  if (text.substr(from, to - from).find('.') != text.npos) return true;
  const absl::string_view before = text.substr(0, from);
  const bool is_line =
      (from == 0 || text[from - 1] == '\n') && (to == text.size() || text[to] == '\n');
  return is_line || absl::EndsWith(before, "version ") || absl::EndsWith(before, "\"version\":");
}

// Replaces numbers that may differ, or all, by N; blanks between words by one; the address by the
// page's.
std::string Normal(const std::string& text, const std::string& uri,
                   Numbers numbers = Numbers::kExact) {
  const std::string all = absl::StrReplaceAll(text, {{uri, kUri}, {"\r\n", "\n"}});
  std::string normal;
  for (size_t i = 0; i < all.size();) {
    if (all[i] >= '0' && all[i] <= '9') {
      const size_t from = i;
      while (i < all.size() && ((all[i] >= '0' && all[i] <= '9') || all[i] == '.')) ++i;
      if (numbers == Numbers::kExact && !MayDiffer(all, from, i)) {
        normal.append(all, from, i - from);
        continue;
      }
      // 1.23KiB or 123B, by magnitude; likewise thousands.
      for (const char* unit : {"KiB", "MiB", "B", "k", "M"}) {
        if (absl::StartsWith(absl::string_view(all).substr(i), unit)) {
          i += std::string(unit).size();
          break;
        }
      }
      normal.push_back('N');
    } else if (all[i] == ' ') {
      while (i < all.size() && all[i] == ' ') ++i;
      normal.push_back(' ');
    } else {
      normal.push_back(all[i++]);
    }
  }
  return normal;
}

using KvcliReadmeTest = KvcliOwnServerTest;

TEST_F(KvcliReadmeTest, EveryCommandPrintsWhatThePageSays) {
  const std::vector<Step> steps = StepsOf("console", "$ ");
  EXPECT_GE(steps.size(), 8u);
  for (const Step& step : steps) {
    const ProgramResult result =
        RunProgram({"bash", "-c",
                    absl::StrCat("PATH=$PWD/tools:$PATH; export OSPREY_SERVER=", server_->uri(),
                                 "; cd ", directory_, "; { ", step.command, "; } 2>&1")});
    EXPECT_EQ(Normal(result.out, server_->uri()), Normal(step.output, server_->uri()))
        << step.command;
  }
}

TEST_F(KvcliReadmeTest, TheSessionInTheShellIsAsItIsPrinted) {
  const std::vector<Step> steps = StepsOf("kvcli", "osprey> ");
  EXPECT_GE(steps.size(), 6u);
  absl::StatusOr<std::unique_ptr<PtyProcess>> shell =
      PtyProcess::Start(Command({}), {"OSPREY_HISTORY=", "TERM=xterm"});
  ASSERT_TRUE(shell.ok()) << shell.status();
  ASSERT_TRUE((*shell)->Await("osprey> "));
  for (const Step& step : steps) {
    const size_t before = (*shell)->screen().size();
    (*shell)->Type(step.command + "\n");
    ASSERT_TRUE((*shell)->Await("\r\nosprey> ")) << step.command;
    EXPECT_THAT(Normal((*shell)->screen().substr(before), server_->uri()),
                HasSubstr("\n" + Normal(step.output, server_->uri()) + "osprey> "))
        << step.command;
  }
}

// The table; the charts below it are different each time.
TEST_F(KvcliReadmeTest, LatencysTableIsAsItIsPrinted) {
  const std::string shown = ShownFrom("transport=shm device=none peer=");
  const size_t charts = shown.find("\nGET  ");
  ASSERT_NE(charts, shown.npos) << shown;
  absl::StatusOr<std::unique_ptr<PtyProcess>> latency =
      PtyProcess::Start(Command({"latency", "--count=20"}), {"TERM=xterm"});
  ASSERT_TRUE(latency.ok()) << latency.status();
  EXPECT_EQ((*latency)->AwaitEnd(), 0);
  EXPECT_THAT(Normal((*latency)->screen(), server_->uri(), Numbers::kAny),
              HasSubstr(Normal(shown.substr(0, charts + 1), server_->uri(), Numbers::kAny)));
}

}  // namespace
}  // namespace osprey
