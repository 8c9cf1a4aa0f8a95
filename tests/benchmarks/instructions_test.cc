// Detects changes in the instructions of operations of index/ and of the engines. They are counted
// by callgrind, so they are the same on a busy machine. tests/benchmarks/*_instructions.baseline
// have the expected counts; `tests/benchmarks/count_instructions renew` updates them.

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kProgram[] = "tests/benchmarks/count_instructions";

std::string FileOf(const std::string& text) {
  const std::string path = NewTemporaryDirectory() + "/counts";
  std::ofstream(path) << text;
  return path;
}

ProgramResult Compare(const std::string& counted, const std::string& baseline) {
  return RunProgram({kProgram, "compare", FileOf(counted), FileOf(baseline)});
}

class InstructionsOfTest : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Program, InstructionsOfTest, testing::Values("index", "engine"),
                         [](const auto& instance) { return instance.param; });

TEST_P(InstructionsOfTest, AreThoseOfTheBaseline) {
#if defined(__clang__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the baseline is of gcc's code without sanitizers";
#endif
  const std::string path = "tests/benchmarks/" + GetParam() + "_instructions";
  ProgramOptions options;
  options.timeout = absl::Minutes(4);
  const ProgramResult counted = RunProgram({kProgram, "count", path}, options);
  ASSERT_EQ(counted.exit_status, 0) << counted.err;
  const ProgramResult compared =
      RunProgram({kProgram, "compare", FileOf(counted.out), path + ".baseline"});
  EXPECT_EQ(compared.exit_status, 0) << compared.out << compared.err;
  if (compared.out.starts_with("skipped:")) GTEST_SKIP() << compared.out;
}

TEST(InstructionsTest, DifferWhenAnOperationTakesMoreOrFewerThanTheMargin) {
  const std::string baseline = "compiler gcc 1\nput 1000.0\nget 100.0\n";
  EXPECT_EQ(Compare("compiler gcc 1\nput 1029.0\nget 98.0\n", baseline).exit_status, 0);
  const ProgramResult more = Compare("compiler gcc 1\nput 1031.0\nget 100.0\n", baseline);
  EXPECT_EQ(more.exit_status, 1);
  EXPECT_THAT(more.out, HasSubstr("+3.1 %  DIFFERS"));
  EXPECT_THAT(more.out, HasSubstr("tests/benchmarks/count_instructions renew"));
  EXPECT_EQ(Compare("compiler gcc 1\nput 1000.0\nget 96.0\n", baseline).exit_status, 1);
}

TEST(InstructionsTest, DifferWhenAnOperationIsMissingOnEitherSide) {
  const std::string both = "compiler gcc 1\nput 1000.0\nget 100.0\n";
  const std::string one = "compiler gcc 1\nput 1000.0\n";
  EXPECT_EQ(Compare(one, both).exit_status, 1);
  EXPECT_EQ(Compare(both, one).exit_status, 1);
}

TEST(InstructionsTest, OfAnotherCompilerAreNotCompared) {
  const ProgramResult result = Compare("compiler gcc 2\nput 5.0\n", "compiler gcc 1\nput 9.0\n");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(result.out, StartsWith("skipped: the baseline is of 'compiler gcc 1', and this is"));
}

TEST(InstructionsTest, OfABrokenFileAreRefusedWithTheReason) {
  const ProgramResult result = Compare("compiler gcc 1\nput\n", "compiler gcc 1\nput 9.0\n");
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_THAT(result.err, HasSubstr("OPERATION INSTRUCTIONS"));
  EXPECT_EQ(Compare("", "compiler gcc 1\n").exit_status, 3);
}

}  // namespace
}  // namespace osprey
