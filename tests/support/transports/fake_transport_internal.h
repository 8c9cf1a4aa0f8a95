// The implementation of the fake transport, shared by its two sources. Tests include
// fake_transport.h.

#ifndef OSPREY_TESTS_SUPPORT_TRANSPORTS_FAKE_TRANSPORT_INTERNAL_H_
#define OSPREY_TESTS_SUPPORT_TRANSPORTS_FAKE_TRANSPORT_INTERNAL_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "rdma/transport.h"
#include "tests/support/transports/fake_transport.h"

namespace osprey::fake {

using rdma::Access;
using rdma::Bytes;
using rdma::ConnectionId;
using rdma::Event;
using rdma::Memory;
using rdma::ReadRequest;
using rdma::RejectReason;
using rdma::RemoteMemory;

// Remote addresses start at key << 40, far from this process's pointers.
inline constexpr int kAddressKeyShift = 40;

class FakeMemory final : public Memory {
 public:
  FakeMemory(Network* network, std::byte* data, size_t size, Access access, void* owned)
      : Memory(data, size),
        network_(network),
        key_(++network->last_key_),
        access_(access),
        owned_(owned) {
    network_->memories_[key_] = this;
  }
  ~FakeMemory() override {
    network_->memories_.erase(key_);
    ++network_->memories_gone_;
    std::free(owned_);
  }

  uint32_t key() const { return key_; }
  Access access() const { return access_; }
  uint64_t remote_address() const { return uint64_t{key_} << kAddressKeyShift; }

 private:
  Network* const network_;
  const uint32_t key_;
  const Access access_;
  void* const owned_;
};

// One end of a connection.
//
//   kRequested --Accept--> kOpen --Disconnect, Break, the peer--> kClosing --Poll--> (gone)
//   kConnecting --accepted--> kOpen
//   kRequested, kConnecting --Disconnect, Reject--> kClosing
struct End {
  enum class State { kRequested, kConnecting, kOpen, kClosing };
  struct Batch {
    std::vector<ReadRequest> reads;
    uint64_t cookie = 0;
  };

  ConnectionId id = ConnectionId::kNone;
  FakeTransport* transport = nullptr;
  ConnectionId peer = ConnectionId::kNone;
  State state = State::kConnecting;
  // The owner has this id: Connect returned it, or kConnectRequest was polled.
  bool announced = false;
  std::string uri;
  std::string peer_name;
  uint32_t affinity = 0;
  uint16_t version = 0;
  std::deque<std::string> inbox;  // frames
  bool connected_due = false;     // kConnected is still to be reported
  absl::Status close_status;
  std::deque<Batch> batches;
  size_t reads_posted = 0;
  std::set<uint32_t> exposed;  // keys that the peer may READ
  std::set<uint32_t> told_of;  // … and those announced or exposed
  uint16_t credits = 0;        // frames that we may send now
  uint16_t credits_max = 0;
  uint32_t frame_bytes_max = 0;
  bool cut = false;
  bool reads_held = false;
  bool frames_held = false;
  bool end_held = false;
  uint32_t haunted_key = 0;  // Network::Haunt; 0: not
  absl::Status fail_next_reads;

  bool MayReceive() const { return !inbox.empty() && (!frames_held || state == State::kClosing); }
  bool MayRead() const { return !batches.empty() && !reads_held && (!cut || haunted_key != 0); }
};

class FakeDomain final : public rdma::Domain {
 public:
  FakeDomain(Network* network, absl::string_view name) : network_(network), name_(name) {}

  absl::StatusOr<std::unique_ptr<Memory>> Register(rdma::HostMemory& memory,
                                                   Access access) override;
  absl::StatusOr<std::unique_ptr<Memory>> RegisterSpan(std::byte* data, size_t size,
                                                       Access access) override;
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(size_t bytes, Access access) override;
  absl::StatusOr<std::unique_ptr<rdma::Transport>> NewTransport(
      const rdma::TransportOptions& options) override;
  std::string Describe() const override { return absl::StrCat("transport=fake device=", name_); }

 private:
  Network* const network_;
  const std::string name_;
};

class FakeTransport final : public rdma::Transport, private rdma::MappedReads {
 public:
  FakeTransport(Network* network, std::string domain_name, const rdma::TransportOptions& options);
  ~FakeTransport() override;

  absl::StatusOr<std::string> Listen(absl::string_view uri, uint64_t incarnation) override;
  absl::StatusOr<ConnectionId> Connect(absl::string_view uri, uint32_t affinity = 0,
                                       uint16_t version = 0) override;
  absl::Status Accept(ConnectionId id) override;
  void Reject(ConnectionId id, RejectReason reason) override;
  absl::Status Migrate(ConnectionId id, rdma::Transport& other) override;
  absl::StatusOr<RemoteMemory> Expose(ConnectionId id, const Memory& memory) override;
  absl::StatusOr<RemoteMemory> Announce(ConnectionId id, const Memory& memory) override;
  void Withdraw(ConnectionId id, const Memory& memory) override;
  absl::Status Attach(ConnectionId id, const RemoteMemory& remote) override;
  absl::Status PostReads(ConnectionId id, absl::Span<const ReadRequest> reads,
                         uint64_t cookie) override;
  Bytes View(ConnectionId id, const RemoteMemory& remote) const override;
  absl::Status ReadNow(ConnectionId id, absl::Span<const ReadRequest> reads) override;
  MappedReads* mapped_reads() override;
  bool PollReads(ReadsDone& done) override;
  size_t ReadRoom(ConnectionId id) const override;
  absl::Status Send(ConnectionId id, absl::Span<const Bytes> pieces) override;
  size_t SendRoom(ConnectionId id) const override;
  void Disconnect(ConnectionId id) override;
  size_t Poll(absl::Span<Event> events) override;
  bool Arm() override;
  int fd() const override { return event_fd_; }
  rdma::ConnectionLimits limits(ConnectionId id) const override;
  std::string Describe(ConnectionId id) const override;
  Resources resources() const override;

  const std::string& domain_name() const { return domain_name_; }
  const rdma::TransportOptions& options() const { return options_; }
  void Wake();
  void LoseDevice() { device_lost_due_ = true, Wake(); }

 private:
  End* Own(ConnectionId id) const;
  End* OpenEnd(ConnectionId id) const;
  void CheckReads(absl::Span<const ReadRequest> reads) const;
  bool HasEvent(const End& end) const;
  bool NextReads(ConnectionId id, ReadsDone& done);
  bool NextEvent(End& end, Event& event);
  bool NextClosingEvent(End& end, Event& event);
  void ReturnCredits();

  Network* const network_;
  const std::string domain_name_;
  const rdma::TransportOptions options_;
  const int event_fd_;
  bool armed_ = false;
  bool device_lost_due_ = false;
  // Frames returned by the last Poll, and the senders that get credits back when they are freed.
  std::vector<std::unique_ptr<std::string>> lent_;
  std::vector<ConnectionId> lent_by_;
};

// Bytes that a READ fetches.
inline size_t ReadBytes(const ReadRequest& read) {
  size_t bytes = read.segments[0].length;
  if (read.segment_count == 2) bytes += read.segments[1].length;
  return bytes;
}

}  // namespace osprey::fake

#endif  // OSPREY_TESTS_SUPPORT_TRANSPORTS_FAKE_TRANSPORT_INTERNAL_H_
