// Limits on connections, checked before any resource is allocated for a peer: on all connections,
// on those from one source, and on unauthenticated peers. The latter have not proved yet that they
// have the key.
//
//   Admission::Ask(source) -> Ticket          before Transport::Accept
//   Ticket::Known()                           the peer has authenticated
//   ~Ticket                                   the connection is gone
//
// The limit on unauthenticated peers, and the smaller one on those from one source, exist only with
// a key. Each such peer is disconnected after kHelloTimeout. So a host that floods the server with
// connections that never authenticate leaves slots for clients of other hosts. Without a key every
// peer counts as authenticated.
//
// Thread rule: thread-safe; all pollers share one. Tickets may move between threads and end on any.
// An Admission must outlive its tickets.

#ifndef OSPREY_SERVER_STATS_ADMISSION_H_
#define OSPREY_SERVER_STATS_ADMISSION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "rdma/transport.h"

namespace osprey::server {

struct AdmissionLimits {
  size_t connections_max = 1024;         // at least 1
  size_t per_source_max = 0;             // 0: no limit of its own
  bool requires_authentication = false;  // the server has a key

  // A quarter of all, but at least a few, so that some peers can always authenticate.
  size_t unauthenticated_max() const;
  // A quarter of these, or a few.
  size_t unauthenticated_per_source_max() const;
};

class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // A counted connection. Move-only; empty after a move.
  class Ticket {
   public:
    Ticket() = default;
    ~Ticket() { Release(); }
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;

    bool valid() const { return admission_ != nullptr; }
    // The peer has authenticated. REQUIRES: valid.
    void Known();
    const std::string& source() const { return source_; }

   private:
    friend class Admission;
    void Release();

    Admission* admission_ = nullptr;
    std::string source_;
    bool unauthenticated_ = false;
  };

  struct Answer {
    Ticket ticket;                                           // valid if admitted,
    rdma::RejectReason refusal = rdma::RejectReason::kNone;  // otherwise the reason
  };
  // `source` is Event::source.
  Answer Ask(absl::string_view source);

  // Counts since the start.
  struct Refusals {
    uint64_t in_all = 0;
    uint64_t per_source = 0;
    uint64_t unauthenticated = 0;
    uint64_t descriptors = 0;  // by the transport: the source holds too many
  };
  // Counts a peer that the transport refuses.
  void CountRefusedForDescriptors();
  Refusals refusals() const;
  size_t connections() const;
  size_t unauthenticated() const;
  const AdmissionLimits& limits() const { return limits_; }

 private:
  struct Count {
    size_t connections = 0;
    size_t unauthenticated = 0;  // of these
  };

  void Drop(const std::string& source, bool unauthenticated);
  void NoteAuthenticated(const std::string& source);

  const AdmissionLimits limits_;
  mutable std::mutex mutex_;
  // The mutex guards all below. Only sources with a connection, so at most connections_max.
  std::map<std::string, Count, std::less<>> sources_;
  Count all_;
  Refusals refusals_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_STATS_ADMISSION_H_
