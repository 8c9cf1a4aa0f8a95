// A client of the server under test: it keeps what the server told it, and checks that the server
// may say so. What it sends is the script's business.

#ifndef OSPREY_TESTS_FUZZ_SUPPORT_SERVER_PEER_H_
#define OSPREY_TESTS_FUZZ_SUPPORT_SERVER_PEER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rdma/authentication.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"
#include "tests/support/transports/fake_transport.h"

namespace osprey::server {

inline constexpr char kUri[] = "rdma://server:7411";
inline constexpr uint64_t kDataId = 0xDA7A;       // of the server, where it has a data directory
inline constexpr size_t kSourceBytes = 96 << 10;  // of a hostile client's memory

// One client's end, whatever drives it.
class Peer {
 public:
  Peer(fake::Network& network, rdma::Domain& domain, bool server_has_key);

  void Connect(const rdma::TransportOptions& options, uint32_t affinity);
  void Leave() {
    if (transport_ != nullptr) transport_->Disconnect(id_);
  }
  bool gone() const { return transport_ == nullptr || disconnected_; }

  // Where the incarnation is 1, an earlier one, it names the data of kDataId.
  std::string HelloFrame(uint64_t resume_session, uint64_t resume_incarnation);
  std::string ResponseFrame(const rdma::AuthKey& key, bool right);
  bool Send(absl::string_view frame);

  void Poll();

  fake::Network& network_;
  const bool server_has_key_;
  rdma::Domain* domain_ = nullptr;
  std::unique_ptr<rdma::Memory> liveness_, source_;
  std::unique_ptr<rdma::Transport> transport_;
  rdma::ConnectionId id_ = rdma::ConnectionId::kNone;
  rdma::RemoteMemory source_remote_;
  rdma::HelloBody hello_;
  rdma::Nonces nonces_;
  uint64_t session_ = 0;
  uint64_t sequence_ = 0;  // the last that was sent
  bool connected_ = false, disconnected_ = false, welcomed_ = false, challenged_ = false,
       proved_ = false;
  bool asleep_ = false;
  uint64_t replies_ = 0;
  absl::StatusCode last_code_ = absl::StatusCode::kUnknown;

 private:
  void Take(rdma::Bytes frame);
};

}  // namespace osprey::server

#endif  // OSPREY_TESTS_FUZZ_SUPPORT_SERVER_PEER_H_
