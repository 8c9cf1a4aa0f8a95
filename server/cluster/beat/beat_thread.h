// The thread that beats, every kBeatInterval while the bounds allow it (serving_beat.h).
//
// Thread rule: one thread starts it and ends it.

#ifndef OSPREY_SERVER_CLUSTER_BEAT_BEAT_THREAD_H_
#define OSPREY_SERVER_CLUSTER_BEAT_BEAT_THREAD_H_

#include <pthread.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/cluster/beat/serving_beat.h"

namespace osprey {

class BeatThread {
 public:
  // `now` reads the server's lease clock, `bounds` the bounds; both are called on the new thread.
  // `beat` outlives it. The thread blocks all signals. Errors: RESOURCE_EXHAUSTED (no thread).
  static absl::StatusOr<std::unique_ptr<BeatThread>> Start(ServingBeat& beat,
                                                           std::function<absl::Time()> now,
                                                           std::function<ServingBounds()> bounds);
  // No beat is stored after that. Leases that clients have last on.
  ~BeatThread();
  BeatThread(const BeatThread&) = delete;
  BeatThread& operator=(const BeatThread&) = delete;

 private:
  BeatThread(ServingBeat& beat, std::function<absl::Time()> now,
             std::function<ServingBounds()> bounds)
      : beat_(beat), now_(std::move(now)), bounds_(std::move(bounds)) {}
  void Run();

  ServingBeat& beat_;
  const std::function<absl::Time()> now_;
  const std::function<ServingBounds()> bounds_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  bool started_ = false;
  pthread_t thread_ = {};
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_BEAT_BEAT_THREAD_H_
