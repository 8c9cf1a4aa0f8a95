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
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/cluster/beat/serving_beat.h"

namespace osprey {

class BeatThread {
 public:
  // The beats of one region.
  struct Beating {
    ServingBeat* beat = nullptr;  // outlives the thread
    std::function<ServingBounds()> bounds;
  };

  // `now` reads the server's lease clock. It and the bounds are called on the new thread, which blocks all
  // signals. Errors: RESOURCE_EXHAUSTED (no thread).
  static absl::StatusOr<std::unique_ptr<BeatThread>> Start(std::vector<Beating> beats,
                                                           std::function<absl::Time()> now);
  // No beat is stored after that. Leases that clients have last on.
  ~BeatThread();
  BeatThread(const BeatThread&) = delete;
  BeatThread& operator=(const BeatThread&) = delete;

 private:
  BeatThread(std::vector<Beating> beats, std::function<absl::Time()> now)
      : beats_(std::move(beats)), now_(std::move(now)) {}
  void Run();

  const std::vector<Beating> beats_;
  const std::function<absl::Time()> now_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  bool started_ = false;
  pthread_t thread_ = {};
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_BEAT_BEAT_THREAD_H_
