// The READs of long values. A value is READ in pieces, several in flight, each with its own
// completion. So one is hashed while the next are on the wire.
//
// A piece lands in a buffer of the engine and is copied behind the others. For a value in the
// user's registered memory it lands in its final place (no copy). The first kind may be abandoned
// at any time: the buffer stays with the piece until its READ has ended. The second may not: its
// operation is answered only when GetOperation::reads_in_user_memory() is 0 (R5).
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_READ_VALUE_READS_H_
#define OSPREY_CLIENT_READ_VALUE_READS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "client/client.h"
#include "client/common/buffer_pool.h"
#include "client/common/operation.h"
#include "client/read/get_operation.h"
#include "client/read/reads_in_flight.h"
#include "rdma/transport.h"

namespace osprey::client {

class ValueReads {
 public:
  // Long compared to the fixed cost of a READ, short compared to a processor's second-level cache,
  // in which it is hashed and copied.
  static constexpr uint64_t kPieceBytes = 256 << 10;

  ValueReads(ReadsInFlight& reads, BufferPool& buffers, Counters& counters)
      : reads_(reads), buffers_(buffers), counters_(counters) {}

  enum class Posted {
    kYes,
    kNoBuffer,  // an operation waits for a buffer, and no buffer can ever be free
  };
  // Posts pieces of the values of `fetching` (all kFetching), in turn, as far as the limits allow.
  // The operations stay in the queue.
  Posted Post(const ReadSource& source, OperationQueue& fetching, absl::Time now);

  // Piece `number` has ended, successfully or not. Returns the operation whose value is
  // complete, or that lost a piece. Null: its operation continues, or was abandoned.
  GetOperation* Done(uint32_t number, bool ok);

  // The operation drops its pieces. REQUIRES: it is kFetching.
  void Abandon(GetOperation& operation);

 private:
  // The limit of one call: over shm posting is copying, and a Poll must be short.
  static constexpr int kPiecesPerPostMax = 8;

  struct Piece {
    GetOperation* operation = nullptr;
    bool wanted = false;  // false: the piece only awaits its end
    bool landed = false;
    Buffer buffer;  // not valid() if the piece lands in the user's memory
    std::byte* data = nullptr;
    uint32_t length = 0;
  };

  enum class Outcome { kPosted, kNoRoom, kNoBuffer };
  Outcome PostPiece(const ReadSource& source, GetOperation& operation, absl::Time now);
  uint32_t NewPiece();
  void Free(uint32_t number);

  ReadsInFlight& reads_;
  BufferPool& buffers_;
  Counters& counters_;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> free_;  // of pieces_
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_VALUE_READS_H_
