// The programs of client/examples, against a server over shared memory.

#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

class ExamplesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = ServerProcess::Start(absl::StrCat("shm://", directory_, "/socket"));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto client = Client::Connect(server_->uri());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  ProgramResult Count(const std::string& name, int threads, int times) {
    return RunProgram({"client/examples/counter", server_->uri(), name, absl::StrCat(threads),
                       absl::StrCat(times)});
  }

  // Under the lock "L": the command of a shell.
  ProgramResult Locked(const std::string& lease_s, const std::string& command) {
    ProgramOptions options;
    options.environment = {absl::StrCat("D=", directory_)};
    options.timeout = absl::Seconds(120);
    return RunProgram({"client/examples/lock", server_->uri(), "L", lease_s, "sh", "-c", command},
                      options);
  }

  bool IsHeld() { return client_->Get("lock/L").ok(); }

  // Waits until the key has had so many versions.
  ::testing::AssertionResult AwaitVersions(size_t wanted) {
    std::set<uint64_t> versions;
    for (const absl::Time end = absl::Now() + absl::Seconds(90); absl::Now() < end;) {
      auto value = client_->Get("lock/L");
      if (value.ok()) versions.insert(value->version);
      if (versions.size() >= wanted) return ::testing::AssertionSuccess();
      absl::SleepFor(absl::Milliseconds(10));
    }
    return ::testing::AssertionFailure() << versions.size() << " versions";
  }

  const std::string directory_ = NewTemporaryDirectory();
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(ExamplesTest, TheCounterCountsWhatAllThreadsCount) {
  EXPECT_EQ(Count("c", 4, 250).out, "1000\n");
  EXPECT_EQ(Count("c", 3, 100).out, "1300\n");
}

TEST_F(ExamplesTest, TheCounterSaysWhyItDoesNotCount) {
  ASSERT_TRUE(client_->Put("motto", "Per aspera").ok());
  const ProgramResult result = Count("motto", 2, 1);
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.err, HasSubstr("number"));
  EXPECT_EQ(Count("c", 0, 1).exit_status, 2);
}

TEST_F(ExamplesTest, TheLockLetsOneProcessInAtATime) {
  std::ofstream(directory_ + "/tally") << 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      for (int i = 0; i < 3; ++i) {
        const ProgramResult result =
            Locked("60", "n=$(cat $D/tally); sleep 0.02; echo $((n + 1)) > $D/tally");
        EXPECT_EQ(result.exit_status, 0) << result.err;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int tally = 0;
  std::ifstream(directory_ + "/tally") >> tally;
  EXPECT_EQ(tally, 12);
  EXPECT_FALSE(IsHeld());
}

TEST_F(ExamplesTest, TheLockIsRenewedWithAnyLease) {
  for (const char* lease_s : {"30", "86400"}) {
    std::thread holder([&] {
      const ProgramResult result =
          Locked(lease_s, "while test ! -e $D/done; do sleep 0.02; done; rm $D/done; exit 7");
      EXPECT_EQ(result.exit_status, 7) << result.err;
    });
    EXPECT_TRUE(AwaitVersions(3)) << lease_s;
    std::ofstream(directory_ + "/done") << "";
    holder.join();
    EXPECT_FALSE(IsHeld()) << lease_s;
  }
}

TEST_F(ExamplesTest, TheLockOfAKilledHolderEnds) {
  EXPECT_EQ(Locked("4", "kill -9 $PPID").exit_status, 128 + 9);
  EXPECT_EQ(Locked("60", "exit 0").exit_status, 0);
}

TEST_F(ExamplesTest, TheLockKillsTheCommandWhenItIsLost) {
  std::thread thief([this] {
    EXPECT_TRUE(AwaitVersions(1));
    EXPECT_TRUE(client_->Put("lock/L", "another holder").ok());
  });
  const ProgramResult result = Locked("2", "exec sleep 100");
  thief.join();
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.err, HasSubstr("lost"));
  EXPECT_EQ(client_->Get("lock/L")->bytes, "another holder");
}

TEST_F(ExamplesTest, TheLockRefusesALeaseOutOfBounds) {
  for (const char* lease_s : {"0", "1", "86401", "-5", "soon"}) {
    const ProgramResult result = Locked(lease_s, "exit 0");
    EXPECT_EQ(result.exit_status, 1) << lease_s;
    EXPECT_THAT(result.err, HasSubstr("from 2 to 86400")) << lease_s;
  }
}

}  // namespace
}  // namespace osprey
