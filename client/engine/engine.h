// The client's engine runs operations over one connection at a time, driven by Poll(now). It has no
// clock, never sleeps and owns no thread; an rdma::Transport connects it to the world. So tests and
// simulation run the same code in virtual time over their own transport.
//
//   start() an operation from the pool goes into the queue of its state
//   Poll    deadlines; the transport's events; timers; READs, as chains; requests; callbacks
//
//   GETs    read/get_operation.h  new_gets -> to_read -> (chain) -> paused -> to_read …
//                                 long values: (chain) -> fetching, until all pieces are there
//                                 GET by message: to_send -> (session)
//           read/shm_fast_path.h  blocking GETs over shm: at once, if one probe finds them
//           read/get_batches.h    blocking GETs: (chain), then an operation if need be
//   others  message_operation.h   to_send -> (session); to_resend after a reconnect
//
// When the connection is lost, GETs start over on the next one (R7). Requests other than writes are
// sent again. Writes that the server may have wait: if the server still has the session, they are
// repeated under their old sequence, otherwise they end as UNKNOWN. Writes that were never sent
// just wait. A restarted server has the session if it has a data directory; its region is another.
//
// R4: deadlines are checked before events, so that no answer is accepted after its deadline. They
//     are checked again before answers are delivered, as the process may have been stopped.
// R5: an operation with a READ under way is answered at its deadline at once. READs land in buffers
//     of the engine, and the buffer of this one stays out of use until the READ has ended. (For
//     the user's memory: operations.h.) When no chain has ended for kReadsStuckMax, the
//     engine breaks the connection, which ends them all; others go on after the reconnect.
//
// Its parts, each of which uses those above it:
//
//   ServerLink         connection, session, clock, buffers, counters
//   Operations         the pool, the queues, and how operations end
//   ReadPipeline       READs, of GETs and scans        RequestPipeline   messages, both ways
//   OperationStarter   argument checks and copies; has a method for each operation
//
// Thread rule: one thread. Callbacks run inside Poll and Close; they may start operations and
// nothing else.

#ifndef OSPREY_CLIENT_ENGINE_ENGINE_H_
#define OSPREY_CLIENT_ENGINE_ENGINE_H_

#include <array>
#include <cassert>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/common/registered_memory.h"
#include "client/engine/connection.h"
#include "client/engine/operation_starter.h"
#include "client/engine/operations.h"
#include "client/engine/read_pipeline.h"
#include "client/engine/request_pipeline.h"
#include "client/engine/server_link.h"
#include "client/read/read_batches.h"
#include "client/read/value_reads.h"
#include "rdma/transport.h"

namespace osprey::client {

class ClientEngine {
 public:
  // A Poll takes some 0.1 us, a blocking GET little more.
  static constexpr absl::Duration kPollEvery() { return absl::Microseconds(100); }
  // If no READ ends for this time, the connection ends.
  static constexpr absl::Duration kReadsStuckMax() { return absl::Seconds(3); }

  // `domain` must outlive the engine; `transport` must be of that domain. Errors: INVALID_ARGUMENT
  // for the URI, and those of Domain::Allocate.
  static absl::StatusOr<std::unique_ptr<ClientEngine>> Create(
      rdma::Domain& domain, std::unique_ptr<rdma::Transport> transport,
      const EngineOptions& options);
  // REQUIRES: Close was called. Runs the remaining callbacks, if closed() did not become true.
  ~ClientEngine();
  ClientEngine(const ClientEngine&) = delete;
  ClientEngine& operator=(const ClientEngine&) = delete;

  // Starts operations.
  OperationStarter& start() { return start_; }
  // GETs of a caller that polls until they are answered (client/read/get_batches.h). Begins the
  // first of `keys`, as many as the limits allow now, and returns their number. `answers` has a
  // place for each key. Those that were not answered at once are added to `unanswered`, which
  // counts down as they are. All arguments must outlive that; `now` may be a little old. REQUIRES:
  // not inside Poll.
  size_t StartGets(absl::Span<const absl::string_view> keys, absl::StatusOr<Value>* answers,
                   absl::Time deadline, absl::Time now, size_t& unanswered);
  // A GET of a caller that polls, as StartGets and AwaitReads: the common case, of which nothing is
  // left to do when one READ has answered it. False: not now; nothing was begun.
  bool GetOne(absl::string_view key, absl::StatusOr<Value>& answer, absl::Time deadline,
              absl::Time now, size_t& unanswered) {
    assert(!polling_ && "a callback may not call a blocking operation");
    if (operations_.in_flight > 0 || start_.closed()) return false;
    return reads_.GetOne(key, answer, deadline, now, unanswered);
  }

  // Sends the operations that were just started; no callback runs. Poll does it as well, but takes
  // arrived events first: a caller that waits for this one operation would wait for those, too.
  void Submit(absl::Time now);
  // Waits for READs, for some us at most and without a clock: until `unanswered`, of StartGets, is
  // 0, or something else than READs must be awaited. No callback runs.
  void AwaitReads(const size_t& unanswered, absl::Time now);
  // Makes progress, runs callbacks, returns their number. `now` never decreases.
  int Poll(absl::Time now);
  // For a caller whose GETs are all answered without Poll: whether Poll is due nevertheless, for the
  // engine's other work. (One Poll in some also examines the sockets, which report a server's
  // death.)
  bool IsPollDue(absl::Time now) const { return now >= poll_due_; }
  // The latest time for the next Poll, even without an event. Not meaningful after a Poll whose
  // callbacks started operations: Poll again.
  absl::Time NextTimer() const;

  // Ends everything in flight (CANCELLED) and starts to disconnect. Nothing can be started any
  // more. Poll goes on until closed(), which also ends operations with READs under way in the
  // user's memory.
  void Close();
  // Ends the connection, if it is not closed(), and answers what is left. Nothing but the destructor
  // may follow. REQUIRES: Close was called.
  void End();
  // No READ can land in this process's memory any more.
  bool closed() const { return link_.connection->state() == ServerConnection::State::kClosed; }

  int in_flight() const { return operations_.in_flight; }
  uint64_t ended() const { return operations_.ended; }  // operations since the beginning
  const Counters& counters() const { return link_.counters; }
  const ServerConnection& connection() const { return *link_.connection; }
  rdma::Transport& transport() const { return *link_.transport; }
  const std::shared_ptr<ExposerLink>& exposer_link() const { return exposer_link_; }
  std::string Describe() const;
  // The location cache has so many bytes at most from now on. REQUIRES: no operation is in flight.
  void ShrinkLocationCache(uint64_t bytes_max) { link_.location_cache.Shrink(bytes_max); }

 private:
  ClientEngine(std::unique_ptr<rdma::Transport> transport, rdma::Domain& domain,
               std::unique_ptr<rdma::Memory> liveness, const EngineOptions& options,
               std::vector<std::string> uris);

  void ReceiveEvents(absl::Time now);
  void OnEvent(const rdma::Event& event, absl::Time now);
  void OnReadsDone(const rdma::Transport::ReadsDone& done, absl::Time now);
  void OnReady();
  void OnAnotherIncarnation();
  void OnLost();
  void SendAll(absl::Time now);
  void Watch(absl::Time now);
  void RunCallbacks();
  void ExpireOperations(absl::Time now);
  absl::Status LateError(bool never_sent) const;

  ServerLink link_;
  ReadBatches batches_;
  ValueReads value_reads_;
  Operations operations_;
  ReadPipeline reads_;
  OperationStarter start_;
  RequestPipeline requests_;
  const std::shared_ptr<ExposerLink> exposer_link_;
  absl::Time poll_due_ = absl::InfinitePast();
  bool polling_ = false;
  // While the connection is ready, Watch has nothing to do before this time.
  absl::Time next_watch_ = absl::InfinitePast();
  std::array<rdma::Event, 64> events_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_ENGINE_H_
