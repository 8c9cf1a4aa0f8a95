// Ports for the servers of other projects that tests start.

#ifndef OSPREY_TESTS_SUPPORT_FREE_PORTS_H_
#define OSPREY_TESTS_SUPPORT_FREE_PORTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace osprey {

// Ports of 127.0.0.1 that nothing uses, and that the kernel gives to no socket by itself.
std::vector<uint16_t> FreePorts(size_t count);

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_FREE_PORTS_H_
