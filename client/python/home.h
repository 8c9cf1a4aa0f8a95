// What Buffers know of the connection that registered them: whether it is there, and what is to be
// given back. Only the thread that has the Client may destroy a Buffer of it; any other leaves it
// here.
//
// Thread rule: thread-safe.

#ifndef OSPREY_CLIENT_PYTHON_HOME_H_
#define OSPREY_CLIENT_PYTHON_HOME_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/python/arguments.h"

namespace osprey::python {

class Home {
 public:
  // A Buffer, and the object whose memory it is, which goes later.
  struct Dropped {
    std::vector<osprey::Buffer> buffers;
    std::shared_ptr<Bytes> source;
  };

  void Leave(Dropped dropped) {
    std::lock_guard lock(mutex_);
    dropped_.push_back(std::move(dropped));
    has_dropped_.store(true, std::memory_order_seq_cst);
  }
  // Destroys the Buffers that were left. The result is for the caller to destroy with the GIL and
  // without locks. REQUIRES: the caller has the Client, or it is gone.
  [[nodiscard]] std::vector<Dropped> Sweep() {
    std::lock_guard lock(mutex_);
    for (Dropped& dropped : dropped_) dropped.buffers.clear();
    has_dropped_.store(false, std::memory_order_relaxed);
    return std::exchange(dropped_, {});
  }
  // Whether Sweep has something to do. Leave happens before or after it: see Lanes::Drop, which
  // looks for a free lane after Leave, under the lock that its giver holds.
  bool has_dropped() const { return has_dropped_.load(std::memory_order_seq_cst); }
  // After the end of the Client.
  void SetGone() {
    std::lock_guard lock(mutex_);
    is_gone_ = true;
  }
  bool is_gone() const {
    std::lock_guard lock(mutex_);
    return is_gone_;
  }

 private:
  mutable std::mutex mutex_;
  bool is_gone_ = false;
  std::vector<Dropped> dropped_;
  std::atomic<bool> has_dropped_ = false;
};

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_HOME_H_
