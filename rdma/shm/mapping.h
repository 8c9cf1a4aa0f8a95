// Memory shared with a peer that may be hostile: mapped only when the peer cannot take it away
// again.

#ifndef OSPREY_RDMA_SHM_MAPPING_H_
#define OSPREY_RDMA_SHM_MAPPING_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "rdma/unique_fd.h"

namespace osprey::rdma {

// Owns a mapping; unmaps it on destruction. Move-only.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, size_t size) : data_(data), size_(size) {}
  ~Mapping();
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool mapped() const { return data_ != nullptr; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The size of `fd`, which is sealed against shrinking and growing and has at least `bytes`.
// Errors: INVALID_ARGUMENT when it is not such a file. (Any memfd can be; a file that could block
// its reader, or fail, cannot.)
absl::StatusOr<uint64_t> SealedSize(int fd, uint64_t bytes);

enum class MapAccess { kRead, kReadWrite };

// Maps all of `fd`, whose SealedSize is at least `bytes`, for sharing: without the seals its owner
// could truncate it, and the next load here would be a SIGBUS. REQUIRES: its owner is trusted with
// this process's memory, as a load of a hole makes the kernel allocate a page for it (ReadSealed
// does not).
// Errors: SealedSize's; INVALID_ARGUMENT when it is by 1 GiB too long; RESOURCE_EXHAUSTED when it
// cannot be mapped.
absl::StatusOr<Mapping> MapSealed(int fd, uint64_t bytes, MapAccess access);

// Reads `bytes` at `offset` of `fd`. Holes read as zeros and stay holes. False: the file is not
// that long, or cannot be read.
bool ReadSealed(int fd, uint64_t offset, std::byte* to, size_t bytes);

struct SealedFile {
  UniqueFd fd;
  Mapping mapping;
};
// A memfd of `bytes`, zeroed, sealed against resizing and mapped for writing. `peers`: what a
// process may do that receives the descriptor. Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<SealedFile> CreateSealed(const char* name, size_t bytes, MapAccess peers);

// Takes the whole pages of [from, to) out of the file behind `mapping`, for all that have it mapped:
// they read as zeros from then on. REQUIRES: CreateSealed made it.
void ReleasePages(const Mapping& mapping, size_t from, size_t to);

// Copies `bytes` that another process may be writing at the same moment. Every aligned word is
// loaded once, atomically and with acquire: no load that follows in program order, in a later copy
// or elsewhere, is done before it. Nothing is promised of the words among each other.
void CopyShared(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_MAPPING_H_
