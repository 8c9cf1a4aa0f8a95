// Key files as operators use them: kvserver, clients, kvcli and catalog with the same key file,
// with another, or without one. Over shared memory here, over verbs in the lab.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kKey[] = "a key of this test, long enough for all";
constexpr char kOtherKey[] = "another key of this test, long enough, too";

class AuthenticationTest : public ::testing::Test {
 protected:
  // A file that holds `bytes`.
  std::string File(const std::string& name, const std::string& bytes, mode_t mode = 0600) {
    const std::string path = absl::StrCat(directory_, "/", name);
    unlink(path.c_str());
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  void StartServer(std::vector<std::string> flags) {
    server_ = nullptr;
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(NewListenAddress(), flags);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void StartServerWithKey(std::vector<std::string> flags = {}) {
    flags.push_back("--auth-key-file=" + key_file_);
    StartServer(std::move(flags));
  }
  absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& key_file) {
    Options options;
    options.deadline = absl::Seconds(10);
    options.connect_timeout = absl::Seconds(20);
    options.auth_key_file = key_file;
    return Client::Connect(server_->uri(), options);
  }
  // kvcli's answer to `words`.
  ProgramResult Kvcli(std::vector<std::string> words) {
    words.insert(words.begin(), {"tools/kvcli", "--server=" + server_->uri()});
    return RunProgram(words);
  }

  const std::string directory_ = NewTemporaryDirectory();
  // As people make it: with a newline at the end.
  const std::string key_file_ = File("key", absl::StrCat(kKey, "\n"));
  const std::string other_file_ = File("other", kOtherKey);
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(AuthenticationTest, ClientWithoutTheKeyIsRefusedAtOnceWithAReason) {
  StartServerWithKey();
  const absl::Time start = absl::Now();
  EXPECT_EQ(ReasonOf(Connect("").status()), Reason::kAuthenticationRequired);
  const absl::Status wrong = Connect(other_file_).status();
  EXPECT_EQ(ReasonOf(wrong), Reason::kAuthenticationFailed) << wrong;
  EXPECT_EQ(wrong.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));  // not the time of connect_timeout

  absl::StatusOr<std::unique_ptr<Client>> client = Connect(key_file_);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->Put("planet", "saturn").ok());
  EXPECT_EQ((*client)->Get("planet")->bytes, "saturn");
  const std::string large(2 << 20, 'l');  // READ by the server from our memory
  ASSERT_TRUE((*client)->Put("large", large).ok());
  EXPECT_EQ((*client)->Get("large")->bytes, large);
  const std::string stats = (*client)->ServerStats().value();
  EXPECT_EQ(StatIn(stats, "authentication_failures"), "1");
  EXPECT_EQ(StatIn(stats, "connections_closed_unauthenticated"), "1");
  EXPECT_EQ(StatIn(stats, "sessions_created"), "1");
}

TEST_F(AuthenticationTest, TheSameKeyMayComeAsBytes) {
  StartServerWithKey();
  Options options;
  options.auth_key = kKey;
  EXPECT_TRUE(Client::Connect(server_->uri(), options).ok());
  options.auth_key = kOtherKey;
  EXPECT_EQ(ReasonOf(Client::Connect(server_->uri(), options).status()),
            Reason::kAuthenticationFailed);
}

TEST_F(AuthenticationTest, AClientWithAKeyDoesNotUseAServerWithoutOne) {
  StartServer({});
  const absl::Status status = Connect(key_file_).status();
  EXPECT_EQ(ReasonOf(status), Reason::kServerUnproven) << status;
  EXPECT_TRUE(Connect("").ok());
}

TEST_F(AuthenticationTest, AKeyThatIsNoneIsRefusedBeforeAnythingIsSent) {
  StartServerWithKey();
  const std::string everybodys = File("everybodys", kKey, 0644);
  const absl::Status readable = Connect(everybodys).status();
  EXPECT_EQ(ReasonOf(readable), Reason::kBadAuthKey);
  EXPECT_THAT(std::string(readable.message()), HasSubstr("chmod 600 " + everybodys));
  EXPECT_EQ(ReasonOf(Connect(directory_ + "/absent").status()), Reason::kBadAuthKey);
  EXPECT_EQ(ReasonOf(Connect(File("short", "short")).status()), Reason::kBadAuthKey);
  Options options;
  options.auth_key = "short";
  EXPECT_EQ(ReasonOf(Client::Connect(server_->uri(), options).status()), Reason::kBadAuthKey);
  options.auth_key = kKey;
  options.auth_key_file = key_file_;
  EXPECT_EQ(ReasonOf(Client::Connect(server_->uri(), options).status()), Reason::kBadOption);
}

TEST_F(AuthenticationTest, AKeyFileOfAnotherUserServesNeitherSide) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  StartServerWithKey();
  const std::string file = File("anothers", kKey);
  ASSERT_EQ(chown(file.c_str(), 65534, 65534), 0);
  const absl::Status client = Connect(file).status();
  EXPECT_EQ(ReasonOf(client), Reason::kBadAuthKey);
  EXPECT_THAT(std::string(client.message()), HasSubstr("chown 0 " + file));
  const ProgramResult server = RunProgram({"server/kvserver", "--listen=" + NewListenAddress(),
                                           "--memory=16MiB", "--auth-key-file=" + file});
  EXPECT_EQ(server.exit_status, 2);
  EXPECT_THAT(server.err, HasSubstr("chown 0 " + file));
}

TEST_F(AuthenticationTest, ClientAuthenticatesAgainAfterServerRestart) {
  const std::string address = NewListenAddress();
  absl::StatusOr<std::unique_ptr<ServerProcess>> first =
      ServerProcess::Start(address, {"--auth-key-file=" + key_file_});
  ASSERT_TRUE(first.ok()) << first.status();
  Options options;
  options.deadline = absl::Seconds(20);
  options.auth_key_file = key_file_;
  const std::string uri = (*first)->uri();
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri, options);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->Put("planet", "saturn").ok());
  EXPECT_EQ((*first)->Stop(), 0);
  absl::StatusOr<std::unique_ptr<ServerProcess>> second =
      ServerProcess::Start(uri, {"--auth-key-file=" + key_file_});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(absl::IsNotFound((*client)->Get("planet").status()));
  EXPECT_TRUE((*client)->Put("planet", "jupiter").ok());
  EXPECT_EQ((*client)->Get("planet")->bytes, "jupiter");
}

TEST_F(AuthenticationTest, OneAddressHasAsManyConnectionsAsItMay) {
  StartServerWithKey({"--connections-per-address-max=2", "--pollers=2"});  // of both together
  absl::StatusOr<std::unique_ptr<Client>> first = Connect(key_file_), second = Connect(key_file_);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  Options options;
  options.auth_key_file = key_file_;
  options.connect_timeout = absl::Seconds(1);
  const absl::Status third = Client::Connect(server_->uri(), options).status();
  EXPECT_EQ(ReasonOf(third), Reason::kRefused) << third;
  EXPECT_THAT(std::string(third.message()), HasSubstr("--connections-per-address-max"));
  EXPECT_NE(StatIn((*first)->ServerStats().value(), "connections_rejected_per_address"), "0");
  *second = nullptr;
  EXPECT_TRUE(Connect(key_file_).ok());
}

TEST_F(AuthenticationTest, KvcliSaysWhatIsWrongInOneLineWithTheStatusOfItsKind) {
  StartServerWithKey();
  EXPECT_EQ(Kvcli({"put", "planet", "saturn", "--auth-key-file=" + key_file_}).exit_status, 0);
  const ProgramResult got = Kvcli({"get", "planet", "--auth-key-file=" + key_file_});
  EXPECT_EQ(got.out, "saturn");

  const ProgramResult none = Kvcli({"get", "planet"});
  EXPECT_EQ(none.exit_status, 3);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, AllOf(HasSubstr("requires a key"), HasSubstr("--auth-key-file")));
  const ProgramResult wrong = Kvcli({"get", "planet", "--auth-key-file=" + other_file_});
  EXPECT_EQ(wrong.exit_status, 3);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("refuses this client's key"), Not(HasSubstr(kOtherKey))));
  const ProgramResult absent = Kvcli({"get", "planet", "--auth-key-file=" + directory_ + "/no"});
  EXPECT_EQ(absent.exit_status, 2);
  EXPECT_THAT(absent.err, AllOf(HasSubstr("--auth-key-file"), HasSubstr(directory_ + "/no")));
  for (const ProgramResult& result : {none, wrong, absent}) {
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST_F(AuthenticationTest, CatalogTakesTheKey) {
  StartServerWithKey();
  const std::string index = File("index", "Package: one\nVersion: 1\n\nPackage: two\nVersion: 2\n");
  const auto catalog = [&](const std::string& key_file) {
    return RunProgram({"tools/quickstart.d/catalog", "put", index, "--server=" + server_->uri(),
                       "--samples=1", "--auth-key-file=" + key_file});
  };
  EXPECT_EQ(catalog(key_file_).exit_status, 0);
  EXPECT_EQ(catalog(other_file_).exit_status, 3);
  EXPECT_EQ(catalog(directory_ + "/absent").exit_status, 2);
}

TEST_F(AuthenticationTest, KvserverChecksTheKeyBeforeItStartsAndNeverPrintsIt) {
  const auto run = [&](const std::string& flag) {
    ProgramOptions options;
    options.signal_at = "ready ";
    return RunProgram({"server/kvserver", "--memory=16MiB", "--listen=" + NewListenAddress(), flag},
                      options);
  };
  for (const std::string& file :
       {directory_ + "/absent", File("everybodys", kKey, 0640), File("short", "short"),
        File("long", std::string(5000, 'x')), directory_}) {
    const ProgramResult result = run("--auth-key-file=" + file);
    EXPECT_EQ(result.exit_status, 2) << file;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(StartsWith("kvserver: --auth-key-file: "), HasSubstr(file)));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
  const ProgramResult good = run("--auth-key-file=" + key_file_);
  EXPECT_EQ(good.exit_status, 0) << good.err;
  EXPECT_THAT(good.err, AllOf(HasSubstr("clients with the key"), Not(HasSubstr(kKey))));
  EXPECT_THAT(run("--poll=event").err,
              HasSubstr("no --auth-key-file: any client that can connect can"));
}

TEST_F(AuthenticationTest, TheSocketHasTheModeThatWasAskedFor) {
  if (InLab()) GTEST_SKIP() << "there is no socket over RDMA";
  for (const auto& [flag, mode] : std::vector<std::pair<std::string, mode_t>>{
           {"--poll=adaptive", 0600}, {"--socket-mode=0660", 0660}, {"--socket-mode=666", 0666}}) {
    StartServer({flag});
    const std::string path(absl::StripPrefix(server_->uri(), "shm://"));
    struct stat info = {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, mode) << flag;
    EXPECT_TRUE(Connect("").ok());
  }
}

}  // namespace
}  // namespace osprey
