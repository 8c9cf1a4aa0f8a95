// A primary's engine that ends because what it has decided is not committed: its tables are those of a
// backup, and of the next engine.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "index/layout/partitions.h"
#include "index/writer/table.h"
#include "server/cluster/table/replicated_changes.h"
#include "server/cluster/table/table_replica.h"
#include "server/requests/write_log.h"
#include "tests/index/index_test_util.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;

constexpr uint64_t kSecondNs = 1000000000;
constexpr uint32_t kPartitions = 2;
constexpr uint64_t kClusterId = 0xC1;

// What a primary has decided is committed at once; or, with an error, never.
class PrimaryLog final : public WriteLog, public GroupSink {
 public:
  PrimaryLog() {
    for (uint32_t i = 0; i < kPartitions; ++i) {
      changes_.push_back(
          std::make_unique<ReplicatedChanges>(i, *this, [this] { return tables->LastVersion(); }));
    }
  }
  bool AwaitsSync() const override { return true; }
  absl::StatusOr<std::unique_ptr<ValueUpload>> BeginUpload(uint32_t, absl::string_view,
                                                           uint64_t) override {
    return std::unique_ptr<ValueUpload>();
  }
  absl::Status Commit() override {
    if (!error.ok()) return error;
    if (committed < groups.size() && on_commit) on_commit();
    committed = groups.size();
    return absl::OkStatus();
  }
  void Decide(uint32_t, std::string body, uint64_t entries) override {
    const uint64_t first = groups.empty() ? 1 : groups.back().last_lsn + 1;
    groups.push_back(
        {first, first + entries - 1, 1, std::make_shared<const std::string>(std::move(body))});
  }
  void NoteExpiry() override {}
  uint64_t decided() const override { return groups.size(); }
  HarnessOptions Options() {
    HarnessOptions options;
    options.partitions = kPartitions;
    options.data_id = kClusterId;
    options.write_log = this;
    options.may_answer = [this] { return may_answer; };
    for (const auto& changes : changes_) options.changes.push_back(changes.get());
    return options;
  }
  bool IsPending(uint32_t partition, index::KeyHash hash) const {
    return changes_[partition]->IsPending(hash.bits);
  }

  Tables* tables = nullptr;
  absl::Status error;
  std::function<void()> on_commit;  // if there is something to commit
  bool may_answer = true;
  std::vector<ReplicatedGroup> groups;
  size_t committed = 0;  // of them

 private:
  absl::Status Refusal() const override { return absl::OkStatus(); }

  std::vector<std::unique_ptr<ReplicatedChanges>> changes_;
};

// By key: value, version and expiry.
using Contents = std::map<std::string, std::tuple<std::string, uint64_t, uint64_t>>;

struct Primary {
  Primary() : server(log.Options()), client(server) {
    log.tables = &server.tables();
    client.Establish();
    const std::string hundred(100, 'v');
    Expect(client.PutFrame(Next(), "counter", "41"));
    Expect(client.PutFrame(Next(), "text", "abc"));
    Expect(client.PutFrame(Next(), "item", hundred));
    Expect(client.RendezvousFrame(Next(), "long", Large(300000)));
    Expect(WithTtl(client.PutFrame(Next(), "mortal", hundred), 10 * kSecondNs));
    mortal = client.Ask(WithTtl(client.PutFrame(Next(), "mortal-put", hundred), 10 * kSecondNs))
                 .body.version;
  }

  uint64_t Next() { return ++sequence; }
  void Expect(const std::string& frame) { EXPECT_EQ(client.Ask(frame).code, StatusCode::kOk); }

  Contents Walk() {
    Contents contents;
    for (uint32_t i = 0; i < kPartitions; ++i) {
      const LockedTable table = server.tables().Lock(i);
      uint64_t cursor = 0;
      do {
        cursor = table->Walk(cursor, 1 << 20, [&](const index::WalkedKey& key) {
          contents[std::string(key.key)] = {index::TextOf(key.value), key.version, key.expiry_ns};
        });
      } while (cursor != 0);
    }
    return contents;
  }
  // As a client READs it.
  index::GetResult Read(absl::string_view key) {
    const uint32_t partition = server.tables().PartitionOf(key);
    const absl::Span<const std::byte> region = server.region();
    const index::PartitionSpan span = index::SpanOfPartition(region.size(), kPartitions, partition);
    index::DirectoryCache map(index::IncarnationOfPartition(kIncarnation, partition), span.bytes);
    index::FillMap(map, region.data() + span.offset);
    const auto now_ns = static_cast<uint64_t>(absl::ToUnixNanos(server.now()));
    return index::Get(map, region.data() + span.offset, key, 0, {}, {now_ns, now_ns});
  }
  void ExpectReadable(const Contents& contents) {
    for (const auto& [key, content] : contents) {
      const index::GetResult result = Read(key);
      EXPECT_EQ(result.kind, index::Lookup::Kind::kHit) << key;
      EXPECT_EQ(std::tuple(result.value, result.version, result.expiry_ns), content) << key;
      const index::KeyHash hash = server.tables().HashOf(key);
      EXPECT_FALSE(log.IsPending(server.tables().PartitionOf(hash), hash)) << key;
    }
  }

  // The cluster has another primary from here on. The engine ends without an answer.
  void Lose() {
    sent = server.counters().sent_bytes;
    log.error = absl::UnavailableError("the server is no primary any more");
  }
  void End() {
    server.Settle();
    EXPECT_FALSE(server.engine().failure().ok());
    EXPECT_EQ(server.counters().sent_bytes, sent);
    sessions = server.engine().SessionImages();
    server.EndEngines();
    server.PollClients();
    EXPECT_FALSE(client.TakeReply().has_value());
    EXPECT_TRUE(client.disconnected());
  }
  // It is a backup for a while. The new primary has the groups that were pending, or it does not.
  void BeBackup(bool has_groups) {
    TableReplica replica(server.tables(), 7);
    replica.BeginBackup(std::move(sessions));
    for (size_t i = log.committed; has_groups && i < log.groups.size(); ++i) {
      ASSERT_TRUE(replica.Reserve(log.groups[i]).ok());
      replica.Apply(log.groups[i]);
    }
    sessions = replica.TakeOver();
  }
  void ServeAgain() {
    log.error = absl::OkStatus();
    server.BeginEngines();
    server.engine().RestoreSessions(sessions, server.now());
    client.Establish(client.session(), /*resume_incarnation=*/1, kClusterId);
    EXPECT_EQ(client.welcome().resumed, 1);
  }

  PrimaryLog log;
  ServerHarness server;
  RawClient client;
  uint64_t sequence = 0;
  uint64_t mortal = 0;  // the version of mortal-put
  uint64_t sent = 0;
  std::vector<SessionImage> sessions;
};

void ExpectSameStats(const index::TableStats& before, const index::TableStats& after) {
  EXPECT_EQ(after.keys, before.keys);
  EXPECT_EQ(after.inline_keys, before.inline_keys);
  EXPECT_EQ(after.key_bytes, before.key_bytes);
  EXPECT_EQ(after.value_bytes, before.value_bytes);
  EXPECT_EQ(after.item_bytes, before.item_bytes);
  EXPECT_EQ(after.item_space_bytes, before.item_space_bytes);
  EXPECT_EQ(after.quarantine_bytes, before.quarantine_bytes);
  EXPECT_EQ(after.overflow_lines, before.overflow_lines);
  EXPECT_EQ(after.expiring_keys, before.expiring_keys);
}

struct Case {
  const char* name;
  std::function<std::string(Primary&, uint64_t sequence)> frame;
};

std::vector<Case> Cases() {
  const std::string hundred(100, 'w');
  return {
      {"an inline value",
       [](Primary& p, uint64_t n) { return p.client.PutFrame(n, "counter", "77"); }},
      {"a longer inline value",
       [=](Primary& p, uint64_t n) { return p.client.PutFrame(n, "text", hundred); }},
      {"an item", [=](Primary& p, uint64_t n) { return p.client.PutFrame(n, "item", hundred); }},
      {"a longer item",
       [](Primary& p, uint64_t n) { return p.client.PutFrame(n, "item", Large(3000)); }},
      {"a new key", [](Primary& p, uint64_t n) { return p.client.PutFrame(n, "new", "1"); }},
      {"a new item",
       [=](Primary& p, uint64_t n) {
         return WithTtl(p.client.PutFrame(n, "new", hundred), 60 * kSecondNs);
       }},
      {"a long value",
       [](Primary& p, uint64_t n) { return p.client.RendezvousFrame(n, "long", Large(400000)); }},
      {"a new long value",
       [](Primary& p, uint64_t n) { return p.client.RendezvousFrame(n, "new", Large(400000)); }},
      {"a longer life",
       [](Primary& p, uint64_t n) { return p.client.ExpireFrame(n, "mortal", 60 * kSecondNs); }},
      {"an inline key's expiry",
       [](Primary& p, uint64_t n) { return p.client.ExpireFrame(n, "counter", 60 * kSecondNs); }},
      {"a longer life by a PUT",
       [=](Primary& p, uint64_t n) {
         return WithTtl(p.client.PutIfFrame(n, "mortal-put", hundred,
                                            rdma::WireCondition::kVersionIs, p.mortal),
                        60 * kSecondNs);
       }},
      {"an increment",
       [](Primary& p, uint64_t n) { return p.client.IncrementFrame(n, "counter", 1); }},
      {"an append", [](Primary& p, uint64_t n) { return p.client.AppendFrame(n, "text", "def"); }},
      {"a long append",
       [](Primary& p, uint64_t n) { return p.client.AppendFrame(n, "long", "tail"); }},
      {"a deletion", [](Primary& p, uint64_t n) { return p.client.DeleteFrame(n, "item"); }},
      {"a flush", [](Primary& p, uint64_t n) { return p.client.FlushFrame(n, {}); }},
  };
}

TEST(LostPrimaryTest, AWriteThatIsNotCommittedLeavesNothing) {
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.name);
    Primary primary;
    const index::TableStats before = primary.server.tables().stats();
    const Contents contents = primary.Walk();
    primary.Lose();
    const uint64_t sequence = primary.Next();
    primary.client.Send(one.frame(primary, sequence));
    primary.End();
    ASSERT_GT(primary.log.groups.size(), primary.log.committed) << "it was not decided";
    primary.server.tables().DropPrepared();
    ExpectSameStats(before, primary.server.tables().stats());
    EXPECT_EQ(primary.Walk(), contents);
    primary.ExpectReadable(contents);

    // Another primary has dropped it: now the client's repetition is the first.
    primary.BeBackup(/*has_groups=*/false);
    ASSERT_EQ(primary.Walk(), contents);
    primary.ServeAgain();
    for (const auto& [key, content] : contents) {
      const RawReply reply = primary.client.Ask(primary.client.GetFrame(primary.Next(), key));
      EXPECT_EQ(reply.body.version, std::get<1>(content)) << key;
    }
    primary.Expect(one.frame(primary, sequence));
    EXPECT_NE(primary.Walk(), contents);
  }
}

TEST(LostPrimaryTest, AWriteThatAnotherPrimaryCommitsIsMadeOnce) {
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.name);
    Primary primary;
    const Contents contents = primary.Walk();
    primary.Lose();
    const uint64_t sequence = primary.Next();
    primary.client.Send(one.frame(primary, sequence));
    primary.End();
    primary.server.tables().DropPrepared();
    primary.BeBackup(/*has_groups=*/true);
    const Contents written = primary.Walk();
    EXPECT_NE(written, contents);
    primary.ServeAgain();
    primary.Expect(one.frame(primary, sequence));
    EXPECT_EQ(primary.Walk(), written);
    primary.Expect(primary.client.PutFrame(primary.Next(), "counter", "1"));
    primary.Expect(primary.client.PutFrame(primary.Next(), "new", "2"));
  }
}

// Some of their bytes are still on the way, or copied step by step.
TEST(LostPrimaryTest, SpacesOfLongValuesThatWereNotDecidedAreFree) {
  Primary primary;
  primary.Expect(primary.client.RendezvousFrame(primary.Next(), "log", Large(900000)));
  const index::TableStats before = primary.server.tables().stats();
  const Contents contents = primary.Walk();
  primary.client.Send(primary.client.RendezvousFrame(primary.Next(), "new", Large(800000)));
  primary.client.Send(primary.client.AppendFrame(primary.Next(), "log", "tail"));
  for (int turn = 0; turn < 2; ++turn) (void)primary.server.engine().Poll(primary.server.now());
  EXPECT_GT(primary.server.tables().stats().item_bytes, before.item_bytes + 1700000);
  EXPECT_EQ(primary.log.groups.size(), primary.log.committed);
  primary.server.EndEngines();
  primary.server.tables().DropPrepared();
  ExpectSameStats(before, primary.server.tables().stats());
  primary.ExpectReadable(contents);
}

// A batch of many writes, and further ones that come before the engine ends.
TEST(LostPrimaryTest, NothingIsAnsweredOrMadeAfterAFailedCommit) {
  Primary primary;
  const index::TableStats before = primary.server.tables().stats();
  const Contents contents = primary.Walk();
  primary.Lose();
  std::vector<std::string> frames;
  for (const Case& one : Cases()) {
    const bool has_own_memory = absl::StrContains(one.name, "long value");
    if (!has_own_memory) frames.push_back(one.frame(primary, primary.Next()));
  }
  primary.client.Send(primary.client.BatchFrame(frames));
  primary.server.Settle();
  primary.client.Send(primary.client.GetFrame(primary.Next(), "counter"));
  primary.client.Send(primary.client.PutFrame(primary.Next(), "later", "1"));
  primary.client.Send(
      primary.client.PutIfFrame(primary.Next(), "text", "1", rdma::WireCondition::kAbsent, 0));
  primary.server.Advance(absl::Milliseconds(200));
  primary.server.engine().Stop(primary.server.now());
  primary.server.Advance(absl::Milliseconds(200));
  EXPECT_FALSE(primary.client.got_disconnect_notice());
  primary.End();
  primary.server.tables().DropPrepared();
  ExpectSameStats(before, primary.server.tables().stats());
  EXPECT_EQ(primary.Walk(), contents);
  primary.ExpectReadable(contents);
}

// It is made, since the other servers have it, and its session remembers the answer.
TEST(LostPrimaryTest, ARightThatLapsesDuringTheCommitAnswersNothing) {
  Primary primary;
  primary.sent = primary.server.counters().sent_bytes;
  primary.log.on_commit = [&] { primary.log.may_answer = false; };
  const uint64_t sequence = primary.Next();
  primary.client.Send(primary.client.IncrementFrame(sequence, "counter", 1));
  primary.server.Settle();
  EXPECT_EQ(primary.server.counters().sent_bytes, primary.sent);
  EXPECT_TRUE(primary.client.disconnected());
  EXPECT_EQ(primary.server.Stored("counter"), "42");
  primary.log.on_commit = nullptr;
  primary.log.may_answer = true;
  primary.client.Establish(primary.client.session());
  const RawReply reply = primary.client.Ask(primary.client.IncrementFrame(sequence, "counter", 1));
  EXPECT_EQ(reply.data, "42");
}

}  // namespace
}  // namespace osprey::server
