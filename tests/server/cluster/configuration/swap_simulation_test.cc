// Servers that change one shard's record at the same time, over a store that is late: transactions and
// answers are delayed, lost, and executed after their authors have stopped waiting. Servers lose their
// keys, go on for a while as if they had them, and begin again with or without their copy.
//
// A commit is one entry that each replica which its primary counts has taken. Claims, in each state:
//
// - Each replica that the record names has all that was committed.
// - A primary counts every replica that the record of its term names.
//
// Each mistake that a rule forbids is found by them.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/cluster/configuration/shard_swaps.h"
#include "server/cluster/configuration/swap_tracker.h"
#include "tests/server/cluster/right/model_store.h"
#include "tests/support/split_mix64.h"

namespace osprey {
namespace {

enum class Mistake {
  kNone,
  kJoinerCountedLate,  // a joiner is counted once its swap is known to have happened
  kDroppedAtOnce,      // a member is not counted from when the swap is sent
  kRereadConcludes,    // an unchanged record shows that an unknown swap will not happen
  kOlderReadTaken,     // a read counts whatever its revision
  kRecordUncompared,   // a swap does not ask that the record is unchanged
  kNameResumes,        // a server without its copy resumes the place that has its name
};

constexpr std::array<const char*, 4> kIds = {"a", "b", "c", "d"};
constexpr uint32_t kMinInSync = 2;
constexpr int kSteps = 2000;
constexpr uint64_t kSeeds = 100;

const ClusterKeys& Keys() {
  static const ClusterKeys keys("/osprey/test/");
  return keys;
}

// On its way.
struct Read {
  bool executed = false;
  RangeAnswer shard, servers;
};
struct Call {
  ShardSwap swap;
  Transaction transaction;
  bool executed = false;
  TransactionResult result;
};

struct Server {
  Replica self;                   // its life is 0: it has no copy
  std::optional<Replica> before;  // the replica whose copy it has, under an earlier incarnation
  SwapTracker tracker{0};
  uint64_t highest_term = 0;
  std::map<std::string, int64_t> keys;  // create revisions, as it read them last
  std::optional<Read> read;
  std::optional<Call> call;
};

class World {
 public:
  World(uint64_t seed, Mistake mistake) : random_(seed), mistake_(mistake) {
    Transaction creation;
    creation.operations = {StoreOperation::Put(Keys().Shard(0), EncodeShardRecord({}))};
    (void)store_.Execute(creation);
    for (size_t i = 0; i < kIds.size(); ++i) {
      servers_[i].self.server = kIds[i];
      Begin(servers_[i]);
    }
  }

  // What does not hold; empty: all does.
  std::string Step() {
    Server& server = servers_[random_.Below(servers_.size())];
    if (random_.Chance(1)) RemoveKey(server);
    ExecuteSome();
    if (server.read.has_value())
      GoOnReading(server);
    else if (random_.Chance(40))
      server.read.emplace();
    if (server.call.has_value())
      GoOnSwapping(server);
    else if (!HasItsKey(server) && random_.Chance(10))
      Restart(server);
    else if (random_.Chance(50))
      Swap(server);
    else
      Commit(server);
    return Wrong();
  }
  uint64_t committed() const { return committed_; }
  uint64_t term() { return Record().record.term; }
  uint64_t late() const { return late_; }
  uint64_t resumed() const { return resumed_; }

 private:
  // --- Servers' keys

  bool HasItsKey(const Server& server) const {
    const std::vector<StoredKey> keys = store_.Range({Keys().Server(server.self.server)}).keys;
    return !keys.empty() && keys[0].create_revision == server.self.create_revision;
  }
  // Its peers end its right. The server does not notice yet.
  void RemoveKey(const Server& server) {
    Transaction removal;
    removal.operations = {StoreOperation::Delete(Keys().Server(server.self.server))};
    (void)store_.Execute(removal);
  }
  void Begin(Server& server) {
    Transaction creation;
    creation.operations = {StoreOperation::Put(Keys().Server(server.self.server), "x")};
    server.self.create_revision = store_.Execute(creation).header.revision;
    server.self.incarnation = ++drawn_;
  }
  // As a new incarnation, with its copy or without.
  void Restart(Server& server) {
    if (!server.before.has_value()) server.before = server.self;
    if (random_.Chance(40)) {
      server.self.life = 0;
      if (mistake_ != Mistake::kNameResumes) server.before.reset();
    }
    server.tracker = SwapTracker(0);
    server.read.reset();
    Begin(server);
  }

  // --- Calls

  void ExecuteSome() {
    for (Server& server : servers_) {
      if (server.read.has_value() && !server.read->executed && random_.Chance(20)) {
        server.read = Read{true, store_.Range({Keys().Shard(0)}),
                           store_.Range({Keys().Servers(), /*is_prefix=*/true})};
      }
      if (server.call.has_value() && !server.call->executed && random_.Chance(20))
        Execute(*server.call);
    }
    if (!abandoned_.empty() && random_.Chance(2)) {
      const size_t which = random_.Below(abandoned_.size());
      Execute(abandoned_[which]);
      late_ += abandoned_[which].result.outcome == TransactionOutcome::kApplied;
      abandoned_.erase(abandoned_.begin() + static_cast<std::ptrdiff_t>(which));
    }
    if (abandoned_.size() > 4) abandoned_.erase(abandoned_.begin());  // it is lost
  }
  void Execute(Call& call) {
    call.executed = true;
    call.result = store_.Execute(call.transaction);
    resumed_ += call.result.outcome == TransactionOutcome::kApplied && call.swap.alone;
  }
  void GoOnSwapping(Server& server) {
    if (random_.Chance(10)) {  // no answer
      if (!server.call->executed) abandoned_.push_back(*server.call);
      EXPECT_TRUE(server.tracker.TakeAnswer({}, 0).ok());
      server.call.reset();
    } else if (server.call->executed && random_.Chance(50)) {
      const absl::Status status = server.tracker.TakeAnswer(server.call->result, 0);
      EXPECT_TRUE(status.ok()) << status;
      server.call.reset();
      NoteRecord(server);
    }
  }
  void GoOnReading(Server& server) {
    if (!server.read->executed || !random_.Chance(50)) return;
    TakeRead(server, *server.read);
    server.read.reset();
    NoteRecord(server);
  }
  void TakeRead(Server& server, const Read& read) {
    const StoredKey& key = read.shard.keys[0];
    const StoredShard seen{0, key.mod_revision, *DecodeShardRecord(key.value)};
    const int64_t known = server.tracker.shard().mod_revision;
    const bool forgets = (mistake_ == Mistake::kOlderReadTaken && seen.mod_revision < known) ||
                         (mistake_ == Mistake::kRereadConcludes && seen.mod_revision == known);
    if (forgets && !server.call.has_value()) server.tracker = SwapTracker(0);
    (void)server.tracker.Saw(seen);
    server.keys.clear();
    for (const StoredKey& one : read.servers.keys)
      server.keys[*Keys().ParseServer(one.key)] = one.create_revision;
  }
  void NoteRecord(Server& server) {
    const ShardRecord& record = server.tracker.shard().record;
    server.highest_term = std::max(server.highest_term, record.term);
    if (record.Has(server.self)) server.before.reset();
  }

  // --- Swaps

  void Swap(Server& server) {
    const StoredShard& seen = server.tracker.shard();
    if (seen.mod_revision == 0) return;
    const absl::StatusOr<ShardSwap> swap = NewSwap(server, {Keys(), server.self}, seen);
    if (!swap.ok() || !server.tracker.MayBegin(*swap)) return;
    server.tracker.Begin(*swap);
    server.call = Call{*swap, SwapTransaction(Keys(), {*swap}), false, {}};
    if (mistake_ == Mistake::kRecordUncompared)
      server.call->transaction.compares.erase(server.call->transaction.compares.begin());
  }
  absl::StatusOr<ShardSwap> NewSwap(Server& server, ShardAuthor author, const StoredShard& seen) {
    const ShardRecord& record = seen.record;
    const std::string other = kIds[random_.Below(kIds.size())];
    if (record.is_initial()) {
      author.self.life = server.self.life = NewCopy(committed_);
      return AdoptShard(author, seen, server.highest_term);
    }
    if (server.before.has_value()) return Resume(server, author, seen);
    if (!record.HasAsPrimary(server.self)) {
      const auto key = server.keys.find(record.primary);
      return PromoteSelf(author, seen, key == server.keys.end() ? 0 : key->second,
                         server.highest_term);
    }
    switch (random_.Below(4)) {
      case 0:
        return DropMember(author, seen, other, kMinInSync);
      case 1:
        return HandOver(author, seen, other, server.highest_term);
      case 2:
        return RenewRecord(author, seen);
      default:
        return Add(server, author, seen, other);
    }
  }
  absl::StatusOr<ShardSwap> Resume(Server& server, ShardAuthor author, const StoredShard& seen) {
    Replica before = *server.before;
    if (mistake_ == Mistake::kNameResumes && server.self.life == 0) {
      const Replica* named = seen.record.Find(before.server);
      if (named == nullptr) return absl::NotFoundError("no such place");
      before = *named;
      author.self.life = before.life;
      has_[before.life] = 0;
    }
    absl::StatusOr<ShardSwap> swap = ResumePlace(author, seen, before);
    if (swap.ok()) swap->alone = true;  // to count them
    return swap;
  }
  // The joiner, which has read the record of that term, copies all that the primary has. So it is a new
  // replica. (That of an unknown swap stays.)
  absl::StatusOr<ShardSwap> Add(const Server& server, const ShardAuthor& author,
                                const StoredShard& seen, const std::string& other) {
    Server& joiner = Find(other);
    if (server.tracker.state() != SwapTracker::State::kUnknown) {
      if (seen.record.Find(other) != nullptr || !HasItsKey(joiner) || joiner.call.has_value() ||
          joiner.highest_term != seen.record.term)
        return absl::FailedPreconditionError("it takes no copy now");
      joiner.self.life = NewCopy(has_[server.self.life]);
      joiner.before.reset();
    }
    return AddMember(author, seen, joiner.self);
  }
  uint64_t NewCopy(uint64_t entries) {
    has_[++drawn_] = entries;
    return drawn_;
  }
  Server& Find(absl::string_view id) {
    return *std::find_if(servers_.begin(), servers_.end(),
                         [&](const Server& one) { return one.self.server == id; });
  }

  // --- Commits

  std::vector<Replica> Counted(const Server& server) const {
    const ShardRecord& record = server.tracker.shard().record;
    std::vector<Replica> counted = server.tracker.Counted();
    if (mistake_ == Mistake::kJoinerCountedLate) counted = record.in_sync;
    if (mistake_ == Mistake::kDroppedAtOnce && server.call.has_value())
      counted = server.call->swap.next.in_sync;
    return counted;
  }
  // Whether the replica acknowledges entries of that term.
  bool Takes(const Replica& replica, uint64_t term) {
    const Server& server = Find(replica.server);
    return server.self == replica && server.highest_term <= term;
  }
  void Commit(Server& server) {
    if (!server.tracker.IsPrimary(server.self)) return;
    const uint64_t term = server.tracker.shard().record.term;
    const std::vector<Replica> counted = Counted(server);
    if (!std::all_of(counted.begin(), counted.end(),
                     [&](const Replica& one) { return Takes(one, term); }))
      return;
    ++committed_;
    for (const Replica& one : counted) has_[one.life] = committed_;
  }

  // --- Claims

  const StoredShard& Record() {
    const StoredKey key = store_.Range({Keys().Shard(0)}).keys[0];
    if (key.mod_revision != record_.mod_revision)
      record_ = {0, key.mod_revision, *DecodeShardRecord(key.value)};
    return record_;
  }
  std::string Wrong() {
    const ShardRecord& record = Record().record;
    for (const Replica& one : record.in_sync) {
      if (has_[one.life] != committed_)
        return absl::StrCat(one.server, " has ", has_[one.life], " of ", committed_, " entries");
    }
    for (const Server& server : servers_) {
      if (!record.HasAsPrimary(server.self) || server.tracker.shard().record.term != record.term)
        continue;
      const std::vector<Replica> counted = Counted(server);
      for (const Replica& one : record.in_sync) {
        if (std::none_of(counted.begin(), counted.end(), [&](const Replica& other) {
              return other.server == one.server && other.life == one.life;
            }))
          return absl::StrCat(server.self.server, " does not count ", one.server);
      }
    }
    return "";
  }

  SplitMix64 random_;
  const Mistake mistake_;
  ModelStore store_;
  std::array<Server, kIds.size()> servers_;
  std::vector<Call> abandoned_;
  std::map<uint64_t, uint64_t> has_;  // entries of each copy, by its life
  StoredShard record_;
  uint64_t committed_ = 0, drawn_ = 0, late_ = 0, resumed_ = 0;
};

TEST(SwapSimulationTest, AMemberHasAllThatWasCommitted) {
  uint64_t committed = 0, terms = 0, late = 0, resumed = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seed, Mistake::kNone);
    for (int step = 0; step < kSteps; ++step)
      ASSERT_EQ(world.Step(), "") << "seed " << seed << ", step " << step;
    committed += world.committed();
    terms += world.term();
    late += world.late();
    resumed += world.resumed();
  }
  EXPECT_GT(committed, 10 * kSeeds);
  EXPECT_GT(terms, 5 * kSeeds);
  EXPECT_GT(late, kSeeds);
  EXPECT_GT(resumed, kSeeds);
}

class SwapMistakesTest : public testing::TestWithParam<Mistake> {};

TEST_P(SwapMistakesTest, IsFound) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seed, GetParam());
    for (int step = 0; step < kSteps; ++step) {
      if (!world.Step().empty()) return;
    }
  }
  ADD_FAILURE() << "no seed has found it";
}

INSTANTIATE_TEST_SUITE_P(Mistakes, SwapMistakesTest,
                         testing::Values(Mistake::kJoinerCountedLate, Mistake::kDroppedAtOnce,
                                         Mistake::kRereadConcludes, Mistake::kOlderReadTaken,
                                         Mistake::kRecordUncompared, Mistake::kNameResumes));

}  // namespace
}  // namespace osprey
