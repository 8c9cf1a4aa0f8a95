// Registers more memory than the process may pin. Needs the lab and a separate process. The kernel
// refuses work on descriptors of RDMA devices that were opened before the process's credentials
// changed.

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rdma/errors.h"
#include "tests/rdma/transport_contract.h"

namespace osprey::rdma {
namespace {

using VerbsMemlock = TransportContract;

INSTANTIATE_TEST_SUITE_P(Way, VerbsMemlock, testing::Values(ContractWays().front()));

// For the rest of the process: no CAP_IPC_LOCK, and a low RLIMIT_MEMLOCK.
void BecomeOrdinary(rlim_t memlock_bytes) {
  __user_cap_header_struct header = {};
  header.version = _LINUX_CAPABILITY_VERSION_3;
  __user_cap_data_struct capabilities[2] = {};
  ASSERT_EQ(syscall(SYS_capget, &header, capabilities), 0);
  capabilities[0].effective &= ~(1u << CAP_IPC_LOCK);
  ASSERT_EQ(syscall(SYS_capset, &header, capabilities), 0);
  const rlimit low = {memlock_bytes, memlock_bytes};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
}

TEST_P(VerbsMemlock, ExceedingMemlockIsRefusedWithBothNumbersAndAFix) {
  BecomeOrdinary(1 << 20);
  Side side(*fixture_);
  HostMemory memory = *HostMemory::Create("verbs-test", 4 << 20);
  const std::unique_ptr<Memory> before = Allocate(side, 512 << 10, Access::kLocal);  // counts too
  const absl::Status status = side.domain().Register(memory, Access::kRemoteRead).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(ReasonOf(status), Reason::kMemlockTooLow) << status;
  for (const char* part : {"1048576", "4718592", "ulimit -l"}) {
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << part << ": " << status;
  }
  EXPECT_EQ(ReasonOf(side.domain().Allocate(768 << 10, Access::kLocal).status()),
            Reason::kMemlockTooLow);
  EXPECT_TRUE(side.domain().Allocate(256 << 10, Access::kLocal).ok());
}

TEST_P(VerbsMemlock, AConnectionThatCannotPinItsFramesEndsWithThatReason) {
  BecomeOrdinary(1 << 20);
  TransportOptions large;
  large.frame_bytes_max = 1 << 20;
  Side server(*fixture_, large), client(*fixture_, large);
  const std::string uri = Listen(server);
  const absl::StatusOr<ConnectionId> id = client.transport().Connect(uri);
  ASSERT_TRUE(id.ok()) << id.status();
  ASSERT_TRUE(Until({&server, &client},
                    [&] { return client.Find(Event::Kind::kDisconnected, *id) != nullptr; }));
  EXPECT_EQ(ReasonOf(client.Find(Event::Kind::kDisconnected)->status), Reason::kMemlockTooLow);
  EXPECT_EQ(client.transport().resources().queue_pairs, 0u);
}

}  // namespace
}  // namespace osprey::rdma
