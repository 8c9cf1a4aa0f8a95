// Statistics of GETs for a server that requests them, since it does not see GETs: their results
// and costs, and the latency of a sample.
//
// Counters are kept in any case. This object remembers the reported values, and the next report has
// the difference. A report that is lost with its connection is not repeated.
//
//   ClientGetStats report(counters, seed);
//   report.set_on(welcome.wants_reports);
//   if (report.TakesTime()) started = Now();  …  report.Lasted(Now() - started);
//   if (report.IsDue(now)) { Send(report.Next()); report.Told(now); }
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_ENGINE_CLIENT_GET_STATS_H_
#define OSPREY_CLIENT_ENGINE_CLIENT_GET_STATS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "client/client.h"
#include "client/common/random_stride.h"
#include "rdma/wire/wire.h"

namespace osprey::client {

class ClientGetStats {
 public:
  // Two clock reads, of some 20 ns each, for one GET of this many.
  static constexpr uint32_t kStride = 64;
  static constexpr absl::Duration kEvery() { return absl::Seconds(1); }

  // `counters` must outlive this.
  ClientGetStats(const Counters& counters, uint64_t seed)
      : counters_(counters), sample_(seed, kStride) {}

  // Off: nothing is timed or reported.
  void set_on(bool on) { on_ = on; }
  // Whether to time this GET.
  bool TakesTime() { return on_ && sample_.Hit(); }
  void Lasted(absl::Duration time);

  // There is something to report, and no report for kEvery.
  bool IsDue(absl::Time now) const { return on_ && now >= due_ && HasNews(); }
  bool HasNews() const { return on_ && counters_.gets != told_.gets; }
  // The counts since the last report, as far as they fit the message.
  rdma::ReportBody Next() const;
  // Next() was sent.
  void Told(absl::Time now);
  // Another server: discards what is not reported yet.
  void Forget();

 private:
  const Counters& counters_;
  bool on_ = false;
  RandomStride sample_;
  absl::Time due_ = absl::InfinitePast();
  Counters told_;           // the reported values
  rdma::ReportBody timed_;  // latencies; cleared with each report
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_CLIENT_GET_STATS_H_
