// One move-only owner per object of libibverbs and librdmacm, each made by a factory. Declaration
// in the order of dependency makes destruction right: channel before id, device before protection
// domain, completion channel before completion queue, protection domain before memory region and
// queue pair.
//
// The factories' errors are RESOURCE_EXHAUSTED or INTERNAL with the call and its errno.

#ifndef OSPREY_RDMA_VERBS_DEVICE_OBJECTS_H_
#define OSPREY_RDMA_VERBS_DEVICE_OBJECTS_H_

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

// Calls kDestroy and ignores its result: after a device's removal it fails, and there is no remedy.
template <auto kDestroy>
struct Destroyer {
  template <typename T>
  void operator()(T* object) const {
    (void)kDestroy(object);
  }
};

// Delivers CM events. Nonblocking.
using EventChannel = std::unique_ptr<rdma_event_channel, Destroyer<rdma_destroy_event_channel>>;
absl::StatusOr<EventChannel> CreateEventChannel();

// One end of a connection, or a listener. Its destruction blocks until its events are acknowledged,
// which always happens before they are handled. It also blocks until the kernel has finished a
// connection's messages, so connections' ids go to a CmReaper (reaper.h).
using CmId = std::unique_ptr<rdma_cm_id, Destroyer<rdma_destroy_id>>;
absl::StatusOr<CmId> CreateCmId(rdma_event_channel* channel);

using ProtectionDomain = std::unique_ptr<ibv_pd, Destroyer<ibv_dealloc_pd>>;
absl::StatusOr<ProtectionDomain> AllocateProtectionDomain(ibv_context* context);

// Reports completions by its descriptor. Nonblocking.
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Destroyer<ibv_destroy_comp_channel>>;
absl::StatusOr<CompletionChannel> CreateCompletionChannel(ibv_context* context);

// Pinned and registered with a device until destroyed.
using MemoryRegion = std::unique_ptr<ibv_mr, Destroyer<ibv_dereg_mr>>;

// The queue pair belongs to no CM id (see queue_pair.h). After its destruction the device no
// longer touches memory on its behalf.
using QueuePair = std::unique_ptr<ibv_qp, Destroyer<ibv_destroy_qp>>;

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_DEVICE_OBJECTS_H_
