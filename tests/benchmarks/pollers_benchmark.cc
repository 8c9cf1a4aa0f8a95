// PUTs a second by the number of pollers: the server's capacity without network and clients. Each
// poller has its own transport, which returns the same prepared Batches again and again, with new
// sequence numbers, and discards the replies.
//
//   bazel run //tests/benchmarks:pollers_benchmark
//   bazel-bin/tests/benchmarks/pollers_benchmark --pollers=1,2 --seconds=3 --value_bytes=64
//
// Every poller writes keys of all partitions, as clients do. A busy machine gives the pollers fewer
// cores than they have threads; the last number shows that. The machine ceiling is the rate of as
// many servers of one poller at the same time. Cores that share units or memory have less capacity
// together than one by one.

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gflags/gflags.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"
#include "server/engine/engine.h"
#include "server/engine/pollers.h"
#include "server/requests/tables.h"

DEFINE_string(pollers, "1,2", "numbers of pollers to measure");
DEFINE_double(seconds, 3, "for each");
DEFINE_uint32(partitions, 0, "0: as many as kvserver makes");
DEFINE_uint64(keys, 1000000, "different ones");
DEFINE_uint64(value_bytes, 64, "");
DEFINE_uint64(batch, 48, "PUTs in a frame");
DEFINE_uint64(memory_mib, 1024, "of all partitions together");
DEFINE_bool(ceiling, true, "also measure as many servers of one poller at the same time");

namespace osprey::server {
namespace {

using rdma::Bytes;
using rdma::ConnectionId;
using rdma::Event;

constexpr size_t kConnections = 4;  // of each poller
// Requests that a connection sends for one turn: as many as a client may have unanswered, in as
// many frames as a transport returns at once.
constexpr size_t kRequestsPerTurn = kRequestsMax;
constexpr size_t kFramesPerTurnMax = 16;
constexpr size_t kBatches = 512;  // different batches of each poller

class PlainMemory : public rdma::Memory {
 public:
  explicit PlainMemory(size_t bytes)
      : Memory(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)), bytes) {
    std::memset(data(), 0, bytes);  // committed
  }
  ~PlainMemory() override { std::free(data()); }
};

template <typename Body>
std::string Frame(rdma::Opcode opcode, const Body& body, absl::string_view rest = "") {
  const rdma::Message<Body> message(opcode, 0, 0, body, rest.size());
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(message.bytes().data()),
                                        message.bytes().size()),
                      rest);
}

// A Batch, and the positions of its requests' headers. Each header begins with the session and the
// sequence, to be filled in.
struct Replayed {
  std::string frame;
  std::vector<size_t> requests;
};

// Clients that are always connected and always have requests.
class ReplayTransport : public rdma::Transport {
 public:
  explicit ReplayTransport(uint64_t seed) {
    rdma::HelloBody hello;
    hello.liveness.length = kLivenessBytes;
    hello_ = Frame(rdma::Opcode::kHello, hello);
    std::mt19937_64 random(seed);
    for (size_t i = 0; i < kBatches; ++i) batches_.push_back(MakeBatch(random));
  }

  size_t Poll(absl::Span<Event> events) override {
    const size_t frames = std::clamp<size_t>(kRequestsPerTurn / FLAGS_batch, 1, kFramesPerTurnMax);
    size_t count = 0;
    for (size_t i = 0; i < kConnections; ++i) {
      Client& client = clients_[i];
      for (size_t frame = 0; frame < frames; ++frame) {
        Event& event = events[count];
        event = Event();
        event.connection = ConnectionId{i + 1};
        event.kind = Event::Kind::kReceived;
        if (client.session == 0) {
          count += Introduce(client, event);
          break;
        }
        // As a client does, it waits for answers.
        if (client.unanswered + FLAGS_batch > kRequestsPerTurn) break;
        event.frame = AsBytes(Next(client).frame);
        client.unanswered += FLAGS_batch;
        ++count;
      }
    }
    return count;
  }
  absl::Status Send(ConnectionId id, absl::Span<const Bytes> pieces) override {
    Client& client = clients_[static_cast<uint64_t>(id) - 1];
    if (client.session == 0) {
      rdma::FrameHeader header;
      std::memcpy(&header, pieces[0].data(), sizeof(header));
      client.session = header.session;
      return absl::OkStatus();
    }
    client.unanswered -= RepliesIn(pieces);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Listen(absl::string_view uri, uint64_t) override {
    return std::string(uri);
  }
  absl::StatusOr<ConnectionId> Connect(absl::string_view, uint32_t, uint16_t) override {
    return absl::UnimplementedError("");
  }
  absl::Status Accept(ConnectionId) override { return absl::OkStatus(); }
  void Reject(ConnectionId, rdma::RejectReason) override { std::abort(); }
  absl::Status Migrate(ConnectionId, rdma::Transport&) override {
    return absl::ResourceExhaustedError("");  // each keeps its own
  }
  absl::StatusOr<rdma::RemoteMemory> Expose(ConnectionId, const rdma::Memory& memory) override {
    return rdma::RemoteMemory{0, memory.size(), 1};
  }
  absl::StatusOr<rdma::RemoteMemory> Announce(ConnectionId id,
                                              const rdma::Memory& memory) override {
    return Expose(id, memory);
  }
  void Withdraw(ConnectionId, const rdma::Memory&) override {}
  absl::Status Attach(ConnectionId, const rdma::RemoteMemory&) override { return absl::OkStatus(); }
  absl::Status PostReads(ConnectionId, absl::Span<const rdma::ReadRequest>, uint64_t) override {
    return absl::UnavailableError("");
  }
  bool PollReads(ReadsDone&) override { return false; }
  size_t ReadRoom(ConnectionId) const override { return 0; }
  size_t SendRoom(ConnectionId) const override { return 32; }
  void Disconnect(ConnectionId) override {}
  bool Arm() override { return false; }
  int fd() const override { return -1; }
  rdma::ConnectionLimits limits(ConnectionId) const override {
    rdma::ConnectionLimits limits;
    limits.frame_bytes_max = 8192;
    limits.send_credits_max = 32;
    return limits;
  }
  std::string Describe(ConnectionId) const override { return "transport=replay"; }
  Resources resources() const override { return {}; }

 private:
  struct Client {
    int step = 0;
    uint64_t session = 0;
    uint64_t sequence = 0;
    uint64_t unanswered = 0;
    size_t next = 0;
  };

  // A Reply, or a Batch of them, whose header is a piece of its own.
  static uint64_t RepliesIn(absl::Span<const Bytes> pieces) {
    rdma::FrameHeader header;
    std::memcpy(&header, pieces[0].data(), sizeof(header));
    if (header.opcode != static_cast<uint8_t>(rdma::Opcode::kBatch)) return 1;
    uint64_t count = 0;
    for (size_t at = 0; at < pieces[1].size(); at += header.length, ++count)
      std::memcpy(&header, pieces[1].data() + at, sizeof(header));
    return count;
  }

  static Bytes AsBytes(const std::string& text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
  }

  // One step towards a session. False if the next step is to wait for the Welcome.
  bool Introduce(Client& client, Event& event) {
    switch (client.step++) {
      case 0:
        event.kind = Event::Kind::kConnectRequest;
        return true;
      case 1:
        event.kind = Event::Kind::kConnected;
        return true;
      case 2:
        event.frame = AsBytes(hello_);
        return true;
      default:
        return false;
    }
  }

  static Replayed MakeBatch(std::mt19937_64& random) {
    const std::string value(FLAGS_value_bytes, 'v');
    Replayed batch;
    std::string requests;
    for (size_t i = 0; i < FLAGS_batch; ++i) {
      const std::string key = absl::StrCat("key", random() % FLAGS_keys);
      rdma::PutBody body;
      body.key_length = static_cast<uint16_t>(key.size());
      body.value_length = value.size();
      batch.requests.push_back(sizeof(rdma::FrameHeader) + requests.size());
      requests += Frame(rdma::Opcode::kPut, body, key + value);
    }
    rdma::EmptyMessage header(rdma::Opcode::kBatch, 0, 0);
    header.header.length += static_cast<uint32_t>(requests.size());
    batch.frame = absl::StrCat(
        absl::string_view(reinterpret_cast<const char*>(&header.header), sizeof(header.header)),
        requests);
    return batch;
  }

  // Each connection has its own position in the batches; within one Poll they are different.
  Replayed& Next(Client& client) {
    const size_t own = static_cast<size_t>(&client - clients_);
    Replayed& batch = batches_[(client.next++ * kConnections + own) % kBatches];
    const auto set = [&](size_t at, uint64_t sequence) {
      std::memcpy(batch.frame.data() + at + offsetof(rdma::FrameHeader, session), &client.session,
                  sizeof(client.session));
      std::memcpy(batch.frame.data() + at + offsetof(rdma::FrameHeader, sequence), &sequence,
                  sizeof(sequence));
    };
    set(0, 0);
    for (size_t at : batch.requests) set(at, ++client.sequence);
    return batch;
  }

  std::vector<Replayed> batches_;
  std::string hello_;
  Client clients_[kConnections];
};

double ThreadCpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Measured {
  double rate = 0;   // PUTs a second
  double cores = 0;  // cores that the machine gave to all pollers
};

// The part of a server that its pollers use.
class Server {
 public:
  explicit Server(uint32_t pollers) : region_(FLAGS_memory_mib << 20), shared_(pollers) {
    const uint32_t partitions = FLAGS_partitions == 0 ? PartitionsFor(pollers) : FLAGS_partitions;
    index::TableOptions table_options;
    table_options.incarnation = 7;
    table_options.hash_seed = 42;
    tables_ = Tables::Create({region_.data(), region_.size()}, partitions, table_options).value();
    for (uint32_t i = 0; i < pollers; ++i) {
      scratch_.push_back(std::make_unique<PlainMemory>(4096));
      std::vector<EnginePort> ports;
      ports.push_back({std::make_unique<ReplayTransport>(i + 1), &region_, scratch_.back().get(),
                       std::vector<rdma::Transport*>(pollers, nullptr)});
      EngineOptions options;
      options.incarnation = 7;
      auto random = std::make_shared<std::mt19937_64>(i);
      options.random = [random] { return (*random)(); };
      if (pollers > 1) options.pollers = &shared_;
      options.poller = i;
      for (rdma::Transport*& transport : ports[0].by_poller) transport = ports[0].transport.get();
      engines_.push_back(
          std::make_unique<Engine>(*tables_, std::move(ports), options, absl::Now()));
    }
  }

  const std::vector<std::unique_ptr<Engine>>& engines() const { return engines_; }

 private:
  PlainMemory region_;
  Pollers shared_;
  std::unique_ptr<Tables> tables_;
  std::vector<std::unique_ptr<PlainMemory>> scratch_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

// The thread stays on one core if there are enough. Otherwise the scheduler of a busy machine puts
// two threads on one core.
void StayOnCore(size_t number) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  number %= static_cast<size_t>(CPU_COUNT(&allowed));
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || number-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
    return;
  }
}

// Runs all engines of these servers at the same time, each on its own thread.
Measured Measure(const std::vector<std::unique_ptr<Server>>& servers) {
  std::vector<Engine*> engines;
  for (const auto& server : servers) {
    for (const auto& engine : server->engines()) engines.push_back(engine.get());
  }
  std::atomic<bool> counting{false}, stop{false};
  std::vector<uint64_t> counts(engines.size());
  std::vector<double> cpu_seconds(engines.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < engines.size(); ++i) {
    threads.emplace_back([&, i] {
      StayOnCore(i);
      bool began = false;
      uint64_t before = 0;
      double cpu_before = 0;
      while (!stop.load(std::memory_order_relaxed)) {
        engines[i]->Poll(absl::Now());
        if (!began && counting.load(std::memory_order_relaxed)) {
          began = true;
          before = engines[i]->counters().puts;
          cpu_before = ThreadCpuSeconds();
        }
      }
      counts[i] = engines[i]->counters().puts - before;
      cpu_seconds[i] = ThreadCpuSeconds() - cpu_before;
      if (engines[i]->counters().answers[0] != engines[i]->counters().puts) std::abort();
    });
  }
  absl::SleepFor(absl::Seconds(FLAGS_seconds / 2));  // by then the table has its final size
  const absl::Time start = absl::Now();
  counting.store(true);
  absl::SleepFor(absl::Seconds(FLAGS_seconds));
  stop.store(true);
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  for (std::thread& thread : threads) thread.join();
  Measured measured;
  for (size_t i = 0; i < engines.size(); ++i) {
    measured.rate += static_cast<double>(counts[i]) / seconds;
    measured.cores += cpu_seconds[i] / seconds;
  }
  return measured;
}

Measured MeasureServers(uint32_t servers, uint32_t pollers) {
  std::vector<std::unique_ptr<Server>> made;
  for (uint32_t i = 0; i < servers; ++i) made.push_back(std::make_unique<Server>(pollers));
  return Measure(made);
}

void Print(const std::string& what, const Measured& measured, double first) {
  std::printf("%s: %.2f million PUTs/s (%.2f times the first) on %.2f cores: %.2f a core\n",
              what.c_str(), measured.rate / 1e6, measured.rate / first, measured.cores,
              measured.rate / measured.cores / 1e6);
  std::fflush(stdout);
}

int Main() {
  if (FLAGS_batch < 1 || FLAGS_batch > kRequestsPerTurn) {
    std::fprintf(stderr, "--batch: write a number from 1 to %zu\n", kRequestsPerTurn);
    return 2;
  }
  std::printf("%u cores; %lu keys, values of %lu B, %lu PUTs in a frame\n",
              std::thread::hardware_concurrency(), FLAGS_keys, FLAGS_value_bytes, FLAGS_batch);
  double first = 0;
  for (absl::string_view text : absl::StrSplit(FLAGS_pollers, ',')) {
    uint32_t pollers = 0;
    if (!absl::SimpleAtoi(text, &pollers) || pollers < 1 || pollers > kPollersMax) {
      std::fprintf(stderr, "--pollers: write numbers from 1 to %u\n", kPollersMax);
      return 2;
    }
    const Measured measured = MeasureServers(1, pollers);
    if (first == 0) first = measured.rate;
    Print(absl::StrFormat("%2u pollers", pollers), measured, first);
    if (pollers == 1 || !FLAGS_ceiling) continue;
    // The machine ceiling: as many servers of one poller, which share nothing.
    Print(absl::StrFormat("   machine ceiling, %u servers of 1 poller", pollers),
          MeasureServers(pollers, 1), first);
  }
  return 0;
}

}  // namespace
}  // namespace osprey::server

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return osprey::server::Main();
}
