// The public client: options, errors of connecting, closing, that a GET allocates nothing, and that a
// wait which spins lets other threads run. Over shared memory.

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/running_time.h"
#include "tests/support/subprocess.h"

namespace {
// Counted over the whole program; read on one thread.
uint64_t allocations = 0;
uint64_t yields = 0;
}  // namespace

// Replaces that of libc.
extern "C" int sched_yield() {
  ++yields;
  return 0;
}

void* operator new(size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace osprey {
namespace {

using ::testing::HasSubstr;

class ClientApiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(
        absl::StrCat("shm://", NewTemporaryDirectory(), "/socket"), {"--value-max=1MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  static void TearDownTestSuite() { server_.reset(); }
  static std::unique_ptr<Client> Connect(const Options& options = {}) {
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }
  static std::string Text(const absl::Status& status) { return std::string(status.message()); }
  static inline std::unique_ptr<ServerProcess> server_;
};

TEST_F(ClientApiTest, OptionsOutOfRangeAreRefusedByName) {
  const auto refusal = [](auto change) {
    Options options;
    change(options);
    const absl::Status status = Client::Connect(server_->uri(), options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return Text(status);
  };
  EXPECT_THAT(refusal([](Options& o) { o.deadline = absl::Seconds(61); }),
              HasSubstr("Options::deadline"));
  EXPECT_THAT(refusal([](Options& o) { o.deadline = -absl::Seconds(1); }),
              HasSubstr("Options::deadline"));
  EXPECT_THAT(refusal([](Options& o) { o.deadline = absl::InfiniteDuration(); }), HasSubstr("1m"));
  EXPECT_THAT(refusal([](Options& o) { o.connect_timeout = absl::ZeroDuration(); }),
              HasSubstr("Options::connect_timeout"));
  EXPECT_THAT(refusal([](Options& o) { o.spin = -absl::Seconds(1); }), HasSubstr("Options::spin"));
  EXPECT_THAT(refusal([](Options& o) { o.operations_max = 0; }),
              HasSubstr("Options::operations_max"));
  EXPECT_THAT(refusal([](Options& o) { o.backoff_first = absl::Seconds(2); }),
              HasSubstr("Options::backoff_first"));
  EXPECT_THAT(refusal([](Options& o) { o.buffer_bytes_max = 1 << 20; }),
              HasSubstr("Options::buffer_bytes_max"));
}

TEST_F(ClientApiTest, AWaitThatSpinsLetsOtherThreadsRun) {
  for (const auto& [mode, expected] :
       {std::pair(WaitMode::kSpin, true), {WaitMode::kAdaptive, true}, {WaitMode::kEvent, false}}) {
    Options options;
    options.wait = mode;
    options.spin = absl::Milliseconds(50);
    const std::unique_ptr<Client> client = Connect(options);
    ASSERT_EQ(kill(server_->pid(), SIGSTOP), 0);
    yields = 0;
    WriteOptions write;
    write.deadline = absl::Milliseconds(20);
    EXPECT_FALSE(client->Put("key", "value", write).ok());
    ASSERT_EQ(kill(server_->pid(), SIGCONT), 0);
    EXPECT_EQ(yields > 0, expected) << static_cast<int>(mode);
  }
}

TEST_F(ClientApiTest, AddressesThatCannotBeMeantFailAtOnce) {
  const RunningTime time;
  EXPECT_TRUE(absl::IsInvalidArgument(Client::Connect("http://server").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Client::Connect("").status()));
  EXPECT_LT(time.Passed(), absl::Seconds(1));
}

TEST_F(ClientApiTest, WithoutAServerItTriesUntilTheTimeoutAndSaysWhatIsWrong) {
  Options options;
  options.connect_timeout = absl::Milliseconds(300);
  const std::string uri = absl::StrCat("shm://", NewTemporaryDirectory(), "/absent");
  const absl::Time start = absl::Now();
  const RunningTime time;
  const absl::Status status = Client::Connect(uri, options).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Text(status), HasSubstr("/absent"));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(290));
  EXPECT_LT(time.Passed(), absl::Seconds(2));
}

// The first was killed, the second never ran, the third does. None is in a cluster.
TEST_F(ClientApiTest, ADeadServerIsPassedOver) {
  const std::string directory = NewTemporaryDirectory();
  const std::string first = absl::StrCat(directory, "/first");
  absl::StatusOr<std::unique_ptr<ServerProcess>> dead =
      ServerProcess::Start(absl::StrCat("shm://", first));
  ASSERT_TRUE(dead.ok()) << dead.status();
  const std::string list = absl::StrCat("shm://", first, ",", directory, "/second,",
                                        server_->uri().substr(std::strlen("shm://")));
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(list);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_THAT((*client)->Describe(), HasSubstr(absl::StrCat("server=shm://", first)));
  const uint64_t of_first = (*client)->dataset();
  ASSERT_EQ(kill((*dead)->pid(), SIGKILL), 0);
  // The connection is lost, and the next server is another. (A write that the first has got would be
  // UNKNOWN.)
  ASSERT_TRUE((*client)->Ping().ok());
  ASSERT_TRUE((*client)->Put("planet", "saturn").ok());
  EXPECT_EQ((*client)->Get("planet")->bytes, "saturn");
  EXPECT_NE((*client)->dataset(), of_first);
  EXPECT_THAT((*client)->Describe(), HasSubstr(absl::StrCat("server=", server_->uri())));
  // The dead one is first again for a new client.
  Options options;
  options.await_listener = false;
  client = Client::Connect(list, options);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->Get("planet")->bytes, "saturn");
  EXPECT_EQ((*client)->counters().lease_reads, 0u);
  EXPECT_EQ((*client)->counters().rpc_gets, 0u);
}

TEST_F(ClientApiTest, WhereAllAreDeadTheErrorNamesAll) {
  const std::string directory = NewTemporaryDirectory();
  const std::string list = absl::StrCat("shm://", directory, "/first,", directory, "/second");
  Options options;
  options.await_listener = false;
  const absl::Status status = Client::Connect(list, options).status();
  EXPECT_EQ(ReasonOf(status), Reason::kNoListener) << status;
  EXPECT_THAT(Text(status), HasSubstr(absl::StrCat("shm://", directory, "/first")));
  EXPECT_THAT(Text(status), HasSubstr(absl::StrCat("shm://", directory, "/second")));
}

TEST_F(ClientApiTest, BadArgumentsAreRefusedByEveryOperation) {
  std::unique_ptr<Client> client = Connect();
  WriteOptions late;
  late.deadline = absl::Seconds(61);
  const auto invalid = [](const absl::Status& status) { return absl::IsInvalidArgument(status); };
  EXPECT_TRUE(invalid(client->Get("k", absl::Seconds(61)).status()));
  EXPECT_TRUE(invalid(client->Get("").status()));
  EXPECT_TRUE(invalid(client->Exists("").status()));
  EXPECT_TRUE(invalid(client->Exists("k", -absl::Seconds(1)).status()));
  EXPECT_TRUE(invalid(client->Put("k", "v", late).status()));
  EXPECT_TRUE(invalid(client->Put(std::string(4097, 'k'), "v").status()));
  EXPECT_TRUE(invalid(client->Put("k", std::string((1 << 20) + 1, 'v')).status()));
  EXPECT_TRUE(invalid(client->Delete("").status()));
  WriteOptions absent;
  absent.if_absent = true;
  EXPECT_TRUE(invalid(client->Delete("k", absent).status()));
  EXPECT_TRUE(invalid(client->Ping(absl::Seconds(61)).status()));
  EXPECT_TRUE(invalid(client->ServerStats(absl::Seconds(61)).status()));
  EXPECT_EQ(client->in_flight(), 0);
  EXPECT_TRUE(client->Put("k", "v").ok());
}

TEST_F(ClientApiTest, AGetAllocatesNothingOnceWarm) {
  std::unique_ptr<Client> client = Connect();
  const std::string text(400, 't');
  ASSERT_TRUE(client->Put("inline", "short").ok());
  ASSERT_TRUE(client->Put("item", text).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(client->Get("item").ok());
  uint64_t before = allocations;
  // The value fits a string's own storage.
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(client->Get("inline")->bytes.size(), 5u);
  EXPECT_EQ(allocations - before, 0u);
  before = allocations;
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(client->Get("item")->bytes.size(), 400u);
  EXPECT_EQ(allocations - before, 1000u);  // the strings that are returned
}

TEST_F(ClientApiTest, NorDoColdAndAsynchronousGetsExistsAndSmallWrites) {
  Options options;
  options.slot_cache_bytes = 0;
  std::unique_ptr<Client> cold = Connect(options), client = Connect();
  ASSERT_TRUE(client->Put("item", std::string(400, 't')).ok());
  const auto gets_of = [](Client& c, int times) {
    int found = 0;
    for (int i = 0; i < times; ++i) {
      for (int k = 0; k < 32; ++k) {
        ASSERT_TRUE(c.StartExists("item", [&](absl::StatusOr<bool> there) {
                       found += there.value() ? 1 : 0;
                     }).ok());
      }
      while (c.in_flight() > 0) c.Wait(absl::Seconds(1));
    }
    ASSERT_EQ(found, 32 * times);
  };
  const auto writes_of = [](Client& c, int times) {
    for (int i = 0; i < times; ++i) {
      ASSERT_TRUE(c.Put("small", "value").ok());
      ASSERT_TRUE(c.Increment("count").ok());
      ASSERT_TRUE(c.Exists("small").value());
      for (int k = 0; k < 32; ++k) {
        ASSERT_TRUE(c.StartPut("small", "other", {}, [](auto put) { ASSERT_TRUE(put.ok()); }).ok());
      }
      while (c.in_flight() > 0) c.Wait(absl::Seconds(1));
    }
  };
  gets_of(*cold, 10), gets_of(*client, 10), writes_of(*client, 10);
  const uint64_t before = allocations;
  gets_of(*cold, 10), gets_of(*client, 10), writes_of(*client, 10);
  EXPECT_EQ(allocations - before, 0u);
}

TEST_F(ClientApiTest, WaitReturnsWhenNothingIsInFlightAndAtItsTimeout) {
  std::unique_ptr<Client> client = Connect();
  EXPECT_EQ(client->Wait(absl::Seconds(10)), 0);
  int answers = 0;
  ASSERT_TRUE(client->StartGet("absent", [&](absl::StatusOr<Value>) { ++answers; }).ok());
  EXPECT_EQ(client->in_flight(), 1);
  EXPECT_EQ(client->Wait(absl::Seconds(10)), 1);
  EXPECT_EQ(answers, 1);
}

// Polls as client.h asks of an event loop. False: 60 s passed.
bool RunByDescriptor(Client& client, const bool& is_done) {
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (!is_done && absl::Now() < end) {
    if (client.Poll() > 0) continue;
    const absl::Duration left = std::min(client.Arm(), end - absl::Now());
    pollfd fd = {client.fd(), POLLIN, 0};
    const timespec timeout = absl::ToTimespec(std::max(left, absl::ZeroDuration()));
    if (ppoll(&fd, 1, &timeout, nullptr) < 0) return false;
  }
  return is_done;
}

TEST_F(ClientApiTest, AnEventLoopWaitsForItsDescriptor) {
  std::unique_ptr<Client> client = Connect();
  const int fd = client->fd();
  for (int i = 0; i < 100; ++i) {
    bool is_put = false;
    ASSERT_TRUE(
        client->StartPut("k", absl::StrCat(i), {}, [&](auto put) { is_put = put.ok(); }).ok());
    ASSERT_TRUE(RunByDescriptor(*client, is_put));
  }
  EXPECT_EQ(client->Get("k")->bytes, "99");
  EXPECT_EQ(client->fd(), fd);
  // The deadline is a timer: nothing else wakes it.
  ASSERT_EQ(kill(server_->pid(), SIGSTOP), 0);
  WriteOptions soon;
  soon.deadline = absl::Milliseconds(20);
  bool is_late = false;
  ASSERT_TRUE(client
                  ->StartPut("k", "late", soon,
                             [&](auto put) { is_late = absl::IsDeadlineExceeded(put.status()); })
                  .ok());
  EXPECT_TRUE(RunByDescriptor(*client, is_late));
  ASSERT_EQ(kill(server_->pid(), SIGCONT), 0);
}

TEST_F(ClientApiTest, AGetIntoLeavesTheBytesBehindItsRoom) {
  std::unique_ptr<Client> client = Connect();
  absl::StatusOr<Buffer> buffer = client->AllocateBuffer(300'000);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  for (const size_t bytes : {size_t{5}, size_t{5000}, size_t{200'000}}) {
    ASSERT_TRUE(client->Put("k", std::string(bytes, 'v')).ok());
    for (const size_t room : {bytes, bytes - 1}) {
      std::memset(buffer->data(), 'x', buffer->size());
      absl::StatusOr<ValueInfo> got = absl::UnknownError("");
      ASSERT_TRUE(
          client->StartGetIntoPart("k", *buffer, 10, room, [&](auto info) { got = info; }).ok());
      while (client->in_flight() > 0) client->Wait(absl::Seconds(1));
      if (room == bytes) {
        EXPECT_EQ(got->length, bytes);
      } else {
        EXPECT_EQ(BytesNeeded(got.status()), bytes) << got.status();
      }
      const absl::string_view all(reinterpret_cast<const char*>(buffer->data()), buffer->size());
      EXPECT_EQ(all.substr(0, 10), std::string(10, 'x'));
      EXPECT_EQ(all.find_first_not_of('x', 10 + room), all.npos);
    }
  }
  EXPECT_EQ(ReasonOf(client->StartGetIntoPart("k", *buffer, 10, 299'991, [](auto) {})),
            Reason::kBadBuffer);
}

TEST_F(ClientApiTest, DestroyingItCancelsWhatIsInFlight) {
  std::unique_ptr<Client> client = Connect();
  absl::Status get, put;
  ASSERT_TRUE(
      client->StartGet("k", [&](absl::StatusOr<Value> value) { get = value.status(); }).ok());
  ASSERT_TRUE(client
                  ->StartPut("k", "v", {},
                             [&](absl::StatusOr<uint64_t> version) { put = version.status(); })
                  .ok());
  client.reset();
  EXPECT_TRUE(absl::IsCancelled(get)) << get;
  EXPECT_TRUE(absl::IsCancelled(put)) << put;
  EXPECT_THAT(Text(put), HasSubstr("not applied"));
}

}  // namespace
}  // namespace osprey
