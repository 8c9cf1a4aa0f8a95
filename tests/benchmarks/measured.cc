#include "tests/benchmarks/measured.h"

#include <cstdio>

#include "xxhash.h"

// Counting begins when this is entered and ends when it returns: a separate function in the
// program, under this name.
extern "C" __attribute__((noinline)) void OspreyMeasured(absl::FunctionRef<void()> body) {
  body();
  asm volatile("# measured");  // no tail call, which would end the counting early
}

// Counting pauses while this runs.
extern "C" __attribute__((noinline)) void OspreyUncounted(absl::FunctionRef<void()> body) {
  body();
  asm volatile("# uncounted");  // and not the same function as the one above
}

namespace osprey {
namespace {

bool counting = false;

}  // namespace

void PrintCompiler() {
#ifdef __clang__
  std::printf("compiler clang %s", __clang_version__);
#else
  std::printf("compiler gcc %s", __VERSION__);
#endif
  std::printf(", xxhash %u\n", XXH_versionNumber());
}

void Measure(const char* name, uint64_t times, absl::FunctionRef<void(uint64_t i)> once,
             uint64_t each) {
  counting = true;
  OspreyMeasured([&] {
    for (uint64_t i = 0; i < times; ++i) once(i);
  });
  counting = false;
  std::printf("%s %lu\n", name, static_cast<unsigned long>(times * each));
}

void Uncounted(absl::FunctionRef<void()> body) {
  if (!counting) return body();
  counting = false;  // of calls within `body`
  OspreyUncounted(body);
  counting = true;
}

}  // namespace osprey
