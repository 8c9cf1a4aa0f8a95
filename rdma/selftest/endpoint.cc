#include "rdma/selftest/endpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "rdma/verbs/device/queue_pair.h"

namespace osprey::rdma::selftest {
namespace {

// Below a packet, about a packet, many packets.
constexpr size_t kSizes[] = {64, 4096, 64 << 10, 1 << 20};
constexpr size_t kSendSizes[] = {64, 4096, kReceiveBytes};
// A packet holds 4 KiB at most, and 1 KiB where the network's frames have 1,500 bytes.
constexpr size_t kPacketBytes = 1024;

constexpr uint64_t kWork = 100;  // wr_id of our own requests; receives have their index
constexpr absl::Duration kPause = absl::Microseconds(20);

uint64_t Mix(uint64_t x) {  // SplitMix64's finalizer
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9;
  x ^= x >> 27;
  x *= 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

void FillPattern(std::byte* data, uint64_t seed) {
  for (size_t i = 0; i < kPartBytes; i += sizeof(uint64_t)) {
    const uint64_t word = Mix(seed + i);
    std::memcpy(data + i, &word, sizeof(word));
  }
}

// True if the first `bytes` (a multiple of 8) are the pattern's.
bool IsPattern(const std::byte* data, size_t bytes, uint64_t seed) {
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, data + i, sizeof(word));
    if (word != Mix(seed + i)) return false;
  }
  return true;
}

const char* NameOf(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
      return "SEND";
    case IBV_WR_RDMA_READ:
      return "READ";
    case IBV_WR_RDMA_WRITE:
      return "WRITE";
    default:
      return "work request";
  }
}

const char* MeaningOf(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "no packet came back: a firewall keeps UDP 4791 out, or the GIDs are of two networks";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the other end has posted no receive";
    case IBV_WC_REM_ACCESS_ERR:
      return "the other device refused the address or rkey";
    case IBV_WC_LOC_PROT_ERR:
      return "the own device refused the memory";
    case IBV_WC_WR_FLUSH_ERR:
      return "the queue pair broke before";
    default:
      return "see the kernel's log";
  }
}

// `status`, with the operation and size that failed, and the likely reason if a shorter one passed.
absl::Status At(absl::string_view what, size_t bytes, size_t passed, const absl::Status& status) {
  std::string message = absl::StrCat(what, " of ", bytes, " B: ", status.message());
  if (passed > 0 && bytes > kPacketBytes) {
    absl::StrAppend(&message, "; ", passed,
                    " B came through: packets of the full MTU may be lost on the way");
  }
  return absl::Status(status.code(), message);
}

absl::StatusOr<MemoryRegion> RegisterRegion(const VerbsDevice& device, std::byte* data,
                                            size_t bytes, unsigned rights) {
  MemoryRegion region(ibv_reg_mr(device.domain.get(), data, bytes,
                                 static_cast<int>(IBV_ACCESS_LOCAL_WRITE | rights)));
  if (region == nullptr) {
    return VerbsError(
        absl::StrCat("ibv_reg_mr of ", bytes,
                     errno == ENOMEM ? " bytes (ulimit -l allows too little?)" : " bytes"),
        errno);
  }
  return region;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Endpoint>> Endpoint::Create(const VerbsDevice& device,
                                                           uint64_t seed) {
  std::unique_ptr<Endpoint> end(new Endpoint(seed));
  absl::StatusOr<HostMemory> memory =
      HostMemory::Create("osprey-selftest", 2 * kPartBytes + kReceives * kReceiveBytes);
  if (!memory.ok()) return memory.status();
  end->memory_ = std::make_unique<HostMemory>(*std::move(memory));
  FillPattern(end->source(), seed);
  absl::StatusOr<MemoryRegion> remote =
      RegisterRegion(device, end->source(), kRemoteBytes, kPeerRights);
  if (!remote.ok()) return remote.status();
  end->remote_region_ = *std::move(remote);
  absl::StatusOr<MemoryRegion> local =
      RegisterRegion(device, end->receive(0), kReceives * kReceiveBytes, 0);
  if (!local.ok()) return local.status();
  end->local_region_ = *std::move(local);
  QueuePairShape shape;
  shape.sends = 4;
  shape.receives = kReceives;
  absl::StatusOr<std::unique_ptr<CompletionQueue>> completions =
      CompletionQueue::Create(device, nullptr, shape.sends + shape.receives);
  if (!completions.ok()) return completions.status();
  end->completions_ = *std::move(completions);
  absl::StatusOr<NewQueuePair> made = CreateQueuePair(device, end->completions_->get(), shape);
  if (!made.ok()) return made.status();
  end->queue_pair_ = std::move(made->queue_pair);
  return end;
}

void Endpoint::Describe(Message& message) const {
  message.qpn = queue_pair_->qp_num;
  message.rkey = remote_region_->rkey;
  message.bytes = kRemoteBytes;
  message.address = reinterpret_cast<uintptr_t>(source());
  message.seed = seed_;
}

absl::Status Endpoint::PostReceive(int index) {
  ibv_sge segment = {};
  segment.addr = reinterpret_cast<uintptr_t>(receive(index));
  segment.length = kReceiveBytes;
  segment.lkey = local_region_->lkey;
  ibv_recv_wr request = {};
  request.wr_id = static_cast<uint64_t>(index);
  request.sg_list = &segment;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(queue_pair_.get(), &request, &bad);
  return error == 0 ? absl::OkStatus() : VerbsError("ibv_post_recv", error);
}

absl::Status Endpoint::PostReceives() {
  for (int index = 0; index < kReceives; ++index) {
    if (absl::Status status = PostReceive(index); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Endpoint::Post(ibv_wr_opcode opcode, std::byte* local, size_t bytes, uint64_t remote) {
  ibv_sge segment = {};
  segment.addr = reinterpret_cast<uintptr_t>(local);
  segment.length = static_cast<uint32_t>(bytes);
  segment.lkey = remote_region_->lkey;
  ibv_send_wr request = {};
  request.wr_id = kWork;
  request.sg_list = &segment;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = remote;
  request.wr.rdma.rkey = peer_.rkey;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(queue_pair_.get(), &request, &bad);
  return error == 0 ? absl::OkStatus() : VerbsError("ibv_post_send", error);
}

absl::Status Endpoint::Await(uint64_t work, absl::Time deadline, uint32_t* received) {
  for (auto found = arrived_.find(work); found == arrived_.end(); found = arrived_.find(work)) {
    if (const ibv_wc* completion = completions_->Next(); completion != nullptr) {
      arrived_[completion->wr_id] = *completion;
    } else if (absl::Now() > deadline) {
      return absl::DeadlineExceededError("nothing completed in time");
    } else {
      absl::SleepFor(kPause);
    }
  }
  const ibv_wc completion = arrived_[work];
  arrived_.erase(work);
  if (completion.status != IBV_WC_SUCCESS) {
    return absl::InternalError(
        absl::StrCat(ibv_wc_status_str(completion.status), ": ", MeaningOf(completion.status)));
  }
  if (received != nullptr) *received = completion.byte_len;
  return absl::OkStatus();
}

absl::Status Endpoint::AwaitReceive(int index, size_t bytes, absl::Time deadline) {
  uint32_t received = 0;
  if (absl::Status status = Await(static_cast<uint64_t>(index), deadline, &received); !status.ok())
    return status;
  if (received != bytes || !IsPattern(receive(index), bytes, peer_.seed)) {
    return absl::DataLossError(
        absl::StrCat("a SEND of ", bytes, " B arrived as ", received, " B, or with other bytes"));
  }
  return PostReceive(index);
}

absl::Status Endpoint::Talk(absl::string_view what, absl::Time deadline,
                            absl::FunctionRef<absl::Status(int index, size_t bytes)> once) {
  int index = 0;
  size_t passed = 0;
  for (const size_t bytes : kSendSizes) {
    if (absl::Now() > deadline) return absl::DeadlineExceededError("no time left");
    if (const absl::Status status = once(index, bytes); !status.ok())
      return At(what, bytes, passed, status);
    index = (index + 1) % kReceives;
    passed = bytes;
  }
  return absl::OkStatus();
}

absl::Status Endpoint::Ping(absl::Time deadline) {
  return Talk("SEND", deadline, [&](int index, size_t bytes) {
    const absl::Status sent = Move(IBV_WR_SEND, bytes, deadline);
    return sent.ok() ? AwaitReceive(index, bytes, deadline) : sent;
  });
}

absl::Status Endpoint::Pong(absl::Time deadline) {
  return Talk("RECV", deadline, [&](int index, size_t bytes) {
    const absl::Status received = AwaitReceive(index, bytes, deadline);
    return received.ok() ? Move(IBV_WR_SEND, bytes, deadline) : received;
  });
}

absl::Status Endpoint::Move(ibv_wr_opcode opcode, size_t bytes, absl::Time deadline) {
  const bool read = opcode == IBV_WR_RDMA_READ;
  // The peer's memory has the same form as ours.
  const uint64_t remote = peer_.address + (read ? 0 : kPartBytes);
  if (read) std::memset(landing(), 0, bytes);
  if (absl::Status status = Post(opcode, read ? landing() : source(), bytes, remote); !status.ok())
    return status;
  if (absl::Status status = Await(kWork, deadline); !status.ok()) return status;
  if (read && !IsPattern(landing(), bytes, peer_.seed))
    return absl::DataLossError("other bytes came than the peer has");
  return absl::OkStatus();
}

absl::Status Endpoint::AtEverySize(ibv_wr_opcode opcode, absl::Time deadline) {
  size_t passed = 0;
  for (const size_t bytes : kSizes) {
    const absl::Status status = Move(opcode, bytes, deadline);
    if (status.ok()) {
      passed = bytes;
      continue;
    }
    return At(NameOf(opcode), bytes, passed, status);
  }
  return absl::OkStatus();
}

absl::Status Endpoint::Read(absl::Time deadline) { return AtEverySize(IBV_WR_RDMA_READ, deadline); }
absl::Status Endpoint::Write(absl::Time deadline) {
  return AtEverySize(IBV_WR_RDMA_WRITE, deadline);
}

absl::Status Endpoint::CheckWritten(absl::Time deadline) const {
  // The last WRITE was the longest, and covers the others. Its acknowledgement does not mean that
  // our CPU sees it yet.
  while (!IsPattern(landing(), kPartBytes, peer_.seed)) {
    if (absl::Now() > deadline)
      return absl::DataLossError("other bytes are here than the peer wrote");
    absl::SleepFor(absl::Milliseconds(1));
  }
  return absl::OkStatus();
}

}  // namespace osprey::rdma::selftest
