#include "client/message_operation.h"

#include <xxhash.h>

#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey::client {

namespace {

rdma::Bytes AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

absl::string_view AsText(rdma::Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

absl::StatusOr<rdma::WireMemory> Exposures::Expose(rdma::ConnectionId id, const Buffer& buffer,
                                                   uint64_t length) {
  if (slabs_.size() <= buffer.slab()) slabs_.resize(buffer.slab() + 1);
  rdma::RemoteMemory& slab = slabs_[buffer.slab()];
  if (slab.length == 0) {
    absl::StatusOr<rdma::RemoteMemory> exposed =
        transport_.Expose(id, pool_.slab_memory(buffer.slab()));
    if (!exposed.ok()) return exposed.status();
    slab = *exposed;
  }
  rdma::WireMemory memory;
  memory.address = slab.address + buffer.offset();
  memory.length = length;
  memory.key = slab.key;
  return memory;
}

void MessageOperation::Start(rdma::Opcode opcode, absl::string_view key,
                             const WriteOptions& options, absl::Time deadline) {
  assert(state_ == State::kDone && !value_.valid());
  StartOperation(key, deadline);
  opcode_ = opcode;
  condition_ = rdma::WireCondition::kNone;
  if (options.if_absent) condition_ = rdma::WireCondition::kAbsent;
  if (options.if_version != 0) condition_ = rdma::WireCondition::kVersionIs;
  condition_version_ = options.if_version;
  value_length_ = 0;
  by_rendezvous_ = ever_sent_ = false;
  state_ = State::kToSend;
}

void MessageOperation::StartPut(absl::string_view key, Buffer value, uint64_t value_length,
                                const WriteOptions& options, absl::Time deadline,
                                Client::WriteCallback done) {
  assert(value_length == 0 || (value.valid() && value_length <= value.size()));
  Start(rdma::Opcode::kPut, key, options, deadline);
  value_ = std::move(value);
  value_length_ = value_length;
  done_ = std::move(done);
}

void MessageOperation::StartDelete(absl::string_view key, const WriteOptions& options,
                                   absl::Time deadline, Client::WriteCallback done) {
  Start(rdma::Opcode::kDelete, key, options, deadline);
  done_ = std::move(done);
}

void MessageOperation::StartPing(absl::Time deadline, Client::WriteCallback done) {
  Start(rdma::Opcode::kPing, "", {}, deadline);
  done_ = std::move(done);
}

void MessageOperation::StartStats(absl::Time deadline, TextCallback done) {
  Start(rdma::Opcode::kStats, "", {}, deadline);
  text_done_ = std::move(done);
}

absl::Status MessageOperation::Send(rdma::Transport& transport, rdma::ConnectionId id,
                                    uint64_t session, uint64_t sequence, uint64_t eager_bytes_max,
                                    Exposures& exposures) {
  assert(state_ == State::kToSend);
  switch (opcode_) {
    case rdma::Opcode::kPut:
      return SendPut(transport, id, session, sequence, eager_bytes_max, exposures);
    case rdma::Opcode::kDelete:
      return SendDelete(transport, id, session, sequence);
    case rdma::Opcode::kPing:
    case rdma::Opcode::kStats:
      return transport.Send(id, {rdma::EmptyMessage(opcode_, session, sequence).bytes()});
    case rdma::Opcode::kHello:
    case rdma::Opcode::kWelcome:
    case rdma::Opcode::kGoodbye:
    case rdma::Opcode::kGet:
    case rdma::Opcode::kIncrement:
    case rdma::Opcode::kAppend:
    case rdma::Opcode::kFlush:
    case rdma::Opcode::kBatch:
    case rdma::Opcode::kReply:
      break;
  }
  assert(false && "not a request of this kind");
  return absl::InternalError("not a request");
}

absl::Status MessageOperation::SendPut(rdma::Transport& transport, rdma::ConnectionId id,
                                       uint64_t session, uint64_t sequence,
                                       uint64_t eager_bytes_max, Exposures& exposures) {
  rdma::PutBody body;
  body.condition = static_cast<uint8_t>(condition_);
  body.key_length = static_cast<uint16_t>(key().size());
  body.value_length = value_length_;
  body.condition_version = condition_version_;
  const rdma::Bytes bytes(value_.data(), value_length_);
  // An empty value has nothing to READ, so it is always eager.
  if (value_length_ == 0 || key().size() + value_length_ <= eager_bytes_max) {
    const rdma::Message<rdma::PutBody> put(rdma::Opcode::kPut, session, sequence, body,
                                           key().size() + value_length_);
    return transport.Send(id, {put.bytes(), AsBytes(key()), bytes});
  }
  absl::StatusOr<rdma::WireMemory> source = exposures.Expose(id, value_, value_length_);
  if (!source.ok()) return source.status();
  if (!by_rendezvous_) value_hash_ = XXH3_64bits(value_.data(), value_length_);
  by_rendezvous_ = true;
  body.rendezvous = 1;
  body.source = *source;
  body.value_hash = value_hash_;
  const rdma::Message<rdma::PutBody> put(rdma::Opcode::kPut, session, sequence, body, key().size());
  return transport.Send(id, {put.bytes(), AsBytes(key())});
}

absl::Status MessageOperation::SendDelete(rdma::Transport& transport, rdma::ConnectionId id,
                                          uint64_t session, uint64_t sequence) {
  rdma::DeleteBody body;
  body.condition = static_cast<uint8_t>(condition_);
  body.key_length = static_cast<uint16_t>(key().size());
  body.condition_version = condition_version_;
  const rdma::Message<rdma::DeleteBody> message(rdma::Opcode::kDelete, session, sequence, body,
                                                key().size());
  return transport.Send(id, {message.bytes(), AsBytes(key())});
}

void MessageOperation::Replied(const rdma::Reply& reply) {
  assert(state_ != State::kDone && ever_sent_);
  const auto code = static_cast<absl::StatusCode>(reply.body.status);
  if (code != absl::StatusCode::kOk) {
    std::string text(AsText(reply.data));
    if (reply.body.version != 0)
      absl::StrAppend(&text, " (present version ", reply.body.version, ")");
    return Finish(absl::Status(code, text));
  }
  version_ = reply.body.version;
  text_.assign(reinterpret_cast<const char*>(reply.data.data()), reply.data.size());
  Finish(absl::OkStatus());
}

void MessageOperation::Finish(absl::Status error) {
  assert(state_ != State::kDone);
  if (is_write()) ++counters_.writes;
  status_ = std::move(error);
  value_.Reset();
  state_ = State::kDone;
  EndOperation();
}

void MessageOperation::RunCallback() {
  assert(state_ == State::kDone);
  // Moved out first: the callback may start this very operation anew.
  const absl::Status status = std::move(status_);
  if (opcode_ == rdma::Opcode::kStats) {
    TextCallback done = std::move(text_done_);
    text_done_ = nullptr;
    std::string text = std::move(text_);
    if (status.ok()) return done(std::move(text));
    return done(status);
  }
  Client::WriteCallback done = std::move(done_);
  done_ = nullptr;
  if (status.ok()) return done(version_);
  done(status);
}

}  // namespace osprey::client
