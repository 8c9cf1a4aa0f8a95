#include "tests/support/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<uint64_t> allocations{0};
std::atomic<uint64_t> allocated_bytes{0};
}  // namespace

// Inlined into their callers, compilers take free() for a mismatch of new.
[[gnu::noinline]] void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  allocated_bytes.fetch_add(bytes, std::memory_order_relaxed);
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
// The same memory goes to the same operator delete, std::stable_sort's too.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return operator new(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace osprey {

uint64_t AllocationsSoFar() { return allocations.load(std::memory_order_relaxed); }

uint64_t AllocatedBytesSoFar() { return allocated_bytes.load(std::memory_order_relaxed); }

}  // namespace osprey
