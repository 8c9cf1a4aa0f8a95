// A socket at a path, the lock on that path, and the page that tells clients when the server ends.
//
//   PATH.lock   An empty file that outlives servers. The server that listens at PATH holds a lock
//               on it (flock). The kernel drops the lock when the last thread of a killed process
//               has gone. No peer is given this file: a lock can be taken by any process that has
//               the file open, for reading too.
//   the page    A memfd of this server alone, which its clients map for reading. Its word `alive`
//               is changed by the kernel when the server ends (rdma/shm/robust_futex.h).
//
// Clients load that word after every READ: the region of a server that was killed stays readable
// for as long as they have it mapped, and nothing in it would ever change. Correctness depends on
// this: see Read in shm_transport.cc.

#ifndef OSPREY_RDMA_SHM_LISTENER_H_
#define OSPREY_RDMA_SHM_LISTENER_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rdma/shm/mapping.h"
#include "rdma/shm/robust_futex.h"
#include "rdma/unique_fd.h"

namespace osprey::rdma {

struct IncarnationPage {
  uint64_t magic;        // kIncarnationMagic
  uint64_t incarnation;  // of the server
  uint32_t alive;        // a RobustFutex of the server
  uint32_t reserved;     // 0
};
static_assert(sizeof(IncarnationPage) == 24);
static_assert(offsetof(IncarnationPage, incarnation) == 8);
static_assert(offsetof(IncarnationPage, alive) == 16);
static_assert(offsetof(IncarnationPage, reserved) == 20);

inline constexpr uint64_t kIncarnationMagic = 0x4E52434E49505253;  // "SRPINCRN", little endian
inline constexpr size_t kIncarnationPageBytes = 4096;

// Whether a mapped page is one of the server of that incarnation.
inline bool IsPageOf(const Mapping& mapped, uint64_t incarnation) {
  auto* page = reinterpret_cast<IncarnationPage*>(mapped.data());
  return std::atomic_ref(page->magic).load() == kIncarnationMagic &&
         std::atomic_ref(page->incarnation).load() == incarnation;
}

// Its word `alive`. As it was when the client connected: that server has not ended. Acquire; pairs
// with the kernel's exchange: see Read in shm_transport.cc.
inline uint32_t LoadAlive(const Mapping& page) {
  uint32_t& word = reinterpret_cast<IncarnationPage*>(page.data())->alive;
  return std::atomic_ref<uint32_t>(word).load(std::memory_order_acquire);
}

// What a client is given of the server's life. Outlives the listener while a connection is being
// made. Immutable.
struct ShmLife {
  uint64_t incarnation = 0;
  UniqueFd page;  // sealed so that peers can only read it: may be given away
};

// Not thread-safe. Destroying it removes the socket's file, unless another process has put another
// there, and frees the path; the lock's file stays.
class ShmListener {
 public:
  // Listens at `path` (absolute). The socket gets `socket_mode`; the lock's file is for this user
  // alone.
  // Errors: AddressInUseError while another server lives there; NOT_FOUND (no such directory),
  // PERMISSION_DENIED, INVALID_ARGUMENT (path too long), FAILED_PRECONDITION (what stands there is
  // no socket, or no lock of ours), RESOURCE_EXHAUSTED (no memory); RobustFutex::Hold's.
  static absl::StatusOr<std::unique_ptr<ShmListener>> Open(const std::string& path,
                                                           uint64_t incarnation,
                                                           mode_t socket_mode);
  ~ShmListener();
  ShmListener(const ShmListener&) = delete;
  ShmListener& operator=(const ShmListener&) = delete;

  int socket() const { return socket_.get(); }
  // Whether connections take descriptors before SetTakesDescriptors allows it: on older kernels.
  bool newcomers_take_descriptors() const { return newcomers_take_descriptors_; }
  const std::shared_ptr<const ShmLife>& life() const { return life_; }
  const std::string& path() const { return path_; }

 private:
  ShmListener(std::string path, uint64_t incarnation)
      : path_(std::move(path)), incarnation_(incarnation) {}

  absl::Status TakeLock();
  absl::Status MakePage();
  absl::Status RemoveStaleSocket() const;
  absl::Status Bind(mode_t socket_mode);

  std::string path_;
  uint64_t incarnation_;
  UniqueFd lock_;  // destroyed after `alive_`: see Read in shm_transport.cc
  std::shared_ptr<const ShmLife> life_;
  Mapping page_;  // for writing
  std::unique_ptr<RobustFutex> alive_;
  UniqueFd socket_;
  bool newcomers_take_descriptors_ = true;
  ino_t socket_inode_ = 0;  // of the file that we made; 0: none yet
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_LISTENER_H_
