// libosprey.so as other languages use it: the program of client/README.md compiled as printed there,
// and a binding from Python.

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

constexpr char kLibrary[] = "client/libosprey.so";

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The first block of `language` in client/README.md.
std::string Block(const std::string& language) {
  const std::string readme = TextOf("client/README.md");
  const size_t begin = readme.find("```" + language + "\n");
  EXPECT_NE(begin, std::string::npos);
  const size_t first = readme.find('\n', begin) + 1;
  return readme.substr(first, readme.find("```", first) - first);
}

class CProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(NewListenAddress(), {"--memory=512MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    directory_ = NewTemporaryDirectory();
  }
  std::unique_ptr<ServerProcess> server_;
  std::string directory_;
};

TEST_F(CProgramTest, TheProgramOfTheReadmeIsCompiledAsPrintedAndRuns) {
  std::ofstream(directory_ + "/planets.c") << Block("c");
  // The command of the README, except that the build folder is that of the test.
  const std::string command =
      absl::StrReplaceAll(Block("sh"), {{"bazel-bin/", ""},
                                        {"./planets", directory_ + "/planets"},
                                        {" planets", absl::StrCat(" ", directory_, "/planets")}});
  ProgramOptions options;
  options.environment = {"OSPREY_SERVER=" + server_->uri()};
  const ProgramResult compiled = RunProgram({"sh", "-ec", command}, options);
  EXPECT_EQ(compiled.exit_status, 0) << command << compiled.err;
  EXPECT_EQ(compiled.err, "");
  EXPECT_EQ(compiled.out, Block("text"));
}

TEST_F(CProgramTest, PythonBindsToIt) {
  const ProgramResult result =
      RunProgram({"/usr/bin/python3", "tests/client/c_api/c_library.py", kLibrary, server_->uri()});
  EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
  EXPECT_EQ(result.out, "ok\n");
}

}  // namespace
}  // namespace osprey
