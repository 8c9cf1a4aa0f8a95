#include "client/engine/message_operation.h"

#include <xxhash.h>

#include <cassert>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/common/errors.h"
#include "rdma/errors.h"

namespace osprey::client {

namespace {

rdma::Bytes AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

absl::string_view AsText(rdma::Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A time above 0 stays above 0.
uint64_t WireTtl(absl::Duration ttl) {
  if (ttl == absl::InfiniteDuration()) return 0;
  return static_cast<uint64_t>(absl::ToInt64Nanoseconds(absl::Ceil(ttl, absl::Nanoseconds(1))));
}

}  // namespace

absl::StatusOr<absl::optional<rdma::WireMemory>> Exposures::Expose(rdma::ConnectionId id,
                                                                   const rdma::Memory& memory,
                                                                   const std::byte* data,
                                                                   uint64_t length) {
  auto known = exposed_.find(&memory);
  if (known == exposed_.end()) {
    absl::StatusOr<rdma::RemoteMemory> remote = transport_.Expose(id, memory);
    if (rdma::IsTooManyExposed(remote.status())) {
      if (!WithdrawOne(id)) return absl::nullopt;
      remote = transport_.Expose(id, memory);
      // The withdrawal message waits for space in the socket's buffer.
      if (rdma::IsTooManyExposed(remote.status())) return absl::nullopt;
    }
    if (!remote.ok()) return remote.status();
    known = exposed_.emplace(&memory, Exposed{*remote, 0}).first;
  }
  known->second.used = ++uses_;
  rdma::WireMemory wire;
  wire.address = known->second.remote.address + static_cast<uint64_t>(data - memory.data());
  wire.length = length;
  wire.key = known->second.remote.key;
  return wire;
}

// False: the server may still READ all of them.
bool Exposures::WithdrawOne(rdma::ConnectionId id) {
  const rdma::Memory* oldest = nullptr;
  uint64_t used = 0;
  for (const auto& [memory, exposed] : exposed_) {
    if ((oldest != nullptr && exposed.used > used) || may_be_read_(*memory)) continue;
    oldest = memory;
    used = exposed.used;
  }
  if (oldest == nullptr) return false;
  Withdraw(id, *oldest);
  return true;
}

void Exposures::Withdraw(rdma::ConnectionId id, const rdma::Memory& memory) {
  if (exposed_.erase(&memory) > 0) transport_.Withdraw(id, memory);
}

namespace {

// An ended operation keeps a buffer up to this size, so that the next PUT does not need the pool.
constexpr uint64_t kKeptValueBytes = 1024;

}  // namespace

void MessageOperation::Start(Request&& request) {
  assert(state_ == State::kDone);
  assert(request.source.data != nullptr || request.value_length <= value_.size());
  StartOperation(request.key, request.deadline);
  opcode_ = request.opcode;
  condition_ = rdma::WireCondition::kNone;
  if (request.options.if_absent) condition_ = rdma::WireCondition::kAbsent;
  if (request.options.if_version != 0) condition_ = rdma::WireCondition::kVersionIs;
  condition_version_ = request.options.if_version;
  by_ = request.by;
  ttl_ns_ = WireTtl(request.ttl);
  source_ = std::move(request.source);
  value_length_ = request.value_length;
  done_ = std::move(request.done);
  flush_ = {};
  by_rendezvous_ = ever_sent_ = false;
  state_ = State::kToSend;
}

// --- Sending -------------------------------------------------------------------------------------

namespace {

// Appends a message's fixed part, then its key and value. False: they do not fit.
bool AppendPieces(rdma::FrameBatch& batch, rdma::Bytes fixed, absl::string_view key,
                  rdma::Bytes value) {
  if (!batch.Fits(fixed.size() + key.size() + value.size())) return false;
  batch.Append({fixed, AsBytes(key), value});
  return true;
}

}  // namespace

absl::StatusOr<bool> MessageOperation::AppendTo(rdma::FrameBatch& batch, const Link& link,
                                                uint64_t sequence) {
  assert(state_ == State::kToSend);
  const rdma::Bytes value = ValueBytes();
  switch (opcode_) {
    case rdma::Opcode::kPut:
      return AppendPut(batch, link, sequence);
    case rdma::Opcode::kDelete:
      return AppendWrite(batch, link, sequence, rdma::DeleteBody(), {});
    case rdma::Opcode::kIncrement: {
      rdma::IncrementBody body;
      body.by = by_;
      return AppendWrite(batch, link, sequence, body, {});
    }
    case rdma::Opcode::kAppend: {
      rdma::AppendBody body;
      body.value_length = value_length_;
      return AppendWrite(batch, link, sequence, body, value);
    }
    case rdma::Opcode::kExpire: {
      rdma::ExpireBody body;
      body.ttl_ns = ttl_ns_;
      return AppendWrite(batch, link, sequence, body, {});
    }
    case rdma::Opcode::kTouch: {
      rdma::TouchBody body;
      body.key_length = static_cast<uint16_t>(key().size());
      const rdma::Message<rdma::TouchBody> touch(opcode_, link.session, sequence, body,
                                                 key().size());
      return AppendPieces(batch, touch.bytes(), key(), {});
    }
    case rdma::Opcode::kFlush: {
      rdma::FlushBody body;
      body.cursor = flush_.cursor;
      body.version_bound = flush_.version_bound;
      const rdma::Message<rdma::FlushBody> flush(opcode_, link.session, sequence, body, 0);
      return AppendPieces(batch, flush.bytes(), "", {});
    }
    case rdma::Opcode::kPing:
    case rdma::Opcode::kStats:
      return AppendPieces(batch, rdma::EmptyMessage(opcode_, link.session, sequence).bytes(), "",
                          {});
    case rdma::Opcode::kHello:
    case rdma::Opcode::kChallenge:
    case rdma::Opcode::kResponse:
    case rdma::Opcode::kRefused:
    case rdma::Opcode::kWelcome:
    case rdma::Opcode::kDisconnectNotice:
    case rdma::Opcode::kGet:
    case rdma::Opcode::kHints:
    case rdma::Opcode::kReport:
    case rdma::Opcode::kServers:
    case rdma::Opcode::kBatch:
    case rdma::Opcode::kReply:
      break;
  }
  assert(false && "not a request of this kind");
  return absl::InternalError("not a request");
}

// The fields that all writes of a key share.
template <typename Body>
bool MessageOperation::AppendWrite(rdma::FrameBatch& batch, const Link& link, uint64_t sequence,
                                   Body body, rdma::Bytes value) {
  body.condition = static_cast<uint8_t>(condition_);
  body.key_length = static_cast<uint16_t>(key().size());
  body.condition_version = condition_version_;
  const rdma::Message<Body> message(opcode_, link.session, sequence, body,
                                    key().size() + value.size());
  return AppendPieces(batch, message.bytes(), key(), value);
}

absl::StatusOr<bool> MessageOperation::AppendPut(rdma::FrameBatch& batch, const Link& link,
                                                 uint64_t sequence) {
  rdma::PutBody body;
  body.value_length = value_length_;
  body.ttl_ns = ttl_ns_;
  // An empty value has nothing to READ, so it is always eager.
  if (value_length_ == 0 || key().size() + value_length_ <= link.eager_bytes_max) {
    return AppendWrite(batch, link, sequence, body, ValueBytes());
  }
  const absl::StatusOr<absl::optional<rdma::WireMemory>> source =
      link.exposures.Expose(link.id, memory(), ValueBytes().data(), value_length_);
  if (!source.ok()) return source.status();
  if (!source->has_value()) return false;
  if (!by_rendezvous_) value_hash_ = XXH3_64bits(ValueBytes().data(), value_length_);
  by_rendezvous_ = true;
  body.rendezvous = 1;
  body.source = **source;
  body.value_hash = value_hash_;
  return AppendWrite(batch, link, sequence, body, {});
}

// --- Ending --------------------------------------------------------------------------------------

void MessageOperation::Replied(const rdma::Reply& reply) {
  assert(state_ != State::kDone && ever_sent_);
  const auto code = static_cast<absl::StatusCode>(reply.body.status);
  if (code == absl::StatusCode::kOk) return Succeeded(reply);
  // An answer states the outcome, except for a write that the server no longer remembers.
  const bool unknown = code == absl::StatusCode::kUnknown || is_in_mid_flush();
  const absl::Status error = ErrorOf(reply);
  End(is_write() ? WithOutcome(error, unknown ? Outcome::kUnknown : Outcome::kNotApplied) : error,
      /*is_answered=*/true);
}

absl::Status MessageOperation::ErrorOf(const rdma::Reply& reply) const {
  const auto code = static_cast<absl::StatusCode>(reply.body.status);
  std::string text(AsText(reply.data));
  if (text.empty() && code == absl::StatusCode::kNotFound) text = "no such key";
  if (reply.body.version != 0)
    absl::StrAppend(&text, " (present version ", reply.body.version, ")");
  const Reason reason = ReasonOfWire(reply.body.reason);
  return reason == Reason::kNone ? absl::Status(code, text) : MakeError(code, reason, text);
}

void MessageOperation::Succeeded(const rdma::Reply& reply) {
  const auto nonsense = [&](absl::string_view what) {
    return Finish(
        MakeError(Reason::kBadServer, absl::StrCat("the server's reply is invalid: ", what)));
  };
  version_ = reply.body.version;
  if (opcode_ == rdma::Opcode::kIncrement && !absl::SimpleAtoi(AsText(reply.data), &number_))
    return nonsense("not a number");
  if (opcode_ == rdma::Opcode::kStats) text_.assign(AsText(reply.data).data(), reply.data.size());
  if (opcode_ == rdma::Opcode::kFlush) {
    flush_.deleted += reply.body.value_length;
    flush_.cursor = reply.body.slot;
    flush_.version_bound = reply.body.version;
    if (flush_.cursor != 0 && flush_.version_bound == 0) return nonsense("a flush without a bound");
    if (flush_.cursor != 0) {
      state_ = State::kToSend;
      return;
    }
  }
  End(absl::OkStatus(), /*is_answered=*/true);
}

void MessageOperation::Finish(const absl::Status& error) {
  End(WithWhatIsKnown(error), /*is_answered=*/false);
}

absl::Status MessageOperation::WithWhatIsKnown(const absl::Status& error) const {
  assert(!error.ok());
  if (!is_write()) return error;
  return WithOutcome(error, ever_sent_ ? Outcome::kUnknown : Outcome::kNotApplied);
}

void MessageOperation::End(absl::Status status, bool is_answered) {
  assert(state_ != State::kDone);
  if (is_write()) ++counters_.writes;
  status_ = std::move(status);
  if (value_.size() > kKeptValueBytes) value_.Reset();
  source_ = UserMemory();
  state_ = State::kDone;
  EndOperation(is_answered);
}

void MessageOperation::RunCallback() {
  assert(state_ == State::kDone);
  // Moved out first: the callback may start this operation again.
  const absl::Status status = std::move(status_);
  Done moved = std::move(done_);
  done_ = Client::WriteCallback();
  if (auto* write = std::get_if<Client::WriteCallback>(&moved)) {
    if (!status.ok()) return (*write)(status);
    return (*write)(is_flush() ? flush_.deleted : version_);
  }
  if (auto* increment = std::get_if<Client::IncrementCallback>(&moved)) {
    if (!status.ok()) return (*increment)(status);
    return (*increment)(Number{number_, version_});
  }
  auto& text = std::get<TextCallback>(moved);
  if (!status.ok()) return text(status);
  text(std::move(text_));
}

}  // namespace osprey::client
