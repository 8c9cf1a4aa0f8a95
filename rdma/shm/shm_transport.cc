#include "rdma/shm/shm_transport.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rdma/errors.h"
#include "rdma/shm/socket.h"

namespace osprey::rdma {
namespace {

// Frames delivered by one Poll, and of one connection within it so that the others have their turn.
constexpr size_t kFramesPerPollMax = 64;
constexpr size_t kFramesPerConnectionMax = 16;
// A look at the ring of an idle peer is a cache miss, of 20 ns. So one that was quiet for some
// 400 us rests: it must wake us. That costs it a system call, so few connections never rest.
constexpr size_t kNeverRestingMax = 8;
constexpr size_t kLooksBeforeRest = 20'000;  // at the rings of all
constexpr size_t kLooksLeast = 64;           // at its own
// READs of a chain that are prefetched together, and bytes of each. Their cache misses overlap, and
// the cache still holds the bytes when they are copied.
constexpr size_t kPrefetchedMax = 32;
constexpr size_t kPrefetchBytesMax = 256;
constexpr size_t kCacheLineBytes = 64;

// Of options: a frame is staged in buffers of that size.
constexpr uint32_t kFrameBytesMax = 1 << 20;

uint64_t LengthOf(const ReadRequest& read) {
  const uint64_t first = read.segments[0].length;
  return read.segment_count == 1 ? first : first + read.segments[1].length;
}

absl::Span<const LocalSegment> SegmentsOf(const ReadRequest& read) {
  return {read.segments, read.segment_count};
}

void CheckSegments(const ReadRequest& read) {
  assert(read.segment_count >= 1 && read.segment_count <= 2);
  for ([[maybe_unused]] const LocalSegment& segment : SegmentsOf(read)) {
    assert(segment.memory != nullptr && segment.data >= segment.memory->data());
    assert(segment.data + segment.length <= segment.memory->data() + segment.memory->size());
  }
}

// Null: the peer did not expose it, or it is not attached.
const ShmPeerMemory* FindMemory(const ShmConnection& connection, uint32_t key) {
  for (const ShmPeerMemory& memory : connection.peer_memories) {
    if (memory.key == key && memory.attached) return &memory;
  }
  return nullptr;
}

// The memories that a chain's READs are of: mostly one.
class Sources {
 public:
  explicit Sources(const ShmConnection& connection) : connection_(connection) {}

  // Null when the peer exposed no memory that holds all of `read`.
  const ShmPeerMemory* Of(const ReadRequest& read) {
    if (memory_ == nullptr || memory_->key != read.remote_key)
      memory_ = FindMemory(connection_, read.remote_key);
    if (memory_ == nullptr || read.remote_address > memory_->length ||
        LengthOf(read) > memory_->length - read.remote_address)
      return nullptr;
    return memory_;
  }

 private:
  const ShmConnection& connection_;
  const ShmPeerMemory* memory_ = nullptr;
};

void Prefetch(const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < std::min(bytes, kPrefetchBytesMax); at += kCacheLineBytes) {
    __builtin_prefetch(from + at);
  }
}

// Reads all of `reads` from a client's memory; false when one of them is not within what the client
// exposed.
bool ReadAll(const ShmConnection& connection, absl::Span<const ReadRequest> reads) {
  Sources sources(connection);
  for (const ReadRequest& read : reads) {
    CheckSegments(read);
    const ShmPeerMemory* const memory = sources.Of(read);
    if (memory == nullptr) return false;
    uint64_t offset = read.remote_address;
    for (const LocalSegment& segment : SegmentsOf(read)) {
      if (!ReadSealed(memory->fd.get(), offset, segment.data, segment.length)) return false;
      offset += segment.length;
    }
  }
  return true;
}

// The same of a server's memory.
bool CopyAll(const ShmConnection& connection, absl::Span<const ReadRequest> reads) {
  Sources sources(connection);
  while (!reads.empty()) {
    const absl::Span<const ReadRequest> next = reads.subspan(0, kPrefetchedMax);
    std::array<const std::byte*, kPrefetchedMax> places;
    for (size_t i = 0; i < next.size(); ++i) {
      CheckSegments(next[i]);
      const ShmPeerMemory* const memory = sources.Of(next[i]);
      if (memory == nullptr) return false;
      places[i] = memory->mapping.data() + next[i].remote_address;
      if (next.size() > 1) Prefetch(places[i], LengthOf(next[i]));
    }
    for (size_t i = 0; i < next.size(); ++i) {
      const std::byte* from = places[i];
      for (const LocalSegment& segment : SegmentsOf(next[i])) {
        CopyShared(segment.data, from, segment.length);
        from += segment.length;
      }
    }
    reads.remove_prefix(next.size());
  }
  return true;
}

absl::Status NotConnected() {
  return absl::UnavailableError("the connection is not, or no longer, up");
}

// Carries `reads` out. Errors: INVALID_ARGUMENT outside of what the peer exposed, UNAVAILABLE when
// that server has ended.
//
// Why one load of the word `alive` after the copies suffices. A successor accepts clients, and
// acknowledges writes, only while it holds the lock of the path (ShmListener::Open). The kernel
// releases the predecessor's lock with the last of its files. By then every thread of it has left
// its address space, and a thread changes the futexes that it holds before it leaves. So the word
// changes before a successor acknowledges its first write. Suppose the load below returns the old
// value. All loads of CopyShared are acquire loads, so they were done before this one. This one came
// before the kernel's store in the order of that word. So when the copy was done, every write that
// was acknowledged to any client was acknowledged by the server whose region was copied. Suppose a
// successor had acknowledged a write before the caller began its GET. Then the kernel's store would
// have happened before this load, and coherence would have made this load see it.
absl::Status Read(const ShmConnection& connection, absl::Span<const ReadRequest> reads) {
  const bool is_of_client = connection.is_server();
  if (is_of_client ? !ReadAll(connection, reads) : !CopyAll(connection, reads))
    return absl::InvalidArgumentError("a READ outside of what the peer exposed");
  if (is_of_client) return absl::OkStatus();
  if (LoadAlive(connection.page) != connection.alive)
    return PeerGoneError("the server's process has ended");
  return absl::OkStatus();
}

}  // namespace

ShmTransport::ShmTransport(const ShmDomainOptions& domain, const TransportOptions& options,
                           std::shared_ptr<SlowCloser> closer,
                           std::shared_ptr<ShmPeerLedger> ledger)
    : common_(domain, options, std::move(ledger)),
      ending_(common_),
      setup_(common_, ending_, std::move(closer)),
      sockets_(common_, ending_, setup_),
      frame_buffers_(options.frame_bytes_max) {}

ShmTransport::~ShmTransport() { ending_.CloseAll(); }

absl::StatusOr<std::unique_ptr<Transport>> ShmTransport::Create(
    const ShmDomainOptions& domain, const TransportOptions& options,
    std::shared_ptr<SlowCloser> closer, std::shared_ptr<ShmPeerLedger> ledger) {
  if (options.receive_credits < kReceiveCreditsMin || options.receive_credits > kShmCreditsMax) {
    return absl::InvalidArgumentError(absl::StrCat("receive_credits is ", options.receive_credits,
                                                   "; it may be 2 to ", kShmCreditsMax));
  }
  if (options.frame_bytes_max == 0 || options.frame_bytes_max > kFrameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("frame_bytes_max is ", options.frame_bytes_max,
                                                   "; it may be 1 to ", kFrameBytesMax));
  }
  if (options.reads_in_flight_max == 0)
    return absl::InvalidArgumentError("reads_in_flight_max is 0");
  std::unique_ptr<ShmTransport> transport(
      new ShmTransport(domain, options, std::move(closer), std::move(ledger)));
  transport->common_.epoll.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!transport->common_.epoll.valid()) {
    return absl::ResourceExhaustedError(absl::StrCat("epoll_create1: ", std::strerror(errno),
                                                     "; close connections, or raise ulimit -n"));
  }
  if (absl::Status status = transport->setup_.Open(); !status.ok()) return status;
  return transport;
}

absl::Status ShmTransport::Migrate(ConnectionId id, Transport& other) {
  ShmConnection* connection = common_.connections.Find(id);
  if (connection == nullptr || connection->state != State::kRequested)
    return absl::UnavailableError("the client does not wait to be accepted any more");
  auto* const to = dynamic_cast<ShmTransport*>(&other);
  assert(to != nullptr && to != this && "a transport of another domain");
  return setup_.HandOver(connection, to->setup_);
}

absl::Status ShmTransport::PostReads(ConnectionId id, absl::Span<const ReadRequest> reads,
                                     uint64_t cookie) {
  ShmConnection* connection = common_.connections.Find(id);
  if (connection == nullptr || connection->state != State::kConnected) return NotConnected();
  if (reads.empty()) return absl::InvalidArgumentError("an empty batch of READs");
  if (reads.size() > connection->limits.reads_in_flight_max - connection->reads_in_flight) {
    return absl::ResourceExhaustedError(
        "no room for so many READs now: take completions with Poll first");
  }
  absl::Status status = Read(*connection, reads);
  connection->reads_in_flight += static_cast<uint32_t>(reads.size());
  common_.queue.Add(Event::Kind::kReadsDone, id, cookie, static_cast<uint32_t>(reads.size()))
      .event.status = status;
  if (!status.ok()) ending_.End(connection, std::move(status));
  return absl::OkStatus();
}

Bytes ShmTransport::View(ConnectionId id, const RemoteMemory& remote) const {
  const ShmConnection* connection = common_.connections.Find(id);
  if (connection == nullptr || connection->state != State::kConnected) return {};
  const ShmPeerMemory* memory = FindMemory(*connection, remote.key);
  if (memory == nullptr || !memory->mapping.mapped() || remote.address % sizeof(uint64_t) != 0 ||
      remote.address > memory->length || remote.length > memory->length - remote.address)
    return {};
  return {memory->mapping.data() + remote.address, remote.length};
}

absl::Status ShmTransport::ReadNow(ConnectionId id, absl::Span<const ReadRequest> reads) {
  ShmConnection* connection = common_.connections.Find(id);
  if (connection == nullptr || connection->state != State::kConnected) return NotConnected();
  absl::Status status = Read(*connection, reads);
  if (!status.ok()) ending_.End(connection, status);
  return status;
}

bool ShmTransport::PollReads(ReadsDone& done) {
  if (common_.queue.empty()) return false;
  const PendingEvent& first = common_.queue.front();
  if (first.event.kind != Event::Kind::kReadsDone) return false;
  common_.connections.Find(first.event.connection)->reads_in_flight -= first.reads;
  done.connection = first.event.connection;
  done.cookie = first.event.cookie;
  done.status = common_.queue.PopStatus();
  return true;
}

size_t ShmTransport::ReadRoom(ConnectionId id) const {
  const ShmConnection* connection = common_.connections.Find(id);
  if (connection == nullptr || connection->state != State::kConnected) return 0;
  return connection->limits.reads_in_flight_max - connection->reads_in_flight;
}

absl::Status ShmTransport::Send(ConnectionId id, absl::Span<const Bytes> pieces) {
  ShmConnection* connection = common_.connections.Find(id);
  if (connection == nullptr || connection->state != State::kConnected) return NotConnected();
  uint64_t length = 0;
  for (const Bytes& piece : pieces) length += piece.size();
  if (length == 0 || length > connection->limits.frame_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a frame of ", length, " bytes; it may have 1 to ", connection->limits.frame_bytes_max));
  }
  switch (connection->out.Push(pieces, static_cast<uint32_t>(length))) {
    case RingProducer::Result::kDone:
      if (connection->out.TakeSleeper()) Wake(*connection);
      return absl::OkStatus();
    case RingProducer::Result::kFull:
      return absl::ResourceExhaustedError(
          "no credit: the peer has not yet taken the frames sent before");
    case RingProducer::Result::kBroken:
      break;
  }
  ending_.End(connection, BrokeRulesError("the peer broke the rules of the ring"));
  return NotConnected();
}

size_t ShmTransport::SendRoom(ConnectionId id) const {
  ShmConnection* connection = common_.connections.Find(id);
  if (connection == nullptr || connection->state != State::kConnected) return 0;
  return connection->out.Room();
}

// No wake-up is lost when the socket is full: then the peer has packets to read, and its epoll
// descriptor says so. One for which the kernel had no memory goes out with the next Poll: the peer
// would sleep until its patience ends, some seconds later.
void ShmTransport::Wake(const ShmConnection& connection) {
  ShmPacket packet;
  packet.kind = static_cast<uint32_t>(PacketKind::kWake);
  const int error = SendPacket(connection.socket.get(), packet);
  if (error == ENOBUFS || error == ENOMEM || error == EINTR) wakes_due_.push_back(connection.id);
}

void ShmTransport::SendDueWakes() {
  for (ConnectionId id : std::exchange(wakes_due_, {})) {
    const ShmConnection* connection = common_.connections.Find(id);
    if (connection != nullptr && connection->state == State::kConnected) Wake(*connection);
  }
}

size_t ShmTransport::Poll(absl::Span<Event> events) {
  frame_buffers_.Reset();
  if (!wakes_due_.empty()) SendDueWakes();
  if (sockets_.AreDue(common_.connecting)) sockets_.Check();
  // Half of the events are reserved for frames: while large values are fetched, each READ that ends
  // may be followed by another at once.
  const size_t frames_room = common_.receiving.empty() ? 0 : events.size() / 2;
  size_t count = DeliverQueued(events.first(events.size() - frames_room), 0);
  count = DeliverFrames(events, count);
  // What the frames brought about: a broken ring, or the end of a drained one.
  return DeliverQueued(events, count);
}

size_t ShmTransport::DeliverQueued(absl::Span<Event> events, size_t count) {
  for (; count < events.size() && !common_.queue.empty(); ++count) {
    const PendingEvent& pending = common_.queue.front();
    ShmConnection* connection = common_.connections.Find(pending.event.connection);
    assert(connection != nullptr);
    connection->reads_in_flight -= pending.reads;
    if (pending.event.kind == Event::Kind::kConnected) connection->announced = true;
    if (pending.event.kind == Event::Kind::kDisconnected) ending_.Erase(connection);
    common_.queue.PopInto(events[count]);
  }
  return count;
}

size_t ShmTransport::DeliverFrames(absl::Span<Event> events, size_t count) {
  if (common_.receiving.empty()) return count;
  // End() takes a connection out of `receiving` and puts the last one in its place, which is then
  // looked at next time.
  const size_t turns = common_.receiving.size();
  for (size_t turn = 0; turn < turns && !common_.receiving.empty(); ++turn) {
    if (count == events.size() || frame_buffers_.used() == kFramesPerPollMax) break;
    ShmConnection* const connection = common_.receiving.Next();
    // Its kConnected comes before the first frame.
    if (connection->announced) count = DeliverFramesOf(connection, events, count);
  }
  return count;
}

size_t ShmTransport::DeliverFramesOf(ShmConnection* connection, absl::Span<Event> events,
                                     size_t count) {
  const size_t first = count;
  auto result = RingConsumer::Result::kFrame;
  while (count < events.size() && count - first < kFramesPerConnectionMax &&
         frame_buffers_.used() < kFramesPerPollMax) {
    std::byte* buffer = frame_buffers_.Next();
    uint32_t length = 0;
    result = connection->in.Pop(buffer, &length);
    if (result != RingConsumer::Result::kFrame) break;
    frame_buffers_.Use();
    Event& event = events[count++];
    event.kind = Event::Kind::kReceived;
    event.connection = connection->id;
    event.cookie = 0;
    event.frame = Bytes(buffer, length);
    event.status = absl::OkStatus();
    event.text.clear();
    event.source.clear();
    event.affinity = 0;
  }
  if (count > first) {
    // An honest client has received what it was sent when it sends a frame, unless that is a
    // wake-up.
    if (connection->descriptors_unread && HasReceivedAll(connection->socket.get()))
      connection->descriptors_unread = false;
    connection->in.Awake();
    if (connection->in.Release() && connection->state == State::kConnected) Wake(*connection);
    connection->quiet_looks = 0;
  } else if (result == RingConsumer::Result::kEmpty && connection->state == State::kConnected) {
    RestIfQuiet(connection);
  }
  if (result == RingConsumer::Result::kBroken) {
    ending_.End(connection, BrokeRulesError("the peer broke the rules of the ring"));
  } else if (result == RingConsumer::Result::kEmpty && connection->state == State::kDraining) {
    ending_.End(connection, connection->bye ? absl::OkStatus()
                                            : PeerGoneError("the peer ended without a farewell"));
  }
  return count;
}

// REQUIRES: it was looked at last.
void ShmTransport::RestIfQuiet(ShmConnection* connection) {
  const size_t receiving = common_.receiving.size();
  if (receiving <= kNeverRestingMax) return;
  if (++connection->quiet_looks < std::max(kLooksLeast, kLooksBeforeRest / receiving)) return;
  connection->quiet_looks = 0;
  if (!connection->in.Sleep()) return;  // a frame has come; it withdraws the flag
  connection->resting = true;
  common_.receiving.RemoveLast();
}

bool ShmTransport::Arm() {
  // Sockets need no arming: the epoll descriptor is readable as long as one of them is. Connections
  // that rest are armed.
  sockets_.SetDue();
  if (!common_.queue.empty() || !wakes_due_.empty()) return false;
  for (ShmConnection* connection : common_.receiving.all()) {
    if (connection->state == State::kDraining || !connection->in.Sleep()) return false;
  }
  return true;
}

ConnectionLimits ShmTransport::limits(ConnectionId id) const {
  const ShmConnection* connection = common_.connections.Find(id);
  return connection == nullptr ? ConnectionLimits() : connection->limits;
}

std::string ShmTransport::Describe(ConnectionId id) const {
  const ShmConnection* connection = common_.connections.Find(id);
  return absl::StrCat("transport=shm device=none peer=",
                      connection == nullptr ? "none" : connection->peer.uri);
}

Transport::Resources ShmTransport::resources() const {
  Resources resources;
  for (const std::unique_ptr<ShmConnection>& connection : common_.connections.slots()) {
    if (connection == nullptr || connection->state == State::kGreeting) continue;
    ++resources.connections;
    for (const ShmPeerMemory& memory : connection->peer_memories) {
      resources.peer_memories += memory.attached ? 1 : 0;
    }
  }
  return resources;
}

}  // namespace osprey::rdma
