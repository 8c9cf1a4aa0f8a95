// Whose servers a client without a key takes.

#include "rdma/shm/peer/server_user.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "rdma/shm/domain.h"
#include "tests/rdma/transport_contract.h"

namespace osprey::rdma {
namespace {

using Kind = Event::Kind;

constexpr uid_t kServerUser = 65534;
constexpr uid_t kClientUser = 65533;
constexpr uid_t kUnrelatedUser = 65532;

// In a directory that only root can write to, on the way there too.
class ShmServerUserTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can give directories away";
    char name[] = "/run/osprey-user-XXXXXX";
    if (mkdtemp(name) == nullptr) GTEST_SKIP() << "/run cannot be written to";
    root_ = name;
    directory_ = root_ + "/server";
    ASSERT_EQ(chmod(name, 0755), 0);
    ASSERT_EQ(mkdir(directory_.c_str(), 0755), 0);
    Set(directory_, kServerUser, 0755);
  }
  void TearDown() override {
    if (!root_.empty()) std::filesystem::remove_all(root_);
  }

  static void Set(const std::string& path, uid_t owner, mode_t mode) {
    ASSERT_EQ(chown(path.c_str(), owner, owner), 0);
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
  }
  static absl::Status Check(const std::string& directory) {
    return CheckServerUser(directory + "/socket", kServerUser, kClientUser);
  }
  static bool Trusts(const std::string& directory) { return Check(directory).ok(); }

  std::string root_, directory_;
};

TEST_F(ShmServerUserTest, RootAndOneselfAreTrustedAnywhere) {
  EXPECT_TRUE(CheckServerUser("/tmp/socket", 0, kClientUser).ok());
  EXPECT_TRUE(CheckServerUser("/tmp/socket", kClientUser, kClientUser).ok());
  EXPECT_FALSE(CheckServerUser("/tmp/socket", kServerUser, 0).ok());
}

TEST_F(ShmServerUserTest, TheOwnerOfADirectoryIsTrustedIfNoOtherUserCanWriteToIt) {
  EXPECT_TRUE(Trusts(directory_)) << Check(directory_);
  for (const mode_t mode : {0775, 0777, 01777}) {
    Set(directory_, kServerUser, mode);
    EXPECT_FALSE(Trusts(directory_)) << std::oct << mode;
  }
  Set(directory_, kServerUser, 0700);
  EXPECT_TRUE(Trusts(directory_));
  for (const uid_t owner : {uid_t{0}, kClientUser, kUnrelatedUser}) {
    Set(directory_, owner, 0755);
    EXPECT_FALSE(Trusts(directory_)) << owner;
  }
}

TEST_F(ShmServerUserTest, EveryDirectoryOnTheWayIsJudged) {
  for (const uid_t owner : {uid_t{0}, kClientUser, kServerUser}) {
    Set(root_, owner, 0755);
    EXPECT_TRUE(Trusts(directory_)) << owner;
  }
  Set(root_, kUnrelatedUser, 0755);
  EXPECT_FALSE(Trusts(directory_));
  Set(root_, 0, 01777);  // as /tmp: any user may have made `directory_`
  EXPECT_FALSE(Trusts(directory_));
}

TEST_F(ShmServerUserTest, SymlinksAreFollowedAndJudged) {
  ASSERT_EQ(symlink("server", (root_ + "/link").c_str()), 0);
  EXPECT_TRUE(Trusts(root_ + "/link")) << Check(root_ + "/link");
  EXPECT_TRUE(Trusts(root_ + "/link/../link/."));
  ASSERT_EQ(symlink(directory_.c_str(), (directory_ + "/again").c_str()), 0);
  EXPECT_TRUE(Trusts(directory_ + "/again"));
  ASSERT_EQ(lchown((root_ + "/link").c_str(), kUnrelatedUser, kUnrelatedUser), 0);
  EXPECT_FALSE(Trusts(root_ + "/link"));
  ASSERT_EQ(symlink("loop", (root_ + "/loop").c_str()), 0);
  EXPECT_FALSE(Trusts(root_ + "/loop"));
  // From a directory that all may write to, into one that qualifies.
  const std::string open = root_ + "/open";
  ASSERT_EQ(mkdir(open.c_str(), 0755), 0);
  ASSERT_EQ(symlink(directory_.c_str(), (open + "/link").c_str()), 0);
  Set(open, 0, 01777);
  EXPECT_FALSE(Trusts(open + "/link"));
}

TEST_F(ShmServerUserTest, TheErrorNamesPathUserAndTheFix) {
  const absl::Status status = CheckServerUser("/tmp/socket", kServerUser, kClientUser);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  for (const char* text : {"/tmp/socket", "user 65534", "write to /tmp;", "authentication key"})
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
}

// A server of another user, and a client that connects to it.
TEST_F(ShmServerUserTest, AClientRefusesAServerThatItDoesNotTrust) {
  const std::string uri = "shm://" + directory_ + "/socket";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t server = fork();
  if (server == 0) {
    if (setuid(kServerUser) != 0) _exit(1);
    const std::unique_ptr<Domain> domain = OpenShmDomain().value();
    const std::unique_ptr<Transport> transport = domain->NewTransport({}).value();
    if (!transport->Listen(uri, 1).ok() || write(ready[1], "", 1) != 1) _exit(1);
    std::vector<Event> events(4);
    for (;;) {
      const size_t count = transport->Poll(absl::MakeSpan(events));
      for (size_t i = 0; i < count; ++i) {
        if (events[i].kind == Kind::kConnectRequest) (void)transport->Accept(events[i].connection);
      }
      usleep(1000);
    }
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const auto kind_of_end = [&](bool any_server_user) {
    ShmDomainOptions options;
    options.any_server_user = any_server_user;
    const std::unique_ptr<Domain> domain = OpenShmDomain(options).value();
    const std::unique_ptr<Transport> transport = domain->NewTransport({}).value();
    EXPECT_TRUE(transport->Connect(uri).ok());
    std::vector<Event> events(1);
    const absl::Time end = absl::Now() + kContractPatience;
    while (transport->Poll(absl::MakeSpan(events)) == 0 && absl::Now() < end) usleep(1000);
    return events[0];
  };
  EXPECT_EQ(kind_of_end(false).kind, Kind::kConnected);
  Set(directory_, kServerUser, 0777);
  const Event refused = kind_of_end(false);
  EXPECT_EQ(refused.kind, Kind::kDisconnected);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kPermissionDenied) << refused.status;
  EXPECT_EQ(kind_of_end(true).kind, Kind::kConnected) << "it has to prove itself by its key";
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace osprey::rdma
