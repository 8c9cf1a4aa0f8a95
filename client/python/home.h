// What Buffers know of the connection that registered them: whether it is there, and what is to be
// given back. Only the thread that has the Client may destroy a Buffer of it; any other leaves it
// here.
//
// Thread rule: thread-safe.

#ifndef OSPREY_CLIENT_PYTHON_HOME_H_
#define OSPREY_CLIENT_PYTHON_HOME_H_

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
  }
  // Destroys the Buffers that were left. The result is for the caller to destroy with the GIL and
  // without locks. REQUIRES: the caller has the Client, or it is gone.
  [[nodiscard]] std::vector<Dropped> Sweep() {
    std::lock_guard lock(mutex_);
    for (Dropped& dropped : dropped_) dropped.buffers.clear();
    return std::exchange(dropped_, {});
  }
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
};

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_HOME_H_
