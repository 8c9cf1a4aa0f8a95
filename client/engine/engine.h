// The client's engine runs operations over one connection at a time, driven by Poll(now). It has no
// clock, never sleeps and owns no thread; an rdma::Transport connects it to the world. So tests and
// simulation run the same code in virtual time over their own transport.
//
//   Start…  an operation from the pool goes into the queue of its state
//   Poll    deadlines; the transport's events; timers; READs, as chains; requests; callbacks
//
//   GETs    get_operation.h      new_ -> to_read_ -> (chain) -> paused_ -> to_read_ …
//                                long values: (chain) -> fetching_, until all pieces are there
//                                 GET by message: to_send_ -> (session)
//           read/shm_fast_path.h        blocking GETs over shm: at once, if one probe finds them
//           read/get_batches.h         blocking GETs: (chain), then an operation if need be
//                                answer
//   others  message_operation.h  to_send_ -> (session); to_resend_ after a reconnect
//
// When the connection is lost, GETs start over on the next one (R7). Requests other than writes are
// sent again. Writes that the server may have wait: if the server still has the session, they are
// repeated under their old sequence, otherwise they end as UNKNOWN. Writes that were never sent
// just wait.
//
// R4: deadlines are checked before events, so that no answer is accepted after its deadline. They
//     are checked again before answers are delivered, as the process may have been stopped.
// R5: an operation with a READ under way is answered at its deadline at once. READs land in buffers
//     of the engine, and the buffer of this one stays out of use until the READ has ended. (For
//     the user's memory: engine_buffers.cc.) When no chain has ended for kReadsStuckMax, the
//     engine breaks the connection, which ends them all; others go on after the reconnect.
//
// Thread rule: one thread. Callbacks run inside Poll and Close; they may start operations and
// nothing else.

#ifndef OSPREY_CLIENT_ENGINE_ENGINE_H_
#define OSPREY_CLIENT_ENGINE_ENGINE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/common/buffer_pool.h"
#include "client/common/operation.h"
#include "client/common/server_clock.h"
#include "client/engine/client_get_stats.h"
#include "client/engine/connection.h"
#include "client/engine/message_operation.h"
#include "client/engine/session.h"
#include "client/read/access_sampler.h"
#include "client/read/get_batches.h"
#include "client/read/get_operation.h"
#include "client/read/location_cache.h"
#include "client/read/read_batches.h"
#include "client/read/scans.h"
#include "client/read/shm_fast_path.h"
#include "client/read/value_reads.h"
#include "rdma/transport.h"
#include "rdma/wire/batch.h"

namespace osprey::client {

// The limit for key and value of a PUT in its frame. A frame of the transport has 8192 bytes in
// all. The server READs a longer value. Measured by tests/benchmarks/eager_benchmark, us a PUT,
// eager / by
// rendezvous:
//
//   value bytes                      64         1024         8000
//   soft-RoCE, one at a time      35 / 73      49 / 85    130 / 182
//   shared memory, one at a time 1.4 / 1.9    1.0 / 1.2    2.8 / 2.8
//   shared memory, 32 at once    .33 / 1.29   .91 / 1.34   2.4 / 2.8
//
// So every PUT that fits goes eager. Longer frames would gain nothing over shared memory. They
// would cost the server 32 receives of their length for each connection.
inline constexpr uint64_t kEagerBytesMax = 8192;

struct EngineOptions {
  ConnectionOptions connection;
  int operations_max = 256;
  // Registered memory for READs, and as much again for values on their way to the server.
  uint64_t buffer_bytes_max = 64 << 20;
  uint64_t slot_cache_bytes = 16 << 20;
  // The limit for key and value of a PUT in its frame; the server and the frame may set a lower
  // one.
  uint64_t eager_bytes_max = kEagerBytesMax;
  // Reads Poll's clock again: Poll's argument is too old to date an arrival. Null: that argument is
  // accurate enough, as in virtual time.
  std::function<absl::Time()> clock;
  // The same, cheaper and up to some ms behind. It is read before answers are delivered, to detect
  // deadlines that passed while the process was stopped. Null: they are not detected.
  std::function<absl::Time()> coarse_clock;
};

class Engine : private Exposer, private GetBatches::Owner {
 public:
  // The client sends hits beside requests once there are this many, which is worth a frame's
  // header, or after this time. It sends them alone at most this often.
  static constexpr size_t kToldTogether = 16;
  static constexpr absl::Duration kTellEvery() { return absl::Seconds(1); }
  // A Poll takes some 0.1 us.
  static constexpr absl::Duration kPollEvery() { return absl::Microseconds(20); }
  // If no READ ends for this time, the connection ends.
  static constexpr absl::Duration kReadsStuckMax() { return absl::Seconds(3); }

  // `domain` must outlive the engine; `transport` must be of that domain.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(rdma::Domain& domain,
                                                        std::unique_ptr<rdma::Transport> transport,
                                                        const EngineOptions& options);
  // REQUIRES: Close was called. Runs the remaining callbacks, if closed() did not become true.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // As in client.h, with the deadline as a point in Poll's time.
  absl::Status StartGet(absl::string_view key, bool want_value, absl::Time deadline,
                        Client::GetCallback done);
  // GETs of a caller that polls until they are answered (client/read/get_batches.h). Begins the
  // first of `keys`, as many as the limits allow now, and returns their number. `answers` has a
  // place for each key. Those that were not answered at once are added to `unanswered`, which
  // counts down as they are. All arguments must outlive that; `now` may be a little old. REQUIRES:
  // not inside Poll.
  size_t StartGets(absl::Span<const absl::string_view> keys, absl::StatusOr<Value>* answers,
                   absl::Time deadline, absl::Time now, size_t& unanswered);
  absl::Status StartExists(absl::string_view key, absl::Time deadline, Client::ExistsCallback done);
  absl::Status StartTtl(absl::string_view key, absl::Time deadline, Client::TtlCallback done);
  absl::Status StartPut(absl::string_view key, absl::string_view value, const WriteOptions& options,
                        absl::Time deadline, Client::WriteCallback done);
  // The memory's owner must hold exposer_link(). engine_buffers.cc explains what lands there, and
  // when the operation is answered.
  absl::Status StartGetInto(absl::string_view key, UserMemory target, absl::Time deadline,
                            Client::GetIntoCallback done);
  absl::Status StartPutFrom(absl::string_view key, UserMemory source, const WriteOptions& options,
                            absl::Time deadline, Client::WriteCallback done);
  absl::Status StartDelete(absl::string_view key, const WriteOptions& options, absl::Time deadline,
                           Client::WriteCallback done);
  absl::Status StartIncrement(absl::string_view key, int64_t by, const WriteOptions& options,
                              absl::Time deadline, Client::IncrementCallback done);
  absl::Status StartAppend(absl::string_view key, absl::string_view value,
                           const WriteOptions& options, absl::Time deadline,
                           Client::WriteCallback done);
  // `ttl` InfiniteDuration: it lives until it is deleted.
  absl::Status StartExpire(absl::string_view key, absl::Duration ttl, const WriteOptions& options,
                           absl::Time deadline, Client::WriteCallback done);
  absl::Status StartTouch(absl::string_view key, absl::Time deadline, Client::WriteCallback done);
  absl::Status StartFlush(absl::Time deadline, Client::WriteCallback done);
  // Calls `done` in the next Poll, like an operation that has ended at once.
  void Defer(absl::AnyInvocable<void()> done);
  // OK if an operation may be started now, otherwise CANCELLED or RESOURCE_EXHAUSTED.
  absl::Status CheckRoom() const;
  // Ends at its deadline with the results so far, if any (client/read/scans.h).
  absl::Status StartScan(Scans::Request request);
  // One READ of the region's first `bytes`: 1 to Client::kMeasureBytesMax.
  absl::Status StartMeasure(uint32_t bytes, absl::Time deadline, Client::GetCallback done);
  absl::Status StartPing(absl::Time deadline, Client::WriteCallback done);
  absl::Status StartStats(absl::Time deadline, MessageOperation::TextCallback done);

  // Sends the operations that were just started; no callback runs. Poll does it as well, but takes
  // arrived events first: a caller that waits for this one operation would wait for those, too.
  void Submit(absl::Time now);
  // Makes progress, runs callbacks, returns their number. `now` never decreases.
  int Poll(absl::Time now);
  // For a caller whose GETs are all answered at once: whether Poll is due nevertheless, for the
  // engine's other work. (One Poll in some also examines the sockets, which report a server's
  // death.)
  bool IsPollDue(absl::Time now) const { return now - polled_at_ >= kPollEvery(); }
  // The latest time for the next Poll, even without an event. Not meaningful after a Poll whose
  // callbacks started operations: Poll again.
  absl::Time NextTimer() const;

  // Ends everything in flight (CANCELLED) and starts to disconnect. Nothing can be started any
  // more. Poll goes on until closed(), which also ends operations with READs under way in the
  // user's memory.
  void Close();
  // No READ can land in this process's memory any more.
  bool closed() const { return connection_->state() == Connection::State::kClosed; }

  // Applies from now on; operations in flight above it stay.
  void set_operations_max(int operations) { operations_max_ = operations; }

  int in_flight() const { return in_flight_; }
  uint64_t ended() const { return ended_; }  // operations since the beginning
  const Counters& counters() const { return counters_; }
  const Connection& connection() const { return *connection_; }
  rdma::Transport& transport() { return *transport_; }
  const std::shared_ptr<ExposerLink>& exposer_link() const { return exposer_link_; }
  std::string Describe() const;

 private:
  Engine(std::unique_ptr<rdma::Transport> transport, rdma::Domain& domain,
         std::unique_ptr<rdma::Memory> liveness, const EngineOptions& options);

  static absl::Status CheckKeyAlone(absl::string_view key);
  absl::Status CheckKey(absl::string_view key) const;
  absl::Status CheckPut(absl::string_view key, uint64_t value_length,
                        const WriteOptions& options) const;
  absl::Status CheckChange(absl::string_view key, const WriteOptions& options) const;
  absl::StatusOr<Buffer> CopyOf(absl::string_view value);
  GetOperation& NewGet();
  void Started(GetOperation& get);
  size_t AnswerMapped(const ReadBatches::Source& source, absl::Span<GroupedGet> gets,
                      absl::Time deadline);
  GetOperation& OperationOf(const GroupedCall& call, const GroupedGet& grouped);
  MessageOperation& NewMessage();
  absl::Status Start(MessageOperation::Request request);
  void Started(Operation& operation);

  void ReceiveEvents(absl::Time now);
  absl::Time ReceivedBy();
  index::ServerTimeBounds TimeSince(absl::Time posted);
  void OnGroupDone(const rdma::Event& event, bool believe, absl::Time now);
  void OnEvent(const rdma::Event& event, absl::Time now);
  void OnReadsDone(const rdma::Event& event, absl::Time now);
  void OnPieceDone(const rdma::Event& event, bool believe, absl::Time now);
  bool OnFrame(rdma::Bytes frame, absl::Time now);
  void OnReply(rdma::Bytes frame, absl::Time now);
  void Learn(const MessageOperation& message, const rdma::Reply& reply);
  void Refused(Operation& operation, absl::Time now);
  void OnReady();
  void OnAnotherServer();
  void OnLost();
  void RequeueRequests();

  void Place(GetOperation& get, absl::Time now);
  void Place(MessageOperation& message);
  void EndPauses(absl::Time now);
  void BeginLookups(absl::Time now);
  uint64_t ItemReadBytesMax() const;
  ReadBatches::Source ReadSource() const;
  void PostReads(absl::Time now);
  void PostReadsOfAll(absl::Time now);
  bool ReclaimBuffers();
  void PostValueReads(const ReadBatches::Source& source, absl::Time now);
  void SendAll(absl::Time now);
  bool HasRequests() const {
    return !to_send_.empty() || !to_resend_.empty() || !sampler_.notes().empty();
  }
  size_t outstanding_reads() const {
    return batches_.outstanding() + groups_.outstanding() + value_reads_.outstanding() +
           scans_.outstanding();
  }
  absl::Time ReadsStuckSince() const;
  void AskTime(absl::Time now);
  void SendRequests(absl::Time now);
  void BatchRequests();
  bool GatherHits(absl::Time now);
  bool GatherReport(absl::Time now);
  void SendLastReport();
  bool PartitionBatch(Operation& operation, uint64_t& next_sequence);
  void SentRequest(Operation& operation);
  void Watch(absl::Time now);
  void RunCallbacks();
  absl::Time ReadClock() const { return options_.clock ? options_.clock() : polled_at_; }

  void Continue(const GroupedCall& call, const GroupedGet& grouped,
                std::unique_ptr<CachedLookup>& lookup, const CachedLookup::Step& step) override;
  void Restart(const GroupedCall& call, const GroupedGet& grouped) override;
  void Answered(size_t count) override;
  void Timed(absl::Time begun_at) override;
  index::ServerTimeBounds ClockSince(absl::Time posted) override;
  bool IsLate(absl::Time deadline) const override {
    return options_.coarse_clock && options_.coarse_clock() >= deadline;
  }

  void Withdraw(const rdma::Memory& memory) override;
  bool MayBeRead(const rdma::Memory& memory) const;
  bool IsInUserMemory(const Operation& operation) const;
  void FailAfterDrain(Operation& operation, const absl::Status& error);
  void EndDrained();

  void ExpireOperations(absl::Time now);
  void End(GetOperation& get, absl::Status error);
  void End(MessageOperation& message, const absl::Status& error);
  void End(Operation& operation, const absl::Status& error);
  absl::Status LateError(bool never_sent) const;

  const EngineOptions options_;
  const std::shared_ptr<ExposerLink> exposer_link_;
  int operations_max_;
  Counters counters_;
  std::minstd_rand random_;

  // In the order of dependency: buffers outlive the transport, whose destruction ensures that
  // nothing lands in them.
  std::unique_ptr<rdma::Memory> liveness_;
  BufferPool read_buffers_;
  BufferPool value_buffers_;
  std::unique_ptr<rdma::Transport> transport_;
  Session session_;
  Exposures exposures_;
  LocationCache location_cache_;
  AccessSampler sampler_;
  GetContext context_{counters_, location_cache_, sampler_};
  absl::Time told_at_ = absl::InfinitePast();  // when the server was last sent hits
  ClientGetStats report_;
  std::unique_ptr<Connection> connection_;
  ReadBatches batches_;
  ShmFastPath mapped_;
  GetBatches groups_;
  ValueReads value_reads_;
  Scans scans_;

  // Every operation is in one of these queues, in a chain or in the session. (GETs of groups are
  // none.)
  OperationQueue new_;        // GETs: their lookup has not begun
  OperationQueue to_read_;    // GETs
  OperationQueue fetching_;   // GETs: their values come in pieces
  OperationQueue paused_;     // GETs
  OperationQueue to_resend_;  // messages that have a sequence already, in its order
  OperationQueue to_send_;    // messages, and GETs by message
  OperationQueue done_;       // callbacks to be run

  // The frame under construction for the present connection, and its contents.
  std::optional<rdma::FrameBatch> batch_;
  std::vector<Operation*> gathered_;
  std::vector<rdma::FrameBytes> replies_;  // of the Batch that is being parsed

  std::vector<absl::AnyInvocable<void()>> deferred_;
  std::vector<std::unique_ptr<GetOperation>> gets_;
  std::vector<GetOperation*> free_gets_;
  std::array<GroupedGet, GetBatches::kGetsMax> starting_;  // within StartGets
  std::vector<std::unique_ptr<MessageOperation>> messages_;
  std::vector<MessageOperation*> free_messages_;
  int in_flight_ = 0;
  uint64_t ended_ = 0;
  bool closed_ = false;
  bool polling_ = false;
  absl::Time polled_at_ = absl::InfinitePast();
  std::optional<absl::Time> received_by_;  // of the events under way
  ServerClock server_clock_;               // of the server of the present connection
  // An item with an expiry was READ recently, so that the server's time is still requested.
  absl::Time clock_used_until_ = absl::InfinitePast();
  uint64_t time_asked_ = 0;  // the sequence of the last PING for the time; 0: none
  absl::Time read_ended_at_ = absl::InfinitePast();
  // No deadline, and no end of a pause, is earlier than this. It may be too early; the check then
  // finds nothing.
  absl::Time next_deadline_ = absl::InfiniteFuture();
  absl::Time next_pause_end_ = absl::InfiniteFuture();
  // While the connection is ready, Watch has nothing to do before this time.
  absl::Time next_watch_ = absl::InfinitePast();
  std::array<rdma::Event, 64> events_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_ENGINE_H_
