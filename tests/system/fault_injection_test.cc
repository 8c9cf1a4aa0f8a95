// Makes every call fail that can fail for lack of memory or descriptors. For each function the
// first call of the program fails, then the second, until the program makes no more.
//
// kvserver:  states in one line why it does not start, or serves. A session in which the call
//            failed may fail; the next one succeeds, and costs no more descriptors or mappings. So
//            does a server with all optional features: it is scraped, notifies a service manager
//            that it is ready, and refuses one client too many.
// kvcli:     executes its command, or states in one line why not.
//
// Of each function some call must have failed in one of them.
//
// The call fails in a separate process, by tests/system/fault_injection.c. Over shared memory; in
// the lab over verbs, with the functions of libibverbs and librdmacm.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/support/notify_socket.h"
#include "tests/support/running_time.h"
#include "tests/support/scraping.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

constexpr char kLibrary[] = "tests/system/libfault_injection.so";
constexpr absl::Duration kDeadline = absl::Seconds(10);
constexpr absl::Duration kSettleMax = absl::Seconds(20);
constexpr int kSessions = 3;
// The bound of a session in which a call failed, over shared memory, where it takes milliseconds.
// Failed allocations are retried at once, so no timeout may pass before the failure is noticed
// (client/engine/connection.h: from 1 s on).
constexpr absl::Duration kSessionMax = absl::Milliseconds(900);
constexpr int kNthMax = 5000;
constexpr int kNthMaxInLabInShort = 1;  // a server takes seconds there
const std::string kLong(100000, 'l');   // by rendezvous

bool IsLong() { return std::getenv("OSPREY_TEST_LONG") != nullptr; }

// The short form fails every call at first, and then fewer and fewer, except of threads, which are
// few. In the lab, where a server takes seconds, this starts after the first 32.
int Following(int nth, const std::string& function) {
  const bool every = (IsLong() || function == "pthread_create") && (!InLab() || nth < 32);
  return every ? nth + 1 : nth + 1 + nth / 4;
}

// The time limit of the tests in the lab. Each may take as long as four average remaining ones. So
// a test of a function that is called all the time, as pollers do, ends.
class LabTime {
 public:
  explicit LabTime(int tests) : tests_left_(tests) {}
  // The limit of the test that begins now.
  absl::Time UntilOfNext() {
    if (!InLab()) return absl::InfiniteFuture();
    const absl::Time now = absl::Now();
    const int left = std::max(tests_left_--, 1);
    return now + std::max((until_ - now) * std::min(4.0 / left, 1.0), absl::ZeroDuration());
  }

 private:
  const absl::Time until_ = absl::Now() + absl::Minutes(45);
  int tests_left_;
};

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
  // Set for the programs started from now on.
  void Export() const {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  void Unexport() const {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }
  // Whether the program reached the call.
  bool happened() const { return !Read(report_).empty(); }

 private:
  const std::string directory_, report_;
  std::vector<std::pair<std::string, std::string>> variables_;
};

// The lines in which a program reports its failure.
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

struct Holdings {
  int descriptors = 0;
  int mappings = 0;
  std::map<std::string, int> objects;  // of RDMA devices, for all processes: in the lab

  bool IsMoreThan(const Holdings& before) const {
    return descriptors > before.descriptors || mappings > before.mappings ||
           !MoreObjectsThan(before).empty();
  }
  std::string MoreObjectsThan(const Holdings& before) const {
    std::string more;
    for (const auto& [kind, count] : objects) {
      const auto found = before.objects.find(kind);
      const int had = found == before.objects.end() ? 0 : found->second;
      if (count > had) absl::StrAppend(&more, " ", kind, " ", count, " instead of ", had);
    }
    return more;
  }
};

// As the kernel counts them: "0: rxe0: qp 1 cm_id 0 cq 1 …".
std::map<std::string, int> DeviceObjects() {
  std::map<std::string, int> objects;
  const ProgramResult shown = RunProgram({"rdma", "resource", "show"});
  EXPECT_EQ(shown.exit_status, 0) << shown.err;
  const std::vector<std::string> words =
      absl::StrSplit(shown.out, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    int count = 0;
    if (absl::SimpleAtoi(words[i + 1], &count)) objects[words[i]] += count;
  }
  EXPECT_EQ(objects.count("qp"), 1u) << shown.out;
  return objects;
}

Holdings HoldingsOf(pid_t pid) {
  return {DescriptorsOf(pid), LinesOf(absl::StrCat("/proc/", pid, "/maps")),
          InLab() ? DeviceObjects() : std::map<std::string, int>()};
}

absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& uri, const std::string& key_file,
                                                absl::Duration timeout = kDeadline) {
  Options options;
  options.connect_timeout = timeout;
  options.deadline = kDeadline;
  options.auth_key_file = key_file;
  return Client::Connect(uri, options);
}

// All steps of a client's session.
absl::Status Session(const std::string& uri, const std::string& key_file = "") {
  absl::StatusOr<std::unique_ptr<Client>> connected = Connect(uri, key_file);
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

// The calls that failed, and the tests that looked for some, by function.
struct Outcome {
  int failed = 0;
  size_t tests = 0;
};
std::map<std::string, Outcome>& Outcomes() {
  static auto* const outcomes = new std::map<std::string, Outcome>();
  return *outcomes;
}

std::vector<std::string> Functions();
std::vector<std::string> FunctionsWithAll();
size_t TestsOf(const std::string& function) {
  const std::vector<std::string> with_all = FunctionsWithAll();
  return 2 + static_cast<size_t>(std::count(with_all.begin(), with_all.end(), function));
}

class FaultInjectionTest : public testing::TestWithParam<std::string> {
 protected:
  FaultInjectionTest() {
    static LabTime time(static_cast<int>(2 * Functions().size() + FunctionsWithAll().size()));
    until_ = time.UntilOfNext();
  }
  void TearDown() override {
    std::printf("%s: %d calls failed%s\n", GetParam().c_str(), failed_,
                absl::Now() > until_ ? "; the time was up" : "");
    if (IsLong()) std::fflush(stdout);
    Outcome& outcome = Outcomes()[GetParam()];
    outcome.failed += failed_;
    ++outcome.tests;
  }
  // `bears(nth)`: false if the program makes fewer calls.
  void FailOneAfterTheOther(const std::function<bool(int)>& bears) {
    for (int nth = 1; nth <= NthMax() && absl::Now() < until_; nth = Following(nth, GetParam())) {
      SCOPED_TRACE(absl::StrCat("call ", nth, " of ", GetParam()));
      if (!bears(nth) || HasFailure()) break;
      ++failed_;
    }
  }

 private:
  absl::Time until_;
  int failed_ = 0;
};

// ---- kvserver

class ServerTest : public FaultInjectionTest {};

// A kvserver, and the means to communicate with it.
class Served {
 public:
  // Plain, or with all that flags can add.
  explicit Served(bool with_all) : with_all_(with_all) {
    if (!with_all) return;
    directory_ = NewTemporaryDirectory();
    key_file_ = directory_ + "/key";
    std::ofstream(key_file_) << "a key of this test, long enough for all";
    chmod(key_file_.c_str(), 0600);
    manager_.emplace(directory_ + "/notify");
  }
  ~Served() {
    for (const char* name : {"/key", "/notify"}) unlink((directory_ + name).c_str());
    if (with_all_) rmdir(directory_.c_str());
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  absl::Status Start() {
    std::vector<std::string> flags;
    if (with_all_) {
      flags = {"--pollers=2", "--metrics=0", "--connections-max=2", "--auth-key-file=" + key_file_};
      setenv("NOTIFY_SOCKET", (directory_ + "/notify").c_str(), 1);
      setenv("WATCHDOG_USEC", "60000000", 1);
    }
    const std::string listen = NewListenAddress();
    // A lock file of an earlier server that others could read.
    if (with_all_ && !InLab())
      std::ofstream(listen.substr(listen.find("//") + 2) + ".lock").flush();
    absl::StatusOr<std::unique_ptr<ServerProcess>> started = ServerProcess::Start(listen, flags);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    if (!started.ok()) return started.status();
    process_ = *std::move(started);
    return absl::OkStatus();
  }
  ServerProcess& process() { return *process_; }

  absl::Status Session() const {
    const absl::Status status = osprey::Session(process_->uri(), key_file_);
    if (!status.ok() || !with_all_) return status;
    if (absl::Status refused = OneTooMany(); !refused.ok()) return refused;
    return Scraped();
  }

 private:
  // One client more than allowed: it retries, and then gives up.
  absl::Status OneTooMany() const {
    const absl::StatusOr<std::unique_ptr<Client>> first = Connect(process_->uri(), key_file_);
    if (!first.ok()) return first.status();
    const absl::StatusOr<std::unique_ptr<Client>> second = Connect(process_->uri(), key_file_);
    if (!second.ok()) return second.status();
    const bool refused =
        !Connect(process_->uri(), key_file_, absl::Milliseconds(InLab() ? 500 : 20)).ok();
    return refused ? absl::OkStatus() : absl::InternalError("a client too many was not refused");
  }
  absl::Status Scraped() const {
    const uint16_t port = process_->MetricsPort();
    if (port == 0) return absl::NotFoundError("the server tells no port of its metrics");
    const absl::StatusOr<HttpAnswer> answer = GetHttp(port, "/metrics");
    if (!answer.ok()) return answer.status();
    if (answer->status == 200) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("a scrape's status is ", answer->status));
  }

  const bool with_all_;
  std::string directory_, key_file_;
  absl::optional<NotifySocket> manager_;
  std::unique_ptr<ServerProcess> process_;
};

// A session that ended leaves nothing behind. The C library keeps the stack and the heap of a
// thread that ended.
void ExpectNothingIsLeft(pid_t pid, Holdings before, int threads = 0) {
  constexpr int kMappingsOfThread = 4;
  before.mappings += threads * kMappingsOfThread;
  const absl::Time end = absl::Now() + kSettleMax;
  Holdings now = HoldingsOf(pid);
  while (now.IsMoreThan(before) && absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(5));
    now = HoldingsOf(pid);
  }
  EXPECT_LE(now.descriptors, before.descriptors) << "descriptors";
  EXPECT_LE(now.mappings, before.mappings) << "mappings";
  EXPECT_EQ(now.MoreObjectsThan(before), "");
}

// False when the program makes fewer calls.
bool ServerBearsFailureOf(const std::string& function, int nth, bool with_all) {
  const Failure failure(function, nth);
  Served served(with_all);
  failure.Export();
  const absl::Status started = served.Start();
  failure.Unexport();
  if (!started.ok()) {
    EXPECT_TRUE(failure.happened()) << started;
    const std::string text(started.message());
    EXPECT_TRUE(absl::StrContains(text, "status 2") || absl::StrContains(text, "status 3") ||
                absl::StrContains(text, "status 4"))
        << text;
    EXPECT_TRUE(absl::StrContains(text, "kvserver: ")) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    return true;
  }
  ServerProcess& server = served.process();
  // So many sessions make all possible calls, and all allocations that the server keeps for later
  // ones.
  for (int i = 0; i < kSessions; ++i) {
    const bool before = failure.happened();
    const RunningTime time;
    const absl::Status status = served.Session();
    EXPECT_TRUE(status.ok() || (!before && failure.happened()))
        << "session " << i << ": " << status;
    const absl::Duration took = time.Passed();
    EXPECT_TRUE(InLab() || took < kSessionMax) << "session " << i << " took " << took;
  }
  absl::SleepFor(absl::Milliseconds(InLab() ? 200 : 5));
  const Holdings before = HoldingsOf(server.pid());
  const bool happened = failure.happened();
  const absl::Status status = served.Session();
  EXPECT_TRUE(status.ok() || !happened) << status;
  // A peer whose user is unknown has a lane of its own, and so a thread, in which its descriptors
  // are closed.
  ExpectNothingIsLeft(server.pid(), before, function == "getsockopt" ? 1 : 0);
  const int exit_status = server.Stop();
  EXPECT_TRUE(exit_status == 0 || (exit_status == 4 && !happened && failure.happened()))
      << "status " << exit_status << " when it was asked to end";
  return failure.happened();
}

TEST_P(ServerTest, SaysWhyItDoesNotStartOrServesTheNextSession) {
  FailOneAfterTheOther(
      [&](int nth) { return ServerBearsFailureOf(GetParam(), nth, /*with_all=*/false); });
}

// With a key, metrics and two pollers.
class ServerWithAllTest : public FaultInjectionTest {};

TEST_P(ServerWithAllTest, SaysWhyItDoesNotStartOrServesTheNextSession) {
  FailOneAfterTheOther(
      [&](int nth) { return ServerBearsFailureOf(GetParam(), nth, /*with_all=*/true); });
}

// ---- kvcli

class KvcliTest : public FaultInjectionTest {
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
      // A call that failed may have ended the connection, and a repeated write succeeded by the
      // next one.
      if (result.err != absl::StrCat("kvcli: connected to ", server_->uri(), " again\n")) {
        EXPECT_EQ(result.err, "");
      }
      EXPECT_TRUE(answer.empty() || result.out == answer) << result.out.size() << " bytes";
    } else {
      EXPECT_TRUE(failure.happened()) << result.err;
      EXPECT_EQ(ErrorLines(result.err, "kvcli: "), 1) << result.err;
      EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    }
    return failure.happened();
  }

  // `words` of the attempt with this number.
  void Sweep(const std::function<std::vector<std::string>(int)>& words, const std::string& input,
             const std::string& answer) {
    SCOPED_TRACE(words(0)[0]);
    FailOneAfterTheOther([&](int nth) { return BearsFailureOf(nth, words(nth), input, answer); });
  }

  std::unique_ptr<ServerProcess> server_;
  Holdings before_;
};

TEST_P(KvcliTest, CommandSucceedsOrPrintsAOneLineError) {
  using Words = std::vector<std::string>;
  Sweep([](int) { return Words{"put", "rings", "-"}; }, kLong, "");
  ASSERT_TRUE(Session(server_->uri()).ok());
  Sweep([](int) { return Words{"get", "rings"}; }, "", kLong);
  ASSERT_TRUE(Session(server_->uri()).ok());
  if (!InLab()) {
    const std::string file = NewTemporaryDirectory() + "/export";
    Sweep([&](int nth) { return Words{"export", absl::StrCat(file, nth)}; }, "", "");
    ASSERT_TRUE(Session(server_->uri()).ok());
  }
  // The thread that closes descriptors of peers gets a heap of its own only with its first call of
  // free.
  ExpectNothingIsLeft(server_->pid(), before_, /*threads=*/1);
  EXPECT_EQ(server_->Stop(), 0);
}

// ---- kvcli doctor

TEST(DoctorTest, SaysThatGidsCannotBeListedRatherThanThatThereAreNone) {
  if (!InLab()) return;  // only devices have such resources
  const Failure failure("_ibv_query_gid_table", 1);
  ProgramOptions options;
  options.environment = failure.Environment();
  const ProgramResult result = RunProgram({"tools/kvcli", "doctor", "--self-test"}, options);
  EXPECT_TRUE(failure.happened());
  EXPECT_EQ(result.exit_status, 4) << result.out << result.err;
  EXPECT_TRUE(absl::StrContains(result.out, "rxe0 (ibv_query_gid_table: Cannot allocate memory)"))
      << result.out << result.err;
}

// ---- Both

class BothTest : public testing::TestWithParam<std::string> {};

// The last of the tests of a function.
TEST_P(BothTest, SomeCallFailed) {
  const Outcome outcome = Outcomes()[GetParam()];
  if (outcome.tests < TestsOf(GetParam())) GTEST_SKIP() << "not all tests of it were run";
  EXPECT_GT(outcome.failed, 0);
}

// ---- Functions

std::vector<std::string> Functions() {
  if (InLab() && !IsLong()) {
    return absl::StrSplit(
        "ibv_open_device ibv_create_qp ibv_reg_mr ibv_modify_qp ibv_post_send "
        "ibv_post_recv ibv_poll_cq rdma_connect rdma_accept rdma_reject "
        "rdma_resolve_addr rdma_get_cm_event mmap eventfd epoll_create1 epoll_ctl "
        "epoll_wait open fallocate",
        ' ');
  }
  if (InLab()) {
    return absl::StrSplit(
        "ibv_get_device_list rdma_get_devices ibv_open_device ibv_query_device "
        "ibv_query_port ibv_alloc_pd ibv_create_comp_channel ibv_create_cq "
        "ibv_create_qp ibv_reg_mr ibv_modify_qp ibv_post_send ibv_post_recv "
        "ibv_poll_cq ibv_req_notify_cq ibv_get_cq_event ibv_get_async_event "
        "rdma_create_event_channel rdma_create_id rdma_bind_addr rdma_listen "
        "rdma_getaddrinfo rdma_resolve_addr rdma_resolve_route rdma_connect "
        "rdma_accept rdma_reject rdma_establish rdma_disconnect rdma_get_cm_event "
        "rdma_init_qp_attr rdma_migrate_id rdma_set_option mmap eventfd "
        "epoll_create1 epoll_ctl epoll_wait open fallocate malloc",
        ' ');
  }
  return absl::StrSplit(
      "socket bind listen connect accept4 getsockopt sendmsg recvmsg "
      "memfd_create ftruncate posix_fallocate mmap madvise fcntl eventfd "
      "epoll_create1 epoll_ctl epoll_wait poll ppoll read write open fopen flock "
      "fstat stat lstat chmod pread sendto fsync fchmod rename unlink "
      "getrlimit setrlimit getrandom pthread_create malloc",
      ' ');
}

// In the short form, functions that no plain server calls.
std::vector<std::string> FunctionsWithAll() {
  if (IsLong()) return Functions();
  if (InLab()) return {"rdma_reject"};
  return {"read", "fchmod", "sendto", "pthread_create"};
}

const auto kName = [](const testing::TestParamInfo<std::string>& info) { return info.param; };

INSTANTIATE_TEST_SUITE_P(Of, ServerTest, testing::ValuesIn(Functions()), kName);
INSTANTIATE_TEST_SUITE_P(Of, ServerWithAllTest, testing::ValuesIn(FunctionsWithAll()), kName);
INSTANTIATE_TEST_SUITE_P(Of, KvcliTest, testing::ValuesIn(Functions()), kName);
INSTANTIATE_TEST_SUITE_P(Of, BothTest, testing::ValuesIn(Functions()), kName);

}  // namespace
}  // namespace osprey
