// The READs of one client that are under way, whatever they are for: what a completion is of, and
// when there was progress.
//
// READs of a connection end in the order in which they were posted. So the end of any READ is
// progress for all.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_READ_READS_IN_FLIGHT_H_
#define OSPREY_CLIENT_READ_READS_IN_FLIGHT_H_

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "rdma/transport.h"

namespace osprey::client {

// Where to READ from.
struct ReadSource {
  rdma::ConnectionId connection = rdma::ConnectionId::kNone;
  rdma::RemoteMemory region;
  uint32_t read_bytes_max = 0;
  // Of the connection's limit of READs, scans leave this many to GETs, and long values twice as many
  // to both. So neither blocks the operations that need few READs.
  size_t reads_left = 0;
};

// Polls for READs alone, before anything else is done: some us more than a READ takes.
inline constexpr int kReadPollsMax = 1024;

// Names a chain of READs.
struct ReadChainId {
  enum class User : uint8_t { kConnection = 0, kOperations, kBatch, kValue, kScan, kLease };
  User user = User::kConnection;
  uint32_t number = 0;

  // As the cookie of a completion.
  uint64_t Pack() const { return static_cast<uint64_t>(user) << 32 | number; }
  static ReadChainId Unpack(uint64_t cookie) {
    return {static_cast<User>(cookie >> 32), static_cast<uint32_t>(cookie)};
  }
};

class ReadsInFlight {
 public:
  explicit ReadsInFlight(rdma::Transport& transport) : transport_(transport) {}

  // READs that may be posted now.
  size_t Room(const ReadSource& source) const { return transport_.ReadRoom(source.connection); }
  // Posts a chain. Errors: those of Transport::PostReads.
  absl::Status Post(const ReadSource& source, absl::Span<const rdma::ReadRequest> chain,
                    ReadChainId id, absl::Time now) {
    absl::Status status = transport_.PostReads(source.connection, chain, id.Pack());
    if (status.ok() && count_++ == 0) progress_at_ = now;
    return status;
  }
  // Posts one READ as a chain, and polls until it has ended, as `done` tells, or is still under way
  // after kReadPollsMax. REQUIRES: no other READ is under way, and `done` is new.
  enum class Awaited { kNotPosted, kUnderWay, kEnded };
  Awaited PostAndAwait(const ReadSource& source, const rdma::ReadRequest& read, ReadChainId id,
                       absl::Time now, rdma::Transport::ReadsDone& done) {
    assert(count_ == 0);
    if (!transport_.PostReads(source.connection, {&read, 1}, id.Pack()).ok())
      return Awaited::kNotPosted;
    for (int polls = 0; polls < kReadPollsMax; ++polls) {
      if (transport_.PollReads(done)) return Awaited::kEnded;
    }
    count_ = 1;
    progress_at_ = now;
    return Awaited::kUnderWay;
  }
  // A chain of Post has ended, successfully or not. (The connection's own READs are not counted here.)
  void Ended(ReadChainId id, absl::Time now) {
    progress_at_ = now;
    if (id.user == ReadChainId::User::kConnection) return;
    assert(count_ > 0);
    --count_;
  }

  // Chains under way.
  size_t count() const { return count_; }
  // When the last READ ended, or the first of those under way was posted; InfiniteFuture: none is.
  absl::Time StuckSince() const { return count_ == 0 ? absl::InfiniteFuture() : progress_at_; }

 private:
  rdma::Transport& transport_;
  size_t count_ = 0;
  absl::Time progress_at_ = absl::InfinitePast();
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_READS_IN_FLIGHT_H_
