// The connections of an osprey.Client, its lanes: each is lent to one thread at a time. Waits are
// those that Ctrl-C interrupts.
//
// Threads: any thread takes a lane, uses it and gives it back. A thread gets its last one again if
// that is idle, for its location cache. Waits are sliced: after each slice the thread takes the GIL
// and runs Python's signal handlers. What they raise ends the wait.
//
// Deadlines: `left` is the time that a call has left. What waits for a lane subtracts its time from
// it, down to 1 ns: 0 has another meaning.
//
// Fork: in a child the destructor leaves all connections as they are.
//
// Thread rule: thread-safe. The caller holds the GIL; waits, and the end of a connection, release it.

#ifndef OSPREY_CLIENT_PYTHON_LANES_H_
#define OSPREY_CLIENT_PYTHON_LANES_H_

#include <pybind11/pybind11.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
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
#include "client/client.h"
#include "client/python/fork_mark.h"
#include "client/python/home.h"

namespace osprey::python {

// How long Ctrl-C may take to end a wait.
inline constexpr absl::Duration kSlice = absl::Milliseconds(50);

class Lanes : public std::enable_shared_from_this<Lanes> {
  struct Lane {
    std::shared_ptr<void> place;  // one of lanes_max; it outlives the Client
    std::unique_ptr<Client> client;
    std::shared_ptr<Home> home;
  };

 public:
  // Connects the first lane. There are at most `lanes_max`, 1 to 4096. Raises the errors of
  // Client::Connect.
  static std::shared_ptr<Lanes> Connect(const std::string& uri, const Options& options,
                                        int lanes_max);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // A lane that goes back when it is destroyed. Move-only.
  class Taken {
   public:
    Taken(Taken&&) noexcept = default;
    Taken& operator=(Taken&&) = delete;
    ~Taken();
    Client& operator*() const { return *lane_.client; }
    Client* operator->() const { return lane_.client.get(); }
    const std::shared_ptr<Home>& home() const { return lane_.home; }

   private:
    friend class Lanes;
    Taken(std::shared_ptr<Lanes> lanes, Lane lane)
        : lanes_(std::move(lanes)), lane_(std::move(lane)) {}

    std::shared_ptr<Lanes> lanes_;
    Lane lane_;
  };

  // An idle lane, or a new one, or the next that is given back. Errors: kLanesTaken, kClosed, those
  // of Client::Connect. Raises Forked, LimitReached if no thread can be made, and what signal
  // handlers raise.
  absl::StatusOr<Taken> TryTake(absl::Duration& left);
  // The same, but the lane of `home`. Nothing if that is gone.
  absl::StatusOr<std::optional<Taken>> TryTakeHome(const std::shared_ptr<Home>& home,
                                                   absl::Duration& left);
  // As TryTake, and raises its errors.
  Taken Take(absl::Duration& left);
  // Destroys the Buffers of `home` when its lane is free, or now.
  void Drop(const std::shared_ptr<Home>& home, Home::Dropped dropped);
  // Closes idle lanes at once, taken ones as they come back. May be called again.
  void Close();
  // Connected, or being connected.
  int lanes() const { return *count_; }

 private:
  struct Idle {
    std::thread::id last;  // the thread that used it
    Lane lane;
  };

  Lanes(std::string uri, const Options& options, int lanes_max)
      : uri_(std::move(uri)), options_(options), lanes_max_(lanes_max) {}
  absl::StatusOr<std::optional<Taken>> TakeIdle(const Home* home, uint64_t& seen);
  std::shared_ptr<void> TakePlace();
  absl::StatusOr<Taken> ConnectOne(std::shared_ptr<void> place, absl::Duration left);
  void AwaitIdle(uint64_t seen, absl::Duration left);
  void Give(Lane lane);
  void End(std::vector<Lane> lanes);

  const ForkMark fork_mark_;
  const std::string uri_;
  const Options options_;
  const int lanes_max_;
  // Of places. A thread that connects may outlive the Lanes.
  const std::shared_ptr<std::atomic<int>> count_ = std::make_shared<std::atomic<int>>(0);

  std::mutex mutex_;
  std::condition_variable given_;
  bool is_closed_ = false;
  int waiting_ = 0;         // threads in AwaitIdle
  uint64_t changes_ = 0;    // lanes that came back, or ended
  std::vector<Idle> idle_;  // the most recently used is last
};

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_LANES_H_
