// The judge of the fault tests can fail.

#include "tests/history/history_checker.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/history/value.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;

JournalRecord Record(Kind kind, int64_t number, int64_t call, int64_t returned) {
  JournalRecord record;
  record.key = 7;
  record.kind = kind;
  record.outcome = Outcome::kOk;
  record.returned = true;
  record.call_ns = call;
  record.returned_ns = returned;
  record.deadline_ns = kSecond;
  (kind == Kind::kGet ? record.answer : record.written) = number;
  return record;
}
JournalRecord Put(int64_t number, int64_t call, int64_t returned) {
  return Record(Kind::kPut, number, call, returned);
}
JournalRecord Get(int64_t number, int64_t call, int64_t returned) {
  return Record(Kind::kGet, number, call, returned);
}
JournalRecord Failed(JournalRecord record, Outcome outcome = Outcome::kUnknown) {
  record.outcome = outcome;
  record.failed = true;
  return record;
}
JournalRecord NotReturned(JournalRecord record) {
  record.outcome = Outcome::kUnknown;
  record.returned = false;
  return record;
}

Judgement JudgeOne(const std::vector<JournalRecord>& records, const FaultTimes& times = {}) {
  ClientProcess process;
  process.records = records;
  return Judge({process}, times);
}

TEST(HistoryCheckerTest, AnswersThatAgreeAreNotWrong) {
  const Judgement judgement =
      JudgeOne({Put(1, 10, 20), Get(1, 30, 40), Put(2, 50, 60), Get(2, 70, 80)});
  EXPECT_EQ(judgement.operations, 4u);
  EXPECT_EQ(judgement.wrong, 0u);
  EXPECT_EQ(judgement.failed, 0u);
  EXPECT_EQ(judgement.overrun_ns, 0);
}

TEST(HistoryCheckerTest, AnAcknowledgedWriteThatIsGoneIsWrong) {
  JournalRecord miss = Get(0, 30, 40);
  miss.outcome = Outcome::kNotFound;
  EXPECT_EQ(JudgeOne({Put(1, 10, 20), miss}).wrong, 1u);
}

TEST(HistoryCheckerTest, AnOldValueAfterAnAcknowledgedWriteIsWrong) {
  EXPECT_EQ(JudgeOne({Put(1, 10, 20), Put(2, 30, 40), Get(1, 50, 60)}).wrong, 1u);
}

TEST(HistoryCheckerTest, ValueThatWasNeverWrittenIsWrong) {
  EXPECT_EQ(JudgeOne({Get(3, 10, 20)}).wrong, 1u);
}

TEST(HistoryCheckerTest, ADamagedValueIsWrong) {
  JournalRecord damaged = Get(1, 30, 40);
  damaged.damaged = true;
  EXPECT_EQ(JudgeOne({Put(1, 10, 20), damaged}).wrong, 1u);
}

TEST(HistoryCheckerTest, AWriteOfUnknownEndMayHaveHappenedOnce) {
  const JournalRecord write = Failed(Put(2, 30, 40));
  EXPECT_EQ(JudgeOne({Put(1, 10, 20), write, Get(1, 50, 60), Get(2, 70, 80)}).wrong, 0u);
  EXPECT_EQ(JudgeOne({Put(1, 10, 20), write, Get(2, 50, 60), Get(1, 70, 80)}).wrong, 1u);
  EXPECT_EQ(JudgeOne({write}).unknown, 1u);
}

TEST(HistoryCheckerTest, AWriteThatWasNotAppliedMustNotBeSeen) {
  const JournalRecord write = Failed(Put(1, 10, 20), Outcome::kUnapplied);
  EXPECT_EQ(JudgeOne({write, Get(1, 50, 60)}).wrong, 1u);
}

TEST(HistoryCheckerTest, FailedGetsAreCountedApart) {
  const Judgement judgement = JudgeOne(
      {Failed(Put(1, 10, 20), Outcome::kUnapplied), Failed(Get(0, 30, 40)), Put(2, 50, 60)});
  EXPECT_EQ(judgement.failed, 2u);
  EXPECT_EQ(judgement.failed_gets, 1u);
}

TEST(HistoryCheckerTest, AWriteOfAKilledProcessMayBeSeen) {
  EXPECT_EQ(JudgeOne({NotReturned(Put(1, 10, 0)), Get(1, 50, 60)}).wrong, 0u);
}

// The history of clients whose server is killed again and again: nearly all writes have unknown
// results.
std::vector<JournalRecord> WritesThatNobodySaw(int64_t rounds) {
  std::vector<JournalRecord> records;
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t now = round * 100;
    const int64_t number = 10 * round + 1;
    records.push_back(Put(number, now, now + 10));
    records.push_back(NotReturned(Put(number + 1, now + 12, 0)));
    records.push_back(Failed(Put(number + 2, now + 14, now + 40)));
    JournalRecord conditional = NotReturned(Put(number + 3, now + 16, 0));
    conditional.kind = Kind::kPutIfAbsent;
    records.push_back(conditional);
    JournalRecord removal = NotReturned(Put(0, now + 18, 0));
    removal.kind = Kind::kDelete;
    records.push_back(removal);
    records.push_back(Get(number, now + 60, now + 70));
  }
  return records;
}

TEST(HistoryCheckerTest, UnobservedUnknownWritesLeaveHistoriesDecidable) {
  std::vector<JournalRecord> records = WritesThatNobodySaw(150);
  EXPECT_EQ(JudgeOne(records).undecided, 0u);
  EXPECT_EQ(JudgeOne(records).wrong, 0u);
  // Now two of them were seen: a write of the first round, and any removal.
  records.push_back(Get(2, 15'000, 15'010));
  JournalRecord miss = Get(0, 15'020, 15'030);
  miss.outcome = Outcome::kNotFound;
  records.push_back(miss);
  EXPECT_EQ(JudgeOne(records).wrong, 0u);
}

TEST(HistoryCheckerTest, UnobservedUnknownWritesDoNotExcuseAWrongRead) {
  std::vector<JournalRecord> records = WritesThatNobodySaw(3);
  records.push_back(Get(22, 300, 310));
  EXPECT_EQ(JudgeOne(records).wrong, 0u);
  // The earlier value again.
  records.push_back(Get(21, 320, 330));
  EXPECT_EQ(JudgeOne(records).wrong, 1u);
  EXPECT_EQ(JudgeOne(records).undecided, 0u);
}

TEST(HistoryCheckerTest, AfterARestartWhatWasStoredIsGone) {
  FaultTimes times;
  times.losses = {{30, 40}};
  JournalRecord miss = Get(0, 50, 60);
  miss.outcome = Outcome::kNotFound;
  EXPECT_EQ(JudgeOne({Put(1, 10, 20), miss}, times).wrong, 0u);
  EXPECT_EQ(JudgeOne({Put(1, 10, 20), Get(1, 50, 60)}, times).wrong, 1u);
}

TEST(HistoryCheckerTest, AWriteToAServerThatIsGoneMustNotBeInTheNext) {
  FaultTimes times;
  times.losses = {{30, 40}};
  JournalRecord write = Failed(Put(1, 10, 60));
  EXPECT_EQ(JudgeOne({write, Get(1, 70, 80)}, times).wrong, 0u);
  write.server_gone = true;
  EXPECT_EQ(JudgeOne({write, Get(1, 70, 80)}, times).wrong, 1u);
}

TEST(HistoryCheckerTest, AnIncrementThatWasAppliedTwiceIsWrong) {
  JournalRecord first = Record(Kind::kIncrement, 5, 10, 20);
  JournalRecord second = Record(Kind::kIncrement, 5, 30, 40);
  first.key = second.key = kRegisters;
  first.answer = 5;
  second.answer = 10;
  EXPECT_EQ(JudgeOne({first, second}).wrong, 0u);
  second.answer = 15;
  EXPECT_EQ(JudgeOne({first, second}).wrong, 1u);
}

TEST(HistoryCheckerTest, OperationsPastTheirDeadlineAreReported) {
  EXPECT_EQ(JudgeOne({Failed(Put(1, 0, kSecond + 300 * kMs))}).overrun_ns, 300 * kMs);
  EXPECT_EQ(JudgeOne({Failed(Put(1, 0, kSecond + 300 * kMs))}).believed_late_ns, 0);
  EXPECT_EQ(JudgeOne({Put(1, 0, kSecond + 300 * kMs)}).believed_late_ns, 300 * kMs);
}

TEST(HistoryCheckerTest, StoppedProcessMayEndLateButNotSucceedLate) {
  ClientProcess process;
  process.stops = {{kSecond / 2, 5 * kSecond}};
  process.records = {Failed(Put(1, 0, 5 * kSecond + kMs))};
  EXPECT_EQ(Judge({process}, {}).overrun_ns, kMs);
  process.records = {Put(1, 0, 5 * kSecond + kMs), Put(2, 0, 5 * kSecond + kMs)};
  EXPECT_EQ(Judge({process}, {}).overrun_ns, kMs);
  EXPECT_EQ(Judge({process}, {}).believed_late_ns, 4 * kSecond + kMs);
}

TEST(HistoryCheckerTest, AStoppedClientHadOneAnswerInHandAtMost) {
  ClientProcess process;
  process.stops = {{kSecond / 2, 5 * kSecond}};
  process.records = {Put(1, 0, 5 * kSecond + kMs)};
  EXPECT_EQ(Judge({process}, {}).believed_late_ns, 0);
  // Two clients, one answer each.
  process.records.push_back(Put(2, 0, 5 * kSecond + 2 * kMs));
  process.records.back().client = 1;
  EXPECT_EQ(Judge({process}, {}).believed_late_ns, 0);
  process.records.push_back(Put(3, 0, 5 * kSecond + 3 * kMs));
  EXPECT_EQ(Judge({process}, {}).believed_late_ns, 4 * kSecond + kMs);
  // The stop does not explain a deadline that had passed before it.
  process.stops = {{kSecond + kMs, 5 * kSecond}};
  process.records = {Put(1, 0, 5 * kSecond)};
  EXPECT_EQ(Judge({process}, {}).believed_late_ns, 4 * kSecond);
}

TEST(HistoryCheckerTest, TheClockOfAnOperationBeginsWhenTheClientHasIt) {
  ClientProcess process;
  process.stops = {{kMs, 5 * kSecond}};
  process.records = {Put(1, 0, 5 * kSecond + 3 * kMs), Put(2, 0, 5 * kSecond + 3 * kMs)};
  for (JournalRecord& record : process.records) record.started_ns = 5 * kSecond + kMs;
  EXPECT_EQ(Judge({process}, {}).believed_late_ns, 0);
}

TEST(HistoryCheckerTest, WhatAKilledProcessHadUnderWayIsCounted) {
  ClientProcess idle, busy;
  idle.records = {Put(1, 10, 20)};
  busy.records = {NotReturned(Put(2, 10, 0)), NotReturned(Get(1, 30, 0)), Put(3, 40, 50)};
  EXPECT_EQ(Judge({idle, busy}, {}).open_by_process, (std::vector<uint64_t>{0, 2}));
}

TEST(HistoryCheckerTest, AServerIsLostAtWorkWhenItHasAnsweredAndIsAskedAgain) {
  FaultTimes times;
  times.losses = {{30, 40}, {70, 80}};
  EXPECT_EQ(JudgeOne({Put(1, 10, 20)}, times).losses_at_work, 0u);          // idle
  EXPECT_EQ(JudgeOne({Failed(Put(1, 10, 60))}, times).losses_at_work, 0u);  // no answer
  EXPECT_EQ(JudgeOne({Put(1, 10, 20), Failed(Put(2, 25, 60))}, times).losses_at_work, 1u);
  EXPECT_EQ(JudgeOne({Put(1, 10, 20), Failed(Put(2, 25, 90))}, times).losses_at_work, 1u);
  EXPECT_EQ(
      JudgeOne({Put(1, 10, 20), Failed(Put(2, 25, 75)), Put(3, 50, 60)}, times).losses_at_work, 2u);
}

TEST(HistoryCheckerTest, RecoveryIsWhenEveryClientHasSucceededAndNothingFailsAnyMore) {
  FaultTimes times;
  times.end_ns = kSecond;
  JournalRecord other = Put(3, kSecond, 3 * kSecond);
  other.client = 1;
  EXPECT_EQ(JudgeOne({Put(1, 0, kSecond + kMs), other}, times).recovery_ns, 2 * kSecond);
  EXPECT_EQ(
      JudgeOne({Put(1, 0, kSecond + kMs), Failed(Put(2, 0, kSecond + 9 * kMs))}, times).recovery_ns,
      9 * kMs);
  EXPECT_EQ(JudgeOne({Put(1, 0, kSecond - kMs)}, times).recovery_ns, -1);
  EXPECT_EQ(JudgeOne({}, times).recovery_ns, -1);
}

TEST(FaultValueTest, ValueMatchesOnlyItsKeyAndOnlyIfComplete) {
  for (int64_t number = 1; number <= 64; ++number) {
    std::string value = FaultValue(3, number);
    EXPECT_EQ(NumberOfFaultValue(3, value), number);
    EXPECT_EQ(NumberOfFaultValue(4, value), absl::nullopt);
    EXPECT_EQ(NumberOfFaultValue(3, value.substr(0, value.size() - 1)), absl::nullopt);
    value[value.size() / 2] ^= 1;
    EXPECT_EQ(NumberOfFaultValue(3, value), absl::nullopt) << number;
  }
}

TEST(FaultJournalTest, WhatWasWrittenIsThereForOthers) {
  const char* directory = std::getenv("TEST_TMPDIR");
  const std::string path =
      absl::StrCat(directory != nullptr ? directory : "/tmp", "/fault_journal");
  const absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Create(path);
  ASSERT_TRUE(journal.ok()) << journal.status();
  JournalRecord* const first = (*journal)->Call(NotReturned(Put(1, 10, 0)));
  (*journal)->Call(NotReturned(Put(2, 20, 0)));
  first->returned_ns = 30;
  Journal::Return(first);
  const absl::StatusOr<std::vector<JournalRecord>> read = Journal::Read(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_TRUE((*read)[0].returned);
  EXPECT_EQ((*read)[0].returned_ns, 30);
  EXPECT_FALSE((*read)[1].returned);
  EXPECT_EQ((*read)[1].written, 2);
  EXPECT_FALSE(Journal::Read(path + ".absent").ok());
  // As if its process was killed before the file had a length.
  std::ofstream(path + ".empty").flush();
  EXPECT_EQ(Journal::Read(path + ".empty").value().size(), 0u);
}

}  // namespace
}  // namespace osprey
