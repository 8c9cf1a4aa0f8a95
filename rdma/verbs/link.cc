#include "rdma/verbs/link.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rdma/errors.h"

namespace osprey::rdma {
namespace {

// Frames start on cache lines of their own, so that the device and the CPU do not contend for one.
constexpr size_t kCacheLineBytes = 64;
// Send slots that data frames do not use, so that credits can always be returned.
constexpr uint32_t kControlSlots = 2;
// Work requests of the send queue besides READs and slots: the disconnect notice and the sentinel.
constexpr uint32_t kLastWords = 2;

size_t Stride(uint32_t frame_bytes_max) {
  return (sizeof(FrameEnvelope) + frame_bytes_max + kCacheLineBytes - 1) / kCacheLineBytes *
         kCacheLineBytes;
}

// Signals at every quarter of the credits, so that completions are few and few slots wait for one.
// At most at half of the slots: otherwise all could wait for a signal that never comes.
uint32_t SignalEvery(uint32_t credits) { return std::max(1U, credits / 4); }

// When all frames have arrived, at most SignalEvery - 1 slots still wait for a signalled
// completion. The others must suffice for all credits.
uint32_t SendSlots(uint32_t credits) { return credits + SignalEvery(credits) + kControlSlots; }

uint64_t BytesOf(const ReadRequest& read) {
  uint64_t bytes = read.segments[0].length;
  if (read.segment_count == 2) bytes += read.segments[1].length;
  return bytes;
}

absl::StatusOr<uint32_t> MessageBytesMax(const VerbsDevice& device, uint8_t port) {
  ibv_port_attr attributes = {};
  if (int error = ibv_query_port(device.context, port, &attributes))
    return VerbsError("ibv_query_port", error);
  return attributes.max_msg_sz;
}

}  // namespace

Link::Link(const VerbsDevice& device, const Options& options)
    : device_(device), device_index_(device.index), options_(options) {
  receives_.count = options.receive_credits + kControlReceives;
  reads_.batches.resize(std::bit_ceil(size_t{options.reads_in_flight_max}));
}

Link::~Link() = default;

absl::StatusOr<std::unique_ptr<Link>> Link::Create(DeviceCompletions& completions,
                                                   const Options& options) {
  std::unique_ptr<Link> link(new Link(completions.device(), options));
  const QueuePairShape shape = link->Shape();
  absl::StatusOr<CompletionRoom> room = completions.Reserve(shape.sends + shape.receives);
  if (!room.ok()) return room.status();
  link->completions_ = *std::move(room);
  return link;
}

QueuePairShape Link::Shape() const {
  return {
      .sends = options_.reads_in_flight_max + SendSlots(options_.send_credits_max) + kLastWords,
      .receives = receives_.count,
  };
}

absl::Status Link::Make(rdma_cm_id* id) {
  absl::StatusOr<NewQueuePair> made = CreateQueuePair(device_, completions_.queue(), Shape());
  if (!made.ok()) return made.status();
  queue_pair_ = std::move(made->queue_pair);
  inline_bytes_max_ = made->inline_bytes_max;
  if (absl::Status status = MoveToInit(queue_pair(), id); !status.ok()) return status;
  return PrepareReceives();
}

absl::Status Link::Start(rdma_cm_id* id, const ConnectData& peer, const ReadDepth& depth) {
  const absl::StatusOr<uint32_t> message_bytes_max = MessageBytesMax(device_, id->port_num);
  if (!message_bytes_max.ok()) return message_bytes_max.status();
  limits_.read_bytes_max = *message_bytes_max;
  limits_.frame_bytes_max = std::min(options_.frame_bytes_max, peer.frame_bytes_max);
  limits_.send_credits_max = std::min(options_.send_credits_max, peer.receive_credits);
  limits_.read_depth = depth.initiator;
  limits_.version = peer.version;
  // A peer that grants no depth serves no READs at all.
  limits_.reads_in_flight_max = depth.initiator == 0 ? 0 : options_.reads_in_flight_max;
  if (absl::Status status = AllocateSends(); !status.ok()) return status;
  return MoveToReady(queue_pair(), id, depth);
}

// ---- Receives ---------------------------------------------------------------------------------

absl::Status Link::PrepareReceives() {
  receives_.stride = Stride(options_.frame_bytes_max);
  absl::StatusOr<VerbsBuffer> buffer =
      VerbsBuffer::Allocate(device_, receives_.count * receives_.stride);
  if (!buffer.ok()) return buffer.status();
  receives_.buffer = *std::move(buffer);
  for (uint32_t i = 0; i < receives_.count; i++) {
    if (absl::Status status = PostReceive(static_cast<uint16_t>(i)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Link::PostReceive(uint16_t index) {
  ibv_sge segment = {};
  segment.addr = reinterpret_cast<uintptr_t>(receives_.buffer.data() + index * receives_.stride);
  segment.length = static_cast<uint32_t>(sizeof(FrameEnvelope) + options_.frame_bytes_max);
  segment.lkey = receives_.buffer.local_key();
  ibv_recv_wr request = {};
  request.wr_id = Work(WorkKind::kReceive, index);
  request.sg_list = &segment;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (int error = ibv_post_recv(queue_pair(), &request, &bad))
    return VerbsError("ibv_post_recv", error);
  receives_.posted++;
  return absl::OkStatus();
}

absl::StatusOr<Link::Received> Link::OnReceived(uint16_t index, uint32_t bytes) {
  receives_.posted--;
  const Bytes message(receives_.buffer.data() + index * receives_.stride, bytes);
  const absl::StatusOr<FrameEnvelope> envelope = ParseEnvelope(message, limits_.frame_bytes_max);
  if (!envelope.ok()) return envelope.status();
  if (envelope->credits > limits_.send_credits_max - sends_.credits) {
    return absl::InvalidArgumentError(
        absl::StrCat("malformed message from the peer: it gives back ", envelope->credits,
                     " credits, more than were used"));
  }
  if (envelope->flags == 0) {
    sends_.credits += envelope->credits;
    return Received{message.subspan(sizeof(FrameEnvelope)), false};
  }
  // The receive first, then the credits: the bound on control frames depends on this order
  // (frame.h).
  if (!draining_) {
    if (absl::Status status = PostReceive(index); !status.ok()) return status;
  }
  sends_.credits += envelope->credits;
  return Received{Bytes(), envelope->flags == kEnvelopeDisconnectNotice};
}

void Link::ReleaseFrame(uint16_t index) {
  if (draining_) return;
  // It fails only on a broken queue pair, which completions report.
  if (!PostReceive(index).ok()) return;
  receives_.credits_owed++;
  GiveCreditsBack();
}

void Link::GiveCreditsBack() {
  if (receives_.credits_owed < CreditsOwedMax(options_.receive_credits)) return;
  // Without a slot, OnSent tries again when slots become free.
  if (sends_.posted - sends_.done >= sends_.slots) return;
  (void)PostFrame(kEnvelopeCreditsOnly, {}, 0);
}

// ---- Sends ------------------------------------------------------------------------------------

absl::Status Link::AllocateSends() {
  sends_.credits = limits_.send_credits_max;
  sends_.slots = SendSlots(limits_.send_credits_max);
  sends_.signal_every = SignalEvery(limits_.send_credits_max);
  sends_.stride = Stride(limits_.frame_bytes_max);
  absl::StatusOr<VerbsBuffer> buffer =
      VerbsBuffer::Allocate(device_, (sends_.slots + 1) * sends_.stride);
  if (!buffer.ok()) return buffer.status();
  sends_.buffer = *std::move(buffer);
  return absl::OkStatus();
}

std::byte* Link::send_slot(uint64_t number) const {
  return sends_.buffer.data() + (number % sends_.slots) * sends_.stride;
}

size_t Link::SendRoom() const {
  const uint64_t free_slots = sends_.slots - (sends_.posted - sends_.done);
  if (draining_ || free_slots <= kControlSlots) return 0;
  return std::min<size_t>(sends_.credits, free_slots - kControlSlots);
}

absl::Status Link::Send(absl::Span<const Bytes> pieces) {
  size_t length = 0;
  for (const Bytes& piece : pieces) length += piece.size();
  if (length == 0 || length > limits_.frame_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a frame of ", length, " bytes; it must have from 1 to ", limits_.frame_bytes_max));
  }
  if (SendRoom() == 0) {
    return absl::ResourceExhaustedError(
        "no credit to send another frame; poll until the peer gives some back");
  }
  absl::Status status = PostFrame(0, pieces, static_cast<uint32_t>(length));
  if (status.ok()) sends_.credits--;
  return status;
}

absl::Status Link::PostFrame(uint8_t flags, absl::Span<const Bytes> pieces, uint32_t length) {
  std::byte* const slot = send_slot(sends_.posted);
  const FrameEnvelope envelope = {.credits = static_cast<uint16_t>(receives_.credits_owed),
                                  .flags = flags,
                                  .reserved = 0,
                                  .length = length};
  std::memcpy(slot, &envelope, sizeof(envelope));
  std::byte* end = slot + sizeof(envelope);
  for (const Bytes& piece : pieces) {
    if (piece.empty()) continue;  // memcpy from a null pointer is undefined, even for 0 bytes
    std::memcpy(end, piece.data(), piece.size());
    end += piece.size();
  }
  const bool signalled = sends_.unsignalled + 1 >= sends_.signal_every;
  absl::Status status = PostSend(slot, static_cast<uint32_t>(end - slot),
                                 Work(WorkKind::kSend, sends_.posted), signalled);
  if (!status.ok()) return status;
  sends_.posted++;
  sends_.unsignalled = signalled ? 0 : sends_.unsignalled + 1;
  receives_.credits_owed = 0;
  return status;
}

absl::Status Link::PostSend(std::byte* slot, uint32_t bytes, uint64_t wr_id, bool signalled) {
  ibv_sge segment = {};
  segment.addr = reinterpret_cast<uintptr_t>(slot);
  segment.length = bytes;
  segment.lkey = sends_.buffer.local_key();
  ibv_send_wr request = {};
  request.wr_id = wr_id;
  request.sg_list = &segment;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = 0;
  if (signalled) request.send_flags |= IBV_SEND_SIGNALED;
  if (bytes <= inline_bytes_max_) request.send_flags |= IBV_SEND_INLINE;
  ibv_send_wr* bad = nullptr;
  if (int error = ibv_post_send(queue_pair(), &request, &bad))
    return VerbsError("ibv_post_send of a SEND", error);
  return absl::OkStatus();
}

void Link::SendDisconnectNotice() {
  std::byte* const slot = sends_.buffer.data() + sends_.slots * sends_.stride;
  const FrameEnvelope envelope = {
      .credits = 0, .flags = kEnvelopeDisconnectNotice, .reserved = 0, .length = 0};
  std::memcpy(slot, &envelope, sizeof(envelope));
  // If it cannot be posted, the disconnect notice's time bound ends the wait.
  (void)PostSend(slot, sizeof(envelope), Work(WorkKind::kDisconnectNotice, 0), /*signalled=*/true);
}

void Link::OnSent(uint16_t index) {
  // The low bits of the number suffice, as fewer sends than that are in flight.
  const uint16_t ahead = static_cast<uint16_t>(index - static_cast<uint16_t>(sends_.done));
  assert(ahead < sends_.posted - sends_.done);
  sends_.done += ahead + 1U;
  if (!draining_) GiveCreditsBack();
}

// ---- READs ------------------------------------------------------------------------------------

absl::StatusOr<RemoteMemory> Link::Expose(const VerbsMemory& memory) {
  absl::StatusOr<RemoteMemory> remote = Announce(memory);
  if (remote.ok() && !remote_read_granted_) {
    if (absl::Status status = GrantRemoteRead(queue_pair()); !status.ok()) return status;
    remote_read_granted_ = true;
  }
  return remote;
}

absl::StatusOr<RemoteMemory> Link::Announce(const VerbsMemory& memory) const {
  if (memory.access() != Access::kRemoteRead) {
    return absl::InvalidArgumentError(
        "memory that was registered for local use only cannot be exposed");
  }
  return RemoteMemory{reinterpret_cast<uintptr_t>(memory.data()), memory.size(),
                      memory.remote_key(device_index_)};
}

absl::Status Link::BadReadError(const ReadRequest& read) const {
  if (read.segment_count < 1 || read.segment_count > kSegmentsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a READ into ", read.segment_count, " segments; it takes 1 or 2"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a READ of ", BytesOf(read), " bytes; the device's longest is ", limits_.read_bytes_max));
}

inline bool Link::MayBeRead(const ReadRequest& read) const {
  return read.segment_count >= 1 && read.segment_count <= kSegmentsMax &&
         BytesOf(read) <= limits_.read_bytes_max;
}

ReadChain::ReadChain(size_t reads_max) : requests_(reads_max), segments_(reads_max * kSegmentsMax) {
  for (size_t i = 0; i < reads_max; i++) {
    requests_[i].opcode = IBV_WR_RDMA_READ;
    requests_[i].sg_list = &segments_[i * kSegmentsMax];
    requests_[i].next = i + 1 < reads_max ? &requests_[i + 1] : nullptr;
  }
}

inline ibv_send_wr* ReadChain::Build(absl::Span<const ReadRequest> reads, size_t device,
                                     uint64_t work_id, uint64_t last_work_id) {
  // Only memory made by a Domain of this transport is passed to it.
  const auto segment_of = [device](const LocalSegment& local) {
    const auto& memory = static_cast<const VerbsMemory&>(*local.memory);
    assert(local.data >= memory.data() &&
           local.data + local.length <= memory.data() + memory.size());
    return ibv_sge{reinterpret_cast<uintptr_t>(local.data), local.length, memory.local_key(device)};
  };
  ibv_send_wr* request = requests_.data();
  for (const ReadRequest& read : reads) {
    request->sg_list[0] = segment_of(read.segments[0]);
    if (read.segment_count == 2) request->sg_list[1] = segment_of(read.segments[1]);
    request->wr_id = work_id;
    request->num_sge = static_cast<int>(read.segment_count);
    request->wr.rdma.remote_addr = read.remote_address;
    request->wr.rdma.rkey = read.remote_key;
    ++request;
  }
  last_ = request - 1;
  behind_last_ = std::exchange(last_->next, nullptr);
  last_->wr_id = last_work_id;
  last_->send_flags = IBV_SEND_SIGNALED;
  return requests_.data();
}

inline void ReadChain::Reset() {
  last_->next = behind_last_;
  last_->send_flags = 0;
}

absl::Status Link::PostReads(absl::Span<const ReadRequest> reads, uint64_t cookie,
                             ReadChain& chain) {
  if (reads.empty()) return absl::InvalidArgumentError("a batch without READs");
  if (reads.size() > ReadRoom()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for ", reads.size(), " READs: ", reads_.in_flight, " of ",
                     limits_.reads_in_flight_max, " are in flight"));
  }
  for (const ReadRequest& read : reads) {
    if (!MayBeRead(read)) return BadReadError(read);
  }
  ibv_send_wr* const first =
      chain.Build(reads, device_index_, Work(WorkKind::kRead, reads_.batches_end),
                  Work(WorkKind::kReadLast, reads_.batches_end));
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(queue_pair(), first, &bad);
  chain.Reset();
  if (error != 0 && bad == first) return VerbsError("ibv_post_send of READs", error);
  reads_.batches[reads_.batches_end & (reads_.batches.size() - 1)] = {
      cookie, static_cast<uint32_t>(reads.size())};
  reads_.batches_end++;
  reads_.in_flight += static_cast<uint32_t>(reads.size());
  // Part of the chain is under way, without its signalled part. Only breaking the queue pair shows
  // when it has ended.
  if (error != 0) MoveToError(queue_pair());
  return absl::OkStatus();
}

uint64_t Link::PopBatch() {
  assert(has_batches());
  const Batch& batch = reads_.batches[reads_.batches_begin & (reads_.batches.size() - 1)];
  reads_.batches_begin++;
  reads_.in_flight -= batch.reads;
  return batch.cookie;
}

// ---- The end ----------------------------------------------------------------------------------

void Link::StopPosting() {
  assert(!draining_);
  draining_ = true;
}

void Link::Flush() const {
  MoveToError(queue_pair());
  ibv_send_wr request = {};
  request.wr_id = Work(WorkKind::kSentinel, 0);
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  // Some devices accept no request once broken. Then only the Transport's time bound applies.
  (void)ibv_post_send(queue_pair(), &request, &bad);
}

void Link::OnDrained(WorkKind kind) {
  if (kind == WorkKind::kReceive) receives_.posted--;
  if (kind == WorkKind::kSentinel) sentinel_seen_ = true;
}

}  // namespace osprey::rdma
