// Engines with a log: what becomes visible and is answered when, and that the log replays to what the
// tables have. The log is a fake one (fake_log.h).

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/requests/two_step_writes.h"
#include "tests/server/requests/fake_log.h"
#include "tests/server/requests/logged_server.h"
#include "tests/server/server_harness.h"
#include "tests/support/split_mix64.h"
#include "tests/support/volume.h"

namespace osprey::server {
namespace {

using absl::StatusCode;
using rdma::WireCondition;

class WriteLogTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Modes, WriteLogTest, ::testing::Values(false, true),
                         [](const auto& mode) { return mode.param ? "Synced" : "Written"; });

TEST_P(WriteLogTest, NoReplyLeavesBeforeCommit) {
  LoggedServer logged(GetParam());
  ASSERT_EQ(logged.Ask(logged.client->PutFrame(logged.Next(), "old", "1")).code, StatusCode::kOk);
  const std::string large = Large(300000);
  const std::vector<std::string> frames = {
      logged.client->PutFrame(logged.Next(), "new", "value"),
      logged.client->PutFrame(logged.Next(), "longer", Large(3000)),
      logged.client->RendezvousFrame(logged.Next(), "large", large),
      logged.client->IncrementFrame(logged.Next(), "old", 5),
      logged.client->AppendFrame(logged.Next(), "old", "7"),
      logged.client->AppendFrame(logged.Next(), "large", "tail"),
      logged.client->ExpireFrame(logged.Next(), "old", 5 * kSecondNs),
      logged.client->ExpireFrame(logged.Next(), "old", 0),
      logged.client->DeleteFrame(logged.Next(), "old"),
      logged.client->FlushFrame(logged.Next(), {}),
  };
  for (const std::string& frame : frames) {
    const uint64_t sent = logged.server->counters().sent_bytes;
    const int commits = logged.log.commits();
    logged.log.on_commit = [&] { EXPECT_EQ(logged.server->counters().sent_bytes, sent); };
    EXPECT_EQ(logged.Ask(frame).code, StatusCode::kOk);
    EXPECT_EQ(logged.log.commits(), commits + 1);
    EXPECT_GT(logged.server->counters().sent_bytes, sent);
    EXPECT_EQ(logged.log.Difference(*logged.server), "");
  }
}

TEST(SyncedWriteTest, NothingIsVisibleBeforeCommit) {
  LoggedServer logged(true);
  const auto stored = [&] {
    std::string text;
    for (const char* key : {"a", "b", "large", "gone"})
      absl::StrAppend(&text, logged.server->Stored(key).value_or("-").substr(0, 8), " ");
    const LockedTable table =
        logged.server->tables().Lock(logged.server->tables().PartitionOf("a"));
    const absl::StatusOr<index::Table::View> view = table->Find("a");
    return absl::StrCat(text, view.ok() ? view->expiry_ns : 0);
  };
  const std::string large = Large(300000);
  const std::vector<std::string> frames = {
      logged.client->PutFrame(logged.Next(), "a", "1"),
      logged.client->PutIfFrame(logged.Next(), "b", "1", WireCondition::kAbsent, 0),
      logged.client->IncrementFrame(logged.Next(), "a", 1),
      logged.client->AppendFrame(logged.Next(), "a", "0"),
      logged.client->ExpireFrame(logged.Next(), "a", 5 * kSecondNs),
      logged.client->ExpireFrame(logged.Next(), "a", 0),
      logged.client->DeleteFrame(logged.Next(), "b"),
      logged.client->RendezvousFrame(logged.Next(), "large", large),
      logged.client->DeleteFrame(logged.Next(), "large"),
  };
  for (const std::string& frame : frames) {
    const std::string before = stored();
    int commits = 0;
    logged.log.on_commit = [&] {
      ++commits;
      EXPECT_EQ(stored(), before);
    };
    EXPECT_EQ(logged.Ask(frame).code, StatusCode::kOk);
    EXPECT_EQ(commits, 1);
    EXPECT_NE(stored(), before);
  }
}

TEST(SyncedWriteTest, WritesOfAKeySeeEachOther) {
  LoggedServer logged(true);
  RawClient& client = *logged.client;
  client.Send(client.BatchFrame({client.PutFrame(1, "key", "41"), client.PutFrame(2, "other", "x"),
                                 client.IncrementFrame(3, "key", 1), client.GetFrame(4, "key"),
                                 client.AppendFrame(5, "key", "0"), client.DeleteFrame(6, "key"),
                                 client.GetFrame(7, "key")}));
  logged.server->Settle();
  // Reads are answered in the round after that of the write before them.
  std::vector<std::string> replies(8);
  while (const std::optional<RawReply> reply = client.TakeReply())
    replies[reply->sequence] = absl::StrCat(static_cast<int>(reply->code), " ", reply->data);
  EXPECT_EQ(replies[3], "0 42");
  EXPECT_EQ(replies[4], "0 42");
  EXPECT_EQ(replies[5], "0 ");
  EXPECT_EQ(replies[6], "0 ");
  EXPECT_EQ(replies[7].substr(0, 1), "5");
  EXPECT_EQ(logged.log.commits(), 4);
  EXPECT_EQ(logged.log.Difference(*logged.server), "");
}

// The key ends between the log and the table.
TEST(SyncedWriteTest, AKeyExpiresBeforeItIsWritten) {
  LoggedServer logged(true);
  RawClient& client = *logged.client;
  const auto put = [&](absl::string_view value) {
    logged.log.on_commit = nullptr;
    logged.late = {};
    const RawReply reply =
        logged.Ask(WithTtl(client.PutFrame(logged.Next(), "key", value), kSecondNs));
    logged.log.on_commit = [&] { logged.late = absl::Seconds(2); };
    return reply.body.version;
  };
  put("1");
  RawReply reply = logged.Ask(client.IncrementFrame(logged.Next(), "key", 1));
  EXPECT_EQ(reply.code, StatusCode::kOk) << "just before it expired";
  EXPECT_EQ(reply.data, "2");
  EXPECT_EQ(logged.server->Stored("key"), std::nullopt);
  EXPECT_EQ(logged.log.Difference(*logged.server), "");

  put("1");
  reply = logged.Ask(client.AppendFrame(logged.Next(), "key", "2"));
  EXPECT_EQ(reply.code, StatusCode::kOk);
  EXPECT_EQ(reply.body.value_length, 2u);

  put("1");
  EXPECT_EQ(logged.Ask(client.DeleteFrame(logged.Next(), "key")).code, StatusCode::kOk);

  // It shortens the life.
  put("1");
  reply = logged.Ask(client.ExpireFrame(logged.Next(), "key", kSecondNs / 2));
  EXPECT_EQ(reply.code, StatusCode::kOk);
  EXPECT_EQ(logged.server->Stored("key"), std::nullopt);
  EXPECT_EQ(logged.log.Difference(*logged.server), "");

  // These let the key live longer. They were decided before it expired, and hide it from then on.
  put("1");
  reply = logged.Ask(client.ExpireFrame(logged.Next(), "key", 10 * kSecondNs));
  EXPECT_EQ(reply.code, StatusCode::kOk);
  EXPECT_EQ(logged.server->Stored("key"), "1");
  EXPECT_EQ(logged.log.Difference(*logged.server), "");

  const uint64_t version = put("1");
  reply =
      logged.Ask(client.PutIfFrame(logged.Next(), "key", "2", WireCondition::kVersionIs, version));
  EXPECT_EQ(reply.code, StatusCode::kOk);
  EXPECT_EQ(logged.server->Stored("key"), "2");
  EXPECT_EQ(logged.log.Difference(*logged.server), "");

  put("1");
  reply = logged.Ask(client.PutFrame(logged.Next(), "key", "2"));
  EXPECT_EQ(reply.code, StatusCode::kOk);
  EXPECT_EQ(logged.server->Stored("key"), "2");
  EXPECT_EQ(logged.log.Difference(*logged.server), "");
}

TEST(SyncedWriteTest, ALongValueExpiresBeforeItGrows) {
  LoggedServer logged(true);
  RawClient& client = *logged.client;
  const std::string large = Large(300000);
  ASSERT_EQ(
      logged.Ask(WithTtl(client.RendezvousFrame(logged.Next(), "key", large), kSecondNs)).code,
      StatusCode::kOk);
  logged.log.on_commit = [&] { logged.late = absl::Seconds(2); };
  const RawReply reply = logged.Ask(client.AppendFrame(logged.Next(), "key", "tail"));
  EXPECT_EQ(reply.code, StatusCode::kOk);
  EXPECT_EQ(reply.body.value_length, large.size() + 4);
  EXPECT_EQ(logged.server->Stored("key"), std::nullopt);
  EXPECT_EQ(logged.log.Difference(*logged.server), "");
}

// --- Two engines -----------------------------------------------------------------------------------

TEST(SyncedWriteTest, AnotherEnginesWriteOfAKeyIsAwaited) {
  TwoEngines logged;
  ASSERT_NE(logged.PollerOf(*logged.client), logged.PollerOf(logged.other));
  std::atomic<bool> is_executed{false};
  std::thread thread;
  logged.other.Send(logged.other.IncrementFrame(1, "key", 1));
  logged.client->Send(logged.client->PutFrame(1, "key", "41"));
  logged.log.on_commit = [&] {
    logged.log.on_commit = nullptr;
    thread = std::thread([&] {
      logged.Turn(logged.PollerOf(logged.other));
      is_executed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(is_executed);
    EXPECT_EQ(logged.server->Stored("key"), std::nullopt);
  };
  logged.Turn(logged.PollerOf(*logged.client));
  ASSERT_TRUE(thread.joinable());
  thread.join();
  logged.server->Settle();
  EXPECT_EQ(logged.other.TakeReply()->data, "42");
  EXPECT_EQ(logged.server->Stored("key"), "42");
  EXPECT_EQ(logged.log.Difference(*logged.server), "");
}

TEST(SyncedWriteTest, LongWritesAwaitAnotherEnginesWrite) {
  TwoEngines logged;
  const std::string large = Large(300000);
  ASSERT_EQ(logged.other.Ask(logged.other.RendezvousFrame(1, "key", large)).code, StatusCode::kOk);
  logged.other.Send(logged.other.AppendFrame(2, "key", "tail"));
  logged.Turn(logged.PollerOf(logged.other));
  ASSERT_EQ(logged.server->counters(logged.PollerOf(logged.other)).long_appends, 1u);
  logged.other.Send(logged.other.RendezvousFrame(3, "put", large));
  logged.client->Send(logged.client->BatchFrame(
      {logged.client->PutFrame(1, "key", "short"), logged.client->PutFrame(2, "put", "short")}));
  logged.log.on_commit = [&] {
    logged.log.on_commit = nullptr;
    const size_t before = logged.log.changes().size();
    for (int turn = 0; turn < 200; ++turn) {
      logged.server->PassTime(kPendingStep() / 4);
      logged.Turn(logged.PollerOf(logged.other));
    }
    EXPECT_FALSE(logged.Turn(logged.PollerOf(logged.other))) << "it waits a step";
    EXPECT_EQ(logged.log.changes().size(), before) << "a pending key is overtaken";
  };
  logged.Turn(logged.PollerOf(*logged.client));
  EXPECT_EQ(logged.server->Stored("key"), "short");
  logged.server->Advance(kPendingStep());
  EXPECT_EQ(logged.server->Stored("key"), "shorttail") << "the append started again";
  EXPECT_TRUE(logged.server->Stored("put") == large);
  EXPECT_EQ(logged.other.replies(), 2u);
  EXPECT_EQ(logged.log.Difference(*logged.server), "");
}

// The append need not copy any more, so that it is decided as short ones are.
TEST(SyncedWriteTest, AnAppendToAShortenedValueAwaitsAnotherEnginesWrite) {
  TwoEngines logged;
  ASSERT_EQ(logged.other.Ask(logged.other.RendezvousFrame(1, "key", Large(300000))).code,
            StatusCode::kOk);
  logged.other.Send(logged.other.AppendFrame(2, "key", "tail"));
  logged.Turn(logged.PollerOf(logged.other));
  ASSERT_EQ(logged.server->counters(logged.PollerOf(logged.other)).long_appends, 1u);
  logged.client->Send(logged.client->PutFrame(1, "key", "short"));
  logged.Turn(logged.PollerOf(*logged.client));
  ASSERT_EQ(logged.server->Stored("key"), "short");
  logged.client->Send(logged.client->PutFrame(2, "key", "other"));
  logged.log.on_commit = [&] {
    logged.log.on_commit = nullptr;
    const size_t before = logged.log.changes().size();
    for (int turn = 0; turn < 20; ++turn) {
      logged.server->PassTime(kPendingStep());
      logged.Turn(logged.PollerOf(logged.other));
    }
    EXPECT_EQ(logged.log.changes().size(), before) << "a pending key is overtaken";
  };
  logged.Turn(logged.PollerOf(*logged.client));
  logged.server->Advance(kPendingStep());
  EXPECT_EQ(logged.server->Stored("key"), "othertail");
  EXPECT_EQ(logged.log.Difference(*logged.server), "");
}

TEST(SyncedWriteTest, AFlushAwaitsAnotherEnginesWrites) {
  TwoEngines logged;
  uint64_t sequence = 0;
  // So many that each partition has some.
  constexpr uint64_t kKeys = 60;
  const auto key = [](uint64_t i) { return absl::StrCat("key", i); };
  std::vector<std::string> frames;
  for (uint64_t i = 0; i < kKeys; ++i) {
    ASSERT_EQ(logged.other.Ask(logged.other.PutFrame(++sequence, key(i), "1")).code,
              StatusCode::kOk);
    frames.push_back(i % 2 == 0 ? logged.client->IncrementFrame(i + 1, key(i), 1)
                                : logged.client->ExpireFrame(i + 1, key(i), kSecondNs));
  }
  logged.client->Send(logged.client->BatchFrame(frames));
  rdma::FlushBody body;
  logged.other.Send(logged.other.FlushFrame(++sequence, body));
  std::atomic<bool> is_executed{false};
  std::thread thread;
  logged.log.on_commit = [&] {
    logged.log.on_commit = nullptr;
    thread = std::thread([&] {
      logged.Turn(logged.PollerOf(logged.other));
      is_executed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(is_executed);
  };
  logged.Turn(logged.PollerOf(*logged.client));
  ASSERT_TRUE(thread.joinable());
  thread.join();
  logged.server->Settle();
  for (bool is_flushed = false; !is_flushed;) {
    const std::optional<RawReply> reply = logged.other.TakeReply();
    ASSERT_TRUE(reply.has_value());
    body.version_bound = reply->body.version;
    body.cursor = reply->body.slot;
    is_flushed = body.cursor == 0;
    if (is_flushed) break;
    logged.other.Send(logged.other.FlushFrame(++sequence, body));
    logged.server->Settle();
  }
  for (uint64_t i = 0; i < kKeys; ++i) {
    EXPECT_EQ(logged.server->Stored(key(i)), std::nullopt) << i;
    EXPECT_EQ(logged.client->TakeReply()->code, StatusCode::kOk) << i;
  }
  EXPECT_EQ(logged.log.Difference(*logged.server), "");
}

// --- Refusals and failures -------------------------------------------------------------------------

TEST_P(WriteLogTest, ALogWithoutSpaceRefusesAllWrites) {
  LoggedServer logged(GetParam());
  RawClient& client = *logged.client;
  const std::string large = Large(300000);
  ASSERT_EQ(logged.Ask(client.PutFrame(logged.Next(), "key", "1")).code, StatusCode::kOk);
  const size_t changes = logged.log.changes().size();
  logged.log.RefuseAll(true);
  for (const std::string& frame :
       {client.PutFrame(logged.Next(), "key", "2"),
        client.RendezvousFrame(logged.Next(), "key", large),
        client.IncrementFrame(logged.Next(), "key", 1),
        client.AppendFrame(logged.Next(), "key", "1"),
        client.AppendFrame(logged.Next(), "key", Large(3000)),
        client.ExpireFrame(logged.Next(), "key", 1), client.DeleteFrame(logged.Next(), "key"),
        client.FlushFrame(logged.Next(), {})}) {
    const RawReply reply = logged.Ask(frame);
    EXPECT_EQ(reply.code, StatusCode::kResourceExhausted);
    EXPECT_EQ(reply.data, "the disk is full");
  }
  EXPECT_EQ(logged.Ask(client.GetFrame(logged.Next(), "key")).data, "1");
  EXPECT_EQ(logged.log.changes().size(), changes);
  logged.log.RefuseAll(false);
  EXPECT_EQ(logged.Ask(client.IncrementFrame(logged.Next(), "key", 1)).data, "2");
}

TEST_P(WriteLogTest, AFailedCommitEndsTheEngineWithoutAReply) {
  LoggedServer logged(GetParam());
  RawClient& client = *logged.client;
  const std::string large = Large(300000);
  logged.log.commit_error = absl::DataLossError("fdatasync failed");
  logged.log.on_commit = [&] {};
  client.Send(client.BatchFrame({client.PutFrame(1, "key", "1"), client.PutFrame(2, "other", "1"),
                                 client.IncrementFrame(3, "key", 1), client.GetFrame(4, "key")}));
  client.Send(client.RendezvousFrame(5, "large", large));
  client.Send(client.FlushFrame(6, {}));
  for (int turn = 0; turn < 50; ++turn) logged.server->Turn();
  EXPECT_EQ(logged.server->engine().failure(), logged.log.commit_error);
  EXPECT_EQ(client.replies(), 0u);
  logged.server->engine().Stop(logged.server->now());
  for (int second = 0; second < 60 && !logged.server->engine().done(); ++second) {
    logged.server->Advance(absl::Seconds(1), absl::Seconds(1));
  }
  EXPECT_TRUE(logged.server->engine().done());
  EXPECT_EQ(client.replies(), 0u);
}

// --- Random operations -----------------------------------------------------------------------------

struct RandomLoad {
  RandomLoad(LoggedServer& in, uint64_t seed, uint64_t of_keys)
      : logged(in), random(seed), keys(of_keys) {}

  std::string Key() { return absl::StrCat("key", random.Below(keys)); }
  std::string Value() {
    const uint64_t bytes[] = {2, 20, 300, 3000};
    return random.Chance(30) ? absl::StrCat(random.Below(1000))
                             : Large(random.Below(bytes[random.Below(4)]) + 1);
  }
  uint64_t Version() { return versions.empty() ? 1 : versions[random.Below(versions.size())]; }

  std::string Frame() {
    RawClient& client = *logged.client;
    const uint64_t sequence = logged.Next();
    switch (random.Below(12)) {
      case 0:
      case 1:
        return client.PutFrame(sequence, Key(), Value());
      case 2:
        return WithTtl(client.PutFrame(sequence, Key(), Value()), Ttl());
      case 3:
        return client.PutIfFrame(sequence, Key(), Value(), WireCondition::kAbsent, 0);
      case 4:
        return WithTtl(
            client.PutIfFrame(sequence, Key(), Value(), WireCondition::kVersionIs, Version()),
            random.Chance(50) ? 0 : Ttl());
      case 5:
        return client.DeleteFrame(sequence, Key(), random.Chance(30) ? Version() : 0);
      case 6:
      case 7:
        return client.IncrementFrame(sequence, Key(), 1, random.Chance(20) ? Version() : 0);
      case 8:
        return client.AppendFrame(sequence, Key(), random.Chance(50) ? "1" : Value());
      case 9:
        return client.ExpireFrame(sequence, Key(), random.Chance(30) ? 0 : Ttl());
      case 10:
        return client.GetFrame(sequence, Key());
      default:
        return random.Chance(20) ? client.FlushFrame(sequence, {})
                                 : client.DeleteFrame(sequence, Key());
    }
  }
  uint64_t Ttl() { return 1 + random.Below(3 * kSecondNs); }

  void Round() {
    if (random.Chance(20)) {
      large = Large(65000 + random.Below(200000));
      logged.client->Send(logged.client->RendezvousFrame(logged.Next(), Key(), large));
      ++asked;
    }
    for (uint64_t i = random.Below(4) + 1; i-- > 0;) {
      std::vector<std::string> frames;
      const uint64_t count = random.Below(4) + 1;
      uint64_t bytes = 0;
      while (frames.size() < count && bytes < 8000) {
        frames.push_back(Frame());
        bytes += frames.back().size();
      }
      asked += frames.size();
      for (const std::string& frame : frames) logged.client->Send(frame);
    }
    // Time passes, for a long APPEND that awaits room.
    for (int step = 0; step < 100 && answered < asked; ++step) {
      logged.server->Wait(absl::Milliseconds(10));
      TakeReplies();
    }
  }
  void TakeReplies() {
    while (const std::optional<RawReply> reply = logged.client->TakeReply()) {
      ++answered;
      refused_for_space += reply->code == StatusCode::kResourceExhausted;
      if (reply->body.version != 0) versions.push_back(reply->body.version);
      const Result known = logged.log.ResultOf(logged.client->session(), reply->sequence);
      // Refusals before the log are not logged, and neither are reads.
      if (known.code == StatusCode::kUnknown) continue;
      EXPECT_EQ(known.code, reply->code) << "sequence " << reply->sequence;
    }
  }

  LoggedServer& logged;
  SplitMix64 random;
  const uint64_t keys;
  std::string large;
  std::vector<uint64_t> versions;
  uint64_t asked = 0;
  uint64_t answered = 0;
  uint64_t refused_for_space = 0;
};

TEST_P(WriteLogTest, TheLogReplaysToTheTables) {
  uint64_t refused_for_space = 0;
  uint64_t evictions = 0;
  constexpr uint64_t kSeeds = 150;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    // Few seeds refuse a write for lack of space, or evict, with each compiler others.
    if (seed > kSeeds / kLongVolumeParts && refused_for_space > 0 && evictions > 0) break;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    HarnessOptions options;
    options.evict = seed % 3 == 0;
    options.region_bytes = options.evict || seed % 2 == 0 ? 2 << 20 : 8 << 20;
    LoggedServer logged(GetParam(), options);
    RandomLoad load(logged, seed, options.evict ? 400 : 40);
    logged.log.on_commit = [&] {
      if (load.random.Chance(30)) logged.late += absl::Milliseconds(load.random.Below(1000));
    };
    for (int round = 0; round < 25; ++round) {
      load.Round();
      if (round % 8 == 0) {
        ASSERT_EQ(logged.log.Difference(*logged.server), "") << "round " << round;
      }
      if (load.random.Chance(20)) logged.server->Advance(absl::Milliseconds(300));
    }
    logged.server->Advance(kRoomAwaitedMax());  // a long value may wait for room
    load.TakeReplies();
    EXPECT_EQ(load.answered, load.asked);
    ASSERT_EQ(logged.log.Difference(*logged.server), "");
    refused_for_space += load.refused_for_space;
    evictions += logged.server->tables().stats().evictions;
    if (::testing::Test::HasFailure()) return;
  }
  // Void otherwise.
  EXPECT_GT(refused_for_space, 0u);
  EXPECT_GT(evictions, 0u);
}

}  // namespace
}  // namespace osprey::server
