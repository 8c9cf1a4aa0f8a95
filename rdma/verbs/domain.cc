#include "rdma/verbs/domain.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rdma/verbs/device/device.h"
#include "rdma/verbs/verbs_transport.h"

namespace osprey::rdma {
namespace {

class VerbsDomain : public Domain {
 public:
  VerbsDomain(std::unique_ptr<VerbsDevices> devices, uint16_t protocol_version) {
    shared_.devices = std::move(devices);
    shared_.protocol_version = protocol_version;
  }

  absl::StatusOr<std::unique_ptr<Memory>> Register(HostMemory& memory, Access access) override {
    return VerbsMemory::Register(*shared_.devices, memory.data(), memory.size(), access);
  }

  absl::StatusOr<std::unique_ptr<Memory>> RegisterSpan(std::byte* data, size_t size,
                                                       Access access) override {
    return VerbsMemory::Register(*shared_.devices, data, size, access);
  }

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(size_t bytes, Access access) override {
    return VerbsMemory::Allocate(*shared_.devices, "osprey-buffer", bytes, access);
  }

  absl::StatusOr<std::unique_ptr<Transport>> NewTransport(
      const TransportOptions& options) override {
    return VerbsTransport::Create(shared_, options);
  }

  std::string Describe() const override {
    const auto name = [](std::string* out, const VerbsDevice& device) {
      absl::StrAppend(out, device.name);
    };
    return absl::StrCat("transport=verbs device=",
                        absl::StrJoin(shared_.devices->all(), ",", name));
  }

 private:
  VerbsShared shared_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Domain>> OpenVerbsDomain(const VerbsDomainOptions& options) {
  absl::StatusOr<std::unique_ptr<VerbsDevices>> devices = VerbsDevices::Open();
  if (!devices.ok()) return devices.status();
  return std::make_unique<VerbsDomain>(*std::move(devices), options.protocol_version);
}

}  // namespace osprey::rdma
