// A PUT whose value does not fit a frame: the server READs it from the client's memory.
//
//   client                  server
//   Put {source, hash}  -->  Reserve a span that no reader can reach
//                       <--  Post: READ, READ, … straight into the span, each piece on its own
//                            OnPieceLanded: hash and log it; the next READ takes its place
//                            Finish: the promised XXH3 (W6)? Publish, otherwise free the span
//                            Apply, if the log has to be synced before
//                       <--  Reply
//
// So READs are always on the wire, in parallel with hashing. The span must not be freed while a
// READ may still land in it: destroy a Rendezvous only when reading() is false. (Every READ ends
// with kReadsDone, also when its connection dies.)
//
// Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_REQUESTS_RENDEZVOUS_H_
#define OSPREY_SERVER_REQUESTS_RENDEZVOUS_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "index/layout/hash.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"
#include "server/requests/requests.h"
#include "server/requests/tables.h"
#include "server/requests/two_step_writes.h"
#include "server/requests/write_log.h"

namespace osprey::server {

// The longest READ of a rendezvous. It is so long that its round trip does not matter. It is short
// enough to be copied or hashed in some 25 us, and lets frames of other clients in between. A
// client with a slow line (32 KiB/s) completes one before it counts as silent.
inline constexpr uint64_t kPieceBytesMax = 128 << 10;
// The limit of READs of one rendezvous in flight: 1 MiB, which takes 80 us at 100 Gbit/s. More
// makes turns longer. In the lab 64 MiB were put beside a client that writes small values. They
// took 0.9 to 1.5 s, and that client's 99th percentile was 13 to 27 ms. With 16 of 256 KiB it was 1.4 to
// 2.7 s and 27 to 78 ms.
inline constexpr size_t kPiecesInFlightMax = 8;

class Rendezvous {
 public:
  // Reserves no memory yet. `number` (not 0, below 2^56) distinguishes its READs from others on the
  // connection. REQUIRES: request.body.rendezvous; `tables` outlives this.
  Rendezvous(TableAccess& tables, const rdma::PutRequest& request, uint64_t sequence,
             uint64_t number, absl::Time received);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Reserves memory for the value, and space in the log. REQUIRES: !reserved(). False: not yet, but
  // memory is being freed; try again in a later turn, from room_retry_at() on. Errors:
  // RESOURCE_EXHAUSTED (the region is full). If the log has no space, Finish has the refusal.
  absl::StatusOr<bool> Reserve(absl::Time now);
  absl::Time room_retry_at() const { return room_awaited_.retry_at(); }
  bool reserved() const { return space_.valid(); }

  // Posts the next READs, at most `room` of them; returns their number. `region` is the registered
  // memory of the table. REQUIRES: reserved(). Errors: those of Transport::PostReads.
  absl::StatusOr<size_t> Post(rdma::Transport& transport, rdma::ConnectionId id,
                              const rdma::Memory& region, size_t room);
  // The number of the rendezvous of a READ with this cookie.
  static uint64_t NumberOf(uint64_t cookie) { return cookie >> kCookieBits; }
  // The READ with this cookie succeeded, or failed: then there will be no value.
  void OnPieceLanded(uint64_t cookie);
  void OnPieceFailed() { --reading_; }
  // The transport is gone, and its READs with it.
  void Abandon() { reading_ = 0; }
  // It will not be published, unless it is decided().
  void GiveUp() {
    if (upload_ != nullptr && !decided()) upload_->GiveUp();
  }

  // Verifies and publishes, or says why the log did not take the value. REQUIRES: landed(), not
  // decided(). DATA_LOSS if the bytes are not the promised ones. None: it is decided() now, and Apply
  // follows a Commit; or else another write of the key is pending, or some of the value is still to be
  // logged: again from finish_retry_at() on.
  absl::optional<Answer> Finish(absl::Time now);
  absl::Time finish_retry_at() const { return finish_retry_at_; }
  bool decided() const { return decision_.has_value(); }
  // REQUIRES: decided(), and the decision is durable. Nothing else follows.
  Answer Apply(absl::Time now);

  uint64_t sequence() const { return sequence_; }
  uint64_t number() const { return number_; }
  absl::Time received() const { return received_; }
  uint64_t value_length() const { return body_.value_length; }
  bool reading() const { return reading_ > 0; }
  // All bytes are there, or the log takes no more of them and no READ is in flight.
  bool landed() const {
    return reserved() && (hashed_ == value_length() || (!log_status_.ok() && !reading()));
  }
  // No READ is in flight, since the disk is behind: Post again after kUploadStep.
  bool awaits_disk() const { return upload_ != nullptr && !reading() && !landed(); }

 private:
  static constexpr int kCookieBits = 8;  // of the piece's place in landed_
  static_assert(kPiecesInFlightMax <= 1 << kCookieBits);

  uint64_t PieceLength(uint64_t offset) const;
  bool LogRest(absl::Time now);

  TableAccess& tables_;
  const rdma::PutBody body_;
  const std::string key_;
  const uint64_t sequence_;
  const uint64_t number_;
  const absl::Time received_;
  TableSpace space_;
  RoomAwaited room_awaited_;
  uint64_t piece_bytes_ = 0;
  // Offsets in the value, at the start of a piece or its end. [hashed_, posted_) is on its way, or
  // has landed before earlier bytes.
  uint64_t posted_ = 0;
  uint64_t hashed_ = 0;
  size_t reading_ = 0;                      // READs that have not ended
  std::bitset<kPiecesInFlightMax> landed_;  // by the piece's number, modulo
  index::BytesHasher hasher_;               // of the value alone
  std::unique_ptr<ValueUpload>
      upload_;               // null: the value is logged when it is published, if at all
  absl::Status log_status_;  // of the log's last answer
  absl::Time finish_retry_at_ = absl::InfinitePast();
  absl::optional<Decision> decision_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_REQUESTS_RENDEZVOUS_H_
