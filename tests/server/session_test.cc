#include <cstdint>

#include "gtest/gtest.h"
#include "server/requests/sessions.h"

namespace osprey::server {
namespace {

// Sessions compare connections, and never access their contents.
Connection* Somebody(uintptr_t number) { return reinterpret_cast<Connection*>(number * 64); }

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

class SessionsTest : public testing::Test {
 protected:
  uint64_t last_id_ = 1000;
  Sessions sessions_{3, [this] { return ++last_id_; }};
};

TEST(ResultWindowTest, RemembersAnswersAndForgetsThemAtTheWindowsEnd) {
  ResultWindow window;
  EXPECT_EQ(window.Find(1).seen, ResultWindow::Seen::kNew);
  window.Remember(
      1, {absl::StatusCode::kAlreadyExists, 17, 18, 19, 20, true, rdma::WireReason::kOverflow});
  EXPECT_EQ(window.Find(1).seen, ResultWindow::Seen::kAnswered);
  EXPECT_EQ(window.Find(1).result.code, absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(window.Find(1).result.version, 17);
  EXPECT_EQ(window.Find(1).result.slot, 18);
  EXPECT_EQ(window.Find(1).result.value_length, 19);
  EXPECT_EQ(window.Find(1).result.number, 20);
  EXPECT_TRUE(window.Find(1).result.has_number);
  EXPECT_EQ(window.Find(1).result.reason, rdma::WireReason::kOverflow);

  window.Remember(kResultsKept, {absl::StatusCode::kOk, 2, 0});
  EXPECT_EQ(window.Find(1).seen, ResultWindow::Seen::kAnswered);
  EXPECT_EQ(window.Find(2).seen, ResultWindow::Seen::kNew);  // within the window, never answered

  window.Remember(kResultsKept + 1, {absl::StatusCode::kOk, 3, 0});
  EXPECT_EQ(window.Find(1).seen, ResultWindow::Seen::kForgotten);
  EXPECT_EQ(window.Find(2).seen, ResultWindow::Seen::kNew);
  EXPECT_EQ(window.Find(kResultsKept + 1).result.version, 3);
}

TEST(ResultWindowTest, AWriteThatEndsAfterItsNumberLeftTheWindowDisturbsNoOther) {
  ResultWindow window;
  window.Remember(5 + kResultsKept, {absl::StatusCode::kOk, 7, 0});
  window.Remember(5, {absl::StatusCode::kOk, 1, 0});
  EXPECT_EQ(window.Find(5).seen, ResultWindow::Seen::kForgotten);
  EXPECT_EQ(window.Find(5 + kResultsKept).result.version, 7);
}

TEST(ResultWindowTest, AWriteThatEndsOutOfOrderDoesNotMoveTheWindowBack) {
  ResultWindow window;
  window.Remember(5 + kResultsKept, {});
  window.Remember(4 + kResultsKept, {});
  EXPECT_EQ(window.Find(5).seen, ResultWindow::Seen::kForgotten);
}

TEST(ResultWindowTest, ALeapAheadForgetsAllBefore) {
  ResultWindow window;
  for (uint64_t sequence = 1; sequence <= kResultsKept; ++sequence) window.Remember(sequence, {});
  window.Remember(UINT64_MAX, {absl::StatusCode::kOk, 9, 0});
  for (uint64_t sequence = 1; sequence <= kResultsKept; ++sequence) {
    EXPECT_EQ(window.Find(sequence).seen, ResultWindow::Seen::kForgotten);
  }
  EXPECT_EQ(window.Find(UINT64_MAX).result.version, 9);
  EXPECT_EQ(window.Find(UINT64_MAX - 1).seen, ResultWindow::Seen::kNew);
}

TEST_F(SessionsTest, ASessionIsKeptForItsTimeAndNoLonger) {
  Session& session = sessions_.Create(Somebody(1));
  const uint64_t id = session.id;
  EXPECT_EQ(sessions_.next_expiry(), absl::InfiniteFuture());
  EXPECT_EQ(sessions_.Expire(kStart + absl::Hours(1)), 0);  // owned
  sessions_.Keep(session, kStart);
  EXPECT_EQ(sessions_.next_expiry(), kStart + kSessionKept());
  EXPECT_EQ(sessions_.Expire(kStart + kSessionKept() - absl::Nanoseconds(1)), 0);
  EXPECT_EQ(sessions_.Find(id), &session);
  EXPECT_EQ(sessions_.Expire(kStart + kSessionKept()), 1);
  EXPECT_EQ(sessions_.Find(id), nullptr);
  EXPECT_EQ(sessions_.size(), 0);
}

TEST_F(SessionsTest, ASessionThatIsOwnedAgainDoesNotExpire) {
  Session& session = sessions_.Create(Somebody(1));
  session.results.Remember(1, {absl::StatusCode::kOk, 5, 0});
  sessions_.Keep(session, kStart);
  sessions_.Own(session, Somebody(2));
  EXPECT_EQ(sessions_.Expire(kStart + absl::Hours(1)), 0);
  EXPECT_EQ(sessions_.Find(session.id)->owner, Somebody(2));
  EXPECT_EQ(sessions_.Find(session.id)->results.Find(1).result.version, 5);
}

TEST_F(SessionsTest, NewSessionReplacesTheOneKeptLongest) {
  Session& first = sessions_.Create(Somebody(1));
  Session& second = sessions_.Create(Somebody(2));
  Session& third = sessions_.Create(Somebody(3));
  const uint64_t first_id = first.id, second_id = second.id, third_id = third.id;
  sessions_.Keep(second, kStart);
  sessions_.Keep(first, kStart + absl::Seconds(1));
  sessions_.Create(Somebody(4));
  EXPECT_EQ(sessions_.size(), 3);
  EXPECT_EQ(sessions_.Find(second_id), nullptr);
  EXPECT_NE(sessions_.Find(first_id), nullptr);
  EXPECT_NE(sessions_.Find(third_id), nullptr);
}

TEST_F(SessionsTest, AForgottenSessionIsUnknown) {
  Session& owned = sessions_.Create(Somebody(1));
  Session& kept = sessions_.Create(Somebody(2));
  const uint64_t owned_id = owned.id, kept_id = kept.id;
  sessions_.Keep(kept, kStart);
  sessions_.Forget(owned);
  sessions_.Forget(kept);
  EXPECT_EQ(sessions_.Find(owned_id), nullptr);
  EXPECT_EQ(sessions_.Find(kept_id), nullptr);
  EXPECT_EQ(sessions_.kept(), 0);
}

TEST(SessionIdTest, ZeroAndIdsInUseAreNotGivenOut) {
  const uint64_t draws[] = {7, 7, 0, 8};
  int next = 0;
  Sessions sessions(4, [&] { return draws[next++]; });
  EXPECT_EQ(sessions.Create(Somebody(1)).id, 7);
  EXPECT_EQ(sessions.Create(Somebody(2)).id, 8);
}

}  // namespace
}  // namespace osprey::server
