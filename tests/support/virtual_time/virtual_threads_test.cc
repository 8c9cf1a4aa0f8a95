#include "tests/support/virtual_time/virtual_threads.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace osprey {
namespace {

void InVirtualTime(const std::function<void(VirtualThreads& threads)>& run, uint64_t seed = 1,
                   const VirtualThreadsOptions& options = {}) {
  VirtualThreads threads(seed, options);
  threads.Run([&] { run(threads); });
}

TEST(VirtualThreadsTest, SleepTakesNoTime) {
  const absl::Time began = absl::Now();
  InVirtualTime([](VirtualThreads& threads) {
    const absl::Time before = absl::Now();
    absl::SleepFor(absl::Hours(1));
    EXPECT_GE(absl::Now() - before, absl::Hours(1));
    EXPECT_LT(absl::Now() - before, absl::Hours(1) + absl::Seconds(1));
    EXPECT_GE(threads.now(), int64_t{3600} * 1'000'000'000);
  });
  EXPECT_LT(absl::Now() - began, absl::Minutes(10));
}

TEST(VirtualThreadsTest, AStdThreadRunsBesideItsCreator) {
  InVirtualTime([](VirtualThreads&) {
    std::string order;
    std::thread other([&] {
      absl::SleepFor(absl::Seconds(1));
      order += "b";
    });
    order += "a";
    absl::SleepFor(absl::Seconds(2));
    order += "c";
    other.join();
    EXPECT_EQ(order, "abc");
  });
}

TEST(VirtualThreadsTest, ALockExcludesOthersThoughItsHolderIsSetAside) {
  InVirtualTime(
      [](VirtualThreads&) {
        std::mutex mutex;
        int inside = 0;
        int most = 0;
        std::vector<std::thread> others;
        for (int i = 0; i < 5; ++i) {
          others.emplace_back([&] {
            for (int round = 0; round < 100; ++round) {
              const std::lock_guard<std::mutex> lock(mutex);
              most = std::max(most, ++inside);
              (void)absl::Now();
              --inside;
            }
          });
        }
        for (std::thread& other : others) other.join();
        EXPECT_EQ(most, 1);
      },
      1, {.preempt_per_10k = 3000, .stall_percent = 10});
}

TEST(VirtualThreadsTest, AConditionWakesOneWaiterOrTimesOut) {
  InVirtualTime([](VirtualThreads&) {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_set = false;
    std::thread other([&] {
      absl::SleepFor(absl::Seconds(3));
      const std::lock_guard<std::mutex> lock(mutex);
      is_set = true;
      changed.notify_one();
    });
    std::unique_lock<std::mutex> lock(mutex);
    const absl::Time before = absl::Now();
    EXPECT_FALSE(changed.wait_for(lock, std::chrono::seconds(1), [&] { return is_set; }));
    EXPECT_GE(absl::Now() - before, absl::Seconds(1));
    changed.wait(lock, [&] { return is_set; });
    EXPECT_GE(absl::Now() - before, absl::Seconds(3));
    lock.unlock();
    other.join();
  });
}

TEST(VirtualThreadsTest, PollEndsWithAWriteOrAtItsTimeout) {
  InVirtualTime([](VirtualThreads& threads) {
    const int fd = eventfd(0, EFD_NONBLOCK);
    pollfd wait = {fd, POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, 1000), 0);
    EXPECT_GE(threads.now(), 1'000'000'000);
    std::thread other([&] {
      absl::SleepFor(absl::Seconds(5));
      const uint64_t one = 1;
      EXPECT_EQ(write(fd, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
    });
    EXPECT_EQ(poll(&wait, 1, -1), 1);
    EXPECT_LT(threads.now(), 6'100'000'000);
    other.join();
    close(fd);
  });
}

TEST(VirtualThreadsTest, AHostHasItsOwnClocks) {
  InVirtualTime([](VirtualThreads& threads) {
    VirtualHost fast("fast");
    fast.SetRates(threads.now(), 0, 100'000);
    int64_t boot = 0;
    int64_t raw = 0;
    threads.Join(threads.Start(fast, "reader", [&] {
      absl::SleepFor(absl::Seconds(100));
      timespec time;
      clock_gettime(CLOCK_BOOTTIME, &time);
      boot = time.tv_sec;
      clock_gettime(CLOCK_MONOTONIC_RAW, &time);
      raw = time.tv_sec;
    }));
    EXPECT_EQ(raw, 100);
    EXPECT_EQ(boot, 110);
  });
}

TEST(VirtualThreadsTest, NoThreadOfAStoppedHostRuns) {
  InVirtualTime([](VirtualThreads& threads) {
    VirtualHost host("stopped");
    int64_t ended = 0;
    const VirtualThreads::Id other = threads.Start(host, "other", [&] {
      absl::SleepFor(absl::Seconds(1));
      ended = threads.now();
    });
    host.stopped_until = 10'000'000'000;
    threads.Join(other);
    EXPECT_GE(ended, 10'000'000'000);
  });
}

// The order in which threads append to it.
std::string OrderOf(uint64_t seed) {
  std::string order;
  InVirtualTime(
      [&](VirtualThreads&) {
        std::mutex mutex;
        std::vector<std::thread> others;
        for (char name = 'a'; name < 'f'; ++name) {
          others.emplace_back([&order, &mutex, name] {
            for (int i = 0; i < 20; ++i) {
              const std::lock_guard<std::mutex> lock(mutex);
              order += name;
            }
          });
        }
        for (std::thread& other : others) other.join();
      },
      seed, {.preempt_per_10k = 2000, .stall_percent = 20});
  return order;
}

TEST(VirtualThreadsTest, TheSameSeedIsTheSameRun) {
  EXPECT_EQ(OrderOf(1), OrderOf(1));
  EXPECT_NE(OrderOf(1), OrderOf(2));
}

}  // namespace
}  // namespace osprey
