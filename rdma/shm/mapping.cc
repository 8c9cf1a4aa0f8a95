#include "rdma/shm/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace osprey::rdma {
namespace {

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1
#endif

constexpr int kSealsNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
// What rounding up to the largest pages adds. All of a file is mapped, whatever of it is claimed.
constexpr uint64_t kUnclaimedBytesMax = uint64_t{1} << 30;

absl::Status Exhausted(absl::string_view call, uint64_t bytes) {
  const int error = errno;
  return absl::ResourceExhaustedError(absl::StrCat(
      call, " of ", bytes, " bytes to share with a peer: ", std::strerror(error),
      "; close connections, or raise the limit that is in the way (ulimit -n, ulimit -v)"));
}

absl::StatusOr<Mapping> Map(int fd, uint64_t bytes, int protection) {
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return Exhausted("mmap", bytes);
  return Mapping(static_cast<std::byte*>(data), bytes);
}

template <typename Word>
Word LoadAcquire(const std::byte* from) {
  static_assert(std::atomic_ref<Word>::is_always_lock_free);
  // atomic_ref requires a mutable object; a lock-free load does not write.
  Word& word = *const_cast<Word*>(reinterpret_cast<const Word*>(from));
  return std::atomic_ref<Word>(word).load(std::memory_order_acquire);
}

template <typename Word>
void CopyWord(std::byte* to, const std::byte* from) {
  const Word word = LoadAcquire<Word>(from);
  std::memcpy(to, &word, sizeof(word));
}

// As many as `i` has: without a loop, which compilers keep for some few.
template <size_t... i>
void CopyWords(std::byte* to, const std::byte* from, std::index_sequence<i...>) {
  (CopyWord<uint64_t>(to + i * sizeof(uint64_t), from + i * sizeof(uint64_t)), ...);
}

}  // namespace

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

absl::StatusOr<uint64_t> SealedSize(int fd, uint64_t bytes) {
  // Only memfds have seals: for any other file this fails.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSealsNeeded) != kSealsNeeded) {
    return absl::InvalidArgumentError("the peer's memory is not a memfd sealed against resizing");
  }
  // Looked at after the seals, so that it cannot change any more.
  struct stat info;
  if (fstat(fd, &info) != 0 || bytes == 0 || static_cast<uint64_t>(info.st_size) < bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer's memory is shorter than the ", bytes, " bytes it claims"));
  }
  return static_cast<uint64_t>(info.st_size);
}

absl::StatusOr<Mapping> MapSealed(int fd, uint64_t bytes, MapAccess access) {
  const absl::StatusOr<uint64_t> size = SealedSize(fd, bytes);
  if (!size.ok()) return size.status();
  if (*size - bytes >= kUnclaimedBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer's memory has ", *size, " bytes and claims ", bytes));
  }
  // All of it: a part of a file on huge pages could be mapped, but not unmapped again.
  return Map(fd, *size, access == MapAccess::kRead ? PROT_READ : PROT_READ | PROT_WRITE);
}

bool ReadSealed(int fd, uint64_t offset, std::byte* to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t read = pread(fd, to, bytes, static_cast<off_t>(offset));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return false;
    to += read;
    offset += static_cast<uint64_t>(read);
    bytes -= static_cast<size_t>(read);
  }
  return true;
}

absl::StatusOr<SealedFile> CreateSealed(const char* name, size_t bytes, MapAccess peers) {
  SealedFile file;
  file.fd.reset(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.fd.valid()) return Exhausted("memfd_create", bytes);
  if (ftruncate(file.fd.get(), static_cast<off_t>(bytes)) != 0)
    return Exhausted("ftruncate", bytes);
  absl::StatusOr<Mapping> mapping = Map(file.fd.get(), bytes, PROT_READ | PROT_WRITE);
  if (!mapping.ok()) return mapping.status();
  file.mapping = *std::move(mapping);
  // After the mapping: F_SEAL_FUTURE_WRITE forbids writable mappings made later.
  const int writes = peers == MapAccess::kRead ? F_SEAL_FUTURE_WRITE : 0;
  if (fcntl(file.fd.get(), F_ADD_SEALS, kSealsNeeded | writes | F_SEAL_SEAL) != 0)
    return Exhausted("sealing", bytes);
  return file;
}

void ReleasePages(const Mapping& mapping, size_t from, size_t to) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t first = (from + page - 1) / page * page;
  // The mapping's last page is whole, whatever of it is used.
  const size_t end = to == mapping.size() ? (to + page - 1) / page * page : to / page * page;
  // It fails when the kernel has no memory for it: then they go when the peer unmaps them.
  if (first < end) (void)madvise(mapping.data() + first, end - first, MADV_REMOVE);
}

void CopyShared(std::byte* to, const std::byte* from, size_t bytes) {
  const std::byte* const end = from + bytes;
  // The head up to the first aligned word, and below the tail after the last, go byte by byte.
  while (from < end && reinterpret_cast<uintptr_t>(from) % sizeof(uint64_t) != 0) {
    CopyWord<uint8_t>(to++, from++);
  }
  // A cache line a turn: on x86 an acquire load is a plain one, and the loop runs at the speed of
  // the cache.
  using Turn = std::make_index_sequence<8>;
  constexpr size_t kTurnBytes = Turn::size() * sizeof(uint64_t);
  for (; static_cast<size_t>(end - from) >= kTurnBytes; from += kTurnBytes, to += kTurnBytes)
    CopyWords(to, from, Turn());
  for (; static_cast<size_t>(end - from) >= sizeof(uint64_t); from += 8, to += 8)
    CopyWord<uint64_t>(to, from);
  while (from < end) CopyWord<uint8_t>(to++, from++);
}

}  // namespace osprey::rdma
