// The tables of a server that becomes a primary and a backup again, with a server around it that a test plays.

#include "server/cluster/node/replica_tables.h"

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/cluster/table/replicated_changes.h"
#include "tests/index/index_test_util.h"

namespace osprey::server {
namespace {

SessionImage SessionOf(uint64_t id, uint64_t sequence) {
  SessionImage image;
  image.id = id;
  Result result;
  result.code = absl::StatusCode::kOk;
  result.version = 7;
  image.results.emplace_back(sequence, result);
  return image;
}

class Server final : public ReplicaTables::Owner {
 public:
  explicit Server(uint64_t incarnation) {
    index::TableOptions options;
    options.incarnation = incarnation;
    options.hash_seed = 6;
    options.clock = [] { return absl::UnixEpoch() + absl::Hours(1); };
    tables = *Tables::Create(memory_.span(), 2, options);
    asker_ = *CallThread::Start("test-sessions", [] {});
    replica.emplace(*tables, 7, *this, *asker_);
  }

  // --- ReplicaTables::Owner
  EndedService EndService() override {
    ++ended;
    return {left, made, {}};
  }
  std::optional<std::vector<SessionImage>> TakeSessions() override {
    const std::lock_guard<std::mutex> lock(mutex);
    ++asked;
    return of_engines;
  }
  bool has_engines() const override { return runs; }
  uint64_t decided() const override { return decided_groups; }
  uint64_t placed() const override { return placed_groups; }

  void Put(const std::string& key, const std::string& value) {
    const LockedTable table = tables->Lock(tables->PartitionOf(key));
    ASSERT_TRUE(table->Put(key, index::BytesOf(value), {}, tables->ServerTime()).status.ok());
  }
  // The keys with their values.
  std::string Contents() {
    std::string all;
    for (uint32_t i = 0; i < tables->partitions(); ++i) {
      const LockedTable table = tables->Lock(i);
      uint64_t cursor = 0;
      do {
        cursor = table->Walk(cursor, 1 << 20, [&](const index::WalkedKey& key) {
          absl::StrAppend(&all, key.key, "=", index::TextOf(key.value), " ");
        });
      } while (cursor != 0);
    }
    return all;
  }

  bool AwaitChunk() {
    for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;
         absl::SleepFor(absl::Milliseconds(1))) {
      if (replica->HasChunk()) return true;
    }
    return false;
  }
  // Sends the copy that has begun, all of it.
  void CopyTo(Server& joiner) {
    ASSERT_TRUE(AwaitChunk());
    for (;;) {
      ASSERT_TRUE(replica->HasChunk());
      const std::string chunk = replica->NextChunk();
      if (chunk.empty()) break;
      const absl::Status taken = joiner.replica->TakeChunk(chunk);
      ASSERT_TRUE(taken.ok()) << taken;
    }
    joiner.replica->EndCopy();
  }

 private:
  index::RegionMemory memory_{8 << 20};
  std::unique_ptr<CallThread> asker_;

 public:
  std::unique_ptr<Tables> tables;
  bool runs = true;
  int ended = 0;
  uint64_t made = 0;
  uint64_t decided_groups = 0;
  uint64_t placed_groups = 0;
  std::vector<SessionImage> left;  // of engines that end
  std::mutex mutex;
  int asked = 0;                                        // under the mutex
  std::optional<std::vector<SessionImage>> of_engines;  // their sessions; under the mutex
  std::optional<ReplicaTables> replica;
};

std::vector<uint64_t> IdsOf(const std::vector<SessionImage>& sessions) {
  std::vector<uint64_t> ids;
  for (const SessionImage& session : sessions) ids.push_back(session.id);
  return ids;
}

TEST(ReplicaTablesTest, ThePrimaryThatEndsGivesItsSessionsToTheReplica) {
  Server server(1);
  EXPECT_FALSE(server.replica->is_primary());
  EXPECT_TRUE(server.replica->TakeOver().empty());
  EXPECT_TRUE(server.replica->is_primary());
  server.left = {SessionOf(3, 9)};
  server.made = 17;
  EXPECT_EQ(server.replica->EndPrimary(), 17u);
  EXPECT_EQ(server.ended, 1);
  EXPECT_FALSE(server.replica->is_primary());
  EXPECT_EQ(IdsOf(server.replica->TakeOver()), std::vector<uint64_t>{3});
}

// Its tail was not applied yet: the engines never had the tables.
TEST(ReplicaTablesTest, AReplicaThatServesNothingEndsNoService) {
  Server server(1);
  EXPECT_EQ(server.replica->EndPrimary(), 0u);
  server.replica->Clear();
  EXPECT_EQ(server.ended, 0);
}

TEST(ReplicaTablesTest, ABackupDecidesNothingAndAPrimaryDoes) {
  Server server(1);
  const auto decides = [&] { return server.tables->Lock(0)->decides(); };
  EXPECT_FALSE(decides());
  server.replica->TakeOver();
  EXPECT_TRUE(decides());
  server.replica->EndPrimary();
  EXPECT_FALSE(decides());
}

TEST(ReplicaTablesTest, AClearedPrimaryEndsItsServiceFirst) {
  Server server(1);
  server.replica->TakeOver();
  server.Put("key", "value");
  server.left = {SessionOf(3, 9)};
  server.replica->Clear();
  EXPECT_TRUE(server.replica->ClearSome());
  EXPECT_EQ(server.ended, 1);
  EXPECT_FALSE(server.replica->is_primary());
  EXPECT_EQ(server.Contents(), "");
}

TEST(ReplicaTablesTest, ACopyHasKeysAndSessions) {
  Server primary(1), joiner(2);
  primary.replica->TakeOver();
  primary.Put("key", "value");
  primary.Put("other", std::string(300, 'x'));
  primary.of_engines = {SessionOf(3, 9)};
  joiner.Put("stale", "value");
  joiner.replica->Clear();
  ASSERT_TRUE(joiner.replica->ClearSome());
  joiner.replica->BeginJoin();
  primary.replica->BeginCopy();
  EXPECT_FALSE(primary.replica->HasChunk());  // the sessions are asked for
  primary.CopyTo(joiner);
  EXPECT_FALSE(primary.replica->HasChunk());
  EXPECT_EQ(joiner.Contents(), primary.Contents());
  EXPECT_NE(joiner.Contents(), "");
  EXPECT_EQ(IdsOf(joiner.replica->TakeOver()), std::vector<uint64_t>{3});
}

TEST(ReplicaTablesTest, WithoutEnginesNoCopyGoesOn) {
  Server primary(1), joiner(2);
  primary.replica->TakeOver();
  primary.of_engines.emplace();
  primary.runs = false;  // they are being made
  joiner.replica->Clear();
  ASSERT_TRUE(joiner.replica->ClearSome());
  joiner.replica->BeginJoin();
  primary.replica->BeginCopy();
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(primary.replica->HasChunk());
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(primary.asked, 0);
  primary.runs = true;
  primary.CopyTo(joiner);
}

// *Else* an eviction that the copy has followed is lost with the primary, and the next one has the key.
TEST(ReplicaTablesTest, ACopyEndsOnceWhatWasDecidedBeforeItsLastChunkHasItsPlace) {
  Server primary(1);
  primary.replica->TakeOver();
  primary.Put("key", "value");
  primary.of_engines.emplace();
  primary.decided_groups = 6;
  primary.replica->BeginCopy();
  ASSERT_TRUE(primary.AwaitChunk());
  primary.decided_groups = 7;
  std::string last;
  while (primary.replica->HasChunk()) last = primary.replica->NextChunk();
  EXPECT_NE(last, "");
  primary.decided_groups = 8;  // after it
  primary.placed_groups = 6;
  EXPECT_FALSE(primary.replica->HasChunk());
  primary.placed_groups = 7;
  ASSERT_TRUE(primary.replica->HasChunk());
  EXPECT_EQ(primary.replica->NextChunk(), "");
}

// They were about to end when they were asked.
TEST(ReplicaTablesTest, EnginesWithoutAnAnswerAreAskedAgain) {
  Server primary(1), joiner(2);
  primary.replica->TakeOver();
  joiner.replica->Clear();
  ASSERT_TRUE(joiner.replica->ClearSome());
  joiner.replica->BeginJoin();
  primary.replica->BeginCopy();
  const auto asked = [&] {
    const std::lock_guard<std::mutex> lock(primary.mutex);
    return primary.asked;
  };
  for (const absl::Time end = absl::Now() + absl::Seconds(30); asked() < 2 && absl::Now() < end;)
    ASSERT_FALSE(primary.replica->HasChunk());
  {
    const std::lock_guard<std::mutex> lock(primary.mutex);
    primary.of_engines = {SessionOf(4, 1)};
  }
  primary.CopyTo(joiner);
  EXPECT_EQ(IdsOf(joiner.replica->TakeOver()), std::vector<uint64_t>{4});
}

// What was read before the second copy began lacks results of groups that this copy's joiner does not get.
TEST(ReplicaTablesTest, ASecondCopyHasSessionsThatAreReadAfterItBegan) {
  Server primary(1), joiner(2);
  primary.replica->TakeOver();
  primary.of_engines = {SessionOf(3, 9)};
  primary.replica->BeginCopy();
  {
    // The first request is under way.
    const std::lock_guard<std::mutex> lock(primary.mutex);
    ASSERT_FALSE(primary.replica->HasChunk());
    absl::SleepFor(absl::Milliseconds(20));
    primary.replica->BeginCopy();
    ASSERT_FALSE(primary.replica->HasChunk());
  }
  // It is answered by what is old.
  for (const absl::Time end = absl::Now() + absl::Seconds(30);;
       absl::SleepFor(absl::Milliseconds(1))) {
    ASSERT_LT(absl::Now(), end);
    const std::lock_guard<std::mutex> lock(primary.mutex);
    if (primary.asked == 0) continue;
    primary.of_engines = {SessionOf(3, 9), SessionOf(4, 1)};
    break;
  }
  joiner.replica->Clear();
  ASSERT_TRUE(joiner.replica->ClearSome());
  joiner.replica->BeginJoin();
  primary.CopyTo(joiner);
  EXPECT_EQ(IdsOf(joiner.replica->TakeOver()), (std::vector<uint64_t>{3, 4}));
}

// Nothing of the copy is left for the next time as a primary.
TEST(ReplicaTablesTest, TheEndOfThePrimaryEndsItsCopy) {
  Server primary(1);
  primary.replica->TakeOver();
  primary.of_engines.emplace();
  primary.replica->BeginCopy();
  ASSERT_TRUE(primary.AwaitChunk());
  primary.replica->EndPrimary();
  primary.replica->TakeOver();
  EXPECT_FALSE(primary.replica->HasChunk());
}

TEST(ReplicaTablesTest, AChunkBehindTheLastIsDamage) {
  Server primary(1), joiner(2);
  primary.replica->TakeOver();
  primary.Put("key", "value");
  primary.of_engines.emplace();
  joiner.replica->Clear();
  ASSERT_TRUE(joiner.replica->ClearSome());
  joiner.replica->BeginJoin();
  primary.replica->BeginCopy();
  ASSERT_TRUE(primary.AwaitChunk());
  std::string last;
  for (std::string chunk; !(chunk = primary.replica->NextChunk()).empty();) {
    last = chunk;
    ASSERT_TRUE(joiner.replica->TakeChunk(chunk).ok());
  }
  EXPECT_EQ(joiner.replica->TakeChunk(last).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace osprey::server
