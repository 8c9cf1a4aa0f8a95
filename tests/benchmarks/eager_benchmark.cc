// The duration of a PUT with the value in the frame, and with a value that the server READs. It
// finds the length at which to switch (client::kEagerBytesMax).
//
//   bazel run //tests/benchmarks:eager_benchmark
//   tools/lab -- sh -c 'cd bazel-bin/tests/benchmarks/eager_benchmark.runfiles/osprey && tests/benchmarks/eager_benchmark'
//
// Two clients of one server alternate, a few operations each, so that other work of the machine
// slows both.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/engine/engine.h"
#include "rdma/open_domain.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(10);

class Side {
 public:
  Side(const std::string& uri, uint64_t eager_bytes_max) : domain_(rdma::OpenDomain(uri).value()) {
    client::EngineOptions options;
    options.connection.uri = uri;
    options.eager_bytes_max = eager_bytes_max;
    engine_ =
        client::ClientEngine::Create(*domain_, domain_->NewTransport({}).value(), options).value();
    while (!engine_->connection().ready()) engine_->Poll(absl::Now());
  }
  ~Side() {
    engine_->Close();
    while (!engine_->closed()) engine_->Poll(absl::Now());
  }

  // `depth` at once; microseconds for each.
  void Put(const std::string& value, int depth, std::vector<double>& times) {
    const absl::Time start = absl::Now();
    for (int i = 0; i < depth; ++i) {
      const absl::Status started = engine_->start().Put(
          absl::StrCat("key", i), value, {}, start + kDeadline, [](auto version) {
            if (!version.ok()) std::fprintf(stderr, "%s\n", version.status().ToString().c_str());
          });
      if (!started.ok()) std::abort();
    }
    while (engine_->in_flight() > 0) engine_->Poll(absl::Now());
    times.push_back(absl::ToDoubleMicroseconds(absl::Now() - start) / depth);
  }

 private:
  std::unique_ptr<rdma::Domain> domain_;
  std::unique_ptr<client::ClientEngine> engine_;
};

// Half of all runs suffer from the machine's other work; this is the duration without.
double LowerQuartile(std::vector<double>& times) {
  std::nth_element(times.begin(), times.begin() + times.size() / 4, times.end());
  return times[times.size() / 4];
}

void Run(const std::string& uri) {
  Side eager(uri, UINT64_MAX), rendezvous(uri, 0);
  std::printf("us a PUT, lower quartile  one at a time           32 at once\n");
  std::printf("value bytes           eager  rendezvous      eager  rendezvous\n");
  for (const size_t bytes : {64, 256, 1024, 2048, 3072, 4096, 6144, 8000}) {
    const std::string value(bytes, 'v');
    double quartiles[4];
    int column = 0;
    for (const int depth : {1, 32}) {
      std::vector<double> by_eager, by_rendezvous;
      for (int i = 0; i < 2000 / depth + 50; ++i) {
        eager.Put(value, depth, by_eager);
        rendezvous.Put(value, depth, by_rendezvous);
      }
      quartiles[column++] = LowerQuartile(by_eager);
      quartiles[column++] = LowerQuartile(by_rendezvous);
    }
    std::printf("%11zu        %8.2f    %8.2f   %8.2f    %8.2f\n", bytes, quartiles[0], quartiles[1],
                quartiles[2], quartiles[3]);
  }
}

}  // namespace
}  // namespace osprey

int main() {
  const char* const lab = std::getenv("LAB_IP");
  const std::string listen =
      lab != nullptr ? absl::StrCat("rdma://", lab, ":0")
                     : absl::StrCat("shm://", osprey::NewTemporaryDirectory(), "/socket");
  const auto server = osprey::ServerProcess::Start(listen, {"--poll=busy"});
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  osprey::Run((*server)->uri());
  return 0;
}
