#include "rdma/verbs/device/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rdma/errors.h"
#include "rdma/verbs/device/objects.h"

namespace osprey::rdma {
namespace {

using AddressInfo = std::unique_ptr<rdma_addrinfo, Destroyer<rdma_freeaddrinfo>>;
using Interfaces = std::unique_ptr<ifaddrs, Destroyer<freeifaddrs>>;

// Empty when there are none, or when they cannot be listed.
Interfaces ListInterfaces() {
  ifaddrs* list = nullptr;
  return Interfaces(getifaddrs(&list) == 0 ? list : nullptr);
}

const in6_addr& Ipv6(const sockaddr* address) {
  return reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
}

in_addr_t Ipv4HostOrder(const sockaddr* address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
}

socklen_t LengthOf(const sockaddr* address) {
  return address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

uint16_t PortOf(const sockaddr* address) {
  // The port is at the same offset in both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
}

bool IsIp(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

bool IsLinkLocal(const sockaddr* address) {
  return address->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&Ipv6(address));
}

// True if an RDMA device has this address.
bool BindsToDevice(rdma_event_channel* channel, const sockaddr* address) {
  absl::StatusOr<CmId> id = CreateCmId(channel);
  if (!id.ok()) return false;
  SocketAddress any_port;
  std::memcpy(&any_port.storage, address, LengthOf(address));
  reinterpret_cast<sockaddr_in*>(any_port.get())->sin_port = 0;
  return rdma_bind_addr(id->get(), any_port.get()) == 0 && (*id)->verbs != nullptr;
}

}  // namespace

absl::StatusOr<SocketAddress> ResolveAddress(const Address& address, bool passive) {
  rdma_addrinfo hints = {};
  // Routes are resolved on the connection's own id, in the background.
  hints.ai_flags = (passive ? RAI_PASSIVE : 0) | RAI_NOROUTE;
  hints.ai_qp_type = IBV_QPT_RC;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address.port);
  const int error = rdma_getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    // A code of getaddrinfo, or -1 and errno.
    const char* text = error == -1 ? std::strerror(errno) : gai_strerror(error);
    return absl::UnavailableError(absl::StrCat("cannot resolve the host of ", address.ToString(),
                                               ": ", text,
                                               "; check the name, or write the address"));
  }
  const AddressInfo info(found);
  const sockaddr* chosen = passive ? info->ai_src_addr : info->ai_dst_addr;
  if (!IsIp(chosen)) {
    return absl::InvalidArgumentError(absl::StrCat("the host of ", address.ToString(),
                                                   " has neither an IPv4 nor an IPv6 address"));
  }
  SocketAddress result;
  std::memcpy(&result.storage, chosen, LengthOf(chosen));
  return result;
}

std::string HostOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
              sizeof(text));
  } else if (IN6_IS_ADDR_V4MAPPED(&Ipv6(address))) {
    inet_ntop(AF_INET, &Ipv6(address).s6_addr[12], text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, &Ipv6(address), text, sizeof(text));
  }
  return text;
}

std::string UriOf(const sockaddr* address) {
  Address named;
  named.host = HostOf(address);
  named.port = PortOf(address);
  return named.ToString();
}

bool IsWildcard(const sockaddr* address) {
  return address->sa_family == AF_INET ? Ipv4HostOrder(address) == INADDR_ANY
                                       : IN6_IS_ADDR_UNSPECIFIED(&Ipv6(address));
}

bool IsLoopback(const sockaddr* address) {
  return address->sa_family == AF_INET
             ? (Ipv4HostOrder(address) >> IN_CLASSA_NSHIFT) == IN_LOOPBACKNET
             : IN6_IS_ADDR_LOOPBACK(&Ipv6(address));
}

bool IsLocal(const sockaddr* address) {
  const Interfaces interfaces = ListInterfaces();
  const std::string host = HostOf(address);
  for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
    if (IsIp(entry->ifa_addr) && HostOf(entry->ifa_addr) == host) return true;
  }
  return false;
}

std::vector<std::string> RdmaAddresses(int family) {
  std::vector<std::string> result;
  const absl::StatusOr<EventChannel> channel = CreateEventChannel();
  if (!channel.ok()) return result;
  const Interfaces interfaces = ListInterfaces();
  for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
    const sockaddr* address = entry->ifa_addr;
    if (!IsIp(address) || IsLinkLocal(address)) continue;
    if (family != AF_UNSPEC && address->sa_family != family) continue;
    if (!BindsToDevice(channel->get(), address)) continue;
    std::string host = HostOf(address);
    if (std::find(result.begin(), result.end(), host) == result.end())
      result.push_back(std::move(host));
  }
  return result;
}

}  // namespace osprey::rdma
