#include "rdma/blocking_executor.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "rdma/inbox.h"

namespace osprey::rdma {
namespace {

struct Task {
  BlockingExecutor::Kind kind = BlockingExecutor::kMake;
  BlockingExecutor::Call call, after;
};

}  // namespace

struct BlockingExecutor::State {
  std::unique_ptr<Inbox<Task>> done;
  pthread_t thread = {};

  std::mutex mutex;
  std::condition_variable changed;
  // Under the mutex.
  std::deque<Task> waiting[kKinds];
  size_t next = 0;  // of `waiting`, the kind whose turn it is
  bool leaving = false;

  // The oldest of the kind whose turn it is, if that has any.
  std::optional<Task> Take() {
    for (size_t i = 0; i < kKinds; ++i) {
      std::deque<Task>& tasks = waiting[next++ % kKinds];
      if (tasks.empty()) continue;
      Task task = std::move(tasks.front());
      tasks.pop_front();
      return task;
    }
    return std::nullopt;
  }

  void Make(Task task) {
    task.call();
    task.call = nullptr;  // destroyed here, with all that it owns
    (void)done->Put([&] { return absl::StatusOr<Task>(std::move(task)); });
  }
};

absl::StatusOr<std::unique_ptr<BlockingExecutor>> BlockingExecutor::Create(Start start) {
  absl::StatusOr<std::unique_ptr<Inbox<Task>>> done =
      Inbox<Task>::Create(std::numeric_limits<size_t>::max());
  if (!done.ok()) return done.status();
  auto state = std::make_unique<State>();
  state->done = *std::move(done);
  return std::unique_ptr<BlockingExecutor>(new BlockingExecutor(std::move(state), start));
}

BlockingExecutor::BlockingExecutor(std::unique_ptr<State> state, Start start)
    : state_(std::move(state)), start_(start) {}

BlockingExecutor::~BlockingExecutor() {
  if (!started_) return;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->leaving = true;
    state_->changed.notify_all();
  }
  pthread_join(state_->thread, nullptr);
}

int BlockingExecutor::fd() const { return state_->done->fd(); }

void BlockingExecutor::Add(Kind kind, Call call, Call after) {
  Task task{kind, std::move(call), std::move(after)};
  ++waiting_[kind];
  if (!started_) started_ = start_("osprey-verbs", &Run, state_.get(), state_->thread);
  if (!started_) return state_->Make(std::move(task));
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->waiting[kind].push_back(std::move(task));
  state_->changed.notify_all();
}

void BlockingExecutor::Finish() {
  for (Task& task : state_->done->Take()) {
    --waiting_[task.kind];
    task.after();
  }
}

void* BlockingExecutor::Run(void* argument) {
  LowerPriority();
  State& state = *static_cast<State*>(argument);
  std::unique_lock<std::mutex> lock(state.mutex);
  while (true) {
    std::optional<Task> task;
    state.changed.wait(lock, [&] { return state.leaving || (task = state.Take()).has_value(); });
    if (state.leaving) return nullptr;
    lock.unlock();
    state.Make(*std::move(task));
    lock.lock();
  }
}

}  // namespace osprey::rdma
