// The checks of kvcli doctor: whether this machine can run an Osprey server or client over RDMA,
// and if not, the command that fixes it. The checks change nothing.
//
//   devices.cc   devices, their providers and nodes, ports, GIDs, RoCE versions, MTU
//   limits.cc    memory, locked memory, huge pages, container, fork, resources, firewall,
//                       the server's address
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_DOCTOR_CHECKS_H_
#define OSPREY_TOOLS_DOCTOR_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/doctor/machine.h"

namespace osprey::doctor {

enum class Outcome {
  kPass,
  kSkip,  // not checkable; the reason says why
  kWarn,  // works, but slowly or not for all uses
  kFail,  // RDMA does not work in this state
};
const char* NameOf(Outcome outcome);  // "PASS" …

struct Finding {
  Outcome outcome = Outcome::kPass;
  std::string check;               // "port": one fixed word for each check
  std::string reason;              // one line that names the thing
  std::vector<std::string> fixes;  // commands, any of which is a fix; none for kPass
};

struct CheckOptions {
  uint64_t memory_bytes = uint64_t{1} << 30;  // kvserver's --memory
  std::string server;                         // the address that a client would use, if given
};

std::vector<Finding> CheckMachine(const Machine& machine, const CheckOptions& options);

// The worst outcome; kPass without findings. kSkip counts as kPass.
Outcome WorstOf(const std::vector<Finding>& findings);

// ---- Parts, for CheckMachine alone.

struct Gid {
  int index = 0;
  std::string address;  // "10.0.0.7", "fe80::1"
  std::string type;     // "RoCE v2", "IB/RoCE v1"
  std::string netdev;   // empty on InfiniBand
  bool link_local = false;
};

struct Port {
  std::string device;
  int number = 0;
  std::string state;         // "ACTIVE"
  std::string link_layer;    // "Ethernet", "InfiniBand"
  std::vector<Gid> gids;     // those in use
  std::string netdev;        // the one below it, if known
  bool in_software = false;  // the kernel's own device, over `netdev`
  std::string name() const;  // "rxe0 port 1"
  bool ethernet() const { return link_layer == "Ethernet"; }
  // It has an address that rdma:// can name.
  bool soft_roce() const;
};

// The ports of all devices in sysfs.
std::vector<Port> PortsOf(const Machine& machine);

// Each appends its findings.
void CheckDevices(const Machine& machine, std::vector<Finding>& findings);
void CheckPorts(const Machine& machine, const std::vector<Port>& ports,
                std::vector<Finding>& findings);
void CheckLimits(const Machine& machine, const std::vector<Port>& ports,
                 const CheckOptions& options, std::vector<Finding>& findings);

bool InContainer(const Machine& machine);

}  // namespace osprey::doctor

#endif  // OSPREY_TOOLS_DOCTOR_CHECKS_H_
