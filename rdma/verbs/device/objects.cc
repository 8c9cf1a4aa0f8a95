#include "rdma/verbs/device/objects.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace osprey::rdma {

absl::Status VerbsError(absl::string_view call, int error) {
  const std::string message = absl::StrCat(call, ": ", std::strerror(error));
  switch (error) {
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EAGAIN:
      return absl::ResourceExhaustedError(message);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status SetNonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return VerbsError("fcntl(O_NONBLOCK)", errno);
  return absl::OkStatus();
}

absl::StatusOr<EventChannel> CreateEventChannel() {
  EventChannel channel(rdma_create_event_channel());
  if (channel == nullptr) return VerbsError("rdma_create_event_channel", errno);
  if (absl::Status status = SetNonblocking(channel->fd); !status.ok()) return status;
  return channel;
}

absl::StatusOr<CmId> CreateCmId(rdma_event_channel* channel) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0)
    return VerbsError("rdma_create_id", errno);
  return CmId(id);
}

absl::StatusOr<ProtectionDomain> AllocateProtectionDomain(ibv_context* context) {
  ProtectionDomain domain(ibv_alloc_pd(context));
  if (domain == nullptr) return VerbsError("ibv_alloc_pd", errno);
  return domain;
}

absl::StatusOr<CompletionChannel> CreateCompletionChannel(ibv_context* context) {
  CompletionChannel channel(ibv_create_comp_channel(context));
  if (channel == nullptr) return VerbsError("ibv_create_comp_channel", errno);
  if (absl::Status status = SetNonblocking(channel->fd); !status.ok()) return status;
  return channel;
}

}  // namespace osprey::rdma
