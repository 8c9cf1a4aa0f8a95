#include "client/common/errors.h"

#include <cassert>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "client/buffer.h"
#include "client/reasons.h"

namespace osprey {

namespace {

// Payloads: for a write, that it may be applied; for a GetInto, the value's length in decimal.
constexpr absl::string_view kMayBeAppliedPayload = "osprey/client.MayBeApplied";
constexpr absl::string_view kBytesNeededPayload = "osprey/client.BytesNeeded";

constexpr absl::string_view kNotApplied = "; not applied";

absl::Status WithMessage(const absl::Status& error, absl::string_view message) {
  absl::Status status(error.code(), message);
  error.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { status.SetPayload(type, payload); });
  return status;
}

}  // namespace

bool MayBeApplied(const absl::Status& status) {
  return status.GetPayload(kMayBeAppliedPayload).has_value();
}

uint64_t BytesNeeded(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kBytesNeededPayload);
  uint64_t bytes = 0;
  return payload.has_value() && absl::SimpleAtoi(std::string(*payload), &bytes) ? bytes : 0;
}

namespace client {

absl::Status WithOutcome(const absl::Status& error, Outcome outcome) {
  assert(!error.ok());
  const bool unknown = outcome == Outcome::kUnknown;
  absl::Status status = WithMessage(
      error, absl::StrCat(error.message(),
                          unknown ? "; it may have been applied or may still be applied, once"
                                  : kNotApplied));
  if (unknown) status.SetPayload(kMayBeAppliedPayload, absl::Cord("1"));
  return status;
}

absl::Status OfShard(const absl::Status& error, uint32_t shard, uint32_t shards) {
  return WithMessage(error, absl::StrCat("shard ", shard, " of ", shards, ": ", error.message()));
}

absl::Status AppliedInPart(const absl::Status& error) {
  absl::Status status =
      WithMessage(error, absl::StrCat(absl::StripSuffix(error.message(), kNotApplied),
                                      "; other shards may have applied their part"));
  status.SetPayload(kMayBeAppliedPayload, absl::Cord("1"));
  return status;
}

// Made once: a program that looks up many absent keys must not pay for texts.
absl::Status AbsentError() {
  static const absl::Status& absent = *new absl::Status(absl::NotFoundError("no such key"));
  return absent;
}

absl::Status DeadlineError() { return MakeError(Reason::kDeadline, "no answer by the deadline"); }

absl::Status EmptyKeyError() {
  return MakeError(Reason::kEmptyKey, "the key is empty; keys have 1 to 4096 bytes");
}

absl::Status KeyTooLongError(uint64_t bytes, uint64_t bytes_max) {
  return MakeError(Reason::kKeyTooLong,
                   absl::StrCat("the key has ", bytes, " bytes; keys have 1 to ", bytes_max,
                                " bytes: store under a hash of it"));
}

absl::Status ValueTooLongError(uint64_t bytes, uint64_t bytes_max) {
  return MakeError(Reason::kValueTooLong,
                   absl::StrCat("the value has ", bytes, " bytes; the server takes at most ",
                                bytes_max, " (kvserver --value-max)"));
}

absl::Status AppendTooLongError(uint64_t bytes, uint64_t bytes_max) {
  return MakeError(
      Reason::kAppendTooLong,
      absl::StrCat("key and what is appended have ", bytes, " bytes; one append takes at most ",
                   bytes_max, " of both together: append in parts, or put the whole value"));
}

absl::Status BadConditionError(absl::string_view what) {
  return MakeError(Reason::kBadCondition, what);
}

absl::Status BadTtlError(absl::Duration ttl, absl::Duration ttl_max) {
  return MakeError(Reason::kBadTtl, absl::StrCat("the time to live is ", absl::FormatDuration(ttl),
                                                 "; it must be positive and at most ",
                                                 absl::FormatDuration(ttl_max)));
}

absl::Status NoTtlHereError() {
  return MakeError(
      Reason::kBadTtl,
      "WriteOptions::ttl is for put alone; Expire changes that of a key that is there");
}

absl::Status BadDeadlineError(absl::Duration deadline, absl::Duration deadline_max) {
  return MakeError(
      Reason::kBadDeadline,
      absl::StrCat("the deadline is ", absl::FormatDuration(deadline),
                   "; it must be positive and at most ", absl::FormatDuration(deadline_max)));
}

absl::Status BadOptionError(absl::string_view name, absl::string_view value,
                            absl::string_view range) {
  return MakeError(Reason::kBadOption,
                   absl::StrCat("Options::", name, " is ", value, "; it must be ", range));
}

absl::Status BufferTooSmallError(uint64_t needed, uint64_t bytes) {
  absl::Status status =
      MakeError(Reason::kBufferTooSmall,
                absl::StrCat("the value has ", needed, " bytes; there is room for ", bytes));
  status.SetPayload(kBytesNeededPayload, absl::Cord(absl::AlphaNum(needed).Piece()));
  return status;
}

absl::Status TooManyOperationsError(int in_flight) {
  return MakeError(Reason::kTooManyOperations,
                   absl::StrCat("not started: ", in_flight,
                                " operations are in flight, as many as Options::operations_max "
                                "allows; Poll or Wait until some have ended"));
}

absl::Status BuffersUsedUpError(uint64_t bytes_max) {
  return MakeError(Reason::kBuffersUsedUp,
                   absl::StrCat("the client's buffers are used up: ", bytes_max,
                                " bytes at most (Options::buffer_bytes_max)"));
}

absl::Status BadAuthKeyError(const absl::Status& error) {
  return MakeError(error.code(), Reason::kBadAuthKey, error.message());
}

absl::Status AuthenticationFailedError(absl::string_view uri) {
  return MakeError(Reason::kAuthenticationFailed,
                   absl::StrCat("the server at ", uri,
                                " refuses this client's key: its own is another one; give both the "
                                "same key file (--auth-key-file, Options::auth_key_file)"));
}

absl::Status AuthenticationRequiredError(absl::string_view uri) {
  return MakeError(
      Reason::kAuthenticationRequired,
      absl::StrCat("the server at ", uri,
                   " requires a key, and this client has none; give it the server's key file "
                   "(--auth-key-file, Options::auth_key_file)"));
}

absl::Status ServerHasNoKeyError(absl::string_view uri) {
  return MakeError(Reason::kServerUnproven,
                   absl::StrCat("this client has a key, and the server at ", uri,
                                " asks for none, so it may be any; start it with kvserver "
                                "--auth-key-file, or connect without a key"));
}

absl::Status ServerUnprovenError(absl::string_view uri) {
  return MakeError(
      Reason::kServerUnproven,
      absl::StrCat("the server at ", uri,
                   " does not prove that it has this client's key; correct the address, "
                   "or find out which program answers there"));
}

absl::Status ClosedError() { return MakeError(Reason::kClosed, "the client was closed"); }

absl::Status ServerGoneError() {
  return MakeError(Reason::kServerGone,
                   "the connection broke before the answer, and the server that had the write does "
                   "not know it any more");
}

}  // namespace client
}  // namespace osprey
