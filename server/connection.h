// One client's connection: from its request to connect until its last event.
//
//   kAccepting
//       | connected
//   kAwaitingHello ---- Hello, where there is a key: Challenge ----> kAwaitingResponse
//       | Hello, where there is none                                   | the right response
//       |<-------------------------------------------------------------+
//       |------ its session has an owner ------> kAwaitingFence
//       | new session or one without owner           | the owner's end
//       v                                            |
//   kEstablished <-----------------------------------+
//       | stop
//   kDraining
//       | all answered: Goodbye
//   kLeaving
//       | kGoodbyeGrace
//   kClosing
//       | kDisconnected (may come in any state): the session is kept for kSessionKept
//   (gone)
//
//   To kClosing at once: from any state on a malformed frame, silence, replies that are not taken,
//   or when a newer connection claims the session; before kEstablished also on stop, on a wrong
//   response, or when no Hello (response, owner's end) comes in time.
//
// Before kEstablished, and so before the client has proved that it has the key, it has been told
// nothing of the region, may READ nothing, and nothing of it was mapped or READ.
//
// Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_CONNECTION_H_
#define OSPREY_SERVER_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/authentication.h"
#include "rdma/protocol.h"
#include "rdma/transport.h"
#include "server/admission.h"
#include "server/alarms.h"
#include "server/client_gets.h"
#include "server/gather.h"
#include "server/long_append.h"
#include "server/outbox.h"
#include "server/rendezvous.h"
#include "server/requests.h"
#include "server/sessions.h"
#include "server/stats.h"
#include "server/tables.h"

namespace osprey::server {

// From the request to connect to the Welcome, a challenge included. An honest client needs some
// round trips, and once, when it resumes, the end of its old connection; who says nothing, or
// cannot prove that it has the key, does not occupy a place for longer.
inline constexpr absl::Duration kHelloTimeout() { return absl::Seconds(5); }
// A peer from which nothing came for so long is asked: its liveness word is READ.
inline constexpr absl::Duration kSilenceMax() { return absl::Seconds(1); }
// … and let go when that READ has not ended by then: a retransmission or two fit in, a dead host is
// noticed within 4 s.
inline constexpr absl::Duration kLivenessTimeout() { return absl::Seconds(3); }
// A client with a key lets us READ its liveness word when it has the Welcome, and so has the proof.
// It gives up what lasts longer than 3 s; until then it is not asked.
inline constexpr absl::Duration kWelcomeTakenMax() { return absl::Seconds(3); }
// How long a reply may wait for the client to take earlier ones. Credits are granted so that it
// need not wait at all, but they may come back in batches.
inline constexpr absl::Duration kReplyBlockedMax() { return absl::Seconds(1); }
// From Goodbye to Disconnect: for requests that were on their way to be refused as not applied.
inline constexpr absl::Duration kGoodbyeGrace() { return absl::Milliseconds(100); }

// Values of one connection for which space is reserved while they are READ. A longer one is READ
// alone. So clients that are slow, or lie about their values, hold little of the region.
inline constexpr uint64_t kReservedBytesMax = 8 << 20;

// What a connection may do in one turn, in units of about a microsecond (connection_turns.cc): two
// full Batches of small writes, or one part of a flush. What goes beyond waits.
inline constexpr uint64_t kTurnCostMax = 256;
// The same of one that alone sends so much, while others are connected, who send little: these wait
// for two such turns at most. When several do it, who sends little waits for all of them in any
// case, and short turns would cost a tenth of the writes, with two pollers a quarter.
inline constexpr uint64_t kTurnCostBesideOthersMax = 32;
// Who does so much in a turn sends much.
inline constexpr uint64_t kGreedyCost = kTurnCostBesideOthersMax;
// Frames that wait so.
inline constexpr size_t kBacklogMax = 2 * kRequestsMax;

inline constexpr uint64_t kLivenessBytes = 8;

// What the connections of an engine share. Outlives them.
struct Shared {
  uint64_t incarnation = 0;
  uint64_t value_bytes_max = 0;
  TableAccess& tables;
  Sessions& sessions;
  Counters& counters;
  // Requests that are to be executed together …
  Gather& gather;
  // The text of STATS, as this connection is told.
  std::function<std::string(const std::string& transport, absl::Time now)> stats_text;
  // For people; may be empty.
  std::function<void(absl::string_view)> log;
  // Counts the engine's turns.
  uint64_t turn = 0;
  // What each connection may do in this one, and how many have sent much in it.
  uint64_t turn_cost_max = kTurnCostMax;
  uint32_t greedy = 0;
  // The frames of the Batch that is being executed. Kept for its memory.
  std::vector<rdma::FrameBytes> batch = {};
  // Likewise the access hints for one partition.
  std::vector<uint64_t> hints = {};
  // Null: nobody needs to prove anything.
  rdma::AuthKey::Pointer key = nullptr;
  // … and what executes them. Never empty.
  std::function<void(absl::Time now)> execute_gathered = nullptr;
  // Null: nobody wants to know how clients' GETs go.
  ClientGets* client_gets = nullptr;
  // 64 random bits. REQUIRES: not empty where there is a key.
  std::function<uint64_t()> random = nullptr;
};

// Where a connection lives: one transport, and the memory registered for it.
struct Port {
  rdma::Transport& transport;
  const rdma::Memory& region;  // the tables; exposed with the Welcome
  const rdma::Memory&
      scratch;  // kLivenessBytes that all liveness READs land in: nobody looks at them
};

// What a connection reacts to.
struct Input {
  enum class Kind {
    kConnected,
    kFrame,
    kFenced,  // the old connection of our session is gone
    kStop,    // the server wants to end
    kTime,    // deadline() has come
  };
  Kind kind = Kind::kTime;
  rdma::Bytes frame;  // kFrame
};

class Connection {
 public:
  enum class State {
    kAccepting,
    kAwaitingHello,
    kAwaitingResponse,
    kAwaitingFence,
    kEstablished,
    kDraining,
    kLeaving,
    kClosing
  };

  // `ticket` is held until there is nothing left of it.
  Connection(Shared& shared, const Port& port, rdma::ConnectionId id, std::string peer,
             Admission::Ticket ticket, absl::Time now);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Handle(const Input& input, absl::Time now);
  // A READ ended.
  void HandleReadsDone(uint64_t cookie, const absl::Status& status, absl::Time now);
  // The last event. Gives up the session; returns the connection that waited for it and has it now,
  // if any.
  Connection* HandleDisconnected(const absl::Status& status, absl::Time now);
  // Ends without kDisconnected. REQUIRES: the transport is gone, and its engine, tables excepted,
  // is about to be.
  void Abandon();

  // Disconnects, and counts why. Nothing more is executed for this client. Under the lock of a
  // table (locked_) that is all: the rest happens when it is free again.
  void Close(CloseReason reason, absl::string_view detail);

  // When Handle(kTime) is wanted.
  absl::Time deadline() const;
  // Its engine's.
  Alarm& alarm() { return alarm_; }
  // Replies wait for credits, whose return is no event: Handle(kTime) is wanted in each turn.
  bool blocked() const { return !outbox_.empty(); }
  // A long write goes on here, or waits for room that is being made, or requests wait for a turn of
  // their own, and not for the client: Work is wanted in each turn, a bounded step.
  bool busy() const {
    return state_ != State::kClosing && (!appends_.empty() || awaits_room_ || !backlog_.empty());
  }
  void Work(absl::Time now);

  // One of the requests that it has gathered, whose table is held (TableAccess::Hold): its reply
  // waits until EndGathered. Returns what it cost (kCostPerHold).
  uint64_t ExecuteGathered(const Gather::Request& request, absl::Time now);
  bool gathered() const { return gathered_ > 0; }
  // It has none left.
  void EndGathered(absl::Time now);
  State state() const { return state_; }

 private:
  // One for each state.
  void InAccepting(const Input& input, absl::Time now);
  void InAwaitingHello(const Input& input, absl::Time now);
  void InAwaitingResponse(const Input& input, absl::Time now);
  void InAwaitingFence(const Input& input, absl::Time now);
  void InEstablished(const Input& input, absl::Time now);
  void InDraining(const Input& input, absl::Time now);
  void InLeaving(const Input& input, absl::Time now);

  // connection_hello.cc: the way to kEstablished
  void TakeHello(rdma::FrameBytes frame, absl::Time now);
  void SendChallenge(const rdma::HelloBody& hello, absl::Time now);
  void TakeResponse(rdma::FrameBytes frame, absl::Time now);
  void Refuse(rdma::WireReason reason, absl::string_view detail, absl::Time now);
  void Proceed(const rdma::HelloBody& hello, absl::Time now);
  void Claim(Session& session, absl::Time now);
  void Welcome(bool resumed, absl::Time now);

  // connection_requests.cc
  void TakeFrame(rdma::FrameBytes frame, absl::Time now);
  void TakeBatch(rdma::FrameBytes frame, absl::Time now);
  void MalformedFrame(absl::string_view detail, absl::Time now);
  void TakeRequest(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakePut(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  Answer Put(const rdma::PutRequest& request, absl::Time now);
  void TakeDelete(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeIncrement(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeAppend(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeFlush(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeGet(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeExpire(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeTouch(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeQuestion(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeHints(const rdma::FrameHeader& header, rdma::FrameBytes frame);
  void TakeReport(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeGoodbye(rdma::FrameBytes frame);
  void StepAppend(absl::Time now);

  // connection_turns.cc
  void EnterTurn();
  bool TurnIsOver();
  void Execute(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void Take(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void Defer(rdma::FrameBytes frame, absl::Time now);
  void Keep(rdma::FrameBytes frame);
  void WorkOffBacklog(absl::Time now);

  size_t UnderWay() const { return rendezvous_.size() + appends_.size(); }
  bool Settled(uint64_t sequence, absl::Time now);
  bool Refused(uint64_t sequence, absl::Time now);
  void AnswerWrite(uint64_t sequence, const Answer& answer, absl::Time now);

  // connection_rendezvous.cc
  void BeginRendezvous(const rdma::PutRequest& request, uint64_t sequence, absl::Time now);
  void AdvanceRendezvous(absl::Time now);
  void StepRendezvous(absl::Time now);
  Answer FinishRendezvous(Rendezvous& rendezvous, absl::Time now);
  bool PostReads(Rendezvous& rendezvous);
  void LivenessReadDone(const absl::Status& status, absl::Time now);

  // Sending. Replies wait in outbox_ for credits, and for the end of the Batch that they answer.
  uint64_t ServerTimeNs() const;
  void Reply(uint64_t sequence, const Answer& answer, absl::Time now);
  void SendOrQueue(absl::Span<const rdma::Bytes> pieces, absl::Time now);
  void FlushOutbox(absl::Time now);
  absl::Status SendSlice(const Outbox::Slice& slice);
  absl::Status Send(absl::Span<const rdma::Bytes> pieces);
  size_t ReplyDataMax() const;

  void FinishClosing();
  void Malformed(absl::string_view detail) { Close(CloseReason::kMalformed, detail); }
  void CheckLiveness(absl::Time now);  // connection_rendezvous.cc
  void LeaveWhenAnswered(absl::Time now);
  void Log(absl::string_view what) const;

  Shared& shared_;
  const Port port_;
  const rdma::ConnectionId id_;
  const std::string peer_;
  Admission::Ticket ticket_;
  Alarm alarm_;

  State state_ = State::kAccepting;
  absl::Time hello_deadline_;
  ReportLimit report_limit_;
  // From Challenge to Welcome: what the proofs are over.
  struct Exchange {
    rdma::HelloBody hello;
    rdma::Nonces nonces;
  };
  std::unique_ptr<Exchange> exchange_;
  absl::Time heard_;  // when something came last
  absl::Time leaving_since_ = absl::InfiniteFuture();

  rdma::ConnectionLimits limits_;
  Session* session_ = nullptr;  // that we own
  Session* claimed_ = nullptr;  // that we wait for

  rdma::WireMemory liveness_;
  bool liveness_reading_ = false;
  absl::Time liveness_since_ = absl::InfinitePast();

  std::vector<std::unique_ptr<Rendezvous>> rendezvous_;  // the oldest first
  std::deque<std::unique_ptr<LongAppend>> appends_;      // the first one is under way
  uint64_t rendezvous_numbers_ = 0;                      // the last given out
  // The next rendezvous waits for room for its value: it is tried again in the next turn, or then.
  bool awaits_room_ = false;
  absl::Time room_retry_at_ = absl::InfiniteFuture();
  uint64_t turn_ = 0;                // for which spent_ counts
  uint64_t spent_ = 0;               // of Shared::turn_cost_max
  uint64_t greedy_turn_ = 0;         // the last in which it sent much
  size_t gathered_ = 0;              // requests in shared_.gather
  uint64_t gathered_cost_ = 0;       // of these
  std::deque<std::string> backlog_;  // requests that wait for the next turn, each a whole frame
  Outbox outbox_;
  bool in_batch_ = false;  // more replies are about to follow
  bool locked_ = false;    // a request of ours is executed while its table is held
  const index::KeyHash* known_hash_ = nullptr;  // of that request's key
  bool close_unfinished_ = false;
  std::string close_log_;  // what is to be said of the end
  absl::Time blocked_since_ = absl::InfiniteFuture();
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CONNECTION_H_
