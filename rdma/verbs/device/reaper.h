// Destroys CM ids on a thread other than the polling one.
//
// rdma_destroy_id returns only when the kernel's connection manager has released the id. That can
// take as long as the manager repeats a message to a peer that does not answer: 69 s were measured.
// A thread that polls for many connections cannot wait for one of them. Once an id's queue pair is
// destroyed, so that nothing can land on its behalf, the thread hands the id over.

#ifndef OSPREY_RDMA_VERBS_DEVICE_REAPER_H_
#define OSPREY_RDMA_VERBS_DEVICE_REAPER_H_

#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstddef>
#include <memory>

#include "rdma/verbs/device/objects.h"

namespace osprey::rdma {

// Owns the event channel, which must outlive its ids, and at most one thread, started when the
// first id is handed over. The thread uses only these ids and, if the owner is gone, the channel.
// It blocks all signals.
//
// The methods belong to one thread, which also reads the channel's events. In librdmacm,
// rdma_destroy_id waits until fetched events of the id have been acknowledged; the kernel drops the
// others. So read an event's id BEFORE the acknowledgement, never after.
class CmReaper {
 public:
  // Ids that wait to be destroyed; at this number has_room() becomes false. At 100 ended
  // connections a second, this allows one id to be stuck for 69 s, and another after it. Each takes
  // some 4 KiB of the kernel's memory.
  static constexpr size_t kWaitingMax = 16384;
  // The longest wait of the destructor, for which a server may wait that hands its data over. An id takes a
  // millisecond or less unless it is stuck.
  static constexpr std::chrono::milliseconds kEndMax{200};

  // `destroy` is rdma_destroy_id, except in tests.
  using Destroy = void (*)(rdma_cm_id* id);
  explicit CmReaper(EventChannel channel, Destroy destroy = DestroyCmId,
                    std::chrono::milliseconds end_max = kEndMax);
  // Waits for the ids handed over, at most kEndMax, and destroys the channel. After kEndMax the
  // thread finishes the rest on its own. (A process that ends must wait for the kernel as well.)
  ~CmReaper();
  CmReaper(const CmReaper&) = delete;
  CmReaper& operator=(const CmReaper&) = delete;

  rdma_event_channel* channel() const;

  // REQUIRES: `id` is of this channel, or null, and has no queue pair any more. Never blocks, and
  // takes an id even if has_room() is false: existing ids must end. Check has_room() before making
  // a new id.
  void DestroyLater(CmId id);
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

#endif  // OSPREY_RDMA_VERBS_DEVICE_REAPER_H_
