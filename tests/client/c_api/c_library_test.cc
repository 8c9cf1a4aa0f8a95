// What libosprey.so shows, and its header in C99 and C++. It needs no server: c_program_test does.

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/osprey.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using Names = std::set<std::string>;

constexpr char kLibrary[] = "client/libosprey.so";

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The header without its comments.
std::string Header() {
  return std::regex_replace(TextOf("client/osprey.h"), std::regex("//[^\n]*"), "");
}

Names Matches(const std::string& text, const std::string& pattern) {
  Names names;
  const std::regex expression(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), expression), end; it != end; ++it)
    names.insert((*it)[1]);
  return names;
}

TEST(CLibraryTest, ItShowsTheFunctionsOfItsHeaderAndNothingElse) {
  const ProgramResult symbols = RunProgram({"nm", "-D", "--defined-only", kLibrary});
  ASSERT_EQ(symbols.exit_status, 0) << symbols.err;
  Names shown = Matches(symbols.out, "[0-9a-f]+ [A-Za-z] ([A-Za-z0-9_]+)");
  shown.erase("OSPREY_1");  // the version itself
  EXPECT_EQ(shown, Matches(Header(), "\\b(osprey_[a-z_0-9]+)\\([^)]*\\);"));
  const ProgramResult names = RunProgram({"readelf", "-d", kLibrary});
  EXPECT_THAT(names.out, ::testing::HasSubstr("[libosprey.so.1]"));
}

// Programs and bindings have these compiled in, so none of them may ever change. New ones are added
// here.
TEST(CLibraryTest, NumbersStayWhatTheyAre) {
  const std::map<std::string, int> numbers = {
      {"OSPREY_OK", 0},
      {"OSPREY_ERROR_EMPTY_KEY", 101},
      {"OSPREY_ERROR_KEY_TOO_LONG", 102},
      {"OSPREY_ERROR_VALUE_TOO_LONG", 103},
      {"OSPREY_ERROR_APPEND_TOO_LONG", 104},
      {"OSPREY_ERROR_BAD_CONDITION", 105},
      {"OSPREY_ERROR_BAD_DEADLINE", 106},
      {"OSPREY_ERROR_BAD_OPTION", 107},
      {"OSPREY_ERROR_BAD_BUFFER", 108},
      {"OSPREY_ERROR_BAD_CURSOR", 109},
      {"OSPREY_ERROR_NULL_ARGUMENT", 110},
      {"OSPREY_ERROR_IN_CALLBACK", 111},
      {"OSPREY_ERROR_BAD_ADDRESS", 112},
      {"OSPREY_ERROR_BAD_AUTH_KEY", 113},
      {"OSPREY_ERROR_BAD_TTL", 114},
      {"OSPREY_ERROR_ABSENT", 201},
      {"OSPREY_ERROR_PRESENT", 202},
      {"OSPREY_ERROR_WRONG_VERSION", 203},
      {"OSPREY_ERROR_NOT_A_NUMBER", 204},
      {"OSPREY_ERROR_OVERFLOW", 205},
      {"OSPREY_ERROR_STALE_CURSOR", 206},
      {"OSPREY_ERROR_BUFFER_TOO_SMALL", 207},
      {"OSPREY_ERROR_VALUE_CHANGED", 208},
      {"OSPREY_ERROR_TOO_MANY_OPERATIONS", 301},
      {"OSPREY_ERROR_BUFFERS_USED_UP", 302},
      {"OSPREY_ERROR_LANES_TAKEN", 303},
      {"OSPREY_ERROR_SERVER_FULL", 304},
      {"OSPREY_ERROR_VERSIONS_USED_UP", 305},
      {"OSPREY_ERROR_OUT_OF_MEMORY", 306},
      {"OSPREY_ERROR_CHAIN_FULL", 307},
      {"OSPREY_ERROR_DISK_FULL", 308},
      {"OSPREY_ERROR_DEADLINE", 401},
      {"OSPREY_ERROR_NO_CONNECTION", 402},
      {"OSPREY_ERROR_SERVER_GONE", 403},
      {"OSPREY_ERROR_FORGOTTEN", 404},
      {"OSPREY_ERROR_CLOSED", 405},
      {"OSPREY_ERROR_BAD_SERVER", 406},
      {"OSPREY_ERROR_TOO_FEW_REPLICAS", 407},
      {"OSPREY_ERROR_NO_DEVICE", 501},
      {"OSPREY_ERROR_NOT_RDMA_ADDRESS", 502},
      {"OSPREY_ERROR_MEMLOCK_TOO_LOW", 503},
      {"OSPREY_ERROR_NO_LISTENER", 504},
      {"OSPREY_ERROR_REFUSED", 505},
      {"OSPREY_ERROR_SHUTTING_DOWN", 506},
      {"OSPREY_ERROR_UNREACHABLE", 507},
      {"OSPREY_ERROR_VERSION_MISMATCH", 508},
      {"OSPREY_ERROR_NOT_OSPREY", 509},
      {"OSPREY_ERROR_CONNECT_TIMEOUT", 510},
      {"OSPREY_ERROR_PEER_GONE", 511},
      {"OSPREY_ERROR_AUTHENTICATION_FAILED", 512},
      {"OSPREY_ERROR_AUTHENTICATION_REQUIRED", 513},
      {"OSPREY_ERROR_SERVER_UNPROVEN", 514},
      {"OSPREY_ERROR_NOT_SERVING", 515},
      {"OSPREY_ERROR_WRONG_SHARD", 516},
      {"OSPREY_ERROR_FORKED", 517},
      {"OSPREY_ERROR_OTHER", 900},
      {"OSPREY_WAIT_SPIN", 0},
      {"OSPREY_WAIT_ADAPTIVE", 1},
      {"OSPREY_WAIT_EVENT", 2},
      {"OSPREY_COUNTER_GETS", 0},
      {"OSPREY_COUNTER_HITS", 1},
      {"OSPREY_COUNTER_MISSES", 2},
      {"OSPREY_COUNTER_WRITES", 3},
      {"OSPREY_COUNTER_READS", 4},
      {"OSPREY_COUNTER_READ_BYTES", 5},
      {"OSPREY_COUNTER_SCAN_READS", 6},
      {"OSPREY_COUNTER_TORN", 7},
      {"OSPREY_COUNTER_RETRIES", 8},
      {"OSPREY_COUNTER_HINTS", 9},
      {"OSPREY_COUNTER_STALE_HINTS", 10},
      {"OSPREY_COUNTER_RPC_GETS", 11},
      {"OSPREY_COUNTER_MESSAGES", 12},
      {"OSPREY_COUNTER_FRAMES", 13},
      {"OSPREY_COUNTER_CONNECTS", 14},
  };
  std::map<std::string, int> declared;
  const std::string header = Header();
  const std::regex entry("\\b(OSPREY_[A-Z_0-9]+) = ([0-9]+)");
  for (std::sregex_iterator it(header.begin(), header.end(), entry), end; it != end; ++it)
    declared[(*it)[1]] = std::stoi((*it)[2]);
  EXPECT_EQ(declared, numbers);
  EXPECT_EQ(osprey_api_version(), OSPREY_API_MAJOR * 1000 + OSPREY_API_MINOR);
}

TEST(CLibraryTest, EveryErrorHasItsNameATextOfItsOwnAndIsInTheReadme) {
  const std::string readme = TextOf("client/README.md");
  std::set<std::string> texts;
  const std::string header = Header();
  const std::regex entry("\\b(OSPREY_OK|OSPREY_ERROR_[A-Z_0-9]+) = ([0-9]+)");
  int errors = 0;
  for (std::sregex_iterator it(header.begin(), header.end(), entry), end; it != end; ++it) {
    const std::string name = (*it)[1];
    const int number = std::stoi((*it)[2]);
    EXPECT_EQ(osprey_error_name(number), name);
    EXPECT_STRNE(osprey_error_text(number), "");
    EXPECT_TRUE(texts.insert(osprey_error_text(number)).second) << name;
    EXPECT_TRUE(std::regex_search(readme, std::regex(absl::StrCat("\\b", number, "\\b")))) << name;
    ++errors;
  }
  EXPECT_GT(errors, 40);
  EXPECT_STREQ(osprey_error_name(12345), "OSPREY_ERROR_OTHER");
  EXPECT_STRNE(osprey_error_text(-1), "");
}

TEST(CLibraryTest, TheHeaderIsPlainCForEveryCompilerAndCpp) {
  const std::string directory = NewTemporaryDirectory();
  std::ofstream(directory + "/header.c")
      << "#include \"client/osprey.h\"\nint main(void) { return 0; }\n";
  for (const std::string compiler : {"gcc", "clang"}) {
    for (const std::string dialect : {"c", "c++"}) {
      const ProgramResult result = RunProgram(
          {compiler, "-x", dialect, dialect == "c" ? "-std=c99" : "-std=c++11", "-Wall", "-Wextra",
           "-Werror", "-pedantic", "-I.", "-fsyntax-only", directory + "/header.c"});
      EXPECT_EQ(result.exit_status, 0) << compiler << " " << dialect << "\n" << result.err;
    }
  }
}

}  // namespace
}  // namespace osprey
