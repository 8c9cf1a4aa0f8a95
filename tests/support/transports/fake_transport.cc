#include "tests/support/transports/fake_transport.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rdma/errors.h"
#include "rdma/handshake.h"
#include "tests/support/transports/fake_transport_internal.h"

namespace osprey::fake {

FakeTransport::FakeTransport(Network* network, std::string domain_name,
                             const rdma::TransportOptions& options)
    : network_(network),
      domain_name_(std::move(domain_name)),
      options_(options),
      event_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  assert(event_fd_ >= 0);
  network_->transports_.push_back(this);
}

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
  if (network_->ended_domains_.contains(domain_name_)) return rdma::PeerGoneError("it has ended");
  std::string address(uri);
  if (absl::EndsWith(address, ":0")) {
    address = absl::StrCat(uri.substr(0, uri.size() - 1), ++network_->last_port_);
  }
  if (!network_->listeners_.emplace(address, this).second) return rdma::AddressInUseError(address);
  return address;
}

absl::StatusOr<ConnectionId> FakeTransport::Connect(absl::string_view uri, uint32_t affinity,
                                                    uint16_t version) {
  if (uri.empty()) return absl::InvalidArgumentError("an empty address");
  End& end = network_->NewEnd(this);
  end.announced = true;
  end.uri = std::string(uri);
  auto listener = network_->listeners_.find(end.uri);
  const bool has_ended = network_->ended_domains_.contains(domain_name_);
  if (listener == network_->listeners_.end() || has_ended) {
    network_->Close(end, rdma::NoListenerError(uri), true);
    return end.id;
  }
  const auto known = network_->versions_.find(end.uri);
  const uint16_t newest =
      known == network_->versions_.end() ? rdma::kProtocolVersion : known->second;
  end.version = version == 0 ? rdma::kProtocolVersion : version;
  if (end.version > newest || end.version < rdma::OldestServed(newest)) {
    network_->Close(end, rdma::VersionMismatchError(end.version, newest), true);
    return end.id;
  }
  End& other = network_->NewEnd(listener->second);
  other.version = end.version;
  other.state = End::State::kRequested;
  other.uri = end.uri;
  other.peer = end.id;
  other.affinity = affinity;
  other.peer_name = absl::StrCat(domain_name_, "#", static_cast<uint64_t>(end.id));
  end.peer = other.id;
  other.transport->Wake();
  return end.id;
}

// Both ends have received the other's parameters.
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
    network_->Close(*end, rdma::PeerGoneError("the peer is gone"), true);  // an explicit error
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
      case RejectReason::kTooManyFromSource:
        status = rdma::SourceRefusedError(end->uri);
        break;
      case RejectReason::kTooManyUnauthenticated:
        status = rdma::UnauthenticatedRefusedError(end->uri);
        break;
      case RejectReason::kSourceHoldsDescriptors:
        status = rdma::DescriptorsRefusedError(end->uri);
        break;
      case RejectReason::kShuttingDown:
        status = rdma::ShuttingDownError(end->uri);
        break;
      case RejectReason::kNotServing:
        status = rdma::NotServingError(end->uri);
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

absl::Status FakeTransport::Migrate(ConnectionId id, rdma::Transport& other) {
  End* end = Own(id);
  if (end == nullptr || end->state != End::State::kRequested)
    return absl::UnavailableError("the peer is gone");
  auto& to = static_cast<FakeTransport&>(other);
  assert(&to != this);
  End& moved = network_->NewEnd(&to);
  moved.state = End::State::kRequested;
  moved.uri = end->uri;
  moved.peer = end->peer;
  moved.peer_name = end->peer_name;
  moved.affinity = end->affinity;
  if (End* peer = network_->Find(end->peer)) peer->peer = moved.id;
  network_->ends_.erase(id);
  to.Wake();
  return absl::OkStatus();
}

absl::StatusOr<RemoteMemory> FakeTransport::Expose(ConnectionId id, const Memory& memory) {
  absl::StatusOr<RemoteMemory> remote = Announce(id, memory);
  if (remote.ok()) OpenEnd(id)->exposed.insert(remote->key);
  return remote;
}

absl::StatusOr<RemoteMemory> FakeTransport::Announce(ConnectionId id, const Memory& memory) {
  if (OpenEnd(id) == nullptr) return absl::UnavailableError("not connected");
  const auto& fake = static_cast<const FakeMemory&>(memory);
  assert(fake.access() == Access::kRemoteRead);
  const uint32_t exposed_max = network_->exposed_max;
  if (exposed_max != 0 && OpenEnd(id)->told_of.count(fake.key()) == 0 &&
      OpenEnd(id)->told_of.size() >= exposed_max)
    return rdma::TooManyExposedError(exposed_max);
  OpenEnd(id)->told_of.insert(fake.key());
  return RemoteMemory{fake.remote_address(), fake.size(), fake.key()};
}

void FakeTransport::Withdraw(ConnectionId id, const Memory& memory) {
  End* end = OpenEnd(id);
  if (end == nullptr) return;
  end->exposed.erase(static_cast<const FakeMemory&>(memory).key());
  end->told_of.erase(static_cast<const FakeMemory&>(memory).key());
}

absl::Status FakeTransport::Attach(ConnectionId id, const RemoteMemory& remote) {
  End* end = OpenEnd(id);
  if (end == nullptr) return absl::UnavailableError("not connected");
  const End* peer = network_->Find(end->peer);
  if (peer != nullptr && peer->told_of.count(remote.key) == 0) {
    return absl::InvalidArgumentError("the peer did not expose this memory");
  }
  return absl::OkStatus();
}

void FakeTransport::CheckReads(absl::Span<const ReadRequest> reads) const {
  assert(!reads.empty());
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
}

absl::Status FakeTransport::PostReads(ConnectionId id, absl::Span<const ReadRequest> reads,
                                      uint64_t cookie) {
  End* end = OpenEnd(id);
  if (end == nullptr) return absl::UnavailableError("not connected");
  CheckReads(reads);
  if (reads.size() > ReadRoom(id)) return absl::ResourceExhaustedError("too many READs in flight");
  end->batches.push_back({{reads.begin(), reads.end()}, cookie});
  end->reads_posted += reads.size();
  return absl::OkStatus();
}

Bytes FakeTransport::View(ConnectionId id, const RemoteMemory& remote) const {
  const End* end = OpenEnd(id);
  if (!network_->options_.has_views || end == nullptr || end->cut || end->reads_held) return {};
  const End* peer = network_->Find(end->peer);
  const auto memory = network_->memories_.find(remote.key);
  if (peer == nullptr || peer->exposed.count(remote.key) == 0 ||
      memory == network_->memories_.end())
    return {};
  assert(remote.address == memory->second->remote_address() &&
         remote.length <= memory->second->size());
  return {memory->second->data(), remote.length};
}

absl::Status FakeTransport::ReadNow(ConnectionId id, absl::Span<const ReadRequest> reads) {
  CheckReads(reads);
  if (OpenEnd(id) == nullptr) return absl::UnavailableError("not connected");
  if (network_->before_reads) network_->before_reads(id);
  End* end = OpenEnd(id);
  if (end == nullptr) return absl::UnavailableError("not connected");
  absl::Status status = network_->Execute(*end, reads);
  if (!status.ok()) network_->Break(id, /*lose_frames=*/false);
  return status;
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
  network_->held_frames_ += peer->frames_held ? 1 : 0;
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
    // Frames sent before still arrive.
    network_->Close(*peer, absl::OkStatus(), /*lose_frames=*/false);
  }
  network_->Close(*end, absl::OkStatus(), /*lose_frames=*/true);
}

bool FakeTransport::HasEvent(const End& end) const {
  switch (end.state) {
    case End::State::kRequested:
      return !end.announced && network_->MayArrive(end);
    case End::State::kConnecting:
      return false;
    case End::State::kOpen:
      return ((end.connected_due || end.MayReceive()) && network_->MayArrive(end)) ||
             network_->MayRead(end);
    case End::State::kClosing:
      return !end.end_held || !end.batches.empty();
  }
  return false;
}

bool FakeTransport::NextEvent(End& end, Event& event) {
  if (!HasEvent(end)) return false;
  event = Event();
  event.connection = end.id;
  if (end.state == End::State::kRequested) {
    if (end.announced) return false;
    end.announced = true;
    event.kind = Event::Kind::kConnectRequest;
    event.text = end.peer_name;
    event.source = end.peer_name.substr(0, end.peer_name.find('#'));
    event.affinity = end.affinity;
    const auto failed = network_->failed_requests_.find(event.source);
    if (failed != network_->failed_requests_.end()) event.status = failed->second;
    return true;
  }
  if (end.state == End::State::kConnecting) return false;
  if (end.state == End::State::kOpen && !network_->MayArrive(end)) return false;
  if (end.connected_due) {
    end.connected_due = false;
    event.kind = Event::Kind::kConnected;
    return true;
  }
  if (end.MayReceive()) {
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
    // Any part of them may have landed, until now.
    for (const ReadRequest& read : end.batches.front().reads)
      std::memset(read.segments[0].data, 0x5c, read.segments[0].length / 2);
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

// Executes the next batch of this end, if it may.
bool FakeTransport::NextReads(ConnectionId id, ReadsDone& done) {
  End* end = network_->Find(id);
  if (end->state != End::State::kOpen || !network_->MayRead(*end)) return false;
  if (network_->before_reads) network_->before_reads(id);
  end = network_->Find(id);
  if (end->state != End::State::kOpen || !network_->MayRead(*end)) return false;
  const End::Batch batch = std::move(end->batches.front());
  end->batches.pop_front();
  end->reads_posted -= batch.reads.size();
  done.connection = id;
  done.cookie = batch.cookie;
  done.status = network_->Execute(*end, batch.reads);
  // A READ that fails puts the queue pairs of both ends in error.
  if (!done.status.ok()) network_->Break(id, /*lose_frames=*/false);
  return true;
}

rdma::MappedReads* FakeTransport::mapped_reads() {
  return network_->options_.has_views ? this : nullptr;
}

bool FakeTransport::PollReads(ReadsDone& done) {
  for (const auto& [id, end] : network_->ends_) {
    if (end->transport == this) return NextReads(id, done);
  }
  return false;
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
    // READs first, since their events are not ordered against frames.
    End* end = network_->Find(id);
    ReadsDone done;
    for (uint32_t left = network_->options_.read_batches_per_poll;
         left > 0 && count < events.size() && end != nullptr && NextReads(id, done); --left) {
      Event& event = events[count++];
      event = Event();
      event.kind = Event::Kind::kReadsDone;
      event.connection = id;
      event.cookie = done.cookie;
      event.status = std::move(done.status);
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
  rdma::ConnectionLimits limits;
  if (end == nullptr) return limits;
  limits.frame_bytes_max = end->frame_bytes_max;
  limits.send_credits_max = end->credits_max;
  limits.reads_in_flight_max = options_.reads_in_flight_max;
  limits.read_depth = network_->options_.read_depth;
  limits.read_bytes_max = network_->options_.read_bytes_max;
  limits.version = end->version;
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
