#include "rdma/verbs/verbs_transport.h"

#include <rdma/rdma_cma.h>
#include <time.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rdma/errors.h"

namespace osprey::rdma {
namespace {

using State = ConnectionState;
using Source = ReadinessSources::Source;

// Completions handled in one Poll, so that a flood of frames without events (credits) cannot
// prolong it.
constexpr int kCompletionsPerTurn = 256;
// Further checks by a Poll that finds nothing while READs are in flight. Returning to the caller
// and calling again takes as long as several checks. On average, a finished READ would wait for
// half of that. Some 0.3 us in all.
constexpr int kReadSpins = 16;
// Polls per reading of the coarse clock, while READs are in flight.
constexpr uint32_t kPollsPerClock = 8;

absl::Status NotConnected() { return absl::UnavailableError("this connection is not up"); }

// The effect of a failed work request on the connection.
absl::Status WorkError(const VerbsConnection& connection, ibv_wc_status status) {
  const auto text = [&](absl::string_view what) {
    return absl::StrCat(what, " (", ibv_wc_status_str(status), ", ", connection.peer, ")");
  };
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return PeerGoneError(
          text(absl::StrCat("the peer does not answer, after ", kRetries, " retries")));
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return PeerGoneError(text("the peer has no receive posted"));
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_REM_ABORT_ERR:
      return PeerGoneError(text("the peer, or the device, ended it"));
    case IBV_WC_REM_ACCESS_ERR:
      return absl::PermissionDeniedError(text("the peer does not let us READ there"));
    case IBV_WC_REM_INV_REQ_ERR:
      return absl::InvalidArgumentError(text("the peer's device refused a request"));
    default:
      return absl::InternalError(text("a work request failed"));
  }
}

// A few nanoseconds, no system call, and no reading of the hardware's clock.
int64_t CoarseTick() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<VerbsTransport>> VerbsTransport::Create(
    VerbsShared& shared, const TransportOptions& options) {
  if (options.receive_credits < kReceiveCreditsMin || options.frame_bytes_max == 0 ||
      options.reads_in_flight_max == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a transport needs at least ", kReceiveCreditsMin, " receive credits (",
        options.receive_credits, " given), 1 byte to a frame (", options.frame_bytes_max,
        ") and 1 READ in flight (", options.reads_in_flight_max, ")"));
  }
  TransportOptions clamped = options;
  clamped.receive_credits = std::min(options.receive_credits, kReceiveCreditsMax);
  std::unique_ptr<VerbsTransport> transport(new VerbsTransport(shared, clamped));
  if (absl::Status status = transport->Initialize(); !status.ok()) return status;
  return transport;
}

absl::Status VerbsTransport::Initialize() {
  if (absl::Status status = sources_.Open(); !status.ok()) return status;
  absl::StatusOr<EventChannel> channel = CreateEventChannel();
  if (!channel.ok()) return channel.status();
  state_.reaper = std::make_unique<CmReaper>(*std::move(channel));
  if (absl::Status status = sources_.Watch(state_.reaper->channel()->fd, {Source::Kind::kCm});
      !status.ok())
    return status;

  if (absl::Status status = notices_.Open(); !status.ok()) return status;
  if (absl::Status status = sources_.Watch(notices_.fd(), {Source::Kind::kInbox}); !status.ok())
    return status;

  if (absl::Status status = migration_.Open(); !status.ok()) return status;
  if (absl::Status status = sources_.Watch(migration_.fd(), {Source::Kind::kMigrated});
      !status.ok())
    return status;

  absl::StatusOr<std::unique_ptr<BlockingExecutor>> blocking_executor = BlockingExecutor::Create();
  if (!blocking_executor.ok()) return blocking_executor.status();
  state_.blocking_executor = *std::move(blocking_executor);
  if (absl::Status status =
          sources_.Watch(state_.blocking_executor->fd(), {Source::Kind::kBlockingCalls});
      !status.ok())
    return status;

  for (const VerbsDevice& device : state_.shared.devices->all()) {
    absl::StatusOr<std::unique_ptr<DeviceCompletions>> completions =
        DeviceCompletions::Create(device);
    if (!completions.ok()) return completions.status();
    state_.completions.push_back(*std::move(completions));
    absl::Status status =
        sources_.Watch(device.context->async_fd, {Source::Kind::kDeviceEvents, device.index});
    if (status.ok()) {
      status = sources_.Watch(state_.completions.back()->fd(),
                              {Source::Kind::kCompletions, device.index});
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

VerbsTransport::~VerbsTransport() {
  // Links that another thread holds are returned first, or destroyed.
  state_.blocking_executor.reset();
  // Their ids are of our channel. They were never accepted, so the kernel repeats no message on
  // their behalf.
  (void)migration_.TakeAll();
  state_.connections.ForEach([&](VerbsConnection& connection) {
    if (connection.link != nullptr && connection.link->queue_pair() != nullptr) {
      MoveToError(connection.link->queue_pair());
      (void)rdma_disconnect(connection.cm_id.get());  // notifies the peer
      connection.link->TakeQueuePair().reset();       // ends posted work
    }
    state_.reaper->DestroyLater(std::move(connection.cm_id));
  });
  // Listeners end at once, so that their addresses are free. The kernel repeats no messages for
  // them, nor for requests that were never accepted, so it does not wait.
}

// ---- Making and ending connections ------------------------------------------------------------

absl::StatusOr<std::string> VerbsTransport::Listen(absl::string_view uri, uint64_t incarnation) {
  (void)incarnation;  // a READ of a region that is gone fails without it
  return setup_.Listen(uri);
}

absl::StatusOr<ConnectionId> VerbsTransport::Connect(absl::string_view uri, uint32_t affinity,
                                                     uint16_t version) {
  return setup_.Connect(uri, affinity, version);
}

absl::Status VerbsTransport::Accept(ConnectionId id) { return setup_.Accept(id); }

void VerbsTransport::Reject(ConnectionId id, RejectReason reason) { setup_.Reject(id, reason); }

absl::Status VerbsTransport::Migrate(ConnectionId id, Transport& other) {
  const absl::StatusOr<VerbsConnection*> connection = setup_.FindRequested(id);
  if (!connection.ok()) return connection.status();
  auto* const to = dynamic_cast<VerbsTransport*>(&other);
  assert(to != nullptr && to != this && "a transport of another domain");
  return migration_.Move(**connection, to->migration_);
}

void VerbsTransport::Disconnect(ConnectionId id) { ending_.Disconnect(id); }

// ---- Connections that are up ------------------------------------------------------------------

VerbsConnection* VerbsTransport::FindConnected(ConnectionId id) const {
  VerbsConnection* const connection = state_.connections.Find(id);
  return connection != nullptr && connection->state == State::kConnected ? connection : nullptr;
}

absl::StatusOr<RemoteMemory> VerbsTransport::Expose(ConnectionId id, const Memory& memory) {
  VerbsConnection* const connection = FindConnected(id);
  if (connection == nullptr) return NotConnected();
  // Only memory made by a Domain of this transport is passed to it.
  return connection->link->Expose(static_cast<const VerbsMemory&>(memory));
}

absl::StatusOr<RemoteMemory> VerbsTransport::Announce(ConnectionId id, const Memory& memory) {
  VerbsConnection* const connection = FindConnected(id);
  if (connection == nullptr) return NotConnected();
  return connection->link->Announce(static_cast<const VerbsMemory&>(memory));
}

// An rkey belongs to the Memory, not to the connection: it ends with the Memory.
void VerbsTransport::Withdraw(ConnectionId id, const Memory& memory) {
  (void)id;
  (void)memory;
}

absl::Status VerbsTransport::Attach(ConnectionId id, const RemoteMemory& remote) {
  (void)remote;  // only a READ shows whether the peer permits it
  return FindConnected(id) == nullptr ? NotConnected() : absl::OkStatus();
}

absl::Status VerbsTransport::PostReads(ConnectionId id, absl::Span<const ReadRequest> reads,
                                       uint64_t cookie) {
  VerbsConnection* const connection = FindConnected(id);
  if (connection == nullptr) return NotConnected();
  absl::Status status = connection->link->PostReads(reads, cookie, chain_);
  if (status.ok()) state_.batches_in_flight++;
  return status;
}

size_t VerbsTransport::ReadRoom(ConnectionId id) const {
  const VerbsConnection* const connection = FindConnected(id);
  return connection == nullptr ? 0 : connection->link->ReadRoom();
}

absl::Status VerbsTransport::Send(ConnectionId id, absl::Span<const Bytes> pieces) {
  VerbsConnection* const connection = FindConnected(id);
  if (connection == nullptr) return NotConnected();
  return connection->link->Send(pieces);
}

size_t VerbsTransport::SendRoom(ConnectionId id) const {
  const VerbsConnection* const connection = FindConnected(id);
  return connection == nullptr ? 0 : connection->link->SendRoom();
}

ConnectionLimits VerbsTransport::limits(ConnectionId id) const {
  const VerbsConnection* const connection = state_.connections.Find(id);
  return connection == nullptr || connection->link == nullptr ? ConnectionLimits()
                                                              : connection->link->limits();
}

ibv_qp* VerbsTransport::queue_pair(ConnectionId id) const {
  const VerbsConnection* const connection = state_.connections.Find(id);
  return connection == nullptr || connection->link == nullptr ? nullptr
                                                              : connection->link->queue_pair();
}

std::string VerbsTransport::Describe(ConnectionId id) const {
  const VerbsConnection* const connection = state_.connections.Find(id);
  if (connection == nullptr || connection->link == nullptr || connection->cm_id == nullptr) {
    return "transport=verbs device=none";
  }
  const Link& link = *connection->link;
  ibv_port_attr port = {};
  (void)ibv_query_port(link.device().context, connection->cm_id->port_num, &port);
  return absl::StrCat("transport=verbs device=", link.device().name,
                      " port=", connection->cm_id->port_num, " mtu=", 128 << port.active_mtu,
                      " read_depth=", link.limits().read_depth,
                      " inline=", link.inline_bytes_max());
}

Transport::Resources VerbsTransport::resources() const {
  Resources resources;
  resources.connections = state_.connections.size();
  state_.connections.ForEach([&](const VerbsConnection& connection) {
    const bool elsewhere =
        connection.state == State::kBuilding || connection.state == State::kDestroying;
    if (elsewhere || (connection.link != nullptr && connection.link->queue_pair() != nullptr))
      resources.queue_pairs++;
  });
  return resources;
}

// ---- Progress ---------------------------------------------------------------------------------

size_t VerbsTransport::Poll(absl::Span<Event> events) {
  EventSpan output{events};
  if (events_.has_delivered_ends()) events_.FreeEnded();
  if (!events_.delivered_frames().empty()) ReleaseFrames();
  if (MustLookAround()) LookAround();
  if (events_.has_pending()) events_.DeliverPending(output);
  bool seen_all = PollCompletions(output);
  for (int spin = 0; spin < kReadSpins && output.count == 0 && state_.batches_in_flight > 0;
       spin++) {
    seen_all = PollCompletions(output);
  }
  if (ending_.waits()) ending_.Finish(seen_all);
  if (events_.has_pending()) events_.DeliverPending(output);
  return output.count;
}

void VerbsTransport::ReleaseFrames() {
  for (const EventOutput::DeliveredFrame& frame : events_.delivered_frames()) {
    VerbsConnection* const connection = state_.connections.Find(frame.connection);
    if (connection != nullptr && connection->link->queue_pair() != nullptr)
      connection->link->ReleaseFrame(frame.receive);
  }
  events_.ClearDeliveredFrames();
}

bool VerbsTransport::MustLookAround() {
  if (!state_.look_around && state_.connecting == 0) {
    // A caller that waits for a READ polls again at once, so only some of the Polls read even that
    // clock.
    if (state_.batches_in_flight > 0 && ++polls_unclocked_ % kPollsPerClock != 0) return false;
    if (CoarseTick() == coarse_tick_) return false;
  }
  state_.look_around = false;
  coarse_tick_ = CoarseTick();
  return true;
}

void VerbsTransport::LookAround() {
  sources_.ForEachReady([this](const Source& source) {
    switch (source.kind) {
      case Source::Kind::kCm:
        cm_events_.ReadOne();
        break;
      case Source::Kind::kInbox:
        notices_.Handle();
        break;
      case Source::Kind::kMigrated:
        // Adds one, which will be accepted, as with CM events.
        migration_.AddOne();
        state_.look_around = true;
        break;
      case Source::Kind::kBlockingCalls:
        state_.blocking_executor->Finish();
        state_.look_around = true;
        break;
      case Source::Kind::kDeviceEvents:
        // Distributes to all inboxes, our own too, which is read at the next look around.
        state_.shared.async.Collect(state_.shared.devices->all()[source.device].context);
        state_.look_around = true;
        break;
      case Source::Kind::kCompletions:
        state_.completions[source.device]->ReadEvents();
        break;
    }
  });
}

bool VerbsTransport::PollCompletions(EventSpan& output) {
  int budget = kCompletionsPerTurn;
  for (const std::unique_ptr<DeviceCompletions>& device : state_.completions) {
    for (const std::unique_ptr<CompletionQueue>& queue : device->queues()) {
      // A completion makes at most one event directly, but may add some to the pending ones too.
      for (;;) {
        if (output.full() || events_.has_pending() || budget-- == 0) return false;
        const ibv_wc* const completion = queue->Next();
        if (completion == nullptr) break;
        OnCompletion(*completion, output);
        if (events_.has_pending()) events_.DeliverPending(output);
      }
    }
  }
  return true;
}

bool VerbsTransport::PollReads(ReadsDone& done) {
  if (state_.batches_in_flight == 0 || events_.has_pending()) return false;
  for (const std::unique_ptr<DeviceCompletions>& device : state_.completions) {
    for (const std::unique_ptr<CompletionQueue>& queue : device->queues()) {
      const ibv_wc* const completion = queue->Next();
      if (completion == nullptr) continue;
      const bool reads = completion->status == IBV_WC_SUCCESS &&
                         WorkId::Unpack(completion->wr_id).kind == WorkKind::kReadLast;
      VerbsConnection* const connection = reads ? ConnectionOf(*completion) : nullptr;
      if (connection != nullptr) {
        state_.batches_in_flight--;
        done.connection = connection->id;
        done.cookie = connection->link->PopBatch();
        return true;
      }
      // There is no room for its event, so that is queued.
      EventSpan none;
      OnCompletion(*completion, none);
      if (events_.has_pending()) return false;
    }
  }
  return false;
}

VerbsConnection* VerbsTransport::ConnectionOf(const ibv_wc& completion) const {
  VerbsConnection* const connection =
      state_.connections.FindByTag(WorkId::Unpack(completion.wr_id).tag);
  // (A late completion is of a connection whose drain took too long.)
  const bool late = connection == nullptr || connection->link == nullptr ||
                    connection->link->queue_pair() == nullptr;
  return late ? nullptr : connection;
}

void VerbsTransport::OnCompletion(const ibv_wc& completion, EventSpan& output) {
  const WorkId work = WorkId::Unpack(completion.wr_id);
  VerbsConnection* const connection = ConnectionOf(completion);
  if (connection == nullptr) return;
  Link& link = *connection->link;
  if (completion.status != IBV_WC_SUCCESS) {
    ending_.Break(*connection, WorkError(*connection, completion.status));
    if (link.draining()) link.OnDrained(work.kind);
    return;
  }
  switch (work.kind) {
    case WorkKind::kReadLast:
      state_.batches_in_flight--;
      events_.Emit(output, Event::Kind::kReadsDone, connection->id, link.PopBatch(), Bytes(), 0);
      return;
    case WorkKind::kReceive:
      OnFrame(*connection, work.index, completion.byte_len, output);
      return;
    case WorkKind::kSend:
      link.OnSent(work.index);
      return;
    case WorkKind::kDisconnectNotice:
      ending_.Break(*connection, absl::OkStatus());
      return;
    case WorkKind::kSentinel:
      link.OnDrained(work.kind);
      return;
    case WorkKind::kRead:
      return;  // not signalled
  }
}

void VerbsTransport::OnFrame(VerbsConnection& connection, uint16_t receive, uint32_t bytes,
                             EventSpan& output) {
  const absl::StatusOr<Link::Received> received = connection.link->OnReceived(receive, bytes);
  if (!received.ok()) return ending_.Break(connection, received.status());
  if (received->disconnect_notice) {
    // The connection's loss may have been noticed before. The disconnect notice shows that the peer
    // intended it.
    connection.end_status = absl::OkStatus();
    return ending_.Break(connection, absl::OkStatus());
  }
  // The first frame may overtake the CM's own message. rdma_notify is not called: without it the CM
  // repeats its question until that message comes. With it, the CM fails to stop repeating if the
  // connection ends before its worker ran (cm_establish_handler). The id then cannot be destroyed
  // for 69 s.
  if (connection.state == State::kAccepting) setup_.BecomeConnected(connection);
  if (received->frame.empty()) return;
  // A caller that has disconnected expects no more frames. After a disconnect by the peer, its last
  // frames are delivered.
  if (connection.ended_by_us) return;
  events_.Emit(output, Event::Kind::kReceived, connection.id, 0, received->frame, receive);
}

bool VerbsTransport::Arm() {
  // Only Poll posts delivered frames again, and a peer may be waiting for their credits.
  if (events_.has_pending() || !events_.delivered_frames().empty() || ending_.waits()) return false;
  for (const std::unique_ptr<DeviceCompletions>& device : state_.completions) {
    for (const std::unique_ptr<CompletionQueue>& queue : device->queues()) {
      if (!queue->Arm()) return false;
    }
  }
  state_.look_around = true;
  return true;
}

}  // namespace osprey::rdma
