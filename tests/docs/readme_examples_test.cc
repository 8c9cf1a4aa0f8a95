// The programs printed in README.md and client/README.md. BUILD extracts and compiles them; this
// runs them.

#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ReadmeExamplesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(absl::StrCat("shm://", NewTemporaryDirectory(), "/socket"));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string Run(const std::string& program) {
    const ProgramResult result = RunProgram({"tests/docs/" + program, server_->uri()});
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return result.out;
  }
  std::unique_ptr<ServerProcess> server_;
};

int Blocks(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  int blocks = 0;
  for (std::string line; std::getline(file, line);) blocks += line.rfind("```cpp", 0) == 0 ? 1 : 0;
  return blocks;
}

TEST_F(ReadmeExamplesTest, EveryExampleIsCompiled) {
  EXPECT_EQ(Blocks("README.md"), 1);
  EXPECT_EQ(Blocks("client/README.md"), 7);
}

TEST_F(ReadmeExamplesTest, TheFirstProgramSaysWhatItGot) {
  const std::string out = Run("readme_example_1");
  EXPECT_THAT(out, StartsWith("saturn"));
  EXPECT_THAT(out, HasSubstr("transport=shm"));
}

TEST_F(ReadmeExamplesTest, TheCounterCounts) {
  EXPECT_EQ(Run("client_readme_example_1"), "visit 1\n");
  EXPECT_EQ(Run("client_readme_example_1"), "visit 2\n");
}

TEST_F(ReadmeExamplesTest, ManyInFlightAreFound) {
  EXPECT_EQ(Run("client_readme_example_2"), "100 moons, 1.00 READs each\n");
}

TEST_F(ReadmeExamplesTest, ALongValueComesBackWithoutACopy) {
  EXPECT_EQ(Run("client_readme_example_3"), "700000 bytes of rings\n");
}

TEST_F(ReadmeExamplesTest, ManyKeysAreAnsweredEachByItself) {
  EXPECT_EQ(
      Run("client_readme_example_4"),
      "mercury: 4879\nearth: 12742\nvulcan: no such planet\nPer aspera ad astra\n3 visitors\n");
}

TEST_F(ReadmeExamplesTest, ThreadsHaveLanesOfTheirOwn) {
  EXPECT_EQ(Run("client_readme_example_5"), "400 turns\n");
}

TEST_F(ReadmeExamplesTest, AScanFindsEveryKey) {
  Run("client_readme_example_2");
  EXPECT_EQ(Run("client_readme_example_6"), "100 moons of 100 keys\n");
}

TEST_F(ReadmeExamplesTest, ASessionLivesForHalfAnHourUnlessItIsUsed) {
  EXPECT_EQ(Run("client_readme_example_7"), "saturn, 30 minutes\n");
}

}  // namespace
}  // namespace osprey
