// What comes over the sockets of connections: packets, descriptors, hang-ups. And what goes there
// about memory.

#ifndef OSPREY_RDMA_SHM_TRANSPORT_SOCKETS_H_
#define OSPREY_RDMA_SHM_TRANSPORT_SOCKETS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rdma/shm/connection.h"
#include "rdma/shm/connection_end.h"
#include "rdma/shm/socket.h"
#include "rdma/shm/transport_setup.h"
#include "rdma/transport.h"

namespace osprey::rdma {

// The sockets of one Transport. Not thread-safe.
class ShmSockets {
 public:
  // REQUIRES: all three outlive this.
  ShmSockets(ShmCommon& common, ShmEnding& ending, ShmSetup& setup)
      : common_(common), ending_(ending), setup_(setup) {}

  // Whether the Poll that asks is one that looks at the sockets (Check). `connecting` is the count
  // in ShmCommon.
  bool AreDue(size_t connecting) {
    // While a connection is being made, packets come over sockets: worth a system call a Poll.
    if (!due_ && connecting == 0 && ++polls_since_check_ < kPollsPerCheck) return false;
    polls_since_check_ = 0;
    due_ = false;
    return true;
  }
  // The next Poll looks at the sockets.
  void SetDue() { due_ = true; }
  // Looks at the sockets, and takes what has come, within bounds.
  void Check();

  // As of Transport.
  absl::StatusOr<RemoteMemory> Expose(ConnectionId id, const Memory& memory);
  void Withdraw(ConnectionId id, const Memory& memory);
  absl::Status Attach(ConnectionId id, const RemoteMemory& remote);

 private:
  using State = ShmConnection::State;

  // The sockets are looked at, by a system call of some 300 ns, once in so many Polls; always when
  // the last ones say so. A spinning caller thus notices a death within microseconds, and pays a few
  // nanoseconds a Poll.
  static constexpr uint32_t kPollsPerCheck = 64;

  void TakeNewcomers(size_t listener);
  void Read(ShmConnection* connection);
  void HandlePacket(ShmConnection* connection, ReceivedPacket& received);
  void HandleExpose(ShmConnection* connection, ReceivedPacket& received);
  void HandleWithdraw(ShmConnection* connection, const ReceivedPacket& received);
  void SendWithdrawals(ShmConnection* connection);
  void HandleHangUp(ShmConnection* connection);

  ShmCommon& common_;
  ShmEnding& ending_;
  ShmSetup& setup_;
  uint32_t polls_since_check_ = 0;
  bool due_ = false;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_TRANSPORT_SOCKETS_H_
