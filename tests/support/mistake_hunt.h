// Tests of simulations: a mistake that is made on purpose must show as a wrong answer.

#ifndef OSPREY_TESTS_SUPPORT_MISTAKE_HUNT_H_
#define OSPREY_TESTS_SUPPORT_MISTAKE_HUNT_H_

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace osprey {

// What is wrong in the run of a seed, with the mistake or without it; empty: nothing.
using RunOfSeed = absl::FunctionRef<std::string(uint64_t seed, bool has_mistake)>;

// 0: it shows in one of the seeds, whose run is right without it.
inline int Hunt(absl::string_view name, const std::vector<uint64_t>& seeds, RunOfSeed run) {
  for (const uint64_t seed : seeds) {
    const std::string wrong = run(seed, true);
    if (wrong.empty()) continue;
    if (const std::string without = run(seed, false); !without.empty()) {
      std::cout << "without any mistake, seed " << seed << ": " << without << std::endl;
      return 1;
    }
    std::cout << name << ": seed " << seed << ": " << wrong.substr(0, 200) << std::endl;
    return 0;
  }
  return 1;
}

// Fails the test unless the mistake is found. The hunt is in a process of its own: a failed assertion
// is not an answer, and counts as not found.
inline void ExpectFound(absl::string_view name, const std::vector<uint64_t>& seeds, RunOfSeed run) {
  std::cout << std::flush;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(Hunt(name, seeds, run));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "it crashed, by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "nothing wrong was seen in " << seeds.size() << " seeds";
}

inline std::vector<uint64_t> SeedsUpTo(uint64_t last) {
  std::vector<uint64_t> seeds;
  for (uint64_t seed = 1; seed <= last; ++seed) seeds.push_back(seed);
  return seeds;
}

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_MISTAKE_HUNT_H_
