// A server engine on the fake transport, and clients that communicate with it frame by frame.
//
//   ServerHarness server;
//   RawClient client(server);
//   client.Establish();                         // connects, Hello, Welcome
//   Reply reply = client.Ask(client.PutFrame(1, "key", "value"));
//
// Time changes only by Advance. Nothing is random. One thread.

#ifndef OSPREY_TESTS_SERVER_SERVER_HARNESS_H_
#define OSPREY_TESTS_SERVER_SERVER_HARNESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "index/writer/table.h"
#include "rdma/authentication.h"
#include "rdma/reasons.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"
#include "server/engine/engine.h"
#include "server/engine/pollers.h"
#include "server/requests/tables.h"
#include "server/requests/write_log.h"
#include "tests/support/transports/fake_transport.h"

namespace osprey::server {

inline constexpr char kServerUri[] = "rdma://server:7411";
inline constexpr char kSecondUri[] = "rdma://server:7412";  // HarnessOptions::two_ports
inline constexpr uint64_t kIncarnation = 0xABCDEF;

class RawClient;

// A value of so many bytes in which all pieces differ.
std::string Large(size_t bytes, char first = 'a');

// The frame of a PUT, with a time to live.
std::string WithTtl(std::string put_frame, uint64_t ttl_ns);

struct HarnessOptions {
  size_t region_bytes = 16 << 20;
  size_t connections_max = 8;
  uint64_t value_bytes_max = 1 << 20;
  uint64_t incarnation = kIncarnation;
  std::optional<uint64_t> cas_version;  // as TableOptions
  uint32_t partitions = 1;
  bool evict = false;
  rdma::AuthKey::Pointer key;  // null: no authentication
  Admission* admission = nullptr;
  uint32_t pollers = 1;
  bool two_ports = false;             // of each poller
  ClientGets* client_gets = nullptr;  // requests reports from clients
  bool times_puts = false;            // as EngineOptions
  uint64_t data_id = 0;
  uint32_t shards = 1, shard = 0;
  WriteLog* write_log = nullptr;            // of a server with a data directory …
  std::function<absl::Time()> group_clock;  // … that lets requests share syncs (EngineOptions)
  std::vector<PartitionChanges*> changes;   // … with the changes of each partition
  std::function<void(uint64_t)> session_begun, session_ended;
  std::function<bool()> may_answer;  // as EngineOptions
  // Likewise; not empty: it only tells them.
  std::function<std::string()> servers_to_tell;
  fake::NetworkOptions network;
};

class ServerHarness {
 public:
  explicit ServerHarness(const HarnessOptions& options = {});
  ~ServerHarness();

  // Destroys the engines, but not the tables: all connections break.
  void EndEngines() { engines_.clear(); }
  // New engines of the same tables, which listen. REQUIRES: there are none.
  void BeginEngines();

  // One turn of the engine and of every client.
  bool Turn();
  // A turn of every client alone. True if something came.
  bool PollClients();
  // Turns until nothing happens any more. Bounded: the test fails if it does not settle.
  void Settle();
  // Advances the time in steps, with turns between.
  void Advance(absl::Duration duration, absl::Duration step = absl::Milliseconds(50));
  // Lets time pass, without a turn.
  void PassTime(absl::Duration duration) { now_ += duration; }
  // Likewise, and takes some turns. Unlike after Advance there may be work left: a long write for
  // which something is evicted looks for room in each turn.
  void Wait(absl::Duration duration) {
    PassTime(duration);
    for (int turn = 0; turn < 20; ++turn) Turn();
  }

  Engine& engine(size_t poller = 0) { return *engines_[poller]; }
  const Counters& counters(size_t poller = 0) const { return engines_[poller]->counters(); }
  Tables& tables() { return *tables_; }
  // The tables' memory.
  absl::Span<const std::byte> region() const { return {region_->data(), region_->size()}; }
  // The first table, the only one by default. One thread, so without a lock.
  index::Table& table() { return *tables_->Lock(0); }
  fake::Network& network() { return network_; }
  rdma::Domain& client_domain() { return *client_domain_; }
  absl::Time now() const { return now_; }
  // The clock by which keys expire; by default now().
  void set_clock(std::function<absl::Time()> clock) { clock_ = std::move(clock); }
  uint64_t closed(CloseReason reason) const {
    return counters().connections_closed[static_cast<size_t>(reason)];
  }
  // The stored value, if any.
  std::optional<std::string> Stored(absl::string_view key);
  std::vector<std::string>& log() { return log_; }
  // Called when a line is logged.
  void set_on_log(std::function<void()> on_log) { on_log_ = std::move(on_log); }

 private:
  friend class RawClient;

  const HarnessOptions options_;
  fake::Network network_;
  std::unique_ptr<rdma::Domain> server_domain_, client_domain_;
  std::unique_ptr<rdma::Memory> region_, scratch_;
  std::vector<std::string> log_;
  std::function<void()> on_log_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  std::function<absl::Time()> clock_;
  uint64_t last_session_ = 0x5E5500;
  std::unique_ptr<Tables> tables_;
  std::unique_ptr<Pollers> pollers_;
  std::vector<std::unique_ptr<Engine>> engines_;  // by poller
  std::vector<RawClient*> clients_;
};

// The reply to a request.
struct RawReply {
  uint64_t sequence = 0;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  Reason reason = Reason::kNone;
  rdma::ReplyBody body;
  std::string data;
};

class RawClient {
 public:
  explicit RawClient(ServerHarness& server, const rdma::TransportOptions& options = {});
  ~RawClient();

  // Starts to connect; `connected` after a Settle.
  void Connect(uint32_t affinity = 0, absl::string_view uri = kServerUri);
  // Sends Hello.
  void Hello(uint64_t resume_session = 0, uint64_t resume_incarnation = 0,
             uint64_t resume_data_id = 0);
  // Sends the response to the challenge that came, made with `key`.
  void Respond(const rdma::AuthKey& key);
  std::string ResponseFrame(const rdma::AuthKey& key) const;
  // The shard of the next Hello, and the number of shards.
  void set_shard(uint32_t shard, uint32_t shards) { shard_ = shard, shards_ = shards; }
  // All steps until the Welcome, with a server without a key.
  void Establish(uint64_t resume_session = 0, uint64_t resume_incarnation = kIncarnation,
                 uint64_t resume_data_id = 0);
  // Abandons the connection, and ignores its later events.
  void Send(absl::string_view frame);
  // Sends and returns the reply. The test fails if none comes.
  RawReply Ask(absl::string_view frame);
  // The next reply that came, if any.
  std::optional<RawReply> TakeReply();

  std::string PutFrame(uint64_t sequence, absl::string_view key, absl::string_view value) const;
  std::string PutIfFrame(uint64_t sequence, absl::string_view key, absl::string_view value,
                         rdma::WireCondition condition, uint64_t version) const;
  // The value stays in this client's memory until the next call.
  std::string RendezvousFrame(uint64_t sequence, absl::string_view key, absl::string_view value);
  std::string DeleteFrame(uint64_t sequence, absl::string_view key, uint64_t if_version = 0) const;
  std::string IncrementFrame(uint64_t sequence, absl::string_view key, int64_t by,
                             uint64_t if_version = 0) const;
  std::string AppendFrame(uint64_t sequence, absl::string_view key, absl::string_view value,
                          uint64_t if_version = 0) const;
  std::string GetFrame(uint64_t sequence, absl::string_view key, bool want_value = true) const;
  // `ttl_ns`: 0: forever.
  std::string ExpireFrame(uint64_t sequence, absl::string_view key, uint64_t ttl_ns,
                          uint64_t if_version = 0) const;
  std::string FlushFrame(uint64_t sequence, const rdma::FlushBody& body) const;
  std::string HintsFrame(const std::vector<uint64_t>& hints, uint64_t sequence = 0) const;
  std::string BatchFrame(const std::vector<std::string>& frames) const;
  std::string EmptyFrame(rdma::Opcode opcode, uint64_t sequence) const;

  // READs from the region, as a client does. Empty if it failed.
  std::string Read(uint64_t offset, uint32_t bytes);

  bool connected() const { return connected_; }
  bool disconnected() const { return disconnected_.has_value(); }
  const absl::Status& why_disconnected() const { return *disconnected_; }
  bool got_disconnect_notice() const { return got_disconnect_notice_; }
  // What came in it, and with which session.
  const rdma::ElsewhereBody& elsewhere() const { return elsewhere_; }
  const std::string& servers() const { return servers_; }
  uint64_t cluster() const { return cluster_; }
  // Frames with replies that came after it.
  uint64_t reply_frames_after_notice() const { return reply_frames_after_notice_; }
  bool welcomed() const { return welcome_.has_value(); }
  const rdma::WelcomeBody& welcome() const { return *welcome_; }
  bool challenged() const { return challenge_.has_value(); }
  // The server's nonce is that of the last challenge, the client's is this client's own.
  const rdma::Nonces& nonces() const { return nonces_; }
  const rdma::HelloBody& hello() const { return hello_; }  // as it was sent last
  // The reason of the server's refusal, if any.
  std::optional<Reason> refused() const { return refused_; }
  uint64_t session() const { return session_; }
  rdma::ConnectionId id() const { return id_; }
  rdma::Transport& transport() { return *transport_; }
  std::byte* value_memory() { return value_->data(); }
  // Stops polling: the client takes no frames and returns no credits.
  void set_asleep(bool asleep) { asleep_ = asleep; }
  size_t replies() const { return replies_.size(); }
  // Frames that brought replies, since Connect.
  size_t reply_frames() const { return reply_frames_; }

 private:
  friend class ServerHarness;

  bool Poll();
  void Take(rdma::Bytes frame);
  void TakeReply(const rdma::FrameHeader& header, rdma::Bytes frame);

  ServerHarness& server_;
  std::unique_ptr<rdma::Memory> liveness_, value_, sink_;
  std::unique_ptr<rdma::Transport> transport_;
  rdma::ConnectionId id_ = rdma::ConnectionId::kNone;
  bool connected_ = false;
  bool got_disconnect_notice_ = false;
  uint64_t reply_frames_after_notice_ = 0;
  bool asleep_ = false;
  std::optional<absl::Status> disconnected_;
  std::optional<absl::Status> read_;
  std::optional<rdma::WelcomeBody> welcome_;
  std::optional<rdma::ChallengeBody> challenge_;
  std::optional<Reason> refused_;
  rdma::ElsewhereBody elsewhere_;
  std::string servers_;
  uint64_t cluster_ = 0;
  uint32_t shard_ = 0, shards_ = 0;
  rdma::HelloBody hello_;
  rdma::Nonces nonces_;
  uint64_t session_ = 0;
  rdma::RemoteMemory value_remote_;
  std::deque<RawReply> replies_;
  size_t reply_frames_ = 0;
};

}  // namespace osprey::server

#endif  // OSPREY_TESTS_SERVER_SERVER_HARNESS_H_
