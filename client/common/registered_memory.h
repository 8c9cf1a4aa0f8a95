// The memory behind a Buffer: registered with the transport, and possibly exposed to the server.

#ifndef OSPREY_CLIENT_COMMON_REGISTERED_MEMORY_H_
#define OSPREY_CLIENT_COMMON_REGISTERED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "rdma/transport.h"

namespace osprey::client {

// Withdraws exposures while there is an engine; outlives it.
class Exposer {
 public:
  virtual ~Exposer() = default;
  virtual void Withdraw(const rdma::Memory& memory) = 0;
};
struct ExposerLink {
  Exposer* exposer = nullptr;  // null: the engine and its connection are gone
};

// Shared by the Buffer and the operations that use it; freed with the last of them. Move and copy
// the pointer to it.
struct RegisteredMemory {
  RegisteredMemory(std::shared_ptr<rdma::Domain> d, std::unique_ptr<rdma::Memory> m, uint64_t bytes,
                   std::shared_ptr<ExposerLink> l)
      : domain(std::move(d)), memory(std::move(m)), size(bytes), link(std::move(l)) {}
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  ~RegisteredMemory() {
    if (link->exposer != nullptr) link->exposer->Withdraw(*memory);
  }

  // In the order of dependency.
  const std::shared_ptr<rdma::Domain> domain;
  const std::unique_ptr<rdma::Memory> memory;
  const uint64_t size;  // bytes requested; memory->size() is rounded up
  const std::shared_ptr<ExposerLink> link;
};

// Memory of the user: the target of an answer, or the source of a put. READs of the client land
// there, or the server READs from it, until the operation is answered and no longer (R5).
struct UserMemory {
  std::byte* data = nullptr;  // null: none
  uint64_t size = 0;          // bytes
  std::shared_ptr<const RegisteredMemory> owner;

  const rdma::Memory* memory() const { return owner->memory.get(); }
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_COMMON_REGISTERED_MEMORY_H_
