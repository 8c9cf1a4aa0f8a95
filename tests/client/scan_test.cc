// Scans through the engine, in virtual time: their results, also when the connection breaks, the
// server is replaced, or their time is up.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "client/read/scans.h"
#include "client/reasons.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey {
namespace {

using client::ScanPlace;
using client::Scans;

class ClientScanTest : public ClientEngineTest {
 protected:
  explicit ClientScanTest(const fake::NetworkOptions& network = {}) : ClientEngineTest(network) {}
  void SetUp() override {
    StartServer();
    StartEngine();
    BecomeReady();
  }
  void Store(absl::string_view key, absl::string_view value) {
    const index::WriteResult result = server_->table().Put(
        key, {reinterpret_cast<const std::byte*>(value.data()), value.size()}, {}, now_);
    ASSERT_TRUE(result.status.ok()) << result.status;
  }
  void StoreMany(int keys) {
    for (int i = 0; i < keys; ++i) {
      const std::string key = absl::StrCat(i % 2 == 0 ? "moon" : "planet", i);
      keys_.insert(key);
      Store(key, std::string(i % 100 == 0 ? 3000 : i % 70, 'v'));
      while (server_->table().GrowStep(now_)) {
      }
    }
  }
  Scans::Request RequestOf(Outcome<Scans::Found>& outcome, const std::string& cursor,
                           uint64_t limit, absl::Duration deadline = absl::Seconds(1)) {
    Scans::Request request;
    request.from = ScanPlace::Parse(cursor).value();
    request.limit = limit;
    request.deadline = now_ + deadline;
    request.done = outcome.Callback();
    return request;
  }
  absl::StatusOr<Scans::Found> Page(const std::string& cursor, uint64_t limit,
                                    absl::Duration deadline = absl::Seconds(1)) {
    Outcome<Scans::Found> outcome;
    absl::Status started = engine_->start().Scan(RequestOf(outcome, cursor, limit, deadline));
    if (!started.ok()) return started;
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, deadline + absl::Seconds(1)));
    return std::move(*outcome.value);
  }
  // All pages from `cursor` on; each key is expected once.
  void ExpectAll(uint64_t limit) {
    std::set<std::string> found;
    std::string cursor;
    do {
      const absl::StatusOr<Scans::Found> page = Page(cursor, limit);
      ASSERT_TRUE(page.ok()) << page.status();
      ASSERT_TRUE(page->entries.size() == limit || page->next.at_end()) << page->entries.size();
      for (const index::ScanEntry& entry : page->entries)
        EXPECT_TRUE(found.insert(entry.key).second) << entry.key << " twice";
      cursor = page->next.Text();
    } while (!cursor.empty());
    EXPECT_EQ(found, keys_);
  }

  // Scans one after the other, `many` at a time, until `most` have ended. Returns the Polls of
  // each, and the Polls so far of those under way.
  std::vector<int> PollsOfScans(int many, size_t most, uint64_t limit, bool values) {
    int polls = 0;
    size_t ended = 0;
    std::vector<int> begun(many);
    std::vector<int> taken;
    std::function<void(int)> start = [&](int i) {
      begun[i] = polls;
      Outcome<Scans::Found> unused;
      Scans::Request request = RequestOf(unused, "", limit, absl::Seconds(60));
      request.values = values;
      request.done = [&, i](absl::StatusOr<Scans::Found> found) {
        if (absl::IsCancelled(found.status())) return;
        EXPECT_TRUE(found.ok()) << found.status();
        taken.push_back(polls - begun[i]);
        if (++ended < most) start(i);
      };
      ASSERT_TRUE(engine_->start().Scan(std::move(request)).ok());
    };
    for (int i = 0; i < many; ++i) start(i);
    for (; ended < most && polls < 100'000; ++polls) Step();
    EXPECT_GE(ended, most);
    for (int i = 0; i < many; ++i) taken.push_back(polls - begun[i]);
    CloseEngine();
    return taken;
  }
  static void ExpectWithinTenTimesTheMedian(std::vector<int> taken) {
    std::sort(taken.begin(), taken.end());
    EXPECT_LE(taken.back(), 10 * taken[taken.size() / 2])
        << "of " << taken.size() << ", " << taken[taken.size() / 2] << " is the median";
  }

  std::set<std::string> keys_;
};

// The process is stopped in any Poll of a scan, after its input was processed.
TEST_F(ClientScanTest, ResultDeliveredAfterAStopPastTheDeadlineIsRejected) {
  CloseEngine();
  const auto stopped = std::make_shared<absl::Duration>();
  coarse_clock_ = [this, stopped] { return now_ + *stopped; };
  StartEngine();
  BecomeReady();
  StoreMany(10);
  int whole_at = 0;
  for (int stop_at = 1; stop_at < 20 && whole_at == 0; ++stop_at) {
    SCOPED_TRACE(stop_at);
    Outcome<Scans::Found> outcome;
    ASSERT_TRUE(engine_->start().Scan(RequestOf(outcome, "", UINT64_MAX)).ok());
    for (int poll = 1; !outcome.done(); ++poll) {
      ASSERT_LT(poll, 100);
      engine_->start().Defer([=] {
        if (poll == stop_at) *stopped = absl::Seconds(5);
      });
      Step();
    }
    // The scan had reached its end before.
    if (*stopped == absl::ZeroDuration()) {
      whole_at = stop_at;
    } else {
      EXPECT_TRUE(absl::IsDeadlineExceeded(outcome.status())) << outcome.status();
    }
    now_ += std::exchange(*stopped, absl::ZeroDuration());
  }
  EXPECT_GT(whole_at, 1);
}

TEST_F(ClientScanTest, AllKeysAreFoundInPagesOfAnySizeWithoutAMessage) {
  StoreMany(5000);
  for (const uint64_t limit : {uint64_t{7}, uint64_t{100}, uint64_t{1000}, UINT64_MAX})
    ExpectAll(limit);
  EXPECT_EQ(engine_->counters().messages, 0u);
  EXPECT_EQ(engine_->counters().reads, 0u) << "those are of GETs";
  EXPECT_GT(engine_->counters().scan_reads, 100u);
}

TEST_F(ClientScanTest, AnEmptyTableIsOnePage) {
  const absl::StatusOr<Scans::Found> page = Page("", 10);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_TRUE(page->entries.empty());
  EXPECT_EQ(page->next.Text(), "");
}

TEST_F(ClientScanTest, CountCountsAndPrefixesAreKeptTo) {
  StoreMany(2000);
  Outcome<Scans::Found> count;
  Scans::Request request = RequestOf(count, "", UINT64_MAX);
  request.count_only = true;
  ASSERT_TRUE(engine_->start().Scan(std::move(request)).ok());
  ASSERT_TRUE(RunUntil([&] { return count.done(); }));
  EXPECT_EQ(count.value->value().count, 2000u);
  Outcome<Scans::Found> moons;
  request = RequestOf(moons, "", UINT64_MAX);
  request.prefix = "moon1";
  request.values = true;
  ASSERT_TRUE(engine_->start().Scan(std::move(request)).ok());
  ASSERT_TRUE(RunUntil([&] { return moons.done(); }));
  EXPECT_EQ(moons.value->value().count, 555u);
  for (const index::ScanEntry& entry : moons.value->value().entries) {
    EXPECT_EQ(entry.key.substr(0, 5), "moon1");
    EXPECT_TRUE(entry.has_value);
    EXPECT_EQ(entry.value.size(), entry.value_length);
  }
}

TEST_F(ClientScanTest, GetsGoOnBesideAScanAndManyScansBesideEachOther) {
  StoreMany(3000);
  std::vector<Outcome<Scans::Found>> scans(5);
  for (Outcome<Scans::Found>& scan : scans)
    ASSERT_TRUE(engine_->start().Scan(RequestOf(scan, "", UINT64_MAX)).ok());
  Step();
  const absl::Time start = now_;
  EXPECT_TRUE(Get("moon0").ok());
  EXPECT_LE(now_ - start, absl::Milliseconds(15));
  EXPECT_FALSE(scans[0].done());
  for (Outcome<Scans::Found>& scan : scans) {
    ASSERT_TRUE(RunUntil([&] { return scan.done(); }));
    EXPECT_EQ(scan.value->value().count, 3000u);
  }
  EXPECT_EQ(engine_->in_flight(), 0);
}

TEST_F(ClientScanTest, ConcurrentScansLeaveReadCreditsForGets) {
  for (int i = 0; i < 2000; ++i) {
    Store(absl::StrCat("moon", i), std::string(300, 'v'));
    while (server_->table().GrowStep(now_)) {
    }
  }
  std::vector<Outcome<Scans::Found>> scans(8);
  for (Outcome<Scans::Found>& scan : scans)
    ASSERT_TRUE(engine_->start().Scan(RequestOf(scan, "", UINT64_MAX, absl::Seconds(10))).ok());
  ASSERT_TRUE(RunUntil([&] { return engine_->counters().scan_reads >= 500; }));
  EXPECT_TRUE(Get("moon0").ok());
  for (Outcome<Scans::Found>& scan : scans) EXPECT_FALSE(scan.done()) << "a GET had to wait";
  for (Outcome<Scans::Found>& scan : scans) {
    ASSERT_TRUE(RunUntil([&] { return scan.done(); }, absl::Seconds(10)));
    EXPECT_EQ(scan.value->value().count, 2000u);
  }
}

TEST_F(ClientScanTest, AConnectionThatBreaksAfterAnyStepIsOnlyADelay) {
  StoreMany(1000);
  for (uint64_t reads = 1; reads < 40; reads += 3) {
    const uint64_t before = engine_->counters().scan_reads;
    Outcome<Scans::Found> scan;
    ASSERT_TRUE(engine_->start().Scan(RequestOf(scan, "", UINT64_MAX, absl::Seconds(5))).ok());
    ASSERT_TRUE(RunUntil([&] { return engine_->counters().scan_reads >= before + reads; }));
    network_.Break(id());
    ASSERT_TRUE(RunUntil([&] { return scan.done(); }, absl::Seconds(6)));
    ASSERT_TRUE(scan.status().ok()) << scan.status();
    EXPECT_EQ(scan.value->value().count, 1000u);
  }
}

TEST_F(ClientScanTest, ACursorIsOfOneLifeOfTheServer) {
  StoreMany(2000);
  const std::string cursor = Page("", 100)->next.Text();
  ASSERT_NE(cursor, "");
  EXPECT_TRUE(Page(cursor, 100).ok());
  Outcome<Scans::Found> from_the_beginning, goes_on;
  ASSERT_TRUE(
      engine_->start().Scan(RequestOf(from_the_beginning, "", UINT64_MAX, absl::Seconds(10))).ok());
  ASSERT_TRUE(
      engine_->start().Scan(RequestOf(goes_on, cursor, UINT64_MAX, absl::Seconds(10))).ok());
  RunFor(absl::Milliseconds(2), absl::Microseconds(100));
  ASSERT_FALSE(from_the_beginning.done());
  KillServer();
  keys_.clear();
  StartServer(2);
  Store("star", "vega");
  ASSERT_TRUE(
      RunUntil([&] { return from_the_beginning.done() && goes_on.done(); }, absl::Seconds(10)));
  ASSERT_TRUE(from_the_beginning.status().ok()) << from_the_beginning.status();
  ASSERT_EQ(from_the_beginning.value->value().entries.size(), 1u);
  EXPECT_EQ(from_the_beginning.value->value().entries[0].key, "star");
  EXPECT_EQ(ReasonOf(goes_on.status()), Reason::kStaleCursor) << goes_on.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(goes_on.status()));
}

TEST_F(ClientScanTest, AScanThatBeginsAgainIsOfTheSameShard) {
  StoreMany(2000);
  Outcome<Scans::Found> outcome;
  ASSERT_TRUE(engine_->start().Scan(RequestOf(outcome, "s02", 1'000'000, absl::Seconds(20))).ok());
  RunFor(absl::Milliseconds(2), absl::Microseconds(100));
  ASSERT_FALSE(outcome.done());
  KillServer();
  StartServer(2);
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(20)));
  ASSERT_TRUE(outcome.status().ok()) << outcome.status();
  EXPECT_EQ(outcome.value->value().count, 0u);  // the new server's keys
  EXPECT_EQ(outcome.value->value().next.shard, 2u);
}

TEST_F(ClientScanTest, PageAtItsDeadlineReturnsTheKeysFoundSoFar) {
  StoreMany(5000);
  const absl::StatusOr<Scans::Found> page = Page("", UINT64_MAX, absl::Milliseconds(5));
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_GT(page->entries.size(), 0u);
  EXPECT_LT(page->entries.size(), 5000u);
  EXPECT_NE(page->next.Text(), "");
  // Nothing yet: an error. READs under way land in a buffer that waits for them.
  network_.HoldReads(id(), true);
  EXPECT_EQ(ReasonOf(Page("", 10, absl::Milliseconds(5)).status()), Reason::kDeadline);
  for (int i = 0; i < 100; ++i) (void)Page("", 10, absl::Milliseconds(1));
  network_.HoldReads(id(), false);
  ExpectAll(1000);
  EXPECT_EQ(engine_->counters().connects, 1u);
}

TEST_F(ClientScanTest, ClosingCancelsScansWithReadsUnderWay) {
  StoreMany(1000);
  Outcome<Scans::Found> scan;
  ASSERT_TRUE(engine_->start().Scan(RequestOf(scan, "", UINT64_MAX)).ok());
  RunFor(absl::Milliseconds(1), absl::Microseconds(100));
  network_.HoldReads(id(), true);
  CloseEngine();
  EXPECT_TRUE(absl::IsCancelled(scan.status())) << scan.status();
}

TEST_F(ClientScanTest, ATextThatIsNoCursorIsRefused) {
  StoreMany(2000);
  const std::string cursor = Page("", 100)->next.Text();
  EXPECT_TRUE(ScanPlace::Parse(cursor).ok());
  // A cursor whose hash belongs to another home.
  ScanPlace divided = ScanPlace::Parse(cursor).value();
  divided.cursor.home = 1;
  divided.cursor.from_hash = 1;
  // Each number has a bound, here in the order of the text.
  const auto text_of = [](uint64_t incarnation, uint32_t partition, uint64_t position,
                          uint32_t depth, uint32_t home) {
    return absl::StrFormat("%016x%02x%07x%02x%02x", incarnation, partition, position, depth, home);
  };
  constexpr uint64_t kPositions = index::ScanCursor::kPositions;
  EXPECT_TRUE(ScanPlace::Parse(text_of(1, 63, kPositions - 1, 26, 254)).ok());
  for (const std::string& text :
       {text_of(0, 63, kPositions - 1, 26, 254), text_of(1, 64, kPositions - 1, 26, 254),
        text_of(1, 63, kPositions, 26, 254), text_of(1, 63, kPositions - 1, 27, 254),
        text_of(1, 63, kPositions - 1, 255, 254), text_of(1, 63, kPositions - 1, 26, 255),
        divided.Text(), cursor + "0", cursor.substr(1), std::string(cursor.size(), 'x'),
        std::string("-"), "0x" + cursor.substr(2), absl::AsciiStrToUpper("a" + cursor.substr(1))}) {
    EXPECT_EQ(ReasonOf(ScanPlace::Parse(text).status()), Reason::kBadCursor) << text;
  }
}

// Chains of READs that end in one Poll: one, which is typical of verbs, or all, as over shm.
class ClientScanTurnsTest : public ClientScanTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  ClientScanTurnsTest() : ClientScanTest(Batches()) {}
  static fake::NetworkOptions Batches() {
    fake::NetworkOptions options;
    options.read_batches_per_poll = GetParam();
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(BatchesInAPoll, ClientScanTurnsTest, ::testing::Values(1, 1000));

// The READs in flight are those of two scans at most.
TEST_P(ClientScanTurnsTest, ScansTakeTurnsInPostingReads) {
  for (int i = 0; i < 200; ++i) Store(absl::StrCat("moon", i), std::string(300, 'v'));
  ExpectWithinTenTimesTheMedian(PollsOfScans(16, 500, 100, false));
}

// There are long buffers for half of the scans. Each scan begins with a short one and ends with a
// long one.
TEST_P(ClientScanTurnsTest, ScansTakeTurnsInTakingBuffers) {
  CloseEngine();
  StartEngine(256, 4 << 20);
  BecomeReady();
  for (int i = 0; i < 400; ++i) Store(absl::StrCat("moon", i), std::string(3000, 'v'));
  ExpectWithinTenTimesTheMedian(PollsOfScans(32, 200, 100, true));
}

class ClientScanTornTest : public ClientScanTest {
 protected:
  ClientScanTornTest() : ClientScanTest(Pieces()) {}
  static fake::NetworkOptions Pieces() {
    fake::NetworkOptions options;
    options.read_piece_bytes = 64;
    options.shuffle_pieces = true;
    options.read_bytes_max = 4096;
    return options;
  }
};

TEST_F(ClientScanTornTest, KeysThatAreThereThroughoutAreFoundWhileOthersComeAndGo) {
  StoreMany(1000);
  int copies = 0;
  int writes = 0;
  network_.before_piece = [&](absl::Span<const std::byte>) {
    if (++copies % 15 != 0) return;
    ++writes;
    const std::string name = absl::StrCat("comet", writes % 500);
    if (writes % 3 == 0) {
      (void)server_->table().Delete(name, {}, now_);
    } else {
      Store(writes % 3 == 1 ? name : absl::StrCat("moon", writes % 500 * 2),
            std::string(static_cast<size_t>(writes % 150), 'w'));
    }
    server_->table().GrowStep(now_);
  };
  for (int i = 0; i < 20; ++i) {
    std::set<std::string> found;
    std::string cursor;
    do {
      const absl::StatusOr<Scans::Found> page = Page(cursor, 300);
      ASSERT_TRUE(page.ok()) << page.status();
      for (const index::ScanEntry& entry : page->entries) found.insert(entry.key);
      cursor = page->next.Text();
    } while (!cursor.empty());
    for (const std::string& key : keys_) EXPECT_EQ(found.count(key), 1u) << key;
  }
  EXPECT_GT(writes, 1000);
}

}  // namespace
}  // namespace osprey
