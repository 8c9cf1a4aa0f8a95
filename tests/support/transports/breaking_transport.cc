#include "tests/support/transports/breaking_transport.h"

#include <utility>

namespace osprey {
namespace {

using rdma::ConnectionId;
using rdma::Event;

class BreakingTransport : public rdma::Transport {
 public:
  BreakingTransport(std::unique_ptr<rdma::Transport> inner, Breaker& breaker)
      : inner_(std::move(inner)), breaker_(breaker) {}

  absl::Status PostReads(ConnectionId id, absl::Span<const rdma::ReadRequest> reads,
                         uint64_t cookie) override {
    const Step step(*this, id);
    return inner_->PostReads(id, reads, cookie);
  }
  absl::Status Send(ConnectionId id, absl::Span<const rdma::Bytes> pieces) override {
    const Step step(*this, id);
    return inner_->Send(id, pieces);
  }

  bool PollReads(ReadsDone& done) override {
    if (!inner_->PollReads(done)) return false;
    const Step step(*this, done.connection);
    // Chains always end.
    if (done.connection == broken_) done.status = absl::UnavailableError("broken by the test");
    return true;
  }
  size_t Poll(absl::Span<Event> events) override {
    const size_t count = inner_->Poll(events);
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
      Event& event = events[i];
      if (event.kind == Event::Kind::kReceived || event.kind == Event::Kind::kReadsDone) {
        const Step step(*this, event.connection);
        if (event.connection == broken_) {
          if (event.kind == Event::Kind::kReceived) continue;  // lost
          // Chains always end.
          event.status = absl::UnavailableError("broken by the test");
        }
      }
      if (kept != i) events[kept] = std::move(event);
      ++kept;
    }
    return kept;
  }

  absl::StatusOr<std::string> Listen(absl::string_view uri, uint64_t incarnation) override {
    return inner_->Listen(uri, incarnation);
  }
  absl::StatusOr<ConnectionId> Connect(absl::string_view uri, uint32_t affinity = 0,
                                       uint16_t version = 0) override {
    return inner_->Connect(uri, affinity, version);
  }
  absl::Status Accept(ConnectionId id) override { return inner_->Accept(id); }
  void Reject(ConnectionId id, rdma::RejectReason reason) override { inner_->Reject(id, reason); }
  absl::Status Migrate(ConnectionId id, rdma::Transport& other) override {
    return inner_->Migrate(id, *static_cast<BreakingTransport&>(other).inner_);
  }
  absl::StatusOr<rdma::RemoteMemory> Announce(ConnectionId id,
                                              const rdma::Memory& memory) override {
    return inner_->Announce(id, memory);
  }
  absl::StatusOr<rdma::RemoteMemory> Expose(ConnectionId id, const rdma::Memory& memory) override {
    return inner_->Expose(id, memory);
  }
  void Withdraw(ConnectionId id, const rdma::Memory& memory) override {
    inner_->Withdraw(id, memory);
  }
  absl::Status Attach(ConnectionId id, const rdma::RemoteMemory& remote) override {
    const Step step(*this, id);
    return inner_->Attach(id, remote);
  }
  size_t ReadRoom(ConnectionId id) const override { return inner_->ReadRoom(id); }
  size_t SendRoom(ConnectionId id) const override { return inner_->SendRoom(id); }
  void Disconnect(ConnectionId id) override { inner_->Disconnect(id); }
  bool Arm() override { return inner_->Arm(); }
  int fd() const override { return inner_->fd(); }
  rdma::ConnectionLimits limits(ConnectionId id) const override { return inner_->limits(id); }
  std::string Describe(ConnectionId id) const override { return inner_->Describe(id); }
  Resources resources() const override { return inner_->resources(); }

 private:
  // The connection breaks when the step begins, or when it has been made.
  class Step {
   public:
    Step(BreakingTransport& transport, ConnectionId id) : transport_(transport), id_(id) {
      Breaker& breaker = transport_.breaker_;
      breaks_ = ++breaker.steps == breaker.break_at;
      if (breaks_ && breaker.when == Breaker::When::kBefore) {
        transport_.broken_ = id;  // its later events are dropped
        Break();
      }
    }
    ~Step() {
      if (breaks_ && transport_.breaker_.when == Breaker::When::kAfter) Break();
    }

   private:
    void Break() {
      Breaker& breaker = transport_.breaker_;
      breaker.broke = true;
      if (breaker.again) breaker.break_at = breaker.steps + breaker.again();
      transport_.inner_->Disconnect(id_);
    }
    BreakingTransport& transport_;
    const ConnectionId id_;
    bool breaks_;
  };

  const std::unique_ptr<rdma::Transport> inner_;
  Breaker& breaker_;
  ConnectionId broken_ = ConnectionId::kNone;
};

}  // namespace

std::unique_ptr<rdma::Transport> NewBreakingTransport(std::unique_ptr<rdma::Transport> inner,
                                                      Breaker& breaker) {
  return std::make_unique<BreakingTransport>(std::move(inner), breaker);
}

}  // namespace osprey
