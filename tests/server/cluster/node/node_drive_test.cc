// Pollers that wait for a commit do a part of the cluster's thread's work, beside it.

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/server/cluster/node/node_world.h"

namespace osprey::server {
namespace {

// Pollers of the primary, each of which writes keys of its own until it is to end, or a commit fails.
class Writers {
 public:
  // Of each. So many fit, however long the servers take.
  static constexpr int kKeys = 4096;

  Writers(TestServer& server, int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, &server, i] {
        for (int number = 0; !ends_; ++number) {
          const std::string key = absl::StrCat("key", i, "-", number % kKeys);
          TestServer::Write put;
          server.DecidePut(key, absl::ZeroDuration(), put);
          if (!server.writes.Commit().ok()) return;
          server.MakePut(put);
          ++made_;
          keys_ += number < kKeys;
          if (number % 8 == 0) absl::SleepFor(absl::Microseconds(500));
        }
      });
    }
  }
  ~Writers() { End(); }

  int keys() const { return keys_; }  // that were made
  bool AwaitMore() {
    return Await([this, more = made_ + 50] { return made_ > more; });
  }
  void End() {
    ends_ = true;
    AwaitEnd();
  }
  void AwaitEnd() {
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }

 private:
  std::atomic<bool> ends_{false};
  std::atomic<int> made_{0};
  std::atomic<int> keys_{0};
  std::vector<std::thread> threads_;
};

void ServeWithBackup(World& world, TestServer& primary, TestServer& backup) {
  primary.Start();
  primary.Serve();
  backup.Start();
  ASSERT_TRUE(Await([&] { return world.InSync() == 2; }));
}

// What is no acknowledgement is left to the cluster's thread: requests to join, links that come and go. (Requests
// come again if they are lost, links do not.)
TEST(NodeDriveTest, ServersJoinAndEndWhilePollersDrive) {
  World world(/*replicas=*/5);
  TestServer a{world, "a"}, b{world, "b"}, c{world, "c"}, d{world, "d"}, e{world, "e"};
  ServeWithBackup(world, a, b);
  Writers writers(a, 2);
  EXPECT_TRUE(writers.AwaitMore());
  const auto await_others = [&](size_t count) {
    EXPECT_TRUE(Await([&] { return world.InSync() == count + 1; })) << count;
    EXPECT_TRUE(Await([&] { return a.node->stats().links == count; })) << count;
    EXPECT_TRUE(writers.AwaitMore());
  };
  size_t others = 1;
  for (TestServer* const server : {&c, &d, &e}) {
    server->Start();
    await_others(++others);
  }
  for (TestServer* const server : {&b, &c, &d}) {
    server->Kill();
    await_others(--others);
  }
  writers.End();
  EXPECT_TRUE(Await([&] { return e.tables->stats().keys == a.tables->stats().keys; }));
}

// "a: primary in sync known self", for instance.
std::string Members(const TestServer& server) {
  std::vector<std::string> members;
  for (const ClusterStats::Member& member : server.node->stats().members) {
    members.push_back(absl::StrCat(member.server, ":", member.primaries > 0 ? " primary" : "",
                                   member.in_sync > 0 ? " in sync" : "",
                                   member.is_known ? " known" : "", member.is_self ? " self" : "",
                                   member.is_needed ? " needed" : "",
                                   member.is_linked ? " linked" : ""));
  }
  return absl::StrJoin(members, "; ");
}

TEST(NodeStatsTest, MembersAreThoseOfTheStoreAndOfTheRecord) {
  World world(/*replicas=*/2);
  TestServer a{world, "a"}, b{world, "b"};
  ServeWithBackup(world, a, b);
  const auto await = [](const TestServer& server, const std::string& members) {
    EXPECT_TRUE(Await([&] { return Members(server) == members; })) << Members(server);
  };
  await(a, "a: primary in sync known self; b: in sync known needed linked");
  await(b, "a: primary in sync known needed linked; b: in sync known self");
  b.Kill();
  // The key of a server that was killed stays.
  await(a, "a: primary in sync known self; b: known needed");
}

// *Else* the poller and the thread that ends its engine wait for each other.
TEST(NodeDriveTest, ACommitThatDrivesFailsWhenTheServerHandsOver) {
  World world(/*replicas=*/2);
  TestServer a{world, "a"}, b{world, "b"};
  ServeWithBackup(world, a, b);
  Writers writers(a, 2);
  EXPECT_TRUE(writers.AwaitMore());
  a.Stop();
  writers.AwaitEnd();
  const int keys = writers.keys();
  a.node->slot(0).EndService({});
  b.Serve();
  EXPECT_GE(b.tables->stats().keys, static_cast<uint64_t>(keys));
  b.Put("later");
  EXPECT_TRUE(Await([&] { return a.Has("later"); }));
}

}  // namespace
}  // namespace osprey::server
