#include "rdma/host_memory.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rdma/unique_fd.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older kernels answer EINVAL
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1
#endif

namespace osprey::rdma {
namespace {

// Huge pages of this size exist on x86-64 and on arm64 with 4 KiB pages; elsewhere the fallback
// serves.
constexpr size_t kHugePageBytes = size_t{2} << 20;

// The last seal forbids adding others. F_SEAL_WRITE among them would break the owner's own mapping.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

// The kernel's estimate of what can be allocated without swapping; the largest number if there is
// none.
uint64_t AvailableBytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name, number, unit;
  while (meminfo >> name >> number >> unit) {
    uint64_t kib = 0;
    if (name == "MemAvailable:" && absl::SimpleAtoi(number, &kib)) return kib * 1024;
  }
  return std::numeric_limits<uint64_t>::max();
}

absl::Status NotEnough(const std::string& name, size_t bytes, absl::string_view call) {
  const int error = errno;
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot allocate ", bytes, " bytes for ", name, ": ", call, ": ",
                   std::strerror(error), "; the system has ", AvailableBytes(),
                   " bytes available, so ask for less, or raise the limit that is in the way "
                   "(ulimit -v, ulimit -n, "
                   "or the container's memory)"));
}

// Commits every page of the mapping. False: it cannot.
bool Populate(int fd, std::byte* data, size_t bytes) {
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return true;
  // Allocates the file's pages without mapping them, so that later faults cannot fail.
  return errno == EINVAL && fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0;
}

struct Mapped {
  UniqueFd fd;
  std::byte* data = nullptr;
};

absl::StatusOr<Mapped> Map(const std::string& name, size_t bytes, unsigned huge_flags,
                           bool prefault) {
  Mapped mapped;
  mapped.fd.reset(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | huge_flags));
  if (!mapped.fd.valid()) return NotEnough(name, bytes, "memfd_create");
  const int fd = mapped.fd.get();
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return NotEnough(name, bytes, "ftruncate");
  // Mapping huge pages reserves them. With too few, it fails here, instead of later by SIGBUS.
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return NotEnough(name, bytes, "mmap");
  mapped.data = static_cast<std::byte*>(data);
  // A hint, which kernels without transparent huge pages for shared memory ignore.
  if (huge_flags == 0 && bytes >= kHugePageBytes) (void)madvise(data, bytes, MADV_HUGEPAGE);
  if (prefault && !Populate(fd, mapped.data, bytes)) {
    const absl::Status status = NotEnough(name, bytes, "populate");
    munmap(data, bytes);
    return status;
  }
  // Sealed after the mapping was made, as the seals forbid another one like it.
  if (fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    const int error = errno;
    munmap(data, bytes);
    return absl::FailedPreconditionError(absl::StrCat("cannot seal the memory of ", name, ": ",
                                                      std::strerror(error),
                                                      "; Linux 5.1 or later is needed"));
  }
  return mapped;
}

}  // namespace

absl::StatusOr<HostMemory> HostMemory::Create(const std::string& name, size_t bytes,
                                              const HostMemoryOptions& options) {
  if (bytes == 0)
    return absl::InvalidArgumentError(absl::StrCat("memory of 0 bytes asked for ", name));
  // Sizes near 2^63 would overflow in rounding, and in off_t.
  if (bytes > static_cast<size_t>(std::numeric_limits<off_t>::max()) - kHugePageBytes) {
    errno = EFBIG;
    return NotEnough(name, bytes, "ftruncate");
  }
  // Populating more than is available would not fail, but trigger the kernel's out-of-memory
  // killer.
  if (options.prefault && bytes > AvailableBytes()) {
    errno = ENOMEM;
    return NotEnough(name, bytes, "populate");
  }
  const auto round_up = [bytes](size_t page) { return (bytes + page - 1) / page * page; };
  if (options.huge_pages) {
    const size_t size = round_up(kHugePageBytes);
    absl::StatusOr<Mapped> mapped = Map(name, size, MFD_HUGETLB | MFD_HUGE_2MB, options.prefault);
    if (mapped.ok()) return HostMemory(mapped->fd.release(), mapped->data, size, kHugePageBytes);
  }
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = round_up(page);
  absl::StatusOr<Mapped> mapped = Map(name, size, 0, options.prefault);
  if (!mapped.ok()) return mapped.status();
  return HostMemory(mapped->fd.release(), mapped->data, size, page);
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

void HostMemory::CloseFile() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      page_size_(std::exchange(other.page_size_, 0)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(page_size_, other.page_size_);
  return *this;
}

}  // namespace osprey::rdma
