// Whether what a client READs counts as an answer. From a server that is in no cluster it always
// does. From one that is, it counts under a lease (client/lease/reader_lease.h): a frozen or deposed
// server's memory still answers READs.
//
//   if (lease.Begin()) post READs, which begin at lease.Begun(); else a GET by message
//   lease.Advance(source, now)                    in each turn
//   lease.Arrived()                               READs have landed
//   if (lease.Covers(begun)) answer; else a GET by message
//
// Covers is the one check. No answer from READs is given without it:
//
//   get_batches.h     blocking GETs: before the bytes are examined
//   get_operation.h   hits and misses, once they are found; of a long value when its head has landed
//   shm_fast_path.h   hits in mapped memory
//   scans.h           each step, before its bytes are examined
//
// The lease is on the shard of the connection. *Else* keys are absent once the server's memory holds
// another shard. The lease is renewed while GETs begin and scans are under way: a READ of the serving
// record each beat. An idle client's lease ends. Its next GETs go by message, for some 0.1 s, and a
// scan waits for as long.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_READ_READ_LEASE_H_
#define OSPREY_CLIENT_READ_READ_LEASE_H_

#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "client/client.h"
#include "client/common/buffer_pool.h"
#include "client/lease/reader_lease.h"
#include "client/read/get_trace.h"
#include "client/read/reads_in_flight.h"

namespace osprey::client {

class ReadLease {
 public:
  // All must outlive this. `clock` is a lease clock (rdma/lease_clock.h), read only in a cluster.
  ReadLease(ReadsInFlight& reads, BufferPool& buffers, Counters& counters,
            std::function<absl::Time()> clock)
      : reads_(reads), buffers_(buffers), counters_(counters), clock_(std::move(clock)) {}

  // A connection is ready; `region_incarnation` is that of its partition 0.
  void OnReady(bool in_cluster, uint32_t shard, uint64_t region_incarnation);
  // It is gone, with all READs.
  void OnLost();
  // GETs or scans begin, or wait: Advance renews the lease. False: READs would not count now.
  bool Begin() {
    if (!in_cluster_) return true;
    renews_ = true;
    begun_ = now_;
    return now_ < lease_.until();
  }
  // When READs began that were posted since the last Begin, for Covers.
  absl::Time Begun() const { return begun_; }
  // READs have landed: the next Covers reads the clock again.
  void Arrived() { is_now_ = false; }
  // Whether what READs found counts. `begun`: Begun before the first of them was posted. All have
  // landed, and Arrived was called since.
  bool Covers(absl::Time begun) { return !in_cluster_ || IsCovered(begun); }
  // READs of a GET were not covered. It goes by message.
  void CountRefused() {
    ++counters_.uncovered_reads;
    ++counters_.unleased_gets;
  }

  bool in_cluster() const { return in_cluster_; }
  // Now. REQUIRES: in_cluster().
  GetTrace::LeaseTimes times() const;
  // In each turn, before other READs are posted: if Begin was called since the last READ of the
  // record, reads the clock, and then as PostRead. REQUIRES: in_cluster().
  void Advance(const ReadSource& source, absl::Time now) {
    if (!renews_) return;
    ReadClock();
    PostRead(source, now);
  }
  // Posts a READ of the record if one is due, and there is room for it. REQUIRES: in_cluster().
  void PostRead(const ReadSource& source, absl::Time now);
  // It has ended; `believe`: successfully.
  void Landed(bool believe);
  // Until the next READ of the record is due.
  absl::Duration UntilDue() const { return lease_.NextRead() - now_; }

 private:
  bool IsCovered(absl::Time begun);
  absl::Time ReadClock() { return now_ = clock_(); }

  ReadsInFlight& reads_;
  BufferPool& buffers_;
  Counters& counters_;
  const std::function<absl::Time()> clock_;

  bool in_cluster_ = false;
  uint32_t shard_ = 0;
  bool renews_ = false;
  bool is_now_ = false;                    // nothing has arrived since now_
  absl::Time now_ = absl::InfinitePast();  // the last reading of the clock
  absl::Time begun_ = absl::InfinitePast();
  ReaderLease lease_;
  uint64_t region_incarnation_ = 0;
  // The READ of the record.
  Buffer buffer_;  // kept
  bool is_reading_ = false;
  absl::Time posted_at_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_READ_LEASE_H_
