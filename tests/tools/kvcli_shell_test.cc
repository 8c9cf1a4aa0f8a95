// kvcli as a user on a terminal uses it.

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pty_process.h"
#include "tests/support/subprocess.h"
#include "tests/tools/kvcli_fixture.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class KvcliShellTest : public KvcliOwnServerTest {
 protected:
  std::unique_ptr<PtyProcess> Start(std::vector<std::string> args = {}) {
    absl::StatusOr<std::unique_ptr<PtyProcess>> shell = PtyProcess::Start(
        Command(std::move(args)), {"OSPREY_HISTORY=" + history_, "TERM=xterm", "LC_ALL=C"});
    EXPECT_TRUE(shell.ok()) << shell.status();
    return shell.ok() ? *std::move(shell) : nullptr;
  }
  std::unique_ptr<PtyProcess> StartShell(std::vector<std::string> args = {}) {
    std::unique_ptr<PtyProcess> shell = Start(std::move(args));
    EXPECT_TRUE(shell->Await("osprey> ")) << shell->screen();
    return shell;
  }

  std::string history_ = Path("history");
};

#define EXPECT_AWAIT(shell, text) \
  EXPECT_TRUE((shell)->Await(text)) << text << ":\n" << (shell)->screen()

TEST_F(KvcliShellTest, ShellPrintsValueVersionTtlReadsAndLatency) {
  const auto shell = StartShell();
  EXPECT_THAT(shell->screen(), HasSubstr("transport="));
  shell->Type("put planet saturn --ttl=3600\n");
  EXPECT_AWAIT(shell, "stored planet: 6 bytes, version ");
  EXPECT_AWAIT(shell, "(1 message, ");
  EXPECT_AWAIT(shell, " µs)");
  shell->Type("get planet\n");
  EXPECT_AWAIT(shell, "\r\nsaturn\r\n(6 bytes, version ");
  EXPECT_AWAIT(shell, ", expires in 3");
  EXPECT_AWAIT(shell, " s; 1 READ, ");
  EXPECT_AWAIT(shell, " µs)");
  shell->Type("persist planet\nget planet\n");
  EXPECT_AWAIT(shell, "lives until it is deleted; 1 READ");
  shell->Type("\x04");
  EXPECT_EQ(shell->AwaitEnd(), 0);
}

// U+009B is ESC [ to some terminals, U+202E turns what follows around.
TEST_F(KvcliShellTest, NothingThatAnotherClientStoredReachesTheTerminalAsItIs) {
  const std::string hostile = "k\xc2\x9b[2J\xe2\x80\xaez\nfaked";
  ASSERT_EQ(Kvcli({"put", "--literal", hostile, hostile}).exit_status, 0);
  const std::string escaped = "k\\xc2\\x9b[2J\\xe2\\x80\\xaez\\nfaked";
  const auto shell = StartShell();
  for (const char* command :
       {"scan", "scan --values", "bigkeys", "get \"k\\xc2\\x9b[2J\\xe2\\x80\\xaez\\nfaked\"",
        "incr \"k\\xc2\\x9b[2J\\xe2\\x80\\xaez\\nfaked\""}) {
    shell->Type(absl::StrCat(command, "\n"));
    // (The terminal echoes what is typed.)
    EXPECT_AWAIT(shell, "\n");
    EXPECT_AWAIT(shell, escaped);
  }
  shell->Type("scan --values --json\n");
  EXPECT_AWAIT(shell, "\"k\\u009b[2J\\u202ez\\nfaked\"");
  EXPECT_THAT(shell->screen(), Not(HasSubstr("\xc2\x9b")));
  EXPECT_THAT(shell->screen(), Not(HasSubstr("\xe2\x80\xae")));
  EXPECT_THAT(shell->screen(), Not(HasSubstr("\nfaked")));
  // A pipe may end at a terminal.
  for (const ProgramResult& piped :
       {Kvcli({"scan", "--values"}), Kvcli({"mget", hostile}), Kvcli({"export", "-"}),
        Kvcli({"scan", "--json", "--values"}), Kvcli({"export", "-", "--format=csv"})}) {
    EXPECT_EQ(piped.exit_status, 0) << piped.err;
    EXPECT_THAT(piped.out, Not(HasSubstr("\xc2\x9b")));
    EXPECT_THAT(piped.out, Not(HasSubstr("\xe2\x80\xae")));
  }
}

TEST_F(KvcliShellTest, ShellPrintsTheSameForSeveralKeys) {
  const auto shell = StartShell();
  shell->Type("mput planet saturn moon titan --ttl=3600\n");
  EXPECT_AWAIT(shell, "stored planet, version ");
  EXPECT_AWAIT(shell, "\r\nstored moon, version ");
  EXPECT_AWAIT(shell, "\r\n(2 keys; ");
  EXPECT_AWAIT(shell, " message");
  EXPECT_AWAIT(shell, " µs)");
  shell->Type("persist planet\nmget planet absent moon\n");
  EXPECT_AWAIT(shell, "mget absent: no such key");
  EXPECT_AWAIT(shell, "\r\nplanet  saturn  (6 bytes, version ");
  EXPECT_AWAIT(shell, ")\r\nmoon  titan  (5 bytes, version ");
  EXPECT_AWAIT(shell, ", expires in 3");
  EXPECT_AWAIT(shell, " s)\r\n(2 keys; ");
  EXPECT_AWAIT(shell, " READs, ");
  EXPECT_AWAIT(shell, " µs)");
  shell->Type("scan --prefix=moon\n");
  EXPECT_AWAIT(shell, "\r\nmoon  (5 bytes, version ");
  EXPECT_AWAIT(shell, ", expires in 3");
  EXPECT_AWAIT(shell, " s)\r\n(1 key; ");
  EXPECT_AWAIT(shell, " READ");
  shell->Type("scan --prefix=planet --values\n");
  EXPECT_AWAIT(shell, "\r\nplanet  saturn  (6 bytes, version ");
  EXPECT_AWAIT(shell, ")\r\n(1 key; ");
  shell->Type("del planet\n");
  EXPECT_AWAIT(shell, "deleted planet, version ");
  EXPECT_AWAIT(shell, " (1 message, ");
  shell->Type("mget planet\n");
  EXPECT_AWAIT(shell, "(0 keys; ");
  shell->Type("del moon sun\n");
  EXPECT_AWAIT(shell, "\r\ndeleted moon, version ");
  EXPECT_AWAIT(shell, "\r\nfailed sun\r\n(1 key; ");
  EXPECT_AWAIT(shell, " message");
}

TEST_F(KvcliShellTest, ErrorsDoNotEndIt) {
  const auto shell = StartShell();
  shell->Type("get nothing\n");
  EXPECT_AWAIT(shell, "no such key");
  shell->Type("nonsense\n");
  EXPECT_AWAIT(shell, "there is no command 'nonsense'");
  shell->Type("get \"x\n");
  EXPECT_AWAIT(shell, "not closed");
  shell->Type("help put\n");
  EXPECT_AWAIT(shell, "example: kvcli put planet saturn");
  shell->Type("get nothing --json\n");
  EXPECT_AWAIT(shell, "{\"error\":\"NOT_FOUND\"");
  shell->Type("exit\n");
  EXPECT_EQ(shell->AwaitEnd(), 0);
}

TEST_F(KvcliShellTest, ShellAcceptsOrSuggestsForRedisHabits) {
  const auto shell = StartShell();
  shell->Type("SET planet saturn\n");
  EXPECT_AWAIT(shell, "there is no command 'SET'; here it is: kvcli put KEY VALUE");
  shell->Type("PU\tplanet saturn\n");
  EXPECT_AWAIT(shell, "stored planet");
  shell->Type("GET planet\n");
  EXPECT_AWAIT(shell, "\r\nsaturn\r\n");
  shell->Type("put --help\n");
  EXPECT_AWAIT(shell, "example: kvcli put planet saturn");
  shell->Type("-h\n");
  EXPECT_AWAIT(shell, "usage: kvcli");
  shell->Type("--version\n");
  EXPECT_AWAIT(shell, "(protocol ");
  shell->Type("count\n");
  EXPECT_AWAIT(shell, "1 key (");
  shell->Type("QUIT\n");
  EXPECT_EQ(shell->AwaitEnd(), 0);
}

TEST_F(KvcliShellTest, TheTabulatorCompletesCommandsFlagsAndFiles) {
  const auto shell = StartShell();
  shell->Type("pu\tplanet saturn --if-a\t\n");
  EXPECT_AWAIT(shell, "stored planet");
  shell->Type("exp\t");
  EXPECT_AWAIT(shell, "expire  export");
  shell->Type("ire planet 60\n");
  EXPECT_AWAIT(shell, "planet expires in 60.000 s");
  ASSERT_EQ(mkdir(Path("backups").c_str(), 0700), 0);
  std::ofstream(Path("backups/moons.csv")) << "key,value\ntitan,6\n";
  shell->Type("import " + directory_ + "/ba\tmo\t--format=c\t\n");
  EXPECT_AWAIT(shell, "imported 1 records of 1,");
}

TEST_F(KvcliShellTest, CtrlCDropsTheLineAndEndsACommandButNotTheShell) {
  const auto shell = StartShell();
  shell->Type("put dropped x");
  EXPECT_AWAIT(shell, "put dropped x");
  shell->Type("\x03");
  EXPECT_AWAIT(shell, "osprey> ");
  shell->Type("exists dropped\n");
  EXPECT_AWAIT(shell, "no (");
  shell->Type("ping -r -1 -i 0.01\n");
  EXPECT_AWAIT(shell, "pong after");
  EXPECT_AWAIT(shell, "pong after");
  shell->Type("\x03");
  EXPECT_AWAIT(shell, "osprey> ");
  shell->Type("exists still\n");
  EXPECT_AWAIT(shell, "no (");
  shell->Type("\x04");
  EXPECT_EQ(shell->AwaitEnd(), 0);
}

TEST_F(KvcliShellTest, HistoryFileIsReadableByItsOwnerOnly) {
  {
    const auto shell = StartShell();
    shell->Type("put grüße \"a b\"\n");
    EXPECT_AWAIT(shell, "stored grüße");
    for (int i = 0; i < 2; ++i) {
      shell->Type("count\n");
      EXPECT_AWAIT(shell, "1 key (");
      EXPECT_AWAIT(shell, "osprey> ");
    }
    shell->Type("\x04");
    EXPECT_EQ(shell->AwaitEnd(), 0);
  }
  EXPECT_EQ(Contents(history_), "put grüße \"a b\"\ncount\n");
  struct stat status = {};
  ASSERT_EQ(stat(history_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const auto shell = StartShell();
  shell->Type("\x1b[A\x1b[A");  // up, up
  EXPECT_AWAIT(shell, "put grüße \"a b\"");
  shell->Type("\n");
  EXPECT_AWAIT(shell, "stored grüße");
}

TEST_F(KvcliShellTest, HistoryFileIsOptionalAndABadOneIsReported) {
  history_ = "";
  {
    const auto shell = StartShell();
    shell->Type("count\nexit\n");
    EXPECT_EQ(shell->AwaitEnd(), 0);
    EXPECT_THAT(shell->screen(), Not(HasSubstr("history")));
  }
  history_ = directory_;
  const auto shell = Start();
  EXPECT_AWAIT(shell, "kvcli: history file");
  shell->Type("count\n");
  EXPECT_AWAIT(shell, "0 keys");
}

TEST_F(KvcliShellTest, HistoryIsNotWrittenToALinkOrFifo) {
  ASSERT_EQ(symlink(Path("precious").c_str(), history_.c_str()), 0);
  for (int turn = 0; turn < 2; ++turn) {
    const auto shell = Start();
    EXPECT_AWAIT(shell, "is no regular file; remove it, or write another name; OSPREY_HISTORY");
    shell->Type("count\n");
    EXPECT_AWAIT(shell, "0 keys");
    EXPECT_NE(access(Path("precious").c_str(), F_OK), 0);
    unlink(history_.c_str());
    ASSERT_EQ(mkfifo(history_.c_str(), 0666), 0);
  }
}

TEST_F(KvcliShellTest, OverlongHistoryIsTruncated) {
  {
    std::ofstream file(history_);
    for (int i = 0; i < 2500; ++i) file << "get key" << i << "\n";
  }
  {
    const auto shell = StartShell();
    shell->Type("\x04");
    EXPECT_EQ(shell->AwaitEnd(), 0);
  }
  const std::string kept = Contents(history_);
  EXPECT_THAT(kept, HasSubstr("get key2499\n"));
  EXPECT_THAT(kept, Not(HasSubstr("get key1499\n")));
}

TEST_F(KvcliShellTest, ARestartedServerIsConnectedToAgainAndThatIsSaid) {
  const auto shell = StartShell({"--timeout=20"});
  shell->Type("put planet saturn\n");
  EXPECT_AWAIT(shell, "stored planet");
  const std::string uri = server_->uri();
  EXPECT_EQ(server_->Stop(), 0);
  StartServer(uri);
  shell->Type("get planet\n");
  EXPECT_AWAIT(shell, "no such key");
  EXPECT_AWAIT(shell, "again; the server was started again, and began empty");
  shell->Type("put planet saturn\n");
  EXPECT_AWAIT(shell, "stored planet");
}

TEST_F(KvcliShellTest, WithoutAServerItWaitsForOne) {
  const std::string uri = server_->uri();
  EXPECT_EQ(server_->Stop(), 0);
  const auto shell = Start({"--timeout=0.3"});
  EXPECT_AWAIT(shell, "cannot connect to ");
  EXPECT_AWAIT(shell, "osprey (not connected)> ");
  StartServer(uri);
  shell->Type("count\n");
  EXPECT_AWAIT(shell, "0 keys");
  EXPECT_AWAIT(shell, "osprey> ");
}

// On a disk without space for the second page, at first.
TEST_F(KvcliShellTest, TheCommandThatGoesOnIsOneOfTheShells) {
  if (InLab()) GTEST_SKIP() << "nothing in it has to do with RDMA";
  if (RunProgram({"unshare", "-rm", "true"}).exit_status != 0)
    GTEST_SKIP() << "no mount namespaces here";
  const std::string value(1000, 'v');
  std::string lines;
  for (int i = 0; i < 600; ++i) absl::StrAppend(&lines, "put ", i, " ", value, "\n");
  ASSERT_EQ(Kvcli({}, lines).exit_status, 0);
  const std::string disk = Path("disk");
  ASSERT_EQ(mkdir(disk.c_str(), 0700), 0);
  std::vector<std::string> command = {
      "unshare",
      "-rm",
      "bash",
      "-c",
      absl::StrCat("mount -t tmpfs -o size=1M none ", disk, " && head -c 600K /dev/zero > ", disk,
                   "/other && exec \"$@\""),
      "bash"};
  for (const std::string& word : Command({"--timeout=30"})) command.push_back(word);
  auto started = PtyProcess::Start(command, {"OSPREY_HISTORY=", "TERM=xterm"});
  ASSERT_TRUE(started.ok()) << started.status();
  PtyProcess& shell = **started;
  ASSERT_TRUE(shell.Await("osprey> ")) << shell.screen();
  shell.Type(absl::StrCat("export \"", disk, "/all of it\" --format=jsonl\n"));
  const std::string told = "go on with: ";
  ASSERT_TRUE(shell.Await(told)) << shell.screen();
  ASSERT_TRUE(shell.Await("\r\nosprey> ")) << shell.screen();
  const std::string screen = shell.screen();
  const size_t at = screen.rfind(told) + told.size();
  const std::string line = screen.substr(at, screen.find_first_of("\r\n", at) - at);
  EXPECT_THAT(line, Not(HasSubstr("--server")));
  ASSERT_EQ(unlink(absl::StrCat("/proc/", shell.pid(), "/root", disk, "/other").c_str()), 0);
  shell.Type(line + "\n");
  EXPECT_TRUE(shell.Await("exported 600 records")) << shell.screen();
  // The command works as printed, in another shell too.
  shell.Type(absl::StrCat("kvcli --server=", server_->uri(), " get 7 --json\n"));
  EXPECT_TRUE(shell.Await("\"key\":\"7\"")) << shell.screen();
}

TEST_F(KvcliShellTest, AServerIsAwaitedIfThatIsAskedFor) {
  const std::string uri = server_->uri();
  EXPECT_EQ(server_->Stop(), 0);
  const auto waiting = Start({"--await-server", "--timeout=60", "count"});
  StartServer(uri);
  EXPECT_AWAIT(waiting, "0 keys");
  EXPECT_EQ(waiting->AwaitEnd(), 0);
}

TEST_F(KvcliShellTest, FlushAsksFirstAndYesAlone) {
  Kvcli({"put", "precious", "x"});
  {
    const auto shell = StartShell();
    shell->Type("flush\n");
    EXPECT_AWAIT(shell, "delete all 1 keys at ");
    EXPECT_AWAIT(shell, "Type yes: ");
    shell->Type("y\n");
    EXPECT_AWAIT(shell, "not confirmed");
    shell->Type("exists precious\n");
    EXPECT_AWAIT(shell, "yes (");
    shell->Type("flush\n");
    EXPECT_AWAIT(shell, "Type yes: ");
    shell->Type("yes\n");
    EXPECT_AWAIT(shell, "deleted 1 key");
  }
  Kvcli({"put", "precious", "x"});
  const auto once = Start({"flush"});
  EXPECT_AWAIT(once, "Type yes: ");
  once->Type("no\n");
  EXPECT_EQ(once->AwaitEnd(), 1);
  EXPECT_EQ(Kvcli({"count"}).out, "1\n");
  const auto sure = Start({"flush", "--yes"});
  EXPECT_EQ(sure->AwaitEnd(), 0);
  EXPECT_EQ(Kvcli({"count"}).out, "0\n");
}

TEST_F(KvcliShellTest, LatencyIsRedrawnAndCtrlCLeavesNoKeyBehind) {
  Kvcli({"put", "mine", "x"});
  const auto latency = Start({"latency", "--duration=60"});
  EXPECT_AWAIT(latency, "bare READ of 256 B");
  EXPECT_AWAIT(latency, "\x1b[J");  // drawn over
  EXPECT_AWAIT(latency, "p99.9");
  latency->Type("\x03");
  EXPECT_EQ(latency->AwaitEnd(), 0) << latency->screen();
  EXPECT_THAT(latency->screen(), HasSubstr("█"));
  EXPECT_EQ(Kvcli({"scan"}).out, "mine\n");
}

TEST_F(KvcliShellTest, AfterSigtermNoKeyIsLeftEither) {
  const auto latency = Start({"latency", "--duration=60"});
  EXPECT_AWAIT(latency, "p99.9");
  EXPECT_EQ(kill(latency->pid(), SIGTERM), 0);
  EXPECT_EQ(latency->AwaitEnd(), 0);
  EXPECT_EQ(Kvcli({"count"}).out, "0\n");
}

}  // namespace
}  // namespace osprey
