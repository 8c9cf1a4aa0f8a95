// The targets of READs per GET, in a small table. reads_benchmark prints the same for a large one.

#include "gtest/gtest.h"
#include "tests/support/reads_count.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

TEST(ReadsPerGet, KeepWithinTheirTargetsWhileATableGrows) {
  ReadsOptions options;
  if (InLab()) {
    options.keys = 10'000;
    options.samples = 500;
  }
  for (const ReadsRow& row : CountReads(options)) {
    if (!row.is_count) continue;
    EXPECT_LE(row.value, row.target) << row.name << ", in " << row.unit;
  }
}

}  // namespace
}  // namespace osprey
