// The self-test's connection by rdma_cm, with every wait bounded.

#ifndef OSPREY_RDMA_SELFTEST_CM_H_
#define OSPREY_RDMA_SELFTEST_CM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rdma/selftest/endpoint.h"
#include "rdma/verbs_cm_event.h"
#include "rdma/verbs_device.h"
#include "rdma/verbs_objects.h"
#include "rdma/verbs_reaper.h"

namespace osprey::rdma::selftest {

// One end of one connection. The queue pair is an Endpoint's, as in //rdma:verbs, which says why.
class CmConnection {
 public:
  static absl::StatusOr<std::unique_ptr<CmConnection>> Create();
  // Its queue pair is gone when this returns; the id a second later, or when the kernel lets it go.
  ~CmConnection();

  // ---- The end that is connected to.

  // Binds `host` at a port that is picked and returned.
  absl::StatusOr<uint16_t> Listen(const std::string& host);
  // Waits for the peer that knows `seed` and accepts it, on the device that it came to. Others are
  // rejected.
  absl::Status Accept(const VerbsDevices& devices, uint64_t seed, absl::Time deadline);

  // ---- The end that connects.

  absl::Status ResolveAddress(const std::string& host, uint16_t port, absl::Time deadline);
  absl::Status ResolveRoute(absl::Time deadline);
  // REQUIRES: both were resolved.
  absl::Status Connect(const VerbsDevices& devices, uint64_t seed, absl::Time deadline);

  // ---- Both. REQUIRES: accepted or connected.
  Endpoint& endpoint() { return *endpoint_; }
  const VerbsDevice& device() const { return *device_; }
  void Disconnect();

 private:
  explicit CmConnection(EventChannel channel) : reaper_(std::move(channel)) {}

  // The next event, copied and acknowledged. An id that came with it is its caller's.
  absl::StatusOr<CmEvent> Next(absl::Time deadline);
  // The next event, which must be `wanted`.
  absl::StatusOr<CmEvent> Await(rdma_cm_event_type wanted, absl::Time deadline);
  absl::Status MakeEndpoint(const VerbsDevices& devices, uint64_t seed);
  absl::Status Answer(const CmEvent& request, const VerbsDevices& devices, uint64_t seed);
  rdma_conn_param Parameters(const uint64_t& seed) const;

  CmReaper reaper_;
  CmId listener_;
  CmId id_;
  const VerbsDevice* device_ = nullptr;
  std::unique_ptr<Endpoint> endpoint_;
  bool connected_ = false;
};

}  // namespace osprey::rdma::selftest

#endif  // OSPREY_RDMA_SELFTEST_CM_H_
