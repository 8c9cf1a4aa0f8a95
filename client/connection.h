// The connection to one server: made, greeted, its map read, watched, and made again when it
// breaks.
//
//             kConnected          Welcome           last page           Goodbye
//   kConnecting -----> kGreeting -----> kMapping ----------> kReady -----------> kLeaving
//     ^     |              |               |                    |                    |
//     |     +--------------+---------------+------- Fail -------+--------------------+
//   Connect                                |                       answers in, or too late
//     |                  kDisconnected     v
//   kIdle, kBackoff <----------------- kDraining
//
// kDisconnected may come in every state and leads to kBackoff, or to kClosed once Close was called.
//
//   kConnecting and kGreeting together last kAttemptMax at most; in kMapping each READ does.
//   kGreeting  With a key: the server's challenge is answered, and its Welcome believed only if it
//              proves that the server has the key, too. Until then the server may READ nothing of
//              ours.
//   kReady     Nothing heard for kQuietMax: a READ of the region header, which does not wake the
//              server. Not back within kSilenceMax: Fail.
//   kLeaving   The server is about to end: nothing new is posted, and what is under way is awaited
//              for kLeavingMax.
//   kDraining  The transport was told to disconnect; READs posted before are still ending.
//
// It believes nothing that the server says before it has checked it: Welcome here, replies in the
// engine, everything READ in index::RegionMap, index::Lookup and index::Scan.
//
// Thread rule: one thread. No clock: time is an argument.

#ifndef OSPREY_CLIENT_CONNECTION_H_
#define OSPREY_CLIENT_CONNECTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/buffer_pool.h"
#include "client/partition_maps.h"
#include "client/session.h"
#include "rdma/authentication.h"
#include "rdma/protocol.h"
#include "rdma/transport.h"

namespace osprey::client {

struct ConnectionOptions {
  std::string uri;
  // The pause before the first attempt after a loss, doubled up to the last; each is shortened by
  // up to a half at random. Time that an attempt took in vain counts as pause.
  absl::Duration backoff_first = absl::Milliseconds(10);
  absl::Duration backoff_last = absl::Seconds(1);
  uint64_t seed = 1;
  // Null: a server that wants one is not connected to. Else only a server that has it is.
  rdma::AuthKey::Pointer key;
  std::function<rdma::Nonce()> nonce = rdma::RandomNonce;
};

// The server's side of the bargain, from Welcome and checked.
struct ServerTerms {
  uint64_t session = 0;
  uint64_t incarnation = 0;
  bool resumed = false;
  rdma::RemoteMemory region;
  uint32_t partitions = 1;
  uint32_t requests_max = 0;
  uint64_t value_bytes_max = 0;
  uint64_t eager_bytes_max = 0;  // key and value together
  // What its clock said after `asked_at` by ours, and before Welcome was here.
  absl::Time server_time;
  absl::Time asked_at;
  bool wants_hints = false;    // it evicts
  bool wants_reports = false;  // of our GETs (get_report.h)
};

class Connection {
 public:
  static constexpr absl::Duration kAttemptMax() { return absl::Seconds(3); }
  static constexpr absl::Duration kQuietMax() { return absl::Seconds(1); }
  static constexpr absl::Duration kSilenceMax() { return absl::Seconds(3); }
  static constexpr absl::Duration kLeavingMax() { return absl::Milliseconds(500); }
  // Requests without an answer that we keep account of, whatever a server allows.
  static constexpr uint32_t kRequestsMax = 4096;
  // The word that the server READs to see that we live (rdma/wire.h, HelloBody).
  static constexpr uint64_t kLivenessBytes = 8;
  // The cookie of the READs that are posted here; the engine uses others.
  static constexpr uint64_t kCookie = 0;

  enum class State {
    kIdle,
    kConnecting,
    kGreeting,
    kMapping,
    kReady,
    kLeaving,
    kDraining,
    kBackoff,
    kClosed
  };
  // What the owner must act on.
  enum class Change {
    kNone,
    kReady,  // terms(), maps() and id() are good; the session is the owner's to begin or resume
    kLost,   // nothing of the connection is left: no READ is under way
  };

  // All must outlive this. `session` says what to resume; `liveness` is 8 bytes for the server to
  // READ.
  Connection(rdma::Transport& transport, const rdma::Memory& liveness, BufferPool& buffers,
             const Session& session, const ConnectionOptions& options);

  // Takes an event (null: time passes). Not for the owner's READs, nor for replies: those are told
  // by Heard.
  Change Advance(const rdma::Event* event, absl::Time now);
  // Something came from the server.
  void Heard(absl::Time now) {
    heard_at_ = now;
    // The READ that asks may stand behind others, which are slow and answer its question.
    if (probing_ && state_ == State::kReady) timer_ = now + kSilenceMax();
  }
  // Ends this connection; another is tried after a pause.
  void Fail(absl::Status why);
  // The server is about to end: the connection is left once the answers are in.
  void Leave(absl::Time now);
  // Ends it for good.
  void Close();

  State state() const { return state_; }
  bool ready() const { return state_ == State::kReady; }
  // READs that were posted may be believed, and replies.
  bool answers_count() const { return state_ == State::kReady || state_ == State::kLeaving; }
  rdma::ConnectionId id() const { return id_; }
  const std::string& uri() const { return options_.uri; }
  // REQUIRES for these three: ready() since the last kLost.
  const ServerTerms& terms() const { return terms_; }
  const rdma::ConnectionLimits& limits() const { return limits_; }
  PartitionMaps& maps() { return *maps_; }

  // Why the last attempt or connection failed. OK: none has.
  const absl::Status& last_error() const { return last_error_; }
  // Kept across reconnects: 0 until the first Welcome.
  uint64_t value_bytes_max() const { return terms_.value_bytes_max; }
  // What one append takes, key and value together; kept likewise. Before the first connection: what
  // any server takes.
  uint64_t append_bytes_max() const;
  uint64_t times_ready() const { return times_ready_; }
  // When Advance(nullptr) has something to do.
  absl::Time NextTimer() const;

 private:
  Change WhileConnecting(const rdma::Event& event, absl::Time now);
  Change WhileGreeting(const rdma::Event& event, absl::Time now);
  Change WhileMapping(const rdma::Event& event, absl::Time now);
  Change WhileReady(const rdma::Event& event, absl::Time now);
  Change Disconnected(const rdma::Event& event, absl::Time now);
  void Connect(absl::Time now);
  void Pause(absl::Time now);
  absl::Status SayHello(absl::Time now);
  // What comes before kMapping; true once that was the Welcome.
  absl::StatusOr<bool> TakeGreeting(rdma::Bytes frame);
  absl::Status TakeChallenge(rdma::Bytes frame);
  absl::Status TakeRefused(rdma::Bytes frame) const;
  absl::Status CheckProof(const rdma::FrameHeader& header, rdma::WelcomeBody body) const;
  absl::Status TakeWelcome(const rdma::FrameHeader& header, rdma::Bytes frame);
  absl::Status CheckTerms(const rdma::FrameHeader& header, const rdma::WelcomeBody& body);
  absl::Status PostRead(uint64_t offset, uint32_t length);
  void Watch(absl::Time now);

  rdma::Transport& transport_;
  const rdma::Memory& liveness_;
  BufferPool& buffers_;
  const Session& session_;
  const ConnectionOptions options_;
  std::minstd_rand random_;

  State state_ = State::kIdle;
  bool closing_ = false;
  rdma::ConnectionId id_ = rdma::ConnectionId::kNone;
  absl::Status last_error_;
  ServerTerms terms_;
  rdma::ConnectionLimits limits_;
  rdma::HelloBody hello_;                // as it was sent
  absl::optional<rdma::Nonces> nonces_;  // of the challenge that was answered
  std::unique_ptr<PartitionMaps> maps_;
  Buffer buffer_;  // for the maps' pages and the watching READs; kept
  index::ReadSpan map_read_;
  bool probing_ = false;
  int pauses_ = 0;  // since the last connection that lasted
  uint64_t times_ready_ = 0;
  absl::Time heard_at_ = absl::InfinitePast();
  absl::Time ready_at_ = absl::InfinitePast();
  absl::Time attempted_at_ = absl::InfiniteFuture();  // the attempt under way
  absl::Time timer_ =
      absl::InfinitePast();  // end of the attempt, the pause, the leaving; or of the probe
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_CONNECTION_H_
