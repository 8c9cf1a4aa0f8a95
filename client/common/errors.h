// Makes the errors of the library, which rdma/reasons.h classifies. Internal; no API.

#ifndef OSPREY_CLIENT_COMMON_ERRORS_H_
#define OSPREY_CLIENT_COMMON_ERRORS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/reasons.h"

namespace osprey::client {

// The effect of a failed write, added to `error`: in the message and for MayBeApplied. REQUIRES:
// not OK.
enum class Outcome { kNotApplied, kUnknown };
absl::Status WithOutcome(const absl::Status& error, Outcome outcome);

// An operation on all shards failed in this one: the error says so.
absl::Status OfShard(const absl::Status& error, uint32_t shard, uint32_t shards);
// Likewise, while another shard may have applied its part of a write.
absl::Status AppliedInPart(const absl::Status& error);

// Arguments.
absl::Status EmptyKeyError();
absl::Status KeyTooLongError(uint64_t bytes, uint64_t bytes_max);
absl::Status ValueTooLongError(uint64_t bytes, uint64_t bytes_max);
absl::Status AppendTooLongError(uint64_t bytes, uint64_t bytes_max);
absl::Status BadConditionError(absl::string_view what);
absl::Status BadTtlError(absl::Duration ttl, absl::Duration ttl_max);
absl::Status NoTtlHereError();
absl::Status BadDeadlineError(absl::Duration deadline, absl::Duration deadline_max);
absl::Status BadOptionError(absl::string_view name, absl::string_view value,
                            absl::string_view range);

// The most frequent errors of operations.
absl::Status AbsentError();
absl::Status DeadlineError();

// GetInto of a value of `needed` bytes; BytesNeeded reads it.
absl::Status BufferTooSmallError(uint64_t needed, uint64_t bytes);

// Limits of this client.
absl::Status TooManyOperationsError(int in_flight);
absl::Status BuffersUsedUpError(uint64_t bytes_max);

// From an `error` of rdma::AuthKey, for Options::auth_key or auth_key_file.
absl::Status BadAuthKeyError(const absl::Status& error);
// Errors of authentication with the server at `uri`.
absl::Status AuthenticationFailedError(absl::string_view uri);
absl::Status AuthenticationRequiredError(absl::string_view uri);
absl::Status ServerHasNoKeyError(absl::string_view uri);
absl::Status ServerUnprovenError(absl::string_view uri);

absl::Status ClosedError();
// The server that has a write is gone, or has forgotten the session.
absl::Status ServerGoneError();

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_COMMON_ERRORS_H_
