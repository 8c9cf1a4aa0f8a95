#include "server/program/out_of_memory.h"

#include <unistd.h>

#include <cstring>
#include <new>

namespace osprey {
namespace {

constexpr int kExitFailed = 4;
const char* name = "";

// Allocates nothing, and runs no destructors, which might allocate.
void End() {
  char line[160] = {};
  std::strncat(line, name, 40);
  std::strcat(line,
              ": out of memory; end something else, or allow this process more (ulimit -v)\n");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, std::strlen(line));
  _exit(kExitFailed);
}

}  // namespace

void EndWhenOutOfMemory(const char* program) {
  name = program;
  std::set_new_handler(&End);
}

}  // namespace osprey
