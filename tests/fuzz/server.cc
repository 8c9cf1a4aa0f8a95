// The server's engine facing clients that are hostile through and through. The bytes are a script
// over the fake transport: who connects, which frames come in what order (mostly nearly right),
// what rendezvous READs bring, what breaks, how time passes. What must hold:
//
//   a client that keeps the rules is answered all the while, within so many turns
//   what the server sends is well-formed; who has not proved that it has the key is told nothing
//   when the others are gone, so is everything that was kept for them: connections, sessions, space
//   the server ends when it is told to

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "index/table.h"
#include "rdma/authentication.h"
#include "rdma/batch.h"
#include "rdma/protocol.h"
#include "server/admission.h"
#include "server/engine.h"
#include "server/tables.h"
#include "tests/fake_transport.h"
#include "tests/fuzz/input.h"

namespace osprey::server {
namespace {

using rdma::Access;
using rdma::ConnectionId;
using rdma::Event;
using rdma::Opcode;

constexpr char kUri[] = "rdma://server:7411";
constexpr uint64_t kIncarnation = 0xABCDEF;
constexpr uint64_t kHashSeed = 42;
constexpr uint64_t kValueBytesMax = 80 << 10;
constexpr size_t kSourceBytes = 96 << 10;  // of a hostile client's memory
constexpr int kHostiles = 3;
// Within so many turns a client that keeps the rules is answered, whatever the others do.
constexpr int kTurnsToAnswer = 200;

std::string Joined(std::initializer_list<rdma::FrameBytes> pieces) {
  std::string frame;
  for (rdma::FrameBytes piece : pieces)
    frame.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  return frame;
}

rdma::FrameBytes BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// One client's end, whoever drives it.
class Peer {
 public:
  Peer(fake::Network& network, rdma::Domain& domain, bool server_has_key)
      : network_(network), server_has_key_(server_has_key) {
    liveness_ = domain.Allocate(kLivenessBytes, Access::kRemoteRead).value();
    source_ = domain.Allocate(kSourceBytes, Access::kRemoteRead).value();
    domain_ = &domain;
  }

  void Connect(const rdma::TransportOptions& options, uint32_t affinity) {
    transport_ = domain_->NewTransport(options).value();
    connected_ = disconnected_ = welcomed_ = proved_ = challenged_ = false;
    replies_ = 0;
    sequence_ = 0;
    // A session that is resumed has its numbers already.
    id_ = transport_->Connect(kUri, affinity).value();
  }
  void Leave() {
    if (transport_ != nullptr) transport_->Disconnect(id_);
  }
  bool gone() const { return transport_ == nullptr || disconnected_; }

  std::string HelloFrame(uint64_t resume_session, uint64_t resume_incarnation) {
    if (connected_ && !disconnected_) {
      const auto liveness = transport_->Expose(id_, *liveness_);
      const auto source = transport_->Expose(id_, *source_);
      if (liveness.ok() && source.ok()) {
        hello_.liveness = {liveness->address, kLivenessBytes, liveness->key, 0};
        source_remote_ = *source;
      }
    }
    hello_.resume_session = resume_session;
    hello_.resume_incarnation = resume_session == 0 ? 0 : resume_incarnation;
    return Joined({rdma::Message<rdma::HelloBody>(Opcode::kHello, 0, 0, hello_, 0).bytes()});
  }
  std::string ResponseFrame(const rdma::AuthKey& key, bool right) {
    nonces_.client = {std::byte{7}};
    const rdma::Proof proof = rdma::ClientProof(key, nonces_, rdma::BodyBytes(hello_));
    rdma::ResponseBody body;
    std::memcpy(body.client_nonce, nonces_.client.data(), nonces_.client.size());
    std::memcpy(body.mac, proof.data(), proof.size());
    if (!right) body.mac[9] ^= 1;
    proved_ |= right && challenged_;
    return Joined({rdma::Message<rdma::ResponseBody>(Opcode::kResponse, 0, 0, body, 0).bytes()});
  }
  bool Send(absl::string_view frame) {
    return transport_ != nullptr && !frame.empty() && transport_->Send(id_, {BytesOf(frame)}).ok();
  }

  void Poll() {
    if (transport_ == nullptr || asleep_) return;
    Event events[16];
    const size_t count = transport_->Poll(absl::MakeSpan(events));
    for (size_t i = 0; i < count; ++i) {
      switch (events[i].kind) {
        case Event::Kind::kConnected:
          connected_ = true;
          break;
        case Event::Kind::kReceived:
          Take(events[i].frame);
          break;
        case Event::Kind::kDisconnected:
          disconnected_ = true;
          break;
        case Event::Kind::kReadsDone:
        case Event::Kind::kConnectRequest:
        case Event::Kind::kDeviceLost:
          break;
      }
    }
  }

  fake::Network& network_;
  const bool server_has_key_;
  rdma::Domain* domain_ = nullptr;
  std::unique_ptr<rdma::Memory> liveness_, source_;
  std::unique_ptr<rdma::Transport> transport_;
  ConnectionId id_ = ConnectionId::kNone;
  rdma::RemoteMemory source_remote_;
  rdma::HelloBody hello_;
  rdma::Nonces nonces_;
  uint64_t session_ = 0;
  uint64_t sequence_ = 0;  // the last that was sent
  bool connected_ = false, disconnected_ = false, welcomed_ = false, challenged_ = false,
       proved_ = false;
  bool asleep_ = false;
  uint64_t replies_ = 0;
  absl::StatusCode last_code_ = absl::StatusCode::kUnknown;

 private:
  void Take(rdma::Bytes frame) {
    const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
    OSPREY_MUST(header.ok(), "the server sends a header that is none");
    const auto opcode = static_cast<Opcode>(header->opcode);
    OSPREY_MUST(
        !server_has_key_ || proved_ || opcode == Opcode::kChallenge || opcode == Opcode::kRefused,
        "something was told to who has not proved that it has the key");
    switch (opcode) {
      case Opcode::kChallenge: {
        const absl::StatusOr<rdma::ChallengeBody> challenge = rdma::ParseChallenge(frame);
        OSPREY_MUST(challenge.ok() && !challenged_, "the server's Challenge");
        challenged_ = true;
        std::memcpy(nonces_.server.data(), challenge->server_nonce, nonces_.server.size());
        return;
      }
      case Opcode::kRefused:
        OSPREY_MUST(rdma::ParseRefused(frame).ok(), "the server's Refused");
        return;
      case Opcode::kWelcome:
        OSPREY_MUST(rdma::ParseWelcome(frame).ok() && !welcomed_, "the server's Welcome");
        welcomed_ = true;
        session_ = header->session;
        return;
      case Opcode::kReply: {
        const absl::StatusOr<rdma::Reply> reply = rdma::ParseReply(frame);
        OSPREY_MUST(reply.ok() && header->session == session_, "the server's Reply");
        ++replies_;
        last_code_ = static_cast<absl::StatusCode>(reply->body.status);
        return;
      }
      case Opcode::kBatch: {
        std::vector<rdma::FrameBytes> frames;
        OSPREY_MUST(rdma::ParseBatch(frame, frames).ok(), "the server's Batch");
        for (rdma::FrameBytes inner : frames) Take(inner);
        return;
      }
      case Opcode::kGoodbye:
        OSPREY_MUST(rdma::ParseEmpty(frame).ok(), "the server's Goodbye");
        return;
      default:
        OSPREY_MUST(false, "the server sends what only clients send");
    }
  }
};

class Script {
 public:
  explicit Script(fuzz::Input& input) : input_(input), network_(Options(input)) {
    if (input.OneIn(3)) key_ = rdma::AuthKey::FromBytes(std::string(32, 'k')).value();
    constexpr size_t kRegionBytes[] = {1 << 20, 1536 << 10, 2 << 20};
    constexpr uint32_t kPartitions[] = {1, 2, 4};
    server_domain_ = network_.NewDomain("server");
    good_domain_ = network_.NewDomain("good");
    client_domain_ = network_.NewDomain("client");
    region_ = server_domain_->Allocate(kRegionBytes[input.Choice(3)], Access::kRemoteRead).value();
    scratch_ = server_domain_->Allocate(kLivenessBytes, Access::kLocal).value();
    index::TableOptions table;
    table.incarnation = kIncarnation;
    table.hash_seed = kHashSeed;
    table.clock = [this] { return now_; };
    table.evict = input.Flag();
    if (input.OneIn(4)) table.split_percent = 0;  // after every insertion
    if (input.OneIn(16)) table.cas_version = index::kCasVersionMax - input.Byte();
    tables_ =
        Tables::Create({region_->data(), region_->size()}, kPartitions[input.Choice(3)], table)
            .value();
    EngineOptions options;
    options.incarnation = kIncarnation;
    options.connections_max = kHostiles + 2;
    options.key = key_;
    options.value_bytes_max = kValueBytesMax;
    options.random = [this] { return last_random_ += 0x5E55; };
    std::vector<EnginePort> ports;
    ports.push_back({server_domain_->NewTransport({}).value(), region_.get(), scratch_.get(), {}});
    engine_ = std::make_unique<Engine>(*tables_, std::move(ports), options, now_);
    OSPREY_MUST(engine_->Listen(0, kUri).ok(), "listening");
    good_ = std::make_unique<Peer>(network_, *good_domain_, key_ != nullptr);
    for (int i = 0; i < kHostiles; ++i)
      hostiles_.push_back(std::make_unique<Peer>(network_, *client_domain_, key_ != nullptr));
    EstablishGood();
    if (input.Flag()) {
      // Bytes of a value change while they are READ.
      network_.before_piece = [this](absl::Span<const std::byte>) {
        if (!input_.OneIn(4)) return;
        std::byte* const bytes = hostiles_[input_.Byte() % kHostiles]->source_->data();
        bytes[input_.Any<uint32_t>() % kSourceBytes] ^= std::byte{1};
      };
    }
  }

  ~Script() {
    network_.before_piece = nullptr;
    hostiles_.clear();
    good_.reset();
    engine_.reset();
  }

  void Run() {
    while (!input_.empty()) {
      Step();
      Turn();
    }
    End();
  }

 private:
  static fake::NetworkOptions Options(fuzz::Input& input) {
    fake::NetworkOptions options;
    options.seed = input.Byte();
    if (input.Flag()) options.read_piece_bytes = 4096;
    if (input.Flag()) options.read_bytes_max = 16 << 10;
    return options;
  }

  // --- Everybody's turns

  void Turn() {
    engine_->Poll(now_);
    good_->Poll();
    for (const std::unique_ptr<Peer>& hostile : hostiles_) hostile->Poll();
  }
  void Pass(absl::Duration time) {
    now_ += time;
    Turn();
  }

  void EstablishGood() {
    good_->Connect({}, 0);
    for (int i = 0; i < 4; ++i) Turn();
    good_->Send(good_->HelloFrame(0, 0));
    for (int i = 0; i < 4; ++i) Turn();
    if (key_ != nullptr) good_->Send(good_->ResponseFrame(*key_, true));
    for (int i = 0; i < 4; ++i) Turn();
    OSPREY_MUST(good_->welcomed_, "a client that keeps the rules is not let in");
  }

  // Refusals for want of room are answers as well; what is stored may have been flushed or evicted
  // by the others.
  absl::StatusCode Ask(const std::string& frame) {
    const uint64_t replies = good_->replies_;
    OSPREY_MUST(good_->Send(frame), "a client that keeps the rules cannot send");
    for (int turn = 0; turn < kTurnsToAnswer && good_->replies_ == replies; ++turn) {
      OSPREY_MUST(!good_->disconnected_, "a client that keeps the rules was let go");
      Pass(absl::Milliseconds(1));
    }
    OSPREY_MUST(good_->replies_ == replies + 1, "a client that keeps the rules is not answered");
    return good_->last_code_;
  }

  void AskForGood() {
    if (stopped_) return;
    rdma::PutBody put;
    put.key_length = 4;
    put.value_length = 5;
    const std::string put_frame = Joined(
        {rdma::Message<rdma::PutBody>(Opcode::kPut, good_->session_, ++good_->sequence_, put, 9)
             .bytes(),
         BytesOf("minevalue")});
    const absl::StatusCode stored = Ask(put_frame);
    OSPREY_MUST(stored == absl::StatusCode::kOk || stored == absl::StatusCode::kResourceExhausted,
                "a write that was refused for nothing");
    rdma::GetBody get;
    get.key_length = 4;
    const std::string get_frame = Joined(
        {rdma::Message<rdma::GetBody>(Opcode::kGet, good_->session_, ++good_->sequence_, get, 4)
             .bytes(),
         BytesOf("mine")});
    const absl::StatusCode found = Ask(get_frame);
    OSPREY_MUST(found == absl::StatusCode::kOk || found == absl::StatusCode::kNotFound,
                "a GET that was refused for nothing");
  }

  // --- Hostile frames

  // Keys of one home, of which no window holds all.
  static const std::vector<std::string>& MeetingKeys() {
    static const auto* const keys = [] {
      auto* found = new std::vector<std::string>;
      for (int i = 0; found->size() < 64; ++i) {
        std::string key = absl::StrCat("meet", i);
        const index::KeyHash hash = index::HashKey(key, kHashSeed);
        if (hash.home() == 7 && hash.directory_index(3) == 5) found->push_back(std::move(key));
      }
      return found;
    }();
    return *keys;
  }

  std::string AnyKey() {
    constexpr const char* kKeys[] = {"a", "b", "planet", "mine",
                                     "a key that is too long for a line of 128 bytes"};
    if (input_.OneIn(16)) return std::string(input_.UpTo(rdma::kKeyBytesMax), 'k');
    if (input_.OneIn(8)) return MeetingKeys()[input_.Byte() % MeetingKeys().size()];
    if (input_.OneIn(4)) return absl::StrCat("key", input_.Byte());
    return kKeys[input_.Choice(5)];
  }
  std::string AnyValue() {
    constexpr size_t kSizes[] = {0, 1, 8, 40, 100, 1000, 4000, 7900};
    if (input_.OneIn(4)) return input_.Text(40);
    return std::string(kSizes[input_.Choice(8)], '7');
  }
  uint64_t NextSequence(Peer& peer) {
    if (!input_.OneIn(8)) return ++peer.sequence_;
    switch (input_.Choice(4)) {
      case 0:
        return peer.sequence_;  // once more
      case 1:
        return peer.sequence_ - input_.Byte();
      case 2:
        return peer.sequence_ += input_.Byte() * uint64_t{3};
      default:
        return input_.Number();
    }
  }
  template <typename Body>
  std::string Request(Peer& peer, Opcode opcode, const Body& body, absl::string_view payload,
                      bool numbered = true) {
    const uint64_t sequence = numbered ? NextSequence(peer) : 0;
    return Joined(
        {rdma::Message<Body>(opcode, peer.session_, sequence, body, payload.size()).bytes(),
         BytesOf(payload)});
  }
  template <typename Body>
  void AnyCondition(Body& body) {
    if (!input_.OneIn(8)) return;
    body.condition = input_.Choice(3);
    if (body.condition == 2) body.condition_version = input_.Number();
  }

  std::string RendezvousFrame(Peer& peer, const std::string& key) {
    constexpr uint64_t kSizes[] = {
        1, 9000, 60000, 70000, kValueBytesMax, kValueBytesMax + 1, kSourceBytes};
    rdma::PutBody body;
    body.rendezvous = 1;
    body.key_length = static_cast<uint16_t>(key.size());
    body.value_length = kSizes[input_.Choice(7)];
    body.source = {peer.source_remote_.address, body.value_length, peer.source_remote_.key, 0};
    // Hashing all of it in each input would take the most of its time.
    if (body.value_length <= 70000)
      body.value_hash = XXH3_64bits(peer.source_->data(), body.value_length);
    if (input_.OneIn(8)) {
      switch (input_.Choice(4)) {
        case 0:
          body.source.address += input_.Number();
          break;
        case 1:
          body.source.key = static_cast<uint32_t>(input_.Number());
          break;
        case 2:
          body.value_hash ^= 1;
          break;
        case 3:
          body.value_length = body.source.length = input_.Number();
          break;
      }
    }
    AnyCondition(body);
    if (input_.OneIn(8)) body.ttl_ns = input_.Number();
    return Request(peer, Opcode::kPut, body, key);
  }

  std::string RequestFrame(Peer& peer) {
    const std::string key = AnyKey();
    const std::string value = AnyValue();
    enum {
      kPut,
      kPut2,
      kRendezvous,
      kDelete,
      kIncrement,
      kAppend,
      kGet,
      kFlush,
      kExpire,
      kTouch,
      kHints,
      kPing,
      kStats,
      kGoodbye,
      kKinds
    };
    switch (input_.Choice(kKinds)) {
      case kPut:
      case kPut2: {
        rdma::PutBody body;
        body.key_length = static_cast<uint16_t>(key.size());
        body.value_length = value.size();
        AnyCondition(body);
        if (input_.OneIn(4)) body.ttl_ns = input_.Number();
        return Request(peer, Opcode::kPut, body, key + value);
      }
      case kRendezvous:
        return RendezvousFrame(peer, key);
      case kDelete: {
        rdma::DeleteBody body;
        body.key_length = static_cast<uint16_t>(key.size());
        AnyCondition(body);
        return Request(peer, Opcode::kDelete, body, key);
      }
      case kIncrement: {
        rdma::IncrementBody body;
        body.key_length = static_cast<uint16_t>(key.size());
        body.by = static_cast<int64_t>(input_.Number());
        AnyCondition(body);
        return Request(peer, Opcode::kIncrement, body, key);
      }
      case kAppend: {
        rdma::AppendBody body;
        body.key_length = static_cast<uint16_t>(key.size());
        body.value_length = value.size();
        AnyCondition(body);
        return Request(peer, Opcode::kAppend, body, key + value);
      }
      case kGet: {
        rdma::GetBody body;
        body.key_length = static_cast<uint16_t>(key.size());
        body.want_value = input_.OneIn(4) ? 0 : 1;
        return Request(peer, Opcode::kGet, body, key);
      }
      case kFlush: {
        rdma::FlushBody body;
        if (input_.Flag()) body = {input_.Number(), input_.Number()};
        return Request(peer, Opcode::kFlush, body, "");
      }
      case kExpire: {
        rdma::ExpireBody body;
        body.key_length = static_cast<uint16_t>(key.size());
        body.ttl_ns = input_.Number();
        AnyCondition(body);
        return Request(peer, Opcode::kExpire, body, key);
      }
      case kTouch: {
        rdma::TouchBody body;
        body.key_length = static_cast<uint16_t>(key.size());
        return Request(peer, Opcode::kTouch, body, key);
      }
      case kHints: {
        rdma::HintsBody body;
        std::string words;
        body.count = 1 + input_.Byte() % (input_.OneIn(8) ? 256 : 4);
        for (uint32_t i = 0; i < body.count; ++i) {
          const uint64_t word = input_.Flag() ? input_.Any<uint64_t>() : AnyHint();
          words.append(reinterpret_cast<const char*>(&word), sizeof(word));
        }
        return Request(peer, Opcode::kHints, body, words, input_.OneIn(32));
      }
      case kGoodbye:
        if (input_.OneIn(4))
          return Joined({rdma::EmptyMessage(Opcode::kGoodbye, peer.session_, 0).bytes()});
        [[fallthrough]];
      case kPing:
      case kStats:
        break;
    }
    const Opcode opcode = input_.OneIn(4) ? Opcode::kStats : Opcode::kPing;
    return Joined({rdma::EmptyMessage(opcode, peer.session_, NextSequence(peer)).bytes()});
  }

  // Of some line or item of the region.
  uint64_t AnyHint() {
    const uint64_t bytes = region_->size();
    const uint64_t at = input_.Any<uint16_t>() * uint64_t{8} % bytes;
    const uint64_t offset = input_.Flag() ? at : index::UnitsOffset(bytes) + at / 128 * 128;
    const index::KeyHash hash = index::HashKey("a", kHashSeed);
    return uint64_t{input_.Flag() ? 1u : 3u} << 62 | uint64_t{hash.fingerprint()} << 46 |
           uint64_t{input_.Byte() % 8u} << index::kOffsetBits | offset / 8;
  }

  std::string BatchFrame(Peer& peer) {
    std::string frames;
    // Short ones may be many.
    uint32_t count = 1 + input_.Byte() % (input_.OneIn(4) ? 140 : 8);
    const bool same = input_.OneIn(4);
    std::string frame = RequestFrame(peer);
    for (; count > 0 && frames.size() + frame.size() < 8000; --count) {
      frames += frame;
      if (!same || input_.empty()) frame = RequestFrame(peer);
    }
    rdma::EmptyMessage batch(Opcode::kBatch, peer.session_, 0);
    batch.header.length += static_cast<uint32_t>(frames.size());
    return Joined({batch.bytes(), BytesOf(frames)});
  }

  std::string Spoiled(std::string frame) {
    if (!input_.OneIn(8) || frame.empty()) return frame;
    for (uint32_t changes = 1 + input_.Byte() % 3; changes > 0; --changes)
      frame[input_.Any<uint16_t>() % std::min<size_t>(frame.size(), 128)] =
          static_cast<char>(input_.Byte());
    if (input_.OneIn(4)) frame.resize(1 + input_.Any<uint16_t>() % 8192);
    if (input_.Flag() && frame.size() >= sizeof(rdma::FrameHeader)) {
      const auto length = static_cast<uint32_t>(frame.size());
      std::memcpy(frame.data() + offsetof(rdma::FrameHeader, length), &length, sizeof(length));
    }
    return frame;
  }

  // --- The script

  void ConnectHostile(Peer& peer) {
    peer.Leave();
    for (int i = 0; i < 2; ++i) Turn();
    rdma::TransportOptions options;
    constexpr uint32_t kFrameBytes[] = {8192, 8192, 4184, 4100, 64, 1};
    constexpr uint16_t kCredits[] = {32, 32, 2, 3};
    options.frame_bytes_max = kFrameBytes[input_.Choice(6)];
    options.receive_credits = kCredits[input_.Choice(4)];
    peer.asleep_ = false;
    peer.Connect(options, input_.Byte());
  }

  // All the way to the Welcome, if the input does not spoil it.
  void EstablishHostile(Peer& peer) {
    ConnectHostile(peer);
    for (int i = 0; i < 3; ++i) Turn();
    uint64_t session = 0;
    if (input_.Flag()) session = hostiles_[input_.Byte() % kHostiles]->session_;
    if (input_.OneIn(16)) session = good_->session_ + 1;
    const uint64_t sequence = peer.sequence_;
    peer.Send(Spoiled(peer.HelloFrame(session, input_.OneIn(8) ? 1 : kIncarnation)));
    for (int i = 0; i < 4; ++i) Turn();
    if (peer.challenged_ && key_ != nullptr) {
      peer.Send(Spoiled(peer.ResponseFrame(*key_, !input_.OneIn(8))));
      for (int i = 0; i < 4; ++i) Turn();
    }
    if (session != 0) peer.sequence_ = sequence + input_.Byte();
  }

  void Fault(Peer& peer) {
    switch (input_.Choice(6)) {
      case 0:
        return network_.Break(peer.id_, input_.Flag());
      case 1:
        return network_.Cut(peer.id_);
      case 2:
        return network_.HoldReads(network_.Peer(peer.id_), input_.Flag());
      case 3:
        return network_.FailNextReads(network_.Peer(peer.id_), absl::UnavailableError("failed"));
      case 4:
        peer.asleep_ = !peer.asleep_;
        return;
      case 5:
        if (!peer.gone() && peer.connected_) peer.transport_->Withdraw(peer.id_, *peer.source_);
        return;
    }
  }

  void Step() {
    Peer& peer = *hostiles_[input_.Byte() % kHostiles];
    enum {
      kRequest,
      kRequest2,
      kRequest3,
      kBatch,
      kEstablish,
      kConnect,
      kHello,
      kResponse,
      kRaw,
      kLeave,
      kFault,
      kTime,
      kTime2,
      kTurns,
      kGood,
      kSource,
      kStop,
      kFill,
      kSteps
    };
    switch (input_.Choice(kSteps)) {
      case kRequest:
      case kRequest2:
      case kRequest3:
        for (uint32_t count = 1 + input_.Byte() % 4; count > 0; --count)
          peer.Send(Spoiled(RequestFrame(peer)));
        return;
      case kBatch:
        peer.Send(Spoiled(BatchFrame(peer)));
        return;
      case kEstablish:
        return EstablishHostile(peer);
      case kConnect:
        return ConnectHostile(peer);
      case kHello:
        peer.Send(Spoiled(peer.HelloFrame(input_.Flag() ? peer.session_ : 0, kIncarnation)));
        return;
      case kResponse:
        if (key_ != nullptr) peer.Send(Spoiled(peer.ResponseFrame(*key_, input_.Flag())));
        return;
      case kRaw:
        peer.Send(input_.Text(200));
        return;
      case kLeave:
        return peer.Leave();
      case kFault:
        return Fault(peer);
      case kTime:
      case kTime2: {
        constexpr int64_t kStepsMs[] = {1, 20, 250, 1000, 3100, 5100, 30000, 61000};
        // In steps, so that the client that keeps the rules is not silent for long.
        return Pass(absl::Milliseconds(kStepsMs[input_.Choice(8)]));
      }
      case kTurns:
        for (uint32_t count = input_.Byte() % 32; count > 0; --count) Turn();
        return;
      case kGood:
        return AskForGood();
      case kSource:
        peer.source_->data()[input_.Any<uint32_t>() % kSourceBytes] ^= std::byte{1};
        return;
      case kStop:
        if (stopped_ || !input_.OneIn(16)) return;
        stopped_ = true;
        return engine_->Stop(now_);
      case kFill:
        return Fill(peer);
    }
  }

  // So many keys that memory runs out.
  void Fill(Peer& peer) {
    const bool meet = input_.OneIn(4);
    const size_t value_bytes = size_t{1} << input_.Choice(13);
    for (uint32_t i = 0; i < 64; ++i) {
      rdma::PutBody body;
      const std::string key = meet ? MeetingKeys()[i] : absl::StrCat("fill", i, "of", value_bytes);
      body.key_length = static_cast<uint16_t>(key.size());
      body.value_length = value_bytes - 1;
      const std::string payload = key + std::string(value_bytes - 1, 'f');
      if (!peer.Send(Joined({rdma::Message<rdma::PutBody>(Opcode::kPut, peer.session_,
                                                          ++peer.sequence_, body, payload.size())
                                 .bytes(),
                             BytesOf(payload)}))) {
        Turn();
      }
      if (i % 16 == 15) Turn();
    }
  }

  // --- The end

  void End() {
    network_.before_piece = nullptr;
    for (const std::unique_ptr<Peer>& hostile : hostiles_) {
      hostile->Leave();
      hostile->asleep_ = false;
    }
    AskForGood();
    // Whoever was cut off is noticed by its silence.
    for (int i = 0; i < 12; ++i) Pass(absl::Seconds(1));
    if (!stopped_) {
      OSPREY_MUST(engine_->connections() == 1, "a connection is left of one that is gone");
      AskForGood();
      for (int i = 0; i < 16; ++i) Pass(absl::Seconds(4));
      OSPREY_MUST(engine_->sessions() == 1, "a session is kept for too long");
      AskForGood();
      Empty();
      engine_->Stop(now_);
    }
    for (int i = 0; i < 8; ++i) Pass(absl::Milliseconds(500));
    OSPREY_MUST(engine_->done(), "the server does not end");
  }

  // Without keys, nothing takes space.
  void Empty() {
    for (int i = 0; i < 4; ++i) {
      for (uint32_t part = 0; part < tables_->partitions(); ++part) {
        uint64_t cursor = 0;
        const LockedTable table = tables_->Lock(part);
        for (int step = 0; step < 4096; ++step) {
          const auto flushed = table->FlushStep(cursor, index::kCasVersionMax, 256, now_);
          if (!flushed.ok()) return;  // the versions are used up: nothing can be deleted any more
          cursor = flushed->cursor;
          if (cursor == 0) break;
        }
      }
      Pass(absl::Seconds(2));
    }
    const index::Table::Stats stats = tables_->stats();
    OSPREY_MUST(stats.keys == 0, "keys are left after a flush");
    OSPREY_MUST(stats.item_bytes == 0, "space is held for nobody");
  }

  fuzz::Input& input_;
  fake::Network network_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  rdma::AuthKey::Pointer key_;
  std::unique_ptr<rdma::Domain> server_domain_, good_domain_, client_domain_;
  std::unique_ptr<rdma::Memory> region_, scratch_;
  uint64_t last_random_ = 0;
  std::unique_ptr<Tables> tables_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Peer> good_;
  std::vector<std::unique_ptr<Peer>> hostiles_;
  bool stopped_ = false;
};

}  // namespace
}  // namespace osprey::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::fuzz::Input input(data, size);
  osprey::server::Script(input).Run();
  return 0;
}
