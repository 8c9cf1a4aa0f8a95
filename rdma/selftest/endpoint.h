// One end's queue pair and memory for one layer of the self-test, and the operations on them.

#ifndef OSPREY_RDMA_SELFTEST_ENDPOINT_H_
#define OSPREY_RDMA_SELFTEST_ENDPOINT_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/host_memory.h"
#include "rdma/selftest/control.h"
#include "rdma/verbs/completions.h"
#include "rdma/verbs/device/device.h"
#include "rdma/verbs/device/objects.h"

namespace osprey::rdma::selftest {

// The memory of an end:
//
//   source: a pattern of the seed, 1 MiB    what the peer READs; what we SEND and WRITE
//   landing: 1 MiB                          where our READs land, and the peer's WRITEs
//   receives: 64 KiB each                   where the peer's SENDs land
inline constexpr size_t kPartBytes = size_t{1} << 20;
inline constexpr size_t kReceiveBytes = size_t{64} << 10;
inline constexpr int kReceives = 2;
// Memory that the peer may access: source and landing. No other memory is registered for it.
inline constexpr uint32_t kRemoteBytes = 2 * kPartBytes;

// The rights that the peer has on the memory and on the queue pair. WRITE is among them only here
// in Osprey: see selftest.h.
inline constexpr unsigned kPeerRights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

class Endpoint {
 public:
  // In RESET, with memory registered. Errors: RESOURCE_EXHAUSTED, INTERNAL.
  static absl::StatusOr<std::unique_ptr<Endpoint>> Create(const VerbsDevice& device, uint64_t seed);

  ibv_qp* queue_pair() const { return queue_pair_.get(); }
  // Fills in the parameters of memory and queue pair for the peer.
  void Describe(Message& message) const;
  // `peer`: the other end's parameters, validated.
  void SetPeer(const Message& peer) { peer_ = peer; }

  // REQUIRES: INIT or later.
  absl::Status PostReceives();

  // Each ends by `deadline`; REQUIRES: RTS, SetPeer. Errors: INTERNAL: a completion with an error;
  // DEADLINE_EXCEEDED: no completion; DATA_LOSS: bytes differ. The message has the details and the
  // fix.
  //
  // Ping runs on one end and Pong on the other: SENDs of every size, each answered by one of the
  // same.
  absl::Status Ping(absl::Time deadline);
  absl::Status Pong(absl::Time deadline);
  // READs from and WRITEs to the peer's memory, at every size.
  absl::Status Read(absl::Time deadline);
  absl::Status Write(absl::Time deadline);
  // Called after the peer has reported that its WRITEs were acknowledged.
  absl::Status CheckWritten(absl::Time deadline) const;

 private:
  explicit Endpoint(uint64_t seed) : seed_(seed) {}

  std::byte* source() const { return memory_->data(); }
  std::byte* landing() const { return memory_->data() + kPartBytes; }
  std::byte* receive(int index) const {
    return memory_->data() + 2 * kPartBytes + static_cast<size_t>(index) * kReceiveBytes;
  }
  absl::Status PostReceive(int index);
  absl::Status Post(ibv_wr_opcode opcode, std::byte* local, size_t bytes, uint64_t remote);
  // Waits for the completion of `work`, a wr_id.
  absl::Status Await(uint64_t work, absl::Time deadline, uint32_t* received = nullptr);
  absl::Status AwaitReceive(int index, size_t bytes, absl::Time deadline);
  absl::Status Move(ibv_wr_opcode opcode, size_t bytes, absl::Time deadline);
  // Calls `once` with every size of SENDs and its receive.
  absl::Status Talk(absl::string_view what, absl::Time deadline,
                    absl::FunctionRef<absl::Status(int index, size_t bytes)> once);
  absl::Status AtEverySize(ibv_wr_opcode opcode, absl::Time deadline);

  const uint64_t seed_;
  Message peer_;
  std::unique_ptr<HostMemory> memory_;
  MemoryRegion remote_region_;  // source and landing
  MemoryRegion local_region_;   // receives
  std::unique_ptr<CompletionQueue> completions_;
  QueuePair queue_pair_;  // destroyed before what it uses
  std::map<uint64_t, ibv_wc> arrived_;
};

}  // namespace osprey::rdma::selftest

#endif  // OSPREY_RDMA_SELFTEST_ENDPOINT_H_
