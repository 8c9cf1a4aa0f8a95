#include "tests/fuzz/support/hostile_transport.h"

#include <cstring>
#include <utility>

#include "tests/fuzz/support/input.h"

namespace osprey::fuzz {

using rdma::ConnectionId;
using rdma::Event;
using rdma::RemoteMemory;

namespace {

// Remote addresses are no pointers.
constexpr int kAddressKeyShift = 40;
// Of what can be seen.
constexpr uint64_t kViewBytesMax = 8 << 20;

uint64_t BytesOf(const rdma::ReadRequest& read) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < read.segment_count; ++i) bytes += read.segments[i].length;
  return bytes;
}

void CheckSegments(const rdma::ReadRequest& read) {
  OSPREY_MUST(read.segment_count >= 1 && read.segment_count <= 2, "the segments of a READ");
  for (uint32_t i = 0; i < read.segment_count; ++i) {
    const rdma::LocalSegment& segment = read.segments[i];
    OSPREY_MUST(
        segment.memory != nullptr && segment.data >= segment.memory->data() &&
            segment.data + segment.length <= segment.memory->data() + segment.memory->size(),
        "a READ that lands outside of registered memory");
  }
}

}  // namespace

// --- The script's side ---------------------------------------------------------------------------

void HostileTransport::Accept(const rdma::ConnectionLimits& limits) {
  if (state_ != State::kConnecting) return;
  state_ = State::kOpen;
  limits_ = limits;
  credits_ = limits.send_credits_max;
  Event event;
  event.kind = Event::Kind::kConnected;
  event.connection = id_;
  events_.push_back(event);
}

void HostileTransport::Deliver(std::string frame) {
  if (state_ != State::kOpen || frame.empty() || frame.size() > limits_.frame_bytes_max) return;
  Event event;
  event.kind = Event::Kind::kReceived;
  event.connection = id_;
  events_.push_back(event);
  frames_.push_back(std::move(frame));
}

void HostileTransport::FinishReads(size_t number, bool ok) {
  if (number >= batches_.size()) return;
  const Batch batch = std::move(batches_[number]);
  batches_.erase(batches_.begin() + static_cast<ptrdiff_t>(number));
  reads_in_flight_ -= batch.reads.size();
  Event event;
  event.kind = Event::Kind::kReadsDone;
  event.connection = id_;
  event.cookie = batch.cookie;
  for (const rdma::ReadRequest& read : batch.reads) {
    CheckSegments(read);  // still: the memory was not given back
    Land(read);
  }
  if (!ok) event.status = absl::UnavailableError("a READ failed");
  events_.push_back(event);
  if (!ok) End(event.status);
}

void HostileTransport::Land(const rdma::ReadRequest& read) {
  std::vector<std::byte> bytes(BytesOf(read));
  // Flushed, with the region gone: whatever.
  const uint64_t offset = read.remote_address - region_.address;
  if (attached_) reader_(offset, absl::MakeSpan(bytes));
  if (attached_ && !view_.empty()) std::memcpy(view_.data() + offset, bytes.data(), bytes.size());
  size_t at = 0;
  for (uint32_t i = 0; i < read.segment_count; ++i) {
    std::memcpy(read.segments[i].data, bytes.data() + at, read.segments[i].length);
    at += read.segments[i].length;
  }
}

void HostileTransport::FlushReads() {
  while (!batches_.empty()) {
    const Batch batch = std::move(batches_.front());
    batches_.pop_front();
    Event event;
    event.kind = Event::Kind::kReadsDone;
    event.connection = id_;
    event.cookie = batch.cookie;
    event.status = absl::UnavailableError("flushed");
    for (const rdma::ReadRequest& read : batch.reads) {
      CheckSegments(read);
      std::memset(read.segments[0].data, 0x5c, read.segments[0].length / 2);
    }
    events_.push_back(event);
  }
  reads_in_flight_ = 0;
}

void HostileTransport::End(absl::Status status) {
  if (state_ == State::kNone) return;
  FlushReads();
  Event event;
  event.kind = Event::Kind::kDisconnected;
  event.connection = id_;
  event.status = std::move(status);
  events_.push_back(event);
  state_ = State::kNone;
  attached_ = false;
  exposed_.clear();
  sent_.clear();
}

const std::byte* HostileTransport::Exposed(uint64_t address, uint64_t length, uint32_t key) const {
  for (const auto& [memory, its_key] : exposed_) {
    if (its_key != key) continue;
    const uint64_t base = uint64_t{key} << kAddressKeyShift;
    if (address < base || address - base > memory->size() ||
        length > memory->size() - (address - base)) {
      return nullptr;
    }
    return memory->data() + (address - base);
  }
  return nullptr;
}

// --- The engine's --------------------------------------------------------------------------------

absl::StatusOr<std::string> HostileTransport::Listen(absl::string_view, uint64_t) {
  return absl::UnimplementedError("a client's");
}
absl::Status HostileTransport::Accept(ConnectionId) {
  return absl::UnimplementedError("a client's");
}
absl::Status HostileTransport::Migrate(ConnectionId, rdma::Transport&) {
  return absl::UnimplementedError("a client's");
}

absl::StatusOr<ConnectionId> HostileTransport::Connect(absl::string_view, uint32_t, uint16_t) {
  OSPREY_MUST(state_ == State::kNone, "two connections at once");
  state_ = State::kConnecting;
  id_ = static_cast<ConnectionId>(++last_id_);
  return id_;
}

absl::StatusOr<RemoteMemory> HostileTransport::Expose(ConnectionId id, const rdma::Memory& memory) {
  if (!IsOpen(id)) return absl::UnavailableError("not connected");
  auto [found, inserted] = exposed_.try_emplace(&memory, last_key_ + 1);
  if (inserted) ++last_key_;
  return RemoteMemory{uint64_t{found->second} << kAddressKeyShift, memory.size(), found->second};
}

absl::StatusOr<RemoteMemory> HostileTransport::Announce(ConnectionId id,
                                                        const rdma::Memory& memory) {
  return Expose(id, memory);
}

void HostileTransport::Withdraw(ConnectionId id, const rdma::Memory& memory) {
  if (IsOpen(id)) exposed_.erase(&memory);
}

absl::Status HostileTransport::Attach(ConnectionId id, const RemoteMemory& remote) {
  if (!IsOpen(id)) return absl::UnavailableError("not connected");
  if (attach_fails_) return absl::InvalidArgumentError("the peer did not expose this memory");
  region_ = remote;
  attached_ = true;
  const bool is_seen = has_view_ && remote.address % sizeof(uint64_t) == 0;
  view_.assign(is_seen && remote.length <= kViewBytesMax ? remote.length : 0, std::byte{0});
  return absl::OkStatus();
}

absl::Status HostileTransport::PostReads(ConnectionId id, absl::Span<const rdma::ReadRequest> reads,
                                         uint64_t cookie) {
  if (!IsOpen(id)) return absl::UnavailableError("not connected");
  OSPREY_MUST(!reads.empty() && attached_, "a READ of a region that is not attached");
  OSPREY_MUST(reads.size() <= ReadRoom(id), "more READs than there is room for");
  for (const rdma::ReadRequest& read : reads) CheckRead(read);
  reads_ += reads.size();
  reads_in_flight_ += reads.size();
  batches_.push_back({{reads.begin(), reads.end()}, cookie});
  return absl::OkStatus();
}

void HostileTransport::CheckRead(const rdma::ReadRequest& read) const {
  CheckSegments(read);
  const uint64_t bytes = BytesOf(read);
  OSPREY_MUST(bytes > 0 && bytes <= limits_.read_bytes_max, "a READ that is too long");
  OSPREY_MUST(read.remote_key == region_.key, "a READ under another key");
  OSPREY_MUST(read.remote_address >= region_.address && bytes <= region_.length &&
                  read.remote_address - region_.address <= region_.length - bytes,
              "a READ outside of the attached region");
}

rdma::Bytes HostileTransport::View(ConnectionId id, const RemoteMemory& remote) const {
  if (!IsOpen(id) || !attached_) return {};
  OSPREY_MUST(remote.key == region_.key && remote.address == region_.address &&
                  remote.length == region_.length,
              "a view of a region that is not attached");
  return view_;
}

absl::Status HostileTransport::ReadNow(ConnectionId id, absl::Span<const rdma::ReadRequest> reads) {
  if (!IsOpen(id)) return absl::UnavailableError("not connected");
  OSPREY_MUST(!reads.empty() && !view_.empty(), "READs now of what is not seen");
  for (const rdma::ReadRequest& read : reads) {
    CheckRead(read);
    Land(read);
  }
  reads_ += reads.size();
  return absl::OkStatus();
}

size_t HostileTransport::ReadRoom(ConnectionId id) const {
  return IsOpen(id) ? limits_.reads_in_flight_max - reads_in_flight_ : 0;
}

absl::Status HostileTransport::Send(ConnectionId id, absl::Span<const rdma::Bytes> pieces) {
  if (!IsOpen(id)) return absl::UnavailableError("not connected");
  std::string frame;
  for (rdma::Bytes piece : pieces)
    frame.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  OSPREY_MUST(!frame.empty() && frame.size() <= limits_.frame_bytes_max,
              "a frame that is too long");
  if (credits_ == 0) return absl::ResourceExhaustedError("no credit");
  --credits_;
  sent_.push_back(std::move(frame));
  return absl::OkStatus();
}

size_t HostileTransport::SendRoom(ConnectionId id) const { return IsOpen(id) ? credits_ : 0; }

// What is left of it shows when the script says End.
void HostileTransport::Disconnect(ConnectionId id) {
  if (id != id_ || state_ == State::kNone) return;
  state_ = State::kClosing;
}

bool HostileTransport::PollReads(ReadsDone& done) {
  if (events_.empty() || events_.front().kind != Event::Kind::kReadsDone) return false;
  done = {events_.front().connection, events_.front().cookie, events_.front().status};
  events_.pop_front();
  return true;
}

size_t HostileTransport::Poll(absl::Span<Event> events) {
  lent_.clear();
  size_t count = 0;
  if (device_lost_ && count < events.size()) {
    device_lost_ = false;
    events[count] = Event();
    events[count++].kind = Event::Kind::kDeviceLost;
  }
  for (; count < events.size() && !events_.empty(); ++count) {
    Event& event = events[count];
    event = std::move(events_.front());
    events_.pop_front();
    if (event.kind != Event::Kind::kReceived) continue;
    lent_.push_back(std::make_unique<std::string>(std::move(frames_.front())));
    frames_.pop_front();
    // Of the exact length, for the address sanitizer.
    lent_.back()->shrink_to_fit();
    event.frame = {reinterpret_cast<const std::byte*>(lent_.back()->data()), lent_.back()->size()};
  }
  return count;
}

rdma::ConnectionLimits HostileTransport::limits(ConnectionId id) const {
  return id == id_ && state_ == State::kOpen ? limits_ : rdma::ConnectionLimits();
}

}  // namespace osprey::fuzz
