#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/doctor/checks.h"

namespace osprey::doctor {
namespace {

constexpr char kSysDevices[] = "/sys/class/infiniband";
constexpr char kSysNodes[] = "/sys/class/infiniband_verbs";
constexpr char kNodes[] = "/dev/infiniband";
// The limit for entries of a device's GID table (mlx5 has 256).
constexpr int kGidsMax = 1024;
// The kernel reserves these bytes for headers when it chooses the RDMA MTU of an Ethernet interface
// (iboe_get_mtu): IPv6, UDP, and the longest headers of a packet.
constexpr int kHeaderBytes = 96;
constexpr int kMtuMax = 4096;

std::string LastPart(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// "0000:0000:0000:0000:0000:ffff:0a4d:0001" as an address; empty for an unused entry.
std::string AddressOfGid(const std::string& text, bool& link_local) {
  in6_addr gid = {};
  if (inet_pton(AF_INET6, text.c_str(), &gid) != 1 || IN6_IS_ADDR_UNSPECIFIED(&gid)) return "";
  link_local = IN6_IS_ADDR_LINKLOCAL(&gid);
  char out[INET6_ADDRSTRLEN] = {};
  if (IN6_IS_ADDR_V4MAPPED(&gid)) {
    inet_ntop(AF_INET, gid.s6_addr + 12, out, sizeof(out));
  } else {
    inet_ntop(AF_INET6, &gid, out, sizeof(out));
  }
  return out;
}

// The interface under a device without GIDs: soft-RoCE names it, other devices have it below their
// PCI device.
std::string NetdevOf(const Machine& machine, const std::string& device) {
  if (std::optional<std::string> parent =
          machine.Read(absl::StrCat(kSysDevices, "/", device, "/parent"))) {
    return *parent;
  }
  const std::vector<std::string> names =
      machine.List(absl::StrCat(kSysDevices, "/", device, "/device/net"));
  return names.empty() ? "" : names.front();
}

Port PortOf(const Machine& machine, const std::string& device, int number) {
  const std::string path = absl::StrCat(kSysDevices, "/", device, "/ports/", number);
  Port port;
  port.device = device;
  port.number = number;
  const std::string state = machine.Read(path + "/state").value_or("");  // "4: ACTIVE"
  port.state = state.substr(std::min(state.size(), state.find(": ") + 2));
  port.link_layer = machine.Read(path + "/link_layer").value_or("");
  for (int index = 0; index < kGidsMax; ++index) {
    const std::optional<std::string> text = machine.Read(absl::StrCat(path, "/gids/", index));
    if (!text.has_value()) break;
    Gid gid;
    gid.index = index;
    gid.address = AddressOfGid(*text, gid.link_local);
    if (gid.address.empty()) continue;
    gid.type = machine.Read(absl::StrCat(path, "/gid_attrs/types/", index)).value_or("");
    gid.netdev = machine.Read(absl::StrCat(path, "/gid_attrs/ndevs/", index)).value_or("");
    port.gids.push_back(std::move(gid));
  }
  port.netdev = NetdevOf(machine, device);
  port.in_software = machine.Read(absl::StrCat(kSysDevices, "/", device, "/parent")).has_value();
  if (port.netdev.empty() && !port.gids.empty()) port.netdev = port.gids.front().netdev;
  return port;
}

// An interface for soft-RoCE: the first Ethernet interface that is up, otherwise the first.
std::string EthernetInterface(const Machine& machine) {
  constexpr char kEthernet[] = "1";  // ARPHRD_ETHER
  std::string best = "eth0";
  bool found = false;
  for (const std::string& name : machine.List("/sys/class/net")) {
    const std::string path = absl::StrCat("/sys/class/net/", name);
    if (machine.Read(path + "/type") != kEthernet) continue;
    const bool up = machine.Read(path + "/operstate") == "up";
    if (up) return name;
    if (!found) best = name;
    found = true;
  }
  return best;
}

bool KernelHasSoftRoce(const Machine& machine) {
  if (machine.Exists("/sys/module/rdma_rxe")) return true;
  const std::string release = machine.Read("/proc/sys/kernel/osrelease").value_or("");
  const std::optional<std::string> modules =
      machine.Read(absl::StrCat("/lib/modules/", release, "/modules.dep"));
  return modules.has_value() && absl::StrContains(*modules, "rdma_rxe.ko");
}

Finding NoDevice(const Machine& machine) {
  Finding finding{Outcome::kFail, "devices", "this machine has no RDMA device", {}};
  const bool soft_roce = KernelHasSoftRoce(machine);
  if (soft_roce && !InContainer(machine)) {
    finding.fixes.push_back(absl::StrCat("modprobe rdma_rxe; rdma link add rxe0 type rxe netdev ",
                                         EthernetInterface(machine), "   # soft-RoCE"));
  } else {
    absl::StrAppend(&finding.reason, soft_roce
                                         ? ", and soft-RoCE can be made outside of containers only"
                                         : ", and its kernel has no soft-RoCE (module rdma_rxe)");
  }
  finding.fixes.push_back(
      "tools/lab -- COMMAND   # in a virtual machine that has one, on any machine");
  finding.fixes.push_back("kvserver --listen=shm://PATH   # for processes of one host");
  return finding;
}

void CheckProvider(const Machine& machine, const std::string& device,
                   const std::vector<rdma::VerbsDevice>& verbs, std::vector<Finding>& findings) {
  const auto known = std::find_if(verbs.begin(), verbs.end(), [&](const rdma::VerbsDevice& entry) {
    return entry.name == device;
  });
  std::string driver =
      LastPart(machine.Link(absl::StrCat(kSysDevices, "/", device, "/device/driver")).value_or(""));
  if (driver.empty() && machine.Read(absl::StrCat(kSysDevices, "/", device, "/parent")))
    driver = "soft-RoCE or siw";
  const std::string what = driver.empty() ? device : absl::StrCat(device, " (", driver, ")");
  if (known == verbs.end()) {
    findings.push_back({Outcome::kFail,
                        "provider",
                        absl::StrCat(what, " is in ", kSysDevices,
                                     " and libibverbs does not know it: its provider library is "
                                     "missing, or its node"),
                        {"apt-get install ibverbs-providers"}});
  } else if (!known->error.empty()) {
    findings.push_back({Outcome::kFail,
                        "provider",
                        absl::StrCat(what, " cannot be opened: ", known->error),
                        {absl::StrCat("ibv_devinfo -d ", device, "   # says more")}});
  } else {
    findings.push_back({Outcome::kPass, "provider", what, {}});
  }
}

Finding NodeFinding(const Machine& machine, const std::string& path, const std::string& module) {
  const bool container = InContainer(machine);
  switch (const int error = machine.OpenError(path)) {
    case 0:
      return {Outcome::kPass, "nodes", path, {}};
    case ENOENT:
    case ENXIO:
    case ENODEV:
      return {
          Outcome::kFail,
          "nodes",
          absl::StrCat(path, " is not there"),
          {container ? absl::StrCat("docker run --device=", kNodes, " …   # where it is started")
                     : absl::StrCat("modprobe ", module)}};
    case EPERM:
      return {Outcome::kFail,
              "nodes",
              absl::StrCat(path, " is forbidden by the control group of this process"),
              {absl::StrCat("docker run --device=", kNodes, " …   # in a container"),
               absl::StrCat("DeviceAllow=", path, " rw   # in a systemd unit")}};
    default:
      return {Outcome::kFail,
              "nodes",
              absl::StrCat(path, " cannot be opened: ", std::strerror(error)),
              {absl::StrCat("chmod 0666 ", path)}};
  }
}

void CheckNodes(const Machine& machine, std::vector<Finding>& findings) {
  bool any = false;
  for (const std::string& name : machine.List(kSysNodes)) {
    if (!absl::StartsWith(name, "uverbs")) continue;
    any = true;
    findings.push_back(NodeFinding(machine, absl::StrCat(kNodes, "/", name), "ib_uverbs"));
  }
  if (!any) {
    findings.push_back({Outcome::kFail,
                        "nodes",
                        absl::StrCat("the kernel offers no verbs (", kSysNodes, " is empty)"),
                        {"modprobe ib_uverbs"}});
  }
  findings.push_back(NodeFinding(machine, absl::StrCat(kNodes, "/rdma_cm"), "rdma_ucm"));
}

void CheckState(const Port& port, std::vector<Finding>& findings) {
  const std::string what =
      absl::StrCat(port.name(), " is ", port.state, " (", port.link_layer, ")");
  if (port.state == "ACTIVE") {
    findings.push_back({Outcome::kPass, "port", what, {}});
    return;
  }
  Finding finding{Outcome::kFail, "port", what, {}};
  if (port.ethernet()) {
    finding.fixes.push_back(absl::StrCat(
        "ip link set dev ", port.netdev.empty() ? "NETDEV" : port.netdev, " up   # and its cable"));
  } else {
    finding.fixes.push_back(port.state == "INIT"
                                ? "systemctl start opensm   # on one host of the fabric"
                                : "ibstat   # the cable, the switch");
  }
  findings.push_back(std::move(finding));
}

// GIDs of InfiniBand are not IP addresses: rdma://HOST is an address of the IPoIB interface over
// the device.
void CheckIpoib(const Machine& machine, const Port& port, std::vector<Finding>& findings) {
  const std::vector<std::string> netdevs =
      machine.List(absl::StrCat(kSysDevices, "/", port.device, "/device/net"));
  if (netdevs.empty()) {
    findings.push_back({Outcome::kWarn,
                        "address",
                        absl::StrCat(port.name(),
                                     " has no IPoIB interface, whose address rdma:// "
                                     "would name"),
                        {"modprobe ib_ipoib"}});
    return;
  }
  bool looked = false;
  for (const std::string& netdev : netdevs) {
    const std::optional<std::string> shown =
        machine.Run({"ip", "-oneline", "address", "show", "dev", netdev, "scope", "global"});
    if (shown.has_value() && absl::StrContains(*shown, "inet")) {
      findings.push_back({Outcome::kPass,
                          "address",
                          absl::StrCat(port.name(), " is named by the addresses of ", netdev),
                          {}});
      return;
    }
    looked = looked || shown.has_value();
  }
  if (!looked) {
    findings.push_back(
        {Outcome::kSkip, "address", "`ip address show` prints nothing (package iproute2)", {}});
    return;
  }
  findings.push_back({Outcome::kWarn,
                      "address",
                      absl::StrCat(port.name(), ": its IPoIB interface ", netdevs.front(),
                                   " has no address, which rdma:// would name"),
                      {absl::StrCat("ip address add 10.0.0.7/24 dev ", netdevs.front()),
                       absl::StrCat("ip link set dev ", netdevs.front(), " up")}});
}

void CheckGids(const Machine& machine, const Port& port, std::vector<Finding>& findings) {
  const std::string netdev = port.netdev.empty() ? "NETDEV" : port.netdev;
  const std::string give = absl::StrCat("ip address add 10.0.0.7/24 dev ", netdev);
  if (port.gids.empty()) {
    findings.push_back({Outcome::kFail,
                        "gids",
                        absl::StrCat(port.name(), " has no GID",
                                     port.ethernet() ? ": its interface has no address" : ""),
                        {port.ethernet() ? give : "systemctl start opensm   # on one host"}});
    return;
  }
  std::vector<std::string> shown;
  bool addressed = false;
  for (const Gid& gid : port.gids) {
    addressed = addressed || !gid.link_local;
    shown.push_back(absl::StrCat(gid.index, ": ", gid.address));
    if (!gid.netdev.empty() && !machine.Exists("/sys/class/net/" + gid.netdev)) {
      findings.push_back({Outcome::kFail,
                          "gids",
                          absl::StrCat(port.name(), " belongs to the interface ", gid.netdev,
                                       ", which is in another network namespace"),
                          {"docker run --network=host …   # or run it outside of the namespace"}});
      return;
    }
  }
  const std::string what = absl::StrCat(port.name(), " has ", absl::StrJoin(shown, ", "));
  if (addressed || !port.ethernet()) {
    findings.push_back({Outcome::kPass, "gids", what, {}});
  } else {
    findings.push_back({Outcome::kWarn,
                        "gids",
                        absl::StrCat(what, ": link-local only, which rdma:// cannot name"),
                        {give}});
  }
}

void CheckRoceVersion(const Port& port, std::vector<Finding>& findings) {
  if (!port.ethernet() || port.gids.empty()) return;
  const bool v2 = std::any_of(port.gids.begin(), port.gids.end(), [](const Gid& gid) {
    return gid.type == "RoCE v2" && !gid.link_local;
  });
  const bool any_v2 = std::any_of(port.gids.begin(), port.gids.end(),
                                  [](const Gid& gid) { return gid.type == "RoCE v2"; });
  if (v2 || any_v2) {
    findings.push_back(
        {Outcome::kPass, "roce", absl::StrCat(port.name(), " speaks RoCE v2 (UDP 4791)"), {}});
    return;
  }
  findings.push_back(
      {Outcome::kWarn,
       "roce",
       absl::StrCat(port.name(), " has GIDs of RoCE v1 only, which routers do not forward"),
       {absl::StrCat("cma_roce_mode -d ", port.device, " -p ", port.number, " -m 2")}});
}

int LargestMtuWithin(int interface_mtu) {
  int mtu = kMtuMax;
  while (mtu > 256 && mtu > interface_mtu - kHeaderBytes) mtu /= 2;
  return mtu;
}

void CheckMtu(const Machine& machine, const Port& port, const rdma::VerbsPort& verbs,
              std::vector<Finding>& findings) {
  if (verbs.mtu_bytes == 0) return;
  const std::string what = absl::StrCat(port.name(), " sends packets of ", verbs.mtu_bytes, " B");
  int interface_mtu = 0;
  const std::string text =
      machine.Read(absl::StrCat("/sys/class/net/", port.netdev, "/mtu")).value_or("");
  if (!port.ethernet() || !absl::SimpleAtoi(text, &interface_mtu)) {
    findings.push_back({Outcome::kPass, "mtu", what, {}});
    return;
  }
  const std::string both = absl::StrCat(what, " (", port.netdev, ": ", interface_mtu, " B)");
  const int possible = LargestMtuWithin(interface_mtu);
  if (verbs.mtu_bytes < possible) {
    findings.push_back({Outcome::kWarn,
                        "mtu",
                        absl::StrCat(both, "; ", possible, " B would fit"),
                        {absl::StrCat("ip link set dev ", port.netdev, " mtu ", interface_mtu,
                                      "   # set again, the device reads it again")}});
  } else {
    findings.push_back({Outcome::kPass,
                        "mtu",
                        possible == kMtuMax
                            ? both
                            : absl::StrCat(both, "; 4096 B would need 4200 B on the whole way"),
                        {}});
  }
}

}  // namespace

std::string Port::name() const { return absl::StrCat(device, " port ", number); }

bool Port::soft_roce() const {
  return in_software && std::any_of(gids.begin(), gids.end(), [](const Gid& gid) {
           return absl::StrContains(gid.type, "RoCE") && !gid.link_local;
         });
}

std::vector<Port> PortsOf(const Machine& machine) {
  std::vector<Port> ports;
  for (const std::string& device : machine.List(kSysDevices)) {
    for (const std::string& name : machine.List(absl::StrCat(kSysDevices, "/", device, "/ports"))) {
      int number = 0;
      if (absl::SimpleAtoi(name, &number)) ports.push_back(PortOf(machine, device, number));
    }
  }
  return ports;
}

void CheckDevices(const Machine& machine, std::vector<Finding>& findings) {
  const std::vector<std::string> devices = machine.List(kSysDevices);
  if (devices.empty()) {
    findings.push_back(NoDevice(machine));
    return;
  }
  findings.push_back({Outcome::kPass, "devices", absl::StrJoin(devices, ", "), {}});
  const std::vector<rdma::VerbsDevice> verbs = machine.VerbsDevices();
  for (const std::string& device : devices) CheckProvider(machine, device, verbs, findings);
  CheckNodes(machine, findings);
}

void CheckPorts(const Machine& machine, const std::vector<Port>& ports,
                std::vector<Finding>& findings) {
  const std::vector<rdma::VerbsDevice> verbs = machine.VerbsDevices();
  for (const Port& port : ports) {
    CheckState(port, findings);
    CheckGids(machine, port, findings);
    if (!port.ethernet()) CheckIpoib(machine, port, findings);
    CheckRoceVersion(port, findings);
    for (const rdma::VerbsDevice& device : verbs) {
      if (device.name != port.device) continue;
      for (const rdma::VerbsPort& verbs_port : device.ports) {
        if (verbs_port.number == port.number) CheckMtu(machine, port, verbs_port, findings);
      }
    }
  }
}

}  // namespace osprey::doctor
