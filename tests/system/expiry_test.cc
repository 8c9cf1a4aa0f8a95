// Time to live, with a separate kvserver: over shared memory, in the lab over verbs. One client is
// a plain Client; others run the same engine with a clock that is an hour wrong.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/engine/engine.h"
#include "client/reasons.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/open_domain.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using ::testing::UnorderedElementsAre;

// In the lab the CPU is emulated, and the machine may be busy.
const absl::Duration kTtl = InLab() ? absl::Seconds(3) : absl::Milliseconds(300);
// So far in the future that no delay of a busy machine reaches it.
const absl::Duration kLong = absl::Hours(2);
const absl::Duration kDeadline = absl::Seconds(30);

absl::Time Now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return absl::UnixEpoch() + absl::Nanoseconds(std::chrono::nanoseconds(since).count());
}

void SleepUntil(absl::Time time) {
  const absl::Duration left = time - Now();
  if (left > absl::ZeroDuration()) std::this_thread::sleep_for(absl::ToChronoNanoseconds(left));
}

// A client whose clock is `ahead` of the real one.
class ClientWithWrongClock {
 public:
  ClientWithWrongClock(const std::string& uri, absl::Duration ahead) : ahead_(ahead) {
    domain_ = rdma::OpenDomain(uri).value();
    client::EngineOptions options;
    options.connection.uri = uri;
    options.clock = [this] { return ItsNow(); };
    engine_ =
        client::ClientEngine::Create(*domain_, domain_->NewTransport({}).value(), options).value();
    PollUntil([this] { return engine_->connection().ready(); });
    EXPECT_TRUE(engine_->connection().ready()) << engine_->connection().last_error();
  }
  ~ClientWithWrongClock() {
    engine_->Close();
    PollUntil([this] { return engine_->closed(); });
  }

  absl::StatusOr<Value> Get(absl::string_view key) {
    std::optional<absl::StatusOr<Value>> answer;
    const absl::Status started =
        engine_->start().Get(key, /*want_value=*/true, ItsNow() + kDeadline,
                             [&](absl::StatusOr<Value> value) { answer = std::move(value); });
    if (!started.ok()) return started;
    PollUntil([&] { return answer.has_value(); });
    return answer.has_value() ? *std::move(answer) : absl::UnknownError("never answered");
  }
  absl::StatusOr<uint64_t> Put(absl::string_view key, absl::string_view value, absl::Duration ttl) {
    std::optional<absl::StatusOr<uint64_t>> answer;
    WriteOptions options;
    options.ttl = ttl;
    const absl::Status started = engine_->start().Put(
        key, value, options, ItsNow() + kDeadline,
        [&](absl::StatusOr<uint64_t> version) { answer = std::move(version); });
    if (!started.ok()) return started;
    PollUntil([&] { return answer.has_value(); });
    return answer.has_value() ? *std::move(answer) : absl::UnknownError("never answered");
  }
  const Counters& counters() const { return engine_->counters(); }

 private:
  absl::Time ItsNow() const { return Now() + ahead_; }
  template <typename Predicate>
  void PollUntil(Predicate is_done) {
    for (const absl::Time end = Now() + 2 * kDeadline; !is_done() && Now() < end;)
      engine_->Poll(ItsNow());
  }

  const absl::Duration ahead_;
  std::unique_ptr<rdma::Domain> domain_;
  std::unique_ptr<client::ClientEngine> engine_;
};

class ExpiryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(NewListenAddress());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    Options options;
    options.deadline = kDeadline;
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  static WriteOptions For(absl::Duration ttl) {
    WriteOptions options;
    options.ttl = ttl;
    return options;
  }
  // Puts the key; from the returned time on it is gone.
  absl::Time PutFor(absl::string_view key, absl::string_view value, absl::Duration ttl) {
    const absl::StatusOr<uint64_t> put = client_->Put(key, value, For(ttl));
    EXPECT_TRUE(put.ok()) << put.status();
    // An expiry is rounded up by less than 0.1 ms.
    return Now() + ttl + absl::Milliseconds(1);
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(ExpiryTest, AKeyIsThereForItsTimeAndNotLonger) {
  const absl::Time before = Now();
  const absl::Time gone = PutFor("planet", "saturn", kTtl);
  while (true) {
    const absl::Time called = Now();
    const absl::StatusOr<Value> value = client_->Get("planet");
    const absl::Time returned = Now();
    if (value.ok()) {
      EXPECT_EQ(value->bytes, "saturn");
      EXPECT_LE(value->ttl, kTtl);
      EXPECT_LT(called, gone);
    } else {
      ASSERT_TRUE(absl::IsNotFound(value.status())) << value.status();
      EXPECT_GE(returned, before + kTtl);
      break;
    }
  }
  EXPECT_TRUE(absl::IsNotFound(client_->Ttl("planet").status()));
  EXPECT_FALSE(*client_->Exists("planet"));
}

TEST_F(ExpiryTest, LongValuesToo) {
  for (const size_t bytes : {size_t{2000}, size_t{1} << 20}) {
    const std::string value(bytes, 'v');
    const absl::Time gone = PutFor("planet", value, 2 * kTtl);
    const absl::StatusOr<Value> got = client_->Get("planet");
    if (Now() < gone - kTtl) {
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->bytes, value);
    }
    SleepUntil(gone);
    EXPECT_TRUE(absl::IsNotFound(client_->Get("planet").status())) << bytes;
  }
}

TEST_F(ExpiryTest, TheLifeOfAKeyMayBeMadeLongerShorterOrForEver) {
  EXPECT_EQ(ReasonOf(client_->Expire("planet", kLong).status()), Reason::kAbsent);
  EXPECT_EQ(ReasonOf(client_->Persist("planet").status()), Reason::kAbsent);
  EXPECT_EQ(ReasonOf(client_->Touch("planet").status()), Reason::kAbsent);
  const uint64_t version = *client_->Put("planet", "saturn");
  EXPECT_EQ(*client_->Ttl("planet"), absl::InfiniteDuration());
  EXPECT_EQ(*client_->Expire("planet", kLong), version);
  EXPECT_LE(*client_->Ttl("planet"), kLong);
  EXPECT_GT(*client_->Ttl("planet"), kLong - absl::Hours(1));
  EXPECT_EQ(*client_->Persist("planet"), version);
  EXPECT_EQ(*client_->Ttl("planet"), absl::InfiniteDuration());
  EXPECT_EQ(*client_->Touch("planet"), version);
  EXPECT_EQ(client_->Get("planet")->version, version);
  ASSERT_TRUE(client_->Expire("planet", kTtl).ok());
  SleepUntil(Now() + kTtl + absl::Milliseconds(1));
  EXPECT_TRUE(absl::IsNotFound(client_->Get("planet").status()));
  EXPECT_EQ(ReasonOf(client_->Persist("planet").status()), Reason::kAbsent);
}

TEST_F(ExpiryTest, IncrementAndAppendKeepTheTimeAPutDoesNot) {
  ASSERT_TRUE(client_->Put("visits", "41", For(kLong)).ok());
  EXPECT_EQ(client_->Increment("visits")->value, 42);
  EXPECT_LE(*client_->Ttl("visits"), kLong);
  ASSERT_TRUE(client_->Append("visits", "0").ok());
  EXPECT_LE(*client_->Ttl("visits"), kLong);
  EXPECT_EQ(client_->Get("visits")->bytes, "420");
  ASSERT_TRUE(client_->Put("visits", "1").ok());
  EXPECT_EQ(*client_->Ttl("visits"), absl::InfiniteDuration());
}

TEST_F(ExpiryTest, WhatHasExpiredIsAbsentForEveryOperation) {
  const absl::Time gone = PutFor("visits", "41", kTtl);
  const uint64_t version = client_->Put("planet", "saturn", For(kTtl)).value();
  SleepUntil(gone + kTtl);
  EXPECT_EQ(client_->Increment("visits")->value, 1);
  EXPECT_EQ(*client_->Ttl("visits"), absl::InfiniteDuration());
  WriteOptions if_version;
  if_version.if_version = version;
  EXPECT_EQ(ReasonOf(client_->Put("planet", "mars", if_version).status()), Reason::kAbsent);
  EXPECT_EQ(ReasonOf(client_->Delete("planet").status()), Reason::kAbsent);
  WriteOptions if_absent = For(kLong);
  if_absent.if_absent = true;
  EXPECT_TRUE(client_->Put("planet", "mars", if_absent).ok());
}

TEST_F(ExpiryTest, ManyKeysInOneCallAndScansAndCounts) {
  const std::vector<absl::StatusOr<uint64_t>> put =
      client_->MultiPut({{"mercury", "4879"}, {"venus", "12104"}, {"earth", "12742"}}, For(kTtl));
  const absl::Time gone = Now() + kTtl + absl::Milliseconds(1);
  for (const absl::StatusOr<uint64_t>& one : put) ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(client_->Put("mars", "6779", For(kLong)).ok());
  ASSERT_TRUE(client_->Put("pluto", "2377").ok());
  SleepUntil(gone);
  EXPECT_EQ(*client_->Count(), 2u);
  std::set<std::string> found;
  const absl::StatusOr<ScanPage> page = client_->Scan("");
  ASSERT_TRUE(page.ok()) << page.status();
  for (const ScanItem& item : page->items) found.insert(item.key);
  EXPECT_THAT(found, UnorderedElementsAre("mars", "pluto"));
  const auto values = client_->MultiGet({"mercury", "mars"});
  EXPECT_TRUE(absl::IsNotFound(values[0].status()));
  EXPECT_LE(values[1]->ttl, kLong);
  EXPECT_EQ(*client_->Flush(), 2u);
}

// After the first client that finds a key absent, no client finds it, and no client misses it
// before its expiry.
TEST_F(ExpiryTest, ClientsWithClocksAnHourOffAgreeOnExpiry) {
  ClientWithWrongClock ahead(server_->uri(), absl::Hours(1));
  ClientWithWrongClock behind(server_->uri(), -absl::Hours(1));
  const absl::Duration ttl = kTtl / 10;
  for (int round = 0; round < 20; ++round) {
    const std::string key = absl::StrCat("key", round);
    const absl::Time before = Now();
    if (round % 3 == 0) {
      ASSERT_TRUE(ahead.Put(key, "value", ttl).ok());
    } else if (round % 3 == 1) {
      ASSERT_TRUE(behind.Put(key, "value", ttl).ok());
    } else {
      ASSERT_TRUE(client_->Put(key, "value", For(ttl)).ok());
    }
    const absl::Time gone = Now() + ttl + absl::Milliseconds(1);
    bool is_gone = false;
    for (int look = 0; Now() < gone; ++look) {
      const absl::StatusOr<Value> value = look % 3 == 0   ? ahead.Get(key)
                                          : look % 3 == 1 ? behind.Get(key)
                                                          : client_->Get(key);
      ASSERT_TRUE(value.ok() || absl::IsNotFound(value.status())) << value.status();
      EXPECT_FALSE(value.ok() && is_gone) << "it came back in look " << look;
      if (value.ok()) continue;
      EXPECT_GE(Now(), before + ttl);
      is_gone = true;
    }
    EXPECT_TRUE(absl::IsNotFound(ahead.Get(key).status()));
    EXPECT_TRUE(absl::IsNotFound(behind.Get(key).status()));
    EXPECT_TRUE(absl::IsNotFound(client_->Get(key).status()));
  }
  // They used READs. They asked the server only near the expiry, or when they had few samples of
  // the server's clock.
  for (const Counters* counters : {&ahead.counters(), &behind.counters(), &client_->counters()})
    EXPECT_LT(counters->rpc_gets * 2, counters->gets);
}

}  // namespace
}  // namespace osprey
