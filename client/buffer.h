// Registered memory of the application, from which values are put and into which they are fetched
// without a copy: the NIC reads and writes it directly.
//
//   absl::StatusOr<osprey::Buffer> buffer = client->AllocateBuffer(64 << 20);
//   absl::StatusOr<osprey::ValueInfo> got = client->GetInto("film", *buffer);
//   if (got.ok()) Play(buffer->data(), got->length);
//
// Ownership: a Buffer belongs to one Client, which made it, and may outlive it. It may be destroyed
// while operations use it: they keep what they need. (Memory given to RegisterBuffer is the
// caller's: it must stay until the Buffer is gone and no operation uses it any more.)
//
// Thread rule: that of its Client; also for its destruction.

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
  size_t size() const;  // bytes, as they were asked for

 private:
  friend class Client;
  explicit Buffer(std::shared_ptr<client::RegisteredMemory> memory) : memory_(std::move(memory)) {}
  std::shared_ptr<client::RegisteredMemory> memory_;
};

// A value that stands in a buffer.
struct ValueInfo {
  uint64_t length = 0;                            // bytes
  uint64_t version = 0;                           // of the write that made it
  absl::Duration ttl = absl::InfiniteDuration();  // as Value::ttl
};

// Of a GetInto that failed as Reason::kBufferTooSmall: how long the value is. Else 0.
uint64_t BytesNeeded(const absl::Status& status);

}  // namespace osprey

#endif  // OSPREY_CLIENT_BUFFER_H_
