// What a server says in its region of the shards that it serves, and the beats that prove it to
// clients which READ.
//
//   ServingBeat beat(region, region_incarnation, incarnation);
//   beat.Gains(shards);                                  // once this server is their primary
//
//   if (beat.Check(now, {right.until()})) beat.Store();  // BeatThread, every kBeatInterval
//
//   beat.Loses(shards);                                  // hand-over: from now on no client gets a
//   wait AwaitedFor(kReaderLease());                     // lease on them; those that have one end
//
// A frozen or deposed server's memory still answers READs. So a client has a lease on what it READs
// (client/lease/reader_lease.h), which each beat prolongs. A beat says: after the beat before it was
// READable, this server had its right for the length of a lease. Hence:
//
// - A beat is stored only after a check that the lease ends before the right does.
// - That check comes after the store of the beat before. *Else* a client may see the beat before, and
//   its lease counts from a time after the check.
// - One check is for one beat. *Else* likewise.
// - The store takes the revision and the shards as they are, under the lock under which they change.
//   *Else* a thread that was stopped before its store names shards that were lost since.
//
// Time is an argument: that of the server's lease clock. Thread rule: Check and Store are one
// thread's, the others any thread's.

#ifndef OSPREY_SERVER_CLUSTER_BEAT_SERVING_BEAT_H_
#define OSPREY_SERVER_CLUSTER_BEAT_SERVING_BEAT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "index/layout/serving_record.h"
#include "index/writer/serving_record_writer.h"

namespace osprey {

// Until when this server may serve, by its lease clock.
struct ServingBounds {
  absl::Time right;                          // ServingRight::until
  absl::Time mark = absl::InfiniteFuture();  // up to which it may judge expiries

  absl::Time end() const { return std::min(right, mark); }
};

class ServingBeat {
 public:
  // As ServingRecordWriter. `incarnation` is that of the server's own key. It serves no shard yet.
  ServingBeat(absl::Span<std::byte> region, uint64_t region_incarnation, uint64_t incarnation);

  // --- The thread that beats.
  // Whether a lease that begins by now ends within the bounds. Then one Store may follow. `now`: a
  // clock read after the last Store returned.
  bool Check(absl::Time now, const ServingBounds& bounds);
  // Stores the next beat. Without a Check, or if the incarnation has changed since: nothing.
  void Store();

  // --- Any thread. A bit for each shard, as in ServingState::shards. When each returns, READs find
  // what it says.
  // From the return on no client gets a lease on `shards`. After AwaitedFor(kReaderLease()) none has
  // one, and another server may serve them. Clients lose their leases on the other shards, too, until
  // they have new ones.
  void Loses(uint64_t shards);
  // The server is the primary of `shards`, and its memory has all that their last primary
  // acknowledged. *Else* clients take what they READ there as current.
  void Gains(uint64_t shards);
  // The server's key is another: its incarnation, which is not 0, is new. It serves no shard.
  void TakeIncarnation(uint64_t incarnation);
  // The same lease, by a reply: what it says, if a lease that begins by now ends within the bounds.
  // `now`: a clock read after the request was received.
  absl::optional<index::ServingState> Grant(absl::Time now, const ServingBounds& bounds) const;
  index::ServingState state() const;

 private:
  static bool LeaseFits(absl::Time now, const ServingBounds& bounds);

  mutable std::mutex mutex_;  // guards all below
  index::ServingRecordWriter writer_;
  index::ServingState state_;
  bool checked_ = false;  // since the last Store
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_BEAT_SERVING_BEAT_H_
