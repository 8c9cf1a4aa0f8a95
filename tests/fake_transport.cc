#include "tests/fake_transport.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rdma/errors.h"
#include "rdma/host_memory.h"

namespace osprey::fake {

using rdma::Access;
using rdma::Bytes;
using rdma::ConnectionId;
using rdma::Event;
using rdma::Memory;
using rdma::ReadRequest;
using rdma::RejectReason;
using rdma::RemoteMemory;

// Remote addresses start at key << 40: canonical pointers of this process are nowhere near.
constexpr int kAddressKeyShift = 40;

class FakeMemory final : public Memory {
 public:
  FakeMemory(Network* network, std::byte* data, size_t size, Access access, void* owned)
      : Memory(data, size),
        network_(network),
        key_(++network->last_key_),
        access_(access),
        owned_(owned) {
    network_->memories_[key_] = this;
  }
  ~FakeMemory() override {
    network_->memories_.erase(key_);
    std::free(owned_);
  }

  uint32_t key() const { return key_; }
  Access access() const { return access_; }
  uint64_t remote_address() const { return uint64_t{key_} << kAddressKeyShift; }

 private:
  Network* const network_;
  const uint32_t key_;
  const Access access_;
  void* const owned_;
};

// One end of a connection.
//
//   kRequested --Accept--> kOpen --Disconnect, Break, the peer--> kClosing --Poll--> (gone)
//   kConnecting --accepted--> kOpen
//   kRequested, kConnecting --Disconnect, Reject--> kClosing
struct End {
  enum class State { kRequested, kConnecting, kOpen, kClosing };
  struct Batch {
    std::vector<ReadRequest> reads;
    uint64_t cookie = 0;
  };

  ConnectionId id = ConnectionId::kNone;
  FakeTransport* transport = nullptr;
  ConnectionId peer = ConnectionId::kNone;
  State state = State::kConnecting;
  bool announced =
      false;  // the owner knows this id: Connect returned it, or kConnectRequest was polled
  std::string uri;
  std::string peer_name;
  std::deque<std::string> inbox;  // frames
  bool connected_due = false;     // kConnected is to be told
  absl::Status close_status;
  std::deque<Batch> batches;
  size_t reads_posted = 0;
  std::set<uint32_t> exposed;  // keys that the peer may READ
  uint16_t credits = 0;        // frames that we may send now
  uint16_t credits_max = 0;
  uint32_t frame_bytes_max = 0;
  bool cut = false;
  bool reads_held = false;
  absl::Status fail_next_reads;
};

class FakeDomain final : public rdma::Domain {
 public:
  FakeDomain(Network* network, absl::string_view name) : network_(network), name_(name) {}

  absl::StatusOr<std::unique_ptr<Memory>> Register(rdma::HostMemory& memory,
                                                   Access access) override;
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(size_t bytes, Access access) override;
  absl::StatusOr<std::unique_ptr<rdma::Transport>> NewTransport(
      const rdma::TransportOptions& options) override;
  std::string Describe() const override { return absl::StrCat("transport=fake device=", name_); }

 private:
  Network* const network_;
  const std::string name_;
};

class FakeTransport final : public rdma::Transport {
 public:
  FakeTransport(Network* network, std::string domain_name, const rdma::TransportOptions& options)
      : network_(network),
        domain_name_(std::move(domain_name)),
        options_(options),
        event_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    assert(event_fd_ >= 0);
    network_->transports_.push_back(this);
  }
  ~FakeTransport() override;

  absl::StatusOr<std::string> Listen(absl::string_view uri, uint64_t incarnation) override;
  absl::StatusOr<ConnectionId> Connect(absl::string_view uri) override;
  absl::Status Accept(ConnectionId id) override;
  void Reject(ConnectionId id, RejectReason reason) override;
  absl::StatusOr<RemoteMemory> Expose(ConnectionId id, const Memory& memory) override;
  absl::Status Attach(ConnectionId id, const RemoteMemory& remote) override;
  absl::Status PostReads(ConnectionId id, absl::Span<const ReadRequest> reads,
                         uint64_t cookie) override;
  size_t ReadRoom(ConnectionId id) const override;
  absl::Status Send(ConnectionId id, absl::Span<const Bytes> pieces) override;
  size_t SendRoom(ConnectionId id) const override;
  void Disconnect(ConnectionId id) override;
  size_t Poll(absl::Span<Event> events) override;
  bool Arm() override;
  int fd() const override { return event_fd_; }
  rdma::ConnectionLimits limits(ConnectionId id) const override;
  std::string Describe(ConnectionId id) const override;
  Resources resources() const override;

  const std::string& domain_name() const { return domain_name_; }
  const rdma::TransportOptions& options() const { return options_; }
  void Wake();
  void LoseDevice() { device_lost_due_ = true, Wake(); }

 private:
  End* Own(ConnectionId id) const;
  End* OpenEnd(ConnectionId id) const;
  bool HasEvent(const End& end) const;
  bool NextEvent(End& end, Event& event);
  bool NextClosingEvent(End& end, Event& event);
  void ReturnCredits();

  Network* const network_;
  const std::string domain_name_;
  const rdma::TransportOptions options_;
  const int event_fd_;
  bool armed_ = false;
  bool device_lost_due_ = false;
  // Frames handed out by the last Poll, and the senders whose credits come back when they are
  // freed.
  std::vector<std::unique_ptr<std::string>> lent_;
  std::vector<ConnectionId> lent_by_;
};

// --- Network
// -------------------------------------------------------------------------------------------------

Network::Network(const NetworkOptions& options) : options_(options), random_(options.seed) {}

Network::~Network() { assert(transports_.empty()); }

std::unique_ptr<rdma::Domain> Network::NewDomain(absl::string_view name) {
  return std::make_unique<FakeDomain>(this, name);
}

End* Network::Find(ConnectionId id) {
  auto it = ends_.find(id);
  return it == ends_.end() ? nullptr : it->second.get();
}

const End* Network::Find(ConnectionId id) const { return const_cast<Network*>(this)->Find(id); }

ConnectionId Network::Peer(ConnectionId id) const {
  const End* end = Find(id);
  return end == nullptr ? ConnectionId::kNone : end->peer;
}

End& Network::NewEnd(FakeTransport* transport) {
  auto end = std::make_unique<End>();
  end->id = static_cast<ConnectionId>(++last_id_);
  end->transport = transport;
  End& result = *end;
  ends_[result.id] = std::move(end);
  return result;
}

void Network::Close(End& end, absl::Status status, bool lose_frames) {
  if (end.state == End::State::kClosing) return;
  end.state = End::State::kClosing;
  end.close_status = std::move(status);
  if (lose_frames) end.inbox.clear();
  end.transport->Wake();
}

void Network::Break(ConnectionId id, bool lose_frames) {
  End* end = Find(id);
  if (end == nullptr) return;
  if (End* peer = Find(end->peer))
    Close(*peer, rdma::PeerGoneError("the connection broke"), lose_frames);
  Close(*end, rdma::PeerGoneError("the connection broke"), lose_frames);
}

void Network::Cut(ConnectionId id) {
  End* end = Find(id);
  if (end == nullptr) return;
  end->cut = true;
  if (End* peer = Find(end->peer)) peer->cut = true;
}

void Network::HoldReads(ConnectionId id, bool held) {
  End* end = Find(id);
  if (end == nullptr) return;
  end->reads_held = held;
  end->transport->Wake();
}

void Network::FailNextReads(ConnectionId id, absl::Status status) {
  assert(!status.ok());
  if (End* end = Find(id)) end->fail_next_reads = std::move(status);
}

void Network::LoseDevice(absl::string_view domain_name) {
  for (FakeTransport* transport : transports_) {
    if (transport->domain_name() == domain_name) transport->LoseDevice();
  }
}

// Copies the first `bytes` of what `read` asks for, piece by piece.
void Network::Copy(absl::Span<const std::byte> from, const ReadRequest& read, size_t bytes) {
  const size_t piece =
      options_.read_piece_bytes == 0 ? std::max<size_t>(bytes, 1) : options_.read_piece_bytes;
  std::vector<size_t> starts;
  for (size_t start = 0; start < bytes; start += piece) starts.push_back(start);
  if (options_.shuffle_pieces) std::shuffle(starts.begin(), starts.end(), random_);
  for (size_t start : starts) {
    const size_t length = std::min(piece, bytes - start);
    if (before_piece) before_piece(from.subspan(start, length));
    // The local end may be split in two, anywhere.
    const size_t first = std::min<size_t>(read.segments[0].length, start + length);
    if (start < first)
      std::memcpy(read.segments[0].data + start, from.data() + start, first - start);
    const size_t rest = std::max(start, first);
    if (rest < start + length) {
      std::memcpy(read.segments[1].data + (rest - read.segments[0].length), from.data() + rest,
                  start + length - rest);
    }
  }
}

static size_t ReadBytes(const ReadRequest& read) {
  size_t bytes = read.segments[0].length;
  if (read.segment_count == 2) bytes += read.segments[1].length;
  return bytes;
}

absl::Status Network::Execute(End& end, const std::vector<ReadRequest>& reads) {
  for (const ReadRequest& read : reads) {
    const size_t bytes = ReadBytes(read);
    End* peer = Find(end.peer);
    if (peer == nullptr) return rdma::PeerGoneError("the peer is gone");
    auto memory = memories_.find(read.remote_key);
    if (memory == memories_.end() || peer->exposed.count(read.remote_key) == 0) {
      return rdma::PeerGoneError("remote access error: a READ of memory that was not exposed");
    }
    const uint64_t base = memory->second->remote_address();
    const size_t size = memory->second->size();
    if (read.remote_address < base || read.remote_address - base > size ||
        size - (read.remote_address - base) < bytes) {
      return rdma::PeerGoneError("remote access error: a READ outside of what was exposed");
    }
    const bool fails = !end.fail_next_reads.ok();
    Copy({memory->second->data() + (read.remote_address - base), bytes}, read,
         fails ? bytes / 2 : bytes);
    if (fails) return std::exchange(end.fail_next_reads, absl::OkStatus());
    ++reads_executed_;
  }
  return absl::OkStatus();
}

// --- Domain
// --------------------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Memory>> FakeDomain::Register(rdma::HostMemory& memory,
                                                             Access access) {
  return std::make_unique<FakeMemory>(network_, memory.data(), memory.size(), access, nullptr);
}

absl::StatusOr<std::unique_ptr<Memory>> FakeDomain::Allocate(size_t bytes, Access access) {
  constexpr size_t kPageBytes = 4096;
  bytes = (std::max<size_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* data = std::aligned_alloc(kPageBytes, bytes);
  if (data == nullptr) return absl::ResourceExhaustedError("out of memory");
  std::memset(data, 0, bytes);
  return std::make_unique<FakeMemory>(network_, static_cast<std::byte*>(data), bytes, access, data);
}

absl::StatusOr<std::unique_ptr<rdma::Transport>> FakeDomain::NewTransport(
    const rdma::TransportOptions& options) {
  if (options.receive_credits < 2)
    return absl::InvalidArgumentError("receive_credits must be at least 2");
  return std::make_unique<FakeTransport>(network_, name_, options);
}

// --- Transport
// -----------------------------------------------------------------------------------------------

FakeTransport::~FakeTransport() {
  ReturnCredits();
  for (auto it = network_->ends_.begin(); it != network_->ends_.end();) {
    End& end = *it->second;
    if (end.transport != this) {
      ++it;
      continue;
    }
    if (End* peer = network_->Find(end.peer); peer != nullptr && !end.cut) {
      network_->Close(*peer, rdma::PeerGoneError("the peer is gone"), /*lose_frames=*/false);
    }
    it = network_->ends_.erase(it);
  }
  for (auto it = network_->listeners_.begin(); it != network_->listeners_.end();) {
    it = it->second == this ? network_->listeners_.erase(it) : std::next(it);
  }
  auto& all = network_->transports_;
  all.erase(std::find(all.begin(), all.end(), this));
  close(event_fd_);
}

void FakeTransport::Wake() {
  if (!armed_) return;
  armed_ = false;
  const uint64_t one = 1;
  const ssize_t written = write(event_fd_, &one, sizeof(one));
  assert(written == sizeof(one));
  (void)written;
}

End* FakeTransport::Own(ConnectionId id) const {
  End* end = network_->Find(id);
  assert(end == nullptr || end->transport == this);
  return end;
}

End* FakeTransport::OpenEnd(ConnectionId id) const {
  End* end = Own(id);
  return end != nullptr && end->state == End::State::kOpen ? end : nullptr;
}

absl::StatusOr<std::string> FakeTransport::Listen(absl::string_view uri, uint64_t incarnation) {
  assert(incarnation != 0);
  (void)incarnation;
  std::string address(uri);
  if (absl::EndsWith(address, ":0")) {
    address = absl::StrCat(uri.substr(0, uri.size() - 1), ++network_->last_port_);
  }
  if (!network_->listeners_.emplace(address, this).second) return rdma::AddressInUseError(address);
  return address;
}

absl::StatusOr<ConnectionId> FakeTransport::Connect(absl::string_view uri) {
  if (uri.empty()) return absl::InvalidArgumentError("an empty address");
  End& end = network_->NewEnd(this);
  end.announced = true;
  end.uri = std::string(uri);
  auto listener = network_->listeners_.find(end.uri);
  if (listener == network_->listeners_.end()) {
    network_->Close(end, rdma::NoListenerError(uri), true);
    return end.id;
  }
  End& other = network_->NewEnd(listener->second);
  other.state = End::State::kRequested;
  other.uri = end.uri;
  other.peer = end.id;
  other.peer_name = absl::StrCat(domain_name_, "#", static_cast<uint64_t>(end.id));
  end.peer = other.id;
  other.transport->Wake();
  return end.id;
}

// Both ends know now what the other offered.
static void Open(End& end, const FakeTransport& peer_transport) {
  end.state = End::State::kOpen;
  end.connected_due = true;
  end.credits = end.credits_max = peer_transport.options().receive_credits;
  end.frame_bytes_max =
      std::min(end.transport->options().frame_bytes_max, peer_transport.options().frame_bytes_max);
  end.transport->Wake();
}

absl::Status FakeTransport::Accept(ConnectionId id) {
  End* end = Own(id);
  if (end == nullptr || end->state != End::State::kRequested)
    return absl::UnavailableError("the peer is gone");
  End* peer = network_->Find(end->peer);
  if (peer == nullptr || peer->state != End::State::kConnecting || end->cut) {
    return absl::UnavailableError("the peer is gone");
  }
  Open(*end, *peer->transport);
  Open(*peer, *this);
  return absl::OkStatus();
}

void FakeTransport::Reject(ConnectionId id, RejectReason reason) {
  End* end = Own(id);
  if (end == nullptr || end->state != End::State::kRequested) return;
  if (End* peer = network_->Find(end->peer)) {
    absl::Status status;
    switch (reason) {
      case RejectReason::kTooManyConnections:
        status = rdma::RefusedError(end->uri);
        break;
      case RejectReason::kShuttingDown:
        status = rdma::ShuttingDownError(end->uri);
        break;
      case RejectReason::kNone:
      case RejectReason::kVersionMismatch:
        status = absl::UnavailableError("rejected");
        break;
    }
    network_->Close(*peer, std::move(status), true);
  }
  network_->Close(*end, absl::OkStatus(), true);
}

absl::StatusOr<RemoteMemory> FakeTransport::Expose(ConnectionId id, const Memory& memory) {
  End* end = OpenEnd(id);
  if (end == nullptr) return absl::UnavailableError("not connected");
  const auto& fake = static_cast<const FakeMemory&>(memory);
  assert(fake.access() == Access::kRemoteRead);
  end->exposed.insert(fake.key());
  return RemoteMemory{fake.remote_address(), fake.size(), fake.key()};
}

absl::Status FakeTransport::Attach(ConnectionId id, const RemoteMemory& remote) {
  End* end = OpenEnd(id);
  if (end == nullptr) return absl::UnavailableError("not connected");
  const End* peer = network_->Find(end->peer);
  if (peer != nullptr && peer->exposed.count(remote.key) == 0) {
    return absl::InvalidArgumentError("the peer did not expose this memory");
  }
  return absl::OkStatus();
}

absl::Status FakeTransport::PostReads(ConnectionId id, absl::Span<const ReadRequest> reads,
                                      uint64_t cookie) {
  End* end = OpenEnd(id);
  if (end == nullptr) return absl::UnavailableError("not connected");
  assert(!reads.empty());
  if (reads.size() > ReadRoom(id)) return absl::ResourceExhaustedError("too many READs in flight");
  for (const ReadRequest& read : reads) {
    assert(read.segment_count >= 1 && read.segment_count <= 2);
    assert(ReadBytes(read) <= network_->options_.read_bytes_max);
    for (uint32_t i = 0; i < read.segment_count; ++i) {
      const rdma::LocalSegment& segment = read.segments[i];
      assert(segment.memory != nullptr && segment.data >= segment.memory->data());
      assert(segment.data + segment.length <= segment.memory->data() + segment.memory->size());
      (void)segment;
    }
  }
  end->batches.push_back({{reads.begin(), reads.end()}, cookie});
  end->reads_posted += reads.size();
  return absl::OkStatus();
}

size_t FakeTransport::ReadRoom(ConnectionId id) const {
  const End* end = OpenEnd(id);
  return end == nullptr ? 0 : options_.reads_in_flight_max - end->reads_posted;
}

absl::Status FakeTransport::Send(ConnectionId id, absl::Span<const Bytes> pieces) {
  End* end = OpenEnd(id);
  if (end == nullptr) return absl::UnavailableError("not connected");
  std::string frame;
  for (Bytes piece : pieces)
    frame.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  if (frame.empty()) return absl::InvalidArgumentError("an empty frame");
  if (frame.size() > end->frame_bytes_max)
    return absl::InvalidArgumentError("the frame is too long");
  if (end->credits == 0) return absl::ResourceExhaustedError("no credit");
  --end->credits;
  End* peer = network_->Find(end->peer);
  if (end->cut || peer == nullptr || peer->state != End::State::kOpen) return absl::OkStatus();
  peer->inbox.push_back(std::move(frame));
  peer->transport->Wake();
  return absl::OkStatus();
}

size_t FakeTransport::SendRoom(ConnectionId id) const {
  const End* end = OpenEnd(id);
  return end == nullptr ? 0 : end->credits;
}

void FakeTransport::Disconnect(ConnectionId id) {
  End* end = Own(id);
  if (end == nullptr) return;
  if (End* peer = network_->Find(end->peer); peer != nullptr && !end->cut) {
    // What was sent before still arrives.
    network_->Close(*peer, absl::OkStatus(), /*lose_frames=*/false);
  }
  network_->Close(*end, absl::OkStatus(), /*lose_frames=*/true);
}

bool FakeTransport::HasEvent(const End& end) const {
  switch (end.state) {
    case End::State::kRequested:
      return !end.announced;
    case End::State::kConnecting:
      return false;
    case End::State::kOpen:
      return end.connected_due || !end.inbox.empty() ||
             (!end.batches.empty() && !end.reads_held && !end.cut);
    case End::State::kClosing:
      return true;
  }
  return false;
}

bool FakeTransport::NextEvent(End& end, Event& event) {
  event = Event();
  event.connection = end.id;
  if (end.state == End::State::kRequested) {
    if (end.announced) return false;
    end.announced = true;
    event.kind = Event::Kind::kConnectRequest;
    event.text = end.peer_name;
    return true;
  }
  if (end.state == End::State::kConnecting) return false;
  if (end.connected_due) {
    end.connected_due = false;
    event.kind = Event::Kind::kConnected;
    return true;
  }
  if (!end.inbox.empty()) {
    event.kind = Event::Kind::kReceived;
    lent_.push_back(std::make_unique<std::string>(std::move(end.inbox.front())));
    lent_by_.push_back(end.peer);
    end.inbox.pop_front();
    const std::string& frame = *lent_.back();
    event.frame = Bytes(reinterpret_cast<const std::byte*>(frame.data()), frame.size());
    return true;
  }
  if (end.state == End::State::kClosing) return NextClosingEvent(end, event);
  return false;
}

// READs that were posted end first, then the connection.
bool FakeTransport::NextClosingEvent(End& end, Event& event) {
  if (!end.batches.empty()) {
    event.kind = Event::Kind::kReadsDone;
    event.cookie = end.batches.front().cookie;
    event.status = absl::UnavailableError("flushed");
    end.reads_posted -= end.batches.front().reads.size();
    end.batches.pop_front();
    return true;
  }
  event.kind = Event::Kind::kDisconnected;
  event.status = end.close_status;
  const bool announced = end.announced;
  if (End* peer = network_->Find(end.peer)) peer->peer = ConnectionId::kNone;
  network_->ends_.erase(end.id);
  return announced;
}

void FakeTransport::ReturnCredits() {
  for (ConnectionId sender : lent_by_) {
    End* end = network_->Find(sender);
    if (end == nullptr || end->state != End::State::kOpen || end->cut) continue;
    ++end->credits;
    assert(end->credits <= end->credits_max);
  }
  lent_by_.clear();
  lent_.clear();
}

size_t FakeTransport::Poll(absl::Span<Event> events) {
  ReturnCredits();
  size_t count = 0;
  if (device_lost_due_ && count < events.size()) {
    device_lost_due_ = false;
    events[count] = Event();
    events[count++].kind = Event::Kind::kDeviceLost;
  }
  std::vector<ConnectionId> mine;
  for (const auto& [id, end] : network_->ends_) {
    if (end->transport == this) mine.push_back(id);
  }
  for (ConnectionId id : mine) {
    // One batch of READs each: their event goes first, as nothing orders it against frames.
    End* end = network_->Find(id);
    if (count < events.size() && end != nullptr && end->state == End::State::kOpen &&
        !end->batches.empty() && !end->reads_held && !end->cut) {
      if (network_->before_reads) network_->before_reads(id);
      end = network_->Find(id);
      if (end->state == End::State::kOpen && !end->cut && !end->reads_held) {
        const End::Batch batch = std::move(end->batches.front());
        end->batches.pop_front();
        end->reads_posted -= batch.reads.size();
        Event& event = events[count++];
        event = Event();
        event.kind = Event::Kind::kReadsDone;
        event.connection = id;
        event.cookie = batch.cookie;
        event.status = network_->Execute(*end, batch.reads);
        // A READ that fails puts the queue pairs of both ends in error.
        if (!event.status.ok()) network_->Break(id, /*lose_frames=*/false);
      }
    }
    while (count < events.size() && (end = network_->Find(id)) != nullptr &&
           NextEvent(*end, events[count]))
      ++count;
    if (count == events.size()) break;
  }
  return count;
}

bool FakeTransport::Arm() {
  uint64_t drained = 0;
  while (read(event_fd_, &drained, sizeof(drained)) > 0) {
  }
  armed_ = true;
  if (device_lost_due_) return armed_ = false;
  for (const auto& [id, end] : network_->ends_) {
    if (end->transport == this && HasEvent(*end)) return armed_ = false;
  }
  return true;
}

rdma::ConnectionLimits FakeTransport::limits(ConnectionId id) const {
  const End* end = Own(id);
  assert(end != nullptr);
  rdma::ConnectionLimits limits;
  limits.frame_bytes_max = end->frame_bytes_max;
  limits.send_credits_max = end->credits_max;
  limits.reads_in_flight_max = options_.reads_in_flight_max;
  limits.read_depth = network_->options_.read_depth;
  limits.read_bytes_max = network_->options_.read_bytes_max;
  return limits;
}

std::string FakeTransport::Describe(ConnectionId) const {
  return absl::StrCat("transport=fake device=", domain_name_);
}

rdma::Transport::Resources FakeTransport::resources() const {
  Resources resources;
  for (const auto& [id, end] : network_->ends_)
    resources.connections += end->transport == this ? 1 : 0;
  return resources;
}

}  // namespace osprey::fake
