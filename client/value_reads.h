// The READs of long values: in pieces, several of each value in flight, every piece with a
// completion of its own, so that one is hashed while the next are on the wire.
//
// A piece lands in a buffer of the engine, from which it is copied behind the others; or, when the
// user asked for the value in registered memory, where it is to be (no copy). The first kind may be
// abandoned at any time: the buffer stays with the piece until its READ has ended. The second may
// not: its operation is answered only when GetOperation::reads_in_user_memory() is 0 (R5).
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_VALUE_READS_H_
#define OSPREY_CLIENT_VALUE_READS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "client/buffer_pool.h"
#include "client/client.h"
#include "client/get_operation.h"
#include "client/operation.h"
#include "client/read_batches.h"
#include "rdma/transport.h"

namespace osprey::client {

class ValueReads {
 public:
  // Long against what a READ costs besides its bytes, short against a processor's second cache, in
  // which it is hashed and copied.
  static constexpr uint64_t kPieceBytes = 256 << 10;

  ValueReads(rdma::Transport& transport, BufferPool& buffers, Counters& counters)
      : transport_(transport), buffers_(buffers), counters_(counters) {}

  // Whether a completion with this cookie is of a piece; those of ReadBatches are small numbers.
  static bool Owns(uint64_t cookie) { return (cookie & kCookieBit) != 0; }

  enum class Posted {
    kYes,
    kNoBuffer,  // somebody waits for a buffer, and there can never be one
  };
  // Posts pieces of the values that `fetching` wants (all kFetching), in turn, as far as there is
  // room. The operations stay in the queue.
  Posted Post(const ReadBatches::Source& source, OperationQueue& fetching, absl::Time now);

  // The piece `cookie` has ended, well or not. The operation all of whose value is there now, or
  // which lost a piece; null: somebody goes on, or nobody waits for it any more.
  GetOperation* Done(uint64_t cookie, bool ok, absl::Time now);

  // The operation does not want its pieces any more. REQUIRES: it is kFetching.
  void Abandon(GetOperation& operation);

  // Pieces under way.
  size_t outstanding() const { return outstanding_; }
  // When the last of them was posted first or ended.
  absl::Time progress_at() const { return progress_at_; }

 private:
  static constexpr uint64_t kCookieBit = uint64_t{1} << 62;
  // Posted in one call: over shm posting is copying, and a Poll is to be short.
  static constexpr int kPiecesPerPostMax = 8;

  struct Piece {
    GetOperation* operation = nullptr;
    bool wanted = false;  // else only its end is awaited
    bool landed = false;
    Buffer buffer;  // not valid() when it lands in the user's memory
    std::byte* data = nullptr;
    uint32_t length = 0;
  };

  enum class Outcome { kPosted, kNoRoom, kNoBuffer };
  Outcome PostPiece(const ReadBatches::Source& source, GetOperation& operation, absl::Time now);
  uint32_t NewPiece();
  void Free(uint32_t number);

  rdma::Transport& transport_;
  BufferPool& buffers_;
  Counters& counters_;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> free_;  // of pieces_
  size_t outstanding_ = 0;
  absl::Time progress_at_ = absl::InfinitePast();
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_VALUE_READS_H_
