// Long values through the engine, in virtual time: they arrive in pieces, despite concurrent
// writes.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "client/read/value_reads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/layout/layout.h"
#include "index/reader/lookup.h"
#include "tests/client/client_engine_fixture.h"
#include "tests/support/allocation_count.h"

namespace osprey {
namespace {

constexpr uint64_t kMebibyte = 1 << 20;
constexpr uint64_t kPiece = client::ValueReads::kPieceBytes;

class ClientLargeTest : public ClientEngineTest {
 protected:
  explicit ClientLargeTest(const fake::NetworkOptions& network = {}) : ClientEngineTest(network) {}
  void SetUp() override {
    StartLargeServer();
    StartEngine();
    BecomeReady();
  }
  virtual size_t region_bytes() const { return 64 * kMebibyte; }
  void StartLargeServer(uint64_t incarnation = 1) {
    server_ = std::make_unique<ScriptedServer>(network_, kUri, incarnation, region_bytes());
    server_->value_bytes_max = 48 * kMebibyte;
  }
  // Directly into the table, as if another client had written it.
  uint64_t Store(absl::string_view key, absl::string_view value) {
    const index::WriteResult result = server_->table().Put(
        key, {reinterpret_cast<const std::byte*>(value.data()), value.size()}, {}, now_);
    EXPECT_TRUE(result.status.ok()) << result.status;
    return result.version;
  }
  static std::string ValueOf(uint64_t bytes, uint64_t seed = 1) {
    std::string value(bytes, '\0');
    uint64_t state = seed;
    for (char& c : value) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      c = static_cast<char>(state >> 56);
    }
    return value;
  }
  const Counters& counters() const { return engine_->counters(); }
};

TEST_F(ClientLargeTest, ValuesAroundEveryBoundComeBackWhole) {
  for (const uint64_t bytes :
       {index::kWholeValueBytesMax, index::kLookupReadBytesMax - 40, index::kLookupReadBytesMax,
        2 * kPiece - 1, 2 * kPiece, 2 * kPiece + 1, 5 * kMebibyte + 3}) {
    const std::string value = ValueOf(bytes);
    const uint64_t version = Store("planet", value);
    const absl::StatusOr<Value> got = Get("planet");
    ASSERT_TRUE(got.ok()) << bytes << ": " << got.status();
    EXPECT_TRUE(got->bytes == value) << bytes;
    EXPECT_EQ(got->version, version);
  }
  EXPECT_EQ(counters().messages, 0u);
}

TEST_F(ClientLargeTest, AValueTakesItsWindowItsHeadAndItsPieces) {
  const std::string value = ValueOf(4 * kMebibyte);
  Store("planet", value);
  EXPECT_TRUE(Get("planet")->bytes == value);
  EXPECT_EQ(counters().reads, 2 + 4 * kMebibyte / kPiece);
  EXPECT_LE(counters().read_bytes, 4 * kMebibyte + 1000);
  EXPECT_TRUE(Get("planet")->bytes == value);  // its slot is cached now
  EXPECT_EQ(counters().reads, 3 + 2 * 4 * kMebibyte / kPiece);
}

TEST_F(ClientLargeTest, ExistsDoesNotFetchTheValue) {
  Store("planet", ValueOf(4 * kMebibyte));
  Outcome<Value> exists;
  ASSERT_TRUE(engine_->start()
                  .Get("planet", /*want_value=*/false, now_ + absl::Seconds(1), exists.Callback())
                  .ok());
  ASSERT_TRUE(RunUntil([&] { return exists.done(); }));
  EXPECT_TRUE(exists.status().ok()) << exists.status();
  EXPECT_LE(counters().read_bytes, 1000u);
}

TEST_F(ClientLargeTest, ValuesLongerThanAllBuffersAndManyAtOnceComeBack) {
  CloseEngine();
  StartEngine(/*operations_max=*/256, /*buffer_bytes_max=*/4 * kMebibyte);
  BecomeReady();
  std::vector<std::string> values;
  std::vector<Outcome<Value>> gets(8);
  for (uint64_t i = 0; i < gets.size(); ++i) {
    values.push_back(ValueOf(6 * kMebibyte + i, i));
    Store(absl::StrCat("planet", i), values.back());
    ASSERT_TRUE(StartGet(absl::StrCat("planet", i), gets[i]).ok());
  }
  Store("moon", "io");
  Outcome<Value> small;
  ASSERT_TRUE(StartGet("moon", small).ok());
  ASSERT_TRUE(RunUntil([&] { return small.done(); }));
  EXPECT_EQ(small.value->value().bytes, "io");
  EXPECT_FALSE(gets[0].done()) << "long values keep a short one waiting";
  for (uint64_t i = 0; i < gets.size(); ++i) {
    ASSERT_TRUE(RunUntil([&] { return gets[i].done(); }));
    ASSERT_TRUE(gets[i].status().ok()) << gets[i].status();
    EXPECT_TRUE(gets[i].value->value().bytes == values[i]) << i;
  }
}

TEST_F(ClientLargeTest, LargeGetsLeaveReadCreditsForSmallGets) {
  Store("planet", ValueOf(8 * kMebibyte));
  Store("moon", "io");
  std::vector<Outcome<Value>> gets(40);
  for (Outcome<Value>& get : gets) ASSERT_TRUE(StartGet("planet", get, absl::Seconds(10)).ok());
  ASSERT_TRUE(RunUntil([&] { return counters().reads >= 300; }));  // many pieces are in flight
  Outcome<Value> small;
  ASSERT_TRUE(StartGet("moon", small).ok());
  ASSERT_TRUE(RunUntil([&] { return small.done(); }));
  EXPECT_EQ(small.value->value().bytes, "io");
  for (const Outcome<Value>& get : gets) EXPECT_FALSE(get.done()) << "a short one had to wait";
  CloseEngine();
}

TEST_F(ClientLargeTest, AValueThatIsLateIsAnsweredAtItsDeadlineAndItsBuffersComeBack) {
  Store("planet", ValueOf(8 * kMebibyte));
  Store("star", ValueOf(2 * kMebibyte, 2));
  for (int i = 0; i < 50; ++i) {
    Outcome<Value> get;
    ASSERT_TRUE(StartGet("planet", get, absl::Milliseconds(10)).ok());
    const uint64_t before = counters().reads;
    ASSERT_TRUE(RunUntil([&] { return counters().reads >= before + 4; }));  // pieces are under way
    network_.HoldReads(id(), true);
    ASSERT_TRUE(RunUntil([&] { return get.done(); }));
    EXPECT_TRUE(absl::IsDeadlineExceeded(get.status())) << get.status();
    network_.HoldReads(id(), false);
  }
  EXPECT_TRUE(Get("star")->bytes == ValueOf(2 * kMebibyte, 2));
  EXPECT_EQ(counters().connects, 1u);
}

TEST_F(ClientLargeTest, ATransferThatIsSlowButProgressesIsNotTakenForStuck) {
  const std::string value = ValueOf(5 * kMebibyte);
  Store("planet", value);
  Outcome<Value> get;
  ASSERT_TRUE(StartGet("planet", get, absl::Seconds(60)).ok());
  const absl::Time start = now_;
  while (!get.done() && now_ < start + absl::Seconds(60)) {
    network_.HoldReads(id(), false);
    Step();
    if (get.done()) break;
    network_.HoldReads(id(), true);
    RunFor(absl::Seconds(2));
  }
  ASSERT_TRUE(get.done());
  ASSERT_TRUE(get.status().ok()) << get.status();
  EXPECT_TRUE(get.value->value().bytes == value);
  EXPECT_GT(now_ - start, 3 * client::ClientEngine::kReadsStuckMax());
  EXPECT_EQ(counters().connects, 1u);
}

TEST_F(ClientLargeTest, PiecesThatNeverEndBreakTheConnectionAndTheGetIsDoneAgain) {
  const std::string value = ValueOf(8 * kMebibyte);
  Store("planet", value);
  Outcome<Value> get;
  ASSERT_TRUE(StartGet("planet", get, absl::Seconds(30)).ok());
  ASSERT_TRUE(RunUntil([&] { return counters().reads >= 6; }));
  network_.HoldReads(id(), true);
  ASSERT_TRUE(RunUntil([&] { return get.done(); }, absl::Seconds(30)));
  EXPECT_TRUE(get.value->value().bytes == value);
  EXPECT_EQ(counters().connects, 2u);
}

TEST_F(ClientLargeTest, AConnectionThatBreaksAfterAnyPieceIsOnlyADelay) {
  const std::string value = ValueOf(2 * kMebibyte);
  for (uint64_t reads = 1; reads < 10; ++reads) {
    Store("planet", value);
    const uint64_t before = counters().reads;
    Outcome<Value> get;
    ASSERT_TRUE(StartGet("planet", get).ok());
    ASSERT_TRUE(RunUntil([&] { return counters().reads >= before + reads; }));
    network_.Break(id());
    ASSERT_TRUE(RunUntil([&] { return get.done(); }, absl::Seconds(5)));
    ASSERT_TRUE(get.status().ok()) << get.status();
    EXPECT_TRUE(get.value->value().bytes == value);
  }
  EXPECT_GE(counters().connects, 9u);
}

TEST_F(ClientLargeTest, ClosingCancelsALargeGetInFlight) {
  Store("planet", ValueOf(8 * kMebibyte));
  Outcome<Value> get;
  ASSERT_TRUE(StartGet("planet", get).ok());
  ASSERT_TRUE(RunUntil([&] { return counters().reads >= 6; }));
  network_.HoldReads(id(), true);
  CloseEngine();
  EXPECT_TRUE(absl::IsCancelled(get.status())) << get.status();
}

TEST_F(ClientLargeTest, ALengthThatNoValueOfThisServerHasIsNotFetched) {
  CloseEngine();
  server_->value_bytes_max = 1 * kMebibyte;
  StartEngine();
  BecomeReady();
  Store("planet", ValueOf(8 * kMebibyte));
  EXPECT_FALSE(Get("planet", absl::Milliseconds(50)).ok());
  EXPECT_LE(counters().read_bytes, 10000u);
}

// The head of a value of 1 MiB names 40 MiB, as a head that was copied during a write.
TEST_F(ClientLargeTest, AHeadThatNamesMoreThanItsSlotCostsNoMemory) {
  Store("sun", ValueOf(42 * kMebibyte));  // above it, so that the region is long enough
  const std::string value = ValueOf(1 * kMebibyte);
  Store("planet", value);
  const uint64_t slot = server_->table().Find("planet")->slot;
  ASSERT_NE(slot, 0u);
  const uint64_t offset = index::Slot::Unpack(slot).offset;
  index::ItemHeader header;
  std::memcpy(&header, server_->region().data() + offset, sizeof(header));
  index::ItemHeader torn = header;
  torn.length_word = 40 * kMebibyte;
  std::memcpy(server_->region().data() + offset, &torn, sizeof(torn));
  const uint64_t allocated = AllocatedBytesSoFar();
  Outcome<Value> get;
  ASSERT_TRUE(StartGet("planet", get).ok());
  ASSERT_TRUE(RunUntil([&] { return counters().reads >= 3; }));  // the head has landed
  std::memcpy(server_->region().data() + offset, &header, sizeof(header));
  ASSERT_TRUE(RunUntil([&] { return get.done(); }));
  ASSERT_TRUE(get.status().ok()) << get.status();
  EXPECT_TRUE(get.value->value().bytes == value);
  EXPECT_LT(AllocatedBytesSoFar() - allocated, 16 * kMebibyte);
  EXPECT_LT(counters().read_bytes, 2 * kMebibyte);
}

// Line and head agree on the length. No part of the value has arrived.
TEST_F(ClientLargeTest, MemoryForAValueIsReservedAsItsPiecesLand) {
  const std::string value = ValueOf(40 * kMebibyte);
  Store("planet", value);
  Outcome<Value> get;
  uint64_t allocated = AllocatedBytesSoFar();
  ASSERT_TRUE(StartGet("planet", get, absl::Seconds(30)).ok());
  ASSERT_TRUE(RunUntil([&] { return counters().reads >= 3; }));  // its first piece is on its way
  network_.HoldReads(id(), true);
  RunFor(absl::Milliseconds(10));
  EXPECT_LT(AllocatedBytesSoFar() - allocated, 16 * kMebibyte);
  network_.HoldReads(id(), false);
  ASSERT_TRUE(RunUntil([&] { return get.done(); }, absl::Seconds(30)));
  ASSERT_TRUE(get.status().ok()) << get.status();
  EXPECT_TRUE(get.value->value().bytes == value);
}

class ClientLargeTornTest : public ClientLargeTest {
 protected:
  ClientLargeTornTest() : ClientLargeTest(Pieces()) {}
  size_t region_bytes() const override { return 4 * kMebibyte; }
  static fake::NetworkOptions Pieces() {
    fake::NetworkOptions options;
    options.read_piece_bytes = 32768;
    options.shuffle_pieces = true;
    return options;
  }
};

// Values of one size, which reuse each other's space as soon as allowed.
TEST_F(ClientLargeTornTest, ReturnsOldOrNewValueWhileItIsOverwritten) {
  constexpr uint64_t kBytes = 600000;
  uint64_t version = Store("planet", std::string(kBytes, 'a'));
  int copies = 0;
  int writes = 0;
  int copies_a_write = 1;
  network_.before_piece = [&](absl::Span<const std::byte>) {
    if (++copies % copies_a_write != 0) return;
    // Time for the grace periods of dead items to pass.
    now_ += absl::Milliseconds(200);
    version = Store("planet", std::string(kBytes, static_cast<char>('a' + ++writes % 26)));
  };
  int answered = 0;
  for (int i = 0; i < 60; ++i) {
    copies_a_write = 3 + i % 3;
    const uint64_t before = version;
    const absl::StatusOr<Value> value = Get("planet", absl::Seconds(20));
    if (!value.ok()) continue;
    ++answered;
    ASSERT_TRUE(value->bytes == std::string(kBytes, value->bytes[0])) << "a mixture";
    ASSERT_GE(value->version, before);
    ASSERT_LE(value->version, version);
  }
  EXPECT_GT(answered, 20);
  EXPECT_GT(counters().torn, 20u);
}

}  // namespace
}  // namespace osprey
