#include "tests/rdma/verbs/cm_calls.h"

#include <dlfcn.h>

#include <cerrno>

template <typename Function>
Function* RealOf(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::atomic<pid_t> g_disconnected_by{0};

extern "C" int rdma_disconnect(rdma_cm_id* id) {
  static auto* const real = RealOf<int(rdma_cm_id*)>("rdma_disconnect");
  g_disconnected_by = gettid();
  return real(id);
}

// Never destroyed: a reaper's thread may outlive main.
CmIds& TheCmIds() {
  static auto* const ids = new CmIds;
  return *ids;
}

extern "C" int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  static auto* const real = RealOf<int(rdma_event_channel*, rdma_cm_event**)>("rdma_get_cm_event");
  if (rdma_cm_event* const made_up = TheCmIds().TakeMadeUpEvent(channel); made_up != nullptr) {
    *event = made_up;
  } else if (const int result = real(channel, event); result != 0) {
    return result;
  }
  const bool is_request = (*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST;
  if (is_request) TheCmIds().set_last_request((*event)->id);
  TheCmIds().OnFetched(is_request ? (*event)->listen_id : (*event)->id);
  return 0;
}
extern "C" int rdma_ack_cm_event(rdma_cm_event* event) {
  static auto* const real = RealOf<int(rdma_cm_event*)>("rdma_ack_cm_event");
  const bool is_request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
  TheCmIds().OnAcknowledged(is_request ? event->listen_id : event->id);
  return TheCmIds().IsMadeUp(event) ? 0 : real(event);
}
extern "C" int rdma_destroy_id(rdma_cm_id* id) {
  static auto* const real = RealOf<int(rdma_cm_id*)>("rdma_destroy_id");
  if (TheCmIds().IsStandIn(id)) return TheCmIds().DestroyStandIn(id), 0;
  return TheCmIds().OnDestroy(id) ? real(id) : -1;
}
extern "C" int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                              rdma_port_space port_space) {
  static auto* const real =
      RealOf<int(rdma_event_channel*, rdma_cm_id**, void*, rdma_port_space)>("rdma_create_id");
  rdma_cm_id* const stand_in = TheCmIds().NewStandIn();
  if (stand_in == nullptr) return real(channel, id, context, port_space);
  *id = stand_in;
  return 0;
}
extern "C" int rdma_set_option(rdma_cm_id* id, int level, int name, void* value, size_t bytes) {
  static auto* const real = RealOf<int(rdma_cm_id*, int, int, void*, size_t)>("rdma_set_option");
  return TheCmIds().IsStandIn(id) ? 0 : real(id, level, name, value, bytes);
}
extern "C" int rdma_resolve_addr(rdma_cm_id* id, sockaddr* from, sockaddr* to, int timeout_ms) {
  static auto* const real =
      RealOf<int(rdma_cm_id*, sockaddr*, sockaddr*, int)>("rdma_resolve_addr");
  if (!TheCmIds().IsStandIn(id)) return real(id, from, to, timeout_ms);
  errno = ENOMEM;
  return -1;
}
