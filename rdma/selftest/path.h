// The device, port and GID of a self-test, and the transitions of a queue pair along that path,
// made by hand.
//
//   RESET ──ToInit──▶ INIT ──ToReadyToReceive──▶ RTR ──ToReadyToSend──▶ RTS
//
// Each transition is a named set of attributes. verbs/device/queue_pair.h has their masks, and the
// transitions of connections of rdma_cm, which finds the path itself.

#ifndef OSPREY_RDMA_SELFTEST_PATH_H_
#define OSPREY_RDMA_SELFTEST_PATH_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rdma/selftest/control.h"
#include "rdma/selftest/selftest.h"
#include "rdma/verbs/device/device.h"

namespace osprey::rdma::selftest {

struct Path {
  const VerbsDevice* device = nullptr;
  uint8_t port = 0;
  bool ethernet = false;
  uint16_t lid = 0;  // InfiniBand
  ibv_mtu mtu = IBV_MTU_256;
  int gid_index = 0;
  ibv_gid gid = {};
  uint32_t gid_type = 0;  // ibv_gid_type
  std::string address;    // the GID's IP address; empty for a link-local one

  // "rxe0 port 1, GID 1 10.0.0.1 (RoCE v2), MTU 4096"
  std::string ToString() const;
};

// `devices` must outlive the result. Errors: NOT_FOUND: no such device or port, no active one, or
// no such GID. The message lists the existing ones.
absl::StatusOr<Path> ChoosePath(const VerbsDevices& devices, const Options& options);

// REQUIRES of each: the queue pair is in the state before. `access`: IBV_ACCESS_REMOTE_…
absl::Status ToInit(ibv_qp* queue_pair, const Path& path, unsigned access);
// `peer`: the other end's parameters, validated.
absl::Status ToReadyToReceive(ibv_qp* queue_pair, const Path& path, const Message& peer);
absl::Status ToReadyToSend(ibv_qp* queue_pair, const Path& path, uint32_t psn);

}  // namespace osprey::rdma::selftest

#endif  // OSPREY_RDMA_SELFTEST_PATH_H_
