// A socket at a path, and beside it the page that tells which life of the server owns the path now.
//
// PATH.incarnation is a small file that outlives servers. Whoever listens at PATH holds a lock on
// it (flock, which the kernel drops when the last thread of a killed process has gone), and stores
// its own incarnation in it before it accepts anyone. Clients map it and look at it after every
// READ: the region of a server that was killed stays readable for as long as they have it mapped,
// and nothing in it would ever change. The page tells two things:
//
//   incarnation   A READ of a region whose server has a successor fails. Correctness depends on it.
//   alive         A READ of a region whose server has ended fails, also before there is a
//                 successor: the kernel changes this word (rdma/robust_futex.h).

#ifndef OSPREY_RDMA_SHM_LISTENER_H_
#define OSPREY_RDMA_SHM_LISTENER_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rdma/robust_futex.h"
#include "rdma/shm_mapping.h"
#include "rdma/unique_fd.h"

namespace osprey::rdma {

struct IncarnationPage {
  uint64_t magic;        // kIncarnationMagic; 0 in a file just made
  uint64_t incarnation;  // of the server that listens now, or that listened last
  uint32_t alive;        // a RobustFutex of that server; 0 when it is of a version without one
  uint32_t reserved;     // 0
};
static_assert(sizeof(IncarnationPage) == 24);
static_assert(offsetof(IncarnationPage, incarnation) == 8);
static_assert(offsetof(IncarnationPage, alive) == 16);
static_assert(offsetof(IncarnationPage, reserved) == 20);

inline constexpr uint64_t kIncarnationMagic = 0x4E52434E49505253;  // "SRPINCRN", little endian
// A page of its own, as it is mapped.
inline constexpr size_t kIncarnationFileBytes = 4096;

// The incarnation in a mapped page. Acquire, and seq_cst at the writer: see Read in
// shm_transport.cc for the pairing.
inline uint64_t LoadIncarnation(const Mapping& page) {
  uint64_t& word = reinterpret_cast<IncarnationPage*>(page.data())->incarnation;
  return std::atomic_ref<uint64_t>(word).load(std::memory_order_acquire);
}

// Its word `alive`. As it was when the client connected: that server has not ended. Acquire, and
// the kernel's exchange: a process that was informed of the end loads what the kernel stored.
inline uint32_t LoadAlive(const Mapping& page) {
  uint32_t& word = reinterpret_cast<IncarnationPage*>(page.data())->alive;
  return std::atomic_ref<uint32_t>(word).load(std::memory_order_acquire);
}

// What a client is given of the server's life. Outlives the listener while a connection is being
// made. Immutable.
struct ShmLife {
  uint64_t incarnation = 0;
  UniqueFd page;  // opened for reading only and apart from the lock: may be given away
};

// Not thread-safe. Destroying it removes the socket's file, unless somebody else has put another
// there, and frees the path; the page stays.
class ShmListener {
 public:
  // Listens at `path` (absolute). The socket gets `socket_mode`; the page is for this user alone.
  // Errors: AddressInUseError while another server lives there; NOT_FOUND (no such directory),
  // PERMISSION_DENIED, INVALID_ARGUMENT (path too long), FAILED_PRECONDITION (what stands there is
  // no socket, or no page of ours); RobustFutex::Hold's.
  static absl::StatusOr<std::unique_ptr<ShmListener>> Open(const std::string& path,
                                                           uint64_t incarnation,
                                                           mode_t socket_mode);
  ~ShmListener();
  ShmListener(const ShmListener&) = delete;
  ShmListener& operator=(const ShmListener&) = delete;

  int socket() const { return socket_.get(); }
  const std::shared_ptr<const ShmLife>& life() const { return life_; }
  const std::string& path() const { return path_; }

 private:
  ShmListener(std::string path, uint64_t incarnation)
      : path_(std::move(path)), incarnation_(incarnation) {}

  absl::Status OpenPage();
  absl::Status LockPage(int fd) const;
  absl::Status PublishIncarnation();
  absl::Status RemoveStaleSocket() const;
  absl::Status Bind(mode_t socket_mode);

  std::string path_;
  uint64_t incarnation_;
  UniqueFd page_writer_;  // holds the lock
  std::shared_ptr<const ShmLife> life_;
  Mapping page_;  // for writing
  std::unique_ptr<RobustFutex> alive_;
  UniqueFd socket_;
  ino_t socket_inode_ = 0;  // of the file that we made; 0: none yet
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_LISTENER_H_
