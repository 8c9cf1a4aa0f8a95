// Until when a client may answer from what it READs of a server in a cluster. A frozen or deposed
// server's memory still answers READs; and no server keeps a list of its clients.
//
//   ReaderLease lease;
//   GETs are to be posted:
//     if (lease.WantsRead(now)) { post a READ of the ServingRecord beside them; lease.ReadPosted(now); }
//     if (lease.WantsRequest(now)) { send a request for a lease; lease.RequestSent(now); }
//   READs have landed, and the clock was read after that:
//     lease.TakeRecord(state, posted, landed);
//     if (lease.Covers(shard, begun, landed)) answer
//     else a GET by message
//
//   beats        b          b+1         b+2
//   server  ─────┼───c──s────┼───c──s────┼───c──s───     c: now + L <= right?   s: store
//                      b+1 ─┘     └─ b+2: after the READ at t
//   client     READ at t: b                  READ: b+2    ==> what completes before t + L is current
//
// A READ that was posted at t, and found beat b, proves that b + 1 was stored after t. The check of
// b + 2 comes after that store: at that time, later than t, the right had more than L left. A server
// that hands a shard over waits as long after it has said so, under another loss revision. Hence:
//
// - *Two beats.* With one more beat instead, the check may be older than t: a server can be stopped
//   for minutes between its check and its store.
// - *From the posting.* Else the time that the READ took is added to the lease.
// - *One revision.* Both beats are of one incarnation and loss revision. Else the server may have
//   lost the shard after the first.
// - *Shorter.* The lease is counted as a tenth shorter than L (rdma/lease_time.h).
// - *Named before.* A GET begins after the record that names its shard has landed. Else its READ may
//   have come before the server became the primary, when its memory was a backup's.
//
// A reply to a request that was sent at t gives the same lease at once (ServingBeat::Grant).
//
// An instant that a lease covers stays covered, also after the lease has ended: READs that are in
// flight meanwhile, or land late, are judged by when they completed.
//
// Times are of one clock, the client's lease clock. A clock read before a READ is posted may be old;
// one after it has landed may not: not one that was read before the completion was polled.
//
// Thread rule: one thread. One object for a connection (R7).

#ifndef OSPREY_CLIENT_LEASE_READER_LEASE_H_
#define OSPREY_CLIENT_LEASE_READER_LEASE_H_

#include <array>
#include <cstdint>

#include "absl/time/time.h"
#include "index/layout/partitions.h"
#include "index/layout/serving_record.h"
#include "rdma/lease_time.h"

namespace osprey::client {

class ReaderLease {
 public:
  // What a READ of the record found. `posted`: a clock read before it was posted; `landed`: after it
  // has completed. Records of an earlier loss revision are ignored.
  void TakeRecord(const index::ServingState& state, absl::Time posted, absl::Time landed);
  // What a reply says with which the server grants a lease. `sent`: before the request was sent.
  void TakeGrant(const index::ServingState& state, absl::Time sent, absl::Time received);
  // The connection is gone: there is no lease, and nothing is known of the server.
  void Drop() { *this = ReaderLease(); }

  // Whether an answer of this shard may be given. `begun`: a clock read before the first READ that it
  // rests on was posted. `landed`: one after the last has completed; for a long item, after its head
  // has.
  bool Covers(uint32_t shard, absl::Time begun, absl::Time landed) const {
    return landed < until_ && state_.Serves(shard) && begun > named_[shard];
  }

  // READs that complete before are covered. InfinitePast: none.
  absl::Time until() const { return until_; }

  // Whether a READ of the record, or a request for a lease, shall go out with GETs that begin now. If
  // there is always a GET, the READs alone keep the lease: one in each interval of beats. A request
  // is for the first GETs, and for those after a pause as long as a lease. ReadPosted of the same
  // instant may come before or after WantsRequest.
  bool WantsRead(absl::Time now) const { return now >= NextRead(); }
  bool WantsRequest(absl::Time now) const;
  // When WantsRead begins.
  absl::Time NextRead() const { return read_at_ + kBeatInterval(); }
  void ReadPosted(absl::Time now) { read_at_ = now; }
  void RequestSent(absl::Time now) { requested_at_ = now; }

 private:
  // The newest posting of a READ that found this beat. A lease follows once a beat is seen that is
  // two higher.
  struct Posting {
    uint64_t beat = 0;
    absl::Time posted = absl::InfinitePast();
  };

  // Whether the state is of the present incarnation and loss revision, which may begin with it.
  bool Adopt(const index::ServingState& state, absl::Time landed);
  void SeeBeat(uint64_t beat);
  void Extend(absl::Time from);

  // The newest of its revisions; its beat is the highest.
  index::ServingState state_;
  absl::Time until_ = absl::InfinitePast();
  // Of the highest beat and the one before, at beat % 2. Those before have become leases.
  std::array<Posting, 2> postings_;
  // When the record had landed that named the shard first; if the state has it.
  std::array<absl::Time, index::kPartitionsMax> named_ = {};
  absl::Time read_at_ = absl::InfinitePast();
  absl::Time requested_at_ = absl::InfinitePast();
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_LEASE_READER_LEASE_H_
