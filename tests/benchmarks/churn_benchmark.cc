// Utilisation of item space when sizes change. A stream of writes, many times the capacity, changes
// its mix of sizes again and again, in a store of bounded size.
//
//   bazel run -c opt //tests/benchmarks:churn_benchmark -- --subject=table --region_mib=1024
//
// Each phase draws four sizes, log-uniform between --size_min and --size_max, and writes about as
// many bytes of each. Three writes in ten replace an item, the others are new. --live_percent=N
// first erases random items, so that live bytes stay at N percent of the capacity. A write refused
// then is refused for fragmentation. With 0 it erases random items only after a write is refused,
// one by one, until it succeeds: the store is always as full as possible. Live bytes are the items'
// own: header, key and value, without rounding.

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <memory>
#include <random>
#include <vector>

#include "gflags/gflags.h"
#include "tests/benchmarks/churn_subjects.h"

DEFINE_string(subject, "table", "items, jemalloc or table");
DEFINE_uint64(region_mib, 512, "size of the region");
DEFINE_uint64(times, 20, "bytes written in all, in capacities");
DEFINE_double(phase, 0.5, "bytes written between two changes of the mix, in capacities");
DEFINE_uint64(size_min, 108, "smallest item, bytes, with its header of 32 and key of 12");
DEFINE_uint64(size_max, 4 << 20, "largest item, bytes");
DEFINE_uint64(live_percent, 0, "share of the capacity that is live; 0: as much as goes in");
DEFINE_uint64(seed, 1, "of the trace");

namespace osprey::index {
namespace {

// CPU time of this thread in microseconds; other programs do not count.
double CpuMicroseconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

// The sizes of the trace.
class Mix {
 public:
  explicit Mix(std::mt19937_64& random) : random_(random) {}
  void Change() {
    double weights = 0;
    for (size_t i = 0; i < kSizes; ++i) {
      const double low = std::log(static_cast<double>(FLAGS_size_min));
      const double high = std::log(static_cast<double>(FLAGS_size_max));
      sizes_[i] = std::exp(low + (high - low) * Unit());
      weights += 1 / sizes_[i];
      weights_[i] = weights;
    }
  }
  // Up to a quarter off one of the four.
  uint64_t Draw() {
    const double rng = Unit() * weights_[kSizes - 1];
    size_t i = 0;
    while (i + 1 < kSizes && rng > weights_[i]) ++i;
    const double size = sizes_[i] * (0.75 + 0.5 * Unit());
    return std::clamp(static_cast<uint64_t>(size), FLAGS_size_min, FLAGS_size_max);
  }
  double Unit() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

 private:
  static constexpr size_t kSizes = 4;
  std::mt19937_64& random_;
  double sizes_[kSizes] = {};
  double weights_[kSizes] = {};
};

struct Live {
  uint64_t id;
  uint64_t bytes;
};

class Run {
 public:
  explicit Run(ChurnSubject& subject) : subject_(subject), random_(FLAGS_seed), mix_(random_) {}
  void All();

 private:
  void Step();
  void EraseOne();
  bool Write(uint64_t id, uint64_t bytes);
  double LiveShare() const {
    return static_cast<double>(live_bytes_) / static_cast<double>(subject_.capacity_bytes());
  }

  ChurnSubject& subject_;
  std::mt19937_64 random_;
  Mix mix_;
  std::vector<Live> live_;
  uint64_t live_bytes_ = 0;
  uint64_t written_bytes_ = 0;
  uint64_t next_id_ = 0;
  uint64_t writes_ = 0;
  uint64_t refused_ = 0;
  double at_first_refusal_ = 0;
  double longest_us_ = 0;
  double longest_turn_us_ = 0;
  // Of the second half, sampled every write, weighed by bytes.
  double share_sum_ = 0;
  double share_weights_ = 0;
  double share_min_ = 1;
};

void Run::EraseOne() {
  const size_t i = random_() % live_.size();
  subject_.Erase(live_[i].id);
  live_bytes_ -= live_[i].bytes;
  live_[i] = live_.back();
  live_.pop_back();
}

bool Run::Write(uint64_t id, uint64_t bytes) {
  const double begin = CpuMicroseconds();
  const bool taken = subject_.Write(id, bytes);
  longest_us_ = std::max(longest_us_, CpuMicroseconds() - begin);
  return taken;
}

void Run::Step() {
  const uint64_t bytes = mix_.Draw();
  const bool replace = !live_.empty() && random_() % 10 < 3;
  if (FLAGS_live_percent > 0) {
    const uint64_t most = subject_.capacity_bytes() / 100 * FLAGS_live_percent;
    while (live_bytes_ + bytes > most) EraseOne();
  }
  size_t at = live_.size();
  uint64_t id = next_id_;
  if (replace && !live_.empty()) {
    at = random_() % live_.size();
    id = live_[at].id;
  }
  bool taken = Write(id, bytes);
  if (!taken) {
    if (refused_++ == 0) at_first_refusal_ = LiveShare();
    while (!taken && !live_.empty()) {
      EraseOne();
      // The item to replace may have moved in the list, or be gone: then a new one is written.
      at = live_.size();
      id = next_id_;
      taken = Write(id, bytes);
    }
  }
  if (!taken) return;
  ++writes_;
  written_bytes_ += bytes;
  live_bytes_ += bytes;
  if (at < live_.size()) {
    live_bytes_ -= live_[at].bytes;
    live_[at].bytes = bytes;
  } else {
    live_.push_back({id, bytes});
    ++next_id_;
  }
  const double begin = CpuMicroseconds();
  subject_.Turn();
  longest_turn_us_ = std::max(longest_turn_us_, CpuMicroseconds() - begin);
}

void Run::All() {
  const uint64_t capacity = subject_.capacity_bytes();
  const uint64_t all = capacity * FLAGS_times;
  const uint64_t phase = static_cast<uint64_t>(static_cast<double>(capacity) * FLAGS_phase);
  const double begin = CpuMicroseconds();
  for (uint64_t next_change = 0; written_bytes_ < all;) {
    if (written_bytes_ >= next_change) {
      mix_.Change();
      next_change += phase;
    }
    const uint64_t before = written_bytes_;
    Step();
    if (written_bytes_ < all / 2) continue;
    const double weight = static_cast<double>(written_bytes_ - before);
    share_sum_ += LiveShare() * weight;
    share_weights_ += weight;
    share_min_ = std::min(share_min_, LiveShare());
  }
  const double all_us = CpuMicroseconds() - begin;
  std::printf(
      "subject=%s seed=%" PRIu64 " region_mib=%" PRIu64 " times=%" PRIu64 " live_percent=%" PRIu64
      "\nlive_share_at_first_refusal=%.3f live_share_steady=%.3f lowest=%.3f\nwrites=%" PRIu64
      " refused=%" PRIu64
      " cpu_ns_per_write=%.0f longest_write_us=%.0f longest_turn_us=%.0f live_items=%zu\n%s\n",
      FLAGS_subject.c_str(), FLAGS_seed, FLAGS_region_mib, FLAGS_times, FLAGS_live_percent,
      at_first_refusal_, share_sum_ / share_weights_, share_min_, writes_, refused_,
      all_us * 1e3 / static_cast<double>(writes_), longest_us_, longest_turn_us_, live_.size(),
      subject_.Describe().c_str());
}

}  // namespace
}  // namespace osprey::index

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  const std::unique_ptr<osprey::index::ChurnSubject> subject =
      osprey::index::MakeChurnSubject(FLAGS_subject, FLAGS_region_mib << 20);
  if (subject == nullptr) {
    std::fprintf(stderr, "churn_benchmark: no subject '%s'\n", FLAGS_subject.c_str());
    return 2;
  }
  osprey::index::Run(*subject).All();
}
