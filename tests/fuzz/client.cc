// The client's engine facing a server that is hostile through and through: its greeting, its
// region, its replies, and when each of them comes. The bytes are a script of what the user starts,
// what arrives and how time passes. What must hold:
//
//   every READ lies within the region that is attached (hostile_transport.cc)
//
//   what is sent is well-formed
//
//   every operation is answered once, and by its deadline (one in the user's memory: when the
//   connection is gone, after it); so are the GETs of a caller that waits
//
//   an answer fits the caller's buffer; nothing lands there after the answer, and what was lent to
//   the server stands as it was
//
//   nothing is left when the client is closed

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/common/registered_memory.h"
#include "client/engine/engine.h"
#include "rdma/authentication.h"
#include "rdma/wire/protocol.h"
#include "tests/fuzz/support/client_frames.h"
#include "tests/fuzz/support/frame_bytes.h"
#include "tests/fuzz/support/hostile_region.h"
#include "tests/fuzz/support/hostile_transport.h"
#include "tests/fuzz/support/input.h"
#include "tests/fuzz/support/waiting_callers.h"
#include "tests/support/transports/fake_transport.h"

namespace osprey::client {
namespace {

using fuzz::BytesOf;
using fuzz::Joined;
using rdma::Opcode;

constexpr int kOperationsMax = 32;
constexpr uint64_t kBufferBytesMax = 4 << 20;
constexpr std::byte kCanary{0xca};
constexpr uint64_t kDataId = 0xDA7A;
constexpr uint8_t kWaitFrom = 208;  // of a byte that says what is started

// A request that the client waits for.
struct Request {
  Opcode opcode = Opcode::kPing;
  uint64_t sequence = 0;
  std::string frame;
};

class Script {
 public:
  explicit Script(fuzz::Input& input) : input_(input) {
    const uint8_t habits = input.Byte();
    closes_early_ = habits % 4 == 1;
    if (input.OneIn(4)) key_ = rdma::AuthKey::FromBytes(std::string(32, 'k')).value();
    NewRegion();
    for (const char* key : {"a", "planet", "a key that is too long to stand in any line"}) {
      keys_.emplace_back(key);
      region_->WillBeAsked(key);
    }
    auto wire = std::make_unique<fuzz::HostileTransport>(
        [this](uint64_t offset, absl::Span<std::byte> bytes) { region_->Read(offset, bytes); });
    wire_ = wire.get();
    wire_->set_has_view(habits >= 192);
    domain_ = network_.NewDomain("client");
    EngineOptions options;
    options.connection.uri = "rdma://server:7411";
    options.connection.servers = std::make_shared<KnownServers>(options.connection.uri);
    options.connection.key = key_;
    options.connection.nonce = [] { return rdma::Nonce{std::byte{7}}; };
    options.operations_max = kOperationsMax;
    options.buffer_bytes_max = kBufferBytesMax;
    options.slot_cache_bytes = 1 << 12;
    options.clock = options.coarse_clock = [this] { return now_; };
    if (input.Flag()) options.eager_bytes_max = input.UpTo(8192);
    engine_ = ClientEngine::Create(*domain_, std::move(wire), options).value();
  }

  ~Script() { engine_.reset(); }

  void Run() {
    if (input_.Flag()) Greet();
    // A turn costs no more than these: none of the loops below is longer.
    while (!input_.empty()) Turn();
    Settle();
    CheckBuffers();
  }

 private:
  // --- What the user does

  // Of one operation that was started.
  struct Outcome {
    absl::Time deadline;
    uint64_t poll = 0;  // after which it was started
    bool in_user_memory = false;
    bool answered = false;
    std::shared_ptr<const RegisteredMemory> memory;
    uint64_t size = 0;
    std::string as_answered;  // the memory's bytes
  };

  std::shared_ptr<Outcome> NewOutcome() {
    constexpr int64_t kDeadlinesMs[] = {0, 1, 10, 1000, 1000, 60000};
    auto outcome = std::make_shared<Outcome>();
    outcome->poll = polls_;
    outcome->deadline = now_ + absl::Milliseconds(kDeadlinesMs[input_.Choice(6)]);
    return outcome;
  }
  void Answered(Outcome& outcome) {
    OSPREY_MUST(!outcome.answered, "an operation was answered twice");
    outcome.answered = true;
    // A callback may start others.
    if (input_.OneIn(8)) StartSome();
    if (outcome.memory == nullptr) return;
    outcome.as_answered = TextOf(*outcome.memory);
    // The user may free it now, and often does.
    if (input_.Flag()) outcome.memory = nullptr;
  }
  template <typename T>
  auto Callback(const std::shared_ptr<Outcome>& outcome) {
    return [this, outcome](absl::StatusOr<T>) { Answered(*outcome); };
  }
  void Started(const std::shared_ptr<Outcome>& outcome, const absl::Status& status) {
    if (status.ok()) outcomes_.push_back(outcome);
  }

  static std::string TextOf(const RegisteredMemory& memory) {
    return {reinterpret_cast<const char*>(memory.memory->data()), memory.memory->size()};
  }

  UserMemory NewMemory(Outcome& outcome) {
    constexpr uint64_t kSizes[] = {0, 1, 100, 5000, 300 << 10};
    const uint64_t size = kSizes[input_.Choice(5)];
    auto memory = std::make_shared<const RegisteredMemory>(
        domain_, domain_->Allocate(size, rdma::Access::kRemoteRead).value(), size,
        engine_->exposer_link());
    std::memset(memory->memory->data(), static_cast<int>(kCanary), memory->memory->size());
    outcome.in_user_memory = true;
    outcome.memory = memory;
    outcome.size = size;
    UserMemory user;
    user.data = memory->memory->data();
    user.size = size;
    user.owner = std::move(memory);
    return user;
  }

  const std::string& AnyKey() { return keys_[input_.Byte() % keys_.size()]; }

  void Wait(absl::Time deadline) {
    if (in_engine_) return;  // a callback may not wait
    std::vector<absl::string_view> keys;
    for (uint32_t count = 1 + input_.Byte() % 20; count > 0; --count) keys.push_back(AnyKey());
    waiting_.Begin(*engine_, std::move(keys), deadline, now_, polls_);
  }

  void StartSome() {
    const std::shared_ptr<Outcome> outcome = NewOutcome();
    const absl::Time deadline = outcome->deadline;
    const std::string& key = AnyKey();
    ClientEngine& engine = *engine_;
    enum {
      kGet,
      kGetInto,
      kExists,
      kTtl,
      kPut,
      kPutFrom,
      kDelete,
      kIncrement,
      kAppend,
      kExpire,
      kTouch,
      kFlush,
      kPing,
      kStats,
      kScan,
      kKinds
    };
    const uint8_t which = input_.Byte();
    if (which >= kWaitFrom) return Wait(deadline);
    switch (which % kKinds) {
      case kGet:
        return Started(outcome, engine.start().Get(key, true, deadline, Callback<Value>(outcome)));
      case kGetInto: {
        UserMemory target = NewMemory(*outcome);
        const uint64_t room = target.size;
        const auto done = [this, outcome, room](absl::StatusOr<ValueInfo> info) {
          OSPREY_MUST(!info.ok() || info->length <= room, "a value longer than its buffer");
          Answered(*outcome);
        };
        return Started(outcome, engine.start().GetInto(key, std::move(target), deadline, done));
      }
      case kExists:
        return Started(outcome, engine.start().Exists(key, deadline, Callback<bool>(outcome)));
      case kTtl:
        return Started(outcome,
                       engine.start().Ttl(key, deadline, Callback<absl::Duration>(outcome)));
      case kPut:
        return Started(outcome, engine.start().Put(key, AnyValue(input_), AnyOptions(input_, true),
                                                   deadline, Callback<uint64_t>(outcome)));
      case kPutFrom: {
        UserMemory source = NewMemory(*outcome);
        return Started(outcome,
                       engine.start().PutFrom(key, std::move(source), AnyOptions(input_, true),
                                              deadline, Callback<uint64_t>(outcome)));
      }
      case kDelete:
        return Started(outcome, engine.start().Delete(key, AnyOptions(input_, false), deadline,
                                                      Callback<uint64_t>(outcome)));
      case kIncrement:
        return Started(outcome, engine.start().Increment(key, static_cast<int64_t>(input_.Number()),
                                                         AnyOptions(input_, false), deadline,
                                                         Callback<Number>(outcome)));
      case kAppend:
        return Started(outcome,
                       engine.start().Append(key, AnyValue(input_), AnyOptions(input_, false),
                                             deadline, Callback<uint64_t>(outcome)));
      case kExpire:
        return Started(outcome, engine.start().Expire(key, absl::Seconds(1 + input_.Byte()),
                                                      AnyOptions(input_, false), deadline,
                                                      Callback<uint64_t>(outcome)));
      case kTouch:
        return Started(outcome, engine.start().Touch(key, deadline, Callback<uint64_t>(outcome)));
      case kFlush:
        return Started(outcome, engine.start().Flush(deadline, Callback<uint64_t>(outcome)));
      case kPing:
        return Started(outcome, engine.start().Ping(deadline, Callback<uint64_t>(outcome)));
      case kStats:
        return Started(outcome, engine.start().Stats(deadline, Callback<std::string>(outcome)));
      case kScan: {
        Scans::Request request = AnyScan(input_, last_place_);
        request.deadline = deadline;
        request.done = [this, outcome](absl::StatusOr<Scans::Found> found) {
          if (found.ok()) last_place_ = found->next;
          Answered(*outcome);
        };
        return Started(outcome, engine.start().Scan(std::move(request)));
      }
    }
  }

  // --- What the server does

  void NewRegion() {
    region_ = std::make_unique<fuzz::HostileRegion>(AnyShape(input_), input_);
    region_->set_honest(input_.Flag());
    for (const std::string& key : keys_) region_->WillBeAsked(key);
  }

  void Accept() {
    wire_->Accept(AnyLimits(input_));
    requests_.clear();
  }

  uint64_t ServerTime() {
    const uint64_t now = static_cast<uint64_t>(absl::ToUnixNanos(now_));
    return input_.OneIn(8) ? input_.Number() : now;
  }

  std::string WelcomeFrame() {
    rdma::WelcomeBody body;
    const fuzz::RegionShape& shape = region_->shape();
    body.incarnation = shape.incarnation;
    body.region = {input_.OneIn(8) ? ~uint64_t{0} - shape.region_bytes : uint64_t{1} << 40,
                   shape.region_bytes, 9, 0};
    body.requests_max = input_.OneIn(4) ? 1 + input_.Byte() : 128;
    body.value_bytes_max = 4 << 20;
    body.eager_bytes_max = 4000;
    body.partitions = shape.partitions;
    body.server_time = ServerTime();
    body.wants_hints = input_.Flag() ? 1 : 0;
    body.wants_reports = body.wants_hints;
    // Servers with several partitions have a data directory.
    body.data_id = shape.partitions > 1 ? kDataId : 0;
    uint64_t session = 5;
    if (input_.Flag() && hello_.resume_session != 0) {
      body.resumed = 1;
      session = hello_.resume_session;
      if (body.data_id == 0) body.incarnation = hello_.resume_incarnation;
    }
    if (input_.OneIn(8)) LieInWelcome(input_, body, session);
    Prove(input_, key_, nonces_, session, body);
    return Joined(
        {rdma::Message<rdma::WelcomeBody>(Opcode::kWelcome, session, 0, body, 0).bytes()});
  }

  // As an honest server would, up to where the client is ready; the input decides where that ends.
  void Greet() {
    for (int step = 0; step < 400 && !engine_->connection().ready(); ++step) {
      Poll(absl::Milliseconds(1));
      TakeSent();
      if (wire_->connecting()) {
        Accept();
      } else if (engine_->connection().state() == ServerConnection::State::kGreeting) {
        const bool challenge = key_ != nullptr && step < 8 && responses_ == 0;
        wire_->Deliver(challenge ? ChallengeFrame(input_, nonces_) : WelcomeFrame());
      } else {
        wire_->FinishReads(0, true);
      }
      if (!wire_->open() && !wire_->connecting()) wire_->End(absl::OkStatus());
    }
  }

  // Everything that the client sent must be what a server takes.
  void TakeSent() {
    for (; !wire_->sent().empty(); wire_->sent().pop_front()) Take(wire_->sent().front());
  }
  void Take(const std::string& text) {
    const rdma::FrameBytes frame = BytesOf(text);
    const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
    OSPREY_MUST(header.ok(), "the client sends a header that is none");
    const auto opcode = static_cast<Opcode>(header->opcode);
    switch (opcode) {
      case Opcode::kHello: {
        const absl::StatusOr<rdma::HelloBody> hello = rdma::ParseHello(frame);
        OSPREY_MUST(hello.ok(), "the client's Hello");
        hello_ = *hello;
        responses_ = 0;
        return;
      }
      case Opcode::kResponse:
        OSPREY_MUST(rdma::ParseResponse(frame).ok() && key_ != nullptr, "the client's Response");
        ++responses_;
        return;
      case Opcode::kBatch: {
        std::vector<rdma::FrameBytes> frames;
        OSPREY_MUST(rdma::ParseBatch(frame, frames).ok(), "the client's Batch");
        for (rdma::FrameBytes inner : frames) Take(Joined({inner}));
        return;
      }
      case Opcode::kHints:
        OSPREY_MUST(rdma::ParseHints(frame).ok(), "the client's Hints");
        return;
      case Opcode::kReport:
        OSPREY_MUST(rdma::ParseReport(frame).ok(), "the client's Report");
        return;
      case Opcode::kDisconnectNotice:
        return;
      default:
        MustBeRequest(opcode, frame);
    }
    OSPREY_MUST(header->sequence != 0, "a request without a number");
    requests_.push_back({opcode, header->sequence, text});
    OSPREY_MUST(requests_.size() <= 4096, "requests without end");
  }

  // The value of a PUT by rendezvous stands where it was said to, and is the same, until it is
  // answered.
  void ReadSource() {
    if (requests_.empty()) return;
    const Request& request = requests_[input_.Byte() % requests_.size()];
    if (request.opcode != Opcode::kPut || !wire_->open()) return;
    MustStandStill(BytesOf(request.frame), *wire_);
  }

  std::string ReplyFrame(const Request& request) {
    auto [body, data] = AnyReply(input_, *region_, request.opcode);
    body.server_time = ServerTime();
    body.data_length = static_cast<uint32_t>(data.size());
    uint64_t session = engine_->connection().terms().session;
    uint64_t sequence = request.sequence;
    if (input_.OneIn(32)) sequence = input_.Number();
    if (input_.OneIn(32)) session = input_.Number();
    std::string frame =
        Joined({rdma::Message<rdma::ReplyBody>(Opcode::kReply, session, sequence, body, data.size())
                    .bytes(),
                BytesOf(data)});
    if (input_.OneIn(32))
      frame[input_.Any<uint32_t>() % frame.size()] = static_cast<char>(input_.Byte());
    return frame;
  }

  // Mostly to one that waits.
  std::string NextReply() {
    Request request;
    request.sequence = input_.Byte();
    if (!requests_.empty()) {
      const size_t which = input_.Flag() ? 0 : input_.Byte() % requests_.size();
      request = requests_[which];
      if (!input_.OneIn(16)) requests_.erase(requests_.begin() + static_cast<ptrdiff_t>(which));
    }
    return ReplyFrame(request);
  }

  void ReplyBatch() {
    std::string frames;
    for (uint32_t count = 1 + input_.Byte() % 8; count > 0; --count) frames += NextReply();
    if (input_.OneIn(16)) frames += input_.Text(64);
    rdma::EmptyMessage batch(Opcode::kBatch, engine_->connection().terms().session, 0);
    batch.header.length += static_cast<uint32_t>(frames.size());
    wire_->Deliver(Joined({batch.bytes(), BytesOf(frames)}));
  }

  // --- Time

  void Poll(absl::Duration time) {
    constexpr uint64_t kReadsPerPollMax =
        128 * 8;  // what is in flight at once, and that after each round of events
    now_ += time;
    ++polls_;
    const uint64_t reads = wire_->reads();
    in_engine_ = true;
    engine_->Poll(now_);
    in_engine_ = false;
    waiting_.Check(now_, polls_);
    OSPREY_MUST(wire_->reads() - reads <= kReadsPerPollMax, "READs without end in one Poll");
    for (size_t i = 0; i < outcomes_.size();) {
      Outcome& outcome = *outcomes_[i];
      const bool late = now_ >= outcome.deadline && outcome.poll < polls_;
      OSPREY_MUST(outcome.answered || outcome.in_user_memory || !late,
                  "an operation is not answered at its deadline");
      if (!outcome.answered) {
        ++i;
        continue;
      }
      if (outcome.memory != nullptr) answered_.push_back(outcomes_[i]);
      outcomes_.erase(outcomes_.begin() + static_cast<ptrdiff_t>(i));
    }
  }

  void CheckBuffers() {
    for (const std::shared_ptr<Outcome>& outcome : answered_) {
      if (outcome->memory == nullptr) continue;
      const std::string bytes = TextOf(*outcome->memory);
      OSPREY_MUST(bytes == outcome->as_answered, "a READ landed in a buffer after the answer");
      for (size_t i = outcome->size; i < bytes.size(); ++i)
        OSPREY_MUST(static_cast<std::byte>(bytes[i]) == kCanary, "a READ landed behind a buffer");
    }
  }

  void Turn() {
    constexpr int64_t kStepsUs[] = {0, 1, 64, 1000, 20000, 1000000, 3000000, 11000000};
    enum {
      kStart,
      kStart2,
      kPoll,
      kPoll2,
      kReads,
      kReads2,
      kReply,
      kReply2,
      kBatch,
      kAccept,
      kWelcome,
      kGreet,
      kRaw,
      kCredits,
      kEnd,
      kSource,
      kDisconnectNotice,
      kFailReads,
      kSpecial,
      kTurns
    };
    switch (input_.Choice(kTurns)) {
      case kStart:
      case kStart2:
        StartSome();
        break;
      case kPoll:
      case kPoll2:
        Poll(absl::Microseconds(kStepsUs[input_.Choice(8)]));
        TakeSent();
        break;
      case kReads:
      case kReads2:
        // In any order, as READs of different chains may end.
        for (uint32_t count = 1 + input_.Byte() % 4; count > 0; --count)
          wire_->FinishReads(wire_->batches() == 0 ? 0 : input_.Byte() % wire_->batches(), true);
        Poll(absl::Microseconds(1));
        TakeSent();
        break;
      case kReply:
      case kReply2:
        wire_->Deliver(NextReply());
        break;
      case kBatch:
        ReplyBatch();
        break;
      case kAccept:
        if (wire_->connecting()) Accept();
        break;
      case kWelcome:
        wire_->Deliver(input_.OneIn(4) ? ChallengeFrame(input_, nonces_) : WelcomeFrame());
        break;
      case kGreet:
        if (input_.Flag()) NewRegion();
        Greet();
        break;
      case kRaw:
        wire_->Deliver(input_.Text(300));
        break;
      case kCredits:
        wire_->ReturnCredits();
        break;
      case kEnd:
        wire_->End(input_.Flag() ? absl::OkStatus() : absl::UnavailableError("broken"));
        break;
      case kSource:
        ReadSource();
        break;
      case kDisconnectNotice:
        wire_->Deliver(DisconnectNoticeFrame(engine_->connection().terms().session));
        break;
      case kFailReads:
        wire_->FinishReads(0, false);
        break;
      case kSpecial:
        switch (input_.Choice(5)) {
          case 0:
            wire_->LoseDevice();
            break;
          case 1:
            wire_->set_attach_fails(input_.Flag());
            break;
          case 2:
            region_->set_honest(input_.Flag());
            break;
          case 3: {
            const uint8_t reason = input_.Byte();
            wire_->Deliver(reason < 128 ? RefusedFrame(reason)
                                        : ElsewhereFrame(input_, key_, nonces_));
            break;
          }
          case 4:
            CheckBuffers();
            break;
        }
        break;
    }
    // A connection that the engine gave up ends, sooner or later.
    if (!wire_->open() && !wire_->connecting() && input_.Flag()) wire_->End(absl::OkStatus());
  }

  // Nothing comes any more but ends of connections that were given up: yet all is answered.
  void Settle() {
    constexpr int kTurnsMax = 200;
    if (closes_early_) Close();
    for (int turn = 0; turn < kTurnsMax && engine_->in_flight() > 0; ++turn) {
      Poll(absl::Seconds(1));
      if (!wire_->open() && !wire_->connecting()) wire_->End(absl::OkStatus());
    }
    OSPREY_MUST(engine_->in_flight() == 0, "an operation that is never answered");
    Poll(absl::ZeroDuration());
    OSPREY_MUST(outcomes_.empty() && waiting_.empty(), "an operation that was never answered");
    if (!closes_early_) Close();
    for (int turn = 0; turn < kTurnsMax && !engine_->closed(); ++turn) {
      wire_->End(absl::OkStatus());
      Poll(absl::Milliseconds(1));
    }
    OSPREY_MUST(engine_->closed(), "a client that cannot be closed");
  }

  void Close() {
    in_engine_ = true;
    engine_->Close();
    in_engine_ = false;
  }

  fuzz::Input& input_;
  fake::Network network_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  rdma::AuthKey::Pointer key_;
  std::vector<std::string> keys_;
  std::unique_ptr<fuzz::HostileRegion> region_;
  std::shared_ptr<rdma::Domain> domain_;
  fuzz::HostileTransport* wire_ = nullptr;
  std::unique_ptr<ClientEngine> engine_;
  bool closes_early_ = false;
  bool in_engine_ = false;  // which may call callbacks
  uint64_t polls_ = 0;
  rdma::HelloBody hello_;
  rdma::Nonces nonces_;
  int responses_ = 0;
  std::vector<Request> requests_;  // of this connection, not answered
  std::vector<std::shared_ptr<Outcome>> outcomes_;
  fuzz::WaitingCallers waiting_;
  std::vector<std::shared_ptr<Outcome>> answered_;  // whose memory is there still
  ScanPlace last_place_;
};

}  // namespace
}  // namespace osprey::client

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::fuzz::Input input(data, size);
  osprey::client::Script(input).Run();
  return 0;
}
