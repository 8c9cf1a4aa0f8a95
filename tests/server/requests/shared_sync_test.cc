// Requests that share a sync: those of a batch, those that the engine waits for, and plain PUTs of one
// key. The log is a fake one (fake_log.h).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/server/requests/fake_log.h"
#include "tests/server/requests/logged_server.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;
using rdma::WireCondition;

TEST(SharedSyncTest, ABatchIsCommittedOnce) {
  LoggedServer logged(true);
  std::vector<std::string> frames;
  for (int i = 0; i < 10; ++i)
    frames.push_back(logged.client->PutFrame(logged.Next(), absl::StrCat("key", i), "value"));
  logged.client->Send(logged.client->BatchFrame(frames));
  logged.server->Settle();
  EXPECT_EQ(logged.client->replies(), 10u);
  EXPECT_EQ(logged.log.commits(), 1);
}

// Its turns are not shorter than without the other client, which the engine serves only after a sync.
TEST(SharedSyncTest, AGreedyClientsBatchIsCommittedOnce) {
  LoggedServer logged(true);
  RawClient idle(*logged.server);
  idle.Establish();
  for (int round = 1; round <= 3; ++round) {
    std::vector<std::string> frames;
    for (int i = 0; i < 64; ++i)
      frames.push_back(logged.client->PutFrame(logged.Next(), absl::StrCat("key", i), "value"));
    logged.client->Send(logged.client->BatchFrame(frames));
    logged.server->engine().Poll(logged.server->now());
    EXPECT_EQ(logged.log.commits(), round);
  }
  logged.server->Settle();
  EXPECT_EQ(logged.client->replies(), 3 * 64);
  EXPECT_EQ(logged.server->counters().requests_deferred, 0);
}

// Requests that come while the engine waits share the sync with those that came before, whose frames
// the transport no longer has.
TEST(SharedSyncTest, HalvesOfWhatIsInFlightShareASync) {
  absl::Time time = absl::UnixEpoch();
  std::function<void()> as_it_waits;  // once
  HarnessOptions options;
  options.group_clock = [&] {
    if (const auto call = std::exchange(as_it_waits, nullptr)) call();
    return time;
  };
  LoggedServer logged(true, options);
  const auto send = [&](int count) {
    std::vector<std::string> frames;
    for (int i = 0; i < count; ++i) {
      const uint64_t number = logged.Next();
      const std::string value(100, static_cast<char>('a' + number % 26));
      frames.push_back(logged.client->PutFrame(number, absl::StrCat("key", number), value));
    }
    logged.client->Send(logged.client->BatchFrame(frames));
  };
  // The sync takes time, and the other half comes during it.
  logged.log.on_commit = [&] {
    time += absl::Microseconds(400);
    send(8);
  };
  send(8);
  logged.server->engine().Poll(logged.server->now());
  EXPECT_EQ(logged.log.commits(), 1);
  // Those that were answered follow only while the engine looks at the clock.
  logged.log.on_commit = [&] { time += absl::Microseconds(400); };
  as_it_waits = [&] {
    logged.server->PollClients();
    send(8);
  };
  logged.server->engine().Poll(logged.server->now());
  EXPECT_EQ(logged.log.commits(), 2);
  logged.server->Settle();
  EXPECT_EQ(logged.log.commits(), 2);
  EXPECT_EQ(logged.client->replies(), 24u);
  for (uint64_t i = 1; i <= 24; ++i) {
    EXPECT_EQ(logged.server->Stored(absl::StrCat("key", i)),
              std::string(100, static_cast<char>('a' + i % 26)));
  }
  EXPECT_EQ(logged.log.Difference(*logged.server), "");
}

TEST(SharedSyncTest, PlainPutsOfAKeyShareASync) {
  LoggedServer logged(true);
  RawClient& client = *logged.client;
  RawClient other(*logged.server);
  other.Establish();
  client.Send(client.BatchFrame({client.PutFrame(1, "key", "aaa"), client.PutFrame(2, "key", "bbb"),
                                 client.PutFrame(3, "new", "ccc")}));
  other.Send(other.PutFrame(1, "key", "ddd"));
  logged.log.on_commit = [&] { EXPECT_EQ(logged.server->Stored("key"), std::nullopt); };
  logged.server->Settle();
  EXPECT_EQ(logged.log.commits(), 1);
  std::vector<uint64_t> versions(4);
  while (const std::optional<RawReply> reply = client.TakeReply()) {
    EXPECT_EQ(reply->code, StatusCode::kOk);
    versions[reply->sequence] = reply->body.version;
  }
  const std::optional<RawReply> last = other.TakeReply();
  ASSERT_TRUE(last.has_value());
  EXPECT_LT(versions[1], versions[2]);
  EXPECT_LT(versions[2], last->body.version);
  for (const uint64_t sequence : {1, 2}) {
    EXPECT_EQ(logged.log.ResultOf(client.session(), sequence).version, versions[sequence]);
    // It is remembered.
    EXPECT_EQ(logged.Ask(client.PutFrame(sequence, "key", "aaa")).body.version, versions[sequence]);
  }
  EXPECT_EQ(logged.server->Stored("key"), "ddd");
  EXPECT_EQ(logged.log.changes().size(), 4u);
  EXPECT_EQ(logged.log.Difference(*logged.server), "");
}

TEST(SharedSyncTest, OnlyPlainPutsOfOneLengthReplaceEachOther) {
  const auto commits_of = [](const std::function<std::string(RawClient&)>& first,
                             const std::function<std::string(RawClient&)>& second) {
    LoggedServer logged(true);
    EXPECT_EQ(logged.Ask(logged.client->PutFrame(1, "key", "100")).code, StatusCode::kOk);
    const int commits = logged.log.commits();
    logged.client->Send(logged.client->BatchFrame({first(*logged.client), second(*logged.client)}));
    logged.server->Settle();
    EXPECT_EQ(logged.client->replies(), 2u);
    EXPECT_EQ(logged.log.Difference(*logged.server), "");
    return logged.log.commits() - commits;
  };
  const auto put = [](uint64_t sequence, const std::string& value) {
    return [=](RawClient& client) { return client.PutFrame(sequence, "key", value); };
  };
  EXPECT_EQ(commits_of(put(2, "200"), put(3, "300")), 1);
  const std::function<std::string(RawClient&)> others[] = {
      put(3, "3000"),
      put(3, ""),
      [](RawClient& c) { return WithTtl(c.PutFrame(3, "key", "300"), kSecondNs); },
      [](RawClient& c) { return c.PutIfFrame(3, "key", "300", WireCondition::kVersionIs, 1); },
      [](RawClient& c) { return c.IncrementFrame(3, "key", 1); },
      [](RawClient& c) { return c.AppendFrame(3, "key", ""); },
      [](RawClient& c) { return c.ExpireFrame(3, "key", kSecondNs); },
      [](RawClient& c) { return c.DeleteFrame(3, "key"); },
  };
  for (const auto& other : others) {
    const auto first = [&](RawClient& client) {
      std::string frame = other(client);
      reinterpret_cast<rdma::FrameHeader*>(frame.data())->sequence = 2;
      return frame;
    };
    const bool is_refused = &other == &others[3];
    EXPECT_EQ(commits_of(put(2, "200"), other), is_refused ? 1 : 2) << &other - others;
    EXPECT_EQ(commits_of(first, put(3, "300")), is_refused ? 1 : 2) << &other - others;
  }
}

// It is neither applied nor logged twice.
TEST(SharedSyncTest, ARepeatedPutReplacesNone) {
  LoggedServer logged(true);
  RawClient& client = *logged.client;
  client.Send(client.BatchFrame({client.PutFrame(1, "key", "aaa"), client.PutFrame(2, "key", "bbb"),
                                 client.PutFrame(1, "key", "aaa")}));
  logged.server->Settle();
  EXPECT_EQ(logged.log.commits(), 1);
  EXPECT_EQ(logged.log.changes().size(), 2u);
  EXPECT_EQ(logged.server->counters().writes_repeated, 1);
  EXPECT_EQ(logged.server->Stored("key"), "bbb");
  EXPECT_EQ(logged.log.Difference(*logged.server), "");
}

}  // namespace
}  // namespace osprey::server
