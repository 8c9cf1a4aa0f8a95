// Writes that a log makes durable before they are made: they are not refused any more, and no client
// sees what a crash would undo.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/server/requests/fake_log.h"
#include "tests/server/requests/logged_server.h"
#include "tests/server/server_harness.h"
#include "tests/support/split_mix64.h"
#include "tests/support/volume.h"

namespace osprey::server {
namespace {

using absl::StatusCode;
using rdma::WireCondition;

// --- Room ------------------------------------------------------------------------------------------

// While writes of one client are pending, another one fills the memory.
struct FillingClients {
  explicit FillingClients(bool evict, uint64_t seed)
      : logged([&] {
          HarnessOptions options;
          options.evict = evict;
          options.region_bytes = 2 << 20;
          return options;
        }()),
        random(seed) {}

  std::string Value() {
    const uint64_t bytes[] = {10, 100, 1000, 3000};
    return Large(1 + random.Below(bytes[random.Below(4)]));
  }
  // Of keys that no other request on its way names.
  std::string Frame(int round, int number) {
    RawClient& client = *logged.client;
    const std::string key = absl::StrCat(random.Chance(50) ? "old" : "new", round % 3, "_", number);
    const uint64_t sequence = logged.Next();
    switch (random.Below(5)) {
      case 0:
        return client.IncrementFrame(sequence, key, 1);
      case 1:
        return client.AppendFrame(sequence, key, Value());
      case 2:
        return client.ExpireFrame(sequence, key, (1 + random.Below(5)) * kSecondNs);
      default:
        return client.PutFrame(sequence, key, Value());
    }
  }
  // Fills until memory is full, or keys were evicted.
  void Fill() {
    const uint64_t evictions = logged.server->tables().stats().evictions;
    for (uint64_t full = 0; full < 2 && evictions + 50 > Evictions();) {
      for (int i = 0; i < 16; ++i) {
        ++filled;
        logged.other.Send(logged.other.PutFrame(filled, absl::StrCat("filling", filled), Value()));
      }
      logged.Turn(logged.PollerOf(logged.other));
      logged.server->PollClients();
      while (const std::optional<RawReply> reply = logged.other.TakeReply())
        full += reply->code == StatusCode::kResourceExhausted;
    }
  }
  uint64_t Evictions() { return logged.server->tables().stats().evictions; }

  void Round(int round) {
    std::vector<std::string> frames;
    uint64_t bytes = 0;
    for (int i = 0; i < 20 && bytes < 8000; ++i) {
      frames.push_back(Frame(round, i));
      bytes += frames.back().size();
    }
    for (const std::string& frame : frames) logged.client->Send(frame);
    logged.log.on_commit = [&] {
      logged.log.on_commit = nullptr;
      pending += logged.log.pending();
      Fill();
      logged.late += absl::Milliseconds(random.Below(1500));
    };
    logged.Turn(logged.PollerOf(*logged.client));
    logged.log.on_commit = nullptr;
    logged.server->Settle();
    while (const std::optional<RawReply> reply = logged.client->TakeReply()) {
      ++answered;
      const Result known = logged.log.ResultOf(logged.client->session(), reply->sequence);
      if (reply->code == StatusCode::kOk) {
        EXPECT_EQ(known.code, StatusCode::kOk);
      } else {
        EXPECT_EQ(known.code, StatusCode::kUnknown) << "it was logged, and refused after that";
        refused += reply->code == StatusCode::kResourceExhausted;
      }
    }
  }

  TwoEngines logged;
  SplitMix64 random;
  uint64_t filled = 0;
  uint64_t pending = 0;
  uint64_t answered = 0;
  uint64_t refused = 0;
};

class TwoStepWritesTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Evict, TwoStepWritesTest, ::testing::Values(false, true),
                         [](const auto& evict) { return evict.param ? "Evicts" : "Refuses"; });

TEST_P(TwoStepWritesTest, ALoggedWriteIsMadeThoughMemoryFillsUp) {
  uint64_t refused = 0;
  uint64_t pending = 0;
  for (uint64_t seed = 1; seed <= 12 / kLongVolumeParts; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    FillingClients clients(GetParam(), seed);
    for (int round = 0; round < 12; ++round) {
      clients.Round(round);
      ASSERT_EQ(clients.logged.log.Difference(*clients.logged.server), "") << "round " << round;
      if (HasFailure()) return;
      // Some room again.
      for (uint64_t i = 0; i < 20; ++i) {
        const uint64_t which = clients.random.Below(clients.filled + 1);
        (void)clients.logged.other.Ask(
            clients.logged.other.DeleteFrame(++clients.filled, absl::StrCat("filling", which)));
      }
    }
    refused += clients.refused;
    pending += clients.pending;
  }
  // Void otherwise.
  EXPECT_GT(pending, 100u);
  if (!GetParam()) {
    EXPECT_GT(refused, 0u);
  }
}

// --- Writes that let a key live longer -------------------------------------------------------------

// A key that expires while such a write is pending.
struct ProlongedKey : TwoEngines {
  ProlongedKey(std::string value, bool is_put) {
    uint64_t version = 0;
    if (value.size() > 1000) {
      version = client->Ask(WithTtl(client->RendezvousFrame(Next(), "key", value), kSecondNs))
                    .body.version;
    } else {
      version =
          client->Ask(WithTtl(client->PutFrame(Next(), "key", value), kSecondNs)).body.version;
    }
    frame = is_put ? client->PutIfFrame(Next(), "key", "longer", WireCondition::kVersionIs, version)
                   : client->ExpireFrame(Next(), "key", 10 * kSecondNs);
  }
  // Calls it while the write is pending.
  RawReply Write(std::function<void()> call) {
    client->Send(frame);
    log.on_commit = [&, call = std::move(call)] {
      log.on_commit = nullptr;
      call();
    };
    Turn(PollerOf(*client));
    if (thread.joinable()) thread.join();
    server->Settle();
    return client->TakeReply().value_or(RawReply());
  }
  // Sends a GET, whose engine executes it in another thread.
  void GetBeside() {
    other.Send(other.GetFrame(++gets, "key"));
    thread = std::thread([this] {
      Turn(PollerOf(other));
      is_answered = true;
    });
  }
  RawReply Got() {
    if (thread.joinable()) thread.join();
    server->PollClients();
    return other.TakeReply().value_or(RawReply());
  }

  std::string frame;
  uint64_t gets = 0;
  std::thread thread;
  std::atomic<bool> is_answered{false};
};

TEST(ProlongedKeyTest, ItsOldValueIsAnsweredUntilItExpires) {
  for (const bool is_put : {false, true}) {
    ProlongedKey key("old", is_put);
    RawReply got;
    const RawReply reply = key.Write([&] {
      key.GetBeside();
      got = key.Got();
    });
    EXPECT_EQ(reply.code, StatusCode::kOk);
    EXPECT_EQ(got.code, StatusCode::kOk);
    EXPECT_EQ(got.data, "old");
    EXPECT_EQ(key.server->Stored("key"), is_put ? "longer" : "old");
  }
}

TEST(ProlongedKeyTest, NoClientFindsItExpired) {
  for (const bool is_put : {false, true}) {
    ProlongedKey key("old", is_put);
    const RawReply reply = key.Write([&] {
      key.late = absl::Seconds(2);
      key.GetBeside();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_FALSE(key.is_answered) << "a crash could bring the key back now";
    });
    const RawReply got = key.Got();
    EXPECT_EQ(reply.code, StatusCode::kOk);
    EXPECT_EQ(got.code, StatusCode::kOk);
    EXPECT_EQ(got.data, is_put ? "longer" : "old");
    EXPECT_EQ(key.log.Difference(*key.server), "");
  }
}

TEST(ProlongedKeyTest, AValueThatIsReadIsAwaited) {
  const std::string large = Large(300000);
  ProlongedKey key(large, /*is_put=*/false);
  const RawReply reply = key.Write([&] {
    key.GetBeside();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(key.is_answered) << "its READ would be torn until the write is made";
  });
  const RawReply got = key.Got();
  EXPECT_EQ(reply.code, StatusCode::kOk);
  EXPECT_EQ(got.code, StatusCode::kOk);
  EXPECT_EQ(got.body.value_length, large.size());
  EXPECT_NE(got.body.slot, 0u);
}

// What is pending does not concern other readers.
TEST(ProlongedKeyTest, AReadOfAnotherPendingKeyIsAnswered) {
  TwoEngines logged;
  ASSERT_EQ(logged.Ask(logged.client->PutFrame(logged.Next(), "key", "old")).code, StatusCode::kOk);
  logged.client->Send(logged.client->PutFrame(logged.Next(), "key", "new"));
  logged.log.on_commit = [&] {
    logged.log.on_commit = nullptr;
    logged.other.Send(logged.other.GetFrame(1, "key"));
    logged.Turn(logged.PollerOf(logged.other));
    logged.server->PollClients();
    EXPECT_EQ(logged.other.TakeReply().value_or(RawReply()).data, "old");
  };
  logged.Turn(logged.PollerOf(*logged.client));
  logged.server->Settle();
  EXPECT_EQ(logged.server->Stored("key"), "new");
}

}  // namespace
}  // namespace osprey::server
