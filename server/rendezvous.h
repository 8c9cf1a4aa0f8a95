// A PUT whose value does not fit into a frame: the server READs it from the client's memory.
//
//   client                  server
//   Put {source, hash}  -->  Reserve a span that no reader can reach
//                       <--  Post: READ, READ, … straight into the span, each piece on its own
//                            OnPieceLanded: hash what came; the next READ takes its place
//                            Finish: the promised XXH3 (W6)? Publish, else give the space back
//                       <--  Reply
//
// So READs are on the wire all the time, and hashing goes on beside them. The span must not be
// given back while a READ may still land in it: destroy a Rendezvous only when reading() is false.
// (Every READ ends with kReadsDone, also when its connection dies.)
//
// Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_RENDEZVOUS_H_
#define OSPREY_SERVER_RENDEZVOUS_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "index/hash.h"
#include "rdma/protocol.h"
#include "rdma/transport.h"
#include "server/requests.h"

namespace osprey::server {

// The longest READ of a rendezvous. Long enough that its round trip does not matter; short enough
// that one is copied or hashed in some 25 us, that others' frames get between, and that a client
// with a slow line (32 KiB/s) is heard of before it counts as silent.
inline constexpr uint64_t kPieceBytesMax = 128 << 10;
// READs of one rendezvous on their way at once: 1 MiB, what 100 Gbit/s bring in 80 us. More makes
// turns longer: in the lab, 64 MiB beside a client that writes small values took 0.9 to 1.5 s and
// its 99th percentile was 13 to 27 ms; with 16 of 256 KiB, 1.4 to 2.7 s and 27 to 78 ms.
inline constexpr size_t kPiecesInFlightMax = 8;

class Rendezvous {
 public:
  // Takes no space yet. `number` (not 0, below 2^56) tells its READs from those of others on the
  // connection. REQUIRES: request.body.rendezvous; `tables` outlives this.
  Rendezvous(TableAccess& tables, const rdma::PutRequest& request, uint64_t sequence,
             uint64_t number);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Makes room for the value. REQUIRES: !reserved(). False: not yet, but room is being made; to be
  // tried again in a later turn, from room_retry_at() on. Errors: RESOURCE_EXHAUSTED (the region is
  // full).
  absl::StatusOr<bool> Reserve(absl::Time now);
  absl::Time room_retry_at() const { return room_awaited_.retry_at(); }
  bool reserved() const { return space_.valid(); }

  // Posts the next READs, at most `room` of them; returns how many. `region` is the registered
  // memory of the table. REQUIRES: reserved(). Errors: Transport::PostReads'.
  absl::StatusOr<size_t> Post(rdma::Transport& transport, rdma::ConnectionId id,
                              const rdma::Memory& region, size_t room);
  // Which rendezvous the READs with this cookie belong to.
  static uint64_t NumberOf(uint64_t cookie) { return cookie >> kCookieBits; }
  // The READ with this cookie ended well, or failed: then there will be no value.
  void OnPieceLanded(uint64_t cookie);
  void OnPieceFailed() { --reading_; }
  // The transport is gone, and its READs with it.
  void Abandon() { reading_ = 0; }

  // Verifies and publishes. REQUIRES: landed(). DATA_LOSS when the bytes are not the promised ones.
  Answer Finish(absl::Time now);

  uint64_t sequence() const { return sequence_; }
  uint64_t number() const { return number_; }
  uint64_t value_length() const { return body_.value_length; }
  bool reading() const { return reading_ > 0; }
  bool landed() const { return reserved() && hashed_ == value_length(); }

 private:
  static constexpr int kCookieBits = 8;  // of the piece's place in landed_
  static_assert(kPiecesInFlightMax <= 1 << kCookieBits);

  uint64_t PieceLength(uint64_t offset) const;

  TableAccess& tables_;
  const rdma::PutBody body_;
  const std::string key_;
  const uint64_t sequence_;
  const uint64_t number_;
  TableSpace space_;
  RoomAwaited room_awaited_;
  uint64_t piece_bytes_ = 0;
  // Offsets in the value, at the start of a piece or its end: [hashed_, posted_) is on its way or
  // has landed before what is in front of it.
  uint64_t posted_ = 0;
  uint64_t hashed_ = 0;
  size_t reading_ = 0;                      // READs that have not ended
  std::bitset<kPiecesInFlightMax> landed_;  // by the piece's number, modulo
  index::BytesHasher hasher_;               // of the value alone
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_RENDEZVOUS_H_
