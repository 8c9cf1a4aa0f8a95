// The checker of the simulation's histories, on scans with known results.

#include "tests/simulation/histories.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;
using testing::HasSubstr;

class SimulationHistoriesTest : public testing::Test {
 protected:
  Operation& Add(const std::string& key, Kind kind, int64_t call, int64_t returned,
                 Outcome outcome = Outcome::kOk) {
    auto op = std::make_shared<Operation>();
    op->kind = kind;
    op->call = call;
    op->returned = returned;
    op->outcome = outcome;
    if (kind == Kind::kPut || kind == Kind::kPutIfAbsent) op->value = "v";
    if (kind == Kind::kGet && outcome == Outcome::kOk) op->answer = "v";
    histories_.keys[key].push_back(op);
    return *op;
  }
  // The error, if a scan from 100 to 200 found this.
  std::string Scanned(std::set<std::string> keys) {
    histories_.scans = {{100, 200, std::move(keys)}};
    return Judge(histories_).wrong;
  }
  bool MayBeFound(const std::string& key = "k") { return Scanned({key}).empty(); }
  bool MayBeMissed() { return Scanned({}).empty(); }

  Histories histories_;
};

TEST_F(SimulationHistoriesTest, TwoWritesHaveTwoVersions) {
  Add("k", Kind::kPut, 10, 20).version = 7;
  Add("k", Kind::kLoss, 30, 40);
  Operation& second = Add("k", Kind::kPut, 50, 60);
  second.version = 8;
  EXPECT_EQ(Judge(histories_).wrong, "");
  second.version = 7;
  EXPECT_THAT(Judge(histories_).wrong, HasSubstr("two writes have one version"));
}

TEST_F(SimulationHistoriesTest, KeyPresentThroughoutMustBeFound) {
  Add("k", Kind::kPut, 10, 20);
  EXPECT_TRUE(MayBeFound());
  EXPECT_FALSE(MayBeMissed());
  EXPECT_THAT(Scanned({}), HasSubstr("missed 'k', which was there all the while"));
}

TEST_F(SimulationHistoriesTest, KeyAbsentThroughoutMustNotBeFound) {
  Add("k", Kind::kGet, 10, 20, Outcome::kNotFound);
  EXPECT_TRUE(MayBeMissed());
  EXPECT_THAT(Scanned({"k"}), HasSubstr("found 'k', which was not there all the while"));
  EXPECT_THAT(Scanned({"another"}), HasSubstr("found 'another', which no operation wrote"));
}

TEST_F(SimulationHistoriesTest, KeyChangedDuringTheScanMayBeFoundOrMissed) {
  Add("comes", Kind::kPut, 150, 160);
  EXPECT_EQ(Scanned({}), "");
  EXPECT_EQ(Scanned({"comes"}), "");
  Add("goes", Kind::kPut, 10, 20);
  Add("goes", Kind::kDelete, 150, 160);
  EXPECT_EQ(Scanned({}), "");
  EXPECT_EQ(Scanned({"goes"}), "");
  // At the very ends, too.
  Add("early", Kind::kPut, 10, 20);
  Add("early", Kind::kDelete, 50, 100);
  Add("late", Kind::kPut, 200, 300);
  EXPECT_EQ(Scanned({}), "");
  EXPECT_EQ(Scanned({"early", "late"}), "");
}

TEST_F(SimulationHistoriesTest, WhatWasOverBeforeDoesNotCount) {
  Add("k", Kind::kPut, 10, 20);
  Add("k", Kind::kDelete, 30, 40);
  EXPECT_TRUE(MayBeMissed());
  EXPECT_FALSE(MayBeFound());
  Add("k", Kind::kPut, 50, 60);
  EXPECT_FALSE(MayBeMissed());
  EXPECT_TRUE(MayBeFound());
  // Concurrent: either may be the last.
  Add("k", Kind::kDelete, 55, 70);
  EXPECT_TRUE(MayBeMissed());
  EXPECT_TRUE(MayBeFound());
  // A reader shows which.
  Add("k", Kind::kGet, 80, 90, Outcome::kNotFound);
  EXPECT_TRUE(MayBeMissed());
  EXPECT_FALSE(MayBeFound());
}

TEST_F(SimulationHistoriesTest, WhatComesAfterwardsDoesNotCount) {
  Add("k", Kind::kPut, 10, 20);
  Add("k", Kind::kDelete, 201, 210);
  EXPECT_FALSE(MayBeMissed());
  Add("other", Kind::kPut, 201, 210);
  EXPECT_THAT(Scanned({"k", "other"}), HasSubstr("found 'other'"));
}

TEST_F(SimulationHistoriesTest, AWriteOfUnknownEndMayHappenAnyTime) {
  Add("k", Kind::kPut, 10, 20);
  Add("k", Kind::kDelete, 30, 40, Outcome::kUnknown);
  Add("k", Kind::kGet, 50, 60);
  EXPECT_TRUE(MayBeMissed());
  EXPECT_TRUE(MayBeFound());
  Add("put", Kind::kPut, 30, 40, Outcome::kUnknown);
  Add("put", Kind::kGet, 50, 60, Outcome::kNotFound);
  EXPECT_EQ(Scanned({"k", "put"}), "");
  Add("never", Kind::kPut, 30, 40, Outcome::kUnapplied);
  EXPECT_THAT(Scanned({"k", "never"}), HasSubstr("found 'never'"));
}

TEST_F(SimulationHistoriesTest, AWriteOfUnknownEndEndsWithItsServer) {
  Add("put", Kind::kPut, 10, 20, Outcome::kUnknown);
  Add("put", Kind::kLoss, 30, 40);
  Add("put", Kind::kGet, 50, 60, Outcome::kNotFound);
  EXPECT_THAT(Scanned({"put"}), HasSubstr("found 'put'"));
  Add("deleted", Kind::kDelete, 10, 20, Outcome::kUnknown);
  Add("deleted", Kind::kLoss, 30, 40);
  Add("deleted", Kind::kPut, 50, 60);
  EXPECT_THAT(Scanned({}), HasSubstr("missed 'deleted'"));
  // It was retried with the next server.
  Add("again", Kind::kPut, 10, 35, Outcome::kUnknown);
  Add("again", Kind::kLoss, 30, 40);
  EXPECT_EQ(Scanned({"again", "deleted"}), "");
}

TEST_F(SimulationHistoriesTest, WhatHasATimeToLiveMayGoAnyTime) {
  Operation& put = Add("k", Kind::kPut, 10, 20);
  put.ttl = 1000;
  EXPECT_TRUE(MayBeMissed());
  EXPECT_TRUE(MayBeFound());
  Add("k", Kind::kLoss, 30, 40);
  EXPECT_FALSE(MayBeFound());
}

TEST_F(SimulationHistoriesTest, HistoriesOfKeysAreJudgedToo) {
  Add("k", Kind::kPut, 10, 20);
  Add("k", Kind::kGet, 30, 40, Outcome::kNotFound);
  EXPECT_THAT(Judge(histories_).wrong, HasSubstr("key 'k': no order explains"));
}

}  // namespace
}  // namespace osprey
