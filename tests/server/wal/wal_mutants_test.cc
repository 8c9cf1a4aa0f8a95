// The test of the simulation: each mistake of server/wal/format/test_hooks.h shows within some seeds, in a
// run that is right without it. Two rules guard some mistakes: these show only together.

#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/wal/format/test_hooks.h"
#include "tests/server/wal/wal_simulation.h"
#include "tests/support/mistake_hunt.h"

namespace osprey::server::wal {
namespace {

constexpr uint64_t kSeedsMax = 6000;

struct Mistake {
  std::string name;
  std::vector<Mutant> mutants;
};

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

std::string RunSeed(uint64_t seed) {
  SimulationCounts counts;
  SimulationOptions options;
  options.seed = seed;
  return SimulateWal(options, counts);
}

class WalMutantsTest : public testing::TestWithParam<Mistake> {};

TEST_P(WalMutantsTest, IsFound) {
  uint64_t bits = 0;
  for (const Mutant mutant : GetParam().mutants) bits |= MutantBit(mutant);
  ExpectFound(GetParam().name, SeedsUpTo(kSeedsMax), [bits](uint64_t seed, bool has_mistake) {
    active_mutants = has_mistake ? bits : 0;
    return RunSeed(seed);
  });
}

#define MUTANT(name)        \
  Mistake {                 \
#name, { Mutant::name } \
  }

INSTANTIATE_TEST_SUITE_P(
    Mutants, WalMutantsTest,
    testing::Values(Mistake{"kNoChain_kNoLife", {Mutant::kNoChain, Mutant::kNoLife}},
                    MUTANT(kNoSyncedTo), MUTANT(kTailNotRewritten), MUTANT(kNewSegmentNotSynced),
                    MUTANT(kOldEndNotNamed), MUTANT(kCloseBeforeHeader), MUTANT(kNoClose),
                    MUTANT(kAckBeforeSync), MUTANT(kSyncCoversLaterWrites),
                    MUTANT(kOldSegmentNotSynced), MUTANT(kSyncErrorForgotten),
                    MUTANT(kWriteErrorForgotten), MUTANT(kDirectoryNotSynced),
                    MUTANT(kCurrentBeforeParts), MUTANT(kPartsNotVerified), MUTANT(kLogBehindWalk),
                    MUTANT(kOldFilesRemovedFirst), MUTANT(kZerosOverRecords),
                    MUTANT(kTailPiecesNotRead)),
    [](const testing::TestParamInfo<Mistake>& mistake) { return mistake.param.name; });

}  // namespace
}  // namespace osprey::server::wal
