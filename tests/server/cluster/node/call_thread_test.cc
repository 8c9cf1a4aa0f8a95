#include "server/cluster/node/call_thread.h"

#include <poll.h>
#include <pthread.h>

#include <atomic>
#include <future>
#include <memory>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/cluster/node/wake.h"

namespace osprey::server {
namespace {

bool AwaitDone(CallThread& thread) {
  for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;
       absl::SleepFor(absl::Milliseconds(1))) {
    if (thread.TakeDone()) return true;
  }
  return false;
}

TEST(CallThreadTest, ACallIsMadeOnTheThreadAndIsDoneOnce) {
  std::atomic<int> wakes = 0;
  const std::unique_ptr<CallThread> thread = *CallThread::Start("test-calls", [&] { ++wakes; });
  EXPECT_TRUE(thread->idle());
  EXPECT_FALSE(thread->TakeDone());
  for (int call = 1; call <= 3; ++call) {
    pthread_t called_on = pthread_self();
    thread->Begin([&] { called_on = pthread_self(); });
    EXPECT_FALSE(thread->idle());
    ASSERT_TRUE(AwaitDone(*thread));
    EXPECT_FALSE(pthread_equal(called_on, pthread_self()));
    EXPECT_TRUE(thread->idle());
    EXPECT_FALSE(thread->TakeDone());
    EXPECT_EQ(wakes, call);
  }
}

TEST(CallThreadTest, TheOwnerDoesNotWaitForACall) {
  const std::unique_ptr<CallThread> thread = *CallThread::Start("test-calls", [] {});
  std::promise<void> goes_on;
  thread->Begin([&] { goes_on.get_future().wait(); });
  EXPECT_FALSE(thread->TakeDone());
  EXPECT_FALSE(thread->idle());
  goes_on.set_value();
  EXPECT_TRUE(AwaitDone(*thread));
}

TEST(CallThreadTest, ItsEndWaitsForTheCallThatIsUnderWay) {
  std::promise<void> begun;
  bool has_ended = false;
  {
    const std::unique_ptr<CallThread> thread = *CallThread::Start("test-calls", [] {});
    thread->Begin([&] {
      begun.set_value();
      absl::SleepFor(absl::Milliseconds(100));
      has_ended = true;
    });
    begun.get_future().wait();
  }
  EXPECT_TRUE(has_ended);
}

// An owner that sleeps until its descriptor is readable finds the call done.
TEST(CallThreadTest, TheWakeComesWithTheEndOfACall) {
  Wake wake;
  ASSERT_TRUE(wake.valid());
  const std::unique_ptr<CallThread> thread = *CallThread::Start("test-calls", [&] { wake.Ring(); });
  for (int call = 0; call < 100; ++call) {
    thread->Begin([] {});
    pollfd waits = {wake.fd(), POLLIN, 0};
    ASSERT_EQ(poll(&waits, 1, 30'000), 1);
    wake.Clear();
    ASSERT_TRUE(thread->TakeDone());
  }
}

}  // namespace
}  // namespace osprey::server
