// The client's engine over the fake transport, in virtual time.

#ifndef OSPREY_TESTS_CLIENT_CLIENT_ENGINE_FIXTURE_H_
#define OSPREY_TESTS_CLIENT_CLIENT_ENGINE_FIXTURE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/engine/engine.h"
#include "client/read/get_trace.h"
#include "gtest/gtest.h"
#include "tests/client/scripted_server.h"
#include "tests/support/transports/fake_transport.h"

namespace osprey {

// The result of a callback.
template <typename T>
struct Outcome {
  std::optional<absl::StatusOr<T>> value;
  bool done() const { return value.has_value(); }
  absl::Status status() const {
    return done() ? value->status() : absl::UnknownError("not answered yet");
  }
  auto Callback() {
    return [this](absl::StatusOr<T> v) {
      EXPECT_FALSE(value.has_value()) << "a callback ran twice";
      value = std::move(v);
    };
  }
};

class ClientEngineTest : public ::testing::Test {
 protected:
  static constexpr char kUri[] = "rdma://server:7411";

  explicit ClientEngineTest(const fake::NetworkOptions& network = {}) : network_(network) {}
  ~ClientEngineTest() override {
    if (engine_ != nullptr) CloseEngine();
  }

  void StartServer(uint64_t incarnation = 1, uint32_t partitions = 1) {
    server_ = std::make_unique<ScriptedServer>(network_, kUri, incarnation,
                                               ScriptedServer::kRegionBytes, partitions);
    if (server_clock_) server_->clock = server_clock_;
  }
  // As kill -9.
  void KillServer() { server_.reset(); }

  void StartEngine(int operations_max = 256, uint64_t buffer_bytes_max = 64 << 20,
                   uint64_t slot_cache_bytes = 1 << 20) {
    domain_ = network_.NewDomain("client");
    client::EngineOptions options;
    options.connection.uri = uris_;
    options.connection.key = key_;
    options.connection.servers = known_servers_;
    options.operations_max = operations_max;
    options.buffer_bytes_max = buffer_bytes_max;
    options.slot_cache_bytes = slot_cache_bytes;
    options.clock = clock_;
    options.coarse_clock = coarse_clock_;
    options.lease_clock = lease_clock_;
    engine_ =
        client::ClientEngine::Create(*domain_, domain_->NewTransport({}).value(), options).value();
  }
  void CloseEngine() {
    engine_->Close();
    for (int i = 0; i < 100 && !engine_->closed(); ++i) Step();
    EXPECT_TRUE(engine_->closed());
    engine_.reset();
  }

  // One round of client and server.
  void Step(absl::Duration time = absl::Microseconds(100)) {
    now_ += time;
    if (engine_ != nullptr) engine_->Poll(now_);
    if (server_ != nullptr) server_->Poll(now_);
    if (also_polled_) also_polled_();
  }
  void RunFor(absl::Duration time, absl::Duration step = absl::Milliseconds(1)) {
    for (const absl::Time end = now_ + time; now_ < end;) Step(step);
  }
  // False if `condition` is not true within `most`.
  bool RunUntil(const std::function<bool()>& condition, absl::Duration most = absl::Seconds(1)) {
    for (const absl::Time end = now_ + most; now_ < end && !condition();) Step();
    return condition();
  }
  void BecomeReady() {
    ASSERT_TRUE(RunUntil([&] { return engine_->connection().ready(); }, absl::Seconds(5)));
  }
  rdma::ConnectionId id() const { return engine_->connection().id(); }
  client::ServerConnection::State state() const { return engine_->connection().state(); }

  absl::Status StartGet(absl::string_view key, Outcome<Value>& outcome,
                        absl::Duration deadline = absl::Seconds(1)) {
    return engine_->start().Get(key, true, now_ + deadline, outcome.Callback());
  }
  absl::Status StartPut(absl::string_view key, absl::string_view value, Outcome<uint64_t>& outcome,
                        absl::Duration deadline = absl::Seconds(1),
                        const WriteOptions& options = {}) {
    return engine_->start().Put(key, value, options, now_ + deadline, outcome.Callback());
  }
  absl::StatusOr<Number> Increment(absl::string_view key, int64_t by,
                                   const WriteOptions& options = {}) {
    Outcome<Number> outcome;
    absl::Status status =
        engine_->start().Increment(key, by, options, now_ + absl::Seconds(1), outcome.Callback());
    if (!status.ok()) return status;
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(2)));
    return *outcome.value;
  }
  absl::StatusOr<uint64_t> Append(absl::string_view key, absl::string_view value,
                                  const WriteOptions& options = {}) {
    Outcome<uint64_t> outcome;
    absl::Status status =
        engine_->start().Append(key, value, options, now_ + absl::Seconds(1), outcome.Callback());
    if (!status.ok()) return status;
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(2)));
    return *outcome.value;
  }
  absl::StatusOr<uint64_t> Flush(absl::Duration deadline = absl::Seconds(1)) {
    Outcome<uint64_t> outcome;
    absl::Status status = engine_->start().Flush(now_ + deadline, outcome.Callback());
    if (!status.ok()) return status;
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, deadline + absl::Seconds(1)));
    return *outcome.value;
  }
  absl::StatusOr<Value> Get(absl::string_view key, absl::Duration deadline = absl::Seconds(1)) {
    Outcome<Value> outcome;
    if (absl::Status status = StartGet(key, outcome, deadline); !status.ok()) return status;
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, deadline + absl::Seconds(1)));
    return *outcome.value;
  }
  // A traced GET; its steps are behind those of `steps`.
  absl::StatusOr<Value> Trace(absl::string_view key, std::vector<TraceStep>& steps) {
    client::GetTrace trace([this] { return now_; }, steps);
    Outcome<Value> outcome;
    absl::Status status =
        engine_->start().TraceGet(key, trace, now_ + absl::Seconds(1), outcome.Callback());
    if (!status.ok()) return status;
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(2)));
    return *outcome.value;
  }
  absl::StatusOr<uint64_t> Put(absl::string_view key, absl::string_view value,
                               const WriteOptions& options = {},
                               absl::Duration deadline = absl::Seconds(1)) {
    Outcome<uint64_t> outcome;
    if (absl::Status status = StartPut(key, value, outcome, deadline, options); !status.ok()) {
      return status;
    }
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, deadline + absl::Seconds(1)));
    return *outcome.value;
  }

  fake::Network network_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  std::string uris_ = kUri;  // of engines started from now on
  std::shared_ptr<client::KnownServers> known_servers_;
  rdma::AuthKey::Pointer key_;  // of engines started from now on; null: none
  // The clock of client and server; null: now_, as they are polled.
  std::function<absl::Time()> clock_;
  std::function<absl::Time()> coarse_clock_;  // null: as in virtual time
  std::function<absl::Time()> lease_clock_;   // null: clock_
  std::function<absl::Time()> server_clock_;
  std::unique_ptr<rdma::Domain> domain_;
  std::unique_ptr<ScriptedServer> server_;
  std::unique_ptr<client::ClientEngine> engine_;
  std::function<void()> also_polled_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_CLIENT_CLIENT_ENGINE_FIXTURE_H_
