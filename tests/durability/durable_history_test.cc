#include "tests/durability/durable_history.h"

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/history/linearizability.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

Operation PutAt(int64_t call_ms, int64_t ttl_ms) {
  Operation put;
  put.kind = Operation::Kind::kPut;
  put.value = "value";
  put.ttl = ttl_ms * kMs;
  put.outcome = Operation::Outcome::kOk;
  put.version = 1;
  put.call = call_ms * kMs;
  put.returned = (call_ms + 1) * kMs;
  return put;
}

Operation GetAt(int64_t call_ms) {
  Operation get;
  get.kind = Operation::Kind::kGet;
  get.outcome = Operation::Outcome::kOk;
  get.answer = "value";
  get.version = 1;
  get.call = call_ms * kMs;
  get.returned = (call_ms + 1) * kMs;
  return get;
}

Restart CleanRestart(int64_t ending_ms, int64_t ended_ms, int64_t ready_ms) {
  Restart restart;
  restart.ending_ns = ending_ms * kMs;
  restart.ended_ns = ended_ms * kMs;
  restart.ready_ns = ready_ms * kMs;
  return restart;
}

TEST(DurableHistoryTest, NoKeyOutlivesItsTimeWithoutARestart) {
  EXPECT_EQ(JudgeDurable({{"key", {PutAt(0, 100), GetAt(140)}}}, {}).wrong, "");
  EXPECT_THAT(JudgeDurable({{"key", {PutAt(0, 100), GetAt(160)}}}, {}).wrong,
              HasSubstr("no order explains"));
}

// The clock of the server stands from the clean end, early in a slow exit, to the next life.
TEST(DurableHistoryTest, AKeyLivesLongerByASlowEndOfTheServer) {
  const Restart restart = CleanRestart(50, 400, 500);
  EXPECT_EQ(JudgeDurable({{"key", {PutAt(0, 100), GetAt(590)}}}, {restart}).wrong, "");
  EXPECT_THAT(JudgeDurable({{"key", {PutAt(0, 100), GetAt(610)}}}, {restart}).wrong,
              HasSubstr("no order explains"));
}

TEST(DurableHistoryTest, ALostWriteIsWrong) {
  Operation get = GetAt(600);
  get.outcome = Operation::Outcome::kNotFound;
  EXPECT_THAT(JudgeDurable({{"key", {PutAt(0, 0), get}}}, {CleanRestart(50, 400, 500)}).wrong,
              HasSubstr("no order explains"));
}

}  // namespace
}  // namespace osprey
