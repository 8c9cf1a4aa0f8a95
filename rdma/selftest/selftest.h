// Really moves bytes between two ends by SEND and RECV, READ and WRITE, layer by layer, so that one
// sees which layer fails:
//
//   device      an RDMA device with an active port and a GID
//   tcp         the two ends find each other (the only layer that is not RDMA)
//   verbs       a queue pair that is walked by hand: RESET, INIT, RTR, RTS; then SEND, READ, WRITE
//   rdma_cm     address, route, connection; then the same again
//
// Both ends run the same steps and tell each other of each over TCP (selftest/control.h), so that
// both report the same.
//
// SECURITY. This is the one place of Osprey where memory may be written to from afar. The memory is
// the self-test's own, holds a test pattern and nothing else, and lives, as its queue pairs do, for
// a step or two; nothing of a kvserver is touched or even known here, whose queue pairs never allow
// a WRITE. Nobody is authenticated: while an end serves, whoever reaches its TCP port may play the
// other end. What is got from there is checked before it is used, and a peer can do no more than
// let the test fail. An end binds only the address that it is given, serves one peer, and ends.
//
// Time: everything ends within Options::limit, and a second for the CM's farewell. Thread rule:
// each call belongs to one thread; calls of several threads do not touch each other.

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
  std::string detail;  // one line: what was done, or what went wrong
  std::string hint;    // a failed one's: what helps
};

using Report = std::vector<Step>;

bool Passed(const Report& report);

struct Options {
  std::string device;  // as `rdma link` shows it; empty: the first that is fit
  int port = 0;        // of the device, from 1; 0: the first that is fit
  int gid_index = -1;  // -1: the best: RoCE v2, with an address
  absl::Duration limit = absl::Seconds(10);
};

// Both ends in this process.
Report RunHere(const Options& options);

// This end against one that serves. `peer` is HOST[:PORT], its address there (default port 7411,
// over TCP); HOST should be an address of its RDMA device. Errors: INVALID_ARGUMENT: no address.
absl::StatusOr<Report> RunWith(absl::string_view peer, const Options& options);

// An end that waits for another.
class Server {
 public:
  // Listens at HOST[:PORT]; port 0 picks one. Errors: INVALID_ARGUMENT: no address, or one that
  // cannot be meant: the loopback's (no RDMA device has it) or the wildcard (one address is to be
  // bound, not all); FAILED_PRECONDITION: no RDMA device; ALREADY_EXISTS; UNAVAILABLE: a name
  // that nobody knows.
  static absl::StatusOr<Server> Listen(absl::string_view address, const Options& options);

  // HOST:PORT.
  const std::string& address() const { return address_; }

  // Waits up to `wait` for one that speaks the self-test's language, and runs it with him. At most
  // kStrangersMax others are sent away before. Errors: DEADLINE_EXCEEDED: nobody came.
  absl::StatusOr<Report> ServeOne(absl::Duration wait);
  static constexpr int kStrangersMax = 64;

 private:
  Server() = default;

  UniqueFd listener_;
  std::string address_;
  std::string host_;
  Options options_;
};

}  // namespace osprey::rdma::selftest

#endif  // OSPREY_RDMA_SELFTEST_SELFTEST_H_
