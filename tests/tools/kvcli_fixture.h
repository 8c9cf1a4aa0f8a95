// Tests of kvcli with a kvserver: over shared memory; in the lab, over verbs; or on another
// machine.

#ifndef OSPREY_TESTS_TOOLS_KVCLI_FIXTURE_H_
#define OSPREY_TESTS_TOOLS_KVCLI_FIXTURE_H_

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {

inline const std::string kBinary("\0\x01\xff\xfe\r\n\0end\n", 11);
inline constexpr char kOneLine[] = "kvcli: [^\n]+\n";

// Runs kvcli as a script does, without OSPREY_SERVER.
inline ProgramResult RunKvcli(std::vector<std::string> args, const ProgramOptions& options = {}) {
  args.insert(args.begin(), {"env", "-u", "OSPREY_SERVER", "tools/kvcli"});
  return RunProgram(args, options);
}

// Expects a failure with an error of one line, and nothing printed.
inline void ExpectFailure(const ProgramResult& result, int status, const std::string& message) {
  EXPECT_EQ(result.exit_status, status) << message;
  EXPECT_THAT(result.out, testing::IsEmpty());
  EXPECT_THAT(result.err,
              testing::AllOf(testing::MatchesRegex(kOneLine), testing::HasSubstr(message)));
}

// One server for all cases; kvcli runs as in scripts.
class KvcliTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = NewTemporaryDirectory();
    if (const char* given = std::getenv("OSPREY_TEST_SERVER");
        given != nullptr) {  // on another machine
      uri_ = given;
      return;
    }
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(NewListenAddress());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    uri_ = server_->uri();
  }

  static void TearDownTestSuite() {
    if (server_ == nullptr) return;
    EXPECT_EQ(server_->Stop(), 0);
    server_.reset();
  }

  // Without a server.
  static ProgramResult Bare(std::vector<std::string> args, const ProgramOptions& options = {}) {
    return RunKvcli(std::move(args), options);
  }

  static ProgramResult Kvcli(std::vector<std::string> args, const std::string& input = "") {
    ProgramOptions options;
    options.input = input;
    args.insert(args.begin(), absl::StrCat("--server=", uri_));
    return Bare(args, options);
  }

  static std::string Put(const std::string& key, const std::string& value) {
    const ProgramResult put = Kvcli({"put", "--", key, "-"}, value);
    EXPECT_EQ(put.exit_status, 0) << put.err;
    return put.out.substr(0, put.out.find('\n'));  // the version
  }

  static std::string WriteFile(const std::string& name, const std::string& bytes) {
    std::string path = absl::StrCat(directory_, "/", name);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  static void ExpectUsageError(const ProgramResult& result, const std::string& message) {
    ExpectFailure(result, 2, message);
  }

  static inline std::string directory_;
  static inline std::string uri_;
  static inline std::unique_ptr<ServerProcess> server_;
};

// A server for each case, which may stop or fill it.
class KvcliOwnServerTest : public ::testing::Test {
 protected:
  void SetUp() override { StartServer(NewListenAddress()); }
  // Replaces the present server.
  void StartServer(const std::string& listen, const std::vector<std::string>& flags = {}) {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(listen, flags);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::vector<std::string> Command(std::vector<std::string> args) const {
    args.insert(args.begin(), {"tools/kvcli", "--server=" + server_->uri()});
    return args;
  }
  ProgramResult Kvcli(std::vector<std::string> args, const std::string& input = "") const {
    ProgramOptions options;
    options.input = input;
    return RunProgram(Command(std::move(args)), options);
  }
  std::string Path(const std::string& name) const { return absl::StrCat(directory_, "/", name); }

  const std::string directory_ = NewTemporaryDirectory();
  std::unique_ptr<ServerProcess> server_;
};

inline std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace osprey

#endif  // OSPREY_TESTS_TOOLS_KVCLI_FIXTURE_H_
