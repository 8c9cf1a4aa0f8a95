// The shared-memory transport facing a peer that is hostile through and through: its packets, the
// descriptors that come with them, what it stores in the rings and when it goes. The bytes are a
// script for one end that is honest, server or client, and a raw socket at the other. What must
// hold:
//
//   events come as rdma/transport.h promises them
//
//   frames are within their limits
//
//   there is no fault (descriptors may be of anything, and change)
//
//   not one descriptor or mapping is left when the peer is gone

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rdma/handshake.h"
#include "rdma/shm/domain.h"
#include "rdma/shm/listener.h"
#include "rdma/shm/mapping.h"
#include "rdma/shm/ring.h"
#include "rdma/shm/socket.h"
#include "rdma/transport.h"
#include "tests/fuzz/support/ancillary.h"
#include "tests/fuzz/support/hostile_socket.h"
#include "tests/fuzz/support/input.h"

namespace osprey::rdma {
namespace {

constexpr uint32_t kFrameBytesMax = 256;
constexpr uint16_t kCredits = 4;
constexpr uint16_t kReadsMax = 8;
constexpr size_t kPeerBytes = 64 << 10;
constexpr size_t kRawMappingMax = 1 << 20;

// What does not depend on the input: made once.
struct Fixture {
  Fixture() {
    folder = fuzz::NewFolder();
    std::atexit([] { The().Clear(); });
    domain = OpenShmDomain().value();
    TransportOptions options;
    options.receive_credits = kCredits;
    options.frame_bytes_max = kFrameBytesMax;
    options.reads_in_flight_max = kReadsMax;
    server = domain->NewTransport(options).value();
    other_server = domain->NewTransport(options).value();
    client = domain->NewTransport(options).value();
    uri = server->Listen(absl::StrCat("shm://", folder, "/server"), 7).value();
    exposed = domain->Allocate(4096, Access::kRemoteRead).value();
    sink = domain->Allocate(kPeerBytes, Access::kLocal).value();
    raw_path = absl::StrCat(folder, "/raw");
    raw_listener = fuzz::ListenAt(raw_path);
    page = fuzz::NewIncarnationPage();
  }
  static Fixture& The() {
    static Fixture* const fixture = new Fixture;
    return *fixture;
  }
  void Clear() {
    client.reset();
    other_server.reset();
    server.reset();
    fuzz::RemoveFolder(folder);
  }

  std::string folder, uri, raw_path;
  std::unique_ptr<Domain> domain;
  std::unique_ptr<Transport> server, other_server, client;
  std::unique_ptr<Memory> exposed, sink;
  UniqueFd raw_listener, page;
  const std::shared_ptr<CloserLane> lane = CloserLane::Create();
};

class Script {
 public:
  Script(fuzz::Input& input, bool victim_is_server)
      : input_(input),
        victim_is_server_(victim_is_server),
        victim_(victim_is_server ? *Fixture::The().server : *Fixture::The().client) {}

  void Run() {
    Open();
    if (input_.Flag()) Establish();
    // Each turn makes at most a few system calls; a script is as long as its input.
    while (!input_.empty()) Turn();
    Close();
  }

 private:
  // --- The hostile end

  void Open() {
    Fixture& fixture = Fixture::The();
    if (victim_is_server_) {
      socket_ = NewSocket().value();
      (void)ConnectSocket(socket_.get(),
                          SocketAddress(fixture.uri.substr(std::strlen("shm://"))).value());
    } else {
      const absl::StatusOr<ConnectionId> id =
          victim_.Connect(absl::StrCat("shm://", fixture.raw_path));
      OSPREY_MUST(id.ok(), "connecting");
      known_[*id] = &victim_;
      last_ = *id;
      socket_.reset(
          accept4(fixture.raw_listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    }
  }

  // As an honest peer would.
  void Establish() {
    if (victim_is_server_) {
      Send(Greeting(), {});
      Poll();
      AcceptAll();
      Poll();
      TakePackets();
    } else {
      Answer(true);
      for (int i = 0; i < 3; ++i) Poll();
    }
  }

  ShmPacket Greeting() {
    ShmPacket packet;
    packet.connect.receive_credits = kCredits;
    packet.connect.frame_bytes_max =
        input_.OneIn(4) ? static_cast<uint32_t>(input_.Number()) : kFrameBytesMax;
    packet.connect.reads_in_flight_max = 1;
    if (input_.OneIn(4)) packet.connect.receive_credits = static_cast<uint16_t>(input_.Number());
    packet.kind = static_cast<uint32_t>(PacketKind::kConnect);
    packet.incarnation = 7;
    return packet;
  }

  // A raw server's to a client's request.
  void Answer(bool honest) {
    const bool right = honest || input_.Flag();
    // The client's rings and ours: at most as much as both shapes take.
    const size_t bytes = right ? kRawMappingMax : input_.UpTo(kRawMappingMax);
    UniqueFd rings = fuzz::NewMemfd(
        bytes, right ? F_SEAL_SHRINK | F_SEAL_GROW : static_cast<int>(input_.Byte() & 7));
    MapRings(rings.get(), bytes);
    UniqueFd page(fcntl(Fixture::The().page.get(), F_DUPFD_CLOEXEC, 0));
    if (!right && input_.Flag()) page = AnyDescriptor();
    const int fds[] = {rings.get(), page.get()};
    ShmPacket packet = Greeting();
    if (input_.OneIn(8)) packet.connect.reason = input_.Byte();
    if (input_.OneIn(8)) packet.incarnation = input_.Byte();
    const size_t count = right ? 2 : input_.Choice(3);
    Send(packet, absl::MakeConstSpan(fds, count));
  }

  UniqueFd AnyDescriptor() { return fuzz::AnyDescriptor(input_, socket_.get(), kPeerBytes); }
  void MapRings(int fd, size_t bytes) {
    if (rings_ != nullptr) munmap(rings_, rings_bytes_);
    rings_ = nullptr;
    rings_bytes_ = std::min(bytes, kRawMappingMax);
    if (rings_bytes_ < 4096) return;
    void* data = mmap(nullptr, rings_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    rings_ = data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
  }

  void Send(const ShmPacket& packet, absl::Span<const int> fds, size_t bytes = sizeof(ShmPacket)) {
    SendWithDescriptors(
        socket_.get(),
        {reinterpret_cast<const std::byte*>(&packet), std::min(bytes, sizeof(packet))}, fds);
  }

  void SendAny() {
    ShmPacket packet;
    packet.kind = 1 + input_.Choice(6);
    packet.key = 1 + input_.Choice(4);
    packet.length = input_.Flag() ? kPeerBytes : input_.Number();
    if (packet.kind == static_cast<uint32_t>(PacketKind::kConnect))
      packet.connect = Greeting().connect;
    if (input_.OneIn(8)) {
      auto* bytes = reinterpret_cast<uint8_t*>(&packet);
      bytes[input_.Byte() % sizeof(packet)] = input_.Byte();
    }
    if (input_.OneIn(8)) {
      return fuzz::SendAncillary(input_, socket_.get(),
                                 {reinterpret_cast<const std::byte*>(&packet), sizeof(packet)},
                                 kPeerBytes);
    }
    // An Expose comes with one; more, fewer and others are all wrong.
    uint32_t count = packet.kind == static_cast<uint32_t>(PacketKind::kExpose) ? 1 : 0;
    if (input_.OneIn(8)) count = input_.Choice(5);
    std::vector<UniqueFd> fds;
    std::vector<int> numbers;
    for (; count > 0; --count) {
      fds.push_back(AnyDescriptor());
      if (!fds.back().valid()) return;
      numbers.push_back(fds.back().get());
    }
    Send(packet, numbers, input_.OneIn(8) ? input_.Byte() % 64 : sizeof(packet));
    // Kept, and changed later on.
    if (!fds.empty() && input_.Flag()) kept_ = std::move(fds.front());
  }

  void ChangeKept() {
    if (!kept_.valid()) return;
    switch (input_.Choice(3)) {
      case 0:
        (void)!ftruncate(kept_.get(), input_.Byte());
        return;
      case 1:
        (void)!fallocate(kept_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPeerBytes);
        return;
      case 2:
        (void)fcntl(kept_.get(), F_ADD_SEALS, F_SEAL_WRITE);
        return;
    }
  }

  // Takes what the victim sends: its acceptance brings the rings.
  void TakePackets() {
    ReceivedPacket received;
    const std::shared_ptr<CloserLane>& lane = Fixture::The().lane;
    for (int i = 0;
         i < 8 && ReceivePacket(socket_.get(), lane, &received) == ReceiveResult::kPacket; ++i) {
      if (received.packet.kind == static_cast<uint32_t>(PacketKind::kConnect) &&
          received.fd_count == 2) {
        const off_t bytes = lseek(received.fds[0].get(), 0, SEEK_END);
        MapRings(received.fds[0].get(), static_cast<size_t>(std::max<off_t>(bytes, 0)));
      }
    }
  }

  void StoreWord() {
    if (rings_ == nullptr) return;
    // Of both rings: the counters, flags and first lengths, which is where harm could be done.
    const RingShape shape{kCredits, kFrameBytesMax};
    const size_t ring = input_.Flag() ? shape.bytes() : 0;
    constexpr size_t kWords[] = {0, 4, 64, 68};
    size_t at = ring + (input_.Flag() ? kWords[input_.Choice(4)]
                                      : RingShape::kControlBytes +
                                            input_.Choice(kCredits) * shape.slot_bytes());
    if (input_.OneIn(8)) at = input_.Any<uint16_t>() & ~size_t{3};
    if (at + 4 > rings_bytes_) return;
    const uint32_t value =
        input_.Flag() ? input_.Choice(8) : static_cast<uint32_t>(input_.Number());
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(rings_ + at)).store(value);
  }

  // A frame in the victim's ring as it should be: length, bytes, tail.
  void PushFrame() {
    const RingShape shape{kCredits, kFrameBytesMax};
    const size_t ring = victim_is_server_ ? 0 : shape.bytes();
    if (rings_ == nullptr || ring + shape.bytes() > rings_bytes_) return;
    std::byte* const slot =
        rings_ + ring + RingShape::kControlBytes + pushed_ % kCredits * shape.slot_bytes();
    const uint32_t length = 1 + input_.Byte() % kFrameBytesMax;
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(slot)).store(length);
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(rings_ + ring)).store(++pushed_);
  }

  // --- The victim

  void Poll() {
    PollOne(victim_);
    if (victim_is_server_) PollOne(*Fixture::The().other_server);
  }
  void PollOne(Transport& transport) {
    Event events[8];
    const size_t count = transport.Poll(absl::MakeSpan(events, 1 + input_.Byte() % 8));
    OSPREY_MUST(count <= 8, "more events than asked for");
    for (size_t i = 0; i < count; ++i) Take(events[i], transport);
  }
  void Take(const Event& event, Transport& transport) {
    const ConnectionId id = event.connection;
    switch (event.kind) {
      case Event::Kind::kConnectRequest:
        OSPREY_MUST(victim_is_server_ && known_.emplace(id, &transport).second,
                    "a request that came before");
        asking_.push_back(id);
        last_ = id;
        return;
      case Event::Kind::kConnected:
        OSPREY_MUST(known_.count(id) != 0 && connected_.insert(id).second, "connected twice");
        return;
      case Event::Kind::kReceived: {
        OSPREY_MUST(connected_.count(id) != 0, "a frame of no connection");
        OSPREY_MUST(!event.frame.empty() && event.frame.size() <= kFrameBytesMax,
                    "a frame that is too long");
        uint8_t sum = 0;
        for (std::byte byte : event.frame)
          sum = static_cast<uint8_t>(sum + static_cast<uint8_t>(byte));
        sum_ = sum;
        return;
      }
      case Event::Kind::kReadsDone: {
        const auto posted = reads_.find(event.cookie);
        OSPREY_MUST(posted != reads_.end() && posted->second == id, "a READ that was not posted");
        reads_.erase(posted);
        return;
      }
      case Event::Kind::kDisconnected:
        OSPREY_MUST(known_.erase(id) == 1, "an end of no connection");
        connected_.erase(id);
        for (const auto& [cookie, reader] : reads_)
          OSPREY_MUST(reader != id, "READs that have not ended");
        std::erase(asking_, id);
        return;
      case Event::Kind::kDeviceLost:
        OSPREY_MUST(false, "a device");
    }
  }
  void AcceptAll() {
    for (ConnectionId id : std::exchange(asking_, {})) (void)Of(id).Accept(id);
  }

  void Act() {
    RemoteMemory remote;
    remote.key = 1 + input_.Choice(4);
    remote.length = input_.Flag() ? kPeerBytes : input_.Number();
    if (input_.OneIn(4)) remote.address = input_.Number();
    Fixture& fixture = Fixture::The();
    Transport& transport = Of(last_);
    const uint8_t which = input_.Byte();
    if (which >= 240) return LookAndRead(transport, remote);
    switch (which % 10) {
      case 0:
        return AcceptAll();
      case 1:
        if (!asking_.empty())
          Of(asking_.back()).Reject(asking_.back(), RejectReason::kTooManyConnections);
        return;
      case 2:
        (void)transport.Attach(last_, remote);
        return;
      case 3: {
        ReadRequest read;
        read.remote_key = remote.key;
        read.remote_address = remote.address;
        const uint32_t length =
            input_.Flag() ? 4096 : static_cast<uint32_t>(input_.UpTo(kPeerBytes));
        read.segments[0] = {fixture.sink->data(), length, fixture.sink.get()};
        const uint64_t cookie = ++cookies_;
        if (transport.PostReads(last_, {&read, 1}, cookie).ok()) reads_[cookie] = last_;
        return;
      }
      case 4: {
        const std::string frame(1 + input_.Byte(), 'f');
        const Bytes piece(reinterpret_cast<const std::byte*>(frame.data()), frame.size());
        (void)transport.SendRoom(last_);
        (void)transport.Send(last_, {piece});
        return;
      }
      case 5:
        (void)transport.Expose(last_, *fixture.exposed);
        return;
      case 6:
        transport.Withdraw(last_, *fixture.exposed);
        return;
      case 7:
        if (input_.OneIn(4)) transport.Disconnect(last_);
        return;
      case 8:
        (void)transport.Arm();
        return;
      case 9:
        return Migrate();
    }
  }

  // What is said to be seen can be, from end to end, whatever becomes of what the peer exposed.
  void LookAndRead(Transport& transport, const RemoteMemory& remote) {
    if (input_.Flag()) (void)transport.Attach(last_, remote);
    const Bytes view = transport.mapped_reads()->View(last_, remote);
    if (view.empty()) return;
    OSPREY_MUST(view.size() == remote.length &&
                    reinterpret_cast<uintptr_t>(view.data()) % sizeof(uint64_t) == 0,
                "another view than was asked for");
    uint8_t sum = sum_;
    for (size_t at = 0; at < view.size(); at += 1 + view.size() / 8)
      sum = static_cast<uint8_t>(sum + static_cast<uint8_t>(view[at]));
    sum_ = static_cast<uint8_t>(sum + static_cast<uint8_t>(view[view.size() - 1]));
    Fixture& fixture = Fixture::The();
    ReadRequest read;
    read.remote_key = remote.key;
    read.remote_address = input_.Flag() ? remote.address : remote.address + input_.Number();
    read.segments[0] = {fixture.sink->data(), static_cast<uint32_t>(input_.UpTo(kPeerBytes)),
                        fixture.sink.get()};
    (void)transport.mapped_reads()->ReadNow(last_, {&read, 1});
  }

  // The one that asks is gone here, and asks there.
  void Migrate() {
    Fixture& fixture = Fixture::The();
    if (asking_.empty()) return;
    const ConnectionId id = asking_.back();
    Transport& from = Of(id);
    Transport& to = &from == fixture.server.get() ? *fixture.other_server : *fixture.server;
    if (!from.Migrate(id, to).ok()) return;
    asking_.pop_back();
    known_.erase(id);
  }
  Transport& Of(ConnectionId id) {
    const auto found = known_.find(id);
    return found == known_.end() ? victim_ : *found->second;
  }

  void Turn() {
    enum {
      kPoll,
      kPoll2,
      kSend,
      kSend2,
      kStore,
      kPush,
      kAct,
      kAct2,
      kTake,
      kChange,
      kHangUp,
      kAnswer,
      kTurns
    };
    switch (input_.Choice(kTurns)) {
      case kPoll:
      case kPoll2:
        return Poll();
      case kSend:
      case kSend2:
        return SendAny();
      case kStore:
        return StoreWord();
      case kPush:
        return PushFrame();
      case kAct:
      case kAct2:
        return Act();
      case kTake:
        return TakePackets();
      case kChange:
        return ChangeKept();
      case kHangUp:
        if (input_.OneIn(4)) socket_.reset();
        if (!socket_.valid() && input_.Flag() && victim_is_server_) Open();
        return;
      case kAnswer:
        if (!victim_is_server_) return Answer(false);
        Send(Greeting(), {});
        return;
    }
  }

  void Close() {
    socket_.reset();
    kept_.reset();
    if (rings_ != nullptr) munmap(rings_, rings_bytes_);
    // What was handed over on the way may ask there meanwhile.
    for (int round = 0; round < 2; ++round) {
      const std::map<ConnectionId, Transport*> open = known_;
      for (const auto& [id, transport] : open) transport->Disconnect(id);
      // A look at the sockets comes once in 64 Polls.
      for (int i = 0; i < 100; ++i) Poll();
    }
    OSPREY_MUST(known_.empty() && reads_.empty(), "something is left of a peer that is gone");
    const Transport::Resources resources = victim_.resources();
    OSPREY_MUST(resources.connections == 0 && resources.peer_memories == 0, "a connection is left");
  }

  fuzz::Input& input_;
  const bool victim_is_server_;
  Transport& victim_;
  UniqueFd socket_, kept_;
  std::byte* rings_ = nullptr;
  size_t rings_bytes_ = 0;
  uint32_t pushed_ = 0;
  std::map<ConnectionId, Transport*> known_;  // not yet disconnected, and whose they are
  std::set<ConnectionId> connected_;
  std::vector<ConnectionId> asking_;
  ConnectionId last_ = ConnectionId::kNone;
  std::map<uint64_t, ConnectionId> reads_;
  uint64_t cookies_ = 0;
  volatile uint8_t sum_ = 0;
};

}  // namespace
}  // namespace osprey::rdma

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::rdma::Fixture::The();
  const size_t before = osprey::fuzz::OpenDescriptors();
  osprey::fuzz::Input input(data, size);
  const bool victim_is_server = input.Flag();
  osprey::rdma::Script(input, victim_is_server).Run();
  // Those of a peer are closed by another thread, some of them only after a look at their sockets.
  constexpr int kPatienceMs = 10000;
  for (int ms = 0; ms < kPatienceMs && osprey::fuzz::OpenDescriptors() != before; ++ms) {
    osprey::rdma::Transport& server = *osprey::rdma::Fixture::The().server;
    osprey::rdma::Event event;
    (void)server.Arm();  // so that the next Poll looks
    OSPREY_MUST(server.Poll({&event, 1}) == 0, "an event of a peer that is gone");
    usleep(1000);
  }
  OSPREY_MUST(osprey::fuzz::OpenDescriptors() == before, "a descriptor is left open");
  return 0;
}
