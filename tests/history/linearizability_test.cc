// The checker, on histories with known results.

#include "tests/history/linearizability.h"

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

Operation Op(Kind kind, int64_t call, int64_t returned, Outcome outcome) {
  Operation op;
  op.kind = kind;
  op.call = call;
  op.returned = returned;
  op.outcome = outcome;
  return op;
}

Operation Get(int64_t call, int64_t returned, std::string value, uint64_t version = 0) {
  Operation op = Op(Kind::kGet, call, returned, Outcome::kOk);
  op.answer = std::move(value);
  op.version = version;
  return op;
}
Operation Miss(int64_t call, int64_t returned) {
  return Op(Kind::kGet, call, returned, Outcome::kNotFound);
}
Operation Put(int64_t call, int64_t returned, std::string value, uint64_t version = 0,
              Outcome outcome = Outcome::kOk) {
  Operation op = Op(Kind::kPut, call, returned, outcome);
  op.value = std::move(value);
  op.version = version;
  return op;
}
Operation PutFor(int64_t ttl, int64_t call, int64_t returned, std::string value) {
  Operation op = Put(call, returned, std::move(value));
  op.ttl = ttl;
  return op;
}
Operation PutIf(uint64_t if_version, int64_t call, int64_t returned, std::string value,
                uint64_t version, Outcome outcome) {
  Operation op = Put(call, returned, std::move(value), version, outcome);
  op.kind = Kind::kPutIfVersion;
  op.if_version = if_version;
  return op;
}
Operation Delete(int64_t call, int64_t returned, Outcome outcome = Outcome::kOk) {
  return Op(Kind::kDelete, call, returned, outcome);
}
Operation Add(int64_t call, int64_t returned, int64_t by, std::string sum,
              Outcome outcome = Outcome::kOk) {
  Operation op = Op(Kind::kIncrement, call, returned, outcome);
  op.by = by;
  op.answer = std::move(sum);
  return op;
}

bool Accepts(std::vector<Operation> history) {
  const Verdict verdict = CheckLinearizable(std::move(history));
  EXPECT_TRUE(verdict.decided) << verdict.explanation;
  EXPECT_EQ(verdict.linearizable, verdict.explanation.empty());
  return verdict.linearizable;
}

TEST(LinearizabilityTest, OneAfterTheOtherIsASequence) {
  EXPECT_TRUE(Accepts({}));
  EXPECT_TRUE(Accepts({Miss(0, 1), Put(2, 3, "a"), Get(4, 5, "a"), Delete(6, 7), Miss(8, 9)}));
  EXPECT_FALSE(Accepts({Put(0, 1, "a"), Miss(2, 3)}));
  EXPECT_FALSE(Accepts({Put(0, 1, "a"), Put(2, 3, "b"), Get(4, 5, "a")}));
  EXPECT_FALSE(Accepts({Get(0, 1, "a"), Put(2, 3, "a")}));  // from the future
  EXPECT_FALSE(Accepts({Put(0, 1, "a"), Delete(2, 3), Get(4, 5, "a")}));
  EXPECT_FALSE(Accepts({Delete(0, 1)}));
  EXPECT_TRUE(Accepts({Delete(0, 1, Outcome::kNotFound)}));
}

TEST(LinearizabilityTest, WhatIsConcurrentMayGoEitherWay) {
  EXPECT_TRUE(Accepts({Put(0, 10, "a"), Miss(1, 2), Get(3, 4, "a")}));
  EXPECT_FALSE(Accepts({Put(0, 10, "a"), Get(1, 2, "a"), Miss(3, 4)}));  // back in time
  EXPECT_TRUE(Accepts({Put(0, 10, "a"), Put(0, 10, "b"), Get(11, 12, "a"), Get(13, 14, "a")}));
  EXPECT_FALSE(Accepts({Put(0, 10, "a"), Put(0, 10, "b"), Get(11, 12, "a"), Get(13, 14, "b")}));
  // They touch, so they are concurrent.
  EXPECT_TRUE(Accepts({Put(0, 5, "a"), Miss(5, 6)}));
}

TEST(LinearizabilityTest, TwoReadersMustAgreeAboutTheOrder) {
  const std::vector<Operation> writes = {Put(0, 100, "a"), Put(0, 100, "b")};
  std::vector<Operation> agree = writes;
  for (const Operation& op : {Get(1, 2, "a"), Get(3, 4, "b"), Get(1, 3, "a"), Get(3, 5, "b")})
    agree.push_back(op);
  EXPECT_TRUE(Accepts(agree));
  std::vector<Operation> disagree = writes;
  for (const Operation& op : {Get(1, 2, "a"), Get(5, 6, "b"), Get(3, 4, "b"), Get(7, 8, "a")})
    disagree.push_back(op);
  EXPECT_FALSE(Accepts(disagree));
}

TEST(LinearizabilityTest, AnUnknownWriteMayHappenOnceLateOrNever) {
  const Operation unknown = Put(0, 5, "u", 0, Outcome::kUnknown);
  EXPECT_TRUE(Accepts({unknown, Miss(6, 7), Miss(8, 9)}));
  EXPECT_TRUE(Accepts({unknown, Miss(6, 7), Get(8, 9, "u")}));  // long after it had failed
  EXPECT_FALSE(Accepts({unknown, Get(6, 7, "u"), Miss(8, 9)}));
  EXPECT_FALSE(Accepts({unknown, Get(6, 7, "u"), Put(8, 9, "x"), Get(10, 11, "u")}));  // twice
  EXPECT_FALSE(Accepts({Miss(0, 1), Get(2, 3, "u"), Put(4, 5, "u", 0, Outcome::kUnknown)}));
  // A write reported as not applied has no effect.
  EXPECT_FALSE(Accepts({Put(0, 5, "u", 0, Outcome::kUnapplied), Get(6, 7, "u")}));
  EXPECT_TRUE(Accepts({Put(0, 5, "u", 0, Outcome::kUnapplied), Miss(6, 7)}));
}

TEST(LinearizabilityTest, IncrementsAreCountedOnceEach) {
  EXPECT_TRUE(Accepts({Add(0, 10, 1, "2"), Add(0, 10, 1, "1")}));
  EXPECT_FALSE(Accepts({Add(0, 10, 1, "1"), Add(0, 10, 1, "1")}));
  EXPECT_FALSE(Accepts({Add(0, 1, 1, "2"), Add(2, 3, 1, "1")}));
  EXPECT_TRUE(Accepts({Add(0, 10, 5, "", Outcome::kUnknown), Add(11, 12, 1, "6")}));
  EXPECT_TRUE(Accepts({Add(0, 10, 5, "", Outcome::kUnknown), Add(11, 12, 1, "1")}));
  EXPECT_FALSE(Accepts({Add(0, 10, 5, "", Outcome::kUnknown), Add(11, 12, 1, "11")}));  // twice
  EXPECT_TRUE(Accepts({Put(0, 1, "text"), Add(2, 3, 1, "", Outcome::kWrong)}));
  EXPECT_FALSE(Accepts({Put(0, 1, "7"), Add(2, 3, 1, "", Outcome::kWrong)}));
}

TEST(LinearizabilityTest, VersionsAreWhatWasWritten) {
  EXPECT_TRUE(Accepts({Put(0, 1, "a", 5), Get(2, 3, "a", 5)}));
  EXPECT_FALSE(Accepts({Put(0, 1, "a", 5), Get(2, 3, "a", 6)}));
  EXPECT_TRUE(
      Accepts({Put(0, 1, "a", 5), PutIf(5, 2, 3, "b", 6, Outcome::kOk), Get(4, 5, "b", 6)}));
  EXPECT_FALSE(Accepts({Put(0, 1, "a", 5), PutIf(4, 2, 3, "b", 6, Outcome::kOk)}));
  EXPECT_FALSE(Accepts({Put(0, 1, "a", 5), PutIf(5, 2, 3, "b", 0, Outcome::kWrong)}));
  EXPECT_TRUE(Accepts({PutIf(5, 2, 3, "b", 0, Outcome::kNotFound)}));
  // One of two that compare with the same version.
  EXPECT_FALSE(Accepts({Put(0, 1, "a", 5), PutIf(5, 2, 9, "b", 6, Outcome::kOk),
                        PutIf(5, 2, 9, "c", 7, Outcome::kOk)}));
  EXPECT_TRUE(Accepts({Put(0, 1, "a", 5), PutIf(5, 2, 9, "b", 6, Outcome::kOk),
                       PutIf(5, 2, 9, "c", 0, Outcome::kWrong)}));
}

TEST(LinearizabilityTest, AServerThatIsLostTakesAllWithIt) {
  const Operation loss = Op(Kind::kLoss, 2, 3, Outcome::kOk);
  EXPECT_TRUE(Accepts({Put(0, 1, "a"), loss, Miss(4, 5)}));
  EXPECT_FALSE(Accepts({Put(0, 1, "a"), loss, Get(4, 5, "a")}));
}

TEST(LinearizabilityTest, AWriteOfUnknownEndGoesWithTheServerThatHadIt) {
  const Operation unknown = Put(0, 5, "u", 0, Outcome::kUnknown);
  const Operation loss = Op(Kind::kLoss, 10, 20, Outcome::kOk);
  EXPECT_TRUE(Accepts({unknown, Get(12, 13, "u"), loss, Miss(21, 22)}));
  EXPECT_FALSE(Accepts({unknown, loss, Get(21, 22, "u")}));
  EXPECT_FALSE(Accepts({unknown, loss, Miss(21, 22), Get(23, 24, "u")}));
  // The client still retried it when there was a new server.
  EXPECT_TRUE(Accepts({Put(0, 15, "u", 0, Outcome::kUnknown), loss, Get(21, 22, "u")}));
  // It keeps the keys, and its pending writes are lost.
  const Operation restart = Op(Kind::kRestart, 10, 20, Outcome::kOk);
  EXPECT_TRUE(Accepts({unknown, restart, Miss(21, 22)}));
  EXPECT_TRUE(Accepts({unknown, restart, Get(21, 22, "u")}));
  EXPECT_FALSE(Accepts({unknown, restart, Miss(21, 22), Get(23, 24, "u")}));
  EXPECT_TRUE(Accepts({unknown, Miss(6, 7), Get(23, 24, "u")}));
  EXPECT_FALSE(Accepts({Put(0, 1, "a"), restart, Miss(21, 22)}));
  // A key that was evicted: the server lives.
  const Operation evicted = Op(Kind::kEvicted, 10, 20, Outcome::kOk);
  EXPECT_TRUE(Accepts({Put(0, 1, "a"), unknown, evicted, Miss(21, 22), Get(23, 24, "u")}));
}

TEST(LinearizabilityTest, ManyWritesOfUnknownEndAreNotTooMany) {
  std::vector<Operation> history;
  for (int i = 0; i < 30; ++i) {
    const int64_t at = 100 * i;
    const std::string seen = absl::StrCat(i % 3 == 0 ? "u" : "v", i);
    history.push_back(Put(at, at + 1, absl::StrCat("u", i), 0, Outcome::kUnknown));
    history.push_back(Delete(at, at + 1, Outcome::kUnknown));
    history.push_back(Put(at + 2, at + 3, absl::StrCat("v", i)));
    history.push_back(Get(at + 4, at + 5, seen));
    history.push_back(Get(at + 6, at + 7, seen));
  }
  EXPECT_TRUE(Accepts(history));
  std::vector<Operation> back_in_time = history;
  back_in_time.push_back(Get(10000, 10001, "v1"));
  EXPECT_FALSE(Accepts(back_in_time));
  history.push_back(Get(10000, 10001, "u1"));
  history.push_back(Miss(10002, 10003));
  EXPECT_TRUE(Accepts(history));
}

TEST(LinearizabilityTest, OfManyAlikeOfUnknownEndAnyNumberMayHaveHappened) {
  std::vector<Operation> increments;
  for (int i = 0; i < 8; ++i) increments.push_back(Add(0, 5 + i, 1, "", Outcome::kUnknown));
  for (int sum = 0; sum <= 9; ++sum) {
    std::vector<Operation> history = increments;
    history.push_back(Add(100, 101, 10, absl::StrCat(10 + sum)));
    EXPECT_EQ(Accepts(history), sum <= 8) << sum;
  }
  std::vector<Operation> deletions(8, Delete(0, 1, Outcome::kUnknown));
  for (int deleted = 1; deleted <= 9; ++deleted) {
    const int64_t at = 100 * deleted;
    deletions.push_back(Put(at, at + 1, "a"));
    deletions.push_back(Miss(at + 2, at + 3));
    EXPECT_EQ(Accepts(deletions), deleted <= 8) << deleted;
  }
  // Other writes are not interchangeable.
  const Operation a = Put(0, 1, "a", 0, Outcome::kUnknown);
  const Operation b = Put(0, 1, "b", 0, Outcome::kUnknown);
  EXPECT_TRUE(Accepts({a, b, Get(2, 3, "a"), Get(4, 5, "b")}));
  EXPECT_TRUE(Accepts({a, a, b, b, Get(2, 3, "b"), Get(4, 5, "a"), Get(6, 7, "b")}));
}

TEST(LinearizabilityTest, PutIfAbsentHasOneWinner) {
  Operation a = Put(0, 10, "a", 1);
  Operation b = Put(0, 10, "b", 2);
  a.kind = b.kind = Kind::kPutIfAbsent;
  EXPECT_FALSE(Accepts({a, b}));
  b.outcome = Outcome::kExists;
  EXPECT_TRUE(Accepts({a, b, Get(11, 12, "a", 1)}));
  EXPECT_FALSE(Accepts({a, b, Get(11, 12, "b")}));
}

TEST(LinearizabilityTest, AKeyExpiresBetweenTheEarliestAndTheLastMoment) {
  const Operation put = PutFor(100, 0, 10, "a");  // expires from 100 to 110
  EXPECT_TRUE(Accepts({put, Get(98, 99, "a")}));
  EXPECT_FALSE(Accepts({put, Miss(98, 99)}));  // too early
  EXPECT_TRUE(Accepts({put, Get(105, 106, "a")}));
  EXPECT_TRUE(Accepts({put, Miss(105, 106)}));
  EXPECT_FALSE(Accepts({put, Get(111, 112, "a")}));  // too late
  EXPECT_TRUE(Accepts({put, Miss(111, 112)}));
  EXPECT_FALSE(Accepts({put, Miss(105, 106), Get(107, 108, "a")}));  // it came back
  EXPECT_TRUE(Accepts({put, Get(90, 200, "a")}));
}

TEST(LinearizabilityTest, PersistAndExpireNeedTheKeyAndMoveItsEnd) {
  const Operation put = PutFor(100, 0, 10, "a");
  EXPECT_TRUE(Accepts({put, Op(Kind::kPersist, 50, 51, Outcome::kOk), Get(500, 501, "a")}));
  EXPECT_FALSE(Accepts({put, Op(Kind::kPersist, 50, 51, Outcome::kOk), Miss(500, 501)}));
  EXPECT_FALSE(Accepts({put, Op(Kind::kPersist, 120, 121, Outcome::kOk)}));
  EXPECT_TRUE(Accepts({put, Op(Kind::kPersist, 120, 121, Outcome::kNotFound)}));
  // A reader found it absent, and then its life was extended.
  EXPECT_FALSE(Accepts(
      {put, Op(Kind::kPersist, 90, 120, Outcome::kOk), Miss(111, 112), Get(130, 131, "a")}));
  Operation expire = Op(Kind::kExpire, 20, 21, Outcome::kOk);
  expire.ttl = 10;
  EXPECT_TRUE(Accepts({put, expire, Miss(40, 41)}));
  EXPECT_FALSE(Accepts({put, expire, Get(40, 41, "a")}));
}

TEST(LinearizabilityTest, IncrementKeepsTheTimeToLiveAndPutEndsIt) {
  const Operation put = PutFor(100, 0, 10, "1");
  EXPECT_FALSE(Accepts({put, Add(50, 51, 1, "2"), Get(200, 201, "2")}));
  EXPECT_TRUE(Accepts({put, Add(50, 51, 1, "2"), Miss(200, 201)}));
  EXPECT_TRUE(Accepts({put, Put(50, 51, "x"), Get(200, 201, "x")}));
  EXPECT_TRUE(Accepts({put, Add(150, 151, 1, "1")}));  // absent: counts as 0
}

TEST(LinearizabilityTest, AnExplanationNamesTheOperation) {
  const Verdict verdict = CheckLinearizable({Put(0, 1, "a"), Get(2, 3, "b")});
  EXPECT_FALSE(verdict.linearizable);
  EXPECT_NE(verdict.explanation.find("[2, 3] client 0: get -> ok 'b'"), std::string::npos)
      << verdict.explanation;
}

TEST(LinearizabilityTest, WhatIsTooMuchIsSaid) {
  std::vector<Operation> history;
  for (int i = 0; i < 65; ++i) history.push_back(Put(0, 10, absl::StrCat(i)));
  EXPECT_FALSE(CheckLinearizable(history).decided);
  history.resize(40);
  EXPECT_FALSE(CheckLinearizable(history, 1000).decided);
}

// Histories made by running operations at random instants on a model, and then corrupted.
TEST(LinearizabilityTest, RandomTrueHistoriesAreAcceptedAndSpoiledOnesMostlyNot) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  int spoiled_rejected = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Operation> history;
    std::string value;
    bool present = false;
    for (int64_t instant = 10; instant < 600; instant += 10) {
      Operation op;
      op.call = instant - static_cast<int64_t>(random() % 25);
      op.returned = instant + static_cast<int64_t>(random() % 25);
      op.outcome = Outcome::kOk;
      switch (random() % 4) {
        case 0:
          op.kind = Kind::kPut;
          op.value = value = absl::StrCat(random() % 3);
          present = true;
          break;
        case 1:
          op.kind = Kind::kDelete;
          if (!present) op.outcome = Outcome::kNotFound;
          present = false;
          break;
        default:
          op.kind = Kind::kGet;
          if (present) {
            op.answer = value;
          } else {
            op.outcome = Outcome::kNotFound;
          }
      }
      history.push_back(op);
    }
    ASSERT_TRUE(Accepts(history));
    // A value that no client wrote.
    for (Operation& op : history) {
      if (op.kind != Kind::kGet) continue;
      Operation was = op;
      op.outcome = Outcome::kOk;
      op.answer = "9";
      ASSERT_FALSE(Accepts(history));
      op = was;
    }
    // Another written value, which may be right for another instant.
    for (Operation& op : history) {
      if (op.kind == Kind::kGet && op.outcome == Outcome::kOk)
        op.answer = absl::StrCat((op.answer[0] - '0' + 1) % 3);
    }
    spoiled_rejected += Accepts(history) ? 0 : 1;
  }
  EXPECT_GT(spoiled_rejected, kRounds * 9 / 10);
}

}  // namespace
}  // namespace osprey
