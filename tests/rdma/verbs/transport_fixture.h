// What the tests of the verbs transport share.

#ifndef OSPREY_TESTS_RDMA_VERBS_TRANSPORT_FIXTURE_H_
#define OSPREY_TESTS_RDMA_VERBS_TRANSPORT_FIXTURE_H_

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "rdma/verbs/device/objects.h"
#include "rdma/verbs/device/queue_pair.h"
#include "rdma/verbs/frame.h"
#include "rdma/verbs/verbs_transport.h"
#include "tests/rdma/transport_contract.h"
#include "tests/support/subprocess.h"

namespace osprey::rdma {

class VerbsTransportTest : public TransportContract {
 protected:
  using Kind = Event::Kind;

  static ibv_qp* QueuePairOf(Side& side, ConnectionId id) {
    return static_cast<VerbsTransport&>(side.transport()).queue_pair(id);
  }
  static std::string LabIp() { return std::getenv("LAB_IP"); }

  // SENDs invalid bytes, bypassing the transport.
  static void SendRaw(Side& side, ConnectionId id, const std::string& bytes) {
    static std::byte buffer[4096];
    std::memcpy(buffer, bytes.data(), bytes.size());
    ibv_qp* const queue_pair = QueuePairOf(side, id);
    const int access = IBV_ACCESS_LOCAL_WRITE;
    const MemoryRegion region(ibv_reg_mr(queue_pair->pd, buffer, sizeof(buffer), access));
    ibv_sge segment = {reinterpret_cast<uintptr_t>(buffer), static_cast<uint32_t>(bytes.size()),
                       region->lkey};
    ibv_send_wr request = {};
    request.sg_list = &segment;
    request.num_sge = bytes.empty() ? 0 : 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = bytes.size() <= kInlineBytesWanted ? unsigned{IBV_SEND_INLINE} : 0u;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(queue_pair, &request, &bad), 0);
  }
  static std::string Envelope(uint16_t credits, uint8_t flags, uint32_t length,
                              const std::string& frame = "") {
    const FrameEnvelope envelope = {
        .credits = credits, .flags = flags, .reserved = 0, .length = length};
    return std::string(reinterpret_cast<const char*>(&envelope), sizeof(envelope)) + frame;
  }
  static size_t CountOf(const Side& side, Kind kind) {
    const auto is_of_kind = [kind](const Recorded& event) { return event.kind == kind; };
    return static_cast<size_t>(
        std::count_if(side.events().begin(), side.events().end(), is_of_kind));
  }
  // Pumps `side` until it has had `count` events of that kind, with pauses of `pause` between.
  // Returns the most that one Poll returned.
  static size_t MostAPoll(Side& side, Kind kind, size_t count,
                          absl::Duration pause = absl::ZeroDuration()) {
    size_t most = 0;
    const absl::Time end = absl::Now() + kContractPatience;
    while (CountOf(side, kind) < count && absl::Now() < end) {
      absl::SleepFor(pause);
      const size_t before = CountOf(side, kind);
      side.Pump();
      most = std::max(most, CountOf(side, kind) - before);
    }
    EXPECT_EQ(CountOf(side, kind), count);
    return most;
  }
  static ConnectionId LastOf(const Side& side, Kind kind) {
    ConnectionId last = ConnectionId::kNone;
    for (const Recorded& event : side.events()) {
      if (event.kind == kind) last = event.id;
    }
    return last;
  }
  // Queue pairs that the kernel holds: all, or those made by threads of that name.
  static int KernelQueuePairs(const std::string& maker = "") {
    const ProgramResult shown = RunProgram({"rdma", "resource", "show", "qp"});
    EXPECT_EQ(shown.exit_status, 0) << shown.err;
    int count = 0;
    for (const absl::string_view line : absl::StrSplit(shown.out, '\n'))
      count += !line.empty() && absl::StrContains(line, maker);
    return count;
  }
};

}  // namespace osprey::rdma

#endif  // OSPREY_TESTS_RDMA_VERBS_TRANSPORT_FIXTURE_H_
