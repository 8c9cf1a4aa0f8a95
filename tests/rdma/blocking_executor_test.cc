// Calls outside the polling thread, with a kernel that is a latch.

#include "rdma/blocking_executor.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace osprey::rdma {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Latch {
 public:
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  // The work of a slow call.
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void AwaitReached() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return reached_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, reached_ = false;
};

// Counts those that are left, and records the thread on which the last one ended.
class Thing {
 public:
  Thing(int& left, std::thread::id& ended_on) : left_(left), ended_on_(ended_on) { ++left_; }
  ~Thing() {
    --left_;
    ended_on_ = std::this_thread::get_id();
  }
  Thing(const Thing&) = delete;
  Thing& operator=(const Thing&) = delete;

 private:
  int& left_;
  std::thread::id& ended_on_;
};

class BlockingExecutorTest : public ::testing::Test {
 protected:
  void SetUp() override { calls_ = BlockingExecutor::Create().value(); }

  bool Readable(int timeout_ms) const {
    pollfd readable = {calls_->fd(), POLLIN, 0};
    return poll(&readable, 1, timeout_ms) == 1;
  }
  void FinishUntil(size_t count) {
    while (afters_.size() < count && Readable(/*timeout_ms=*/10'000)) calls_->Finish();
    ASSERT_EQ(afters_.size(), count);
  }
  BlockingExecutor::Call After(std::string name) {
    return [this, name = std::move(name)] { afters_.push_back(name); };
  }
  // Calls added meanwhile are not executed.
  void Occupy(Latch& latch) {
    calls_->Add(
        BlockingExecutor::kMake, [&] { latch.Pass(); }, [] {});
    latch.AwaitReached();
  }

  std::unique_ptr<BlockingExecutor> calls_;
  std::vector<std::string> afters_;
};

TEST_F(BlockingExecutorTest, ACallIsMadeElsewhereAndWhatFollowsHere) {
  std::thread::id made_on, finished_on;
  int result = 0;
  calls_->Add(
      BlockingExecutor::kMake,
      [&] {
        made_on = std::this_thread::get_id();
        result = 42;
      },
      [&, after = After("made")]() mutable {
        finished_on = std::this_thread::get_id();
        EXPECT_EQ(result, 42);
        after();
      });
  EXPECT_EQ(calls_->waiting(BlockingExecutor::kMake), 1u);
  FinishUntil(1);
  EXPECT_EQ(calls_->waiting(BlockingExecutor::kMake), 0u);
  EXPECT_NE(made_on, std::this_thread::get_id());
  EXPECT_EQ(finished_on, std::this_thread::get_id());
  EXPECT_FALSE(Readable(/*timeout_ms=*/0));
}

TEST_F(BlockingExecutorTest, WhereCpuIsScarceCallsGiveWayToTheirOwnersThread) {
  const int ours = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
  int theirs = 0;
  calls_->Add(
      BlockingExecutor::kMake,
      [&] { theirs = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }, After("made"));
  FinishUntil(1);
  EXPECT_EQ(theirs, std::min(ours + kQuietNiceness, 19));  // the highest nice value
  EXPECT_EQ(getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())), ours);
}

TEST_F(BlockingExecutorTest, NeitherAddNorFinishWaitsForACallThatTakesLong) {
  Latch latch;
  Occupy(latch);
  calls_->Add(
      BlockingExecutor::kEnd, [] {}, After("ended"));
  calls_->Finish();
  EXPECT_THAT(afters_, IsEmpty());
  EXPECT_EQ(calls_->waiting(BlockingExecutor::kMake), 1u);
  EXPECT_EQ(calls_->waiting(BlockingExecutor::kEnd), 1u);
  latch.Open();
  FinishUntil(1);
}

TEST_F(BlockingExecutorTest, KindsAreTakenInTurnsAndEachInItsOrder) {
  Latch latch;
  Occupy(latch);
  for (int i = 0; i < 3; ++i) {
    calls_->Add(
        BlockingExecutor::kEnd, [] {}, After("end" + std::to_string(i)));
  }
  for (int i = 0; i < 2; ++i) {
    calls_->Add(
        BlockingExecutor::kFree, [] {}, After("free" + std::to_string(i)));
    calls_->Add(
        BlockingExecutor::kMake, [] {}, After("make" + std::to_string(i)));
  }
  latch.Open();
  FinishUntil(7);
  EXPECT_THAT(afters_, ElementsAre("end0", "free0", "make0", "end1", "free1", "make1", "end2"));
}

TEST_F(BlockingExecutorTest, WhatACallOwnsIsDestroyedElsewhereToo) {
  int left = 0;
  std::thread::id ended_on;
  calls_->Add(
      BlockingExecutor::kFree, [thing = std::make_unique<Thing>(left, ended_on)] {},
      After("freed"));
  FinishUntil(1);
  EXPECT_EQ(left, 0);
  EXPECT_NE(ended_on, std::this_thread::get_id());
}

TEST_F(BlockingExecutorTest, ItsEndWaitsForTheCallUnderWayAndDropsTheOthers) {
  Latch latch;
  Occupy(latch);
  int left = 0;
  std::thread::id ended_on;
  bool made = false;
  calls_->Add(
      BlockingExecutor::kEnd,
      [&made, thing = std::make_unique<Thing>(left, ended_on)] { made = true; }, After("ended"));
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    latch.Open();
  });
  calls_.reset();
  opener.join();
  EXPECT_FALSE(made);
  EXPECT_EQ(left, 0);
  EXPECT_THAT(afters_, IsEmpty());
}

TEST_F(BlockingExecutorTest, WhileThereIsNoThreadToBeHadCallsAreMadeAtOnce) {
  static int attempts;
  attempts = 0;
  calls_ = BlockingExecutor::Create([](const char* name, void* (*run)(void*), void* argument,
                                       pthread_t& thread) {
             return ++attempts > 1 && StartBackgroundThread(name, run, argument, thread);
           }).value();
  std::thread::id made_on;
  const auto make = [&] { made_on = std::this_thread::get_id(); };
  calls_->Add(BlockingExecutor::kMake, make, After("made"));
  EXPECT_EQ(made_on, std::this_thread::get_id());
  EXPECT_THAT(afters_, IsEmpty());
  FinishUntil(1);

  calls_->Add(BlockingExecutor::kMake, make, After("made"));
  FinishUntil(2);
  EXPECT_NE(made_on, std::this_thread::get_id());
}

}  // namespace
}  // namespace osprey::rdma
