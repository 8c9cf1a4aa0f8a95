#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "server/requests/sessions.h"

namespace osprey::server {
namespace {

// Sessions compare connections, and never access their contents.
Connection* ConnectionNumber(uintptr_t number) {
  return reinterpret_cast<Connection*>(number * 64);
}

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
      1, {absl::StatusCode::kAlreadyExists, 17, 18, 19, 20, true, false, Reason::kOverflow});
  EXPECT_EQ(window.Find(1).seen, ResultWindow::Seen::kAnswered);
  EXPECT_EQ(window.Find(1).result.code, absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(window.Find(1).result.version, 17);
  EXPECT_EQ(window.Find(1).result.slot, 18);
  EXPECT_EQ(window.Find(1).result.value_length, 19);
  EXPECT_EQ(window.Find(1).result.number, 20);
  EXPECT_TRUE(window.Find(1).result.has_number);
  EXPECT_EQ(window.Find(1).result.reason, Reason::kOverflow);

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
  Session& session = sessions_.Create(ConnectionNumber(1));
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
  Session& session = sessions_.Create(ConnectionNumber(1));
  session.results.Remember(1, {absl::StatusCode::kOk, 5, 0});
  sessions_.Keep(session, kStart);
  sessions_.Own(session, ConnectionNumber(2));
  EXPECT_EQ(sessions_.Expire(kStart + absl::Hours(1)), 0);
  EXPECT_EQ(sessions_.Find(session.id)->owner, ConnectionNumber(2));
  EXPECT_EQ(sessions_.Find(session.id)->results.Find(1).result.version, 5);
}

TEST_F(SessionsTest, NewSessionReplacesTheOneKeptLongest) {
  Session& first = sessions_.Create(ConnectionNumber(1));
  Session& second = sessions_.Create(ConnectionNumber(2));
  Session& third = sessions_.Create(ConnectionNumber(3));
  const uint64_t first_id = first.id, second_id = second.id, third_id = third.id;
  sessions_.Keep(second, kStart);
  sessions_.Keep(first, kStart + absl::Seconds(1));
  sessions_.Create(ConnectionNumber(4));
  EXPECT_EQ(sessions_.size(), 3);
  EXPECT_EQ(sessions_.Find(second_id), nullptr);
  EXPECT_NE(sessions_.Find(first_id), nullptr);
  EXPECT_NE(sessions_.Find(third_id), nullptr);
}

TEST_F(SessionsTest, AForgottenSessionIsUnknown) {
  Session& owned = sessions_.Create(ConnectionNumber(1));
  Session& kept = sessions_.Create(ConnectionNumber(2));
  const uint64_t owned_id = owned.id, kept_id = kept.id;
  sessions_.Keep(kept, kStart);
  sessions_.Forget(owned);
  sessions_.Forget(kept);
  EXPECT_EQ(sessions_.Find(owned_id), nullptr);
  EXPECT_EQ(sessions_.Find(kept_id), nullptr);
  EXPECT_EQ(sessions_.kept(), 0);
}

// --- Across a restart ----------------------------------------------------------------------------

TEST(SessionImageTest, RestoredSessionHasItsWindow) {
  uint64_t last_id = 0;
  Sessions old_life(4, [&] { return ++last_id; });
  Session& session = old_life.Create(ConnectionNumber(1));
  session.results.Remember(1, {absl::StatusCode::kOk, 1, 0});
  session.results.Remember(2, {absl::StatusCode::kOk, 2, 17});
  session.results.Remember(kResultsKept + 1, {absl::StatusCode::kNotFound, 0, 0});
  const std::vector<SessionImage> images = old_life.Images();
  ASSERT_EQ(images.size(), 1);
  ASSERT_EQ(images[0].results.size(), 2);  // the first is forgotten

  Sessions sessions(4, [&] { return ++last_id; });
  sessions.Restore(images[0], kStart);
  EXPECT_EQ(sessions.kept(), 1);
  EXPECT_EQ(sessions.next_expiry(), kStart + kSessionKept());
  const ResultWindow& results = sessions.Find(session.id)->results;
  EXPECT_EQ(results.SeenOf(1), ResultWindow::Seen::kForgotten);
  EXPECT_EQ(results.SeenOf(3), ResultWindow::Seen::kNew);
  EXPECT_EQ(results.Find(2).result.version, 2);
  EXPECT_EQ(results.Find(2).result.slot, 0);  // of the old region
  EXPECT_EQ(results.Find(kResultsKept + 1).result.code, absl::StatusCode::kNotFound);
}

TEST(SessionImageTest, CursorOfAFlushSurvivesEachRestart) {
  uint64_t last_id = 0;
  Sessions sessions(4, [&] { return ++last_id; });
  Result part;
  part.code = absl::StatusCode::kOk;
  part.slot = 99;
  part.slot_is_cursor = true;
  sessions.Create(ConnectionNumber(1)).results.Remember(1, part);
  std::vector<SessionImage> images = sessions.Images();
  for (int life = 0; life < 3; ++life) {
    Sessions next(4, [&] { return ++last_id; });
    next.Restore(images[0], kStart);
    images = next.Images();
    EXPECT_EQ(next.Find(1)->results.Find(1).result.slot, 99);
  }
}

TEST(SessionImageTest, OldestGoWhereTooManyAreRestored) {
  std::vector<uint64_t> begun, ended;
  uint64_t last_id = 100;
  const auto random = [&] { return ++last_id; };
  Sessions old_life(4, random);
  for (uintptr_t i = 1; i <= 4; ++i) old_life.Create(ConnectionNumber(i));
  old_life.Keep(*old_life.Find(103), kStart);
  old_life.Keep(*old_life.Find(102), kStart + absl::Seconds(1));
  Sessions sessions(
      2, random,
      {[&](uint64_t id) { begun.push_back(id); }, [&](uint64_t id) { ended.push_back(id); }});
  for (const SessionImage& image : old_life.Images()) sessions.Restore(image, kStart);
  EXPECT_EQ(ended, (std::vector<uint64_t>{103, 102}));
  EXPECT_TRUE(begun.empty());
  EXPECT_NE(sessions.Find(101), nullptr);
  EXPECT_NE(sessions.Find(104), nullptr);
  // A new client drops one as well.
  EXPECT_EQ(sessions.Create(ConnectionNumber(5)).id, 105);
  EXPECT_EQ(begun, (std::vector<uint64_t>{105}));
  EXPECT_EQ(ended, (std::vector<uint64_t>{103, 102, 101}));
  EXPECT_EQ(sessions.Expire(kStart + kSessionKept()), 1);
  EXPECT_EQ(ended.back(), 104);
}

TEST(SessionIdTest, ZeroAndIdsInUseAreNotGivenOut) {
  const uint64_t draws[] = {7, 7, 0, 8};
  int next = 0;
  Sessions sessions(4, [&] { return draws[next++]; });
  EXPECT_EQ(sessions.Create(ConnectionNumber(1)).id, 7);
  EXPECT_EQ(sessions.Create(ConnectionNumber(2)).id, 8);
}

}  // namespace
}  // namespace osprey::server
