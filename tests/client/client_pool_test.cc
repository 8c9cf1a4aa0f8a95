// The pool: threads with pooled clients of their own, and the case that none is left. Over shared
// memory.

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

class ClientPoolTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(absl::StrCat("shm://", NewTemporaryDirectory(), "/socket"));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  static void TearDownTestSuite() { server_.reset(); }
  static std::unique_ptr<ClientPool> Create(int lanes_max) {
    PoolOptions options;
    options.lanes_max = lanes_max;
    options.client.slot_cache_bytes = 1 << 16;
    options.client.deadline = absl::Seconds(30);  // for sanitizers
    absl::StatusOr<std::unique_ptr<ClientPool>> pool = ClientPool::Create(server_->uri(), options);
    EXPECT_TRUE(pool.ok()) << pool.status();
    return *std::move(pool);
  }
  static inline std::unique_ptr<ServerProcess> server_;
};

TEST_F(ClientPoolTest, NoTwoThreadsHaveTheSameLaneAndThereAreNoMoreThanAllowed) {
  const std::unique_ptr<ClientPool> pool = Create(3);
  constexpr int kThreads = 8, kRounds = 50;
  std::mutex mutex;
  std::set<Client*> out;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        absl::StatusOr<ClientPool::Lane> lane = pool->Take(absl::Seconds(60));
        ASSERT_TRUE(lane.ok()) << lane.status();
        Client* const client = &**lane;
        {
          const std::lock_guard<std::mutex> lock(mutex);
          EXPECT_TRUE(out.insert(client).second) << "lent twice";
          EXPECT_LE(out.size(), 3u);
        }
        EXPECT_TRUE((*lane)->Increment("visits").ok());
        EXPECT_TRUE((*lane)->Put(absl::StrCat("key", t), absl::StrCat(round)).ok());
        EXPECT_EQ((*lane)->Get(absl::StrCat("key", t))->bytes, absl::StrCat(round));
        const std::lock_guard<std::mutex> lock(mutex);
        out.erase(client);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool->lanes(), 3);
  EXPECT_EQ((*pool->Take())->Get("visits")->bytes, absl::StrCat(kThreads * kRounds));
}

TEST_F(ClientPoolTest, WhenAllLanesAreTakenItSaysSoAfterTheWait) {
  const std::unique_ptr<ClientPool> pool = Create(2);
  absl::StatusOr<ClientPool::Lane> first = pool->Take();
  {
    absl::StatusOr<ClientPool::Lane> second = pool->Take();
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_NE(&**first, &**second);
    for (const absl::Duration wait : {absl::ZeroDuration(), absl::Milliseconds(10)}) {
      const absl::Status status = pool->Take(wait).status();
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      EXPECT_EQ(ReasonOf(status), Reason::kLanesTaken);
      EXPECT_THAT(std::string(status.message()), HasSubstr("lanes_max"));
    }
  }
  EXPECT_TRUE(pool->Take().ok());
}

TEST_F(ClientPoolTest, AThreadIsGivenTheLaneThatItHadLast) {
  const std::unique_ptr<ClientPool> pool = Create(4);
  absl::StatusOr<ClientPool::Lane> lane = pool->Take();
  Client* const mine = &**lane;
  std::atomic<bool> taken = false, mine_is_back = false;
  std::thread other([&] {
    absl::StatusOr<ClientPool::Lane> theirs = pool->Take();
    EXPECT_NE(&**theirs, mine);
    taken = true;
    while (!mine_is_back) std::this_thread::yield();
  });  // theirs is returned last
  while (!taken) std::this_thread::yield();
  lane = absl::CancelledError("");
  mine_is_back = true;
  other.join();
  EXPECT_EQ(&**pool->Take(), mine);
  EXPECT_EQ(pool->lanes(), 2);
}

TEST_F(ClientPoolTest, ALaneThatGoesBackWithOperationsInFlightIsClosed) {
  const std::unique_ptr<ClientPool> pool = Create(1);
  absl::Status get;
  {
    absl::StatusOr<ClientPool::Lane> lane = pool->Take();
    ASSERT_TRUE((*lane)->StartGet("planet", [&](auto value) { get = value.status(); }).ok());
  }
  EXPECT_TRUE(absl::IsCancelled(get)) << get;
  EXPECT_EQ(pool->lanes(), 0);
  EXPECT_TRUE((*pool->Take())->Ping().ok());
  EXPECT_EQ(pool->lanes(), 1);
}

TEST_F(ClientPoolTest, ALaneThatCannotBeConnectedTakesNoPlace) {
  PoolOptions options;
  options.client.connect_timeout = absl::Milliseconds(50);
  EXPECT_FALSE(ClientPool::Create("shm:///absent/socket", options).ok());
  options.lanes_max = 0;
  EXPECT_EQ(ReasonOf(ClientPool::Create(server_->uri(), options).status()), Reason::kBadOption);

  absl::StatusOr<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start(absl::StrCat("shm://", NewTemporaryDirectory(), "/socket"));
  ASSERT_TRUE(server.ok());
  options.lanes_max = 2;
  options.client.connect_timeout = absl::Seconds(1);  // enough for a slow machine
  const std::unique_ptr<ClientPool> pool = ClientPool::Create((*server)->uri(), options).value();
  absl::StatusOr<ClientPool::Lane> first = pool->Take();
  server->reset();
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = pool->Take().status();
    EXPECT_FALSE(status.ok());
    EXPECT_NE(ReasonOf(status), Reason::kLanesTaken) << status;
  }
  EXPECT_EQ(pool->lanes(), 1);
}

}  // namespace
}  // namespace osprey
