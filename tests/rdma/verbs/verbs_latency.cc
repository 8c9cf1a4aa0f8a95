// The latency of a READ through the verbs transport, for comparison with `ib_read_lat -R` on the
// same machine:
//
//   tools/lab -- tests/rdma/verbs/verbs_latency.sh
//
// One process has both ends. The server's end is never polled during READs, so only its device
// works.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "rdma/transport.h"
#include "rdma/verbs/domain.h"

namespace osprey::rdma {
namespace {

constexpr int kReads = 5000;
constexpr int kWarmUpReads = 500;
constexpr int kConnectPollsMax = 10'000'000;
constexpr size_t kRegionBytes = 1 << 20;

template <typename T>
T Must(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "verbs_latency: %s\n", result.status().ToString().c_str());
  std::exit(1);
}
void Must(const absl::Status& status) {
  if (!status.ok()) Must<int>(status);
}

struct Ends {
  ConnectionId server = ConnectionId::kNone;
  ConnectionId client = ConnectionId::kNone;
};

Ends Join(Transport& server, Transport& client) {
  Ends ends;
  ends.client = Must(client.Connect(
      Must(server.Listen(std::string("rdma://") + std::getenv("LAB_IP") + ":0", 1))));
  int connected = 0;
  for (int i = 0; i < kConnectPollsMax && connected < 2; i++) {
    Event event;
    for (Transport* side : {&server, &client}) {
      if (side->Poll(absl::MakeSpan(&event, 1)) == 0) continue;
      if (event.kind == Event::Kind::kConnectRequest)
        Must(side->Accept(ends.server = event.connection));
      connected += event.kind == Event::Kind::kConnected;
      if (event.kind == Event::Kind::kDisconnected) Must(event.status);
    }
  }
  return ends;
}

// Returns the latency of each READ, in nanoseconds, sorted.
std::vector<int64_t> Measure(Transport& client, ConnectionId id, const ReadRequest& read) {
  std::vector<int64_t> times;
  for (int i = 0; i < kWarmUpReads + kReads; i++) {
    const auto begin = std::chrono::steady_clock::now();
    Must(client.PostReads(id, {&read, 1}, 0));
    Event event;
    while (client.Poll(absl::MakeSpan(&event, 1)) == 0) {
    }
    Must(event.status);
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
    if (i >= kWarmUpReads) times.push_back(took.count());
  }
  std::sort(times.begin(), times.end());
  return times;
}

void Run() {
  const std::unique_ptr<Domain> domain = Must(OpenVerbsDomain());
  const std::unique_ptr<Memory> remote_memory =
      Must(domain->Allocate(kRegionBytes, Access::kRemoteRead));
  const std::unique_ptr<Memory> local = Must(domain->Allocate(kRegionBytes, Access::kLocal));
  const std::unique_ptr<Transport> server = Must(domain->NewTransport({}));
  const std::unique_ptr<Transport> client = Must(domain->NewTransport({}));
  const Ends ends = Join(*server, *client);
  const RemoteMemory remote = Must(server->Expose(ends.server, *remote_memory));
  Must(client->Attach(ends.client, remote));
  std::printf("%s\n", client->Describe(ends.client).c_str());
  for (const uint32_t bytes : {64u, 256u, 1024u}) {
    ReadRequest read;
    read.remote_address = remote.address;
    read.remote_key = remote.key;
    read.segments[0] = {local->data(), bytes, local.get()};
    const std::vector<int64_t> times = Measure(*client, ends.client, read);
    std::printf("osprey      %4u B: least %7.2f us  p50 %7.2f us  p99 %7.2f us\n", bytes,
                times.front() / 1e3, times[kReads / 2] / 1e3, times[kReads * 99 / 100] / 1e3);
  }
}

}  // namespace
}  // namespace osprey::rdma

int main() {
  osprey::rdma::Run();
  return 0;
}
