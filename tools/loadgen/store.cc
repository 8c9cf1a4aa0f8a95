#include "tools/loadgen/store.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace osprey::loadgen {
namespace {

// A sleep may last this much longer than requested. The rest of a wait is therefore polled, so that
// operations of an open loop start in time. (With WaitMode::kEvent the whole wait sleeps, to
// save CPU.)
constexpr int64_t kSleepSlackNs = 100'000;

class MonotonicClock : public Clock {
 public:
  int64_t NowNs() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

class ClientStore : public Store {
 public:
  ClientStore(std::unique_ptr<Client> client, WaitMode wait)
      : client_(std::move(client)),
        spins_(wait == WaitMode::kSpin),
        slack_ns_(wait == WaitMode::kEvent ? 0 : kSleepSlackNs) {}

  absl::Status StartRead(absl::string_view key, Token token) override {
    // The callback is small enough to need no allocation.
    return client_->StartGet(
        key, [this, token](absl::StatusOr<Value> value) { listener_->ReadEnded(token, value); });
  }

  absl::Status StartWrite(absl::string_view key, absl::string_view value, Token token) override {
    return client_->StartPut(key, value, {}, [this, token](absl::StatusOr<uint64_t> version) {
      listener_->WriteEnded(token, version);
    });
  }

  absl::Status StartScan(absl::string_view cursor, uint64_t limit, Token token) override {
    ScanOptions options;
    options.limit = limit;
    options.values = true;
    return client_->StartScan(cursor, options, [this, token](absl::StatusOr<ScanPage> page) {
      listener_->ScanEnded(token, page);
    });
  }

  void Poll() override { client_->Poll(); }

  void Wait(int64_t timeout_ns) override {
    if (timeout_ns <= slack_ns_) {
      client_->Poll();
    } else if (client_->in_flight() > 0) {
      client_->Wait(absl::Nanoseconds(timeout_ns - slack_ns_));
    } else if (!spins_) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(timeout_ns - slack_ns_));
    }
  }

  Counters counters() const override { return client_->counters(); }
  std::string Describe() const override { return client_->Describe(); }

 private:
  std::unique_ptr<Client> client_;
  const bool spins_;
  const int64_t slack_ns_;
};

class DoNothingStore : public Store {
 public:
  absl::Status StartRead(absl::string_view, Token token) override {
    return Start({Kind::kRead, token});
  }
  absl::Status StartWrite(absl::string_view, absl::string_view, Token token) override {
    return Start({Kind::kWrite, token});
  }
  absl::Status StartScan(absl::string_view, uint64_t, Token token) override {
    return Start({Kind::kScan, token});
  }

  void Poll() override {
    ending_.swap(started_);
    for (const Started& operation : ending_) End(operation);
    ending_.clear();
  }
  void Wait(int64_t) override { Poll(); }

  Counters counters() const override { return {}; }
  std::string Describe() const override { return "transport=null device=none server=null:"; }

 private:
  enum class Kind { kRead, kWrite, kScan };
  struct Started {
    Kind kind;
    Token token;
  };

  absl::Status Start(Started operation) {
    started_.push_back(operation);
    return absl::OkStatus();
  }

  void End(const Started& operation) {
    switch (operation.kind) {
      case Kind::kRead: {
        absl::StatusOr<Value> value = Value();
        return listener_->ReadEnded(operation.token, value);
      }
      case Kind::kWrite:
        return listener_->WriteEnded(operation.token, uint64_t{0});
      case Kind::kScan:
        return listener_->ScanEnded(operation.token, ScanPage());
    }
  }

  std::vector<Started> started_;
  std::vector<Started> ending_;
};

}  // namespace

Clock& SystemClock() {
  static MonotonicClock clock;
  return clock;
}

absl::StatusOr<std::unique_ptr<Store>> ConnectStore(absl::string_view uri, const Options& options) {
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri, options);
  if (!client.ok()) return client.status();
  return std::make_unique<ClientStore>(*std::move(client), options.wait);
}

std::unique_ptr<Store> NullStore() { return std::make_unique<DoNothingStore>(); }

}  // namespace osprey::loadgen
