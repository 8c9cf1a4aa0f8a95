#include "client/python/lanes.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <exception>

#include "client/python/errors.h"

namespace osprey::python {

namespace py = pybind11;

namespace {

// How often this process is a child of one that had loaded the module.
std::atomic<int> forks = 0;

void CountForks() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
}

struct Work {
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
};

}  // namespace

void CheckSignals() {
  py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void RunInterruptibly(std::function<void()> work) {
  auto state = std::make_shared<Work>();
  py::gil_scoped_release released;
  std::thread([state, work = std::move(work)]() mutable {
    work();
    work = nullptr;  // what it owns ends here
    std::lock_guard lock(state->mutex);
    state->has_ended = true;
    state->ended.notify_one();
  }).detach();
  std::unique_lock lock(state->mutex);
  while (!state->ended.wait_for(lock, absl::ToChronoMilliseconds(kSlice),
                                [&] { return state->has_ended; })) {
    lock.unlock();
    CheckSignals();
    lock.lock();
  }
}

std::shared_ptr<Lanes> Lanes::Connect(const std::string& uri, const PoolOptions& options) {
  CountForks();
  auto pool = std::make_shared<absl::StatusOr<std::unique_ptr<ClientPool>>>();
  RunInterruptibly([pool, uri, options] { *pool = ClientPool::Create(uri, options); });
  if (!pool->ok()) Raise(pool->status(), false);
  return std::shared_ptr<Lanes>(new Lanes(std::move(**pool)));
}

Lanes::Lanes(std::shared_ptr<ClientPool> pool)
    : forks_(forks.load(std::memory_order_relaxed)), pool_(std::move(pool)) {}

bool Lanes::IsForked() const { return forks.load(std::memory_order_relaxed) != forks_; }

Lanes::~Lanes() {
  if (!IsForked()) {
    Close();
    return;
  }
  // The connections are the parent's: neither closed nor freed here.
  new auto(std::move(idle_));
  new auto(std::move(pool_));
}

void Lanes::RaiseIfUnusable() {
  if (IsForked()) {
    Raise(ErrorOf("forked",
                  "this Client was made before a fork, and its connections are the parent's: make "
                  "a Client in the child, or use multiprocessing's start method 'spawn'"));
  }
  std::lock_guard lock(mutex_);
  if (is_closed_) Raise(ErrorOf("closed", "this Client is closed: make another"));
}

std::optional<ClientPool::Lane> Lanes::TakeIdle() {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::nullopt;
  auto chosen = idle_.end() - 1;
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if (it->first == std::this_thread::get_id()) chosen = it;
  }
  std::optional<ClientPool::Lane> lane(std::move(chosen->second));
  idle_.erase(chosen);
  return lane;
}

Lanes::Taken Lanes::Take(absl::Duration wait) {
  const absl::Time end = absl::Now() + wait;
  for (;;) {
    RaiseIfUnusable();
    if (std::optional<ClientPool::Lane> lane = TakeIdle())
      return Taken(shared_from_this(), std::move(*lane));
    // The pool lends a new lane. (Pool before lane: a late lane goes before its pool.)
    struct Lent {
      std::shared_ptr<ClientPool> pool;
      absl::StatusOr<ClientPool::Lane> lane;
    };
    auto lent = std::make_shared<Lent>(Lent{pool_, absl::UnknownError("")});
    RunInterruptibly([lent] { lent->lane = lent->pool->Take(); });
    if (lent->lane.ok()) return Taken(shared_from_this(), *std::move(lent->lane));
    if (ReasonOf(lent->lane.status()) != Reason::kLanesTaken || absl::Now() >= end)
      Raise(lent->lane.status(), false);
    py::gil_scoped_release released;
    {
      std::unique_lock lock(mutex_);
      given_.wait_for(lock, absl::ToChronoMilliseconds(kSlice),
                      [&] { return !idle_.empty() || is_closed_; });
    }
    CheckSignals();
  }
}

Lanes::Taken::~Taken() {
  if (lanes_ != nullptr) lanes_->Give(*std::move(lane_));
}

void Lanes::Give(ClientPool::Lane lane) {
  // The pool closes a lane with operations in flight: their answers belong to this call.
  if (lane->in_flight() > 0) return;
  std::lock_guard lock(mutex_);
  if (is_closed_) return;
  idle_.emplace_back(std::this_thread::get_id(), std::move(lane));
  given_.notify_one();
}

void Lanes::Close() {
  if (IsForked()) return;
  std::vector<std::pair<std::thread::id, ClientPool::Lane>> closing;
  std::lock_guard lock(mutex_);
  is_closed_ = true;
  closing.swap(idle_);
  given_.notify_all();
}

}  // namespace osprey::python
