#include "tools/quickstart.d/catalog_job.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

// The interval of progress reports, in operations.
constexpr uint64_t kProgressEvery = 256;

using Clock = std::chrono::steady_clock;

uint64_t NanosSince(Clock::time_point start) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

absl::Status WithKey(const absl::Status& status, absl::string_view what, absl::string_view key) {
  return absl::Status(status.code(), absl::StrCat(what, " ", key, ": ", status.message()));
}

// Keeps `depth` operations in flight until all are done. `start(i)` starts the i-th operation,
// whose callback calls Ended.
class Pipeline {
 public:
  Pipeline(Client& client, uint64_t total, const JobOptions& options)
      : client_(client), total_(total), options_(options) {}

  void Ended(const absl::Status& status) {
    if (failure_.ok()) failure_ = status;
    ++ended_;
    if (options_.progress && ended_ % kProgressEvery == 0) options_.progress(ended_, total_);
  }

  absl::Status Run(const std::function<absl::Status(uint64_t)>& start) {
    uint64_t started = 0;
    while (ended_ < total_) {
      while (failure_.ok() && started < total_ &&
             started - ended_ < static_cast<uint64_t>(options_.depth)) {
        const absl::Status status = start(started);
        if (!status.ok()) {
          failure_ = status;
          break;
        }
        ++started;
      }
      if (!failure_.ok() && ended_ == started) break;
      // Every operation ends by its deadline, so this loop ends.
      const int ended_now = client_.Wait(kDeadlineMax() + absl::Seconds(10));
      assert(ended_now > 0 && "operations in flight end by their deadlines");
    }
    if (options_.progress) options_.progress(ended_, total_);
    return failure_;
  }

 private:
  Client& client_;
  const uint64_t total_;
  const JobOptions& options_;
  uint64_t ended_ = 0;
  absl::Status failure_;
};

// The stanzas of the sample: `count` of them, evenly spread.
uint64_t SampleAt(uint64_t nth, uint64_t count, uint64_t total) { return nth * total / count; }

struct Traffic {
  uint64_t read_bytes = 0;
  uint64_t reads = 0;
  bool operator<(const Traffic& other) const { return read_bytes < other.read_bytes; }
};

void SetMedian(std::vector<Traffic>& traffic, JobResult& result) {
  if (traffic.empty()) return;
  const auto middle = traffic.begin() + static_cast<ptrdiff_t>(traffic.size() / 2);
  std::nth_element(traffic.begin(), middle, traffic.end());
  result.median_get_read_bytes = middle->read_bytes;
  result.median_get_reads = middle->reads;
}

void CountTotals(absl::Span<const Stanza> stanzas, JobResult& result) {
  result.keys = stanzas.size();
  for (const Stanza& stanza : stanzas) result.bytes += stanza.value.size();
}

void CountWrong(const Stanza& stanza, uint64_t& counter, JobResult& result) {
  ++counter;
  if (result.first_wrong_key.empty()) result.first_wrong_key = stanza.key;
}

// Returns errors; absence and a wrong value are counted.
absl::Status Judge(const Stanza& stanza, const absl::StatusOr<Value>& value, JobResult& result) {
  if (absl::IsNotFound(value.status())) {
    CountWrong(stanza, result.missing, result);
    return absl::OkStatus();
  }
  if (!value.ok()) return WithKey(value.status(), "GET", stanza.key);
  if (value->bytes != stanza.value) CountWrong(stanza, result.different, result);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JobResult> PutAll(Client& client, absl::Span<const Stanza> stanzas,
                                 const JobOptions& options) {
  assert(options.depth > 0);
  JobResult result;
  CountTotals(stanzas, result);
  Pipeline pipeline(client, stanzas.size(), options);
  const Clock::time_point start = Clock::now();
  const absl::Status all = pipeline.Run([&](uint64_t i) {
    const Stanza& stanza = stanzas[i];
    return client.StartPut(stanza.key, stanza.value, {}, [&](absl::StatusOr<uint64_t> version) {
      pipeline.Ended(version.ok() ? absl::OkStatus()
                                  : WithKey(version.status(), "PUT", stanza.key));
    });
  });
  if (!all.ok()) return all;
  result.elapsed = absl::FromChrono(Clock::now() - start);

  const uint64_t samples = std::min<uint64_t>(options.samples, stanzas.size());
  for (uint64_t n = 0; n < samples; ++n) {
    const Stanza& stanza = stanzas[SampleAt(n, samples, stanzas.size())];
    const Clock::time_point put_start = Clock::now();
    const absl::StatusOr<uint64_t> version = client.Put(stanza.key, stanza.value);
    if (!version.ok()) return WithKey(version.status(), "PUT", stanza.key);
    result.latency_ns.Record(NanosSince(put_start));
  }
  return result;
}

absl::StatusOr<JobResult> VerifyAll(Client& client, absl::Span<const Stanza> stanzas,
                                    const JobOptions& options) {
  assert(options.depth > 0);
  JobResult result;
  CountTotals(stanzas, result);
  Pipeline pipeline(client, stanzas.size(), options);
  const Clock::time_point start = Clock::now();
  const absl::Status all = pipeline.Run([&](uint64_t i) {
    const Stanza& stanza = stanzas[i];
    return client.StartGet(stanza.key, [&](absl::StatusOr<Value> value) {
      pipeline.Ended(Judge(stanza, value, result));
    });
  });
  if (!all.ok()) return all;
  result.elapsed = absl::FromChrono(Clock::now() - start);

  const uint64_t samples = std::min<uint64_t>(options.samples, stanzas.size());
  std::vector<Traffic> traffic;
  for (uint64_t n = 0; n < samples; ++n) {
    const Stanza& stanza = stanzas[SampleAt(n, samples, stanzas.size())];
    const Counters before = client.counters();
    const Clock::time_point get_start = Clock::now();
    const absl::StatusOr<Value> value = client.Get(stanza.key);
    result.latency_ns.Record(NanosSince(get_start));
    const Counters& after = client.counters();
    traffic.push_back({after.read_bytes - before.read_bytes, after.reads - before.reads});
    if (absl::Status status = Judge(stanza, value, result); !status.ok()) return status;
  }
  SetMedian(traffic, result);
  return result;
}

}  // namespace osprey
