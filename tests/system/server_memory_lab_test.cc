// The memory of a server that an RDMA device pins. Needs the lab.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string AnyPort() { return absl::StrCat("rdma://", std::getenv("LAB_IP"), ":0"); }

TEST(ServerMemoryLabTest, AllOfItIsPinnedAtStart) {
  const absl::StatusOr<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start(AnyPort(), {"--memory=128MiB"});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GE(StatusNumber((*server)->pid(), "VmPin"), 128 << 10);
  EXPECT_GE(StatusNumber((*server)->pid(), "RssShmem"), 128 << 10);
}

TEST(ServerMemoryLabTest, ExceedingMemlockExitsWithStatusFourAndAFix) {
  const ProgramResult result = RunProgram(
      {"prlimit", "--memlock=8388608", "setpriv", "--bounding-set=-ipc_lock",
       "--inh-caps=-ipc_lock", "server/kvserver", "--memory=64MiB", "--listen=" + AnyPort()});
  EXPECT_EQ(result.exit_status, 4) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, AllOf(HasSubstr("registering 67108864 bytes with the RDMA device pins"),
                                HasSubstr("may pin 8388608 bytes"), HasSubstr("ulimit -l 65536"),
                                HasSubstr("ask for less memory")));
}

// All memory of the machine, of which a part is in use: --memory of more is refused as a flag.
TEST(ServerMemoryLabTest, ExceedingFreeMemoryExitsWithStatusFourAndAFix) {
  const uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * 4096;
  const ProgramResult result =
      RunProgram({"server/kvserver", absl::StrCat("--memory=", bytes), "--listen=" + AnyPort()});
  EXPECT_EQ(result.exit_status, 4) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err,
              AllOf(HasSubstr(absl::StrCat("cannot allocate ", bytes, " bytes for osprey-region")),
                    HasSubstr("bytes available"), HasSubstr("ask for less")));
}

}  // namespace
}  // namespace osprey
