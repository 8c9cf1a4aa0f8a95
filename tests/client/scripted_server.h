// A server on the fake transport whose every answer a test decides. By default it accepts, welcomes
// and answers as a real server does.
//
// It is no second server: tests of a real one's behaviour (sessions, repeated writes) use
// //server/engine. This one serves to be silent, late, forgetful or hostile.

#ifndef OSPREY_TESTS_CLIENT_SCRIPTED_SERVER_H_
#define OSPREY_TESTS_CLIENT_SCRIPTED_SERVER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "index/writer/table.h"
#include "rdma/authentication.h"
#include "rdma/transport.h"
#include "rdma/wire/batch.h"
#include "rdma/wire/protocol.h"
#include "tests/support/transports/fake_transport.h"

namespace osprey {

class ScriptedServer {
 public:
  static constexpr size_t kRegionBytes = 8 << 20;
  // One incarnation with empty tables, one for each partition. It listens at once.
  ScriptedServer(fake::Network& network, const std::string& uri, uint64_t incarnation,
                 size_t region_bytes = kRegionBytes, uint32_t partitions = 1);
  ~ScriptedServer();

  void Poll(absl::Time now);

  // --- Behaviour.
  bool accepts = true;   // connect requests
  bool welcomes = true;  // answers Hello
  bool answers = true;   // answers requests (pending ones are answered later)
  // Not null: answers Hello with a challenge, and proves in Welcome that it has this key. It
  // accepts any response.
  rdma::AuthKey::Pointer auth_key;
  rdma::Nonces
      nonces;  // of the last challenge and its response; the server's nonce is taken from here
  // Grants what Hello asks to resume, but does not remember the answers to writes.
  bool resumes = false;
  // The replies of one Poll go out together.
  bool batches_replies = false;
  uint64_t eager_bytes_max = 1024;
  uint32_t requests_max = 16;
  uint64_t value_bytes_max = 1 << 20;
  uint64_t get_reply_bytes_max = 1024;  // longer values: a slot and a lease
  // The replies to the next increments, appends and flushes, which it does not execute; OK when
  // none is left. The text belongs to the increments.
  std::deque<rdma::ReplyBody> scripted;
  std::string number = "1";
  // The answer to a question for servers; how often it was asked.
  std::string servers;
  int servers_asked = 0;
  // Not 0: it tells `servers` instead of a Welcome, as one of that cluster that does not serve shard 0.
  uint64_t elsewhere_of = 0;
  // Called before a Welcome (after its proof was made), or a reply, goes out.
  std::function<void(rdma::FrameHeader&, rdma::WelcomeBody&)> tamper_welcome;
  std::function<void(rdma::FrameHeader&, rdma::ReplyBody&)> tamper_reply;

  // Its clock; null: the time of the last Poll.
  std::function<absl::Time()> clock;
  absl::Time ServerTime() const { return clock ? clock() : polled_at_; }

  // --- Recorded input.
  int hellos = 0;
  rdma::HelloBody last_hello;
  int responses = 0;  // to challenges
  rdma::ResponseBody last_response;
  int frames = 0;                              // number of frames with requests
  std::vector<rdma::Opcode> requests;          // all that came, in order
  std::vector<uint64_t> sequences;             // of those
  std::vector<std::string> rendezvous_values;  // READ from the client and found to match their hash
  int rendezvous_mismatches = 0;
  std::vector<int64_t> increment_by;
  std::vector<std::string> appended;
  std::vector<rdma::FlushBody> flushes;
  std::vector<uint64_t> ttls_ns;             // of puts and expires
  std::vector<std::vector<uint64_t>> hints;  // a vector a message
  std::vector<size_t> requests_before_hints;
  std::vector<rdma::ReportBody> reports;

  // --- Actions of the test in its place.
  index::Table& table(size_t partition = 0) { return *tables_[partition]; }
  index::Table& TableOf(absl::string_view key);
  rdma::Transport& transport() { return *transport_; }
  rdma::ConnectionId connection() const { return connection_; }  // the one welcomed last
  absl::Span<std::byte> region() { return {region_->data(), region_->size()}; }
  void Send(absl::string_view frame);
  void SendDisconnectNotice();
  // Sends an unsolicited reply.
  void SendReply(uint64_t session, uint64_t sequence, const rdma::ReplyBody& body);
  uint64_t session() const { return session_; }
  size_t waiting() const { return waiting_.size(); }  // requests without an answer

 private:
  void OnEvent(const rdma::Event& event);
  void TakeRequest(rdma::FrameBytes frame);
  void Welcome();
  void TellServers();
  void Answer(const std::string& frame);
  void AnswerPut(const rdma::FrameHeader& header, const std::string& frame);
  void AnswerTouch(const rdma::FrameHeader& header, absl::string_view key);
  rdma::ReplyBody NextScripted();
  void AnswerGet(const rdma::FrameHeader& header, const std::string& frame);
  void Reply(const rdma::FrameHeader& to, rdma::ReplyBody body, absl::string_view data = "");
  void SendReplies();
  void ReplyToWrite(const rdma::FrameHeader& to, const index::WriteResult& result);

  std::unique_ptr<rdma::Domain> domain_;
  std::unique_ptr<rdma::Memory> region_;
  std::unique_ptr<rdma::Memory> scratch_;
  std::unique_ptr<rdma::Transport> transport_;
  std::vector<std::unique_ptr<index::Table>> tables_;
  const uint64_t incarnation_;
  absl::Time polled_at_ = absl::UnixEpoch();
  uint64_t last_session_ = 0;
  uint64_t session_ = 0;
  rdma::ConnectionId connection_ = rdma::ConnectionId::kNone;
  std::deque<std::string> waiting_;
  rdma::FrameBatch replies_{8192};
  std::string reading_;  // the rendezvous PUT whose value is being READ; empty: none
  std::vector<rdma::ConnectionId> asking_;  // unanswered connect requests
};

}  // namespace osprey

#endif  // OSPREY_TESTS_CLIENT_SCRIPTED_SERVER_H_
