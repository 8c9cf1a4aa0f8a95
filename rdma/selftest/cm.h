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
#include "rdma/verbs/device/cm_event.h"
#include "rdma/verbs/device/device.h"
#include "rdma/verbs/device/objects.h"
#include "rdma/verbs/device/reaper.h"

namespace osprey::rdma::selftest {

// One end of one connection. The queue pair is an Endpoint's; //rdma/verbs does likewise and
// explains why.
class CmConnection {
 public:
  static absl::StatusOr<std::unique_ptr<CmConnection>> Create();
  // The queue pair is destroyed when this returns. The id follows a second later, or when the
  // kernel releases it.
  ~CmConnection();

  // ---- The passive end.

  // Binds `host` at a free port, which it returns.
  absl::StatusOr<uint16_t> Listen(const std::string& host);
  // Waits for the peer that sends `seed`, and accepts it on the device of its request. Others are
  // rejected.
  absl::Status Accept(const VerbsDevices& devices, uint64_t seed, absl::Time deadline);

  // ---- The active end.

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

  // The next event, copied and acknowledged. The caller owns an id that came with it.
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
