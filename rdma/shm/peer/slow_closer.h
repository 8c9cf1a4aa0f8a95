// Closes descriptors that peers have sent, away from the threads that poll.
//
// A peer can make close() block for as long as it likes. A TCP socket with SO_LINGER waits for its
// unsent data, a FUSE file for its daemon, a Unix socket for what lies unread in it. So a process
// that receives descriptors must not close them, nor the socket, on a thread that others wait for.
//
//   SlowCloser ── CloserLane of uid 1000 ── thread, while there is something to close
//              └─ CloserLane of uid 1001 ── thread
//
// Each user has a lane: a descriptor of one user that blocks does not delay those of others. A lane
// takes every descriptor that it is given. The server refuses new connections of a user whose lane
// is full, which bounds what one user can leave open in it.
//
// Thread rule: thread-safe.

#ifndef OSPREY_RDMA_SHM_PEER_SLOW_CLOSER_H_
#define OSPREY_RDMA_SHM_PEER_SLOW_CLOSER_H_

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

namespace osprey::rdma {

// One user's. The thread, and each owner of a descriptor, share it.
class CloserLane : public std::enable_shared_from_this<CloserLane> {
 public:
  // With so many descriptors to close, a lane is full. An honest peer's are closed in microseconds.
  static constexpr size_t kWaitingMax = 64;

  static std::shared_ptr<CloserLane> Create();
  ~CloserLane();
  CloserLane(const CloserLane&) = delete;
  CloserLane& operator=(const CloserLane&) = delete;

  // Takes `fd` and closes it soon, after those before it. Never blocks. While the system has no
  // thread to give, descriptors wait for the next call.
  void Close(int fd) { Add({fd, /*is_drained=*/false}); }
  // The same of a socket that is shut down and that others keep open: what lies unread in it is
  // dropped, and the descriptors in there are closed.
  void DrainAndClose(int socket) { Add({socket, /*is_drained=*/true}); }
  bool full() const { return waiting() >= kWaitingMax; }
  // Descriptors that are not closed yet.
  size_t waiting() const;

 private:
  struct Task {
    int fd;
    bool is_drained;
  };

  CloserLane() = default;
  void Add(Task task);
  static void* Run(void* lane);
  void CloseAll();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;  // the first is being closed
  bool has_thread_ = false;
  std::shared_ptr<CloserLane> self_;  // while descriptors wait and there is no thread
};

// The lanes of a Domain. Its end waits for no lane.
class SlowCloser {
 public:
  // Users with a lane of their own. More than that share one.
  static constexpr size_t kLanesMax = 64;

  SlowCloser() = default;
  SlowCloser(const SlowCloser&) = delete;
  SlowCloser& operator=(const SlowCloser&) = delete;

  std::shared_ptr<CloserLane> LaneOf(uid_t uid);

 private:
  std::mutex mutex_;
  std::map<uid_t, std::weak_ptr<CloserLane>> lanes_;
  std::weak_ptr<CloserLane> shared_;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_PEER_SLOW_CLOSER_H_
