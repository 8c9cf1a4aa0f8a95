#include "rdma/shm/transport_setup.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rdma/address.h"
#include "rdma/errors.h"
#include "rdma/shm/peer/server_user.h"
#include "rdma/shm/socket.h"

namespace osprey::rdma {
namespace {

// Clients that connected and said nothing: one more, and the oldest goes. An honest one speaks
// before it is even accepted.
constexpr size_t kGreetingMax = 64;

// What the peer said, within our own bound.
uint32_t ExposedMax(const ShmPacket& connect) {
  return connect.key == 0 ? kShmMemoriesMax : std::min(connect.key, kShmMemoriesMax);
}

// The path of a shm:// address.
absl::StatusOr<std::string> PathIn(absl::string_view uri) {
  absl::StatusOr<Address> address = ParseAddress(uri);
  if (!address.ok()) return address.status();
  if (address->scheme == Address::Scheme::kShm) return std::move(address->path);
  return absl::InvalidArgumentError(
      absl::StrCat(uri, " is not an address of shared memory: shm://PATH"));
}

absl::Status ConnectError(const std::string& uri, const std::string& path, int error) {
  struct stat info;
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return NoListenerError(uri);
    case ECONNREFUSED:
      if (stat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
        return NotOspreyError(absl::StrCat(path, " is not a socket"));
      }
      return NoListenerError(uri);
    case EPROTOTYPE:
      return NotOspreyError(absl::StrCat("the socket at ", path, " is of another type"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat("this user may not connect to ", uri,
                       "; run as the server's user, or have the socket's mode changed"));
    case EAGAIN:
      return UnreachableError(uri, "too many clients wait for an answer already");
    default:
      return UnreachableError(uri, std::strerror(error));
  }
}

}  // namespace

absl::Status ShmSetup::Open() {
  if (!common_.options.accepts) return absl::OkStatus();
  spare_.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  absl::StatusOr<std::unique_ptr<Inbox<ShmMigrated>>> inbox =
      Inbox<ShmMigrated>::Create(kMigratedMax);
  if (!inbox.ok()) return inbox.status();
  migrated_ = *std::move(inbox);
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kMigratedTag;
  const int fd = migrated_->fd();
  if (epoll_ctl(common_.epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return absl::ResourceExhaustedError(absl::StrCat("epoll_ctl: ", std::strerror(errno)));
  return absl::OkStatus();
}

bool ShmSetup::Watch(ShmConnection* connection) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = static_cast<uint64_t>(connection->id);
  return epoll_ctl(common_.epoll.get(), EPOLL_CTL_ADD, connection->socket.get(), &event) == 0;
}

// In the version of the peer, which else reads no reason in it; 0: its request was not read.
void ShmSetup::SendRejection(int socket, RejectReason reason, uint16_t version) const {
  ShmPacket packet;
  packet.connect =
      common_.Offer(version == 0 ? OldestServed(common_.domain.protocol_version) : version);
  packet.connect.reason = static_cast<uint16_t>(reason);
  packet.kind = static_cast<uint32_t>(PacketKind::kConnect);
  (void)SendPacket(socket, packet);  // a client that is gone needs no answer
}

// --- The server's side.

absl::StatusOr<std::string> ShmSetup::Listen(absl::string_view uri, uint64_t incarnation) {
  assert(common_.options.accepts);
  const absl::StatusOr<std::string> named = PathIn(uri);
  if (!named.ok()) return named.status();
  // Clients have other working directories.
  std::error_code error;
  const std::string path = std::filesystem::absolute(*named, error).string();
  if (error)
    return absl::NotFoundError(absl::StrCat("the working directory is gone: ", error.message()));
  absl::StatusOr<std::unique_ptr<ShmListener>> listener =
      ShmListener::Open(path, incarnation, common_.domain.socket_mode);
  if (!listener.ok()) return listener.status();
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kListenerTag | listeners_.size();
  if (epoll_ctl(common_.epoll.get(), EPOLL_CTL_ADD, (*listener)->socket(), &event) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("epoll_ctl: ", std::strerror(errno)));
  }
  listeners_.push_back(*std::move(listener));
  return absl::StrCat("shm://", path);
}

bool ShmSetup::TakeNewcomer(size_t listener, ShmConnection** newcomer) {
  *newcomer = nullptr;
  const int listening = listeners_[listener]->socket();
  const int fd = accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE) RefuseForLackOfDescriptors(*listeners_[listener]);
    return false;
  }
  const ucred peer = PeerOf(fd);
  PeerFd socket(fd, closer_->LaneOf(peer.uid));
  if (greeting_.size() == kGreetingMax) {
    ending_.Erase(common_.connections.Find(greeting_.front()));
    greeting_.erase(greeting_.begin());
  }
  ShmConnection* connection = common_.connections.Add(State::kGreeting, std::move(socket));
  if (connection == nullptr) {
    SendRejection(fd, RejectReason::kTooManyConnections);
    return true;
  }
  connection->peer.takes_descriptors = listeners_[listener]->newcomers_take_descriptors();
  connection->peer.uri = absl::StrCat("shm:pid=", peer.pid, ",uid=", peer.uid);
  connection->peer.source = absl::StrCat("uid=", peer.uid);
  connection->peer.life = listeners_[listener]->life();
  if (!Watch(connection)) {
    SendRejection(fd, RejectReason::kTooManyConnections);
    ending_.Erase(connection);
    return true;
  }
  greeting_.push_back(connection->id);
  *newcomer = connection;
  return true;
}

void ShmSetup::RefuseForLackOfDescriptors(const ShmListener& listener) {
  spare_.reset();
  ShmConnection refused;
  const int fd = accept4(listener.socket(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) {
    refused.socket = PeerFd(fd, closer_->LaneOf(PeerOf(fd).uid));
    refused.peer.takes_descriptors = listener.newcomers_take_descriptors();
    SendRejection(fd, RejectReason::kTooManyConnections);
    ending_.CloseSocket(&refused);
  }
  // The lane may not have closed it yet. Then there is none to spare until the next time.
  spare_.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void ShmSetup::DropNewcomer(ShmConnection* connection) {
  std::erase(greeting_, connection->id);
  ending_.Erase(connection);
}

void ShmSetup::HandleRequest(ShmConnection* connection, const ReceivedPacket& received) {
  std::erase(greeting_, connection->id);
  const Bytes bytes(reinterpret_cast<const std::byte*>(&received.packet), received.bytes);
  const uint16_t newest = common_.domain.protocol_version;
  const absl::StatusOr<ConnectData> data = ParseConnectData(bytes, newest, OldestServed(newest));
  if (!data.ok() || received.bytes != sizeof(ShmPacket) || data->reason != 0 || !received.taken() ||
      received.fd_count != 0 ||
      received.packet.kind != static_cast<uint32_t>(PacketKind::kConnect)) {
    if (ReasonOf(data.status()) == Reason::kVersionMismatch) {
      SendRejection(connection->socket.get(), RejectReason::kVersionMismatch, newest);
    }
    ending_.Erase(connection);
    return;
  }
  connection->peer.theirs = *data;
  connection->peer.exposed_max = ExposedMax(received.packet);
  connection->state = State::kRequested;
  QueueRequest(*connection);
}

void ShmSetup::QueueRequest(const ShmConnection& connection) {
  Event& request = common_.queue.Add(Event::Kind::kConnectRequest, connection.id).event;
  request.text = connection.peer.uri;
  request.source = connection.peer.source;
  request.affinity = connection.peer.theirs.affinity;
  if (connection.socket.lane()->full()) {
    request.status = absl::ResourceExhaustedError(absl::StrCat(
        CloserLane::kWaitingMax, " descriptors that this user's processes sent wait to be closed"));
  } else if (const uid_t uid = PeerOf(connection.socket.get()).uid; common_.ledger->IsFull(uid)) {
    request.status = absl::ResourceExhaustedError(
        absl::StrCat(common_.ledger->KeptOf(uid),
                     " connections of this user have ended with unread descriptors"));
  }
}

absl::Status ShmSetup::Accept(ConnectionId id) {
  ShmConnection* connection = common_.connections.Find(id);
  if (connection == nullptr || connection->state == State::kEnded) {
    return absl::UnavailableError("the client is gone already");
  }
  if (connection->state != State::kRequested) {
    return absl::FailedPreconditionError("only a connection that is requested can be accepted");
  }
  absl::Status status = SendAcceptance(connection);
  if (!status.ok()) {
    ending_.End(connection, status);
    return status;
  }
  common_.queue.Add(Event::Kind::kConnected, connection->id);
  return absl::OkStatus();
}

absl::Status ShmSetup::SendAcceptance(ShmConnection* connection) {
  const RingShapes shapes = ShapesOf(common_.Offer(), connection->peer.theirs);
  absl::StatusOr<SealedFile> rings =
      CreateSealed("osprey-rings", shapes.bytes(), MapAccess::kReadWrite);
  if (!rings.ok()) {
    SendRejection(connection->socket.get(), RejectReason::kTooManyConnections,
                  connection->peer.theirs.version);
    return rings.status();
  }
  if (!connection->peer.takes_descriptors)
    connection->peer.takes_descriptors = SetTakesDescriptors(connection->socket.get(), true);
  ShmPacket packet;
  packet.connect = common_.Offer(connection->peer.theirs.version);
  packet.kind = static_cast<uint32_t>(PacketKind::kConnect);
  packet.key = common_.domain.peer_memories_max;
  packet.incarnation = connection->peer.life->incarnation;
  const int fds[] = {rings->fd.get(), connection->peer.life->page.get()};
  if (const int error = SendPacket(connection->socket.get(), packet, fds); error != 0) {
    if (error == ETOOMANYREFS) {
      SendRejection(connection->socket.get(), RejectReason::kTooManyConnections,
                    connection->peer.theirs.version);
      return absl::ResourceExhaustedError(
          "this server's user has too many descriptors in flight, which their receivers have not "
          "received; raise RLIMIT_NOFILE, or end those processes");
    }
    return absl::UnavailableError(
        absl::StrCat("the client cannot be answered: ", std::strerror(error)));
  }
  connection->descriptors_unread = true;
  connection->peer.life.reset();
  SetRings(connection, std::move(rings->mapping), /*server=*/true);
  return absl::OkStatus();
}

void ShmSetup::Reject(ConnectionId id, RejectReason reason) {
  ShmConnection* connection = common_.connections.Find(id);
  if (connection == nullptr || connection->state != State::kRequested) return;
  SendRejection(connection->socket.get(), reason, connection->peer.theirs.version);
  ending_.End(connection, absl::OkStatus());
}

// --- The client's side.

absl::StatusOr<ConnectionId> ShmSetup::Connect(absl::string_view uri, uint32_t affinity,
                                               uint16_t version) {
  const absl::StatusOr<std::string> named = PathIn(uri);
  if (!named.ok()) return named.status();
  if (absl::Status status = SocketAddress(*named).status(); !status.ok()) return status;
  ShmConnection* connection = common_.connections.Add(State::kConnecting, PeerFd());
  if (connection == nullptr)
    return absl::ResourceExhaustedError("this transport has 65536 connections already");
  ++common_.connecting;
  connection->peer.uri = std::string(uri);
  connection->peer.theirs.version = common_.Offer(version).version;
  if (absl::Status status = StartConnect(connection, *named, affinity); !status.ok()) {
    ending_.End(connection, std::move(status));
  }
  return connection->id;
}

absl::Status ShmSetup::StartConnect(ShmConnection* connection, const std::string& path,
                                    uint32_t affinity) {
  absl::StatusOr<UniqueFd> socket = NewSocket();
  if (!socket.ok()) return socket.status();
  const int fd = socket->get();
  int error = ConnectSocket(fd, *SocketAddress(path));
  if (error != 0) return ConnectError(connection->peer.uri, path, error);
  const uid_t server = PeerOf(fd).uid;
  connection->socket = PeerFd(socket->release(), closer_->LaneOf(server));
  if (!common_.domain.any_server_user) {
    if (absl::Status status = CheckServerUser(path, server, geteuid()); !status.ok()) return status;
  }
  ShmPacket packet;
  packet.connect = common_.Offer(connection->peer.theirs.version);
  packet.connect.affinity = affinity;
  packet.key = common_.domain.peer_memories_max;
  packet.kind = static_cast<uint32_t>(PacketKind::kConnect);
  // Goes into the socket's queue: the server need not have accepted it yet.
  error = SendPacket(fd, packet);
  if (error == 0 && !Watch(connection)) error = errno;
  return error == 0 ? absl::OkStatus()
                    : UnreachableError(connection->peer.uri, std::strerror(error));
}

void ShmSetup::HandleAnswer(ShmConnection* connection, ReceivedPacket& received) {
  const Bytes bytes(reinterpret_cast<const std::byte*>(&received.packet), received.bytes);
  const absl::StatusOr<ConnectData> data =
      ParseAnswer(bytes, connection->peer.theirs.version, common_.domain.protocol_version);
  if (!data.ok()) return ending_.End(connection, data.status());
  if (data->reason != 0)
    return ending_.End(connection, RejectionError(*data, connection->peer.uri));
  connection->peer.theirs = *data;
  connection->peer.exposed_max = ExposedMax(received.packet);
  if (absl::Status status = TakeAcceptance(connection, received); !status.ok()) {
    return ending_.End(connection, std::move(status));
  }
  common_.queue.Add(Event::Kind::kConnected, connection->id);
}

absl::Status ShmSetup::TakeAcceptance(ShmConnection* connection, ReceivedPacket& received) {
  if (received.fds_foreign)
    return NotOspreyError("its acceptance brings descriptors that are no memory");
  if (received.fds_lost) {
    return absl::ResourceExhaustedError(
        "no descriptor is left for what the server sent; raise ulimit -n");
  }
  if (received.bytes != sizeof(ShmPacket) || received.fd_count != 2) {
    return NotOspreyError("its acceptance brings no rings");
  }
  const RingShapes shapes = ShapesOf(connection->peer.theirs, common_.Offer());
  absl::StatusOr<Mapping> rings =
      MapSealed(received.fds[0].get(), shapes.bytes(), MapAccess::kReadWrite);
  if (!rings.ok()) return rings.status();
  absl::StatusOr<Mapping> page =
      MapSealed(received.fds[1].get(), kIncarnationPageBytes, MapAccess::kRead);
  if (!page.ok()) return page.status();
  connection->page = *std::move(page);
  // The mappings keep both files, so that nothing blocks.
  for (PeerFd& fd : received.fds) close(fd.release());
  connection->alive = LoadAlive(connection->page);
  if (!IsPageOf(connection->page, received.packet.incarnation))
    return NotOspreyError("its acceptance brings the page of another server");
  if (!RobustFutex::IsHeld(connection->alive))
    return PeerGoneError("the server's process has ended");
  SetRings(connection, *std::move(rings), /*server=*/false);
  return absl::OkStatus();
}

// --- From thread to thread: the socket, on which nothing but connect data has come so far, changes
// hands.

absl::Status ShmSetup::HandOver(ShmConnection* connection, ShmSetup& to) {
  assert(to.common_.options.accepts);
  absl::Status status = to.migrated_->Put([&]() -> absl::StatusOr<ShmMigrated> {
    // It stays open, so that epoll would not forget it by itself.
    (void)epoll_ctl(common_.epoll.get(), EPOLL_CTL_DEL, connection->socket.get(), nullptr);
    return ShmMigrated{std::move(connection->socket), std::move(connection->peer)};
  });
  if (status.ok()) ending_.Erase(connection);
  return status;
}

void ShmSetup::TakeMigrated() {
  for (ShmMigrated& one : migrated_->Take()) {
    const int fd = one.socket.get();
    ShmConnection* connection = common_.connections.Add(State::kRequested, std::move(one.socket));
    if (connection == nullptr) {
      SendRejection(fd, RejectReason::kTooManyConnections, one.peer.theirs.version);
      continue;
    }
    connection->peer = std::move(one.peer);
    if (!Watch(connection)) {
      SendRejection(fd, RejectReason::kTooManyConnections, connection->peer.theirs.version);
      ending_.Erase(connection);
      continue;
    }
    QueueRequest(*connection);
  }
}

// --- Both sides.

void ShmSetup::SetRings(ShmConnection* connection, Mapping rings, bool server) {
  const RingShapes shapes = server ? ShapesOf(common_.Offer(), connection->peer.theirs)
                                   : ShapesOf(connection->peer.theirs, common_.Offer());
  std::byte* const to_server = rings.data();
  std::byte* const to_client = rings.data() + shapes.to_server.bytes();
  connection->rings = std::move(rings);
  connection->in = server ? RingConsumer(to_server, shapes.to_server)
                          : RingConsumer(to_client, shapes.to_client);
  connection->out = server ? RingProducer(to_client, shapes.to_client)
                           : RingProducer(to_server, shapes.to_server);
  connection->limits.frame_bytes_max = shapes.to_server.frame_bytes_max;
  connection->limits.send_credits_max =
      static_cast<uint16_t>(server ? shapes.to_client.slots : shapes.to_server.slots);
  connection->limits.reads_in_flight_max = common_.options.reads_in_flight_max;
  connection->limits.read_depth = common_.options.reads_in_flight_max;
  connection->limits.read_bytes_max = std::numeric_limits<uint32_t>::max();
  connection->limits.version = connection->peer.theirs.version;
  if (connection->state == State::kConnecting) --common_.connecting;
  connection->state = State::kConnected;
  common_.receiving.Add(connection);
}

}  // namespace osprey::rdma
