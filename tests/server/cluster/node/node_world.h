// Servers of a cluster in one process, each a ClusterNode with tables, whose engines are the test. Links go
// over shared memory, and the store is in memory.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_NODE_NODE_WORLD_H_
#define OSPREY_TESTS_SERVER_CLUSTER_NODE_NODE_WORLD_H_

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "index/layout/serving_record.h"
#include "rdma/open_domain.h"
#include "server/clock.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/configuration/shard_record.h"
#include "server/cluster/links/peer_links.h"
#include "server/cluster/node/cluster_node.h"
#include "server/requests/two_step_writes.h"
#include "tests/index/index_test_util.h"
#include "tests/server/cluster/right/model_store.h"

namespace osprey::server {

inline constexpr uint32_t kPartitions = 2;
inline constexpr absl::Duration kPatience = absl::Seconds(60);
inline bool Await(const std::function<bool()>& condition) {
  const absl::Time end = absl::Now() + kPatience;
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

inline uint64_t Random() {
  static std::mutex mutex;
  static std::mt19937_64 numbers(std::random_device{}());
  const std::lock_guard<std::mutex> lock(mutex);
  return numbers();
}

// The store of all servers.
struct World {
  explicit World(uint32_t replicas, uint32_t shards = 1) {
    cluster.id = 0xC1;
    cluster.shards = shards;
    cluster.replicas = replicas;
    cluster.min_in_sync = MinInSync(replicas);
    cluster.hash_seed = 9;
    cluster.shard_bytes = 4 << 20;
    EXPECT_EQ(store.Execute(CreateCluster(keys, cluster)).outcome, TransactionOutcome::kApplied);
    std::string path = (std::filesystem::temp_directory_path() / "osprey-node-XXXXXX").string();
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    directory = path;
  }
  ~World() { std::filesystem::remove_all(directory); }
  size_t InSync() {
    const std::lock_guard<std::mutex> lock(mutex);
    const RangeAnswer answer = store.Range({keys.Shard(0)});
    return answer.keys.empty() ? 0 : DecodeShardRecord(answer.keys[0].value)->in_sync.size();
  }

  const ClusterKeys keys{"/osprey/test/"};
  ClusterRecord cluster;
  absl::Duration backup_timeout = absl::Seconds(1);
  std::mutex mutex;  // guards the store
  ModelStore store;
  std::string directory;
};

// A server's client of the store.
class StoreClient final : public ConfigurationStore {
 public:
  explicit StoreClient(World& world) : world_(world) {}

  absl::StatusOr<RangeAnswer> Range(const StoreRange& range, absl::Duration) override {
    const std::lock_guard<std::mutex> lock(world_.mutex);
    return world_.store.Range(range);
  }
  TransactionResult Execute(const Transaction& transaction, absl::Duration) override {
    if (changes_nothing) {
      TransactionResult result;
      result.outcome = TransactionOutcome::kNotApplied;
      result.status = absl::UnavailableError("the store is out of reach");
      return result;
    }
    if (before_execution) before_execution(transaction);
    const std::lock_guard<std::mutex> lock(world_.mutex);
    return world_.store.Execute(transaction);
  }

  std::atomic<bool> changes_nothing{false};
  std::function<void(const Transaction&)> before_execution;  // set while nothing is executed

 private:
  World& world_;
};

class TestServer {
 public:
  TestServer(World& world, std::string id)
      : world_(world), id_(std::move(id)), renewals_(world), calls(world) {
    uri_ = absl::StrCat("shm://", world.directory, "/", id_, ".sock");
    domain_ = rdma::OpenDomain(uri_).value();
    for (uint32_t i = 0; i < kPartitions; ++i) {
      changes_.push_back(
          std::make_unique<ReplicatedChanges>(i, writes, [this] { return tables->LastVersion(); }));
    }
    index::TableOptions options;
    options.incarnation = incarnation_;
    options.hash_seed = world.cluster.hash_seed;
    options.clock = [this] { return clock.Now(); };
    std::vector<PartitionChanges*> receivers;
    for (const auto& changes : changes_) receivers.push_back(changes.get());
    tables = Tables::Create(memory_.span(), kPartitions, options, receivers).value();
  }
  ~TestServer() { Kill(); }

  void Start() {
    NodeOptions options{
        .keys = world_.keys,
        .cluster = world_.cluster,
        .server = id_,
        .zone = "",
        .listen = {uri_},
        .key = nullptr,
        .backup_timeout = world_.backup_timeout,
        .rejoin_after = absl::Seconds(30),
        .spin = absl::Microseconds(100),
        .new_ports = [this]() -> absl::StatusOr<std::vector<LinkPort>> {
          std::vector<LinkPort> ports;
          ports.push_back(
              {rdma::Address::Scheme::kShm, domain_->NewTransport(kLinkTransportOptions).value()});
          return ports;
        },
        .random = Random,
        .log = [this](absl::string_view line) { std::cerr << absl::StrCat(id_, ": ", line, "\n"); },
        .stop = stop_};
    ShardParts shard{.tables = *tables,
                     .clock = clock,
                     .changes = {},
                     .writes = writes,
                     .region = memory_.span(),
                     .region_incarnation = incarnation_};
    for (const auto& changes : changes_) shard.changes.push_back(changes.get());
    NodeParts parts{.slots = {shard}, .wake = wake_, .renewals = renewals_, .calls = calls};
    node = ClusterNode::Start(std::move(options), std::move(parts)).value();
  }
  // Is the primary of this shard, and its engines begin. `end` is called when they have to end.
  void Serve(
      std::function<void()> end = [] {}, uint32_t shard = 0) {
    const std::jthread patience([this](const std::stop_token& is_over) {
      if (!Await([&is_over] { return is_over.stop_requested(); })) Stop();
    });
    const absl::StatusOr<std::optional<OfferedService>> offered = node->slot(0).AwaitService();
    ASSERT_TRUE(offered.ok() && offered->has_value()) << id_ << " never became the primary";
    ASSERT_EQ((*offered)->shard, shard);
    node->slot(0).BeginService(std::move(end), [] { return std::vector<SessionImage>(); });
  }
  // It is to end, and hands over to another one.
  void Stop() { stop_ = true; }
  // It is not to end, after all.
  void GoOn() { stop_ = false; }
  // Without a word to anyone: its key in the store stays.
  void Kill() {
    calls.changes_nothing = true;
    node.reset();
  }
  // Its key goes.
  void End() { node.reset(); }

  // A write, up to its change.
  struct Write {
    std::string key;
    KeyedRequest request;
    ClientWrite id;
    std::optional<Decision> decision;
  };
  void DecidePut(const std::string& key, absl::Duration ttl, Write& put) {
    put.key = key;
    put.request.opcode = rdma::Opcode::kPut;
    put.request.key = put.key;
    put.request.value = AsFrameBytes("value");
    put.request.ttl_ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(ttl));
    put.request.hash = tables->HashOf(key);
    put.id = {1, ++sequence_, put.request.opcode};
    const LockedTable table = tables->Lock(tables->PartitionOf(put.request.hash));
    table.changes()->SetWrite(&put.id);
    Verdict verdict = Decide(*table, put.request, kReplicatedValueBytesMax, clock.Now());
    ASSERT_TRUE(verdict.decision.has_value());
    put.decision = *std::move(verdict.decision);
    Report(*put.decision, {put.request.key, put.request.hash}, *table.changes());
  }
  void Put(const std::string& key, absl::Duration ttl = absl::ZeroDuration()) {
    Write put;
    DecidePut(key, ttl, put);
    ASSERT_EQ(writes.Commit(), absl::OkStatus());
    MakePut(put);
  }
  // As the table does it to make room.
  void Evict(const std::string& key) {
    const index::HashedKey hashed{key, tables->HashOf(key)};
    const LockedTable table = tables->Lock(tables->PartitionOf(hashed.hash));
    const uint64_t version = table->HeldVersion(hashed);
    ASSERT_TRUE(table->MakeDelete(hashed, version, clock.Now()));
    table.changes()->OnEvict(key, version);
  }
  // Once it is committed.
  void MakePut(Write& put) {
    const LockedTable table = tables->Lock(tables->PartitionOf(put.request.hash));
    table.changes()->SetWrite(&put.id);
    const Answer answer = Apply(*table, put.request, *put.decision, *table.changes(), clock.Now());
    ASSERT_EQ(answer.code(), absl::StatusCode::kOk);
  }
  // What READs of its memory find: a bit for each shard.
  uint64_t ServedShards() {
    const std::vector<std::byte> copy = index::ReadRegion(
        memory_.data(), index::kServingRecordOffset, sizeof(index::ServingRecord));
    const absl::optional<index::ServingState> state = index::ReadServingRecord(copy, incarnation_);
    return state.has_value() ? state->shards : 0;
  }
  bool SaysThatItServes() { return ServedShards() != 0; }
  bool Has(const std::string& key) {
    return tables->Lock(tables->PartitionOf(key))->Find(key).ok();
  }

 private:
  World& world_;
  const std::string id_;
  const uint64_t incarnation_ = Random();
  index::RegionMemory memory_{4 << 20};
  std::unique_ptr<rdma::Domain> domain_;
  std::string uri_;
  std::vector<std::unique_ptr<ReplicatedChanges>> changes_;
  Wake wake_;
  StoreClient renewals_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> sequence_{0};

 public:
  StoreClient calls;
  Clock clock;
  ReplicatedWrites writes{[this] { wake_.Ring(); }};
  std::unique_ptr<Tables> tables;
  std::unique_ptr<ClusterNode> node;
};

}  // namespace osprey::server

#endif  // OSPREY_TESTS_SERVER_CLUSTER_NODE_NODE_WORLD_H_
