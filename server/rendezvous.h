// A PUT whose value does not fit into a frame: the server READs it from the client's memory.
//
//   client                  server
//   Put {source, hash}  -->  Begin: Reserve a span that no reader can reach
//                       <--  Post: READ, READ, ... straight into the span, one chain at a time
//                            OnReadsLanded: hash what came
//                            Finish: the promised XXH3 (W6)? Publish, else give the space back
//                       <--  Reply
//
// The span must not be given back while a READ may still land in it: destroy a Rendezvous only when
// reading() is false. (Every batch ends with kReadsDone, also when its connection dies.)
//
// Thread rule: the table's thread.

#ifndef OSPREY_SERVER_RENDEZVOUS_H_
#define OSPREY_SERVER_RENDEZVOUS_H_

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "index/table.h"
#include "rdma/protocol.h"
#include "rdma/transport.h"
#include "server/requests.h"

namespace osprey::server {

// The longest READ of a rendezvous: long enough that its round trip does not matter, short enough
// that others' frames get between (1 MiB takes 80 us at 100 Gbit/s).
inline constexpr uint64_t kPieceBytesMax = uint64_t{1} << 20;
// READs in one chain. What has landed is hashed between chains, so this bounds a turn as well (8
// MiB: about 1 ms).
inline constexpr size_t kPiecesPerBatch = 8;

class Rendezvous {
 public:
  // Makes room for the value. REQUIRES: request.body.rendezvous; `table` outlives this.
  // Errors: INVALID_ARGUMENT (too long), RESOURCE_EXHAUSTED (the region is full).
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Begin(index::Table& table,
                                                           const rdma::PutRequest& request,
                                                           uint64_t sequence,
                                                           uint64_t value_bytes_max,
                                                           absl::Time now);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Posts the next READs, at most `room` of them, with the sequence as cookie; returns how many
  // (none while a chain is under way, or when all has landed). `region` is the registered memory of
  // the table.
  absl::StatusOr<size_t> Post(rdma::Transport& transport, rdma::ConnectionId id,
                              const rdma::Memory& region, size_t room);
  // The chain ended well.
  void OnReadsLanded();
  // The chain failed: there will be no value.
  void OnReadsFailed() { posted_ = hashed_; }

  // Verifies and publishes. REQUIRES: landed(). DATA_LOSS when the bytes are not the promised ones.
  Answer Finish(absl::Time now);

  uint64_t sequence() const { return sequence_; }
  uint64_t value_length() const { return reservation_.value().size(); }
  bool reading() const { return posted_ != hashed_; }
  bool landed() const { return hashed_ == value_length(); }

 private:
  struct FreeHash {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };

  Rendezvous(index::Table& table, index::Reservation reservation, const rdma::PutBody& body,
             uint64_t sequence);

  index::Table& table_;
  index::Reservation reservation_;
  const rdma::PutBody body_;
  const uint64_t sequence_;
  uint64_t posted_ = 0;  // bytes of the value that are or were asked for
  uint64_t hashed_ = 0;  // bytes that have landed, and are in hash_
  std::unique_ptr<XXH3_state_t, FreeHash> hash_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_RENDEZVOUS_H_
