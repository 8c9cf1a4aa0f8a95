// The RDMA devices that a Domain holds, and memory registered with them.

#ifndef OSPREY_RDMA_VERBS_DEVICE_DEVICE_H_
#define OSPREY_RDMA_VERBS_DEVICE_DEVICE_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "rdma/host_memory.h"
#include "rdma/transport.h"
#include "rdma/verbs/device/objects.h"

namespace osprey::rdma {

// One device. Its context is librdmacm's own, shared with the CM ids: a queue pair's protection
// domain must be of the id's context. librdmacm keeps it open as long as the list is held.
struct VerbsDevice {
  ibv_context* context = nullptr;
  size_t index = 0;  // in VerbsDevices::all()
  std::string name;  // as `rdma link` shows it
  ibv_device_attr attributes = {};
  ProtectionDomain domain;
};

// Every device that this process can use. Immutable once open, hence thread-safe. iWARP devices are
// omitted: the local end of their READs would need remote write access.
class VerbsDevices {
 public:
  // Errors: NoDeviceError; ForkedError while a process that this one was forked from has it open;
  // those of opening a device (PERMISSION_DENIED on /dev/infiniband, RESOURCE_EXHAUSTED).
  static absl::StatusOr<std::unique_ptr<VerbsDevices>> Open();

  const std::vector<VerbsDevice>& all() const { return devices_; }
  // The device of a CM id. nullptr if it was plugged in after Open.
  const VerbsDevice* Find(const ibv_context* context) const;

 private:
  struct FreeContexts {
    void operator()(ibv_context** contexts) const;
  };
  using ContextList = std::unique_ptr<ibv_context*, FreeContexts>;
  VerbsDevices() = default;

  ContextList contexts_;
  std::vector<VerbsDevice> devices_;
};

// Memory registered with every device.
class VerbsMemory : public Memory {
 public:
  // `data` must outlive the result. Errors: as of Domain::Register.
  static absl::StatusOr<std::unique_ptr<VerbsMemory>> Register(const VerbsDevices& devices,
                                                               std::byte* data, size_t size,
                                                               Access access);
  // The result owns the storage.
  static absl::StatusOr<std::unique_ptr<VerbsMemory>> Allocate(const VerbsDevices& devices,
                                                               const std::string& name,
                                                               size_t bytes, Access access);

  Access access() const { return access_; }
  // By VerbsDevice::index.
  uint32_t local_key(size_t device) const { return keys_[device].local; }
  uint32_t remote_key(size_t device) const { return keys_[device].remote; }

 private:
  VerbsMemory(std::byte* data, size_t size, Access access) : Memory(data, size), access_(access) {}

  struct Keys {
    uint32_t local = 0;
    uint32_t remote = 0;
  };

  const Access access_;
  absl::InlinedVector<Keys, 2> keys_;    // by device; stored here so that posting touches little
                                         // memory
  std::unique_ptr<HostMemory> storage_;  // null when the caller keeps it
  std::vector<MemoryRegion> regions_;    // by device; destroyed before the storage
};

// Memory registered with one device only, for the connections' own frames. Move-only. It uses
// anonymous pages instead of a memfd: a server has thousands of these, and descriptors are scarcer.
class VerbsBuffer {
 public:
  VerbsBuffer() = default;
  static absl::StatusOr<VerbsBuffer> Allocate(const VerbsDevice& device, size_t bytes);

  std::byte* data() const { return storage_.get(); }
  uint32_t local_key() const { return region_->lkey; }

 private:
  struct Unmap {
    size_t bytes = 0;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Unmap> storage_ = {nullptr, Unmap()};
  MemoryRegion region_;  // destroyed before the storage
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_DEVICE_DEVICE_H_
