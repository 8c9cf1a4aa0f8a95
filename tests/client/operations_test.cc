// Operations besides get, put and delete: their requests, their handling of answers, and the
// distinct reason of every error of a call. In virtual time, against a scripted server.

#include <cstdint>
#include <deque>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/common/errors.h"
#include "client/reasons.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

rdma::ReplyBody Answer(absl::StatusCode code, Reason reason = Reason::kNone, uint64_t version = 0) {
  rdma::ReplyBody body;
  body.status = static_cast<uint32_t>(code);
  body.reason = WireNumberOf(reason);
  body.version = version;
  return body;
}

class ClientOperationsTest : public ClientEngineTest {
 protected:
  void SetUp() override {
    StartServer();
    StartEngine();
    BecomeReady();
  }
  static std::string Text(const absl::Status& status) { return std::string(status.message()); }
  static rdma::ReplyBody FlushReply(uint64_t cursor, uint64_t bound, uint64_t deleted) {
    rdma::ReplyBody body;
    body.slot = cursor;
    body.version = bound;
    body.value_length = deleted;
    return body;
  }
};

TEST_F(ClientOperationsTest, IncrementReturnsTheNumberAndTheVersion) {
  server_->number = "-9223372036854775808";
  server_->scripted = {Answer(absl::StatusCode::kOk, Reason::kNone, 17)};
  const absl::StatusOr<Number> number = Increment("visits", -3);
  ASSERT_TRUE(number.ok()) << number.status();
  EXPECT_EQ(number->value, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(number->version, 17u);
  EXPECT_THAT(server_->increment_by, ElementsAre(-3));
}

TEST_F(ClientOperationsTest, AnIncrementThatIsAnsweredWithoutANumberFails) {
  for (const char* text : {"", "many", "9223372036854775808"}) {
    server_->number = text;
    const absl::StatusOr<Number> number = Increment("visits", 1);
    EXPECT_EQ(ReasonOf(number.status()), Reason::kBadServer) << text;
    EXPECT_TRUE(MayBeApplied(number.status()));
  }
}

TEST_F(ClientOperationsTest, AppendSendsWhatIsAddedEvenNothing) {
  ASSERT_TRUE(Append("log", "line").ok());
  ASSERT_TRUE(Append("log", "").ok());
  EXPECT_THAT(server_->appended, ElementsAre("line", ""));
}

TEST_F(ClientOperationsTest, FlushGoesOnUntilTheServerSaysThatItIsDone) {
  server_->scripted = {FlushReply(5, 100, 1000), FlushReply(9, 100, 0), FlushReply(0, 100, 7)};
  const absl::StatusOr<uint64_t> deleted = Flush();
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(*deleted, 1007u);
  ASSERT_EQ(server_->flushes.size(), 3u);
  EXPECT_EQ(server_->flushes[0].cursor, 0u);
  EXPECT_EQ(server_->flushes[0].version_bound, 0u);
  EXPECT_EQ(server_->flushes[1].cursor, 5u);
  EXPECT_EQ(server_->flushes[2].cursor, 9u);
  EXPECT_EQ(server_->flushes[2].version_bound, 100u);
}

TEST_F(ClientOperationsTest, FlushOfAReplacedServerIsUnknownAndNotRepeated) {
  server_->scripted = {FlushReply(5, 100, 1000)};
  server_->tamper_reply = [&](auto&, auto&) { server_->answers = false; };
  Outcome<uint64_t> flush;
  ASSERT_TRUE(engine_->start().Flush(now_ + absl::Seconds(10), flush.Callback()).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->flushes.size() == 1; }));
  RunFor(absl::Milliseconds(5));
  KillServer();
  StartServer(2);
  ASSERT_TRUE(RunUntil([&] { return flush.done(); }, absl::Seconds(10)));
  EXPECT_TRUE(absl::IsUnknown(flush.status())) << flush.status();
  EXPECT_EQ(ReasonOf(flush.status()), Reason::kServerGone);
  EXPECT_TRUE(MayBeApplied(flush.status()));
  EXPECT_TRUE(server_->flushes.empty());
}

TEST_F(ClientOperationsTest, AServerThatNeverEndsAFlushIsLeftAtTheDeadline) {
  for (int i = 0; i < 100000; ++i) server_->scripted.push_back(FlushReply(5, 100, 1));
  const absl::StatusOr<uint64_t> deleted = Flush(absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(deleted.status()));
  EXPECT_TRUE(MayBeApplied(deleted.status()));
}

TEST_F(ClientOperationsTest, ExistsAsksTheServerWithoutTheValue) {
  // (That it READs is tested with GETs.)
  Outcome<bool> exists, absent;
  ASSERT_TRUE(engine_->start().Exists("planet", now_ + absl::Seconds(1), exists.Callback()).ok());
  ASSERT_TRUE(RunUntil([&] { return exists.done(); }));
  EXPECT_FALSE(exists.value->value());
  ASSERT_TRUE(Put("planet", std::string(5000, 'p')).ok());
  ASSERT_TRUE(engine_->start().Exists("planet", now_ + absl::Seconds(1), absent.Callback()).ok());
  ASSERT_TRUE(RunUntil([&] { return absent.done(); }));
  EXPECT_TRUE(absent.value->value());
}

// --- Reasons

struct ServerAnswer {
  absl::StatusCode code;
  Reason wire;
  Reason reason;
  bool may_be_applied = false;
};

TEST_F(ClientOperationsTest, EveryRefusalHasItsReasonAndTheOutcomeOfTheWrite) {
  const ServerAnswer answers[] = {
      {absl::StatusCode::kNotFound, Reason::kNone, Reason::kAbsent},
      {absl::StatusCode::kAlreadyExists, Reason::kNone, Reason::kPresent},
      {absl::StatusCode::kInvalidArgument, Reason::kValueTooLong, Reason::kValueTooLong},
      {absl::StatusCode::kFailedPrecondition, Reason::kWrongVersion, Reason::kWrongVersion},
      {absl::StatusCode::kFailedPrecondition, Reason::kNotANumber, Reason::kNotANumber},
      {absl::StatusCode::kOutOfRange, Reason::kOverflow, Reason::kOverflow},
      {absl::StatusCode::kResourceExhausted, Reason::kServerFull, Reason::kServerFull},
      {absl::StatusCode::kResourceExhausted, Reason::kChainFull, Reason::kChainFull},
      {absl::StatusCode::kResourceExhausted, Reason::kDiskFull, Reason::kDiskFull},
      {absl::StatusCode::kUnknown, Reason::kForgotten, Reason::kForgotten, true},
      {absl::StatusCode::kDataLoss, Reason::kValueChanged, Reason::kValueChanged},
      {absl::StatusCode::kResourceExhausted, Reason::kVersionsUsedUp, Reason::kVersionsUsedUp},
  };
  for (const ServerAnswer& answer : answers) {
    server_->scripted = {Answer(answer.code, answer.wire, 5)};
    const absl::Status status = Increment("visits", 1).status();
    EXPECT_EQ(status.code(), answer.code) << status;
    EXPECT_EQ(ReasonOf(status), answer.reason) << status;
    EXPECT_EQ(MayBeApplied(status), answer.may_be_applied) << status;
    EXPECT_THAT(Text(status),
                HasSubstr(answer.may_be_applied ? "may have been applied" : "; not applied"));
    EXPECT_THAT(Text(status), HasSubstr("present version 5"));
  }
}

TEST_F(ClientOperationsTest, EveryBadArgumentHasAReasonOfItsOwnAndNamesTheBound) {
  const auto refused = [&](const absl::Status& status, Reason reason, const char* bound) {
    EXPECT_EQ(ReasonOf(status), reason) << status;
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Text(status), HasSubstr(bound));
    EXPECT_THAT(Text(status), HasSubstr("not applied"));
    EXPECT_FALSE(MayBeApplied(status));
  };
  const std::string long_key(4097, 'k');
  WriteOptions absent, both;
  absent.if_absent = both.if_absent = true;
  both.if_version = 5;
  refused(Put("", "v").status(), Reason::kEmptyKey, "4096");
  refused(Put(long_key, "v").status(), Reason::kKeyTooLong, "4096");
  refused(Put("k", std::string((1 << 20) + 1, 'v')).status(), Reason::kValueTooLong, "1048576");
  refused(Put("k", "v", both).status(), Reason::kBadCondition, "if_absent");
  refused(Increment("", 1).status(), Reason::kEmptyKey, "4096");
  refused(Increment("k", 1, absent).status(), Reason::kBadCondition, "if_absent");
  refused(Append(long_key, "v").status(), Reason::kKeyTooLong, "4096");
  refused(Append("k", "v", absent).status(), Reason::kBadCondition, "if_absent");
  const uint64_t append_max = engine_->connection().append_bytes_max();
  refused(Append("k", std::string(append_max, 'v')).status(), Reason::kAppendTooLong,
          absl::StrCat(append_max).c_str());
  EXPECT_TRUE(Append("k", std::string(append_max - 1, 'v')).ok());
  EXPECT_EQ(server_->requests.size(), 1u);
  EXPECT_EQ(engine_->in_flight(), 0);
}

TEST_F(ClientOperationsTest, BoundsOfTheClientHaveReasons) {
  engine_->start().set_operations_max(1);
  server_->answers = false;
  Outcome<uint64_t> first, second;
  ASSERT_TRUE(StartPut("a", "v", first).ok());
  const absl::Status many = StartPut("b", "v", second);
  EXPECT_EQ(ReasonOf(many), Reason::kTooManyOperations);
  EXPECT_TRUE(absl::IsResourceExhausted(many));
  EXPECT_THAT(Text(many), HasSubstr("not applied"));
  engine_->start().set_operations_max(2);
  EXPECT_TRUE(StartPut("b", "v", second).ok());
  server_->answers = true;
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));

  CloseEngine();
  StartEngine(/*operations_max=*/256, /*buffer_bytes_max=*/4 << 20);
  BecomeReady();
  server_->answers = false;
  std::deque<Outcome<uint64_t>> puts;
  absl::Status status;
  while (status.ok() && puts.size() < 100)
    status = StartPut("k", std::string(1 << 20, 'v'), puts.emplace_back());
  EXPECT_EQ(ReasonOf(status), Reason::kBuffersUsedUp) << status;
  EXPECT_THAT(Text(status), HasSubstr("buffer_bytes_max"));
  EXPECT_THAT(Text(status), HasSubstr("not applied"));
  server_->answers = true;
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));
}

TEST_F(ClientOperationsTest, TimeConnectionAndClosingHaveReasons) {
  server_->answers = false;
  Outcome<uint64_t> sent;
  ASSERT_TRUE(StartPut("k", "v", sent, absl::Milliseconds(5)).ok());
  ASSERT_TRUE(RunUntil([&] { return sent.done(); }));
  EXPECT_EQ(ReasonOf(sent.status()), Reason::kDeadline);
  EXPECT_TRUE(MayBeApplied(sent.status()));
  KillServer();
  RunFor(absl::Milliseconds(5));
  Outcome<uint64_t> unsent, closed;
  ASSERT_TRUE(StartPut("k", "v", unsent, absl::Milliseconds(5)).ok());
  ASSERT_TRUE(RunUntil([&] { return unsent.done(); }));
  EXPECT_EQ(ReasonOf(unsent.status()), Reason::kNoConnection);
  EXPECT_FALSE(MayBeApplied(unsent.status()));
  ASSERT_TRUE(StartPut("k", "v", closed).ok());
  engine_->Close();
  EXPECT_EQ(ReasonOf(closed.status()), Reason::kClosed);
  EXPECT_FALSE(MayBeApplied(closed.status()));
  Outcome<uint64_t> late;
  EXPECT_EQ(ReasonOf(StartPut("k", "v", late)), Reason::kClosed);
}

TEST(ReasonsTest, SurviveWhatIsSaidOfTheOutcomeAndAreNoneElsewhere) {
  const absl::Status error = client::EmptyKeyError();
  EXPECT_EQ(ReasonOf(client::WithOutcome(error, client::Outcome::kUnknown)), Reason::kEmptyKey);
  EXPECT_TRUE(MayBeApplied(client::WithOutcome(error, client::Outcome::kUnknown)));
  EXPECT_FALSE(MayBeApplied(client::WithOutcome(error, client::Outcome::kNotApplied)));
  EXPECT_EQ(ReasonOf(absl::OkStatus()), Reason::kNone);
  EXPECT_EQ(ReasonOf(absl::InternalError("from another source")), Reason::kNone);
  EXPECT_EQ(ReasonOf(absl::NotFoundError("")), Reason::kAbsent);
}

}  // namespace
}  // namespace osprey
