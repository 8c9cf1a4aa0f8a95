// The connection to one server at a time. It connects, greets, reads the map, watches the server,
// and reconnects after a loss. With several addresses it tries the next after each failure
// (server_addresses.h).
//
//             kConnected          Welcome           last page           DisconnectNotice
//   kConnecting -----> kGreeting -----> kMapping ----------> kReady -----------> kLeaving
//     ^     |              |               |                    |                    |
//     |     +--------------+---------------+------- Fail -------+--------------------+
//   Connect                                |                       answers in, or too late
//     |                  kDisconnected     v
//   kIdle, kBackoff <----------------- kDraining
//
// kDisconnected may come in every state and leads to kBackoff, or to kClosed once Close was called.
// With several addresses it leads to kIdle until all were tried. In kGreeting a server that does not
// serve shard 0 may add addresses: those of its cluster's other servers.
//
//   kConnecting and kGreeting together last kAttemptMax at most; in kMapping each READ does. With
//              several addresses it is kAttemptMaxOfMany: a host that is gone does not answer.
//   kGreeting  With a key: the client answers the server's challenge, and accepts its Welcome only
//              if it proves that the server has the key, too. Until then the client exposes no
//              memory to the server.
//   kReady     No message for kQuietMax: a READ of the region header, which does not wake the
//              server. Not back within kSilenceMax: Fail.
//              In a cluster: a READ of the server's beat every kQuietMax. If it is that of the last
//              READ, the server is stopped, or has lost its right to serve: Fail.
//   kLeaving   The server is about to end: nothing new is posted. Operations under way are awaited
//              for kLeavingMax.
//   kDraining  The transport is disconnecting; READs posted before are still ending.
//
// Every input of the server is checked before it is used: Welcome here, replies in the engine, and
// all that is READ in index::DirectoryCache, index::Lookup and index::Scan.
//
// Thread rule: one thread. No clock: time is an argument.

#ifndef OSPREY_CLIENT_ENGINE_CONNECTION_H_
#define OSPREY_CLIENT_ENGINE_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/common/buffer_pool.h"
#include "client/engine/greeting.h"
#include "client/engine/server_addresses.h"
#include "client/engine/session.h"
#include "client/read/partition_maps.h"
#include "rdma/backoff.h"
#include "rdma/handshake.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"

namespace osprey::client {

class ServerConnection {
 public:
  static constexpr absl::Duration kAttemptMax() { return absl::Seconds(3); }
  static constexpr absl::Duration kAttemptMaxOfMany() { return absl::Seconds(1); }
  static constexpr absl::Duration kQuietMax() { return absl::Seconds(1); }
  static constexpr absl::Duration kSilenceMax() { return absl::Seconds(3); }
  static constexpr absl::Duration kLeavingMax() { return absl::Milliseconds(500); }
  // The word that the server READs to detect that the client is alive (rdma/wire/wire.h,
  // HelloBody).
  static constexpr uint64_t kLivenessBytes = 8;

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
  // What the owner must react to.
  enum class Change {
    kNone,
    kReady,  // terms(), maps() and id() are valid; the owner begins or resumes the session
    kLost,   // nothing of the connection is left: no READ is under way
  };

  // All must outlive this. `session` is the session to resume; `liveness` is 8 bytes for the server
  // to READ; `uris` are those of options.uri, at least one.
  ServerConnection(rdma::Transport& transport, const rdma::Memory& liveness, BufferPool& buffers,
                   const Session& session, const ConnectionOptions& options,
                   std::vector<std::string> uris);

  // Takes an event (null: time passes). Not for the owner's READs and replies, reported by
  // `NoteActivity`.
  Change Advance(const rdma::Event* event, absl::Time now);
  // A READ of its own is under way, which asks whether the server lives.
  bool probing() const { return probing_; }
  // Activity of the server.
  void NoteActivity(absl::Time now) {
    heard_at_ = now;
    // The probing READ may be behind slow ones, whose completion answers its question.
    if (probing_ && state_ == State::kReady) timer_ = now + kSilenceMax();
  }
  // Ends this connection; the next attempt follows after a pause.
  void Fail(absl::Status why);
  // The server is about to end: the client leaves the connection once the answers are in.
  void Leave(absl::Time now);
  // Ends it for good.
  void Close();

  State state() const { return state_; }
  bool ready() const { return state_ == State::kReady; }
  // Completed READs, and replies, may be accepted.
  bool answers_count() const { return state_ == State::kReady || state_ == State::kLeaving; }
  rdma::ConnectionId id() const { return id_; }
  // The address of this connection or attempt, or of the next one; and all addresses.
  const std::string& uri() const { return addresses_.present(); }
  const std::string& uris() const { return options_.uri; }
  uint32_t shard() const { return options_.shard; }
  // REQUIRES for these three: ready() since the last kLost.
  const ServerTerms& terms() const { return greeting_.terms(); }
  const rdma::ConnectionLimits& limits() const { return limits_; }
  PartitionMaps& maps() { return *maps_; }

  // Why the last attempt or connection failed; with several addresses, why each did
  // (ServerAddresses::error). OK: no failure yet.
  const absl::Status& last_error() const { return addresses_.error(); }
  // Kept across reconnects: 0 until the first Welcome.
  uint64_t value_bytes_max() const { return terms().value_bytes_max; }
  // The limit of one append, key and value together; also kept across reconnects. Before the first
  // connection: the limit that all servers share.
  uint64_t append_bytes_max() const;
  uint64_t times_ready() const { return times_ready_; }
  // When Advance(nullptr) has work to do.
  absl::Time NextTimer() const;

 private:
  Change WhileConnecting(const rdma::Event& event, absl::Time now);
  Change WhileGreeting(const rdma::Event& event, absl::Time now);
  Change WhileMapping(const rdma::Event& event, absl::Time now);
  Change WhileReady(const rdma::Event& event, absl::Time now);
  Change Disconnected(const rdma::Event& event, absl::Time now);
  void Connect(absl::Time now);
  void TakeLearned();
  void AttemptEnded(absl::Time now);
  absl::Duration attempt_max() const {
    return addresses_.count() == 1 ? kAttemptMax() : kAttemptMaxOfMany();
  }
  absl::Status TakeCluster();
  void TakeElsewhere();
  absl::Status BeginMapping();
  absl::Status PostRead(uint64_t offset, uint32_t length);
  void Watch(absl::Time now);
  void EndWatch(absl::Time now);
  // When a ready connection's server is asked next whether it lives.
  absl::Time WatchAt() const {
    return (terms().in_cluster ? watched_at_ : heard_at_) + kQuietMax();
  }

  rdma::Transport& transport_;
  BufferPool& buffers_;
  const Session& session_;
  const ConnectionOptions options_;
  ServerAddresses addresses_;
  rdma::VersionOffer offer_;                      // of the present attempt
  absl::Time ready_at_ = absl::InfiniteFuture();  // the present connection became ready
  uint64_t learned_revision_ = 0;                 // of options_.servers
  Greeting greeting_;
  rdma::Backoff backoff_;

  State state_ = State::kIdle;
  bool closing_ = false;
  rdma::ConnectionId id_ = rdma::ConnectionId::kNone;
  rdma::ConnectionLimits limits_;
  std::unique_ptr<PartitionMaps> maps_;
  uint64_t beat_ = 0;  // that was READ last; 0: none
  Buffer buffer_;      // for the maps' pages and the watching READs; kept
  index::ReadSpan map_read_;
  bool probing_ = false;
  uint64_t times_ready_ = 0;
  absl::Time heard_at_ = absl::InfinitePast();
  absl::Time watched_at_ = absl::InfinitePast();  // in a cluster: the beat was READ
  // End of the attempt, the pause, the leaving; or of the probe.
  absl::Time timer_ = absl::InfinitePast();
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_CONNECTION_H_
