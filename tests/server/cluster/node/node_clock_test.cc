// Two servers of a cluster, with links over shared memory and a store in memory. The clock of the first
// primary is an hour ahead.

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
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
namespace {

constexpr uint32_t kPartitions = 2;
constexpr absl::Duration kPatience = absl::Seconds(60);
// Of the first primary's clock.
constexpr absl::Duration kAhead = absl::Hours(1);

bool Await(const std::function<bool()>& condition) {
  const absl::Time end = absl::Now() + kPatience;
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

uint64_t Random() {
  static std::mutex mutex;
  static std::mt19937_64 numbers(std::random_device{}());
  const std::lock_guard<std::mutex> lock(mutex);
  return numbers();
}

// The store of all servers.
struct World {
  explicit World(uint32_t replicas) {
    cluster.id = 0xC1;
    cluster.shards = 1;
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
    const std::lock_guard<std::mutex> lock(world_.mutex);
    return world_.store.Execute(transaction);
  }

  std::atomic<bool> changes_nothing{false};

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
        .listen = {uri_},
        .key = nullptr,
        .backup_timeout = absl::Seconds(1),
        .new_ports = [this]() -> absl::StatusOr<std::vector<LinkPort>> {
          std::vector<LinkPort> ports;
          ports.push_back(
              {rdma::Address::Scheme::kShm, domain_->NewTransport(kLinkTransportOptions).value()});
          return ports;
        },
        .random = Random,
        .log = [this](absl::string_view line) { std::cerr << absl::StrCat(id_, ": ", line, "\n"); },
        .stop = stop_};
    NodeParts parts{.tables = *tables,
                    .clock = clock,
                    .changes = {},
                    .writes = writes,
                    .wake = wake_,
                    .region = memory_.span(),
                    .region_incarnation = incarnation_,
                    .renewals = renewals_,
                    .calls = calls};
    for (const auto& changes : changes_) parts.changes.push_back(changes.get());
    node = ClusterNode::Start(std::move(options), std::move(parts)).value();
  }
  // Its engines are this test.
  void Serve() {
    const absl::StatusOr<std::optional<std::vector<SessionImage>>> sessions =
        node->AwaitService(stop_);
    ASSERT_TRUE(sessions.ok() && sessions->has_value());
    node->BeginService([] {}, [] { return std::vector<SessionImage>(); });
  }
  // Without a word to anyone: its key in the store stays.
  void Kill() { node.reset(); }

  void Put(const std::string& key, absl::Duration ttl) {
    KeyedRequest request;
    request.opcode = rdma::Opcode::kPut;
    request.key = key;
    request.value = AsFrameBytes("value");
    request.ttl_ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(ttl));
    request.hash = tables->HashOf(key);
    const uint32_t partition = tables->PartitionOf(request.hash);
    const ClientWrite write{1, ++sequence_, request.opcode};
    std::optional<Decision> decision;
    {
      const LockedTable table = tables->Lock(partition);
      table.changes()->SetWrite(&write);
      Verdict verdict = Decide(*table, request, kReplicatedValueBytesMax, clock.Now());
      ASSERT_TRUE(verdict.decision.has_value());
      decision = *std::move(verdict.decision);
      Report(*decision, {request.key, request.hash}, *table.changes());
    }
    ASSERT_EQ(writes.Commit(), absl::OkStatus());
    const LockedTable table = tables->Lock(partition);
    table.changes()->SetWrite(&write);
    const Answer answer = Apply(*table, request, *decision, *table.changes(), clock.Now());
    ASSERT_EQ(answer.code(), absl::StatusCode::kOk);
  }
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
  uint64_t sequence_ = 0;

 public:
  StoreClient calls;
  Clock clock;
  ReplicatedWrites writes{[this] { wake_.Ring(); }};
  std::unique_ptr<Tables> tables;
  std::unique_ptr<ClusterNode> node;
};

// A primary whose clock is ahead, and a backup that has its data.
struct Pair {
  explicit Pair(uint32_t replicas = 2) : world(replicas) {
    a.clock.AdvanceTo(absl::Now() + kAhead);
    a.Start();
    a.Serve();
    b.Start();
    EXPECT_TRUE(Await([&] { return world.InSync() == 2; }));
  }

  World world;
  TestServer a{world, "a"}, b{world, "b"};
};

TEST(NodeClockTest, AKeyThatExpiredStaysAwayUnderTheNextPrimary) {
  Pair pair;
  TestServer& a = pair.a;
  TestServer& b = pair.b;
  EXPECT_EQ(a.writes.marks().ReadsUntil(), absl::InfiniteFuture()) << "no key expires";
  a.Put("short", absl::Milliseconds(50));
  EXPECT_TRUE(a.node->MayAnswer());
  EXPECT_LT(a.writes.marks().ReadsUntil(), absl::InfiniteFuture());
  ASSERT_TRUE(Await([&] { return !a.Has("short"); }));
  ASSERT_TRUE(a.node->MayAnswer()) << "so a client may learn that";
  const absl::Time seen = a.clock.Now();
  EXPECT_LT(b.clock.Now(), seen - kAhead / 2);
  a.Kill();
  b.Serve();
  EXPECT_GE(b.clock.Now(), seen);
  EXPECT_FALSE(b.Has("short"));
  EXPECT_TRUE(Await([&] { return b.node->MayAnswer(); }));
}

TEST(NodeClockTest, NoAnswerLeavesBehindTheMarkThatMembersHold) {
  Pair pair;
  TestServer& a = pair.a;
  a.Put("long", absl::Hours(1));
  absl::SleepFor(TimeMarks::kAhead() + absl::Seconds(1));
  EXPECT_TRUE(a.node->MayAnswer()) << "marks follow each other";
  a.calls.changes_nothing = true;  // the member cannot be dropped
  pair.b.Kill();
  EXPECT_TRUE(Await([&] { return !a.node->MayAnswer(); }));
  EXPECT_LT(a.writes.marks().ReadsUntil(), a.clock.Now());
  a.calls.changes_nothing = false;
  EXPECT_TRUE(Await([&] { return a.node->MayAnswer(); }));
}

TEST(NodeClockTest, MarksGoOnWithFewerMembersThanWritesNeed) {
  Pair pair(/*replicas=*/3);
  TestServer& a = pair.a;
  a.Put("long", absl::Hours(1));
  pair.b.Kill();
  EXPECT_TRUE(Await([&] { return pair.world.InSync() == 1; }));
  EXPECT_TRUE(Await([&] { return a.writes.MayWrite().code() == absl::StatusCode::kUnavailable; }));
  absl::SleepFor(TimeMarks::kAhead() + absl::Seconds(1));
  EXPECT_TRUE(a.node->MayAnswer());
}

}  // namespace
}  // namespace osprey::server
