// The bandwidth of long values: into and out of Buffers, and as strings, which are copied. In the
// lab compared with `ib_read_bw`:
//
//   bazel run //tests/benchmarks:large_benchmark -- --longest-mib=1024 --memory=3GiB
//   tools/lab -- bazel-bin/tests/benchmarks/large_benchmark.runfiles/osprey/tests/benchmarks/large_benchmark   # RDMA
//
// Prints megabytes a second, the best of --rounds rounds each.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "gflags/gflags.h"
#include "server/program/flags.h"
#include "tests/support/subprocess.h"

DEFINE_uint64(longest_mib, 64, "the longest value, in MiB");
DEFINE_string(memory, "256MiB", "the server's memory; at least twice the longest value");
DEFINE_int32(rounds, 3, "times that each is done; the best counts");

namespace osprey {
namespace {

// Ends the program, since it is a benchmark.
template <typename T>
T Must(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "large_benchmark: %s\n", result.status().ToString().c_str());
  std::exit(1);
}

template <typename Operation>
double MegabytesPerSecond(uint64_t bytes, Operation operation) {
  absl::Duration best = absl::InfiniteDuration();
  for (int round = 0; round < FLAGS_rounds; ++round) {
    const absl::Time start = absl::Now();
    operation();
    best = std::min(best, absl::Now() - start);
  }
  return static_cast<double>(bytes) / 1e6 / absl::ToDoubleSeconds(best);
}

void Run() {
  const char* const lab_ip = std::getenv("LAB_IP");
  const std::string listen = lab_ip != nullptr
                                 ? absl::StrCat("rdma://", lab_ip, ":0")
                                 : absl::StrCat("shm://", NewTemporaryDirectory(), "/socket");
  const std::unique_ptr<ServerProcess> server =
      Must(ServerProcess::Start(listen, {absl::StrCat("--memory=", FLAGS_memory)}));
  Options options;
  options.deadline = absl::Seconds(60);
  options.buffer_bytes_max = uint64_t{2} << 30;
  options.wait = WaitMode::kSpin;
  const std::unique_ptr<Client> client = Must(Client::Connect(server->uri(), options));
  const uint64_t longest = FLAGS_longest_mib << 20;
  Buffer buffer = Must(client->AllocateBuffer(longest));
  std::memset(buffer.data(), 'v', buffer.size());
  std::printf("%s\n%12s %10s %10s %10s %10s\n", client->Describe().c_str(), "bytes", "PutFrom",
              "GetInto", "Put", "Get");
  for (uint64_t bytes = 64 << 10; bytes <= longest; bytes *= 4) {
    const std::string value(bytes, 's');
    const double put_from =
        MegabytesPerSecond(bytes, [&] { Must(client->PutFrom("value", buffer, 0, bytes)); });
    const double get_into =
        MegabytesPerSecond(bytes, [&] { Must(client->GetInto("value", buffer)); });
    const double put = MegabytesPerSecond(bytes, [&] { Must(client->Put("value", value)); });
    const double get = MegabytesPerSecond(bytes, [&] { Must(client->Get("value")); });
    std::printf("%12llu %10.0f %10.0f %10.0f %10.0f\n", static_cast<unsigned long long>(bytes),
                put_from, get_into, put, get);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace osprey

int main(int argc, char** argv) {
  const absl::StatusOr<std::vector<std::string>> words =
      osprey::ParseFlags(osprey::ArgumentsOf(argc, argv));
  if (!words.ok()) {
    std::fprintf(stderr, "large_benchmark: %s\n", std::string(words.status().message()).c_str());
    return 2;
  }
  osprey::Run();
  return 0;
}
