#include "client/python/lanes.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/common/errors.h"
#include "client/python/errors.h"
#include "client/python/gil.h"

namespace osprey::python {

namespace {

constexpr int kLanesMax = 4096;
constexpr absl::Duration kNothingLeft = absl::Nanoseconds(1);

// Subtracts its life from `left`.
class Spent {
 public:
  explicit Spent(absl::Duration& left) : left_(left) {}
  ~Spent() { left_ = std::max(left_ - (absl::Now() - begin_), kNothingLeft); }
  Spent(const Spent&) = delete;
  Spent& operator=(const Spent&) = delete;

 private:
  absl::Duration& left_;
  const absl::Time begin_ = absl::Now();
};

struct Work {
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
};

// Runs `work` on a thread and waits for its end; the GIL is released. If a signal handler raises,
// the thread continues alone, so `work` must own what it uses.
void RunInterruptibly(std::function<void()> work) {
  auto state = std::make_shared<Work>();
  try {
    std::thread([state, work = std::move(work)]() mutable {
      work();
      work = nullptr;  // what it owns ends here
      std::lock_guard lock(state->mutex);
      state->has_ended = true;
      state->ended.notify_one();
    }).detach();
  } catch (const std::system_error& error) {
    Raise(ErrorOf("no_thread", absl::StrCat("no thread can be made to connect: ", error.what(),
                                            "; allow this process more threads or memory")));
  }
  GilReleased released;
  std::unique_lock lock(state->mutex);
  while (!state->ended.wait_for(lock, absl::ToChronoMilliseconds(kSlice),
                                [&] { return state->has_ended; })) {
    lock.unlock();
    released.CheckSignals();
    lock.lock();
  }
}

}  // namespace

std::shared_ptr<Lanes> Lanes::Connect(const std::string& uri, const Options& options,
                                      int lanes_max) {
  if (lanes_max < 1 || lanes_max > kLanesMax) {
    Raise(client::BadOptionError("connections_max", absl::StrCat(lanes_max),
                                 absl::StrCat("1 to ", kLanesMax)),
          false);
  }
  std::shared_ptr<Lanes> lanes(new Lanes(uri, options, lanes_max));
  absl::Duration left = options.connect_timeout;
  lanes->Take(left);
  return lanes;
}

Lanes::~Lanes() {
  if (!fork_mark_.IsForked()) {
    Close();
    return;
  }
  // The connections are the parent's: neither closed nor freed here.
  new auto(std::move(idle_));
}

// `home` null: the lane of this thread, else the most recently used. Nothing: there is none now, and
// `seen` is what AwaitIdle takes.
absl::StatusOr<std::optional<Lanes::Taken>> Lanes::TakeIdle(const Home* home, uint64_t& seen) {
  fork_mark_.RaiseIfForked();
  std::lock_guard lock(mutex_);
  if (is_closed_) return MakeError(Reason::kClosed, "this Client is closed: make another");
  seen = changes_;
  const std::thread::id self = std::this_thread::get_id();
  auto chosen = home == nullptr && !idle_.empty() ? idle_.end() - 1 : idle_.end();
  if (home != nullptr || chosen == idle_.end() || chosen->last != self) {
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      if (home == nullptr ? it->last == self : it->lane.home.get() == home) chosen = it;
    }
  }
  if (chosen == idle_.end()) return std::nullopt;
  std::optional<Taken> taken = Taken(shared_from_this(), std::move(chosen->lane));
  idle_.erase(chosen);
  return taken;
}

// Waits a slice, or until a lane was given back since `seen`, and runs Python's signal handlers.
void Lanes::AwaitIdle(uint64_t seen, absl::Duration left) {
  GilReleased released;
  {
    std::unique_lock lock(mutex_);
    ++waiting_;
    given_.wait_for(lock, absl::ToChronoNanoseconds(std::min(left, kSlice)),
                    [&] { return changes_ != seen; });
    --waiting_;
  }
  released.CheckSignals();
}

Lanes::Taken Lanes::Take(absl::Duration& left) {
  absl::StatusOr<Taken> taken = TryTake(left);
  if (!taken.ok()) Raise(taken.status(), false);
  return *std::move(taken);
}

// Null: all are taken.
std::shared_ptr<void> Lanes::TakePlace() {
  std::lock_guard lock(mutex_);
  if (*count_ >= lanes_max_) return nullptr;
  ++*count_;
  return {count_.get(), [count = count_](void*) { --*count; }};
}

absl::StatusOr<Lanes::Taken> Lanes::ConnectOne(std::shared_ptr<void> place, absl::Duration left) {
  struct Made {
    std::shared_ptr<void> place;
    absl::StatusOr<std::unique_ptr<Client>> client;
  };
  auto made = std::make_shared<Made>(Made{std::move(place), absl::UnknownError("")});
  Options options = options_;
  options.connect_timeout = std::min(options.connect_timeout, left);
  RunInterruptibly([made, uri = uri_, options] { made->client = Client::Connect(uri, options); });
  if (!made->client.ok()) return made->client.status();
  return Taken(shared_from_this(),
               {std::move(made->place), *std::move(made->client), std::make_shared<Home>()});
}

absl::StatusOr<Lanes::Taken> Lanes::TryTake(absl::Duration& left) {
  for (uint64_t seen = 0;;) {
    absl::StatusOr<std::optional<Taken>> taken = TakeIdle(nullptr, seen);
    if (!taken.ok()) return taken.status();
    if (taken->has_value()) return **std::move(taken);
    const Spent spent(left);
    if (std::shared_ptr<void> place = TakePlace()) return ConnectOne(std::move(place), left);
    if (left <= kNothingLeft) {
      return MakeError(Reason::kLanesTaken,
                       absl::StrCat("all ", lanes_max_,
                                    " connections are in use by other threads: raise "
                                    "connections_max, or allow more time"));
    }
    AwaitIdle(seen, left);
  }
}

absl::StatusOr<std::optional<Lanes::Taken>> Lanes::TryTakeHome(const std::shared_ptr<Home>& home,
                                                               absl::Duration& left) {
  for (uint64_t seen = 0;;) {
    absl::StatusOr<std::optional<Taken>> taken = TakeIdle(home.get(), seen);
    if (!taken.ok() || taken->has_value()) return taken;
    if (home->is_gone()) return std::nullopt;
    if (left <= kNothingLeft) {
      return MakeError(Reason::kLanesTaken,
                       "the Buffer's connection is in use by another thread: operations on Buffers "
                       "of one connection follow one another; allocate a Buffer in each thread");
    }
    const Spent spent(left);
    AwaitIdle(seen, left);
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
  for (const Idle& idle : idle_) is_free |= idle.lane.home == home;
  // Otherwise the thread that has the lane sweeps when it gives it back.
  if (is_free) swept = home->Sweep();
}

Lanes::Taken::~Taken() {
  if (lanes_ != nullptr) lanes_->Give(std::move(lane_));
}

void Lanes::Give(Lane lane) {
  // With operations in flight it ends: their answers belong to this call.
  const bool is_busy = lane.client->in_flight() > 0;
  std::vector<Home::Dropped> swept;
  {
    std::lock_guard lock(mutex_);
    if (!is_busy && !is_closed_) {
      ++changes_;
      if (lane.home->has_dropped()) swept = lane.home->Sweep();
      idle_.push_back({std::this_thread::get_id(), std::move(lane)});
      if (waiting_ > 0) given_.notify_all();
      return;
    }
  }
  std::vector<Lane> ending;
  ending.push_back(std::move(lane));
  End(std::move(ending));
}

void Lanes::Close() {
  if (fork_mark_.IsForked()) return;
  std::vector<Lane> ending;
  {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
    for (Idle& idle : idle_) ending.push_back(std::move(idle.lane));
    idle_.clear();
  }
  End(std::move(ending));
}

void Lanes::End(std::vector<Lane> lanes) {
  {
    const GilReleased released;
    for (Lane& lane : lanes) {
      lane.client = nullptr;
      lane.place = nullptr;
      lane.home->SetGone();
    }
    std::lock_guard lock(mutex_);
    ++changes_;
    given_.notify_all();
  }
  for (const Lane& lane : lanes) const auto swept = lane.home->Sweep();
}

}  // namespace osprey::python
