#include "client/python/lanes.h"

#include <chrono>
#include <exception>

#include "client/python/errors.h"

namespace osprey::python {

namespace py = pybind11;

namespace {

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
  auto pool = std::make_shared<absl::StatusOr<std::unique_ptr<ClientPool>>>();
  RunInterruptibly([pool, uri, options] { *pool = ClientPool::Create(uri, options); });
  if (!pool->ok()) Raise(pool->status(), false);
  return std::shared_ptr<Lanes>(new Lanes(std::move(**pool)));
}

Lanes::Lanes(std::shared_ptr<ClientPool> pool) : pool_(std::move(pool)) {}

Lanes::~Lanes() {
  if (!fork_mark_.IsForked()) {
    Close();
    return;
  }
  // The connections are the parent's: neither closed nor freed here.
  new auto(std::move(idle_));
  new auto(std::move(pool_));
}

// `home` null: the lane of this thread, else the most recently used. Nothing: there is none now, and
// `seen` is what AwaitIdle takes.
std::optional<Lanes::Taken> Lanes::TakeIdle(const Home* home, uint64_t& seen) {
  fork_mark_.RaiseIfForked();
  std::unique_lock lock(mutex_);
  if (is_closed_) {
    lock.unlock();
    Raise(ErrorOf("closed", "this Client is closed: make another"));
  }
  seen = changes_;
  const std::thread::id self = std::this_thread::get_id();
  auto chosen = home == nullptr && !idle_.empty() ? idle_.end() - 1 : idle_.end();
  if (home != nullptr || chosen == idle_.end() || chosen->last != self) {
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      if (home == nullptr ? it->last == self : it->home.get() == home) chosen = it;
    }
  }
  if (chosen == idle_.end()) return std::nullopt;
  Taken taken(shared_from_this(), std::move(chosen->lane), std::move(chosen->home));
  idle_.erase(chosen);
  return taken;
}

// Waits a slice, or until a lane was given back since `seen`, and runs Python's signal handlers.
void Lanes::AwaitIdle(uint64_t seen) {
  py::gil_scoped_release released;
  {
    std::unique_lock lock(mutex_);
    ++waiting_;
    given_.wait_for(lock, absl::ToChronoMilliseconds(kSlice), [&] { return changes_ != seen; });
    --waiting_;
  }
  CheckSignals();
}

Lanes::Taken Lanes::Take(absl::Duration wait) {
  absl::StatusOr<Taken> taken = TryTake(wait);
  if (!taken.ok()) Raise(taken.status(), false);
  return *std::move(taken);
}

absl::StatusOr<Lanes::Taken> Lanes::TryTake(absl::Duration wait) {
  uint64_t seen = 0;
  if (std::optional<Taken> taken = TakeIdle(nullptr, seen)) return *std::move(taken);
  const absl::Time end = absl::Now() + wait;
  for (;;) {
    if (std::optional<Taken> taken = TakeIdle(nullptr, seen)) return *std::move(taken);
    // The pool lends a new lane. (Pool before lane: a late lane goes before its pool.)
    struct Lent {
      std::shared_ptr<ClientPool> pool;
      absl::StatusOr<ClientPool::Lane> lane;
    };
    auto lent = std::make_shared<Lent>(Lent{pool_, absl::UnknownError("")});
    RunInterruptibly([lent] { lent->lane = lent->pool->Take(); });
    if (lent->lane.ok())
      return Taken(shared_from_this(), *std::move(lent->lane), std::make_shared<Home>());
    if (ReasonOf(lent->lane.status()) != Reason::kLanesTaken || absl::Now() >= end)
      return lent->lane.status();
    AwaitIdle(seen);
  }
}

absl::StatusOr<std::optional<Lanes::Taken>> Lanes::TryTakeHome(const std::shared_ptr<Home>& home,
                                                               absl::Duration wait) {
  uint64_t seen = 0;
  if (std::optional<Taken> taken = TakeIdle(home.get(), seen)) return taken;
  const absl::Time end = absl::Now() + wait;
  for (;;) {
    if (std::optional<Taken> taken = TakeIdle(home.get(), seen)) return taken;
    if (home->is_gone()) return std::nullopt;
    if (absl::Now() >= end) {
      return MakeError(Reason::kLanesTaken,
                       "the Buffer's connection is in use by another thread: operations on Buffers "
                       "of one connection follow one another; allocate a Buffer in each thread");
    }
    AwaitIdle(seen);
  }
}

void Lanes::Drop(const std::shared_ptr<Home>& home, Home::Dropped dropped) {
  if (fork_mark_.IsForked()) {
    new auto(std::move(dropped));  // the parent's
    return;
  }
  home->Leave(std::move(dropped));
  std::vector<Home::Dropped> swept;
  std::lock_guard lock(mutex_);
  bool is_free = home->is_gone();
  for (const Idle& idle : idle_) is_free |= idle.home == home;
  // Otherwise the thread that has the lane sweeps when it gives it back.
  if (is_free) swept = home->Sweep();
}

Lanes::Taken::~Taken() {
  if (lanes_ != nullptr) lanes_->Give(std::move(lane_), home_);
}

void Lanes::Give(std::optional<ClientPool::Lane> lane, const std::shared_ptr<Home>& home) {
  // The pool closes a lane with operations in flight: their answers belong to this call.
  const bool is_busy = (*lane)->in_flight() > 0;
  std::vector<Home::Dropped> swept;
  {
    std::lock_guard lock(mutex_);
    ++changes_;
    if (!is_busy && !is_closed_) {
      if (home->has_dropped()) swept = home->Sweep();
      idle_.push_back({std::this_thread::get_id(), *std::move(lane), home});
      if (waiting_ > 0) given_.notify_all();
      return;
    }
  }
  lane.reset();
  home->SetGone();
  swept = home->Sweep();
  given_.notify_all();
}

void Lanes::Close() {
  if (fork_mark_.IsForked()) return;
  std::vector<Home::Dropped> swept;
  std::vector<Idle> closing;
  {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
    ++changes_;
    closing.swap(idle_);
    given_.notify_all();
  }
  std::vector<std::shared_ptr<Home>> homes;
  for (const Idle& idle : closing) homes.push_back(idle.home);
  closing.clear();
  for (const std::shared_ptr<Home>& home : homes) {
    home->SetGone();
    for (Home::Dropped& dropped : home->Sweep()) swept.push_back(std::move(dropped));
  }
}

}  // namespace osprey::python
