// Runs operations of the client's and the server's engines inside Measure, for callgrind to count
// the instructions (tests/benchmarks/count_instructions, which also keeps the baseline). Both
// engines run in this thread, over a transport of which nothing is counted.
//
//   client_…   from the call until READs are posted or the request is sent, and from their
//              completion or the reply to the answer
//   server_…   from a frame with requests to the frame with their replies
//   …_async    of a server with a data directory, in $TMPDIR; its thread that syncs is not counted
//   …_in_cluster  of a server in a cluster, under a lease; the machine's clocks are not counted
//
// The instructions are the same on every machine. All input is fixed. No hashed input has more than
// 240 B, above which xxHash chooses its code by the CPU. The record of 32 entries is longer: its hash
// has less than 2 % of the row.

#include <stdlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/engine/engine.h"
#include "index/layout/partitions.h"
#include "index/writer/serving_record_writer.h"
#include "rdma/lease_clock.h"
#include "rdma/lease_time.h"
#include "server/durability/durability.h"
#include "server/engine/engine.h"
#include "server/requests/tables.h"
#include "tests/benchmarks/measured.h"
#include "tests/support/transports/fake_transport.h"

namespace osprey {
namespace {

constexpr char kUri[] = "rdma://server:7411";
constexpr uint64_t kKeys = 2000;
constexpr uint64_t kTimes = 1000;
constexpr uint64_t kBatch = 16;
constexpr int kInFlight = 32;
constexpr size_t kRegionBytes = size_t{16} << 20;

// Counts nothing of what `inner` does for data.
class UncountedTransport : public rdma::Transport {
 public:
  explicit UncountedTransport(std::unique_ptr<rdma::Transport> inner) : inner_(std::move(inner)) {}

  absl::StatusOr<std::string> Listen(absl::string_view uri, uint64_t incarnation) override {
    return inner_->Listen(uri, incarnation);
  }
  absl::StatusOr<rdma::ConnectionId> Connect(absl::string_view uri, uint32_t affinity,
                                             uint16_t version) override {
    return inner_->Connect(uri, affinity, version);
  }
  absl::Status Accept(rdma::ConnectionId id) override { return inner_->Accept(id); }
  void Reject(rdma::ConnectionId id, rdma::RejectReason reason) override {
    inner_->Reject(id, reason);
  }
  absl::Status Migrate(rdma::ConnectionId, rdma::Transport&) override { std::abort(); }
  absl::StatusOr<rdma::RemoteMemory> Expose(rdma::ConnectionId id,
                                            const rdma::Memory& memory) override {
    return inner_->Expose(id, memory);
  }
  absl::StatusOr<rdma::RemoteMemory> Announce(rdma::ConnectionId id,
                                              const rdma::Memory& memory) override {
    return inner_->Announce(id, memory);
  }
  void Withdraw(rdma::ConnectionId id, const rdma::Memory& memory) override {
    inner_->Withdraw(id, memory);
  }
  absl::Status Attach(rdma::ConnectionId id, const rdma::RemoteMemory& remote) override {
    return inner_->Attach(id, remote);
  }
  absl::Status PostReads(rdma::ConnectionId id, absl::Span<const rdma::ReadRequest> reads,
                         uint64_t cookie) override {
    absl::Status status;
    Uncounted([&] { status = inner_->PostReads(id, reads, cookie); });
    return status;
  }
  bool PollReads(ReadsDone& done) override {
    bool any = false;
    Uncounted([&] { any = inner_->PollReads(done); });
    return any;
  }
  size_t ReadRoom(rdma::ConnectionId id) const override {
    size_t room = 0;
    Uncounted([&] { room = inner_->ReadRoom(id); });
    return room;
  }
  absl::Status Send(rdma::ConnectionId id, absl::Span<const rdma::Bytes> pieces) override {
    absl::Status status;
    Uncounted([&] { status = inner_->Send(id, pieces); });
    return status;
  }
  size_t SendRoom(rdma::ConnectionId id) const override {
    size_t room = 0;
    Uncounted([&] { room = inner_->SendRoom(id); });
    return room;
  }
  void Disconnect(rdma::ConnectionId id) override { inner_->Disconnect(id); }
  size_t Poll(absl::Span<rdma::Event> events) override {
    size_t count = 0;
    Uncounted([&] { count = inner_->Poll(events); });
    return count;
  }
  bool Arm() override { return inner_->Arm(); }
  int fd() const override { return inner_->fd(); }
  rdma::ConnectionLimits limits(rdma::ConnectionId id) const override { return inner_->limits(id); }
  std::string Describe(rdma::ConnectionId id) const override { return inner_->Describe(id); }
  Resources resources() const override { return inner_->resources(); }

 private:
  const std::unique_ptr<rdma::Transport> inner_;
};

// A new data directory, removed at the end.
class DataDirectory {
 public:
  DataDirectory() {
    const char* const folder = std::getenv("TMPDIR");
    path_ = absl::StrCat(folder == nullptr ? "/tmp" : folder, "/engine_instructions.XXXXXX");
    Must(mkdtemp(path_.data()) != nullptr);
    server::DurabilityOptions options;
    options.lag = absl::Hours(1);  // so that no write waits for a sync
    options.random = [this] { return ++last_random_; };
    options.log = [](absl::string_view) {};
    durability_ = server::Durability::Open(path_, 1, std::move(options)).value();
  }
  ~DataDirectory() {
    durability_.reset();
    std::filesystem::remove_all(path_);
  }
  server::Durability& durability() { return *durability_; }

 private:
  std::string path_;
  uint64_t last_random_ = 0;
  std::unique_ptr<server::Durability> durability_;
};

// Virtual time as a machine's clocks.
class VirtualClocks final : public ClockSources {
 public:
  explicit VirtualClocks(const absl::Time& now) : now_(now) {}

  int64_t BootTimeNs() override {
    int64_t ns = 0;
    Uncounted([&] { ns = absl::ToUnixNanos(now_); });
    return ns;
  }
  int64_t RawTimeNs() override { return BootTimeNs() + slept_ns_; }
  uint64_t Tsc() override { return static_cast<uint64_t>(RawTimeNs()); }
  bool HasInvariantTsc() override { return true; }
  void Sleep(absl::Duration time) override { slept_ns_ += absl::ToInt64Nanoseconds(time); }

 private:
  const absl::Time& now_;
  int64_t slept_ns_ = 0;
};

class Engines {
 public:
  // `data`: of the server, which keeps its data in memory alone if it is null.
  explicit Engines(DataDirectory* data = nullptr, bool in_cluster = false) {
    region_ = server_domain_->Allocate(kRegionBytes, rdma::Access::kRemoteRead).value();
    scratch_ = server_domain_->Allocate(server::kLivenessBytes, rdma::Access::kLocal).value();
    index::TableOptions table;
    table.incarnation = kIncarnation;
    table.hash_seed = 42;
    table.clock = [this] { return now_; };
    std::vector<server::PartitionChanges*> changes;
    if (data != nullptr) changes = data->durability().changes();
    tables_ = server::Tables::Create({region_->data(), region_->size()}, 1, table, changes).value();
    server::EngineOptions options;
    if (data != nullptr) {
      const absl::Time now = std::exchange(now_, absl::UnixEpoch());
      Must(data->durability().Load(*tables_, {}).ok());
      now_ = now;
      options.write_log = &data->durability();
    }
    options.incarnation = kIncarnation;
    options.random = [this] { return ++last_random_; };
    if (in_cluster) {
      options.in_cluster = true;
      options.data_id = kClusterId;
    }
    std::vector<server::EnginePort> ports;
    ports.push_back({std::make_unique<UncountedTransport>(server_domain_->NewTransport({}).value()),
                     region_.get(), scratch_.get()});
    server_ = std::make_unique<server::Engine>(*tables_, std::move(ports), options, now_);
    Must(server_->Listen(0, kUri).ok());
    client::EngineOptions client_options;
    client_options.connection.uri = kUri;
    client_options.connection.seed = 1;
    if (in_cluster) client_options.lease_clock = [this] { return lease_clock_.Now(); };
    client_ = client::ClientEngine::Create(
                  *client_domain_,
                  std::make_unique<UncountedTransport>(client_domain_->NewTransport({}).value()),
                  client_options)
                  .value();
    while (!client_->connection().ready()) Turn();
  }
  ~Engines() {
    client_->Close();
    while (!client_->closed()) Turn();
  }

  void Run() {
    Fill("i", 8);
    Fill("m", 64);
    MeasureGets("inline", "i");
    MeasureGets("item_cached", "m");
    MeasureGets("absent", "x", false);
    MeasureBatches("inline", "i");
    MeasureBatches("item_cached", "m");
    MeasurePings();
    MeasurePuts(true, "");
  }
  void RunInCluster() {
    Fill("i", 8);
    GainLease();
    MeasureGets("inline_in_cluster", "i");
  }
  void RunAsync() {
    Fill("i", 8);
    Fill("m", 64);
    MeasurePuts(false, "_async");
  }

 private:
  static constexpr uint64_t kIncarnation = 0xABCDEF;
  static constexpr uint64_t kClusterId = 0xC1;

  static std::string Key(const char* set, uint64_t i) {
    return absl::StrCat(set, absl::Dec(i % kKeys, absl::kZeroPad7));
  }
  absl::Time Deadline() const { return now_ + absl::Seconds(10); }

  void Turn() {
    now_ += absl::Microseconds(1);
    client_->Poll(now_);
    server_->Poll(now_);
  }
  void StartPut(const std::string& key, const std::string& value) {
    Must(client_->start()
             .Put(key, value, {}, Deadline(), [](auto version) { Must(version.ok()); })
             .ok());
  }
  void Fill(const char* set, size_t bytes) {
    for (uint64_t i = 0; i < kKeys; ++i) {
      StartPut(Key(set, i), std::string(bytes, 'v'));
      while (client_->in_flight() > 0) Turn();
    }
  }
  // What follows takes less time than the lease.
  void GainLease() {
    index::ServingRecordWriter record({region_->data(), region_->size()},
                                      index::IncarnationOfPartition(kIncarnation, 0));
    index::ServingState state;
    state.incarnation = state.loss_revision = state.gain_revision = state.shards = 1;
    const uint64_t before = client_->counters().reads;
    for (int beats = 0; beats < 8; ++beats) {
      ++state.beat;
      record.Write(state);
      now_ += kBeatInterval();
      Get(Key("i", 0), true);
    }
    Must(client_->counters().leases == 1 && client_->counters().reads > before);
  }
  void Get(const std::string& key, bool present) {
    size_t unanswered = 0;
    absl::StatusOr<Value> answer = Value();
    const absl::string_view view = key;
    if (!client_->GetOne(key, answer, Deadline(), now_, unanswered))
      client_->StartGets({&view, 1}, &answer, Deadline(), now_, unanswered);
    if (unanswered > 0) client_->AwaitReads(unanswered, now_);
    while (unanswered > 0) Turn();  // where the directory must be READ again
    Must(answer.ok() == present);
  }
  void MeasureGets(const std::string& form, const char* set, bool present = true) {
    for (uint64_t i = 0; i < kKeys; ++i) Get(Key(set, i), present);
    std::vector<std::string> keys;
    for (uint64_t i = 0; i < kTimes; ++i) keys.push_back(Key(set, i * 7));
    Measure(absl::StrCat("client_get_", form).c_str(), kTimes,
            [&](uint64_t i) { Get(keys[i], present); });
  }
  void MeasureBatches(const std::string& form, const char* set) {
    std::vector<std::string> keys;
    for (uint64_t i = 0; i < kBatch; ++i) keys.push_back(Key(set, i * 71));
    const std::vector<absl::string_view> views(keys.begin(), keys.end());
    std::vector<absl::StatusOr<Value>> answers(kBatch);
    Measure(
        absl::StrCat("client_multi_get_", form).c_str(), kTimes / kBatch,
        [&](uint64_t) {
          size_t unanswered = 0;
          Must(client_->StartGets(views, answers.data(), Deadline(), now_, unanswered) == kBatch);
          client_->AwaitReads(unanswered, now_);
          Must(unanswered == 0);
        },
        kBatch);
    for (const absl::StatusOr<Value>& answer : answers) Must(answer.ok());
  }

  // `start(i)` starts `each` requests. One turn of each side, of which one is counted.
  template <typename Start>
  void MeasureClient(const std::string& what, int each, Start start) {
    Measure(
        absl::StrCat("client_", what).c_str(), kTimes / each,
        [&](uint64_t i) {
          Submit(i, start);
          Uncounted([&] { server_->Poll(now_); });
          client_->Poll(now_);
        },
        each);
  }
  template <typename Start>
  void MeasureServer(const std::string& what, int each, Start start) {
    Measure(
        absl::StrCat("server_", what).c_str(), kTimes / each,
        [&](uint64_t i) {
          Uncounted([&] { Submit(i, start); });
          server_->Poll(now_);
          Uncounted([&] {
            while (client_->in_flight() > 0) Turn();
          });
        },
        each);
  }
  template <typename Start>
  void Submit(uint64_t i, Start start) {
    now_ += absl::Microseconds(1);
    start(i);
    client_->Submit(now_);
  }
  void MeasurePings() {
    const auto ping = [&](uint64_t) {
      Must(client_->start().Ping(Deadline(), [](auto answer) { Must(answer.ok()); }).ok());
    };
    MeasureClient("ping", 1, ping);
    MeasureServer("ping", 1, ping);
  }
  // The client's part does not depend on where the server keeps its data.
  void MeasurePuts(bool client, const std::string& suffix) {
    std::vector<std::string> keys;
    for (uint64_t i = 0; i < kTimes; ++i) keys.push_back(Key("m", i * 7));
    const std::string value(64, 'w');
    const auto put = [&](uint64_t i) { StartPut(keys[i], value); };
    const auto puts = [&](uint64_t i) {
      for (int j = 0; j < kInFlight; ++j) StartPut(keys[(i * kInFlight + j) % kTimes], value);
    };
    if (client) MeasureClient("put_64", 1, put);
    MeasureServer("put_64" + suffix, 1, put);
    if (client) MeasureClient("put_64_of_32", kInFlight, puts);
    MeasureServer("put_64_of_32" + suffix, kInFlight, puts);
  }

  fake::Network network_;
  const std::unique_ptr<rdma::Domain> server_domain_ = network_.NewDomain("server");
  const std::unique_ptr<rdma::Domain> client_domain_ = network_.NewDomain("client");
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  LeaseClock lease_clock_{std::make_unique<VirtualClocks>(now_)};
  uint64_t last_random_ = 0;
  std::unique_ptr<rdma::Memory> region_, scratch_;
  std::unique_ptr<server::Tables> tables_;
  std::unique_ptr<server::Engine> server_;
  std::unique_ptr<client::ClientEngine> client_;
};

}  // namespace
}  // namespace osprey

int main() {
  osprey::PrintCompiler();
  osprey::Engines().Run();
  osprey::Engines(nullptr, /*in_cluster=*/true).RunInCluster();
  osprey::DataDirectory data;
  osprey::Engines(&data).RunAsync();
  return 0;
}
