// Counts the allocations of a test program that links this: for tests of paths that must not
// allocate.

#ifndef OSPREY_TESTS_SUPPORT_ALLOCATION_COUNT_H_
#define OSPREY_TESTS_SUPPORT_ALLOCATION_COUNT_H_

#include <cstdint>

namespace osprey {

// Calls of operator new in this process so far. Thread-safe.
uint64_t AllocationsSoFar();
// The bytes that these calls requested. Thread-safe.
uint64_t AllocatedBytesSoFar();

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_ALLOCATION_COUNT_H_
