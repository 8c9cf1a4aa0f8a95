// Who may connect, decided before anything is made for him: how many connections there are in all,
// from one source, and of strangers, that is, of peers that have not proved yet that they have the
// key.
//
//   Admission::Ask(source) -> Ticket          before Transport::Accept
//   Ticket::Known()                           the peer has proved itself
//   ~Ticket                                   the connection is gone
//
// The bound on strangers, and the smaller one on those from one source, exist only where there is a
// key: so a host that floods the server with connections that never authenticate (each is let go
// after kHelloTimeout) leaves the other hosts' clients the room to do it. Without a key everybody
// is known.
//
// Thread rule: thread-safe; all pollers share one. Tickets may move between threads and end on any.
// An Admission must outlive its tickets.

#ifndef OSPREY_SERVER_ADMISSION_H_
#define OSPREY_SERVER_ADMISSION_H_

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
  size_t connections_max = 1024;  // at least 1
  size_t per_source_max = 0;      // 0: no bound but the above
  bool has_strangers = false;     // the server has a key

  // A quarter of all; but a few must always be able to prove themselves at a time.
  size_t strangers_max() const;
  // A quarter of these, or a few.
  size_t strangers_per_source_max() const;
};

class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // A connection that is counted. Move-only; empty once moved from.
  class Ticket {
   public:
    Ticket() = default;
    ~Ticket() { Release(); }
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;

    bool valid() const { return admission_ != nullptr; }
    // It is no stranger's any more. REQUIRES: valid.
    void Known();
    const std::string& source() const { return source_; }

   private:
    friend class Admission;
    void Release();

    Admission* admission_ = nullptr;
    std::string source_;
    bool stranger_ = false;
  };

  struct Answer {
    Ticket ticket;                                           // valid if there is room,
    rdma::RejectReason refusal = rdma::RejectReason::kNone;  // else why there is none
  };
  // `source` is Event::source.
  Answer Ask(absl::string_view source);

  // Since the beginning.
  struct Refusals {
    uint64_t in_all = 0;
    uint64_t per_source = 0;
    uint64_t strangers = 0;
    uint64_t descriptors = 0;  // by the transport: the source holds up too many
  };
  // Counts one that the transport refuses.
  void CountRefusedForDescriptors();
  Refusals refusals() const;
  size_t connections() const;
  size_t strangers() const;
  const AdmissionLimits& limits() const { return limits_; }

 private:
  struct Count {
    size_t connections = 0;
    size_t strangers = 0;  // of these
  };

  void Drop(const std::string& source, bool stranger);
  void Acquaint(const std::string& source);

  const AdmissionLimits limits_;
  mutable std::mutex mutex_;
  // All below under it. Sources with a connection only, so at most connections_max.
  std::map<std::string, Count, std::less<>> sources_;
  Count all_;
  Refusals refusals_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ADMISSION_H_
