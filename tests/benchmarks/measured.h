// What a program gives callgrind to count (tests/benchmarks/count_instructions).

#ifndef OSPREY_TESTS_BENCHMARKS_MEASURED_H_
#define OSPREY_TESTS_BENCHMARKS_MEASURED_H_

#include <cstdint>
#include <cstdlib>

#include "absl/functional/function_ref.h"

namespace osprey {

// Prints the compiler and the libraries on which the counts depend: the first line of a baseline.
void PrintCompiler();

// Counts the instructions of once(0), … once(times - 1), and prints the operation's name and
// `times * each`: one call is `each` operations.
void Measure(const char* name, uint64_t times, absl::FunctionRef<void(uint64_t i)> once,
             uint64_t each = 1);

// Within Measure: the instructions of `body` are not counted. Elsewhere it just runs `body`.
void Uncounted(absl::FunctionRef<void()> body);

// The result is used, so the compiler cannot omit the work.
inline void Must(bool condition) {
  if (!condition) std::abort();
}

}  // namespace osprey

#endif  // OSPREY_TESTS_BENCHMARKS_MEASURED_H_
