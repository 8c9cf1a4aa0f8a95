#include "tests/client/scripted_server.h"

#include <xxhash.h>

#include <cassert>
#include <cstring>
#include <utility>
#include <vector>

#include "index/layout/partitions.h"
#include "rdma/wire/batch.h"
#include "tests/support/parse_request.h"

namespace osprey {

using rdma::Event;
using rdma::Opcode;

namespace {

constexpr size_t kScratchBytes = 2 << 20;
constexpr uint64_t kHashSeed = 7;

rdma::FrameBytes BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string TextOf(rdma::FrameBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

index::Condition ConditionOf(uint8_t condition, uint64_t version) {
  switch (static_cast<rdma::WireCondition>(condition)) {
    case rdma::WireCondition::kNone:
      return {};
    case rdma::WireCondition::kAbsent:
      return {index::Condition::Kind::kAbsent, 0};
    case rdma::WireCondition::kVersionIs:
      return {index::Condition::Kind::kVersionIs, version};
  }
  return {};
}

index::Lifetime LifetimeOf(uint64_t ttl_ns) {
  if (ttl_ns == 0) return index::Lifetime::Forever();
  return index::Lifetime::For(absl::Nanoseconds(static_cast<int64_t>(ttl_ns)));
}

uint64_t NanosOf(absl::Time time) { return static_cast<uint64_t>(absl::ToUnixNanos(time)); }

}  // namespace

ScriptedServer::ScriptedServer(fake::Network& network, const std::string& uri, uint64_t incarnation,
                               size_t region_bytes, uint32_t partitions)
    : incarnation_(incarnation), last_session_(incarnation * 1000) {
  domain_ = network.NewDomain("server");
  region_ = domain_->Allocate(region_bytes, rdma::Access::kRemoteRead).value();
  scratch_ = domain_->Allocate(kScratchBytes, rdma::Access::kLocal).value();
  transport_ = domain_->NewTransport({}).value();
  index::TableOptions options;
  options.hash_seed = kHashSeed;
  options.clock = [this] { return ServerTime(); };
  for (uint32_t i = 0; i < partitions; ++i) {
    const index::PartitionSpan span = index::SpanOfPartition(region_bytes, partitions, i);
    options.incarnation = index::IncarnationOfPartition(incarnation, i);
    tables_.push_back(
        index::Table::Create(region().subspan(span.offset, span.bytes), options).value());
  }
  const absl::StatusOr<std::string> address = transport_->Listen(uri, incarnation);
  assert(address.ok());
}

ScriptedServer::~ScriptedServer() { transport_.reset(); }

index::Table& ScriptedServer::TableOf(absl::string_view key) {
  return *tables_[index::PartitionOf(index::HashKey(key, kHashSeed),
                                     static_cast<uint32_t>(tables_.size()))];
}

void ScriptedServer::Poll(absl::Time now) {
  polled_at_ = now;
  Event events[16];
  const size_t count = transport_->Poll(absl::MakeSpan(events));
  for (size_t i = 0; i < count; ++i) OnEvent(events[i]);
  while (accepts && !asking_.empty()) {
    (void)transport_->Accept(asking_.back());
    asking_.pop_back();
  }
  while (answers && reading_.empty() && !waiting_.empty() &&
         transport_->SendRoom(connection_) > 0) {
    const std::string frame = std::move(waiting_.front());
    waiting_.pop_front();
    Answer(frame);
  }
  SendReplies();
}

void ScriptedServer::OnEvent(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kConnectRequest:
      asking_.push_back(event.connection);
      return;
    case Event::Kind::kReceived: {
      const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(event.frame);
      assert(header.ok());
      if (static_cast<Opcode>(header->opcode) == Opcode::kHello) {
        last_hello = rdma::ParseHello(event.frame).value();
        ++hellos;
        connection_ = event.connection;
        waiting_.clear();
        reading_.clear();
        if (auth_key != nullptr) {
          rdma::ChallengeBody body;
          std::memcpy(body.server_nonce, nonces.server.data(), nonces.server.size());
          const rdma::Message<rdma::ChallengeBody> challenge(Opcode::kChallenge, 0, 0, body, 0);
          (void)transport_->Send(connection_, {challenge.bytes()});
        } else if (welcomes) {
          Welcome();
        }
        return;
      }
      if (static_cast<Opcode>(header->opcode) == Opcode::kResponse) {
        last_response = rdma::ParseResponse(event.frame).value();
        ++responses;
        std::memcpy(nonces.client.data(), last_response.client_nonce, nonces.client.size());
        if (welcomes) Welcome();
        return;
      }
      if (static_cast<Opcode>(header->opcode) == Opcode::kDisconnectNotice) return;
      ++frames;
      if (static_cast<Opcode>(header->opcode) != Opcode::kBatch) return TakeRequest(event.frame);
      std::vector<rdma::FrameBytes> requests_in_it;
      const absl::Status parsed = rdma::ParseBatch(event.frame, requests_in_it);
      assert(parsed.ok());
      for (rdma::FrameBytes request : requests_in_it) TakeRequest(request);
      return;
    }
    case Event::Kind::kReadsDone: {
      if (!event.status.ok() || reading_.empty()) return;
      const std::string frame = std::exchange(reading_, "");
      const auto put = rdma::ParseRequest<rdma::PutBody>(BytesOf(frame)).value();
      const rdma::FrameHeader header = rdma::ParseHeader(BytesOf(frame)).value();
      if (XXH3_64bits(scratch_->data(), put.body.value_length) != put.body.value_hash) {
        ++rendezvous_mismatches;
        rdma::ReplyBody body;
        body.status = static_cast<uint32_t>(absl::StatusCode::kDataLoss);
        return Reply(header, body);
      }
      rendezvous_values.emplace_back(reinterpret_cast<const char*>(scratch_->data()),
                                     put.body.value_length);
      const rdma::FrameBytes value(scratch_->data(), put.body.value_length);
      return ReplyToWrite(
          header, TableOf(put.key).Put(put.key, value,
                                       ConditionOf(put.body.condition, put.body.condition_version),
                                       ServerTime(), LifetimeOf(put.body.ttl_ns)));
    }
    case Event::Kind::kConnected:
    case Event::Kind::kDisconnected:
    case Event::Kind::kDeviceLost:
      return;
  }
}

void ScriptedServer::TakeRequest(rdma::FrameBytes frame) {
  const rdma::FrameHeader header = rdma::ParseHeader(frame).value();
  if (static_cast<Opcode>(header.opcode) == Opcode::kHints) {
    const rdma::HintsMessage message = rdma::ParseHints(frame).value();
    hints.emplace_back(message.count);
    requests_before_hints.push_back(requests.size());
    std::memcpy(hints.back().data(), message.words.data(), message.words.size());
    return;
  }
  if (static_cast<Opcode>(header.opcode) == Opcode::kReport) {
    reports.push_back(rdma::ParseReport(frame).value());
    return;
  }
  requests.push_back(static_cast<Opcode>(header.opcode));
  sequences.push_back(header.sequence);
  waiting_.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
}

void ScriptedServer::TellServers() {
  rdma::ElsewhereBody body;
  body.servers_length = static_cast<uint32_t>(servers.size());
  if (auth_key != nullptr) {
    const rdma::Proof proof = rdma::ServersProof(*auth_key, nonces, elsewhere_of, servers);
    std::memcpy(body.proof, proof.data(), proof.size());
  }
  const rdma::Message<rdma::ElsewhereBody> notice(Opcode::kDisconnectNotice, elsewhere_of, 0, body,
                                                  servers.size());
  (void)transport_->Send(connection_, {notice.bytes(), BytesOf(servers)});
  transport_->Disconnect(connection_);
}

void ScriptedServer::Welcome() {
  if (elsewhere_of != 0) return TellServers();
  const rdma::RemoteMemory region = transport_->Expose(connection_, *region_).value();
  rdma::WelcomeBody body;
  body.incarnation = incarnation_;
  body.server_time = NanosOf(ServerTime());
  body.partitions = static_cast<uint32_t>(tables_.size());
  body.region = {region.address, region.length, region.key, 0};
  body.requests_max = requests_max;
  body.value_bytes_max = value_bytes_max;
  body.eager_bytes_max = static_cast<uint32_t>(eager_bytes_max);
  body.resumed =
      resumes && last_hello.resume_session != 0 && last_hello.resume_incarnation == incarnation_;
  session_ = body.resumed != 0 ? last_hello.resume_session : ++last_session_;
  if (auth_key != nullptr) {
    const rdma::Proof proof = rdma::ServerProof(*auth_key, nonces, session_, rdma::BodyBytes(body));
    std::memcpy(body.proof, proof.data(), proof.size());
  }
  rdma::Message<rdma::WelcomeBody> welcome(Opcode::kWelcome, session_, 0, body, 0);
  if (tamper_welcome) tamper_welcome(welcome.header, welcome.body);
  (void)transport_->Send(connection_, {welcome.bytes()});
}

void ScriptedServer::Answer(const std::string& frame) {
  const rdma::FrameHeader header = rdma::ParseHeader(BytesOf(frame)).value();
  switch (static_cast<Opcode>(header.opcode)) {
    case Opcode::kPut:
      return AnswerPut(header, frame);
    case Opcode::kDelete: {
      const auto request = rdma::ParseRequest<rdma::DeleteBody>(BytesOf(frame)).value();
      return ReplyToWrite(
          header, TableOf(request.key)
                      .Delete(request.key,
                              ConditionOf(request.body.condition, request.body.condition_version),
                              ServerTime()));
    }
    case Opcode::kGet:
      return AnswerGet(header, frame);
    case Opcode::kPing:
      return Reply(header, {});
    case Opcode::kStats:
      return Reply(header, {}, "name=value\n");
    case Opcode::kServers:
      ++servers_asked;
      return Reply(header, {}, servers);
    case Opcode::kIncrement:
      increment_by.push_back(
          rdma::ParseRequest<rdma::IncrementBody>(BytesOf(frame)).value().body.by);
      return Reply(header, NextScripted(), number);
    case Opcode::kAppend:
      appended.emplace_back(
          TextOf(rdma::ParseRequest<rdma::AppendBody>(BytesOf(frame)).value().value));
      return Reply(header, NextScripted());
    case Opcode::kFlush:
      flushes.push_back(rdma::ParseFlush(BytesOf(frame)).value());
      return Reply(header, NextScripted());
    case Opcode::kExpire: {
      const auto request = rdma::ParseRequest<rdma::ExpireBody>(BytesOf(frame)).value();
      ttls_ns.push_back(request.body.ttl_ns);
      return ReplyToWrite(
          header, TableOf(request.key)
                      .Expire(request.key,
                              ConditionOf(request.body.condition, request.body.condition_version),
                              LifetimeOf(request.body.ttl_ns), ServerTime()));
    }
    case Opcode::kTouch:
      return AnswerTouch(header, rdma::ParseRequest<rdma::TouchBody>(BytesOf(frame)).value().key);
    case Opcode::kHello:
    case Opcode::kChallenge:
    case Opcode::kResponse:
    case Opcode::kRefused:
    case Opcode::kWelcome:
    case Opcode::kDisconnectNotice:
    case Opcode::kHints:
    case Opcode::kReport:
    case Opcode::kBatch:
    case Opcode::kReply:
      assert(false);
  }
}

void ScriptedServer::AnswerTouch(const rdma::FrameHeader& header, absl::string_view key) {
  rdma::ReplyBody body;
  const absl::StatusOr<index::Table::View> view = TableOf(key).Find(key);
  if (view.ok()) {
    body.version = view->version;
    body.expiry = view->expiry_ns;
  } else {
    body.status = static_cast<uint32_t>(absl::StatusCode::kNotFound);
  }
  Reply(header, body);
}

rdma::ReplyBody ScriptedServer::NextScripted() {
  rdma::ReplyBody body;
  if (scripted.empty()) return body;
  body = scripted.front();
  scripted.pop_front();
  return body;
}

void ScriptedServer::AnswerPut(const rdma::FrameHeader& header, const std::string& frame) {
  const auto put = rdma::ParseRequest<rdma::PutBody>(BytesOf(frame)).value();
  const index::Condition condition = ConditionOf(put.body.condition, put.body.condition_version);
  ttls_ns.push_back(put.body.ttl_ns);
  if (put.body.rendezvous == 0) {
    return ReplyToWrite(header, TableOf(put.key).Put(put.key, put.value, condition, ServerTime(),
                                                     LifetimeOf(put.body.ttl_ns)));
  }
  const rdma::WireMemory& source = put.body.source;
  const absl::Status attached =
      transport_->Attach(connection_, {source.address, source.length, source.key});
  assert(attached.ok());
  rdma::ReadRequest read;
  read.remote_address = source.address;
  read.remote_key = source.key;
  read.segments[0] = {scratch_->data(), static_cast<uint32_t>(source.length), scratch_.get()};
  const absl::Status posted = transport_->PostReads(connection_, {&read, 1}, 1);
  assert(posted.ok());
  reading_ = frame;
}

void ScriptedServer::AnswerGet(const rdma::FrameHeader& header, const std::string& frame) {
  const auto get = rdma::ParseRequest<rdma::GetBody>(BytesOf(frame)).value();
  rdma::ReplyBody body;
  const absl::StatusOr<index::Table::View> view = TableOf(get.key).Find(get.key);
  if (!view.ok()) {
    body.status = static_cast<uint32_t>(absl::StatusCode::kNotFound);
    return Reply(header, body);
  }
  body.expiry = view->expiry_ns;
  body.version = view->version;
  body.slot = view->slot;
  body.value_length = view->value.size();
  if (view->value.size() > get_reply_bytes_max) {
    body.lease_ms = 1000;
    return Reply(header, body);
  }
  Reply(header, body, {reinterpret_cast<const char*>(view->value.data()), view->value.size()});
}

void ScriptedServer::ReplyToWrite(const rdma::FrameHeader& to, const index::WriteResult& result) {
  rdma::ReplyBody body;
  body.status = static_cast<uint32_t>(result.status.code());
  body.version = result.version;
  body.slot = result.slot;
  if (result.status.ok()) body.expiry = result.expiry_ns;
  Reply(to, body);
}

void ScriptedServer::Reply(const rdma::FrameHeader& to, rdma::ReplyBody body,
                           absl::string_view data) {
  body.data_length = static_cast<uint32_t>(data.size());
  body.server_time = NanosOf(ServerTime());
  rdma::Message<rdma::ReplyBody> reply(Opcode::kReply, to.session, to.sequence, body, data.size());
  if (tamper_reply) tamper_reply(reply.header, reply.body);
  if (!batches_replies) {
    (void)transport_->Send(connection_, {reply.bytes(), BytesOf(data)});
    return;
  }
  if (!replies_.Fits(reply.bytes().size() + data.size())) SendReplies();
  replies_.Append({reply.bytes(), BytesOf(data)});
}

void ScriptedServer::SendReplies() {
  if (replies_.empty()) return;
  (void)transport_->Send(connection_, {replies_.Finish(session_)});
  replies_.Clear();
}

void ScriptedServer::Send(absl::string_view frame) {
  (void)transport_->Send(connection_, {BytesOf(frame)});
}

void ScriptedServer::SendDisconnectNotice() {
  (void)transport_->Send(connection_,
                         {rdma::EmptyMessage(Opcode::kDisconnectNotice, session_, 0).bytes()});
}

void ScriptedServer::SendReply(uint64_t session, uint64_t sequence, const rdma::ReplyBody& body) {
  const rdma::Message<rdma::ReplyBody> reply(Opcode::kReply, session, sequence, body, 0);
  (void)transport_->Send(connection_, {reply.bytes()});
}

}  // namespace osprey
