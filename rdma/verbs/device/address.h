// Addresses of rdma_cm: conversion between text and sockaddr, and this machine's addresses that
// belong to RDMA devices.

#ifndef OSPREY_RDMA_VERBS_DEVICE_ADDRESS_H_
#define OSPREY_RDMA_VERBS_DEVICE_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rdma/address.h"

namespace osprey::rdma {

// An IPv4 or IPv6 address with a port.
struct SocketAddress {
  sockaddr_storage storage = {};

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Resolves by rdma_getaddrinfo. May block in the resolver when the host is a name and not a literal
// address. `passive`: to listen there. Errors: INVALID_ARGUMENT, or UNAVAILABLE for a name that
// cannot be resolved now.
absl::StatusOr<SocketAddress> ResolveAddress(const Address& address, bool passive);

// Both take addresses of librdmacm. An IPv4 address mapped into IPv6 (::ffff:10.0.0.7) comes out as
// IPv4.
std::string HostOf(const sockaddr* address);
std::string UriOf(const sockaddr* address);  // "rdma://10.0.0.7:7411", "rdma://[fd00::7]:7411"

bool IsWildcard(const sockaddr* address);  // 0.0.0.0 or ::
bool IsLoopback(const sockaddr* address);  // 127.0.0.0/8 or ::1
bool IsLocal(const sockaddr* address);     // an interface of this machine has it

// The addresses of this machine that belong to RDMA devices, found by trying to bind to each.
// Link-local ones are omitted, as they have no meaning without their interface. `family`: AF_INET,
// AF_INET6, or AF_UNSPEC for both.
std::vector<std::string> RdmaAddresses(int family = AF_UNSPEC);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_DEVICE_ADDRESS_H_
