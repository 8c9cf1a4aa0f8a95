#include "rdma/shm/transport_sockets.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rdma/errors.h"
#include "rdma/shm/mapping.h"

namespace osprey::rdma {
namespace {

// Work done in one look at the sockets, in all and of one connection; what is left keeps the epoll
// descriptor readable.
constexpr int kEpollEventsMax = 64;
constexpr int kPacketsMax = 16;
// Newcomers taken in one look at a listener; what is left keeps the epoll descriptor readable.
constexpr int kNewcomersMax = 16;

// Memories that a peer may have exposed before the first is attached. A server attaches a client's
// liveness word when the client has proved that it has the key, and a client attaches the server's
// region likewise. Until then each costs the other one descriptor and no address.
constexpr size_t kUnattachedMax = 1;
// What the memories of one server may take of our 2^47 addresses, be there pages behind them or
// not: without addresses nothing else could be allocated. Those of clients take none.
constexpr uint64_t kServerBytesMax = uint64_t{1} << 42;

// What the peer exposed under that key, if `remote` lies within it: a part of it will do.
ShmPeerMemory* FindPeerMemory(ShmConnection& connection, const RemoteMemory& remote) {
  for (ShmPeerMemory& memory : connection.peer_memories) {
    if (memory.key == remote.key && remote.length <= memory.length &&
        remote.address <= memory.length - remote.length) {
      return &memory;
    }
  }
  return nullptr;
}

absl::Status MakeReadable(const ShmConnection& connection, ShmPeerMemory& memory) {
  if (connection.is_server()) {
    const absl::Status status = SealedSize(memory.fd.get(), memory.length).status();
    memory.attached = status.ok();
    return status;
  }
  uint64_t bytes = 0;
  for (const ShmPeerMemory& other : connection.peer_memories) bytes += other.mapping.size();
  if (bytes > kServerBytesMax || memory.length > kServerBytesMax - bytes) {
    return absl::InvalidArgumentError(absl::StrCat("the peer's memories have more than the ",
                                                   kServerBytesMax,
                                                   " bytes that are mapped for one"));
  }
  absl::StatusOr<Mapping> mapping = MapSealed(memory.fd.get(), memory.length, MapAccess::kRead);
  if (!mapping.ok()) return mapping.status();
  memory.mapping = *std::move(mapping);
  close(memory.fd.release());  // the mapping does without; as it keeps the file, nothing blocks
  memory.attached = true;
  return absl::OkStatus();
}

}  // namespace

void ShmSockets::Check() {
  epoll_event ready[kEpollEventsMax];
  const int count = epoll_wait(common_.epoll.get(), ready, kEpollEventsMax, /*timeout=*/0);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = ready[i].data.u64;
    if (tag == ShmSetup::kMigratedTag) {
      setup_.TakeMigrated();
    } else if ((tag & ShmSetup::kListenerTag) != 0) {
      TakeNewcomers(tag & ~ShmSetup::kListenerTag);
    } else if (ShmConnection* connection = common_.connections.Find(ConnectionId{tag});
               connection != nullptr) {
      Read(connection);
    }
  }
  if (count == kEpollEventsMax) due_ = true;
  if (common_.ledger->kept() > 0) common_.ledger->Sweep();
}

void ShmSockets::TakeNewcomers(size_t listener) {
  int taken = 0;
  for (; taken < kNewcomersMax; ++taken) {
    ShmConnection* newcomer = nullptr;
    if (!setup_.TakeNewcomer(listener, &newcomer)) break;
    if (newcomer != nullptr) Read(newcomer);  // an honest client has spoken already
  }
  if (taken == kNewcomersMax) due_ = true;
}

void ShmSockets::Read(ShmConnection* connection) {
  // Whatever has come, a wake-up or a hang-up: frames may lie in its ring.
  if (std::exchange(connection->resting, false)) common_.receiving.Add(connection);
  const ConnectionId id = connection->id;
  for (int i = 0; i < kPacketsMax; ++i) {
    ReceivedPacket received;
    switch (ReceivePacket(connection->socket, &received)) {
      case ReceiveResult::kNothing:
        return;
      case ReceiveResult::kHangUp:
        return HandleHangUp(connection);
      case ReceiveResult::kPacket:
        HandlePacket(connection, received);
    }
    // It may have gone, or lost its socket.
    if (common_.connections.Find(id) != connection || !connection->socket.valid()) return;
  }
  due_ = true;
}

void ShmSockets::HandlePacket(ShmConnection* connection, ReceivedPacket& received) {
  if (connection->state == State::kGreeting) return setup_.HandleRequest(connection, received);
  if (connection->state == State::kConnecting) return setup_.HandleAnswer(connection, received);
  const bool whole = received.bytes == sizeof(ShmPacket) && received.taken();
  const bool connected = connection->state == State::kConnected;
  switch (whole ? static_cast<PacketKind>(received.packet.kind) : PacketKind::kConnect) {
    case PacketKind::kExpose:
      if (connected) return HandleExpose(connection, received);
      break;
    case PacketKind::kWithdraw:
      if (connected) return HandleWithdraw(connection, received);
      break;
    case PacketKind::kWake:
      if (connected && received.fd_count == 0) return;  // that it came was all
      break;
    case PacketKind::kBye:
      if (received.fd_count > 0) break;
      connection->bye = true;
      return;
    case PacketKind::kConnect:
      break;
  }
  ending_.End(connection, BrokeRulesError("the peer broke the rules of the socket"));
}

void ShmSockets::HandleHangUp(ShmConnection* connection) {
  switch (connection->state) {
    case State::kGreeting:
      return setup_.DropNewcomer(connection);
    case State::kRequested:
      return ending_.End(
          connection, connection->bye ? absl::OkStatus()
                                      : PeerGoneError("the client ended before it was answered"));
    case State::kConnecting:
      return ending_.End(
          connection,
          UnreachableError(connection->peer.uri, "the server closed the socket without an answer"));
    case State::kConnected:
      // What the peer had published before it went is still delivered.
      connection->in.Freeze();
      ending_.CloseSocket(connection);
      connection->state = State::kDraining;
      return;
    case State::kDraining:
    case State::kEnded:
      return;
  }
}

absl::StatusOr<RemoteMemory> ShmSockets::Expose(ConnectionId id, const Memory& memory) {
  ShmConnection* connection = common_.connections.Find(id);
  if (connection == nullptr || connection->state != State::kConnected) {
    return absl::UnavailableError("the connection is not, or no longer, up");
  }
  const auto* ours = dynamic_cast<const ShmMemory*>(&memory);
  assert(ours != nullptr && "memory of another domain");
  if (ours->access() != Access::kRemoteRead) {
    return absl::InvalidArgumentError(
        "memory that was registered for local use only cannot be exposed");
  }
  SendWithdrawals(connection);
  for (const ShmExposed& exposed : connection->exposed) {
    if (exposed.serial == ours->serial() && !exposed.withdrawn) return exposed.remote;
  }
  if (connection->exposed.size() >= connection->peer.exposed_max)
    return TooManyExposedError(connection->peer.exposed_max);
  ShmPacket packet;
  packet.kind = static_cast<uint32_t>(PacketKind::kExpose);
  packet.key = ++connection->last_exposed_key;
  packet.length = memory.size();
  const int fds[] = {ours->fd()};
  if (const int error = SendPacket(connection->socket.get(), packet, fds); error != 0) {
    const std::string text =
        absl::StrCat("the peer does not take the memory: ", std::strerror(error));
    const bool full =
        error == EAGAIN || error == EWOULDBLOCK || error == ETOOMANYREFS || error == ENOBUFS;
    return full ? absl::ResourceExhaustedError(text) : absl::UnavailableError(text);
  }
  connection->descriptors_unread = connection->is_server();
  connection->exposed.push_back(
      {ours->serial(), RemoteMemory{0, memory.size(), packet.key}, /*withdrawn=*/false});
  return connection->exposed.back().remote;
}

void ShmSockets::Withdraw(ConnectionId id, const Memory& memory) {
  ShmConnection* connection = common_.connections.Find(id);
  if (connection == nullptr || connection->state != State::kConnected) return;
  const auto* ours = dynamic_cast<const ShmMemory*>(&memory);
  assert(ours != nullptr && "memory of another domain");
  for (ShmExposed& exposed : connection->exposed) {
    if (exposed.serial == ours->serial()) exposed.withdrawn = true;
  }
  SendWithdrawals(connection);
}

// Those that the socket does not take keep their places until the next time: the peer holds its
// mapping meanwhile.
void ShmSockets::SendWithdrawals(ShmConnection* connection) {
  std::erase_if(connection->exposed, [&](const ShmExposed& exposed) {
    if (!exposed.withdrawn) return false;
    ShmPacket packet;
    packet.kind = static_cast<uint32_t>(PacketKind::kWithdraw);
    packet.key = exposed.remote.key;
    return SendPacket(connection->socket.get(), packet) == 0;
  });
}

void ShmSockets::HandleExpose(ShmConnection* connection, ReceivedPacket& received) {
  std::vector<ShmPeerMemory>& memories = connection->peer_memories;
  const bool known =
      std::any_of(memories.begin(), memories.end(),
                  [&](const ShmPeerMemory& memory) { return memory.key == received.packet.key; });
  if (received.fd_count != 1 || known) {
    return ending_.End(connection, BrokeRulesError("the peer exposed no memory, or one key twice"));
  }
  if (!connection->attached_once && memories.size() == kUnattachedMax) {
    return ending_.End(
        connection, BrokeRulesError(absl::StrCat("the peer exposed more than the ", kUnattachedMax,
                                                 " memory that it may before that is attached")));
  }
  if (memories.size() == common_.domain.peer_memories_max) {
    return ending_.End(connection, BrokeRulesError(absl::StrCat("the peer exposed more than ",
                                                                common_.domain.peer_memories_max,
                                                                " memories at a time")));
  }
  ShmPeerMemory memory;
  memory.key = received.packet.key;
  memory.length = received.packet.length;
  memory.fd = std::move(received.fds[0]);
  memories.push_back(std::move(memory));
}

// READs are carried out when they are posted, so none is under way.
void ShmSockets::HandleWithdraw(ShmConnection* connection, const ReceivedPacket& received) {
  const size_t gone = std::erase_if(connection->peer_memories, [&](const ShmPeerMemory& memory) {
    return memory.key == received.packet.key;
  });
  if (gone == 1 && received.fd_count == 0) return;
  ending_.End(connection, BrokeRulesError("the peer withdrew what it had not exposed"));
}

absl::Status ShmSockets::Attach(ConnectionId id, const RemoteMemory& remote) {
  ShmConnection* connection = common_.connections.Find(id);
  const absl::Status not_connected =
      absl::UnavailableError("the connection is not, or no longer, up");
  if (connection == nullptr || connection->state != State::kConnected) return not_connected;
  ShmPeerMemory* memory = FindPeerMemory(*connection, remote);
  if (memory == nullptr) {
    // The peer sent the descriptor before the frame that told of it, so it is in the socket by now.
    Read(connection);
    // … or the end of the connection is. (It stays in the table until its kDisconnected is
    // delivered.)
    if (connection->state != State::kConnected) return not_connected;
    memory = FindPeerMemory(*connection, remote);
  }
  if (memory == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the peer exposed no memory of ", remote.length,
                                                   " bytes under the key ", remote.key));
  }
  if (memory->attached) return absl::OkStatus();
  absl::Status status = MakeReadable(*connection, *memory);
  connection->attached_once |= status.ok();
  return status;
}

}  // namespace osprey::rdma
