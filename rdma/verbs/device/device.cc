#include "rdma/verbs/device/device.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rdma/errors.h"

namespace osprey::rdma {
namespace {

// The value of a line of /proc/self/status ("VmPin:      8192 kB", "CapEff:	000001ffffffffff");
// empty if not there.
std::string ProcessStatus(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind(name, 0) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t", name.size());
    return begin == std::string::npos
               ? ""
               : line.substr(begin, line.find_first_of(" \t", begin) - begin);
  }
  return "";
}

// The kernel pins without limit for a process with CAP_IPC_LOCK.
bool MayPinWithoutLimit() {
  uint64_t effective = 0;
  return absl::SimpleHexAtoi(ProcessStatus("CapEff:"), &effective) &&
         ((effective >> CAP_IPC_LOCK) & 1) != 0;
}

// Bytes that the kernel counts against RLIMIT_MEMLOCK already.
uint64_t PinnedBytes() {
  uint64_t kib = 0;
  return absl::SimpleAtoi(ProcessStatus("VmPin:"), &kib) ? kib * 1024 : 0;
}

// Fails if registering `bytes` more must fail, since ibv_reg_mr itself returns only ENOMEM. Memory
// registered with two devices is pinned, and counted, twice.
absl::Status CheckMemlock(uint64_t bytes) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      MayPinWithoutLimit()) {
    return absl::OkStatus();
  }
  const uint64_t pinned = PinnedBytes();
  if (pinned + bytes <= limit.rlim_cur) return absl::OkStatus();
  return MemlockTooLowError(pinned + bytes, limit.rlim_cur);
}

absl::Status CheckRegionSize(const VerbsDevice& device, size_t size) {
  if (size <= device.attributes.max_mr_size) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the device ", device.name, " registers at most ", device.attributes.max_mr_size,
                   " bytes at once, and ", size, " are needed; ask for less memory"));
}

absl::StatusOr<MemoryRegion> RegisterRegion(const VerbsDevice& device, std::byte* data, size_t size,
                                            Access access) {
  if (absl::Status status = CheckRegionSize(device, size); !status.ok()) return status;
  // Never REMOTE_WRITE or ATOMIC. Nor RELAXED_ORDERING: a READ's completion must come after its
  // bytes.
  const int flags =
      IBV_ACCESS_LOCAL_WRITE | (access == Access::kRemoteRead ? IBV_ACCESS_REMOTE_READ : 0);
  MemoryRegion region(ibv_reg_mr(device.domain.get(), data, size, flags));
  if (region == nullptr) {
    return VerbsError(
        absl::StrCat("registering ", size, " bytes with ", device.name, ": ibv_reg_mr"), errno);
  }
  return region;
}

// librdmacm opens each device once for all lists that a process holds. A child of fork inherits it
// open, and gets EACCES where it uses it: the kernel serves only the process that opened it.
std::atomic<int> lists_held = 0;
std::atomic<pid_t> lists_holder = 0;

absl::StatusOr<std::unique_ptr<HostMemory>> AllocateStorage(const std::string& name, size_t bytes) {
  absl::StatusOr<HostMemory> memory = HostMemory::Create(name, bytes);
  if (!memory.ok()) return memory.status();
  return std::make_unique<HostMemory>(*std::move(memory));
}

}  // namespace

absl::StatusOr<std::unique_ptr<VerbsDevices>> VerbsDevices::Open() {
  if (lists_held > 0 && lists_holder != getpid()) return ForkedError();
  std::unique_ptr<VerbsDevices> devices(new VerbsDevices);
  int count = 0;
  devices->contexts_.reset(rdma_get_devices(&count));
  const int error = errno;
  if (devices->contexts_ == nullptr) {
    // Without devices librdmacm returns ENODEV, and EPERM without the modules. A device that cannot
    // be opened is a different error.
    if (error == EACCES || error == ENOMEM || error == EMFILE)
      return VerbsError("rdma_get_devices", error);
    return NoDeviceError();
  }
  lists_holder = getpid();
  ++lists_held;
  for (int i = 0; i < count; i++) {
    ibv_context* context = devices->contexts_.get()[i];
    if (context->device->transport_type != IBV_TRANSPORT_IB) continue;
    VerbsDevice device;
    device.context = context;
    device.index = devices->devices_.size();
    device.name = ibv_get_device_name(context->device);
    if (int failed = ibv_query_device(context, &device.attributes))
      return VerbsError("ibv_query_device", failed);
    absl::StatusOr<ProtectionDomain> domain = AllocateProtectionDomain(context);
    if (!domain.ok()) return domain.status();
    device.domain = *std::move(domain);
    if (absl::Status status = SetNonblocking(context->async_fd); !status.ok()) return status;
    devices->devices_.push_back(std::move(device));
  }
  if (devices->devices_.empty()) return NoDeviceError();
  return devices;
}

void VerbsDevices::FreeContexts::operator()(ibv_context** contexts) const {
  rdma_free_devices(contexts);
  --lists_held;
}

const VerbsDevice* VerbsDevices::Find(const ibv_context* context) const {
  for (const VerbsDevice& device : devices_) {
    if (device.context == context) return &device;
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<VerbsMemory>> VerbsMemory::Register(const VerbsDevices& devices,
                                                                   std::byte* data, size_t size,
                                                                   Access access) {
  if (absl::Status status = CheckMemlock(uint64_t{size} * devices.all().size()); !status.ok())
    return status;
  std::unique_ptr<VerbsMemory> memory(new VerbsMemory(data, size, access));
  for (const VerbsDevice& device : devices.all()) {
    absl::StatusOr<MemoryRegion> region = RegisterRegion(device, data, size, access);
    if (!region.ok()) return region.status();
    memory->keys_.push_back({(*region)->lkey, (*region)->rkey});
    memory->regions_.push_back(*std::move(region));
  }
  return memory;
}

absl::StatusOr<std::unique_ptr<VerbsMemory>> VerbsMemory::Allocate(const VerbsDevices& devices,
                                                                   const std::string& name,
                                                                   size_t bytes, Access access) {
  // Checked before the storage is allocated, which costs more.
  if (absl::Status status = CheckMemlock(uint64_t{bytes} * devices.all().size()); !status.ok())
    return status;
  absl::StatusOr<std::unique_ptr<HostMemory>> storage = AllocateStorage(name, bytes);
  if (!storage.ok()) return storage.status();
  absl::StatusOr<std::unique_ptr<VerbsMemory>> memory =
      Register(devices, (*storage)->data(), (*storage)->size(), access);
  if (memory.ok()) (*memory)->storage_ = *std::move(storage);
  return memory;
}

void VerbsBuffer::Unmap::operator()(std::byte* data) const { munmap(data, bytes); }

absl::StatusOr<VerbsBuffer> VerbsBuffer::Allocate(const VerbsDevice& device, size_t bytes) {
  if (absl::Status status = CheckMemlock(bytes); !status.ok()) return status;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return VerbsError(absl::StrCat("mmap of ", bytes, " bytes for frames"), errno);
  VerbsBuffer buffer;
  buffer.storage_ = std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(data), Unmap{bytes});
  absl::StatusOr<MemoryRegion> region =
      RegisterRegion(device, buffer.data(), bytes, Access::kLocal);
  if (!region.ok()) return region.status();
  buffer.region_ = *std::move(region);
  return buffer;
}

}  // namespace osprey::rdma
