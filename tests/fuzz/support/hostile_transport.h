// The client's end of a connection whose other end is the fuzzer: nothing comes over it but what
// the script sends, and READs bring what HostileRegion makes up. It is as strict as a device:
// whatever the engine posts or sends against the contract of rdma/transport.h ends the process. So
// does each READ outside of the attached region.
//
// With a view, it is as if the region were mapped (shm): what READs have brought is seen there, and
// zeros elsewhere. What ReadNow brings is made up each time.
//
//   HostileTransport* wire = …; the engine gets it, and Polls it
//   wire->Accept(limits); wire->Deliver(frame); wire->FinishReads(0, true); wire->End(status)
//   between the engine's Polls
//
// Thread rule: one thread.

#ifndef OSPREY_TESTS_FUZZ_SUPPORT_HOSTILE_TRANSPORT_H_
#define OSPREY_TESTS_FUZZ_SUPPORT_HOSTILE_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "rdma/transport.h"

namespace osprey::fuzz {

class HostileTransport : public rdma::Transport, private rdma::MappedReads {
 public:
  // Fills what a READ at so many bytes from the start of the attached region brings.
  using Reader = std::function<void(uint64_t offset, absl::Span<std::byte> bytes)>;
  explicit HostileTransport(Reader reader) : reader_(std::move(reader)) {}

  // --- The script's side.
  bool connecting() const { return state_ == State::kConnecting; }
  bool open() const { return state_ == State::kOpen; }
  // Frames that the engine has sent on this connection and the script has not taken.
  std::deque<std::string>& sent() { return sent_; }
  size_t batches() const { return batches_.size(); }
  uint64_t reads() const { return reads_; }  // ever posted

  void Accept(const rdma::ConnectionLimits& limits);
  void Deliver(std::string frame);
  // Ends the batch of READs of that number; not `ok`: as far as it got, and with it the connection.
  void FinishReads(size_t number, bool ok);
  // The connection breaks; READs that were posted end first, with failure.
  void End(absl::Status status);
  void LoseDevice() { device_lost_ = true; }
  void ReturnCredits() { credits_ = limits_.send_credits_max; }
  void set_attach_fails(bool fails) { attach_fails_ = fails; }
  void set_has_view(bool has) { has_view_ = has; }
  // The bytes that the peer would READ; null: the engine has not exposed them.
  const std::byte* Exposed(uint64_t address, uint64_t length, uint32_t key) const;

  // --- The engine's.
  absl::StatusOr<std::string> Listen(absl::string_view, uint64_t) override;
  absl::StatusOr<rdma::ConnectionId> Connect(absl::string_view uri, uint32_t affinity,
                                             uint16_t version) override;
  absl::Status Accept(rdma::ConnectionId) override;
  void Reject(rdma::ConnectionId, rdma::RejectReason) override {}
  absl::Status Migrate(rdma::ConnectionId, rdma::Transport&) override;
  absl::StatusOr<rdma::RemoteMemory> Expose(rdma::ConnectionId id,
                                            const rdma::Memory& memory) override;
  absl::StatusOr<rdma::RemoteMemory> Announce(rdma::ConnectionId id,
                                              const rdma::Memory& memory) override;
  void Withdraw(rdma::ConnectionId id, const rdma::Memory& memory) override;
  absl::Status Attach(rdma::ConnectionId id, const rdma::RemoteMemory& remote) override;
  absl::Status PostReads(rdma::ConnectionId id, absl::Span<const rdma::ReadRequest> reads,
                         uint64_t cookie) override;
  rdma::Bytes View(rdma::ConnectionId id, const rdma::RemoteMemory& remote) const override;
  absl::Status ReadNow(rdma::ConnectionId id, absl::Span<const rdma::ReadRequest> reads) override;
  rdma::MappedReads* mapped_reads() override { return this; }
  bool PollReads(ReadsDone& done) override;
  size_t ReadRoom(rdma::ConnectionId id) const override;
  absl::Status Send(rdma::ConnectionId id, absl::Span<const rdma::Bytes> pieces) override;
  size_t SendRoom(rdma::ConnectionId id) const override;
  void Disconnect(rdma::ConnectionId id) override;
  size_t Poll(absl::Span<rdma::Event> events) override;
  bool Arm() override { return true; }
  int fd() const override { return -1; }
  rdma::ConnectionLimits limits(rdma::ConnectionId id) const override;
  std::string Describe(rdma::ConnectionId) const override { return "transport=hostile"; }
  Resources resources() const override { return {}; }

 private:
  enum class State { kNone, kConnecting, kOpen, kClosing };
  struct Batch {
    std::vector<rdma::ReadRequest> reads;
    uint64_t cookie = 0;
  };
  bool IsOpen(rdma::ConnectionId id) const { return state_ == State::kOpen && id == id_; }
  void FlushReads();
  void CheckRead(const rdma::ReadRequest& read) const;
  void Land(const rdma::ReadRequest& read);

  const Reader reader_;
  State state_ = State::kNone;
  rdma::ConnectionId id_ = rdma::ConnectionId::kNone;
  uint64_t last_id_ = 0;
  rdma::ConnectionLimits limits_;
  size_t credits_ = 0;
  size_t reads_in_flight_ = 0;
  uint64_t reads_ = 0;
  bool attached_ = false;
  bool attach_fails_ = false;
  bool has_view_ = false;
  bool device_lost_ = false;
  rdma::RemoteMemory region_;
  std::vector<std::byte> view_;  // of all of region_; empty: none
  std::deque<Batch> batches_;
  std::deque<std::string> sent_;
  std::map<const rdma::Memory*, uint32_t> exposed_;  // keys
  uint32_t last_key_ = 0;
  std::deque<rdma::Event> events_;
  std::deque<std::string> frames_;                  // of events_
  std::vector<std::unique_ptr<std::string>> lent_;  // of the events of the last Poll
};

}  // namespace osprey::fuzz

#endif  // OSPREY_TESTS_FUZZ_SUPPORT_HOSTILE_TRANSPORT_H_
