// The steps of a self-test, which both ends run side by side.

#ifndef OSPREY_RDMA_SELFTEST_SCRIPT_H_
#define OSPREY_RDMA_SELFTEST_SCRIPT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/selftest/cm.h"
#include "rdma/selftest/control.h"
#include "rdma/selftest/endpoint.h"
#include "rdma/selftest/path.h"
#include "rdma/selftest/selftest.h"
#include "rdma/verbs/device/device.h"

namespace osprey::rdma::selftest {

enum class Role {
  kActive,   // connects, READs, WRITEs
  kPassive,  // accepts; its memory is READ and written
};

class Script {
 public:
  // `control`: null if there is no other end to inform (the first step failed elsewhere).
  // `cm_host`: for the active end, the peer's device; for the passive end, the address to listen
  // at. Empty: the address of the path's GID.
  Script(Role role, const Options& options, std::string cm_host, Control& control,
         absl::Time deadline);

  Report Run();

 private:
  // Runs one step: exchanges the results of both ends. It passed at both ends, or it failed at
  // both. `ours` and `theirs` carry parameters if there are any.
  bool Together(const char* layer, absl::string_view what, const absl::Status& mine,
                absl::string_view hint, Message ours = {}, Message* theirs = nullptr);
  void Skip(const char* layer, absl::string_view what);
  absl::Time StepDeadline() const;

  bool FindDevice();
  void RunVerbs();
  bool WalkByHand(Endpoint& endpoint);
  void RunCm();
  bool ConnectByCm(CmConnection& connection);
  bool MoveBytes(const char* layer, Endpoint& endpoint);

  const Role role_;
  const Options options_;
  std::string cm_host_;
  Control& control_;
  const absl::Time deadline_;
  std::unique_ptr<VerbsDevices> devices_;
  Path path_;
  bool alone_ = false;  // the other end has gone
  Report report_;
};

}  // namespace osprey::rdma::selftest

#endif  // OSPREY_RDMA_SELFTEST_SCRIPT_H_
