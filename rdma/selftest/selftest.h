// Moves bytes between two ends by SEND and RECV, READ and WRITE, layer by layer, so that the
// failing layer is visible:
//
//   device      an RDMA device with an active port and a GID
//   tcp         the two ends find each other (the only layer that is not RDMA)
//   verbs       a queue pair moved by hand: RESET, INIT, RTR, RTS; then SEND, READ, WRITE
//   rdma_cm     address, route, connection; then the same again
//
// Both ends run the same steps and exchange the outcome of each over TCP (selftest/control.h), so
// that both report the same.
//
// SECURITY. Only here in Osprey may a peer write to memory. The memory is the self-test's own and
// holds only a test pattern. It exists, as its queue pairs do, for a step or two. The self-test has
// no access to a kvserver, whose queue pairs never allow a WRITE. There is no authentication: while
// an end serves, any process that reaches its TCP port may play the other end. Its messages are
// checked before use, and it can only make the test fail. An end binds only the address that it is
// given, serves one peer, and ends.
//
// Time: everything ends within Options::limit, and a second for the CM's disconnect. Thread rule:
// each call belongs to one thread; calls of several threads are independent.

#ifndef OSPREY_RDMA_SELFTEST_SELFTEST_H_
#define OSPREY_RDMA_SELFTEST_SELFTEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/unique_fd.h"

namespace osprey::rdma::selftest {

enum class Outcome { kPass, kSkip, kFail };

struct Step {
  Outcome outcome = Outcome::kPass;
  std::string layer;   // "device", "tcp", "verbs", "rdma_cm"
  std::string detail;  // one line: the action, or the error
  std::string hint;    // of a failed step: the fix
};

using Report = std::vector<Step>;

bool Passed(const Report& report);

struct Options {
  std::string device;  // as `rdma link` shows it; empty: the first suitable one
  int port = 0;        // of the device, from 1; 0: the first suitable one
  int gid_index = -1;  // -1: the best: RoCE v2, with an address
  absl::Duration limit = absl::Seconds(10);
};

// Both ends in this process.
Report RunHere(const Options& options);

// Runs this end against one that serves. `peer` is HOST[:PORT], its TCP address (default port
// 7411); HOST should be an address of its RDMA device. Errors: INVALID_ARGUMENT: no address.
absl::StatusOr<Report> RunWith(absl::string_view peer, const Options& options);

// An end that waits for another.
class Server {
 public:
  // Listens at HOST[:PORT]; port 0 picks one. Errors: INVALID_ARGUMENT: no address, or an unusable
  // one. The loopback address is on no RDMA device; the wildcard is not one address.
  // FAILED_PRECONDITION: no RDMA device; ALREADY_EXISTS; UNAVAILABLE: a name that cannot be
  // resolved.
  static absl::StatusOr<Server> Listen(absl::string_view address, const Options& options);

  // HOST:PORT.
  const std::string& address() const { return address_; }

  // Waits up to `wait` for a self-test to connect, and runs the test with it. Other connections are
  // closed, at most kForeignPeersMax of them. Errors: DEADLINE_EXCEEDED: no self-test connected.
  absl::StatusOr<Report> ServeOne(absl::Duration wait);
  static constexpr int kForeignPeersMax = 64;

 private:
  Server() = default;

  UniqueFd listener_;
  std::string address_;
  std::string host_;
  Options options_;
};

}  // namespace osprey::rdma::selftest

#endif  // OSPREY_RDMA_SELFTEST_SELFTEST_H_
