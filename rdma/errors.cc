#include "rdma/errors.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"

namespace osprey::rdma {
namespace {

// The name of the payload that distinguishes errors of one Reason.
constexpr absl::string_view kDetailPayload = "osprey/rdma.Detail";
constexpr absl::string_view kBrokeRules = "broke rules";
constexpr absl::string_view kTooManyExposed = "too many exposed";

absl::Status With(absl::string_view detail, absl::Status status) {
  status.SetPayload(kDetailPayload, absl::Cord(detail));
  return status;
}

bool Has(absl::string_view detail, const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kDetailPayload);
  return payload.has_value() && *payload == detail;
}

}  // namespace

bool BrokeRules(const absl::Status& status) { return Has(kBrokeRules, status); }
bool IsTooManyExposed(const absl::Status& status) { return Has(kTooManyExposed, status); }

absl::Status NoDeviceError() {
  return MakeError(
      Reason::kNoDevice,
      "this machine has no RDMA device (\"rdma link\" lists them); make one with \"rdma link add "
      "rxe0 type "
      "rxe netdev eth0\" where the kernel has soft-RoCE, run the command in the virtual machine of "
      "tools/lab, or use a shm:// address for processes of one host");
}

absl::Status ForkedError() {
  return MakeError(
      Reason::kForked,
      "this process was forked from one that uses RDMA, and open devices serve only the process "
      "that opened them; start it by exec (in Python: multiprocessing's start method \"spawn\"), "
      "or close all clients before the fork");
}

absl::Status NotRdmaAddressError(absl::string_view host,
                                 const std::vector<std::string>& rdma_addresses) {
  const std::string those =
      rdma_addresses.empty()
          ? std::string(
                "no RDMA device of this machine has an address now; give one to its "
                "network interface with \"ip address add\"")
          : absl::StrCat("the addresses that do are ", absl::StrJoin(rdma_addresses, ", "));
  return MakeError(
      Reason::kNotRdmaAddress,
      absl::StrCat(host, " does not belong to an RDMA device (127.0.0.1 never does); ", those));
}

absl::Status MemlockTooLowError(uint64_t needed_bytes, uint64_t limit_bytes) {
  const uint64_t needed_kib = (needed_bytes + 1023) / 1024;
  return MakeError(
      Reason::kMemlockTooLow,
      absl::StrCat("registering ", needed_bytes,
                   " bytes with the RDMA device pins them, and this process may "
                   "pin ",
                   limit_bytes, " bytes (RLIMIT_MEMLOCK); raise the limit with \"ulimit -l ",
                   needed_kib,
                   "\" (or \"ulimit -l unlimited\", or LimitMEMLOCK=infinity in the "
                   "systemd unit), or ask for "
                   "less memory"));
}

absl::Status NoListenerError(absl::string_view uri) {
  return MakeError(Reason::kNoListener,
                   absl::StrCat("no server listens at ", uri, "; start kvserver --listen=", uri,
                                ", or correct the address"));
}

absl::Status RefusedError(absl::string_view uri) {
  return MakeError(Reason::kRefused,
                   absl::StrCat("the server at ", uri,
                                " accepts no more connections; close some, or raise kvserver "
                                "--connections-max"));
}

absl::Status SourceRefusedError(absl::string_view uri) {
  return MakeError(
      Reason::kRefused,
      absl::StrCat("the server at ", uri,
                   " accepts no more connections from this host (or, over shared memory, of "
                   "this user); close some, or raise kvserver "
                   "--connections-per-address-max"));
}

absl::Status UnauthenticatedRefusedError(absl::string_view uri) {
  return MakeError(
      Reason::kRefused,
      absl::StrCat("the server at ", uri,
                   " has too many connections that have not authenticated yet; try again"));
}

absl::Status DescriptorsRefusedError(absl::string_view uri) {
  return MakeError(
      Reason::kRefused,
      absl::StrCat("the server at ", uri,
                   " holds too many descriptors for processes of this user that do not "
                   "receive them, or block their close; end those processes"));
}

absl::Status ShuttingDownError(absl::string_view uri) {
  return MakeError(
      Reason::kShuttingDown,
      absl::StrCat("the server at ", uri, " is shutting down; connect again when it is back"));
}

absl::Status NotServingError(absl::string_view uri) {
  return MakeError(
      Reason::kNotServing,
      absl::StrCat("the server at ", uri,
                   " is in a cluster and does not serve now (it is not its shard's primary, or "
                   "cannot reach the cluster's store); connect to the cluster's other servers too, "
                   "or try again"));
}

absl::Status WrongShardError(absl::string_view uri, uint32_t shard, uint32_t shards,
                             uint32_t its_shard, uint32_t its_shards) {
  return MakeError(
      Reason::kWrongShard,
      absl::StrCat("the server at ", uri, " has shard ", its_shard, " of ", its_shards,
                   ", not shard ", shard, shards == 0 ? "" : absl::StrCat(" of ", shards),
                   "; connect to the addresses of the cluster's shard 0"));
}

absl::Status OtherClusterError(absl::string_view uri) {
  return MakeError(Reason::kUnreachable,
                   absl::StrCat("the server at ", uri,
                                " is of another cluster now, or of none; the client goes on to the "
                                "next address"));
}

absl::Status UnreachableError(absl::string_view uri, absl::string_view detail) {
  return MakeError(Reason::kUnreachable,
                   absl::StrCat("cannot reach ", uri, ": ", detail,
                                "; check the address and the network between the hosts"));
}

absl::Status VersionMismatchError(uint16_t ours, uint16_t theirs) {
  return MakeError(
      Reason::kVersionMismatch,
      absl::StrCat("this program speaks protocol version ", ours, " and its peer version ", theirs,
                   "; install the same release of Osprey at both ends"));
}

absl::Status NotOspreyError(absl::string_view detail) {
  return MakeError(
      Reason::kNotOsprey,
      absl::StrCat("the peer is not an Osprey of this kind: ", detail, "; correct the address"));
}

absl::Status TimeoutError(absl::string_view what, absl::string_view uri) {
  return MakeError(Reason::kConnectTimeout,
                   absl::StrCat("no answer from ", uri, " in time while ", what,
                                "; check that the server runs, or allow more time"));
}

absl::Status PeerGoneError(absl::string_view detail) {
  return MakeError(Reason::kPeerGone,
                   absl::StrCat("the connection broke: ", detail, "; connect again"));
}

absl::Status BrokeRulesError(absl::string_view detail) {
  return With(kBrokeRules,
              MakeError(Reason::kPeerGone,
                        absl::StrCat("the connection was closed: ", detail,
                                     "; install the same release of Osprey at both ends")));
}

absl::Status TooManyExposedError(uint32_t memories_max) {
  return With(
      kTooManyExposed,
      MakeError(absl::StatusCode::kResourceExhausted, Reason::kNone,
                absl::StrCat("the peer takes ", memories_max,
                             " memories of a connection at a time; withdraw another first")));
}

absl::Status AddressInUseError(absl::string_view uri) {
  return MakeError(
      absl::StatusCode::kAlreadyExists, Reason::kNone,
      absl::StrCat(uri, " is in use by another server; stop that one, or listen somewhere else"));
}

}  // namespace osprey::rdma
