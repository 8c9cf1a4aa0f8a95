#include "rdma/devices.h"

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace osprey::rdma {
namespace {

struct FreeDevices {
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
};
struct CloseDevice {
  void operator()(ibv_context* context) const { (void)ibv_close_device(context); }
};

int BytesOf(ibv_mtu mtu) { return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0; }

VerbsDevice Describe(ibv_device* device) {
  VerbsDevice result;
  result.name = ibv_get_device_name(device);
  const std::unique_ptr<ibv_context, CloseDevice> context(ibv_open_device(device));
  if (context == nullptr) {
    result.error = std::strerror(errno);
    return result;
  }
  ibv_device_attr attributes = {};
  if (const int error = ibv_query_device(context.get(), &attributes); error != 0) {
    result.error = std::strerror(error);
    return result;
  }
  result.queue_pairs_max = attributes.max_qp;
  for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
    ibv_port_attr port = {};
    if (ibv_query_port(context.get(), static_cast<uint8_t>(number), &port) != 0) continue;
    result.ports.push_back({number, BytesOf(port.active_mtu)});
  }
  return result;
}

}  // namespace

std::vector<VerbsDevice> ListVerbsDevices() {
  int count = 0;
  const std::unique_ptr<ibv_device*, FreeDevices> list(ibv_get_device_list(&count));
  std::vector<VerbsDevice> devices;
  for (int i = 0; list != nullptr && i < count; ++i) devices.push_back(Describe(list.get()[i]));
  return devices;
}

ForkSupport GetForkSupport() {
  // libibverbs reads its environment when it lists devices for the first time.
  int count = 0;
  const std::unique_ptr<ibv_device*, FreeDevices> list(ibv_get_device_list(&count));
  switch (ibv_is_fork_initialized()) {
    case IBV_FORK_UNNEEDED:
      return ForkSupport::kUnneeded;
    case IBV_FORK_ENABLED:
      return ForkSupport::kEnabled;
    case IBV_FORK_DISABLED:
      return ForkSupport::kDisabled;
  }
  return ForkSupport::kDisabled;
}

}  // namespace osprey::rdma
