// The errors of connecting, each a distinct status whose message names the thing and the fix.
// Callers distinguish them by ReasonOf (reasons.h), which survives wrapping with absl::Status
// payloads. The text is for people.

#ifndef OSPREY_RDMA_ERRORS_H_
#define OSPREY_RDMA_ERRORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rdma/reasons.h"

namespace osprey::rdma {

// Of a kPeerGone: the peer violated a rule of the transport, and lost the connection.
bool BrokeRules(const absl::Status& status);
// The peer takes no more memories at a time.
bool IsTooManyExposed(const absl::Status& status);

absl::Status NoDeviceError();
absl::Status ForkedError();
absl::Status NotRdmaAddressError(absl::string_view host,
                                 const std::vector<std::string>& rdma_addresses);
absl::Status MemlockTooLowError(uint64_t needed_bytes, uint64_t limit_bytes);
absl::Status NoListenerError(absl::string_view uri);
// All four are kRefused. The server has too many connections in all, from our source, or
// unauthenticated ones; or processes of our user hold up too many descriptors.
absl::Status RefusedError(absl::string_view uri);
absl::Status SourceRefusedError(absl::string_view uri);
absl::Status UnauthenticatedRefusedError(absl::string_view uri);
absl::Status DescriptorsRefusedError(absl::string_view uri);
absl::Status ShuttingDownError(absl::string_view uri);
absl::Status NotServingError(absl::string_view uri);
// The client requests shard `shard` of `shards` (0: unknown); the server has `its_shard` of `its_shards`.
absl::Status WrongShardError(absl::string_view uri, uint32_t shard, uint32_t shards,
                             uint32_t its_shard, uint32_t its_shards);
// At an address that the client has learned of its cluster.
absl::Status OtherClusterError(absl::string_view uri);
absl::Status UnreachableError(absl::string_view uri, absl::string_view detail);
absl::Status VersionMismatchError(uint16_t ours, uint16_t theirs);
absl::Status NotOspreyError(absl::string_view detail);
absl::Status TimeoutError(absl::string_view what, absl::string_view uri);
absl::Status PeerGoneError(absl::string_view detail);
// `detail` names the rule, and the bound if it has one.
absl::Status BrokeRulesError(absl::string_view detail);
// RESOURCE_EXHAUSTED and ALREADY_EXISTS, with kNone: they do not reach a user of the client library.
absl::Status TooManyExposedError(uint32_t memories_max);
absl::Status AddressInUseError(absl::string_view uri);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_ERRORS_H_
