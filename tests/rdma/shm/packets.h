// Packets and files of raw clients over shm, for tests that speak to a server without the library.

#ifndef OSPREY_TESTS_RDMA_SHM_PACKETS_H_
#define OSPREY_TESTS_RDMA_SHM_PACKETS_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "gtest/gtest.h"
#include "rdma/shm/socket.h"
#include "rdma/unique_fd.h"

namespace osprey::rdma {

inline ShmPacket PacketOf(PacketKind kind) {
  ShmPacket packet;
  packet.kind = static_cast<uint32_t>(kind);
  return packet;
}

// A request to connect, with small rings.
inline ShmPacket ConnectPacket(uint32_t frame_bytes_max = 256) {
  ShmPacket packet = PacketOf(PacketKind::kConnect);
  packet.connect.receive_credits = 4;
  packet.connect.frame_bytes_max = frame_bytes_max;
  packet.connect.reads_in_flight_max = 1;
  return packet;
}

// The seals with which a peer attaches exposed memory.
inline constexpr int kMemorySeals = F_SEAL_SHRINK | F_SEAL_GROW;

inline UniqueFd NewMemfd(off_t bytes, int seals = kMemorySeals) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), bytes), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

}  // namespace osprey::rdma

#endif  // OSPREY_TESTS_RDMA_SHM_PACKETS_H_
