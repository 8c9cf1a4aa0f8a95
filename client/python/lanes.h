// The connections of an osprey.Client: lanes of a ClientPool, and waits that Ctrl-C interrupts.
//
// Threads: any thread takes a lane, uses it and gives it back. Waits are sliced: after each slice
// the thread takes the GIL and runs Python's signal handlers. What they raise ends the wait.
//
// Fork: in a child the destructor leaves all connections as they are.
//
// Thread rule: thread-safe. The caller holds the GIL; waits release it.

#ifndef OSPREY_CLIENT_PYTHON_LANES_H_
#define OSPREY_CLIENT_PYTHON_LANES_H_

#include <pybind11/pybind11.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/pool.h"
#include "client/python/fork_mark.h"
#include "client/python/home.h"

namespace osprey::python {

// How long Ctrl-C may take to end a wait.
inline constexpr absl::Duration kSlice = absl::Milliseconds(50);

// Runs Python's signal handlers. REQUIRES: the GIL is released.
void CheckSignals();

// Runs `work` on a thread and waits for its end; the GIL is released. If a signal handler raises,
// the thread continues alone, so `work` must own what it uses.
void RunInterruptibly(std::function<void()> work);

class Lanes : public std::enable_shared_from_this<Lanes> {
 public:
  // Connects the first lane. Raises the errors of ClientPool::Create.
  static std::shared_ptr<Lanes> Connect(const std::string& uri, const PoolOptions& options);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // A lane that goes back when it is destroyed. Move-only. It keeps the pool.
  class Taken {
   public:
    Taken(Taken&&) noexcept = default;
    Taken& operator=(Taken&&) = delete;
    ~Taken();
    Client& operator*() const { return **lane_; }
    Client* operator->() const { return &**lane_; }
    const std::shared_ptr<Home>& home() const { return home_; }

   private:
    friend class Lanes;
    Taken(std::shared_ptr<Lanes> lanes, ClientPool::Lane lane, std::shared_ptr<Home> home)
        : lanes_(std::move(lanes)), lane_(std::move(lane)), home_(std::move(home)) {}

    std::shared_ptr<Lanes> lanes_;
    std::optional<ClientPool::Lane> lane_;
    std::shared_ptr<Home> home_;
  };

  // Waits up to `wait` for a lane, if all are taken. Errors: those of ClientPool::Take. Raises
  // Closed or Forked, and what signal handlers raise.
  absl::StatusOr<Taken> TryTake(absl::Duration wait);
  // The same, but the lane of `home`. Nothing if that is gone.
  absl::StatusOr<std::optional<Taken>> TryTakeHome(const std::shared_ptr<Home>& home,
                                                   absl::Duration wait);
  // As TryTake, and raises its errors.
  Taken Take(absl::Duration wait);
  // Destroys the Buffers of `home` when its lane is free, or now.
  void Drop(const std::shared_ptr<Home>& home, Home::Dropped dropped);
  // Closes idle lanes at once, taken ones as they come back. May be called again.
  void Close();
  int lanes() const { return pool_->lanes(); }

 private:
  struct Idle {
    std::thread::id last;  // the thread that used it
    ClientPool::Lane lane;
    std::shared_ptr<Home> home;
  };

  explicit Lanes(std::shared_ptr<ClientPool> pool);
  std::optional<Taken> TakeIdle(const Home* home, uint64_t& seen);
  void AwaitIdle(uint64_t seen);
  void Give(std::optional<ClientPool::Lane> lane, const std::shared_ptr<Home>& home);

  const ForkMark fork_mark_;
  std::shared_ptr<ClientPool> pool_;  // a thread of RunInterruptibly may hold it, too

  std::mutex mutex_;
  std::condition_variable given_;
  bool is_closed_ = false;
  int waiting_ = 0;         // threads in AwaitIdle
  uint64_t changes_ = 0;    // lanes that came back, or were closed
  std::vector<Idle> idle_;  // the most recently used is last
};

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_LANES_H_
