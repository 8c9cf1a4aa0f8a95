// The steps of one GET with their times, for people (Client::TraceGet). Only GETs that are started
// for it have one. Others pay nothing for it.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_READ_GET_TRACE_H_
#define OSPREY_CLIENT_READ_GET_TRACE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/client.h"
#include "index/reader/lookup.h"

namespace osprey::client {

class GetTrace {
 public:
  // `steps` outlives it; `clock` is that of ClientEngine::Poll's time. It begins now.
  GetTrace(std::function<absl::Time()> clock, std::vector<TraceStep>& steps)
      : clock_(std::move(clock)), begun_(clock_()), steps_(steps) {}
  absl::Time Now() const { return clock_(); }
  GetTrace(const GetTrace&) = delete;
  GetTrace& operator=(const GetTrace&) = delete;

  struct KeyPlace {
    uint64_t hash = 0;
    uint32_t partition = 0;
    uint64_t partition_offset = 0;  // in the region
  };
  // Of a server in a cluster: since the last READ of its record was posted, and until the lease ends.
  struct LeaseTimes {
    absl::Duration since_read;
    absl::Duration left;
  };
  // A lookup begins. The answer of the location cache comes with its first READ.
  void Begins(const KeyPlace& key, absl::optional<LeaseTimes> lease);
  // There is no lease: a GET by message follows.
  void BeginsByMessage();
  // A READ, before it is examined.
  struct Read {
    index::ReadSpan span;  // of the region
    absl::string_view of;  // Lookup::Reading
    absl::Time posted;
    absl::Time landed;
    uint64_t hint = 0;               // the slot with which the lookup began, or 0
    index::LookupCounters counters;  // of the lookup
  };
  // It has led to `step` of `lookup`.
  void Landed(const Read& read, const index::Lookup::Step& step, const index::Lookup& lookup);
  // All pieces of a long value have landed.
  void Fetched(uint64_t bytes, const index::Lookup::Step& step);
  // The READs found something, but no lease covers it.
  void Uncovered();
  void Pauses(int attempt, bool asks);
  void Asks();
  void Restarts();
  void Ends(const absl::StatusOr<Value>& answer, bool by_message);

 private:
  void Add(std::string what, std::string detail) {
    AddAt(clock_(), std::move(what), std::move(detail));
  }
  void AddAt(absl::Time at, std::string what, std::string detail) {
    steps_.push_back({at - begun_, std::move(what), std::move(detail)});
  }

  const std::function<absl::Time()> clock_;
  const absl::Time begun_;
  std::vector<TraceStep>& steps_;
  KeyPlace key_;
  bool looks_into_cache_ = false;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_GET_TRACE_H_
