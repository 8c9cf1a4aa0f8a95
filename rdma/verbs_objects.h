// One move-only owner per object of libibverbs and librdmacm, each made by a factory. Declare them
// in the order of dependency and destruction is right by itself: channel before id, device before
// protection domain, completion channel before completion queue, protection domain before memory
// region and queue pair.
//
// The factories' errors are RESOURCE_EXHAUSTED or INTERNAL with the call and its errno.

#ifndef OSPREY_RDMA_VERBS_OBJECTS_H_
#define OSPREY_RDMA_VERBS_OBJECTS_H_

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rdma/transport.h"

namespace osprey::rdma {

// `call` failed with `error`, an errno. ENOMEM, EMFILE and the like are RESOURCE_EXHAUSTED, others
// INTERNAL.
absl::Status VerbsError(absl::string_view call, int error);

// Makes a descriptor nonblocking.
absl::Status SetNonblocking(int fd);

// Calls kDestroy. What it returns is not looked at: after a device's removal it fails, and nothing
// can be done.
template <auto kDestroy>
struct Destroyer {
  template <typename T>
  void operator()(T* object) const {
    (void)kDestroy(object);
  }
};

// Where CM events arrive. Nonblocking.
using EventChannel = std::unique_ptr<rdma_event_channel, Destroyer<rdma_destroy_event_channel>>;
absl::StatusOr<EventChannel> CreateEventChannel();

// One end of a connection, or a listener. Destroying it blocks until its events are acknowledged
// (they are, always, before they are acted upon), and until the kernel has done with a connection's
// messages: connections' ids go to a CmReaper (verbs_reaper.h).
using CmId = std::unique_ptr<rdma_cm_id, Destroyer<rdma_destroy_id>>;
absl::StatusOr<CmId> CreateCmId(rdma_event_channel* channel);

using ProtectionDomain = std::unique_ptr<ibv_pd, Destroyer<ibv_dealloc_pd>>;
absl::StatusOr<ProtectionDomain> AllocateProtectionDomain(ibv_context* context);

// Tells of completions by its descriptor. Nonblocking.
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Destroyer<ibv_destroy_comp_channel>>;
absl::StatusOr<CompletionChannel> CreateCompletionChannel(ibv_context* context);

// Pinned and known to a device until destroyed.
using MemoryRegion = std::unique_ptr<ibv_mr, Destroyer<ibv_dereg_mr>>;

// A device's queue pair belongs to no CM id (see verbs_queue_pair.h). Destroying it is what
// guarantees that the device touches no memory any more on its behalf.
using QueuePair = std::unique_ptr<ibv_qp, Destroyer<ibv_destroy_qp>>;

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_OBJECTS_H_
