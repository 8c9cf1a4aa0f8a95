#include "client/engine/connection.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/common/errors.h"
#include "client/read/reads_in_flight.h"
#include "index/layout/serving_record.h"
#include "rdma/errors.h"

namespace osprey::client {

using rdma::Event;

namespace {

// A connection that lasts for so long begins a new round of addresses. *Else* a server that welcomes, and hangs up, is
// asked again and again without a pause.
constexpr absl::Duration kStableAfter() { return absl::Seconds(1); }

}  // namespace

ServerConnection::ServerConnection(rdma::Transport& transport, const rdma::Memory& liveness,
                                   BufferPool& buffers, const Session& session,
                                   const ConnectionOptions& options, std::vector<std::string> uris)
    : transport_(transport),
      buffers_(buffers),
      session_(session),
      options_(options),
      addresses_(std::move(uris)),
      greeting_(transport, liveness, session, options_),
      backoff_(options.backoff_first, options.backoff_last, options.seed) {}

ServerConnection::Change ServerConnection::Advance(const Event* event, absl::Time now) {
  if (event != nullptr && event->kind == Event::Kind::kDisconnected)
    return Disconnected(*event, now);
  switch (state_) {
    case State::kIdle:
      if (event == nullptr) Connect(now);
      return Change::kNone;
    case State::kBackoff:
      if (event == nullptr && now >= timer_) Connect(now);
      return Change::kNone;
    case State::kConnecting:
      if (event != nullptr) return WhileConnecting(*event, now);
      break;
    case State::kGreeting:
      if (event != nullptr) return WhileGreeting(*event, now);
      break;
    case State::kMapping:
      if (event != nullptr) return WhileMapping(*event, now);
      break;
    case State::kReady:
      if (event != nullptr) return WhileReady(*event, now);
      Watch(now);
      return Change::kNone;
    case State::kLeaving:
      if (event == nullptr && now >= timer_) Fail(rdma::ShuttingDownError(uri()));
      return Change::kNone;
    case State::kDraining:
    case State::kClosed:
      return Change::kNone;
  }
  // kConnecting, kGreeting, kMapping: a timeout.
  if (now >= timer_) Fail(rdma::TimeoutError("connecting", uri()));
  return Change::kNone;
}

uint64_t ServerConnection::append_bytes_max() const {
  const uint64_t frame_bytes_max =
      std::max<uint64_t>(limits_.frame_bytes_max, kPutFixedBytes + rdma::kKeyBytesMax);
  return frame_bytes_max - sizeof(rdma::FrameHeader) - sizeof(rdma::AppendBody);
}

// No attempt is under way, or the present one has ended.
void ServerConnection::TakeLearned() {
  if (options_.servers == nullptr) return;
  const uint64_t revision = options_.servers->revision();
  if (std::exchange(learned_revision_, revision) != revision)
    addresses_.SetLearned(options_.servers->OfShard(options_.shard));
}

void ServerConnection::Connect(absl::Time now) {
  TakeLearned();
  if (!buffer_.valid()) buffer_ = buffers_.Take(index::kDirectoryPageBytes);
  if (!buffer_.valid()) {
    addresses_.Note(buffers_.error());
    return AttemptEnded(now);
  }
  absl::StatusOr<rdma::ConnectionId> id =
      transport_.Connect(uri(), static_cast<uint32_t>(session_.id()), offer_.version());
  if (!id.ok()) {
    addresses_.Note(id.status());
    return AttemptEnded(now);
  }
  id_ = *id;
  state_ = State::kConnecting;
  if (addresses_.round_begins()) backoff_.Attempt(now);
  timer_ = now + attempt_max();
}

// The next address follows at once, or after a pause if all were tried.
void ServerConnection::AttemptEnded(absl::Time now) {
  offer_.Reset();
  TakeLearned();
  if (addresses_.EndAttempt()) {
    state_ = State::kIdle;
    return;
  }
  timer_ = backoff_.Pause(now);
  state_ = State::kBackoff;
}

ServerConnection::Change ServerConnection::Disconnected(const Event& event, absl::Time now) {
  absl::Status why =
      event.status.ok() ? rdma::PeerGoneError("the server closed the connection") : event.status;
  if (state_ == State::kConnecting && !closing_ && offer_.Repeats(why)) {
    id_ = rdma::ConnectionId::kNone;
    state_ = State::kIdle;
    return Change::kLost;
  }
  if (state_ != State::kDraining) addresses_.Note(std::move(why));
  if (now - ready_at_ >= kStableAfter()) addresses_.BeginRound();
  ready_at_ = absl::InfiniteFuture();
  id_ = rdma::ConnectionId::kNone;
  probing_ = false;
  if (closing_) {
    state_ = State::kClosed;
  } else {
    AttemptEnded(now);
  }
  return Change::kLost;
}

void ServerConnection::Fail(absl::Status why) {
  assert(!why.ok());
  if (id_ == rdma::ConnectionId::kNone || state_ == State::kDraining) return;
  addresses_.Note(std::move(why));
  state_ = State::kDraining;
  transport_.Disconnect(id_);
}

void ServerConnection::Leave(absl::Time now) {
  if (state_ != State::kReady) return;
  state_ = State::kLeaving;
  timer_ = now + kLeavingMax();
}

void ServerConnection::Close() {
  closing_ = true;
  if (state_ == State::kReady) {
    // DisconnectNotice lets the server drop the session. If it cannot be sent, the server drops the
    // session after a while.
    const rdma::EmptyMessage disconnect_notice(rdma::Opcode::kDisconnectNotice, terms().session, 0);
    (void)transport_.Send(id_, {disconnect_notice.bytes()});
  }
  if (id_ == rdma::ConnectionId::kNone) {
    state_ = State::kClosed;
  } else {
    Fail(absl::CancelledError("the client was closed"));
  }
}

ServerConnection::Change ServerConnection::WhileConnecting(const Event& event, absl::Time now) {
  if (event.kind != Event::Kind::kConnected) return Change::kNone;
  NoteActivity(now);
  limits_ = transport_.limits(id_);
  if (limits_.frame_bytes_max == 0) return Change::kNone;  // already lost: kDisconnected follows
  if (absl::Status status = greeting_.SayHello(id_, uri(), limits_, now); !status.ok()) {
    Fail(std::move(status));
  } else {
    state_ = State::kGreeting;
  }
  return Change::kNone;
}

ServerConnection::Change ServerConnection::WhileGreeting(const Event& event, absl::Time now) {
  if (event.kind != Event::Kind::kReceived) return Change::kNone;
  NoteActivity(now);
  const absl::StatusOr<bool> welcome = greeting_.Take(event.frame);
  if (welcome.ok() && !*welcome) return Change::kNone;
  absl::Status status = welcome.ok() ? TakeCluster() : welcome.status();
  if (status.ok()) status = BeginMapping();
  if (!status.ok()) {
    TakeElsewhere();
    Fail(std::move(status));
  } else {
    state_ = State::kMapping;
  }
  return Change::kNone;
}

// The server serves nothing at this address, but has told where the cluster's servers are: they are tried in this round.
// Only at an address that the application named: *else* hostile servers lead from one to the next without a pause.
void ServerConnection::TakeElsewhere() {
  const ClusterServers* const told = greeting_.elsewhere();
  if (told == nullptr || options_.servers == nullptr || !addresses_.is_given()) return;
  options_.servers->SetCluster(told->cluster);
  options_.servers->Learn(told->addresses);
}

// A learned address may be another cluster's by now, or of a server in none. *Else* the client's keys come from there.
// What the application named may lead anywhere.
absl::Status ServerConnection::TakeCluster() {
  if (options_.servers == nullptr) return absl::OkStatus();
  const uint64_t cluster = terms().in_cluster ? terms().data_id : 0;
  if (addresses_.is_given()) {
    options_.servers->SetCluster(cluster);
  } else if (cluster == 0 || cluster != options_.servers->cluster()) {
    return rdma::OtherClusterError(uri());
  }
  return absl::OkStatus();
}

absl::Status ServerConnection::BeginMapping() {
  const ServerTerms& server = terms();
  if (absl::Status status = transport_.Attach(id_, server.region); !status.ok()) return status;
  maps_ = std::make_unique<PartitionMaps>(server.incarnation, server.dataset(),
                                          server.region.length, server.partitions);
  map_read_ = maps_->NextRead();
  return PostRead(map_read_.offset, map_read_.length);
}

// Posts a READ into buffer_.
absl::Status ServerConnection::PostRead(uint64_t offset, uint32_t length) {
  assert(length <= buffer_.size() && length <= terms().region.length);
  assert(offset <= terms().region.length - length);
  rdma::ReadRequest read;
  read.remote_address = terms().region.address + offset;
  read.remote_key = terms().region.key;
  read.segments[0] = {buffer_.data(), length, &buffer_.memory()};
  return transport_.PostReads(id_, {&read, 1}, ReadChainId().Pack());
}

ServerConnection::Change ServerConnection::WhileMapping(const Event& event, absl::Time now) {
  if (event.kind == Event::Kind::kReceived) {
    Fail(rdma::ShuttingDownError(uri()));  // without a request it can only be DisconnectNotice
    return Change::kNone;
  }
  if (event.kind != Event::Kind::kReadsDone) return Change::kNone;
  absl::Status status = event.status;
  if (status.ok()) status = maps_->Apply({buffer_.data(), map_read_.length});
  if (status.ok() && maps_->ready()) {
    NoteActivity(now);
    state_ = State::kReady;
    beat_ = 0;
    watched_at_ = now;
    backoff_.Succeed(now);
    addresses_.Succeed();
    ready_at_ = now;
    ++times_ready_;
    return Change::kReady;
  }
  if (status.ok()) {
    timer_ = now + attempt_max();
    map_read_ = maps_->NextRead();
    status = PostRead(map_read_.offset, map_read_.length);
  }
  if (!status.ok()) Fail(std::move(status));
  return Change::kNone;
}

ServerConnection::Change ServerConnection::WhileReady(const Event& event, absl::Time now) {
  if (event.kind == Event::Kind::kReceived) {
    // The owner has handled the replies.
    absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(event.frame);
    if (!header.ok()) {
      Fail(BadServer(header.status().message()));
    } else if (static_cast<rdma::Opcode>(header->opcode) != rdma::Opcode::kDisconnectNotice) {
      Fail(BadServer(absl::StrCat("unexpected opcode ", header->opcode)));
    } else {
      Leave(now);
    }
  } else if (event.kind == Event::Kind::kReadsDone) {
    probing_ = false;
    event.status.ok() ? EndWatch(now) : Fail(event.status);
  }
  return Change::kNone;
}

// A watching READ is back.
void ServerConnection::EndWatch(absl::Time now) {
  NoteActivity(now);
  if (!terms().in_cluster) return;
  watched_at_ = now;
  uint64_t beat = 0;
  std::memcpy(&beat, buffer_.data(), sizeof(beat));
  if (beat != 0 && std::exchange(beat_, beat) == beat) {
    Fail(rdma::PeerGoneError(
        "the server's host answers, but the server is stopped or has lost its right to serve"));
  }
}

// Checks by time whether a ready connection's server is alive.
void ServerConnection::Watch(absl::Time now) {
  if (probing_) {
    if (now >= timer_) Fail(rdma::PeerGoneError("the server's host does not answer"));
    return;
  }
  if (now < WatchAt()) return;
  // The READ limit is used up by READs under way, which prove as much as this one would.
  if (transport_.ReadRoom(id_) == 0) {
    heard_at_ = watched_at_ = now - kQuietMax() / 2;  // check again later
    return;
  }
  constexpr uint64_t kBeatOffset =
      index::kServingRecordOffset + offsetof(index::ServingRecord, state.beat);
  absl::Status status = PostRead(terms().in_cluster ? kBeatOffset : 0, index::kWordBytes);
  if (!status.ok()) return Fail(std::move(status));
  probing_ = true;
  timer_ = now + kSilenceMax();
}

absl::Time ServerConnection::NextTimer() const {
  switch (state_) {
    case State::kIdle:
      return absl::InfinitePast();
    case State::kReady:
      return probing_ ? timer_ : WatchAt();
    case State::kConnecting:
    case State::kGreeting:
    case State::kMapping:
    case State::kLeaving:
    case State::kBackoff:
      return timer_;
    case State::kDraining:
    case State::kClosed:
      return absl::InfiniteFuture();
  }
  return absl::InfiniteFuture();
}

}  // namespace osprey::client
