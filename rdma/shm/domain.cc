#include "rdma/shm/domain.h"

#include <utility>

#include "absl/status/status.h"
#include "rdma/host_memory.h"
#include "rdma/shm/shm_transport.h"

namespace osprey::rdma {
namespace {

// Memory that owns its storage. The base is made from a storage that the member then keeps: moving
// a HostMemory moves neither its mapping nor its descriptor.
class OwnedShmMemory : public ShmMemory {
 public:
  OwnedShmMemory(HostMemory storage, Access access)
      : ShmMemory(storage.data(), storage.size(), storage.fd(), access),
        storage_(std::move(storage)) {}

 private:
  HostMemory storage_;
};

// What it has is thread-safe.
class ShmDomain : public Domain {
 public:
  explicit ShmDomain(const ShmDomainOptions& options) : options_(options) {}

  absl::StatusOr<std::unique_ptr<Memory>> Register(HostMemory& memory, Access access) override {
    return std::make_unique<ShmMemory>(memory.data(), memory.size(), memory.fd(), access);
  }

  // READs are copies that this process makes: they may land anywhere. A peer's READs need a file.
  absl::StatusOr<std::unique_ptr<Memory>> RegisterSpan(std::byte* data, size_t size,
                                                       Access access) override {
    if (access == Access::kRemoteRead) {
      return absl::FailedPreconditionError(
          "over shm a peer can READ only memory that Osprey has allocated (AllocateBuffer)");
    }
    return std::make_unique<ShmMemory>(data, size, /*fd=*/-1, access);
  }

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(size_t bytes, Access access) override {
    absl::StatusOr<HostMemory> storage = HostMemory::Create("osprey-buffer", bytes);
    if (!storage.ok()) return storage.status();
    if (access != Access::kRemoteRead) storage->CloseFile();
    return std::make_unique<OwnedShmMemory>(*std::move(storage), access);
  }

  absl::StatusOr<std::unique_ptr<Transport>> NewTransport(
      const TransportOptions& options) override {
    return ShmTransport::Create(options_, options, closer_, ledger_);
  }

  std::string Describe() const override { return "transport=shm device=none"; }

 private:
  const ShmDomainOptions options_;
  const std::shared_ptr<SlowCloser> closer_ = std::make_shared<SlowCloser>();
  const std::shared_ptr<ShmPeerLedger> ledger_ = std::make_shared<ShmPeerLedger>();
};

}  // namespace

absl::StatusOr<std::unique_ptr<Domain>> OpenShmDomain(const ShmDomainOptions& options) {
  return std::make_unique<ShmDomain>(options);
}

}  // namespace osprey::rdma
