// Many lives of a data directory on the simulated disk (wal_simulation.h), by seed. A failure prints
// its seed.

#include "tests/server/wal/wal_simulation.h"

#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "tests/support/volume.h"

namespace osprey::server::wal {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  uint64_t number = 0;
  return text != nullptr && absl::SimpleAtoi(text, &number) ? number : otherwise;
}

TEST(WalSimulationTest, EverySyncedRecordSurvivesEveryCrash) {
  const uint64_t first = FromEnvironment("WAL_FIRST_SEED", 1);
  const uint64_t seeds = FromEnvironment("WAL_SEEDS", 1000 / kLongVolumeParts);
  SimulationCounts counts;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    const std::string wrong = SimulateWal(options, counts);
    ASSERT_EQ(wrong, "") << "seed " << seed;
  }
  std::cout << counts.lives << " lives, " << counts.records << " records, " << counts.kills
            << " kills, " << counts.crashes << " losses of power, " << counts.cuts << " cuts, "
            << counts.checkpoints << " checkpoints, " << counts.faults << " lives with faults, "
            << counts.damages << " damages, " << counts.found << " of them found; at most "
            << counts.segments << " segments\n";
  // The proof is void if the simulation does not reach what it is made for.
  if (seeds < 100) return;
  EXPECT_GT(counts.checkpoints, seeds / 10);
  EXPECT_GT(counts.cuts, seeds);
  EXPECT_GT(counts.found, seeds / 10);
  EXPECT_GT(counts.faults, seeds / 10);
}

}  // namespace
}  // namespace osprey::server::wal
