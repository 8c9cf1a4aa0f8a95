// The devices of this machine as libibverbs lists them, independent of any connection, for kvcli
// doctor.
//
// Thread rule: any thread, any number at a time.

#ifndef OSPREY_RDMA_DEVICES_H_
#define OSPREY_RDMA_DEVICES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace osprey::rdma {

struct VerbsPort {
  int number = 0;     // from 1
  int mtu_bytes = 0;  // active
};

// A device of libibverbs. A device that is in sysfs but not here has no provider library.
struct VerbsDevice {
  std::string name;
  std::string error;  // why it cannot be opened; empty if it can be
  std::vector<VerbsPort> ports;
  int64_t queue_pairs_max = 0;
};

// Handling of registered memory when a process forks.
enum class ForkSupport { kUnneeded, kEnabled, kDisabled };

// Opens each device and closes it again. Empty when there is none.
std::vector<VerbsDevice> ListVerbsDevices();

ForkSupport GetForkSupport();

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_DEVICES_H_
