#include "tests/server/server_harness.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gtest/gtest.h"
#include "rdma/wire/batch.h"

namespace osprey::server {

using rdma::Access;
using rdma::Bytes;
using rdma::ConnectionId;
using rdma::Event;

namespace {

constexpr int kTurnsMax = 1000;
constexpr size_t kValueMemoryBytes = 4 << 20;

Bytes AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string Join(std::initializer_list<Bytes> pieces) {
  std::string frame;
  for (Bytes piece : pieces) {
    frame.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return frame;
}

}  // namespace

std::string Large(size_t bytes, char first) {
  std::string value(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) value[i] = static_cast<char>(first + i % 23 + i / 4096);
  return value;
}

std::string WithTtl(std::string put_frame, uint64_t ttl_ns) {
  std::memcpy(put_frame.data() + sizeof(rdma::FrameHeader) + offsetof(rdma::PutBody, ttl_ns),
              &ttl_ns, sizeof(ttl_ns));
  return put_frame;
}

// --- The server ----------------------------------------------------------------------------------

ServerHarness::ServerHarness(const HarnessOptions& options)
    : options_(options), network_(options.network) {
  server_domain_ = network_.NewDomain("server");
  client_domain_ = network_.NewDomain("client");
  region_ = server_domain_->Allocate(options.region_bytes, Access::kRemoteRead).value();
  scratch_ = server_domain_->Allocate(kLivenessBytes, Access::kLocal).value();
  index::TableOptions table_options;
  table_options.incarnation = options.incarnation;
  table_options.hash_seed = 42;
  table_options.clock = [this] { return clock_ ? clock_() : now_; };
  table_options.cas_version = options.cas_version;
  table_options.evict = options.evict;
  tables_ = Tables::Create({region_->data(), region_->size()}, options.partitions, table_options,
                           options.changes)
                .value();
  BeginEngines();
}

void ServerHarness::BeginEngines() {
  const HarnessOptions& options = options_;
  EngineOptions engine_options;
  engine_options.incarnation = options.incarnation;
  engine_options.connections_max = options.connections_max;
  engine_options.key = options.key;
  engine_options.client_gets = options.client_gets;
  engine_options.times_puts = options.times_puts;
  engine_options.data_id = options.data_id;
  engine_options.shards = options.shards;
  engine_options.shard = options.shard;
  engine_options.write_log = options.write_log;
  engine_options.group_clock = options.group_clock;
  engine_options.may_answer = options.may_answer;
  engine_options.cluster_servers = options.servers_to_tell;
  engine_options.only_tells_servers = options.servers_to_tell != nullptr;
  engine_options.session_begun = options.session_begun;
  engine_options.session_ended = options.session_ended;
  engine_options.admission = options.admission;
  engine_options.value_bytes_max = options.value_bytes_max;
  // With several pollers the low 9 bits are the poller's.
  const uint64_t step = options.pollers > 1 ? 512 : 1;
  engine_options.random = [this, step] { return last_session_ += step; };
  engine_options.log = [this](absl::string_view line) {
    log_.emplace_back(line);
    if (on_log_) on_log_();
  };
  if (options.pollers > 1) {
    pollers_ = std::make_unique<Pollers>(options.pollers);
    engine_options.pollers = pollers_.get();
  }
  std::vector<std::unique_ptr<rdma::Transport>> transports;
  std::vector<rdma::Transport*> by_poller;
  for (uint32_t i = 0; i < options.pollers; ++i) {
    transports.push_back(server_domain_->NewTransport({}).value());
    by_poller.push_back(transports.back().get());
  }
  for (uint32_t i = 0; i < options.pollers; ++i) {
    std::vector<EnginePort> ports;
    ports.push_back({std::move(transports[i]), region_.get(), scratch_.get(), by_poller});
    if (options.two_ports)
      ports.push_back({server_domain_->NewTransport({}).value(), region_.get(), scratch_.get()});
    engine_options.poller = i;
    engines_.push_back(std::make_unique<Engine>(*tables_, std::move(ports), engine_options, now_));
  }
  EXPECT_EQ(engine().Listen(0, kServerUri).value(), kServerUri);
  if (options.two_ports) {
    EXPECT_EQ(engine().Listen(1, kSecondUri).value(), kSecondUri);
  }
}

ServerHarness::~ServerHarness() { EXPECT_TRUE(clients_.empty()); }

bool ServerHarness::Turn() {
  bool worked = false;
  for (const auto& one : engines_) worked |= one->Poll(now_);
  return PollClients() || worked;
}

bool ServerHarness::PollClients() {
  bool worked = false;
  for (RawClient* client : clients_) worked |= client->Poll();
  return worked;
}

void ServerHarness::Settle() {
  // Credits come back a turn after the frames were taken, so one quiet turn is not enough.
  int quiet = 0;
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    quiet = Turn() ? 0 : quiet + 1;
    if (quiet == 3) return;
  }
  ADD_FAILURE() << "no rest after " << kTurnsMax << " turns";
}

void ServerHarness::Advance(absl::Duration duration, absl::Duration step) {
  const absl::Time end = now_ + duration;
  while (now_ < end) {
    now_ = std::min(end, now_ + step);
    Settle();
  }
}

std::optional<std::string> ServerHarness::Stored(absl::string_view key) {
  const absl::StatusOr<index::Table::View> view =
      tables_->Lock(tables_->PartitionOf(key))->Find(key);
  if (!view.ok()) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(view->value.data()), view->value.size());
}

// --- A client ------------------------------------------------------------------------------------

RawClient::RawClient(ServerHarness& server, const rdma::TransportOptions& options)
    : server_(server) {
  rdma::Domain& domain = server_.client_domain();
  liveness_ = domain.Allocate(kLivenessBytes, Access::kRemoteRead).value();
  value_ = domain.Allocate(kValueMemoryBytes, Access::kRemoteRead).value();
  sink_ = domain.Allocate(1 << 20, Access::kLocal).value();
  transport_ = domain.NewTransport(options).value();
  server_.clients_.push_back(this);
}

RawClient::~RawClient() {
  auto& all = server_.clients_;
  all.erase(std::find(all.begin(), all.end(), this));
}

void RawClient::Connect(uint32_t affinity, absl::string_view uri) {
  connected_ = got_disconnect_notice_ = false;
  disconnected_.reset();
  welcome_.reset();
  challenge_.reset();
  refused_.reset();
  replies_.clear();
  reply_frames_ = reply_frames_after_notice_ = 0;
  id_ = transport_->Connect(uri, affinity).value();
}

void RawClient::Hello(uint64_t resume_session, uint64_t resume_incarnation,
                      uint64_t resume_data_id) {
  const rdma::RemoteMemory liveness = transport_->Expose(id_, *liveness_).value();
  value_remote_ = transport_->Expose(id_, *value_).value();
  hello_ = rdma::HelloBody();
  hello_.resume_session = resume_session;
  hello_.resume_incarnation = resume_session == 0 ? 0 : resume_incarnation;
  hello_.resume_data_id = resume_session == 0 ? 0 : resume_data_id;
  hello_.shard = shard_;
  hello_.shards = shards_;
  hello_.liveness = {liveness.address, kLivenessBytes, liveness.key, 0};
  Send(Join({rdma::Message<rdma::HelloBody>(rdma::Opcode::kHello, 0, 0, hello_, 0).bytes()}));
}

std::string RawClient::ResponseFrame(const rdma::AuthKey& key) const {
  const rdma::Proof proof = rdma::ClientProof(key, nonces_, rdma::BodyBytes(hello_));
  rdma::ResponseBody body;
  std::memcpy(body.client_nonce, nonces_.client.data(), nonces_.client.size());
  std::memcpy(body.mac, proof.data(), proof.size());
  return Join({rdma::Message<rdma::ResponseBody>(rdma::Opcode::kResponse, 0, 0, body, 0).bytes()});
}

void RawClient::Respond(const rdma::AuthKey& key) {
  ASSERT_TRUE(challenged());
  Send(ResponseFrame(key));
}

void RawClient::Establish(uint64_t resume_session, uint64_t resume_incarnation,
                          uint64_t resume_data_id) {
  Connect(static_cast<uint32_t>(resume_session));
  server_.Settle();
  ASSERT_TRUE(connected_);
  Hello(resume_session, resume_incarnation, resume_data_id);
  server_.Settle();
  ASSERT_TRUE(welcome_.has_value());
  ASSERT_TRUE(
      transport_
          ->Attach(id_, {welcome_->region.address, welcome_->region.length, welcome_->region.key})
          .ok());
}

void RawClient::Send(absl::string_view frame) {
  const absl::Status status = transport_->Send(id_, {AsBytes(frame)});
  EXPECT_TRUE(status.ok()) << status;
}

RawReply RawClient::Ask(absl::string_view frame) {
  Send(frame);
  server_.Settle();
  std::optional<RawReply> reply = TakeReply();
  EXPECT_TRUE(reply.has_value()) << "no reply";
  return reply.value_or(RawReply());
}

std::optional<RawReply> RawClient::TakeReply() {
  if (replies_.empty()) return std::nullopt;
  RawReply reply = std::move(replies_.front());
  replies_.pop_front();
  return reply;
}

bool RawClient::Poll() {
  if (asleep_) return false;
  Event events[16];
  const size_t count = transport_->Poll(absl::MakeSpan(events));
  for (size_t i = 0; i < count; ++i) {
    const Event& event = events[i];
    if (event.connection != id_) continue;  // an old connection
    switch (event.kind) {
      case Event::Kind::kConnected:
        connected_ = true;
        break;
      case Event::Kind::kReceived:
        Take(event.frame);
        break;
      case Event::Kind::kReadsDone:
        read_ = event.status;
        break;
      case Event::Kind::kDisconnected:
        disconnected_ = event.status;
        break;
      case Event::Kind::kConnectRequest:
      case Event::Kind::kDeviceLost:
        ADD_FAILURE() << "an event that no client gets";
        break;
    }
  }
  return count > 0;
}

void RawClient::Take(Bytes frame) {
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  ASSERT_TRUE(header.ok()) << header.status();
  switch (static_cast<rdma::Opcode>(header->opcode)) {
    case rdma::Opcode::kWelcome: {
      const absl::StatusOr<rdma::WelcomeBody> welcome = rdma::ParseWelcome(frame);
      ASSERT_TRUE(welcome.ok()) << welcome.status();
      EXPECT_FALSE(welcome_.has_value());
      welcome_ = *welcome;
      session_ = header->session;
      return;
    }
    case rdma::Opcode::kChallenge:
      EXPECT_FALSE(challenge_.has_value());
      challenge_ = rdma::ParseChallenge(frame).value();
      std::memcpy(nonces_.server.data(), challenge_->server_nonce, nonces_.server.size());
      nonces_.client = {std::byte{7}};
      return;
    case rdma::Opcode::kRefused:
      EXPECT_FALSE(refused_.has_value());
      refused_ = ReasonOfWire(rdma::ParseRefused(frame).value().reason);
      return;
    case rdma::Opcode::kReply:
      ++reply_frames_;
      reply_frames_after_notice_ += got_disconnect_notice_ ? 1 : 0;
      return TakeReply(*header, frame);
    case rdma::Opcode::kBatch: {
      std::vector<rdma::FrameBytes> frames;
      ASSERT_TRUE(rdma::ParseBatch(frame, frames).ok());
      EXPECT_GT(frames.size(), 1);
      ++reply_frames_;
      reply_frames_after_notice_ += got_disconnect_notice_ ? 1 : 0;
      for (rdma::FrameBytes inner : frames) TakeReply(rdma::ParseHeader(inner).value(), inner);
      return;
    }
    case rdma::Opcode::kDisconnectNotice:
      got_disconnect_notice_ = true;
      if (welcomed()) return;
      elsewhere_ = rdma::ParseElsewhere(frame).value().body;
      servers_ = std::string(rdma::ParseElsewhere(frame).value().servers);
      cluster_ = header->session;
      return;
    default:
      ADD_FAILURE() << "opcode " << int{header->opcode};
  }
}

void RawClient::TakeReply(const rdma::FrameHeader& header, Bytes frame) {
  ASSERT_EQ(header.opcode, static_cast<uint8_t>(rdma::Opcode::kReply));
  const absl::StatusOr<rdma::Reply> reply = rdma::ParseReply(frame);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(header.session, session_);
  replies_.push_back({header.sequence, static_cast<absl::StatusCode>(reply->body.status),
                      ReasonOfWire(reply->body.reason), reply->body, Join({reply->data})});
}

// --- Frames --------------------------------------------------------------------------------------

std::string RawClient::PutFrame(uint64_t sequence, absl::string_view key,
                                absl::string_view value) const {
  return PutIfFrame(sequence, key, value, rdma::WireCondition::kNone, 0);
}

std::string RawClient::PutIfFrame(uint64_t sequence, absl::string_view key, absl::string_view value,
                                  rdma::WireCondition condition, uint64_t version) const {
  rdma::PutBody body;
  body.condition = static_cast<uint8_t>(condition);
  body.condition_version = version;
  body.key_length = static_cast<uint16_t>(key.size());
  body.value_length = value.size();
  const rdma::Message<rdma::PutBody> message(rdma::Opcode::kPut, session_, sequence, body,
                                             key.size() + value.size());
  return Join({message.bytes(), AsBytes(key), AsBytes(value)});
}

std::string RawClient::RendezvousFrame(uint64_t sequence, absl::string_view key,
                                       absl::string_view value) {
  EXPECT_LE(value.size(), value_->size());
  std::memcpy(value_->data(), value.data(), value.size());
  rdma::PutBody body;
  body.rendezvous = 1;
  body.key_length = static_cast<uint16_t>(key.size());
  body.value_length = value.size();
  body.source = {value_remote_.address, value.size(), value_remote_.key, 0};
  body.value_hash = XXH3_64bits(value.data(), value.size());
  const rdma::Message<rdma::PutBody> message(rdma::Opcode::kPut, session_, sequence, body,
                                             key.size());
  return Join({message.bytes(), AsBytes(key)});
}

std::string RawClient::DeleteFrame(uint64_t sequence, absl::string_view key,
                                   uint64_t if_version) const {
  rdma::DeleteBody body;
  if (if_version != 0) body.condition = static_cast<uint8_t>(rdma::WireCondition::kVersionIs);
  body.condition_version = if_version;
  body.key_length = static_cast<uint16_t>(key.size());
  const rdma::Message<rdma::DeleteBody> message(rdma::Opcode::kDelete, session_, sequence, body,
                                                key.size());
  return Join({message.bytes(), AsBytes(key)});
}

std::string RawClient::IncrementFrame(uint64_t sequence, absl::string_view key, int64_t by,
                                      uint64_t if_version) const {
  rdma::IncrementBody body;
  if (if_version != 0) body.condition = static_cast<uint8_t>(rdma::WireCondition::kVersionIs);
  body.condition_version = if_version;
  body.key_length = static_cast<uint16_t>(key.size());
  body.by = by;
  const rdma::Message<rdma::IncrementBody> message(rdma::Opcode::kIncrement, session_, sequence,
                                                   body, key.size());
  return Join({message.bytes(), AsBytes(key)});
}

std::string RawClient::AppendFrame(uint64_t sequence, absl::string_view key,
                                   absl::string_view value, uint64_t if_version) const {
  rdma::AppendBody body;
  if (if_version != 0) body.condition = static_cast<uint8_t>(rdma::WireCondition::kVersionIs);
  body.condition_version = if_version;
  body.key_length = static_cast<uint16_t>(key.size());
  body.value_length = value.size();
  const rdma::Message<rdma::AppendBody> message(rdma::Opcode::kAppend, session_, sequence, body,
                                                key.size() + value.size());
  return Join({message.bytes(), AsBytes(key), AsBytes(value)});
}

std::string RawClient::GetFrame(uint64_t sequence, absl::string_view key, bool want_value) const {
  rdma::GetBody body;
  body.key_length = static_cast<uint16_t>(key.size());
  body.want_value = want_value ? 1 : 0;
  const rdma::Message<rdma::GetBody> message(rdma::Opcode::kGet, session_, sequence, body,
                                             key.size());
  return Join({message.bytes(), AsBytes(key)});
}

std::string RawClient::ExpireFrame(uint64_t sequence, absl::string_view key, uint64_t ttl_ns,
                                   uint64_t if_version) const {
  rdma::ExpireBody body;
  if (if_version != 0) body.condition = static_cast<uint8_t>(rdma::WireCondition::kVersionIs);
  body.condition_version = if_version;
  body.key_length = static_cast<uint16_t>(key.size());
  body.ttl_ns = ttl_ns;
  const rdma::Message<rdma::ExpireBody> message(rdma::Opcode::kExpire, session_, sequence, body,
                                                key.size());
  return Join({message.bytes(), AsBytes(key)});
}

std::string RawClient::FlushFrame(uint64_t sequence, const rdma::FlushBody& body) const {
  return Join(
      {rdma::Message<rdma::FlushBody>(rdma::Opcode::kFlush, session_, sequence, body, 0).bytes()});
}

std::string RawClient::HintsFrame(const std::vector<uint64_t>& hints, uint64_t sequence) const {
  rdma::HintsBody body;
  body.count = static_cast<uint32_t>(hints.size());
  const Bytes words(reinterpret_cast<const std::byte*>(hints.data()), hints.size() * 8);
  return Join(
      {rdma::Message<rdma::HintsBody>(rdma::Opcode::kHints, session_, sequence, body, words.size())
           .bytes(),
       words});
}

std::string RawClient::BatchFrame(const std::vector<std::string>& frames) const {
  std::string payload;
  for (const std::string& frame : frames) payload += frame;
  rdma::EmptyMessage batch(rdma::Opcode::kBatch, session_, 0);
  batch.header.length += static_cast<uint32_t>(payload.size());
  return Join({batch.bytes(), AsBytes(payload)});
}

std::string RawClient::EmptyFrame(rdma::Opcode opcode, uint64_t sequence) const {
  return Join({rdma::EmptyMessage(opcode, session_, sequence).bytes()});
}

std::string RawClient::Read(uint64_t offset, uint32_t bytes) {
  read_.reset();
  rdma::ReadRequest read;
  read.remote_address = welcome_->region.address + offset;
  read.remote_key = welcome_->region.key;
  read.segments[0] = {sink_->data(), bytes, sink_.get()};
  EXPECT_TRUE(transport_->PostReads(id_, {&read, 1}, 1).ok());
  server_.Settle();
  if (!read_.has_value() || !read_->ok()) return "";
  return std::string(reinterpret_cast<const char*>(sink_->data()), bytes);
}

}  // namespace osprey::server
