// A server with several pollers, as a process with real threads, and clients on other threads. Over
// shared memory here (also with the thread sanitizer), over verbs in the lab.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

constexpr int kClients = 4;
constexpr int kCounters = 32;

std::unique_ptr<Client> Connect(const std::string& uri) {
  Options options;
  options.deadline = absl::Seconds(20);
  options.connect_timeout = absl::Seconds(20);
  options.wait = WaitMode::kEvent;  // there are fewer cores than threads
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri, options);
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

uint64_t Stat(Client& client, absl::string_view name) {
  const absl::StatusOr<std::string> stats = client.ServerStats();
  EXPECT_TRUE(stats.ok()) << stats.status();
  uint64_t value = 0;
  EXPECT_TRUE(absl::SimpleAtoi(StatIn(*stats, name), &value)) << name;
  return value;
}

std::unique_ptr<ServerProcess> Start(const std::string& pollers) {
  absl::StatusOr<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start(NewListenAddress(), {"--pollers=" + pollers});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(PollersProcessTest, WhatClientsOfAllPollersWriteTogetherIsAllThere) {
  const int rounds = InLab() ? 60 : 400;
  const std::unique_ptr<ServerProcess> server = Start("4");
  std::vector<std::thread> threads;
  for (int c = 0; c < kClients; ++c) {
    threads.emplace_back([&, c] {
      const std::unique_ptr<Client> client = Connect(server->uri());
      const std::string large(100'000, static_cast<char>('a' + c));
      for (int i = 0; i < rounds; ++i) {
        const std::string counter = absl::StrCat("counter", (i + c) % kCounters);
        const absl::StatusOr<Number> number = client->Increment(counter);
        ASSERT_TRUE(number.ok()) << number.status();
        const std::string own = absl::StrCat("own", c, "/", i);
        ASSERT_TRUE(client->Put(own, own).ok());
        const absl::StatusOr<Value> value = client->Get(own);
        ASSERT_TRUE(value.ok()) << value.status();
        ASSERT_EQ(value->bytes, own);
        if (i % 20 == 0) {
          ASSERT_TRUE(client->Put("large", large).ok());
          ASSERT_TRUE(client->Append(absl::StrCat("log", c), std::string(2000, 'l')).ok());
          const absl::StatusOr<Value> got = client->Get("large");
          ASSERT_TRUE(got.ok()) << got.status();
          ASSERT_EQ(got->bytes, std::string(100'000, got->bytes[0]));
        }
        if (i % 4 != 3) continue;
        ASSERT_TRUE(client->Delete(absl::StrCat("own", c, "/", i - 1)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::unique_ptr<Client> client = Connect(server->uri());
  int64_t sum = 0;
  for (int i = 0; i < kCounters; ++i) {
    const absl::StatusOr<Value> value = client->Get(absl::StrCat("counter", i));
    int64_t number = 0;
    ASSERT_TRUE(value.ok()) << value.status();
    ASSERT_TRUE(absl::SimpleAtoi(value->bytes, &number));
    sum += number;
  }
  EXPECT_EQ(sum, kClients * rounds);
  const uint64_t keys = std::min(kCounters, rounds + kClients - 1) +
                        uint64_t{kClients} * (rounds - rounds / 4) + 1 + kClients;
  EXPECT_EQ(client->Count().value(), keys);
  EXPECT_EQ(Stat(*client, "keys"), keys);
  EXPECT_EQ(Stat(*client, "pollers"), 4u);
  EXPECT_EQ(Stat(*client, "requests_increment"), uint64_t{kClients} * rounds);
  EXPECT_EQ(client->Flush().value(), keys);
  EXPECT_EQ(client->Count().value(), 0u);
  EXPECT_EQ(server->Stop(), 0);
}

TEST(PollersProcessTest, ClientsThatComeAndGoAreSpreadAndForgotten) {
  const std::unique_ptr<ServerProcess> server = Start("3");
  std::vector<std::thread> threads;
  const int rounds = InLab() ? 3 : 20;
  for (int c = 0; c < kClients; ++c) {
    threads.emplace_back([&, c] {
      for (int i = 0; i < rounds; ++i) {
        const std::unique_ptr<Client> client = Connect(server->uri());
        ASSERT_TRUE(client->Put(absl::StrCat("key", c), absl::StrCat(i)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::unique_ptr<Client> client = Connect(server->uri());
  EXPECT_EQ(Stat(*client, "connections_accepted"), uint64_t{kClients} * rounds + 1);
  for (int i = 0; i < 100 && Stat(*client, "connections") != 1; ++i)
    absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(Stat(*client, "connections"), 1u);
  EXPECT_EQ(server->Stop(), 0);
}

// Sleeping pollers: all of them together less than a tenth of a core, clients' heartbeats included.
TEST(PollersProcessTest, PollersWithIdleClientsSleep) {
  const std::unique_ptr<ServerProcess> server = Start("8");
  std::vector<std::unique_ptr<Client>> clients;
  for (int c = 0; c < 8; ++c) clients.push_back(Connect(server->uri()));
  const uint64_t before = Stat(*clients[0], "process_cpu_us");
  absl::SleepFor(absl::Seconds(2));
  EXPECT_LT(Stat(*clients[0], "process_cpu_us") - before, 200'000u);
  EXPECT_EQ(server->Stop(), 0);
}

TEST(PollersProcessTest, AServerInTheMiddleOfWritesEndsCleanly) {
  const std::unique_ptr<ServerProcess> server = Start("4");
  std::atomic<bool> stop{false};
  std::vector<std::unique_ptr<Client>> clients;
  for (int c = 0; c < kClients; ++c) clients.push_back(Connect(server->uri()));
  std::vector<std::thread> threads;
  for (int c = 0; c < kClients; ++c) {
    threads.emplace_back([&, c] {
      for (int i = 0; !stop.load(); ++i) {
        (void)clients[c]->Put(absl::StrCat("key", c, i % 100), "value",
                              {.deadline = absl::Seconds(1)});
      }
    });
  }
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_EQ(server->Stop(), 0);
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace osprey
