// One checkpoint, step by step; and what recovery refuses.

#include "server/durability/checkpoint.h"

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/durability/session_bytes.h"
#include "tests/server/durability/durable_lives.h"
#include "tests/support/volume.h"

namespace osprey::server {
namespace {

using testing::HasSubstr;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : disk_(1), server_(disk_, ServerOptions()) {
    EXPECT_TRUE(server_.Start().ok());
  }
  // The next life has what this one had.
  void ExpectSameAfterRestart() {
    ASSERT_TRUE(server_.log().Write().ok());
    const absl::Status status = server_.Start();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(server_.Difference(), "");
  }
  uint64_t Parts() const {
    uint64_t parts = 0;
    for (const std::string& name : disk_.Names()) parts += name.starts_with("checkpoint-") ? 1 : 0;
    return parts;
  }
  void AppendEntry(const wal::Entry& entry) {
    wal::GroupBuilder group((wal::GroupHeader()));
    group.Add(entry);
    ASSERT_TRUE(server_.log().Append({{wal::RecordKind::kEntries, group.Parts()}}).ok());
    ASSERT_TRUE(server_.log().Write().ok());
  }

  wal::SimDisk disk_;
  DurableServer server_;
};

// Else no time mark is written while parts are synced and read back.
TEST_F(CheckpointTest, PausesWhileItIsVerified) {
  for (int i = 0; i < 300; ++i)
    ASSERT_TRUE(server_.Put(absl::StrCat("key-", i), std::string(10000, 'v')).ok());
  int pauses = 0;
  CheckpointInput input;
  input.redo_record = server_.log().appended() + 1;
  input.pause = [&](uint64_t bytes) { pauses += bytes == 0; };
  const auto size = WriteCheckpoint(server_.directory(), server_.log(), server_.tables(), input);
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_GE(pauses, static_cast<int>(Parts()) + 2) << "one for each part, and for each MiB";
}

TEST_F(CheckpointTest, HasAllItemsAndCountsThem) {
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < 500; ++i) {
    const std::string key = absl::StrCat("key-", i);
    const uint64_t length = i % 50 == 0 ? 100000 : i;
    ASSERT_TRUE(server_.Put(key, std::string(length, 'v')).ok());
    bytes += key.size() + length;
  }
  const auto size = server_.Checkpoint();
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_EQ(size->items, 500u);
  EXPECT_EQ(size->bytes, bytes);
  EXPECT_TRUE(size->removal.ok());
  ExpectSameAfterRestart();
  EXPECT_EQ(server_.recovered().items, 500u);
  EXPECT_EQ(server_.recovered().bytes, bytes);
  EXPECT_GT(server_.recovered().version_max, 0u);
}

TEST_F(CheckpointTest, EmptyTablesAreACheckpointToo) {
  ASSERT_TRUE(server_.Put("key", "value").ok());
  ASSERT_TRUE(server_.Checkpoint().ok());
  ASSERT_TRUE(server_.Delete("key").ok());
  const auto size = server_.Checkpoint();
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(size->items, 0u);
  ExpectSameAfterRestart();
  EXPECT_EQ(server_.recovered().items, 0u);
}

TEST_F(CheckpointTest, StoppedOneLeavesTheOneBefore) {
  for (uint64_t i = 0; i < 3000; ++i)
    ASSERT_TRUE(server_.Put(absl::StrCat("key-", i), std::string(100, 'v')).ok());
  ASSERT_TRUE(server_.Checkpoint().ok());
  const uint64_t checkpoint = server_.directory().current().header.checkpoint;
  const uint64_t parts = Parts();
  std::atomic<bool> stop{false};
  int steps = 0;
  const auto size = server_.Checkpoint([&] { stop = ++steps == 4; }, 0, &stop);
  EXPECT_EQ(size.status().code(), absl::StatusCode::kCancelled) << size.status();
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(Parts(), parts);
  EXPECT_EQ(server_.directory().current().header.checkpoint, checkpoint);
  ExpectSameAfterRestart();
}

TEST_F(CheckpointTest, FullDiskLeavesTheOneBefore) {
  for (uint64_t i = 0; i < 3000; ++i)
    ASSERT_TRUE(server_.Put(absl::StrCat("key-", i), std::string(1000, 'v')).ok());
  ASSERT_TRUE(server_.log().Write().ok());
  disk_.set_capacity(6 << 20);
  EXPECT_FALSE(server_.Checkpoint().ok());
  EXPECT_EQ(Parts(), 0u);
  disk_.set_capacity(UINT64_MAX);
  EXPECT_TRUE(server_.Checkpoint().ok());
  ExpectSameAfterRestart();
}

// The put at first has its pieces before the redo record, which pieces of another value define, and
// its entry behind it.
TEST_F(CheckpointTest, ValueWithOlderPiecesComesFromTheCheckpoint) {
  const std::string value(200000, 'l');
  ASSERT_TRUE(server_.Put("key", "before").ok());
  server_.AppendPieces(value);
  const uint64_t redo = server_.log().appended() + 1;
  ASSERT_TRUE(server_.Put("other", "on its way").ok());
  ASSERT_TRUE(server_.Put("key", "replaced").ok());
  ASSERT_TRUE(server_.Put("key", value).ok());
  server_.redo_record = redo;
  ASSERT_TRUE(server_.Checkpoint().ok());
  ExpectSameAfterRestart();
  ASSERT_TRUE(server_.Delete("key").ok());
  ExpectSameAfterRestart();
}

TEST_F(CheckpointTest, ExpiryAndPersistenceOutliveRestarts) {
  ASSERT_TRUE(server_.Put("mortal", "value", absl::Seconds(5)).ok());
  ASSERT_TRUE(server_.Put("prolonged", "value", absl::Seconds(5)).ok());
  ASSERT_TRUE(server_.Put("persisted", "value", absl::Seconds(5)).ok());
  ASSERT_TRUE(server_.Put("limited", "value").ok());
  ASSERT_TRUE(server_.Checkpoint().ok());
  ASSERT_TRUE(server_.Expire("prolonged", absl::Seconds(50)).ok());
  ASSERT_TRUE(server_.Expire("persisted", absl::ZeroDuration()).ok());
  ASSERT_TRUE(server_.Expire("limited", absl::Seconds(5)).ok());
  ExpectSameAfterRestart();
  server_.Advance(absl::Seconds(10));
  EXPECT_EQ(server_.Difference(), "");
  EXPECT_EQ(server_.live_keys(), 2u);
  ExpectSameAfterRestart();
}

TEST_F(CheckpointTest, SessionsKeepTheirResults) {
  server_.BeginSession(7);
  server_.BeginSession(8);
  for (uint64_t i = 1; i <= 2 * kResultsKept; ++i) {
    Asker asker{7, i, std::nullopt, false};
    if (i % 2 == 0) {
      asker.result = wal::EntryResult{0, 0, i, -3, 4, 5, 6};
      asker.has_number = i % 4 == 0;
    }
    ASSERT_TRUE(server_.Put("key", "value", {}, asker).ok());
    if (i == kResultsKept / 2) {
      ASSERT_TRUE(server_.Checkpoint().ok());
    }
  }
  server_.EndSession(8);
  ExpectSameAfterRestart();
  ASSERT_EQ(server_.recovered().sessions.size(), 1u);
  const SessionImage& image = server_.recovered().sessions[0];
  EXPECT_EQ(image.id, 7u);
  ASSERT_EQ(image.results.size(), kResultsKept);
  EXPECT_EQ(image.results.back().first, 2 * kResultsKept);
  EXPECT_TRUE(image.results.back().second.has_number);
  EXPECT_EQ(image.results.back().second.number, -3);
  EXPECT_EQ(image.results.back().second.slot, 5u);
  ASSERT_TRUE(server_.Checkpoint().ok());
  ExpectSameAfterRestart();
}

TEST_F(CheckpointTest, ProgressIsReportedUpToTheTotal) {
  for (uint64_t i = 0; i < 3000; ++i)
    ASSERT_TRUE(server_.Put(absl::StrCat("key-", i), std::string(1000, 'v')).ok());
  ASSERT_TRUE(server_.Checkpoint().ok());
  int calls = 0;
  server_.progress = [&](const RecoveryProgress& progress) {
    ++calls;
    EXPECT_TRUE(progress.bytes_total == 0 || progress.bytes <= progress.bytes_total);
  };
  ExpectSameAfterRestart();
  EXPECT_GE(calls, 1);  // the first item's
}

// --- What recovery refuses ---------------------------------------------------

TEST_F(CheckpointTest, DamagedPartIsAnErrorThatNamesIt) {
  for (uint64_t i = 0; i < 300; ++i)
    ASSERT_TRUE(server_.Put(absl::StrCat("key-", i), std::string(i, 'v')).ok());
  server_.BeginSession(7);
  ASSERT_TRUE(server_.Checkpoint().ok());
  server_.Stop();
  SplitMix64 random(1);
  for (const std::string& name : disk_.Names()) {
    if (!name.starts_with("checkpoint-")) continue;
    for (int i = 0; i < 24 / kLongVolumeParts; ++i) {
      const uint64_t offset = random.Below(disk_.SizeOf(name));
      const auto bit = static_cast<uint8_t>(random.Below(8));
      disk_.FlipBit(name, offset, bit);
      const absl::Status status = server_.Start();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << name << " at " << offset;
      EXPECT_THAT(status.message(), HasSubstr(name));
      server_.Stop();
      disk_.FlipBit(name, offset, bit);
    }
  }
  ASSERT_TRUE(server_.Start().ok());
  EXPECT_EQ(server_.Difference(), "");
}

TEST_F(CheckpointTest, EntriesOfOtherProgramsAreRefused) {
  wal::Entry extend;
  extend.kind = wal::EntryKind::kExtend;
  extend.base = wal::EntryBase{1, 2};
  extend.key = "key";
  extend.version = 5;
  AppendEntry(extend);
  const absl::Status status = server_.Start();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("log-"));
  EXPECT_THAT(status.message(), HasSubstr("an entry of kind 2, which this version never writes"));
}

TEST_F(CheckpointTest, ImpossibleEntriesAreDamage) {
  const auto why = [](const wal::Entry& entry) {
    wal::SimDisk disk(1);
    DurableServer server(disk, ServerOptions());
    EXPECT_TRUE(server.Start().ok());
    wal::GroupBuilder group((wal::GroupHeader()));
    group.Add(entry);
    EXPECT_TRUE(server.log().Append({{wal::RecordKind::kEntries, group.Parts()}}).ok());
    EXPECT_TRUE(server.log().Write().ok());
    const absl::Status status = server.Start();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  };
  wal::Entry put;
  put.key = "key";
  EXPECT_THAT(why(put), HasSubstr("a key has an impossible version"));
  put.version = uint64_t{1} << 48;
  EXPECT_THAT(why(put), HasSubstr("a key has an impossible version"));
  put.version = 5;
  put.expiry = uint64_t{1} << 63;
  EXPECT_THAT(why(put), HasSubstr("a key has an impossible expiry"));
  put.expiry = 0;
  put.client = 7;
  put.result = wal::EntryResult{17, 0, 0, 0, 0, 0, 0};
  EXPECT_THAT(why(put), HasSubstr("a result has the status 17"));
  put.result = wal::EntryResult{0, kWireReasonMax + 1, 0, 0, 0, 0, 0};
  EXPECT_THAT(why(put), HasSubstr("a result has the reason"));
  wal::Entry session;
  session.kind = wal::EntryKind::kSessionBegin;
  EXPECT_THAT(why(session), HasSubstr("a session has no client"));
}

// --- Sessions' bytes ---------------------------------------------------------

SessionImage SomeImage() {
  SessionImage image{0x1122, {}};
  Result result;
  result.code = absl::StatusCode::kOutOfRange;
  result.reason = Reason::kOverflow;
  result.version = 1;
  result.slot = 2;
  result.value_length = 3;
  result.number = -4;
  result.has_number = true;
  result.expiry = 5;
  image.results = {{8, result}, {9, Result()}};
  return image;
}

TEST(SessionBytesTest, SessionComesBackFromItsBytes) {
  const std::string bytes = EncodeSession(SomeImage());
  EXPECT_EQ(bytes.size(), 16u + 2 * 56u);
  SessionImage image;
  ASSERT_EQ(DecodeSession(wal::BytesOfText(bytes), image), "");
  EXPECT_EQ(image.id, 0x1122u);
  ASSERT_EQ(image.results.size(), 2u);
  EXPECT_EQ(image.results[0].first, 8u);
  EXPECT_EQ(image.results[0].second.code, absl::StatusCode::kOutOfRange);
  EXPECT_EQ(image.results[0].second.reason, Reason::kOverflow);
  EXPECT_EQ(image.results[0].second.number, -4);
  EXPECT_EQ(EncodeSession(image), bytes);
}

TEST(SessionBytesTest, OtherBytesAreRefusedOrCanonical) {
  const std::string bytes = EncodeSession(SomeImage());
  SessionImage image;
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_NE(DecodeSession(wal::BytesOfText(bytes.substr(0, size)), image), "") << size;
  EXPECT_NE(DecodeSession(wal::BytesOfText(bytes + '\0'), image), "");
  SplitMix64 random(1);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string changed = bytes;
    for (uint64_t flips = 1 + random.Below(3); flips > 0; --flips)
      changed[random.Below(changed.size())] ^= static_cast<char>(1 << random.Below(8));
    if (DecodeSession(wal::BytesOfText(changed), image).empty()) {
      EXPECT_EQ(EncodeSession(image), changed);
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(SessionBytesTest, SessionSaysWhyItIsNotValid) {
  const auto why = [](auto change) {
    std::string bytes = EncodeSession(SomeImage());
    change(bytes);
    SessionImage image;
    return DecodeSession(wal::BytesOfText(bytes), image);
  };
  EXPECT_EQ(why([](std::string& bytes) { bytes[0] = bytes[1] = 0; }), "a session has no id");
  EXPECT_EQ(why([](std::string& bytes) { bytes[8] = 3; }),
            "a session of 3 results has 112 bytes of them");
  EXPECT_EQ(why([](std::string& bytes) { bytes[12] = 1; }), "reserved bytes are not zero");
  EXPECT_EQ(why([](std::string& bytes) { bytes[16] = 9; }), "a session's results do not ascend");
  EXPECT_EQ(why([](std::string& bytes) { bytes[16] = 0; }), "a session's results do not ascend");
  EXPECT_EQ(why([](std::string& bytes) { bytes[24] = 17; }), "a result has the status 17");
  EXPECT_EQ(why([](std::string& bytes) { bytes[28] = 77; }), "a result has the reason 77");
  EXPECT_EQ(why([](std::string& bytes) { bytes[30] = 2; }), "a result has unknown flags");
}

// As ResultWindow, which a server fills.
TEST(SessionBytesTest, ImageRemembersWhatAWindowRemembers) {
  SplitMix64 random(1);
  ResultWindow window;
  SessionImage image{1, {}};
  uint64_t next = 1;
  for (int i = 0; i < 5000; ++i) {
    next += random.Below(3);
    const uint64_t back = random.Chance(30) ? random.Below(600) : 0;
    const uint64_t sequence = next > back ? next - back : 1;
    Result result;
    result.version = random.Next();
    window.Remember(sequence, result);
    RememberResult(image, sequence, result);
    ASSERT_LT(image.results.size(), 2 * kResultsKept);
  }
  ForgetResults(image);
  uint64_t remembered = 0;
  for (uint64_t sequence = 1; sequence <= next; ++sequence)
    remembered += window.SeenOf(sequence) == ResultWindow::Seen::kAnswered ? 1 : 0;
  EXPECT_EQ(image.results.size(), remembered);
  for (const auto& [sequence, result] : image.results) {
    ASSERT_EQ(window.SeenOf(sequence), ResultWindow::Seen::kAnswered) << sequence;
    EXPECT_EQ(window.Find(sequence).result.version, result.version);
  }
}

}  // namespace
}  // namespace osprey::server
