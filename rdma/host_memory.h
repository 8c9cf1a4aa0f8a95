// Page-aligned memory of this host, held as a memfd so that it can be shared with a process on the
// same host.

#ifndef OSPREY_RDMA_HOST_MEMORY_H_
#define OSPREY_RDMA_HOST_MEMORY_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace osprey::rdma {

struct HostMemoryOptions {
  // Uses huge pages if the system has free ones. Otherwise uses ordinary ones, and asks for
  // transparent huge pages.
  bool huge_pages = false;
  // Commits every page at once, so that a lack of memory is an error here and not a SIGBUS later.
  bool prefault = false;
};

// Owns a mapping of a memfd. Move-only. The file is sealed against shrinking and growing, and
// against any later mapping for writing (this one excepted). A peer that receives the descriptor
// can therefore neither write to the file nor truncate it.
class HostMemory {
 public:
  // `name` shows in /proc/PID/maps. `bytes` is rounded up to the page size used. The pages read as
  // zero. Errors: RESOURCE_EXHAUSTED (not enough memory; the message has the size and what is
  // available).
  static absl::StatusOr<HostMemory> Create(const std::string& name, size_t bytes,
                                           const HostMemoryOptions& options = {});
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  size_t page_size() const { return page_size_; }
  // -1: CloseFile was called.
  int fd() const { return fd_; }
  // Closes the descriptor; the memory stays. No peer can be given it from now on.
  void CloseFile();

 private:
  HostMemory(int fd, std::byte* data, size_t size, size_t page_size)
      : fd_(fd), data_(data), size_(size), page_size_(page_size) {}

  int fd_ = -1;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t page_size_ = 0;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_HOST_MEMORY_H_
