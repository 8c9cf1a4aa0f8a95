#include "client/engine/operation_starter.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/common/errors.h"
#include "client/engine/read_pipeline.h"
#include "rdma/wire/protocol.h"

namespace osprey::client {
namespace {

absl::Status NotStarted(const absl::Status& why) { return WithOutcome(why, Outcome::kNotApplied); }

absl::Status CheckCondition(const WriteOptions& options, bool may_be_if_absent) {
  if (!options.if_absent) return absl::OkStatus();
  if (!may_be_if_absent) {
    return BadConditionError("if_absent is for put alone");
  }
  if (options.if_version != 0) {
    return BadConditionError("if_absent and if_version exclude each other: give one of them");
  }
  return absl::OkStatus();
}

absl::Status CheckTtl(absl::Duration ttl) {
  if (ttl == absl::InfiniteDuration() || (ttl > absl::ZeroDuration() && ttl <= kTtlMax()))
    return absl::OkStatus();
  return BadTtlError(ttl, kTtlMax());
}

}  // namespace

OperationStarter::OperationStarter(ServerLink& link, Operations& operations, Scans& scans)
    : link_(link),
      operations_(operations),
      scans_(scans),
      operations_max_(link.options.operations_max) {}

size_t OperationStarter::Room() const {
  if (closed_ || operations_.in_flight >= operations_max_) return 0;
  return static_cast<size_t>(operations_max_ - operations_.in_flight);
}

absl::Status OperationStarter::CheckRoom() const {
  if (closed_) return ClosedError();
  if (operations_.in_flight >= operations_max_)
    return TooManyOperationsError(operations_.in_flight);
  return absl::OkStatus();
}

absl::Status OperationStarter::CheckKey(absl::string_view key) const {
  if (absl::Status status = CheckKeyAlone(key); !status.ok()) return status;
  return CheckRoom();
}

// --- Reading

template <typename... Arguments>
absl::Status OperationStarter::StartGet(absl::string_view key, Arguments&&... arguments) {
  if (absl::Status status = CheckKey(key); !status.ok()) return status;
  GetOperation& get = operations_.NewGet();
  get.Start(key, std::forward<Arguments>(arguments)...);
  operations_.Started(get);
  return absl::OkStatus();
}

absl::Status OperationStarter::Get(absl::string_view key, bool want_value, absl::Time deadline,
                                   Client::GetCallback done) {
  return StartGet(key, want_value, deadline, std::move(done));
}

absl::Status OperationStarter::TraceGet(absl::string_view key, GetTrace& trace, absl::Time deadline,
                                        Client::GetCallback done) {
  if (absl::Status status = CheckKey(key); !status.ok()) return status;
  GetOperation& get = operations_.NewGet();
  get.StartTraced(key, deadline, std::move(done), trace);
  operations_.Started(get);
  return absl::OkStatus();
}

absl::Status OperationStarter::GetInto(absl::string_view key, UserMemory target,
                                       absl::Time deadline, Client::GetIntoCallback done) {
  return StartGet(key, /*want_value=*/true, deadline, std::move(done), std::move(target));
}

absl::Status OperationStarter::Exists(absl::string_view key, absl::Time deadline,
                                      Client::ExistsCallback done) {
  return StartGet(key, /*want_value=*/false, deadline, std::move(done));
}

absl::Status OperationStarter::Ttl(absl::string_view key, absl::Time deadline,
                                   Client::TtlCallback done) {
  return StartGet(key, /*want_value=*/false, deadline, std::move(done));
}

absl::Status OperationStarter::Measure(uint32_t bytes, absl::Time deadline,
                                       Client::GetCallback done) {
  if (bytes < 1 || bytes > Client::kMeasureBytesMax) {
    return BadOptionError("bytes", absl::StrCat(bytes),
                          absl::StrCat("1 to ", Client::kMeasureBytesMax));
  }
  if (absl::Status status = CheckRoom(); !status.ok()) return status;
  GetOperation& get = operations_.NewGet();
  get.StartMeasure(bytes, deadline, std::move(done));
  operations_.new_gets.PushBack(get);
  operations_.Started(static_cast<Operation&>(get));
  return absl::OkStatus();
}

absl::Status OperationStarter::Scan(Scans::Request request) {
  if (absl::Status status = CheckRoom(); !status.ok()) return status;
  ++operations_.in_flight;
  operations_.next_deadline = std::min(operations_.next_deadline, request.deadline);
  scans_.Start(std::move(request));
  return absl::OkStatus();
}

// --- Messages

// Starts a request whose arguments are checked.
absl::Status OperationStarter::Start(MessageOperation::Request request) {
  return Start(operations_.NewMessage(), std::move(request));
}

absl::Status OperationStarter::Start(MessageOperation& message, MessageOperation::Request request) {
  message.Start(std::move(request));
  operations_.to_send.PushBack(message);
  operations_.Started(message);
  return absl::OkStatus();
}

// Checks the arguments of writes other than put.
absl::Status OperationStarter::CheckChange(absl::string_view key,
                                           const WriteOptions& options) const {
  absl::Status status = CheckKey(key);
  if (status.ok()) status = CheckCondition(options, /*may_be_if_absent=*/false);
  if (status.ok() && options.ttl != absl::ZeroDuration()) status = NoTtlHereError();
  return status;
}

absl::Status OperationStarter::CheckPut(absl::string_view key, uint64_t value_length,
                                        const WriteOptions& options) const {
  absl::Status status = CheckKey(key);
  if (status.ok()) status = CheckCondition(options, /*may_be_if_absent=*/true);
  if (status.ok() && options.ttl != absl::ZeroDuration()) status = CheckTtl(options.ttl);
  const uint64_t known_max = link_.connection->value_bytes_max();
  const uint64_t value_bytes_max = known_max == 0 ? index::kValueBytesMax : known_max;
  if (status.ok() && value_length > value_bytes_max)
    status = ValueTooLongError(value_length, value_bytes_max);
  return status.ok() ? status : NotStarted(status);
}

absl::Status OperationStarter::Put(absl::string_view key, absl::string_view value,
                                   const WriteOptions& options, absl::Time deadline,
                                   Client::WriteCallback done) {
  if (absl::Status status = CheckPut(key, value.size(), options); !status.ok()) return status;
  const absl::StatusOr<MessageOperation*> message = operations_.NewMessage(value);
  if (!message.ok()) return NotStarted(message.status());
  MessageOperation::Request request(rdma::Opcode::kPut, key, options, deadline, std::move(done));
  request.value_length = value.size();
  return Start(**message, std::move(request));
}

absl::Status OperationStarter::PutFrom(absl::string_view key, UserMemory source,
                                       const WriteOptions& options, absl::Time deadline,
                                       Client::WriteCallback done) {
  if (absl::Status status = CheckPut(key, source.size, options); !status.ok()) return status;
  MessageOperation::Request request(rdma::Opcode::kPut, key, options, deadline, std::move(done));
  request.value_length = source.size;
  request.source = std::move(source);
  return Start(std::move(request));
}

absl::Status OperationStarter::Delete(absl::string_view key, const WriteOptions& options,
                                      absl::Time deadline, Client::WriteCallback done) {
  if (absl::Status status = CheckChange(key, options); !status.ok()) return NotStarted(status);
  return Start({rdma::Opcode::kDelete, key, options, deadline, std::move(done)});
}

absl::Status OperationStarter::Increment(absl::string_view key, int64_t by,
                                         const WriteOptions& options, absl::Time deadline,
                                         Client::IncrementCallback done) {
  if (absl::Status status = CheckChange(key, options); !status.ok()) return NotStarted(status);
  MessageOperation::Request request(rdma::Opcode::kIncrement, key, options, deadline,
                                    std::move(done));
  request.by = by;
  return Start(std::move(request));
}

absl::Status OperationStarter::Append(absl::string_view key, absl::string_view value,
                                      const WriteOptions& options, absl::Time deadline,
                                      Client::WriteCallback done) {
  absl::Status status = CheckChange(key, options);
  const uint64_t bytes = key.size() + value.size();
  if (status.ok() && bytes > link_.connection->append_bytes_max())
    status = AppendTooLongError(bytes, link_.connection->append_bytes_max());
  if (!status.ok()) return NotStarted(status);
  const absl::StatusOr<MessageOperation*> message = operations_.NewMessage(value);
  if (!message.ok()) return NotStarted(message.status());
  MessageOperation::Request request(rdma::Opcode::kAppend, key, options, deadline, std::move(done));
  request.value_length = value.size();
  return Start(**message, std::move(request));
}

absl::Status OperationStarter::Expire(absl::string_view key, absl::Duration ttl,
                                      const WriteOptions& options, absl::Time deadline,
                                      Client::WriteCallback done) {
  absl::Status status = CheckChange(key, options);
  if (status.ok()) status = CheckTtl(ttl);
  if (!status.ok()) return NotStarted(status);
  MessageOperation::Request request(rdma::Opcode::kExpire, key, options, deadline, std::move(done));
  request.ttl = ttl;
  return Start(std::move(request));
}

absl::Status OperationStarter::Touch(absl::string_view key, absl::Time deadline,
                                     Client::WriteCallback done) {
  if (absl::Status status = CheckKey(key); !status.ok()) return status;
  return Start({rdma::Opcode::kTouch, key, {}, deadline, std::move(done)});
}

absl::Status OperationStarter::Flush(absl::Time deadline, Client::WriteCallback done) {
  if (absl::Status status = CheckRoom(); !status.ok()) return NotStarted(status);
  return Start({rdma::Opcode::kFlush, "", {}, deadline, std::move(done)});
}

absl::Status OperationStarter::Ping(absl::Time deadline, Client::WriteCallback done) {
  if (absl::Status status = CheckRoom(); !status.ok()) return status;
  return Start({rdma::Opcode::kPing, "", {}, deadline, std::move(done)});
}

absl::Status OperationStarter::Stats(absl::Time deadline, MessageOperation::TextCallback done) {
  if (absl::Status status = CheckRoom(); !status.ok()) return status;
  return Start({rdma::Opcode::kStats, "", {}, deadline, std::move(done)});
}

}  // namespace osprey::client
