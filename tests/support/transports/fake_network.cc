// The network between the ends: connections, faults, and the execution of READs.

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "rdma/errors.h"
#include "rdma/host_memory.h"
#include "tests/support/transports/fake_transport.h"
#include "tests/support/transports/fake_transport_internal.h"

namespace osprey::fake {

// --- Network ------------------------------------------------------------------------------------

Network::Network(const NetworkOptions& options) : options_(options), rng_(options.seed) {
  replays_until_ = SplitMix64(options.seed).Gap(options.replays_per_10k);
}

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

bool Network::MayRead(ConnectionId id, uint32_t key) const {
  const End* peer = Find(Peer(id));
  return peer != nullptr && peer->exposed.count(key) != 0;
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

void Network::HoldEnd(ConnectionId id) {
  if (End* end = Find(id); end != nullptr) end->end_held = true;
}

void Network::HoldReads(ConnectionId id, bool held) {
  End* end = Find(id);
  if (end == nullptr) return;
  end->reads_held = held;
  end->transport->Wake();
}

void Network::HoldFrames(ConnectionId id, bool held) {
  End* end = Find(id);
  if (end == nullptr) return;
  if (held && !end->frames_held) held_frames_ += end->inbox.size();
  end->frames_held = held;
  end->transport->Wake();
}

void Network::FailNextReads(ConnectionId id, absl::Status status) {
  assert(!status.ok());
  if (End* end = Find(id)) end->fail_next_reads = std::move(status);
}

void Network::FailRequests(absl::string_view domain_name, absl::Status status) {
  failed_requests_[std::string(domain_name)] = std::move(status);
}

void Network::LoseDevice(absl::string_view domain_name) {
  for (FakeTransport* transport : transports_) {
    if (transport->domain_name() == domain_name) transport->LoseDevice();
  }
}

void Network::Haunt(ConnectionId id, const Memory& memory) {
  if (End* end = Find(id)) end->haunted_key = static_cast<const FakeMemory&>(memory).key();
}

namespace {

// The local end may be split in two, anywhere.
void Land(const ReadRequest& read, absl::Span<const std::byte> from, size_t start, size_t length) {
  const size_t first = std::min<size_t>(read.segments[0].length, start + length);
  if (start < first) std::memcpy(read.segments[0].data + start, from.data() + start, first - start);
  const size_t rest = std::max(start, first);
  if (rest < start + length) {
    std::memcpy(read.segments[1].data + (rest - read.segments[0].length), from.data() + rest,
                start + length - rest);
  }
}

bool HasLanded(const ReadRequest& read, absl::Span<const std::byte> from, size_t start,
               size_t length) {
  for (size_t i = start; i < start + length; ++i) {
    const size_t first = read.segments[0].length;
    if ((i < first ? read.segments[0].data[i] : read.segments[1].data[i - first]) != from[i])
      return false;
  }
  return true;
}

}  // namespace

size_t Network::DrawReplay(size_t pieces) {
  if (pieces == 0 || replays_until_-- > 0) return pieces;
  replays_until_ = rng_.Gap(options_.replays_per_10k);
  ++replayed_reads_;
  return rng_.Below(pieces);
}

// Copies the first `bytes` that `read` requests, piece by piece. False if the memory was released
// meanwhile.
bool Network::Copy(uint32_t key, absl::Span<const std::byte> from, const ReadRequest& read,
                   size_t bytes) {
  const size_t piece =
      options_.read_piece_bytes == 0 ? std::max<size_t>(bytes, 1) : options_.read_piece_bytes;
  std::vector<size_t> starts;
  starts.reserve(bytes / piece + 1);
  for (size_t start = 0; start < bytes; start += piece) starts.push_back(start);
  if (options_.shuffle_pieces) rng_.Shuffle(starts);
  const size_t replayed_to = DrawReplay(starts.size());
  bool replays = false;
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t start = starts[i];
    const size_t length = std::min(piece, bytes - start);
    if (before_piece) {
      const uint64_t gone = memories_gone_;
      before_piece(from.subspan(start, length));
      if (memories_gone_ != gone && memories_.count(key) == 0) return false;
    }
    if (replays && i <= replayed_to && !HasLanded(read, from, start, length)) ++changed_pieces_;
    Land(read, from, start, length);
    if (i != replayed_to || replays) continue;
    replays = true;
    i -= rng_.Below(i + 1) + 1;  // repeats from there (`++i` follows)
  }
  return true;
}

absl::Status Network::Execute(End& end, absl::Span<const ReadRequest> reads) {
  for (const ReadRequest& read : reads) {
    const size_t bytes = ReadBytes(read);
    const bool haunted = end.haunted_key != 0;
    End* peer = Find(end.peer);
    if (peer == nullptr && !haunted) return rdma::PeerGoneError("the peer is gone");
    const uint32_t key = haunted ? end.haunted_key : read.remote_key;
    auto memory = memories_.find(key);
    if (memory == memories_.end() || (!haunted && peer->exposed.count(key) == 0)) {
      return rdma::PeerGoneError("remote access error: a READ of memory that was not exposed");
    }
    const uint64_t base = uint64_t{read.remote_key} << kAddressKeyShift;
    const size_t size = memory->second->size();
    if (read.remote_address < base || read.remote_address - base > size ||
        size - (read.remote_address - base) < bytes) {
      return rdma::PeerGoneError("remote access error: a READ outside of what was exposed");
    }
    const bool fails = !end.fail_next_reads.ok();
    if (!Copy(key, {memory->second->data() + (read.remote_address - base), bytes}, read,
              fails ? bytes / 2 : bytes)) {
      return rdma::PeerGoneError("the peer is gone");
    }
    if (fails) return std::exchange(end.fail_next_reads, absl::OkStatus());
    ++reads_executed_;
    haunted_reads_ += haunted ? 1 : 0;
  }
  return absl::OkStatus();
}

// --- Domains that are out of reach ---------------------------------------------------------------

bool Network::MayArrive(const End& end) const {
  if (!is_blocked) return true;
  const End* const peer = Find(end.peer);
  return peer == nullptr ||
         !is_blocked(peer->transport->domain_name(), end.transport->domain_name());
}

bool Network::MayRead(const End& end) const {
  if (!end.MayRead()) return false;
  const End* const peer = Find(end.peer);
  return peer == nullptr || (MayArrive(end) && MayArrive(*peer));
}

void Network::NoteBlocks() {
  for (FakeTransport* const transport : transports_) transport->Wake();
}

void Network::EndDomain(absl::string_view domain_name, bool is_reported) {
  ended_domains_.emplace(domain_name);
  std::erase_if(listeners_,
                [&](const auto& one) { return one.second->domain_name() == domain_name; });
  std::vector<ConnectionId> ids;
  for (const auto& [id, end] : ends_) {
    if (end->transport->domain_name() == domain_name) ids.push_back(id);
  }
  for (const ConnectionId id : ids) {
    if (is_reported) {
      Break(id);
    } else {
      Cut(id);
    }
  }
}

// --- Domain -------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Memory>> FakeDomain::Register(rdma::HostMemory& memory,
                                                             Access access) {
  return std::make_unique<FakeMemory>(network_, memory.data(), memory.size(), access, nullptr);
}

absl::StatusOr<std::unique_ptr<Memory>> FakeDomain::RegisterSpan(std::byte* data, size_t size,
                                                                 Access access) {
  return std::make_unique<FakeMemory>(network_, data, size, access, nullptr);
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

}  // namespace osprey::fake
