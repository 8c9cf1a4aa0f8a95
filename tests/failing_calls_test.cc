// Every call that can fail because memory or descriptors are used up, made to fail: of each
// function in turn the first call of the program, then the second, until the program makes no more.
//
// kvserver:  either says in one line why it does not start, or serves. A session in which the call
//            failed may fail; the next one succeeds, and costs no more descriptors or mappings.
// kvcli:     either does what it was told, or says in one line why not.
//
// The call fails in a process of its own, by tests/failing_calls.c. Over shared memory; in the lab
// over verbs, with the functions of libibverbs and librdmacm.

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/subprocess.h"

namespace osprey {
namespace {

constexpr char kLibrary[] = "tests/libfailing_calls.so";
constexpr absl::Duration kDeadline = absl::Seconds(10);
constexpr absl::Duration kSettleMax = absl::Seconds(20);
constexpr int kSessions = 3;
constexpr int kNthMax = 5000;
constexpr int kNthMaxInLabInShort = 1;  // a server takes seconds there
const std::string kLong(100000, 'l');   // by rendezvous

bool IsLong() { return std::getenv("OSPREY_TEST_LONG") != nullptr; }

// In short every call at first, and then fewer and fewer.
int Following(int nth) { return IsLong() ? nth + 1 : nth + 1 + nth / 4; }
int NthMax() { return InLab() && !IsLong() ? kNthMaxInLabInShort : kNthMax; }

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// The environment of a program in which a call fails.
class Failure {
 public:
  Failure(const std::string& function, int nth)
      : directory_(NewTemporaryDirectory()), report_(directory_ + "/report") {
    char path[4096];
    const char* const here = getcwd(path, sizeof(path));
    variables_ = {{"LD_PRELOAD", absl::StrCat(here, "/", kLibrary)},
                  {"OSPREY_FAIL", function},
                  {"OSPREY_FAIL_NTH", absl::StrCat(nth)},
                  {"OSPREY_FAIL_REPORT", report_}};
  }
  ~Failure() {
    unlink(report_.c_str());
    rmdir(directory_.c_str());
  }
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  std::vector<std::string> Environment() const {
    std::vector<std::string> result;
    for (const auto& [name, value] : variables_) result.push_back(absl::StrCat(name, "=", value));
    return result;
  }
  // For the programs that this one starts from now on.
  void Export() const {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  void Unexport() const {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }
  // The program came so far.
  bool happened() const { return !Read(report_).empty(); }

 private:
  const std::string directory_, report_;
  std::vector<std::pair<std::string, std::string>> variables_;
};

// The lines by which a program says that it failed.
int ErrorLines(const std::string& err, absl::string_view program) {
  int count = 0;
  for (absl::string_view line : absl::StrSplit(err, '\n')) count += absl::StartsWith(line, program);
  return count;
}

int LinesOf(const std::string& path) {
  std::ifstream file(path);
  int count = 0;
  for (std::string line; std::getline(file, line);) ++count;
  return count;
}

int EntriesOf(const std::string& directory) {
  DIR* const dir = opendir(directory.c_str());
  if (dir == nullptr) return -1;
  int count = 0;
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

struct Holdings {
  int descriptors = 0;
  int mappings = 0;
};

Holdings HoldingsOf(pid_t pid) {
  return {EntriesOf(absl::StrCat("/proc/", pid, "/fd")),
          LinesOf(absl::StrCat("/proc/", pid, "/maps"))};
}

// What a client does from the beginning to the end.
absl::Status Session(const std::string& uri) {
  Options options;
  options.connect_timeout = kDeadline;
  options.deadline = kDeadline;
  absl::StatusOr<std::unique_ptr<Client>> connected = Client::Connect(uri, options);
  if (!connected.ok()) return connected.status();
  Client& client = **connected;
  absl::Status status = client.Put("planet", "saturn").status();
  if (status.ok()) status = client.Put("rings", kLong).status();
  if (!status.ok()) return status;
  const absl::StatusOr<Value> planet = client.Get("planet");
  if (!planet.ok()) return planet.status();
  const absl::StatusOr<Value> rings = client.Get("rings");
  if (!rings.ok()) return rings.status();
  if (planet->bytes != "saturn" || rings->bytes != kLong)
    return absl::DataLossError("another value came back");
  return client.Delete("planet").status();
}

class FailingCallsTest : public testing::TestWithParam<std::string> {
 protected:
  void TearDown() override {
    std::printf("%s: %d calls failed\n", GetParam().c_str(), failed_);
    if (IsLong()) std::fflush(stdout);
  }
  int failed_ = 0;
};

// ---- kvserver
// ------------------------------------------------------------------------------------

class ServerTest : public FailingCallsTest {};

// Its session that ended leaves nothing behind.
void ExpectNothingIsLeft(pid_t pid, const Holdings& before) {
  const absl::Time end = absl::Now() + kSettleMax;
  Holdings now = HoldingsOf(pid);
  while ((now.descriptors > before.descriptors || now.mappings > before.mappings) &&
         absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(5));
    now = HoldingsOf(pid);
  }
  EXPECT_LE(now.descriptors, before.descriptors) << "descriptors";
  EXPECT_LE(now.mappings, before.mappings) << "mappings";
}

// False when the program makes fewer calls.
bool ServerBearsFailureOf(const std::string& function, int nth) {
  const Failure failure(function, nth);
  failure.Export();
  absl::StatusOr<std::unique_ptr<ServerProcess>> started = ServerProcess::Start(NewListenAddress());
  failure.Unexport();
  if (!started.ok()) {
    EXPECT_TRUE(failure.happened()) << started.status();
    const std::string text(started.status().message());
    EXPECT_TRUE(absl::StrContains(text, "status 2") || absl::StrContains(text, "status 3") ||
                absl::StrContains(text, "status 4"))
        << text;
    EXPECT_TRUE(absl::StrContains(text, "kvserver: ")) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    return true;
  }
  ServerProcess& server = **started;
  // So many sessions make all the calls that there are to make, and whatever the server keeps for
  // the next one.
  for (int i = 0; i < kSessions; ++i) {
    const bool before = failure.happened();
    const absl::Status status = Session(server.uri());
    EXPECT_TRUE(status.ok() || (!before && failure.happened()))
        << "session " << i << ": " << status;
  }
  absl::SleepFor(absl::Milliseconds(InLab() ? 200 : 5));
  const Holdings before = HoldingsOf(server.pid());
  const bool happened = failure.happened();
  const absl::Status status = Session(server.uri());
  EXPECT_TRUE(status.ok() || !happened) << status;
  ExpectNothingIsLeft(server.pid(), before);
  const int exit_status = server.Stop();
  EXPECT_TRUE(exit_status == 0 || (exit_status == 4 && !happened && failure.happened()))
      << "status " << exit_status << " when it was asked to end";
  return failure.happened();
}

TEST_P(ServerTest, SaysWhyItDoesNotStartOrServesTheNextSession) {
  for (int nth = 1; nth <= NthMax(); nth = Following(nth)) {
    SCOPED_TRACE(absl::StrCat("call ", nth, " of ", GetParam()));
    if (!ServerBearsFailureOf(GetParam(), nth) || HasFailure()) break;
    ++failed_;
  }
}

// ---- kvcli
// ---------------------------------------------------------------------------------------

class KvcliTest : public FailingCallsTest {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(NewListenAddress());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(Session(server_->uri()).ok());
    ASSERT_TRUE(Session(server_->uri()).ok());
    absl::SleepFor(absl::Milliseconds(InLab() ? 200 : 5));
    before_ = HoldingsOf(server_->pid());
  }

  // False when the program makes fewer calls.
  bool BearsFailureOf(int nth, const std::vector<std::string>& words, const std::string& input,
                      const std::string& answer) {
    const Failure failure(GetParam(), nth);
    ProgramOptions options;
    options.environment = failure.Environment();
    options.input = input;
    options.timeout = kSettleMax;
    std::vector<std::string> arguments = {"tools/kvcli", "--server=" + server_->uri()};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const ProgramResult result = RunProgram(arguments, options);
    EXPECT_LE(result.exit_status, 4) << result.err;
    if (result.exit_status == 0) {
      EXPECT_EQ(result.err, "");
      EXPECT_TRUE(answer.empty() || result.out == answer) << result.out.size() << " bytes";
    } else {
      EXPECT_TRUE(failure.happened()) << result.err;
      EXPECT_EQ(ErrorLines(result.err, "kvcli: "), 1) << result.err;
      EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    }
    return failure.happened();
  }

  void Sweep(const std::vector<std::string>& words, const std::string& input,
             const std::string& answer) {
    for (int nth = 1; nth <= NthMax(); nth = Following(nth)) {
      SCOPED_TRACE(absl::StrCat("call ", nth, " of ", GetParam(), " in kvcli ", words[0]));
      if (!BearsFailureOf(nth, words, input, answer) || HasFailure()) break;
      ++failed_;
    }
  }

  std::unique_ptr<ServerProcess> server_;
  Holdings before_;
};

TEST_P(KvcliTest, DoesWhatItWasToldOrSaysInOneLineWhyNot) {
  Sweep({"put", "rings", "-"}, kLong, "");
  ASSERT_TRUE(Session(server_->uri()).ok());
  Sweep({"get", "rings"}, "", kLong);
  ASSERT_TRUE(Session(server_->uri()).ok());
  ExpectNothingIsLeft(server_->pid(), before_);
  EXPECT_EQ(server_->Stop(), 0);
}

// ---- Functions
// -----------------------------------------------------------------------------------

std::vector<std::string> Functions() {
  if (InLab() && !IsLong()) {
    return {"ibv_create_qp", "ibv_reg_mr",       "ibv_modify_qp", "ibv_post_send",
            "ibv_post_recv", "ibv_poll_cq",      "rdma_connect",  "rdma_resolve_addr",
            "rdma_accept",   "rdma_get_cm_event"};
  }
  if (InLab()) {
    return {"ibv_get_device_list",
            "rdma_get_devices",
            "ibv_query_device",
            "ibv_query_port",
            "ibv_alloc_pd",
            "ibv_create_comp_channel",
            "ibv_create_cq",
            "ibv_create_qp",
            "ibv_reg_mr",
            "ibv_modify_qp",
            "ibv_post_send",
            "ibv_post_recv",
            "ibv_poll_cq",
            "ibv_req_notify_cq",
            "ibv_get_cq_event",
            "ibv_get_async_event",
            "rdma_create_event_channel",
            "rdma_create_id",
            "rdma_bind_addr",
            "rdma_listen",
            "rdma_getaddrinfo",
            "rdma_resolve_addr",
            "rdma_resolve_route",
            "rdma_connect",
            "rdma_accept",
            "rdma_establish",
            "rdma_disconnect",
            "rdma_get_cm_event",
            "rdma_init_qp_attr",
            "rdma_migrate_id",
            "rdma_set_option",
            "malloc"};
  }
  return {"socket",     "bind",    "listen",       "connect",   "accept4",       "getsockopt",
          "sendmsg",    "recvmsg", "memfd_create", "ftruncate", "fallocate",     "posix_fallocate",
          "mmap",       "madvise", "fcntl",        "eventfd",   "epoll_create1", "epoll_ctl",
          "epoll_wait", "poll",    "ppoll",        "read",      "write",         "open",
          "fopen",      "flock",   "fstat",        "stat",      "lstat",         "chmod",
          "fchmod",     "unlink",  "getrlimit",    "setrlimit", "getrandom",     "pthread_create",
          "malloc"};
}

const auto kName = [](const testing::TestParamInfo<std::string>& info) { return info.param; };

INSTANTIATE_TEST_SUITE_P(Of, ServerTest, testing::ValuesIn(Functions()), kName);
INSTANTIATE_TEST_SUITE_P(Of, KvcliTest, testing::ValuesIn(Functions()), kName);

}  // namespace
}  // namespace osprey
