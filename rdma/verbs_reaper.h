// Destroys CM ids away from the thread that polls.
//
// rdma_destroy_id returns only when the kernel's connection manager has let go of the id, and that
// can take as long as the manager repeats a message to a peer that does not answer: 69 s were
// measured. A thread that polls for many connections cannot wait for one of them, so it hands the
// id over, once nothing can land on its behalf any more (its queue pair is destroyed), and forgets
// it.

#ifndef OSPREY_RDMA_VERBS_REAPER_H_
#define OSPREY_RDMA_VERBS_REAPER_H_

#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstddef>
#include <memory>

#include "rdma/verbs_objects.h"

namespace osprey::rdma {

// Owns the event channel, which must outlive its ids, and at most one thread, started when the
// first id is handed over. The thread touches nothing but these ids and, when the owner has gone
// meanwhile, the channel. It takes no signals.
//
// The methods belong to one thread, which also reads the channel's events: librdmacm lets
// rdma_destroy_id wait until the events of the id that were fetched have been acknowledged, and the
// kernel drops those that were not fetched. So look at an event's id BEFORE the acknowledgement,
// never after.
class CmReaper {
 public:
  // Ids that wait to be destroyed; from here on has_room() says no. At 100 ended connections a
  // second it takes one that is stuck for 69 s and another after it; some 4 KiB of the kernel's
  // memory each.
  static constexpr size_t kWaitingMax = 16384;
  // How long the destructor waits. Destroying takes a millisecond or less when it is not stuck.
  static constexpr std::chrono::milliseconds kEndMax{1000};

  // `destroy` is rdma_destroy_id, but in tests.
  using Destroy = void (*)(rdma_cm_id* id);
  explicit CmReaper(EventChannel channel, Destroy destroy = DestroyCmId,
                    std::chrono::milliseconds end_max = kEndMax);
  // Waits for the ids handed over, and destroys the channel, but for kEndMax only: what is not done
  // by then the thread, on its own from there, does when it can. (When the process ends, too, the
  // kernel lets it end only then.)
  ~CmReaper();
  CmReaper(const CmReaper&) = delete;
  CmReaper& operator=(const CmReaper&) = delete;

  rdma_event_channel* channel() const;

  // REQUIRES: `id` is of this channel, or null, and has no queue pair any more. Never blocks, and
  // takes an id even when has_room() says no: what exists must end. Who would begin something new
  // asks has_room() first.
  void HandOver(CmId id);
  bool has_room() const { return waiting() < kWaitingMax; }
  // Ids handed over and not destroyed yet.
  size_t waiting() const;

 private:
  struct State;  // shared with the thread
  static void DestroyCmId(rdma_cm_id* id);
  static void* Run(void* state);
  void StartThread();

  const std::shared_ptr<State> state_;
  const std::chrono::milliseconds end_max_;
  bool started_ = false;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_REAPER_H_
