// The contract of every transport. The tests of transport_contract_*_test.cc run against each
// result of NewContractFixture. They assume nothing to be immediate: they wait for every effect,
// with a bound.

#ifndef OSPREY_TESTS_RDMA_TRANSPORT_CONTRACT_H_
#define OSPREY_TESTS_RDMA_TRANSPORT_CONTRACT_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "rdma/handshake.h"
#include "rdma/host_memory.h"
#include "rdma/transport.h"

namespace osprey::rdma {

// One way to reach one transport: shm, or verbs by IPv4, or by IPv6.
class ContractFixture {
 public:
  virtual ~ContractFixture() = default;
  // A domain with protocol version `version`.
  virtual absl::StatusOr<std::unique_ptr<Domain>> OpenDomain(uint16_t version) = 0;
  // An address to listen at, different at each call (or port 0).
  virtual std::string ListenUri() = 0;
  // An address without a listener.
  virtual std::string DeadUri() = 0;
};

// The names of the ways, each an instance of every test; and the way of a name. Defined once in
// each binary.
std::vector<std::string> ContractWays();
std::unique_ptr<ContractFixture> NewContractFixture(const std::string& way);

// The timeout of every single step: the lab's machine is emulated.
constexpr absl::Duration kContractPatience = absl::Seconds(30);

struct Recorded {
  Event::Kind kind;
  ConnectionId id;
  uint64_t cookie;
  std::string frame;
  absl::Status status;
  std::string text;
  std::string source;
  uint32_t affinity;
};

// One end: a domain, a transport, and all its events. It also checks rules that hold for every
// connection. kConnected comes before the first frame; kDisconnected comes once and last; each
// batch of READs completes once and before it.
class Side {
 public:
  explicit Side(ContractFixture& fixture, const TransportOptions& options = {},
                uint16_t version = kProtocolVersion);
  // Another transport of the same domain, for a server's second thread.
  explicit Side(Side& beside);

  Transport& transport() { return *transport_; }
  Domain& domain() { return *domain_; }
  // Polls once, for at most `events_max` events, and records them.
  void Pump(size_t events_max = 16);
  // Posts READs, and records that a completion is due.
  absl::Status Post(ConnectionId id, absl::Span<const ReadRequest> reads, uint64_t cookie);
  absl::Status Send(ConnectionId id, const std::string& frame);
  void DestroyTransport() { transport_.reset(); }

  const std::vector<Recorded>& events() const { return events_; }
  // The first event of that kind (and connection) or null.
  const Recorded* Find(Event::Kind kind, ConnectionId id = ConnectionId::kNone) const;
  // The frames received over `id`, in order.
  std::vector<std::string> Frames(ConnectionId id) const;
  // The completion of that cookie, or null.
  const Recorded* Done(uint64_t cookie) const;
  void Forget() { events_.clear(); }

 private:
  void Check(const Event& event);

  std::shared_ptr<Domain> domain_;
  std::unique_ptr<Transport> transport_;
  std::vector<Recorded> events_;
  std::set<ConnectionId> connected_;
  std::set<ConnectionId> ended_;
  std::multiset<std::pair<ConnectionId, uint64_t>> posted_;
};

// Pumps all `sides` until `done` or the timeout; true if done.
bool Until(const std::vector<Side*>& sides, const std::function<bool()>& done,
           absl::Duration patience = kContractPatience);

class TransportContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { fixture_ = NewContractFixture(GetParam()); }

  // Listens at a new address; the URI for clients.
  std::string Listen(Side& server);
  struct Ids {
    ConnectionId server = ConnectionId::kNone;
    ConnectionId client = ConnectionId::kNone;
  };
  // Connects and accepts; both sides have had kConnected.
  Ids Join(Side& server, Side& client, const std::string& uri);
  // Connects up to the server's kConnectRequest.
  Ids Request(Side& server, Side& client, const std::string& uri);
  // Exposes `memory` of `from` to the other end and attaches it there.
  RemoteMemory Share(Side& from, ConnectionId from_id, Side& to, ConnectionId to_id,
                     const Memory& memory);
  // READs `length` bytes at `offset` of `remote` to the start of `into` and waits for them.
  absl::Status ReadNow(Side& reader, ConnectionId id, const RemoteMemory& remote, uint64_t offset,
                       uint32_t length, const Memory& into, const std::vector<Side*>& sides);

  std::unique_ptr<ContractFixture> fixture_;
  uint64_t next_cookie_ = 1000;
};

std::unique_ptr<Memory> Allocate(Side& side, size_t bytes, Access access);
// Bytes that differ everywhere, derived from `seed`.
void Fill(const Memory& memory, uint64_t seed);
// Open descriptors of this process.
size_t OpenDescriptors();

// A copy of this program that plays one end in a process of its own, to be killed. See ChildMain.
class Child {
 public:
  // `role` is "server" or "client". The server listens at `uri`, accepts all connections, and
  // exposes a page full of 'A' to a client that sends "expose". The client connects to `uri` and
  // sends "hello".
  Child(const std::string& way, const std::string& role, const std::string& uri);
  ~Child();
  // The first line of the child's output: the server's URI.
  std::string FirstLine();
  void Kill();

 private:
  int pid_ = -1;
  int output_ = -1;
};

}  // namespace osprey::rdma

#endif  // OSPREY_TESTS_RDMA_TRANSPORT_CONTRACT_H_
