// Servers with a log in memory (fake_log.h), and clients of them.

#ifndef OSPREY_TESTS_SERVER_REQUESTS_LOGGED_SERVER_H_
#define OSPREY_TESTS_SERVER_REQUESTS_LOGGED_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/server/requests/fake_log.h"
#include "tests/server/server_harness.h"

namespace osprey::server {

inline constexpr uint64_t kSecondNs = 1000000000;

// A server whose clock the test moves, and a client.
struct LoggedServer {
  explicit LoggedServer(bool awaits_sync, HarnessOptions changed = {}) : log(awaits_sync, 2) {
    HarnessOptions options = log.Options();
    options.region_bytes = changed.region_bytes;
    options.evict = changed.evict;
    options.pollers = changed.pollers;
    options.group_clock = changed.group_clock;
    options.network = changed.network;
    server.emplace(options);
    server->set_clock([this] { return server->now() + late; });
    client.emplace(*server);
    client->Establish();
  }
  ~LoggedServer() { log.on_commit = nullptr; }

  RawReply Ask(absl::string_view frame) { return client->Ask(frame); }
  uint64_t Next() { return ++sequence; }

  FakeLog log;
  absl::Duration late;  // of the tables' clock: keys expire within a turn
  std::optional<ServerHarness> server;
  std::optional<RawClient> client;
  uint64_t sequence = 0;
};

// A second engine of the same tables, and a client of it.
struct TwoEngines : LoggedServer {
  explicit TwoEngines(HarnessOptions changed = {})
      : LoggedServer(true,
                     [&] {
                       changed.pollers = 2;
                       return changed;
                     }()),
        other(*server) {
    Connect(other, 2);
    Connect(*client, 1);
  }
  void Connect(RawClient& connects, uint32_t affinity) {
    connects.Connect(affinity);
    server->Settle();
    connects.Hello();
    server->Settle();
    EXPECT_TRUE(connects.welcomed());
  }
  bool Turn(size_t poller) { return server->engine(poller).Poll(server->now()); }
  // The engine of a client.
  size_t PollerOf(const RawClient& of) { return server::PollerOf(of.session(), 2); }

  RawClient other;
};

}  // namespace osprey::server

#endif  // OSPREY_TESTS_SERVER_REQUESTS_LOGGED_SERVER_H_
