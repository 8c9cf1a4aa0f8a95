// The reaper of CM ids, with fake ids and a kernel that is a latch.

#include "rdma/verbs/device/reaper.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace osprey::rdma {
namespace {

// Replaces the kernel: destroys at once, or only when released.
struct Kernel {
  std::mutex mutex;
  std::condition_variable changed;
  bool stuck = false;
  bool in_destroy = false;
  std::vector<rdma_cm_id*> destroyed;
  std::thread::id thread;

  void Destroy(rdma_cm_id* id) {
    std::unique_lock<std::mutex> lock(mutex);
    in_destroy = true;
    changed.notify_all();
    changed.wait(lock, [&] { return !stuck; });
    destroyed.push_back(id);
    thread = std::this_thread::get_id();
    changed.notify_all();
  }
  void SetStuck(bool value) {
    const std::lock_guard<std::mutex> lock(mutex);
    stuck = value;
    changed.notify_all();
  }
  void AwaitDestroyed(size_t count) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return destroyed.size() >= count; });
  }
  void AwaitInDestroy() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return in_destroy; });
  }
};

Kernel* kernel = nullptr;

class CmReaperTest : public ::testing::Test {
 protected:
  CmReaperTest() { kernel = &kernel_; }

  // Before any reaper, but with threads that a sanitizer starts besides the first.
  static void SetUpTestSuite() {
    std::thread([] {}).join();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until it no longer counts
    threads_at_first_ = Threads();
  }

  static void Destroy(rdma_cm_id* id) { kernel->Destroy(id); }
  CmId Id(size_t i) { return CmId(&ids_[i]); }
  std::vector<rdma_cm_id*> FirstIds(size_t count) {
    std::vector<rdma_cm_id*> ids;
    for (size_t i = 0; i < count; ++i) ids.push_back(&ids_[i]);
    return ids;
  }
  static int Threads() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
      int count = 0;
      if (word == "Threads:" && status >> count) return count;
    }
    return -1;
  }

  // A reaper's thread may live a moment longer than the reaper.
  static void AwaitThreadsOfEarlierTests() {
    for (int i = 0; i < 1000 && Threads() != threads_at_first_; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  static int threads_at_first_;
  Kernel kernel_;
  std::vector<rdma_cm_id> ids_{CmReaper::kWaitingMax + 10};
};

int CmReaperTest::threads_at_first_ = 0;

TEST_F(CmReaperTest, IdsAreDestroyedInTheirOrderOnAThreadOfTheReapersOwn) {
  CmReaper reaper(nullptr, Destroy);
  for (size_t i = 0; i < 100; ++i) reaper.DestroyLater(Id(i));
  kernel_.AwaitDestroyed(100);
  EXPECT_EQ(kernel_.destroyed, FirstIds(100));
  EXPECT_NE(kernel_.thread, std::this_thread::get_id());
}

TEST_F(CmReaperTest, AThreadIsStartedWhenTheFirstIdComesAndNotBefore) {
  AwaitThreadsOfEarlierTests();
  const int before = Threads();
  CmReaper reaper(nullptr, Destroy);
  reaper.DestroyLater(nullptr);
  EXPECT_EQ(Threads(), before);
  reaper.DestroyLater(Id(0));
  kernel_.AwaitDestroyed(1);
  EXPECT_EQ(Threads(), before + 1);
  reaper.DestroyLater(Id(1));
  kernel_.AwaitDestroyed(2);
  EXPECT_EQ(Threads(), before + 1);
}

TEST_F(CmReaperTest, HandingOverDoesNotWaitForAnIdThatIsStuckAndNoneIsRefused) {
  CmReaper reaper(nullptr, Destroy);
  kernel_.SetStuck(true);
  for (size_t i = 0; i < CmReaper::kWaitingMax - 1; ++i) reaper.DestroyLater(Id(i));
  EXPECT_TRUE(reaper.has_room());
  for (size_t i = CmReaper::kWaitingMax - 1; i < ids_.size(); ++i) reaper.DestroyLater(Id(i));
  EXPECT_FALSE(reaper.has_room());
  EXPECT_EQ(reaper.waiting(), ids_.size());
  kernel_.SetStuck(false);
  kernel_.AwaitDestroyed(ids_.size());
  EXPECT_EQ(kernel_.destroyed, FirstIds(ids_.size()));
}

TEST_F(CmReaperTest, ItsEndWaitsForTheIdsHandedOver) {
  {
    CmReaper reaper(nullptr, Destroy);
    for (size_t i = 0; i < 100; ++i) reaper.DestroyLater(Id(i));
  }
  EXPECT_EQ(kernel_.destroyed.size(), 100u);
}

TEST_F(CmReaperTest, AStuckIdDoesNotHoldUpTheEndAndIsDestroyedAllTheSame) {
  kernel_.SetStuck(true);
  const auto began = std::chrono::steady_clock::now();
  {
    CmReaper reaper(nullptr, Destroy, std::chrono::milliseconds(20));
    reaper.DestroyLater(Id(0));
    reaper.DestroyLater(Id(1));
    kernel_.AwaitInDestroy();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  {
    const std::lock_guard<std::mutex> lock(kernel_.mutex);
    EXPECT_TRUE(kernel_.destroyed.empty());
  }
  kernel_.SetStuck(false);
  kernel_.AwaitDestroyed(2);
  EXPECT_EQ(kernel_.destroyed, FirstIds(2));
}

}  // namespace
}  // namespace osprey::rdma
