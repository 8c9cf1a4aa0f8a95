// The server's engine facing clients that are hostile through and through. The bytes are a script
// over the fake transport: which clients connect, which frames come in what order (mostly nearly
// right), what rendezvous READs bring, what breaks, how time passes. What must hold:
//
//   a client that keeps the rules is answered all the while, within so many turns
//
//   what the server sends is well-formed
//
//   a client that has not proved that it has the key gets only Challenge and Refused
//
//   when the others are gone, so is everything that was kept for them: connections, sessions, space
//
//   the server ends when it is stopped

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "index/writer/table.h"
#include "rdma/authentication.h"
#include "rdma/wire/protocol.h"
#include "server/engine/engine.h"
#include "server/requests/tables.h"
#include "tests/fuzz/support/frame_bytes.h"
#include "tests/fuzz/support/input.h"
#include "tests/fuzz/support/server_frames.h"
#include "tests/fuzz/support/server_peer.h"
#include "tests/support/transports/fake_transport.h"

namespace osprey::server {
namespace {

using fuzz::BytesOf;
using fuzz::Joined;
using rdma::Access;
using rdma::Opcode;

constexpr uint64_t kIncarnation = 0xABCDEF;
constexpr int kHostiles = 3;
// Within so many turns a client that keeps the rules is answered, whatever the others do.
constexpr int kTurnsToAnswer = 200;

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
    frames_ = std::make_unique<HostileFrames>(input, region_->size());
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
    if (key_ != nullptr) options.data_id = kDataId;
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

  // --- Turns

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

  // Refusals for lack of space are answers as well. The others may have flushed or evicted what is
  // stored.
  absl::StatusCode Ask(const std::string& frame) {
    const uint64_t replies = good_->replies_;
    OSPREY_MUST(good_->Send(frame), "a client that keeps the rules cannot send");
    for (int turn = 0; turn < kTurnsToAnswer && good_->replies_ == replies; ++turn) {
      OSPREY_MUST(!good_->disconnected_, "a client that keeps the rules was disconnected");
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
    peer.Send(frames_->Spoiled(peer.HelloFrame(session, input_.OneIn(8) ? 1 : kIncarnation)));
    for (int i = 0; i < 4; ++i) Turn();
    if (peer.challenged_ && key_ != nullptr) {
      peer.Send(frames_->Spoiled(peer.ResponseFrame(*key_, !input_.OneIn(8))));
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
          peer.Send(frames_->Spoiled(frames_->RequestFrame(peer)));
        return;
      case kBatch:
        peer.Send(frames_->Spoiled(frames_->BatchFrame(peer)));
        return;
      case kEstablish:
        return EstablishHostile(peer);
      case kConnect:
        return ConnectHostile(peer);
      case kHello:
        peer.Send(
            frames_->Spoiled(peer.HelloFrame(input_.Flag() ? peer.session_ : 0, kIncarnation)));
        return;
      case kResponse:
        if (key_ != nullptr) peer.Send(frames_->Spoiled(peer.ResponseFrame(*key_, input_.Flag())));
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
      const std::string key =
          meet ? HostileFrames::MeetingKeys()[i] : absl::StrCat("fill", i, "of", value_bytes);
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
    // A client that was cut off is noticed by its silence.
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
    OSPREY_MUST(stats.item_bytes == 0, "space is held without keys");
  }

  fuzz::Input& input_;
  std::unique_ptr<HostileFrames> frames_;
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
