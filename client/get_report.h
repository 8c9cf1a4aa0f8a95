// What a server that wants to know is told of our GETs, since it does not see them: how they ended,
// what they took, and how long a sample of them lasted.
//
// Counts are kept anyway (Counters); what was told of them is remembered, and the next report has
// the difference. A report that is lost with its connection is not told again.
//
//   GetReport report(counters, seed);
//   report.set_on(welcome.wants_reports);
//   if (report.TakesTime()) started = Now();  …  report.Lasted(Now() - started);
//   if (report.IsDue(now)) { Send(report.Next()); report.Told(now); }
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_GET_REPORT_H_
#define OSPREY_CLIENT_GET_REPORT_H_

#include <cstdint>

#include "absl/time/time.h"
#include "client/client.h"
#include "client/random_stride.h"
#include "rdma/wire.h"

namespace osprey::client {

class GetReport {
 public:
  // A look at the clock takes some 20 ns, twice for each of one in so many.
  static constexpr uint32_t kStride = 64;
  static constexpr absl::Duration kEvery() { return absl::Seconds(1); }

  // `counters` must outlive this.
  GetReport(const Counters& counters, uint64_t seed)
      : counters_(counters), sample_(seed, kStride) {}

  // Off, nothing is timed, nor told.
  void set_on(bool on) { on_ = on; }
  // Whether it is to be told how long this GET lasts.
  bool TakesTime() { return on_ && sample_.Hit(); }
  void Lasted(absl::Duration time);

  // There is something to tell, and it was not done for kEvery.
  bool IsDue(absl::Time now) const { return on_ && now >= due_ && HasNews(); }
  bool HasNews() const { return on_ && counters_.gets != told_.gets; }
  // What was not told yet; as much of it as fits into the message's counts.
  rdma::ReportBody Next() const;
  // Next() was sent.
  void Told(absl::Time now);
  // What was not told is none of this server's business: it is another one.
  void Forget();

 private:
  const Counters& counters_;
  bool on_ = false;
  RandomStride sample_;
  absl::Time due_ = absl::InfinitePast();
  Counters told_;           // what they were, of those that are told
  rdma::ReportBody timed_;  // its latencies; told and forgotten
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_GET_REPORT_H_
