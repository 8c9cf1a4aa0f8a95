#include "rdma/selftest/path.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rdma/errors.h"
#include "rdma/verbs/device/objects.h"
#include "rdma/verbs/device/queue_pair.h"

namespace osprey::rdma::selftest {
namespace {

constexpr size_t kGidsMax = 1024;
// The most routers on the way.
constexpr uint8_t kHopLimit = 64;

struct Port {
  const VerbsDevice* device = nullptr;
  uint8_t number = 0;
  ibv_port_attr attributes = {};
  std::vector<ibv_gid_entry> gids;
};

bool IsLinkLocal(const ibv_gid& gid) { return gid.raw[0] == 0xFE && (gid.raw[1] & 0xC0) == 0x80; }

const in6_addr& Ipv6(const ibv_gid& gid) { return *reinterpret_cast<const in6_addr*>(gid.raw); }

std::string TextOf(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  if (IN6_IS_ADDR_V4MAPPED(&Ipv6(gid))) {
    inet_ntop(AF_INET, gid.raw + 12, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
  }
  return text;
}

const char* TypeOf(uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_IB:
      return "InfiniBand";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCE v2";
    default:
      return "of an unknown type";
  }
}

absl::StatusOr<std::vector<Port>> PortsOf(const VerbsDevice& device) {
  std::vector<ibv_gid_entry> entries(kGidsMax);
  const ssize_t count = ibv_query_gid_table(device.context, entries.data(), entries.size(), 0);
  if (count < 0) return VerbsError("ibv_query_gid_table", static_cast<int>(-count));
  entries.resize(static_cast<size_t>(count));
  std::vector<Port> ports;
  for (int number = 1; number <= device.attributes.phys_port_cnt; ++number) {
    Port port;
    port.device = &device;
    port.number = static_cast<uint8_t>(number);
    if (ibv_query_port(device.context, port.number, &port.attributes) != 0) continue;
    for (const ibv_gid_entry& entry : entries) {
      if (entry.port_num == static_cast<uint32_t>(number)) port.gids.push_back(entry);
    }
    ports.push_back(std::move(port));
  }
  return ports;
}

std::string NameOf(const Port& port) {
  return absl::StrCat(port.device->name, " port ", static_cast<int>(port.number));
}

// Higher is better. RoCE v2 crosses routers, most networks have IPv4 addresses, and a link-local
// address reaches only its own link.
int Rank(const ibv_gid_entry& entry) {
  if (IsLinkLocal(entry.gid)) return entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
  const int address = IN6_IS_ADDR_V4MAPPED(&Ipv6(entry.gid)) ? 1 : 0;
  return (entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 4 : 2) + address;
}

absl::StatusOr<Port> ChoosePort(const VerbsDevices& devices, const Options& options) {
  std::vector<std::string> seen;
  for (const VerbsDevice& device : devices.all()) {
    absl::StatusOr<std::vector<Port>> ports = PortsOf(device);
    if (!ports.ok()) {
      seen.push_back(absl::StrCat(device.name, " (", ports.status().message(), ")"));
      continue;
    }
    for (Port& port : *ports) {
      const bool active = port.attributes.state == IBV_PORT_ACTIVE;
      seen.push_back(absl::StrCat(NameOf(port), active ? "" : " (down)"));
      if (!options.device.empty() && options.device != device.name) continue;
      if (options.port != 0 && options.port != port.number) continue;
      if (active) return port;
    }
  }
  std::string wanted = options.device.empty() ? "port" : options.device;
  if (options.port != 0) absl::StrAppend(&wanted, " port ", options.port);
  return absl::NotFoundError(
      absl::StrCat("no active ", wanted, "; there are: ", absl::StrJoin(seen, ", ")));
}

absl::StatusOr<ibv_gid_entry> ChooseGid(const Port& port, int wanted_index) {
  const ibv_gid_entry* best = nullptr;
  std::vector<std::string> seen;
  for (const ibv_gid_entry& entry : port.gids) {
    seen.push_back(
        absl::StrCat(entry.gid_index, " ", TextOf(entry.gid), " (", TypeOf(entry.gid_type), ")"));
    if (wanted_index >= 0 && entry.gid_index != static_cast<uint32_t>(wanted_index)) continue;
    if (best == nullptr || Rank(entry) > Rank(*best)) best = &entry;
  }
  if (best != nullptr) return *best;
  return absl::NotFoundError(absl::StrCat(
      NameOf(port), " has no GID", wanted_index < 0 ? "" : absl::StrCat(" ", wanted_index),
      seen.empty() ? "; give its interface an address" : "; it has: ", absl::StrJoin(seen, ", ")));
}

absl::Status Modify(ibv_qp* queue_pair, ibv_qp_attr& attributes, int mask, absl::string_view step) {
  const int error = ibv_modify_qp(queue_pair, &attributes, mask);
  return error == 0 ? absl::OkStatus() : VerbsError(absl::StrCat("ibv_modify_qp to ", step), error);
}

uint8_t ReadDepthOf(int device_max) { return static_cast<uint8_t>(std::clamp(device_max, 1, 16)); }

}  // namespace

std::string Path::ToString() const {
  return absl::StrCat(device->name, " port ", static_cast<int>(port), ", GID ", gid_index, " ",
                      TextOf(gid), " (", TypeOf(gid_type), "), MTU ", 128 << mtu);
}

absl::StatusOr<Path> ChoosePath(const VerbsDevices& devices, const Options& options) {
  absl::StatusOr<Port> port = ChoosePort(devices, options);
  if (!port.ok()) return port.status();
  const absl::StatusOr<ibv_gid_entry> gid = ChooseGid(*port, options.gid_index);
  if (!gid.ok()) return gid.status();
  Path path;
  path.device = port->device;
  path.port = port->number;
  path.ethernet = port->attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  path.lid = port->attributes.lid;
  path.mtu = port->attributes.active_mtu;
  path.gid_index = static_cast<int>(gid->gid_index);
  path.gid = gid->gid;
  path.gid_type = gid->gid_type;
  if (path.ethernet && !IsLinkLocal(gid->gid)) path.address = TextOf(gid->gid);
  return path;
}

absl::Status ToInit(ibv_qp* queue_pair, const Path& path, unsigned access) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = path.port;
  attributes.qp_access_flags = access;
  return Modify(queue_pair, attributes, kInitMask, "INIT");
}

absl::Status ToReadyToReceive(ibv_qp* queue_pair, const Path& path, const Message& peer) {
  if ((peer.ethernet != 0) != path.ethernet) {
    return absl::FailedPreconditionError(
        "one end is on Ethernet (RoCE) and the other on InfiniBand: choose other devices");
  }
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = std::min(path.mtu, static_cast<ibv_mtu>(peer.mtu));
  attributes.dest_qp_num = peer.qpn;
  attributes.rq_psn = peer.psn;
  attributes.max_dest_rd_atomic = ReadDepthOf(path.device->attributes.max_qp_rd_atom);
  attributes.min_rnr_timer = kReceiverNotReadyTimer;
  attributes.ah_attr.dlid = peer.lid;
  attributes.ah_attr.port_num = path.port;
  // RoCE has only the GID as an address; InfiniBand within a subnet needs none.
  attributes.ah_attr.is_global = path.ethernet ? 1 : 0;
  static_assert(sizeof(attributes.ah_attr.grh.dgid.raw) == sizeof(peer.gid));
  std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid, sizeof(peer.gid));
  attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(path.gid_index);
  attributes.ah_attr.grh.hop_limit = kHopLimit;
  return Modify(queue_pair, attributes, kReceiveMask, "RTR");
}

absl::Status ToReadyToSend(ibv_qp* queue_pair, const Path& path, uint32_t psn) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = psn;
  attributes.max_rd_atomic = ReadDepthOf(path.device->attributes.max_qp_init_rd_atom);
  attributes.timeout = kAckTimeoutExponent;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kReceiverNotReadyRetries;
  return Modify(queue_pair, attributes, kSendMask, "RTS");
}

}  // namespace osprey::rdma::selftest
