// The whole client, engine and shared-memory transport, facing a server that is hostile through and
// through: its acceptance, descriptors, packets in any order, rings, frames, and a region that changes
// while it is looked at. (Target `client` has the engine alone, with every READ made up; `shm` the
// transport alone.) What must hold:
//
//   every operation is answered once, and by its deadline
//
//   no fault, whatever the descriptors are of; a Poll ends
//
//   when the client is closed, and the server gone, not one descriptor is left

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/engine/engine.h"
#include "index/layout/layout.h"
#include "index/layout/partitions.h"
#include "rdma/authentication.h"
#include "rdma/handshake.h"
#include "rdma/shm/domain.h"
#include "rdma/shm/listener.h"
#include "rdma/shm/mapping.h"
#include "rdma/shm/ring.h"
#include "rdma/shm/socket.h"
#include "rdma/wire/protocol.h"
#include "tests/fuzz/support/ancillary.h"
#include "tests/fuzz/support/client_frames.h"
#include "tests/fuzz/support/frame_bytes.h"
#include "tests/fuzz/support/hostile_region.h"
#include "tests/fuzz/support/hostile_socket.h"
#include "tests/fuzz/support/input.h"

namespace osprey::client {
namespace {

using fuzz::BytesOf;
using fuzz::Joined;
using fuzz::OpenDescriptors;
using rdma::Mapping;
using rdma::Opcode;
using rdma::PacketKind;
using rdma::RingShape;
using rdma::ShmPacket;
using rdma::UniqueFd;

constexpr uint16_t kCredits = 4;
constexpr uint32_t kFrameBytes = 8192;
constexpr size_t kPeerBytes = 64 << 10;
constexpr size_t kRingsBytes = 1 << 20;
// Of each partition, beside its header and the first page of its directory.
constexpr uint64_t kLinesWritten = 32;
// Where the region is changed.
constexpr size_t kRegionTouched = 128 << 10;
constexpr int kOperationsMax = 16;
constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW;

// What does not depend on the input: made once.
struct Fixture {
  Fixture() {
    folder = fuzz::NewFolder();
    std::atexit([] { The().Clear(); });
    domain = rdma::OpenShmDomain().value();
    path = absl::StrCat(folder, "/socket");
    listener = fuzz::ListenAt(path);
    page = fuzz::NewIncarnationPage();
  }
  static Fixture& The() {
    static Fixture* const fixture = new Fixture;
    return *fixture;
  }
  void Clear() {
    domain.reset();
    fuzz::RemoveFolder(folder);
  }

  std::string folder, path;
  std::unique_ptr<rdma::Domain> domain;
  UniqueFd listener, page;
};

class Script {
 public:
  explicit Script(fuzz::Input& input) : input_(input) {
    if (input.OneIn(4)) key_ = rdma::AuthKey::FromBytes(std::string(32, 'k')).value();
    region_ = std::make_unique<fuzz::HostileRegion>(AnyShape(input), input);
    region_->set_honest(input.Flag());
    for (const char* key : {"a", "planet"}) region_->WillBeAsked(key);
    EngineOptions options;
    options.connection.uri = absl::StrCat("shm://", Fixture::The().path);
    options.connection.key = key_;
    options.connection.nonce = [] { return rdma::Nonce{std::byte{7}}; };
    options.operations_max = kOperationsMax;
    options.buffer_bytes_max = 4 << 20;
    options.clock = options.coarse_clock = [this] { return now_; };
    rdma::Domain& domain = *Fixture::The().domain;
    engine_ = ClientEngine::Create(domain, domain.NewTransport({}).value(), options).value();
  }

  void Run() {
    if (input_.Flag()) Establish();
    while (!input_.empty()) Turn();
    engine_->Close();
    // (What the engine waits for before it closes has bounds of some seconds.)
    for (int i = 0; i < 100 && !engine_->closed(); ++i) Poll(absl::Milliseconds(100));
    engine_.reset();
    OSPREY_MUST(waiting_.empty() || AllAnswered(), "an operation was never answered");
  }

 private:
  struct Outcome {
    absl::Time deadline;
    uint64_t poll = 0;  // after which it was started
    bool answered = false;
  };

  // --- The user

  template <typename T>
  auto Callback(const std::shared_ptr<Outcome>& outcome) {
    return [outcome](absl::StatusOr<T>) {
      OSPREY_MUST(!outcome->answered, "an operation was answered twice");
      outcome->answered = true;
    };
  }
  void StartSome() {
    constexpr int64_t kDeadlinesMs[] = {1, 10, 1000, 60000};
    const auto outcome = std::make_shared<Outcome>();
    outcome->deadline = now_ + absl::Milliseconds(kDeadlinesMs[input_.Choice(4)]);
    outcome->poll = polls_;
    const absl::string_view key = input_.Flag() ? "a" : "planet";
    absl::Status status;
    switch (input_.Choice(5)) {
      case 0:
      case 1:
        status = engine_->start().Get(key, true, outcome->deadline, Callback<Value>(outcome));
        break;
      case 2:
        status = engine_->start().Put(key, AnyValue(input_), AnyOptions(input_, true),
                                      outcome->deadline, Callback<uint64_t>(outcome));
        break;
      case 3:
        status = engine_->start().Ping(outcome->deadline, Callback<uint64_t>(outcome));
        break;
      case 4: {
        Scans::Request request = AnyScan(input_, ScanPlace());
        request.deadline = outcome->deadline;
        request.done = Callback<Scans::Found>(outcome);
        status = engine_->start().Scan(std::move(request));
        break;
      }
    }
    if (status.ok()) waiting_.push_back(outcome);
  }
  bool AllAnswered() const {
    return std::all_of(waiting_.begin(), waiting_.end(),
                       [](const std::shared_ptr<Outcome>& outcome) { return outcome->answered; });
  }
  void Poll(absl::Duration time) {
    now_ += time;
    ++polls_;
    // A look at the sockets comes once in 64 Polls, but while a connection is made.
    const int polls = input_.OneIn(8) ? 65 : 1;
    for (int i = 0; i < polls; ++i) engine_->Poll(now_);
    std::erase_if(waiting_, [&](const std::shared_ptr<Outcome>& outcome) {
      OSPREY_MUST(outcome->answered || now_ < outcome->deadline || outcome->poll == polls_,
                  "an operation is not answered at its deadline");
      return outcome->answered;
    });
  }

  // --- The server

  // The newest client's, if it has connected again.
  void TakeClient() {
    UniqueFd socket(
        accept4(Fixture::The().listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) return;
    socket_ = std::move(socket);
    rings_ = Mapping();
    pushed_ = 0;
    told_ = false;
  }

  // As an honest server would, up to where the client is ready, if the input does not spoil it.
  void Establish() {
    Poll(absl::Milliseconds(1));
    TakeClient();
    Accept(true);
    for (int i = 0; i < 60 && !engine_->connection().ready(); ++i) {
      Poll(absl::Milliseconds(1));
      if (i == 0 && key_ != nullptr) Push(ChallengeFrame(input_, nonces_));
      if (i == 2) TellRegion();
    }
  }

  void Accept(bool honest) {
    ShmPacket packet;
    packet.connect.receive_credits = kCredits;
    packet.connect.frame_bytes_max = kFrameBytes;
    packet.connect.reads_in_flight_max = 1;
    packet.kind = static_cast<uint32_t>(PacketKind::kConnect);
    packet.incarnation = 7;
    packet.key = input_.Choice(4);
    const bool right = honest || input_.Flag();
    if (!right) {
      auto* const bytes = reinterpret_cast<uint8_t*>(&packet);
      bytes[input_.Byte() % sizeof(packet)] = input_.Byte();
    }
    const size_t bytes = right || input_.Flag() ? kRingsBytes : input_.UpTo(kRingsBytes);
    const UniqueFd rings = fuzz::NewMemfd(bytes, right ? kSealed : input_.Byte() & 15);
    if (bytes >= 4096) {
      void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, rings.get(), 0);
      rings_ = data == MAP_FAILED ? Mapping() : Mapping(static_cast<std::byte*>(data), bytes);
    }
    const UniqueFd other = fuzz::AnyDescriptor(input_, socket_.get(), kPeerBytes);
    const int page = right || input_.Flag() ? Fixture::The().page.get() : other.get();
    Send(packet, {rings.get(), page});
  }

  void Send(const ShmPacket& packet, absl::Span<const int> fds) {
    rdma::SendWithDescriptors(socket_.get(),
                              {reinterpret_cast<const std::byte*>(&packet), sizeof(packet)}, fds);
  }
  void SendAny() {
    ShmPacket packet;
    packet.kind = 1 + input_.Choice(6);
    packet.key = 1 + input_.Choice(4);
    packet.length = input_.Flag() ? kPeerBytes : input_.Number();
    const size_t bytes = input_.OneIn(8) ? input_.Byte() % sizeof(packet) : sizeof(packet);
    fuzz::SendAncillary(input_, socket_.get(), {reinterpret_cast<const std::byte*>(&packet), bytes},
                        kPeerBytes);
  }

  size_t RingToClient() const { return RingShape{kCredits, kFrameBytes}.bytes(); }
  std::atomic_ref<uint32_t> Word(size_t at) {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(rings_.data() + at));
  }
  // The client's ring has as many slots as its own offer says.
  void Push(const std::string& frame) {
    constexpr uint32_t kSlots = 32;
    const RingShape shape{kSlots, kFrameBytes};
    const size_t slot =
        RingToClient() + RingShape::kControlBytes + pushed_ % kSlots * shape.slot_bytes();
    if (rings_.size() < RingToClient() + shape.bytes() || frame.empty()) return;
    std::memcpy(rings_.data() + slot + RingShape::kSlotHeaderBytes, frame.data(),
                std::min<size_t>(frame.size(), kFrameBytes));
    Word(slot).store(static_cast<uint32_t>(frame.size()));
    Word(RingToClient()).store(++pushed_);
  }
  void StoreWord() {
    if (!rings_.mapped()) return;
    constexpr size_t kWords[] = {0, 4, 64, 68, 128};
    size_t at = (input_.Flag() ? RingToClient() : 0) + kWords[input_.Choice(5)];
    if (input_.OneIn(8)) at = input_.Any<uint32_t>() % kRingsBytes & ~size_t{3};
    if (at + 4 > rings_.size()) return;
    Word(at).store(input_.Flag() ? input_.Choice(40) : static_cast<uint32_t>(input_.Number()));
  }

  // Exposes the region, and says Welcome.
  void TellRegion() {
    const fuzz::RegionShape& shape = region_->shape();
    if (!told_) {
      region_file_ = fuzz::NewMemfd(shape.region_bytes, input_.OneIn(8) ? 0 : kSealed);
      WriteRegion();
      ShmPacket packet;
      packet.kind = static_cast<uint32_t>(PacketKind::kExpose);
      packet.key = 9;
      packet.length = shape.region_bytes;
      Send(packet, {region_file_.get()});
      told_ = true;
    }
    rdma::WelcomeBody body;
    body.incarnation = shape.incarnation;
    body.region = {0, shape.region_bytes, 9, 0};
    body.requests_max = 128;
    body.value_bytes_max = 1 << 20;
    body.eager_bytes_max = 4000;
    body.partitions = shape.partitions;
    body.server_time = static_cast<uint64_t>(absl::ToUnixNanos(now_));
    uint64_t session = 5;
    if (input_.OneIn(8)) LieInWelcome(input_, body, session);
    Prove(input_, key_, nonces_, session, body);
    Push(Joined({rdma::Message<rdma::WelcomeBody>(Opcode::kWelcome, session, 0, body, 0).bytes()}));
  }
  // Some of it once more, as a writer would, or not.
  void WriteRegion() {
    if (!region_file_.valid()) return;
    const fuzz::RegionShape& shape = region_->shape();
    for (uint32_t partition = 0; partition < std::min(shape.partitions, 4u); ++partition) {
      const index::PartitionSpan span =
          index::SpanOfPartition(shape.region_bytes, shape.partitions, partition);
      WriteRegionAt(span.offset, sizeof(index::RegionHeader));
      WriteRegionAt(span.offset + index::kDirectoryOffset, index::kDirectoryPageBytes);
      for (uint64_t line = 0; line < kLinesWritten; ++line) {
        WriteRegionAt(span.offset + index::UnitsOffset(span.bytes) + line * index::kLineBytes,
                      index::kLineBytes);
      }
    }
  }
  void WriteRegionAt(uint64_t at, size_t bytes) {
    std::byte text[index::kDirectoryPageBytes];
    region_->Read(at, {text, bytes});
    (void)!pwrite(region_file_.get(), text, bytes, static_cast<off_t>(at));
  }
  void ChangeRegion() {
    if (!region_file_.valid()) return;
    switch (input_.Choice(4)) {
      case 0:
        return WriteRegion();
      case 1:
        (void)!fallocate(region_file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                         kRegionTouched);
        return;
      case 2:
        (void)!ftruncate(region_file_.get(), input_.Byte());
        return;
      case 3: {
        const std::string bytes = input_.Text(64);
        (void)!pwrite(region_file_.get(), bytes.data(), bytes.size(),
                      static_cast<off_t>(input_.Any<uint32_t>() % kRegionTouched));
        return;
      }
    }
  }

  void Reply() {
    constexpr Opcode kAsked[] = {Opcode::kPut, Opcode::kGet, Opcode::kPing};
    auto [body, data] = AnyReply(input_, *region_, kAsked[input_.Choice(3)]);
    body.server_time = static_cast<uint64_t>(absl::ToUnixNanos(now_));
    body.data_length = static_cast<uint32_t>(data.size());
    const uint64_t sequence = input_.OneIn(8) ? input_.Number() : ++answered_;
    std::string frame = Joined(
        {rdma::Message<rdma::ReplyBody>(Opcode::kReply, engine_->connection().terms().session,
                                        sequence, body, data.size())
             .bytes(),
         BytesOf(data)});
    if (input_.OneIn(16))
      frame[input_.Any<uint32_t>() % frame.size()] = static_cast<char>(input_.Byte());
    Push(frame);
  }

  void Turn() {
    constexpr int64_t kStepsUs[] = {0, 64, 1000, 20000, 1000000, 3000000};
    enum {
      kStart,
      kPoll,
      kPoll2,
      kPoll3,
      kSend,
      kStore,
      kReply,
      kWelcome,
      kRaw,
      kRegion,
      kAccept,
      kHangUp,
      kTurns
    };
    switch (input_.Choice(kTurns)) {
      case kStart:
        return StartSome();
      case kPoll:
      case kPoll2:
      case kPoll3:
        return Poll(absl::Microseconds(kStepsUs[input_.Choice(6)]));
      case kSend:
        return SendAny();
      case kStore:
        return StoreWord();
      case kReply:
        return Reply();
      case kWelcome:
        return input_.OneIn(4) ? Push(ChallengeFrame(input_, nonces_)) : TellRegion();
      case kRaw:
        return Push(input_.Text(300));
      case kRegion:
        return ChangeRegion();
      case kAccept:
        TakeClient();
        return input_.Flag() ? Establish() : Accept(false);
      case kHangUp:
        if (input_.OneIn(4)) socket_.reset();
        return;
    }
  }

  fuzz::Input& input_;
  rdma::AuthKey::Pointer key_;
  rdma::Nonces nonces_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  uint64_t polls_ = 0;
  std::unique_ptr<fuzz::HostileRegion> region_;
  UniqueFd region_file_;
  UniqueFd socket_;
  Mapping rings_;
  uint32_t pushed_ = 0;
  uint64_t answered_ = 0;
  bool told_ = false;
  std::unique_ptr<ClientEngine> engine_;
  std::vector<std::shared_ptr<Outcome>> waiting_;
};

// Clients that connected and that the script has not taken.
void ForgetClients() {
  while (UniqueFd(
             accept4(Fixture::The().listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC))
             .valid()) {
  }
}

}  // namespace
}  // namespace osprey::client

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using osprey::client::Fixture;
  fcntl(Fixture::The().listener.get(), F_SETFL, O_NONBLOCK);
  const size_t before = osprey::client::OpenDescriptors();
  osprey::fuzz::Input input(data, size);
  osprey::client::Script(input).Run();
  osprey::client::ForgetClients();
  // Those of a peer are closed by another thread.
  constexpr int kPatienceMs = 10000;
  for (int ms = 0; ms < kPatienceMs && osprey::client::OpenDescriptors() != before; ++ms)
    usleep(1000);
  OSPREY_MUST(osprey::client::OpenDescriptors() == before, "a descriptor is left open");
  return 0;
}
