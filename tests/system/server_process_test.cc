// kvserver as a process: behaviour that scripts and operators rely on.

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/config.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/shm/socket.h"
#include "tests/rdma/shm/packets.h"
#include "tests/support/notify_socket.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// Runs kvserver with `flags` until it is ready at `uri`, then sends options.signal.
ProgramResult RunUntilReady(const std::string& uri, const std::vector<std::string>& flags,
                            ProgramOptions options = {}) {
  std::vector<std::string> args = {"server/kvserver"};
  args.insert(args.end(), flags.begin(), flags.end());
  options.signal_at = "ready " + uri;
  return RunProgram(args, options);
}

std::string ShmUri(const std::string& directory, const std::string& name = "s") {
  return absl::StrCat("shm://", directory, "/", name);
}

// CPU time of a process so far.
absl::Duration CpuOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // After the name, which is in parentheses: utime and stime are fields 14 and 15 of the whole.
  const std::vector<std::string> fields = absl::StrSplit(text.substr(text.rfind(')') + 2), ' ');
  int64_t user = 0, system = 0;
  EXPECT_TRUE(absl::SimpleAtoi(fields.at(11), &user) && absl::SimpleAtoi(fields.at(12), &system));
  return absl::Seconds(static_cast<double>(user + system) /
                       static_cast<double>(sysconf(_SC_CLK_TCK)));
}

class WrongFlagsTest : public testing::TestWithParam<std::vector<std::string>> {};

// Each case: the required text of the line, then the flags.
TEST_P(WrongFlagsTest, EndWithStatusTwoAndOneLineThatNamesTheFlag) {
  std::vector<std::string> args = GetParam();
  const std::string expected = args[0];
  args[0] = "server/kvserver";
  const ProgramResult result = RunProgram(args);
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, AllOf(StartsWith("kvserver: "), HasSubstr(expected)));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}
INSTANTIATE_TEST_SUITE_P(
    Each, WrongFlagsTest,
    testing::Values(
        std::vector<std::string>{"--memory: '12MB' is no size", "--memory=12MB"},
        std::vector<std::string>{"--memory: '' is no size", "--memory="},
        std::vector<std::string>{"--memory: '-1' is no size", "--memory=-1"},
        std::vector<std::string>{"--memory: 4KiB is too small", "--memory=4KiB"},
        std::vector<std::string>{"--memory: 3TiB is too large", "--memory=3TiB"},
        std::vector<std::string>{"--memory: '99999999999TiB' is more", "--memory=99999999999TiB"},
        std::vector<std::string>{"--listen: address \"http://x\"", "--listen=http://x"},
        std::vector<std::string>{"--listen: shm:///tmp/x is given twice",
                                 "--listen=shm:///tmp/x,shm:///tmp/x"},
        std::vector<std::string>{"--listen: ", "--listen="},
        std::vector<std::string>{"--poll: 'lazy' is none of busy, adaptive, event", "--poll=lazy"},
        std::vector<std::string>{"--connections-max: 0 is out of range", "--connections-max=0"},
        std::vector<std::string>{"--connections-max", "--connections-max=many"},
        std::vector<std::string>{"--value-max: 1GiB is more than --memory=64MiB",
                                 "--value-max=1GiB", "--memory=64MiB"},
        std::vector<std::string>{"--connections-per-address-max: -1 is out of range",
                                 "--connections-per-address-max=-1"},
        std::vector<std::string>{"--connections-per-address-max: 11 is out of range",
                                 "--connections-per-address-max=11", "--connections-max=10"},
        std::vector<std::string>{"--socket-mode: '8' is no mode", "--socket-mode=8"},
        std::vector<std::string>{"--socket-mode: '' is no mode", "--socket-mode="},
        std::vector<std::string>{"--socket-mode: '01777' is no mode", "--socket-mode=01777"},
        std::vector<std::string>{"--socket-mode: '0x1ff' is no mode", "--socket-mode=0x1ff"},
        std::vector<std::string>{"--socket-mode: 0466 lets not even", "--socket-mode=0466"},
        std::vector<std::string>{"--metrics: 'host:80' does not begin", "--metrics=host:80"},
        std::vector<std::string>{"--metrics: '1.2.3.4' does not end", "--metrics=1.2.3.4"},
        std::vector<std::string>{"--metrics: it is given and empty", "--metrics="},
        std::vector<std::string>{"--auth-key-file: key file /no/such", "--auth-key-file=/no/such"},
        std::vector<std::string>{"--auth-key-file: it is given and empty", "--auth-key-file="},
        std::vector<std::string>{"--cluster: 'http://x' does not begin", "--cluster=http://x"},
        std::vector<std::string>{"--cluster: it is given and empty", "--cluster="},
        std::vector<std::string>{"--server-id: it has a meaning only", "--server-id=a"},
        std::vector<std::string>{"--data-dir: a server with --cluster holds", "--data-dir=/no/such",
                                 "--cluster=etcd://h/a"},
        std::vector<std::string>{"unknown flag --memroy", "--memroy=1GiB"},
        std::vector<std::string>{"argument 'start'", "start"}));

TEST(ServerProcessTest, MemoryForPrintsAFlagAndEnds) {
  const ProgramResult memory = RunProgram({"server/kvserver", "--memory-for=1000,16,100"});
  EXPECT_EQ(memory.exit_status, 0) << memory.err;
  EXPECT_EQ(memory.out, "--memory=1MiB\n");
  const ProgramResult wrong = RunProgram({"server/kvserver", "--memory-for=1000,16"});
  EXPECT_EQ(wrong.exit_status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--memory-for=1000000,16,100"));
  EXPECT_EQ(RunProgram({"server/kvserver", "--memory-for="}).exit_status, 2);
}

TEST(ServerProcessTest, HelpAndVersionGoToStandardOutput) {
  const ProgramResult help = RunProgram({"server/kvserver", "--help"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--listen"), HasSubstr("--connections-max"),
                              HasSubstr("[1GiB]"), HasSubstr("Exit status")));
  EXPECT_EQ(help.err, "");
  const ProgramResult version = RunProgram({"server/kvserver", "--version"});
  EXPECT_EQ(version.exit_status, 0);
  EXPECT_THAT(version.out, StartsWith("kvserver 0."));
}

TEST(ServerProcessTest, SaysReadyForEachAddressAndEndsCleanlyOnBothSignals) {
  const std::string directory = NewTemporaryDirectory();
  const std::string one = ShmUri(directory, "one"), two = ShmUri(directory, "two");
  for (const int signal : {SIGTERM, SIGINT}) {
    ProgramOptions options;
    options.signal = signal;
    const ProgramResult result =
        RunUntilReady(two, {"--listen", one + "," + two, "--memory=16MiB"}, options);
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_EQ(result.out, absl::StrCat("ready ", one, "\nready ", two, "\n"));
    EXPECT_THAT(result.err, AllOf(HasSubstr("transport=shm"), HasSubstr("device=none"),
                                  HasSubstr("memory=16MiB")));
  }
}

TEST(ServerProcessTest, DashesUnderscoresAndFlagfilesAreTakenAlike) {
  const std::string directory = NewTemporaryDirectory();
  const std::string file = directory + "/flags";
  std::ofstream(file) << "# for the test\n--connections-max=7\n--value_max=64KiB\n--poll=event\n";
  const std::string uri = ShmUri(directory);
  const ProgramResult result =
      RunUntilReady(uri, {"--flagfile=" + file, "--memory=16MiB", "--listen=" + uri});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("connections_max=7"), HasSubstr("value_max=64KiB"),
                                HasSubstr("poll=event")));
}

TEST(ServerProcessTest, EndsCleanlyHoweverItPolls) {
  for (const char* mode : {"busy", "adaptive", "event"}) {
    const absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(ShmUri(NewTemporaryDirectory()), {absl::StrCat("--poll=", mode)});
    ASSERT_TRUE(server.ok()) << server.status();
    const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect((*server)->uri());
    ASSERT_TRUE(client.ok()) << client.status();
    EXPECT_TRUE((*client)->Put("key", "value").ok()) << mode;
    EXPECT_EQ((*client)->Get("key")->bytes, "value") << mode;
    const absl::Time stopped = absl::Now();
    EXPECT_EQ((*server)->Stop(), 0) << mode;
    // A client that is connected and silent delays the end by a DisconnectNotice, and no more.
    EXPECT_LT(absl::Now() - stopped, absl::Seconds(10)) << mode;
  }
}

TEST(ServerProcessTest, AnIdleServerSleeps) {
  for (const char* mode : {"adaptive", "event"}) {
    const absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(ShmUri(NewTemporaryDirectory()), {absl::StrCat("--poll=", mode)});
    ASSERT_TRUE(server.ok()) << server.status();
    const pid_t pid = (*server)->pid();
    absl::SleepFor(absl::Milliseconds(200));
    const absl::Duration cpu = CpuOf(pid);
    const int64_t sleeps = StatusNumber(pid, "voluntary_ctxt_switches");
    absl::SleepFor(absl::Seconds(2));
    EXPECT_LE(CpuOf(pid) - cpu, absl::Milliseconds(20)) << mode;
    EXPECT_LE(StatusNumber(pid, "voluntary_ctxt_switches") - sleeps, 2) << mode;
  }
}

TEST(ServerProcessTest, AServerWithAnIdleClientWakesForHeartbeatsAlone) {
  const absl::StatusOr<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start(ShmUri(NewTemporaryDirectory()));
  ASSERT_TRUE(server.ok()) << server.status();
  const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect((*server)->uri());
  ASSERT_TRUE(client.ok()) << client.status();
  const pid_t pid = (*server)->pid();
  absl::SleepFor(absl::Milliseconds(200));
  const absl::Duration cpu = CpuOf(pid);
  const int64_t sleeps = StatusNumber(pid, "voluntary_ctxt_switches");
  absl::SleepFor(absl::Seconds(3));
  EXPECT_LE(CpuOf(pid) - cpu, absl::Milliseconds(30));
  // One READ a second, and a few turns for it.
  EXPECT_LE(StatusNumber(pid, "voluntary_ctxt_switches") - sleeps, 30);
  // And the client is not declared dead.
  EXPECT_TRUE((*client)->Put("key", "value").ok());
}

TEST(ServerProcessTest, TwoServersCannotHaveOneAddress) {
  const std::string uri = ShmUri(NewTemporaryDirectory());
  const absl::StatusOr<std::unique_ptr<ServerProcess>> first = ServerProcess::Start(uri);
  ASSERT_TRUE(first.ok()) << first.status();
  const ProgramResult second = RunProgram({"server/kvserver", "--listen=" + uri, "--memory=16MiB"});
  EXPECT_EQ(second.exit_status, 3);
  EXPECT_EQ(second.out, "");
  EXPECT_THAT(second.err, AllOf(HasSubstr(uri), HasSubstr("in use")));
  // The first one is not affected.
  const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->Ping().ok());
  EXPECT_EQ((*first)->Stop(), 0);
}

TEST(ServerProcessTest, AnAddressThatCannotBeHadIsStatusThree) {
  const ProgramResult result =
      RunProgram({"server/kvserver", "--listen=shm:///nonexistent/directory/s", "--memory=16MiB"});
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_THAT(result.err, HasSubstr("/nonexistent/directory/s"));
}

TEST(ServerProcessTest, MoreMemoryThanThereIsIsStatusFourWhenItMustBeThereAtStart) {
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
  GTEST_SKIP() << "a sanitizer's shadow memory does not fit under a limit of address space";
#endif
  // Without an RDMA device memory is committed on use, so this requests an amount that the limit of
  // address space refuses.
  const ProgramResult result =
      RunProgram({"bash", "-c",
                  "ulimit -v 1000000; exec server/kvserver --memory=1GiB --listen=" +
                      ShmUri(NewTemporaryDirectory())});
  EXPECT_EQ(result.exit_status, 4);
  EXPECT_THAT(result.err, HasSubstr("1073741824"));
}

TEST(ServerProcessTest, WhatTheMachineDoesNotHaveIsRefusedBeforeAnythingIsDone) {
  const auto refusal = [](const std::string& limit, const std::string& flag) {
    const ProgramResult result = RunProgram({"bash", "-c",
                                             limit + "; exec server/kvserver " + flag +
                                                 " --listen=" + ShmUri(NewTemporaryDirectory())});
    EXPECT_EQ(result.exit_status, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(refusal("true", "--memory=1TiB"), HasSubstr("--memory: 1TiB is more than"));
  EXPECT_THAT(refusal("ulimit -n 100", "--memory=16MiB"),
              HasSubstr("--connections-max: for 1024 the process must"));
}

// As many memories as there are files for: one, beside the liveness word, where there are few.
TEST(ServerProcessTest, AClientWithManyBuffersCostsTheServerThreeFiles) {
  const absl::StatusOr<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start(ShmUri(NewTemporaryDirectory()), {"--connections-max=100"},
                           /*open_files_max=*/556);  // what 100 connections need, and no more
  ASSERT_TRUE(server.ok()) << server.status();
  const auto files = [&] { return DescriptorsOf((*server)->pid()); };
  const auto before = files();
  const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect((*server)->uri());
  ASSERT_TRUE(client.ok()) << client.status();
  constexpr size_t kBytes = 100000;
  std::vector<Buffer> buffers;
  for (int i = 0; i < 8; ++i) buffers.push_back((*client)->AllocateBuffer(kBytes).value());
  for (int i = 0; i < 80; ++i) {
    const Buffer& buffer = buffers[static_cast<size_t>(i) % buffers.size()];
    std::memset(buffer.data(), i, kBytes);
    const absl::StatusOr<uint64_t> put = (*client)->PutFrom("planet", buffer, 0, kBytes);
    ASSERT_TRUE(put.ok()) << put.status();
    const absl::StatusOr<Value> value = (*client)->Get("planet");
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(value->bytes, std::string(kBytes, static_cast<char>(i)));
    // Another thread closes what the client has withdrawn.
    for (int wait = 0; wait < 1000 && files() > before + 3; ++wait)
      absl::SleepFor(absl::Milliseconds(5));
    EXPECT_LE(files(), before + 3);
  }
}

// The soft limit of open files is often lower than what was asked for needs.
TEST(ServerProcessTest, ConnectionsMaxIsReachedAndOneMoreIsRefused) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t soft = std::exchange(limit.rlim_cur, 60);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);  // the server inherits it
  const absl::StatusOr<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start(ShmUri(NewTemporaryDirectory()), {"--connections-max=70"});
  limit.rlim_cur = soft;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_TRUE(server.ok()) << server.status();
  Options options;
  options.connect_timeout = absl::Milliseconds(500);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 70; ++i) {
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect((*server)->uri(), options);
    ASSERT_TRUE(client.ok()) << i << ": " << client.status();
    clients.push_back(*std::move(client));
  }
  const absl::Status refused = Client::Connect((*server)->uri(), options).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kRefused) << refused;
  for (const std::unique_ptr<Client>& client : clients)
    EXPECT_TRUE(client->Put("key", "value").ok());
}

// A raw client that is accepted, does not receive its rings, and ends its half of the connection.
rdma::UniqueFd LeaveUnread(const std::string& path) {
  rdma::UniqueFd socket = rdma::NewSocket().value();
  EXPECT_EQ(rdma::ConnectSocket(socket.get(), rdma::SocketAddress(path).value()), 0);
  EXPECT_EQ(rdma::SendPacket(socket.get(), rdma::ConnectPacket(8192)), 0);
  pollfd answered = {socket.get(), POLLIN, 0};
  EXPECT_EQ(poll(&answered, 1, /*timeout=*/-1), 1);
  EXPECT_EQ(shutdown(socket.get(), SHUT_WR), 0);
  return socket;
}

TEST(ServerProcessTest, UserWithUnreceivedDescriptorsIsRefusedWithAReason) {
  const std::string directory = NewTemporaryDirectory();
  const absl::StatusOr<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start(ShmUri(directory));
  ASSERT_TRUE(server.ok()) << server.status();
  const absl::StatusOr<std::unique_ptr<Client>> before = Client::Connect((*server)->uri());
  ASSERT_TRUE(before.ok()) << before.status();
  std::vector<rdma::UniqueFd> hostile;
  constexpr char kCount[] = "connections_rejected_descriptors";
  for (int i = 0; i < 100; ++i) {
    hostile.push_back(LeaveUnread(directory + "/s"));
    if (StatIn((*before)->ServerStats().value(), kCount) != "0") break;
  }
  EXPECT_NE(StatIn((*before)->ServerStats().value(), kCount), "0");
  Options options;
  options.connect_timeout = absl::Seconds(1);
  const absl::Status refused = Client::Connect((*server)->uri(), options).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kRefused) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("do not receive them"));
  // 32, and connections that had not ended when the limit was reached.
  EXPECT_THAT((*server)->Log(),
              testing::ContainsRegex("was refused: 3[2-4] connections of this user have ended"));
  EXPECT_TRUE((*before)->Put("key", "value").ok()) << "a connection that is there goes on";
  hostile.clear();
  const absl::Status later = Client::Connect((*server)->uri()).status();
  EXPECT_TRUE(later.ok()) << later;
}

TEST(ServerProcessTest, OverSharedMemoryAloneMemoryIsCommittedAsItIsUsed) {
  const absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(
      ShmUri(NewTemporaryDirectory()), {"--memory=512MiB", "--value-max=1MiB"});
  ASSERT_TRUE(server.ok()) << server.status();
  const int64_t at_start = StatusNumber((*server)->pid(), "RssShmem");
  EXPECT_LT(at_start, 16 << 10);
  const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect((*server)->uri());
  ASSERT_TRUE(client.ok()) << client.status();
  const std::string value(1 << 20, 'v');
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE((*client)->Put(absl::StrCat("key", i), value).ok());
  }
  const int64_t used = StatusNumber((*server)->pid(), "RssShmem");
  EXPECT_GT(used - at_start, 40 << 10);
  EXPECT_LT(used - at_start, 80 << 10);
}

TEST(ServerProcess, NotifiesSystemdWhenItIsReadyAndWhenItEnds) {
  const std::string directory = NewTemporaryDirectory();
  const NotifySocket manager(directory + "/notify");
  ProgramOptions options;
  options.environment = {absl::StrCat("NOTIFY_SOCKET=", directory, "/notify")};
  const std::string uri = ShmUri(directory);
  const ProgramResult result = RunUntilReady(uri, {"--listen=" + uri, "--memory=64MiB"}, options);
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_THAT(manager.Received(),
              testing::ElementsAre(absl::StrCat("READY=1\nSTATUS=ready at ", uri, ", memory 64MiB"),
                                   "STOPPING=1\nSTATUS=ending"));
}

TEST(ServerProcess, NotifiesTheSystemdWatchdogOnlyIfConfigured) {
  const std::string directory = NewTemporaryDirectory();
  const NotifySocket manager(directory + "/notify");
  const auto told_with = [&](std::vector<std::string> environment) {
    ProgramOptions options;
    options.environment = std::move(environment);
    options.environment.push_back(absl::StrCat("NOTIFY_SOCKET=", directory, "/notify"));
    options.signal_delay = absl::Seconds(1);
    const std::string uri = ShmUri(directory);
    const ProgramResult result = RunUntilReady(uri, {"--listen=" + uri, "--memory=64MiB"}, options);
    EXPECT_EQ(result.exit_status, 0) << result.err;
    const std::vector<std::string> told = manager.Received();
    return std::count(told.begin(), told.end(), "WATCHDOG=1");
  };
  EXPECT_GE(told_with({"WATCHDOG_USEC=100000"}), 1);
  EXPECT_EQ(told_with({"WATCHDOG_USEC=100000", "WATCHDOG_PID=1"}), 0);
  for (const char* wrong : {"WATCHDOG_USEC=", "WATCHDOG_USEC=0", "WATCHDOG_USEC=-5",
                            "WATCHDOG_USEC=soon", "WATCHDOG_USEC=99999999999999999999"}) {
    EXPECT_EQ(told_with({wrong}), 0) << wrong;
  }
}

TEST(ServerProcess, StartsWhereNoServiceManagerListensAtItsSocket) {
  const std::string directory = NewTemporaryDirectory();
  for (const char* socket : {"/absent/notify", "relative", "", "/"}) {
    ProgramOptions options;
    options.environment = {absl::StrCat("NOTIFY_SOCKET=", socket)};
    const std::string uri = ShmUri(directory);
    const ProgramResult result = RunUntilReady(uri, {"--listen=" + uri, "--memory=64MiB"}, options);
    EXPECT_EQ(result.exit_status, 0) << socket << result.err;
  }
}

}  // namespace
}  // namespace osprey
