// Registered memory of the application: the source of puts and the target of gets without a copy.
// The NIC reads and writes it directly.
//
//   absl::StatusOr<osprey::Buffer> buffer = client->AllocateBuffer(64 << 20);
//   absl::StatusOr<osprey::ValueInfo> got = client->GetInto("film", *buffer);
//   if (got.ok()) Play(buffer->data(), got->length);
//
// Ownership: a Buffer belongs to the Client that made it, and may outlive it. The caller may
// destroy it while operations use it: they keep the memory that they need. Memory given to
// RegisterBuffer stays the caller's. It must stay valid until the Buffer is gone and no operation
// uses it.
//
// Thread rule: that of its Client, for its destruction as well.

#ifndef OSPREY_CLIENT_BUFFER_H_
#define OSPREY_CLIENT_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace osprey {

namespace client {
struct RegisteredMemory;
}

// Move-only.
class Buffer {
 public:
  Buffer() = default;  // of 0 bytes
  Buffer(Buffer&&) noexcept = default;
  Buffer& operator=(Buffer&&) noexcept = default;
  ~Buffer() = default;

  std::byte* data() const;
  size_t size() const;  // as requested, in bytes

 private:
  friend class Client;
  explicit Buffer(std::shared_ptr<client::RegisteredMemory> memory) : memory_(std::move(memory)) {}
  std::shared_ptr<client::RegisteredMemory> memory_;
};

// A value that was fetched into a buffer.
struct ValueInfo {
  uint64_t length = 0;                            // bytes
  uint64_t version = 0;                           // of the write that made it
  absl::Duration ttl = absl::InfiniteDuration();  // as Value::ttl
};

// The length of the value, if a GetInto failed as Reason::kBufferTooSmall. Otherwise 0.
uint64_t BytesNeeded(const absl::Status& status);

}  // namespace osprey

#endif  // OSPREY_CLIENT_BUFFER_H_
