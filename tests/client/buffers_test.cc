// Values put from and fetched into the user's memory, in virtual time: without a copy, and nothing
// lands there once the operation is answered (R5).

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/buffer.h"
#include "client/common/registered_memory.h"
#include "client/read/value_reads.h"
#include "client/reasons.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey {
namespace {

using client::RegisteredMemory;
using client::UserMemory;

constexpr uint64_t kMiB = 1 << 20;
constexpr std::byte kUntouched{0xee};

class ClientBuffersTest : public ClientEngineTest {
 protected:
  explicit ClientBuffersTest(const fake::NetworkOptions& network = {})
      : ClientEngineTest(network) {}
  void SetUp() override {
    server_ = std::make_unique<ScriptedServer>(network_, kUri, 1, 32 * kMiB);
    server_->value_bytes_max = 16 * kMiB;
    StartEngine();
    BecomeReady();
  }
  ~ClientBuffersTest() override {
    if (engine_ != nullptr) CloseEngine();
    memory_.reset();
  }
  void Store(absl::string_view key, absl::string_view value) {
    const index::WriteResult result = server_->table().Put(
        key, {reinterpret_cast<const std::byte*>(value.data()), value.size()}, {}, now_);
    ASSERT_TRUE(result.status.ok()) << result.status;
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

  // A buffer as Client::AllocateBuffer makes it, full of kUntouched.
  UserMemory NewBuffer(uint64_t bytes) {
    const std::shared_ptr<rdma::Domain> domain(domain_.get(), [](rdma::Domain*) {});
    memory_ = std::make_shared<RegisteredMemory>(
        domain, domain_->Allocate(bytes + 4096, rdma::Access::kRemoteRead).value(), bytes,
        engine_->exposer_link());
    Fill(kUntouched);
    return {memory_->memory->data(), bytes, memory_};
  }
  void Fill(std::byte byte) {
    std::memset(memory_->memory->data(), static_cast<int>(byte), memory_->memory->size());
  }
  std::string Contents(uint64_t from, uint64_t bytes) const {
    return {reinterpret_cast<const char*>(memory_->memory->data() + from), bytes};
  }
  bool IsAll(std::byte byte, uint64_t from) const {
    std::byte* const end = memory_->memory->data() + memory_->memory->size();
    return std::all_of(memory_->memory->data() + from, end,
                       [byte](std::byte b) { return b == byte; });
  }

  absl::Status StartGetInto(absl::string_view key, const UserMemory& target,
                            Outcome<ValueInfo>& outcome,
                            absl::Duration deadline = absl::Seconds(1)) {
    return engine_->start().GetInto(key, target, now_ + deadline, outcome.Callback());
  }
  absl::StatusOr<ValueInfo> GetInto(absl::string_view key, const UserMemory& target) {
    Outcome<ValueInfo> outcome;
    if (absl::Status status = StartGetInto(key, target, outcome); !status.ok()) return status;
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(2)));
    return *outcome.value;
  }
  absl::Status StartPutFrom(absl::string_view key, const UserMemory& source,
                            Outcome<uint64_t>& outcome,
                            absl::Duration deadline = absl::Seconds(1)) {
    return engine_->start().PutFrom(key, source, {}, now_ + deadline, outcome.Callback());
  }
  absl::StatusOr<uint64_t> PutFrom(absl::string_view key, const UserMemory& source) {
    Outcome<uint64_t> outcome;
    if (absl::Status status = StartPutFrom(key, source, outcome); !status.ok()) return status;
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(2)));
    return *outcome.value;
  }
  // Pieces are under way into the user's memory.
  void AwaitPieces() {
    const uint64_t before = engine_->counters().reads;
    ASSERT_TRUE(RunUntil([&] { return engine_->counters().reads >= before + 5; }));
  }
  uint64_t connects() const { return engine_->counters().connects; }

  std::shared_ptr<RegisteredMemory> memory_;
};

// --- Getting

TEST_F(ClientBuffersTest, GetIntoWritesOnlyTheRequestedRange) {
  const UserMemory buffer = NewBuffer(6 * kMiB);
  for (const uint64_t bytes :
       {uint64_t{0}, uint64_t{1}, uint64_t{30}, uint64_t{5000}, uint64_t{65400}, uint64_t{65536},
        uint64_t{65600}, client::ValueReads::kPieceBytes, 5 * kMiB + 1}) {
    const std::string value = ValueOf(bytes, bytes);
    Store("planet", value);
    Fill(kUntouched);
    const UserMemory target{buffer.data + 13, bytes + 100, buffer.owner};
    const absl::StatusOr<ValueInfo> got = GetInto("planet", target);
    ASSERT_TRUE(got.ok()) << bytes << ": " << got.status();
    EXPECT_EQ(got->length, bytes);
    EXPECT_EQ(got->version, server_->table().Find("planet")->version);
    EXPECT_TRUE(Contents(13, bytes) == value) << bytes;
    EXPECT_EQ(Contents(0, 13), std::string(13, '\xee'));
    EXPECT_TRUE(IsAll(kUntouched, 13 + bytes)) << bytes;
  }
  EXPECT_TRUE(absl::IsNotFound(GetInto("absent", buffer).status()));
  EXPECT_EQ(engine_->counters().messages, 0u);
}

TEST_F(ClientBuffersTest, ABufferOfExactlyTheValuesLengthWillDoAndOneByteLessWillNot) {
  for (const uint64_t bytes : {uint64_t{30}, uint64_t{5000}, uint64_t{300000}, 3 * kMiB}) {
    const std::string value = ValueOf(bytes);
    Store("planet", value);
    UserMemory buffer = NewBuffer(bytes);
    ASSERT_TRUE(GetInto("planet", buffer).ok()) << bytes;
    EXPECT_TRUE(Contents(0, bytes) == value);
    buffer.size = bytes - 1;
    Fill(kUntouched);
    const absl::Status status = GetInto("planet", buffer).status();
    EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
    EXPECT_EQ(ReasonOf(status), Reason::kBufferTooSmall);
    EXPECT_EQ(BytesNeeded(status), bytes);
    EXPECT_TRUE(IsAll(kUntouched, bytes - 1)) << "behind the buffer's end";
  }
  EXPECT_EQ(BytesNeeded(absl::OutOfRangeError("of something else")), 0u);
}

// The client asks the server about a length from a torn head before it reports it.
TEST_F(ClientBuffersTest, AValueThatHasBecomeShortEnoughMeanwhileIsFetched) {
  Store("planet", ValueOf(3 * kMiB));
  const UserMemory buffer = NewBuffer(1 * kMiB);
  server_->answers = false;
  Outcome<ValueInfo> get;
  ASSERT_TRUE(StartGetInto("planet", buffer, get).ok());
  ASSERT_TRUE(RunUntil([&] { return !server_->requests.empty(); }));
  const std::string value = ValueOf(300000, 2);
  Store("planet", value);
  server_->answers = true;
  ASSERT_TRUE(RunUntil([&] { return get.done(); }));
  ASSERT_TRUE(get.status().ok()) << get.status();
  EXPECT_TRUE(Contents(0, value.size()) == value);
}

TEST_F(ClientBuffersTest, ALateGetIsAnsweredOnlyWhenNothingCanLandAnyMore) {
  Store("planet", ValueOf(8 * kMiB));
  const UserMemory buffer = NewBuffer(8 * kMiB);
  Outcome<ValueInfo> get;
  const absl::Time start = now_;
  ASSERT_TRUE(StartGetInto("planet", buffer, get, absl::Milliseconds(50)).ok());
  AwaitPieces();
  const rdma::ConnectionId late = id();
  network_.HoldReads(late, true);
  ASSERT_TRUE(RunUntil([&] { return get.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(get.status())) << get.status();
  EXPECT_GE(now_ - start, absl::Milliseconds(50));
  EXPECT_LE(now_ - start, absl::Milliseconds(55));
  // The user continues to use the buffer.
  Fill(std::byte{0x11});
  network_.HoldReads(late, false);
  RunFor(absl::Seconds(10));
  EXPECT_TRUE(IsAll(std::byte{0x11}, 0)) << "a READ landed after the operation was answered";
  EXPECT_EQ(connects(), 2u);
  EXPECT_TRUE(GetInto("planet", buffer).ok());
}

TEST_F(ClientBuffersTest, ALateGetWithoutReadsUnderWayLeavesTheConnectionAlone) {
  server_->answers = false;
  Store("planet", ValueOf(3 * kMiB));
  const UserMemory buffer = NewBuffer(1 * kMiB);  // too small: the server is asked
  Outcome<ValueInfo> get;
  ASSERT_TRUE(StartGetInto("planet", buffer, get, absl::Milliseconds(50)).ok());
  ASSERT_TRUE(RunUntil([&] { return get.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(get.status())) << get.status();
  EXPECT_EQ(connects(), 1u);
}

TEST_F(ClientBuffersTest, ABreakInMidTransferDelaysUntilTheDeadline) {
  const std::string value = ValueOf(8 * kMiB);
  Store("planet", value);
  const UserMemory buffer = NewBuffer(8 * kMiB);
  Outcome<ValueInfo> get;
  ASSERT_TRUE(StartGetInto("planet", buffer, get).ok());
  AwaitPieces();
  network_.Break(id());
  ASSERT_TRUE(RunUntil([&] { return get.done(); }, absl::Seconds(2)));
  ASSERT_TRUE(get.status().ok()) << get.status();
  EXPECT_TRUE(Contents(0, value.size()) == value);
  // Once more, and the deadline passes while the pieces are still to be flushed.
  Outcome<ValueInfo> late;
  ASSERT_TRUE(StartGetInto("planet", buffer, late, absl::Milliseconds(5)).ok());
  AwaitPieces();
  network_.Break(id());
  now_ += absl::Milliseconds(5);
  ASSERT_TRUE(RunUntil([&] { return late.done(); }));
  Fill(std::byte{0x11});
  RunFor(absl::Seconds(5));
  EXPECT_TRUE(IsAll(std::byte{0x11}, 0));
}

TEST_F(ClientBuffersTest, ClosingWithPiecesUnderWayCancelsWhenNothingCanLandAnyMore) {
  Store("planet", ValueOf(8 * kMiB));
  const UserMemory buffer = NewBuffer(8 * kMiB);
  Outcome<ValueInfo> get;
  ASSERT_TRUE(StartGetInto("planet", buffer, get).ok());
  AwaitPieces();
  network_.HoldReads(id(), true);
  engine_->Close();
  EXPECT_FALSE(get.done()) << "READs are under way in the user's memory";
  ASSERT_TRUE(RunUntil([&] { return get.done(); }));
  EXPECT_TRUE(absl::IsCancelled(get.status())) << get.status();
  Fill(std::byte{0x11});
  RunFor(absl::Milliseconds(10));
  EXPECT_TRUE(IsAll(std::byte{0x11}, 0));
}

// As when the transport does not end in the time that Client's destructor has.
TEST_F(ClientBuffersTest, AnEngineDestroyedBeforeItsConnectionHasEndedStillAnswers) {
  Store("planet", ValueOf(8 * kMiB));
  const UserMemory buffer = NewBuffer(8 * kMiB);
  Outcome<ValueInfo> get;
  ASSERT_TRUE(StartGetInto("planet", buffer, get).ok());
  AwaitPieces();
  network_.HoldReads(id(), true);
  engine_->Close();
  engine_.reset();
  EXPECT_TRUE(absl::IsCancelled(get.status())) << get.status();
}

TEST_F(ClientBuffersTest, ABufferDestroyedWhileItIsUsedStaysUntilTheEnd) {
  Store("planet", ValueOf(8 * kMiB));
  Outcome<ValueInfo> get;
  ASSERT_TRUE(StartGetInto("planet", NewBuffer(8 * kMiB), get).ok());
  std::weak_ptr<RegisteredMemory> watch = memory_;
  memory_.reset();
  AwaitPieces();
  EXPECT_FALSE(watch.expired());
  ASSERT_TRUE(RunUntil([&] { return get.done(); }));
  EXPECT_TRUE(get.status().ok()) << get.status();
  EXPECT_TRUE(watch.expired());
}

// --- Putting

TEST_F(ClientBuffersTest, PutFromSendsShortValuesInTheFrameLongOnesByReference) {
  const UserMemory buffer = NewBuffer(1 * kMiB);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{500}, uint64_t{5000}, kMiB - 7}) {
    const std::string value = ValueOf(bytes, bytes);
    std::memcpy(buffer.data + 7, value.data(), value.size());
    const absl::StatusOr<uint64_t> version =
        PutFrom("planet", {buffer.data + 7, bytes, buffer.owner});
    ASSERT_TRUE(version.ok()) << bytes << ": " << version.status();
    const index::Table::View view = server_->table().Find("planet").value();
    EXPECT_EQ(view.version, *version);
    EXPECT_TRUE(absl::string_view(reinterpret_cast<const char*>(view.value.data()),
                                  view.value.size()) == value)
        << bytes;
  }
  EXPECT_EQ(server_->rendezvous_values.size(), 2u);
}

TEST_F(ClientBuffersTest, PutChangedDuringTheServersReadIsNotApplied) {
  const UserMemory buffer = NewBuffer(100000);
  network_.before_piece = [&](absl::Span<const std::byte> remote) {
    if (remote.data() == buffer.data) buffer.data[77] ^= std::byte{1};
  };
  EXPECT_FALSE(PutFrom("planet", buffer).ok());
  EXPECT_EQ(server_->rendezvous_mismatches, 1);
  EXPECT_FALSE(server_->table().Find("planet").ok());
}

TEST_F(ClientBuffersTest, ALatePutIsAnsweredOnlyWhenTheServerCannotReadAnyMore) {
  const UserMemory buffer = NewBuffer(100000);
  const rdma::ConnectionId servers_end = server_->connection();
  network_.HoldReads(servers_end, true);
  Outcome<uint64_t> put;
  ASSERT_TRUE(StartPutFrom("planet", buffer, put, absl::Milliseconds(50)).ok());
  ASSERT_TRUE(RunUntil([&] { return put.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(put.status())) << put.status();
  EXPECT_TRUE(MayBeApplied(put.status()));
  bool was_read = false;
  network_.before_piece = [&](absl::Span<const std::byte> remote) {
    was_read |= remote.data() >= buffer.data && remote.data() < buffer.data + buffer.size;
  };
  network_.HoldReads(servers_end, false);
  RunFor(absl::Seconds(5));
  EXPECT_FALSE(was_read) << "the server READ the buffer after the put was answered";
  EXPECT_EQ(connects(), 2u);
}

TEST_F(ClientBuffersTest, ALatePutThatWasNotSentLeavesTheConnectionAlone) {
  const UserMemory buffer = NewBuffer(100000);
  KillServer();
  Outcome<uint64_t> put;
  ASSERT_TRUE(StartPutFrom("planet", buffer, put, absl::Milliseconds(50)).ok());
  ASSERT_TRUE(RunUntil([&] { return put.done(); }));
  EXPECT_FALSE(MayBeApplied(put.status())) << put.status();
}

TEST_F(ClientBuffersTest, BuffersThatComeAndGoAreWithdrawnFromTheServer) {
  ASSERT_TRUE(PutFrom("planet", NewBuffer(100000)).ok());
  const absl::StatusOr<rdma::RemoteMemory> exposed =
      engine_->transport().Expose(id(), *memory_->memory);
  ASSERT_TRUE(exposed.ok());
  EXPECT_TRUE(server_->transport().Attach(server_->connection(), *exposed).ok());
  memory_.reset();
  EXPECT_FALSE(server_->transport().Attach(server_->connection(), *exposed).ok());
}

// Over shm a server may have files for one memory beside the liveness word alone.
class ClientFewMemoriesTest : public ClientBuffersTest {
 protected:
  ClientFewMemoriesTest() { network_.exposed_max = 2; }

  struct Put {
    Outcome<uint64_t> outcome;
    std::string key;
    std::string value;
  };
  // Out of memory of its own, or out of that of `other`.
  Put& Start(const UserMemory& source) {
    Put& put = *puts_.emplace_back(std::make_unique<Put>());
    put.key = absl::StrCat("key ", puts_.size());
    put.value = std::string(reinterpret_cast<const char*>(source.data), source.size);
    EXPECT_TRUE(StartPutFrom(put.key, source, put.outcome).ok());
    return put;
  }
  UserMemory Filled(uint64_t seed) {
    const UserMemory source = NewBuffer(100000);
    std::memcpy(source.data, ValueOf(100000, seed).data(), 100000);
    return source;
  }
  void ExpectAllApplied() {
    for (const std::unique_ptr<Put>& put : puts_) {
      EXPECT_TRUE(RunUntil([&] { return put->outcome.done(); }, absl::Seconds(2)));
      EXPECT_TRUE(put->outcome.status().ok()) << put->key << ": " << put->outcome.status();
      EXPECT_EQ(server_->table().Find(put->key).ok(), true) << put->key;
    }
    EXPECT_EQ(server_->rendezvous_mismatches, 0);
  }

  std::vector<std::unique_ptr<Put>> puts_;
};

TEST_F(ClientFewMemoriesTest, ValuesInManyMemoriesAreReadInTurn) {
  std::vector<UserMemory> sources;
  for (uint64_t seed = 1; seed <= 5; ++seed) sources.push_back(Filled(seed));
  for (int round = 0; round < 3; ++round) {
    for (const UserMemory& source : sources) Start(source);
  }
  Outcome<uint64_t> copied;  // in the pool
  ASSERT_TRUE(engine_->start()
                  .Put("copied", ValueOf(50000), {}, now_ + absl::Seconds(1), copied.Callback())
                  .ok());
  ExpectAllApplied();
  ASSERT_TRUE(RunUntil([&] { return copied.done(); }));
  EXPECT_TRUE(copied.status().ok()) << copied.status();
  EXPECT_EQ(connects(), 1u);
}

TEST_F(ClientFewMemoriesTest, WhatIsBeingReadIsNotWithdrawn) {
  const UserMemory first = Filled(1), second = Filled(2);
  network_.HoldReads(server_->connection(), true);
  Start(first);
  Start(second);
  Start(first);
  RunFor(absl::Milliseconds(100));
  for (const std::unique_ptr<Put>& put : puts_) EXPECT_FALSE(put->outcome.done());
  network_.HoldReads(server_->connection(), false);
  ExpectAllApplied();
  EXPECT_EQ(connects(), 1u);
}

TEST_F(ClientFewMemoriesTest, AfterALostConnectionTheyAreReadInTurnAgain) {
  const UserMemory first = Filled(1), second = Filled(2);
  network_.exposed_max = 3;
  server_->resumes = true;
  network_.HoldReads(server_->connection(), true);
  Start(first);
  Start(second);
  Start(first);
  RunFor(absl::Milliseconds(10));
  network_.Break(server_->connection());
  network_.exposed_max = 2;  // the second waits for the first, but not for the third
  ExpectAllApplied();
  EXPECT_EQ(connects(), 2u);
}

TEST_F(ClientBuffersTest, BadArgumentsAreRefusedWithTheirBound) {
  const UserMemory buffer = NewBuffer(20 * kMiB);
  EXPECT_EQ(ReasonOf(PutFrom("", buffer).status()), Reason::kEmptyKey);
  EXPECT_EQ(ReasonOf(PutFrom("planet", buffer).status()), Reason::kValueTooLong);
  EXPECT_EQ(ReasonOf(GetInto("", buffer).status()), Reason::kEmptyKey);
  EXPECT_EQ(ReasonOf(GetInto(std::string(4097, 'k'), buffer).status()), Reason::kKeyTooLong);
}

}  // namespace
}  // namespace osprey
