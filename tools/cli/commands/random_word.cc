// Random names of what commands create: a backup, a cluster.

#include <sys/random.h>

#include <cstdint>

#include "tools/cli/commands/run.h"

namespace osprey {

uint64_t DrawWord() {
  uint64_t word = 0;
  // Reads of this size are complete once the kernel's generator has started.
  while (getrandom(&word, sizeof(word), 0) != sizeof(word) || word == 0) {
  }
  return word;
}

}  // namespace osprey
