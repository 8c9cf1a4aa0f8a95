// Client and kvserver as two processes: over shared memory, and in the lab over verbs. Stored
// values come back, byte for byte, by READs alone. A server that is stopped, killed or restarted
// only causes a delay.

#include <signal.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/client.h"
#include "client/reasons.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/running_time.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

class EndToEndTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string listen = NewListenAddress();
    StartServer(listen);
    client_ = Connect();
  }

  void StartServer(const std::string& listen) {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(listen);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    uri_ = server_->uri();
  }
  // SIGKILL, and a restart at the same address.
  void RestartServer() {
    server_.reset();
    StartServer(uri_);
  }
  std::unique_ptr<Client> Connect(const Options& options = {}) {
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri_, options);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }
  std::map<std::string, std::string> Stats() {
    std::map<std::string, std::string> stats;
    const absl::StatusOr<std::string> text = client_->ServerStats();
    EXPECT_TRUE(text.ok()) << text.status();
    for (absl::string_view line : absl::StrSplit(text.value_or(""), '\n', absl::SkipEmpty())) {
      const std::vector<std::string> pair = absl::StrSplit(line, absl::MaxSplits('=', 1));
      stats[pair[0]] = pair.back();
    }
    return stats;
  }

  std::string uri_;
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
};

std::string Pattern(size_t bytes, uint64_t seed) {
  std::string text(bytes, '\0');
  std::mt19937_64 random(seed);
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST_F(EndToEndTest, DescribesTheTransport) {
  EXPECT_THAT(client_->Describe(), HasSubstr(InLab() ? "transport=verbs" : "transport=shm"));
  EXPECT_THAT(client_->Describe(), HasSubstr(uri_));
  EXPECT_TRUE(client_->Ping().ok());
  EXPECT_EQ(Stats()["transport"], InLab() ? "verbs" : "shm");
}

TEST_F(EndToEndTest, ValuesOfEverySizeComeBackByteForByte) {
  for (size_t bytes :
       {0, 1, 8, 40, 41, 1000, 4096, 8000, 8192, 65536, 300000, (1 << 20) - 1, 1 << 20}) {
    SCOPED_TRACE(absl::StrCat(bytes, " bytes"));
    const std::string key = absl::StrCat("key ", bytes);
    const std::string text = Pattern(bytes, bytes);
    const absl::StatusOr<uint64_t> version = client_->Put(key, text);
    ASSERT_TRUE(version.ok()) << version.status();
    const absl::StatusOr<Value> value = client_->Get(key);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(value->bytes == text);
    EXPECT_EQ(value->version, *version);
    EXPECT_EQ(client_->Exists(key).value(), true);
    ASSERT_TRUE(client_->Delete(key).ok());
    EXPECT_TRUE(absl::IsNotFound(client_->Get(key).status()));
    EXPECT_EQ(client_->Exists(key).value(), false);
    EXPECT_TRUE(absl::IsNotFound(client_->Delete(key).status()));
  }
  const std::string binary_key("\0\xff\n\0", 4);
  ASSERT_TRUE(client_->Put(binary_key, binary_key).ok());
  EXPECT_EQ(client_->Get(binary_key)->bytes, binary_key);
  // Asks whether each long value exists, once, rather than READing its bytes.
  EXPECT_EQ(Stats()["requests_get"], "3");
}

TEST_F(EndToEndTest, GetsTakeTheReadsThatTheyShouldAndNoRequest) {
  ASSERT_TRUE(client_->Put("inline", "8 bytes!").ok());
  ASSERT_TRUE(client_->Put("item", std::string(500, 'i')).ok());
  std::map<std::string, std::string> before = Stats();
  const auto reads_of = [&](absl::string_view key) {
    const uint64_t reads = client_->counters().reads;
    (void)client_->Get(key);
    return client_->counters().reads - reads;
  };
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(reads_of("inline"), 1u);
    EXPECT_EQ(reads_of("item"), 1u);  // the reply to PUT had its location
    EXPECT_EQ(reads_of("absent"), 1u);
  }
  std::map<std::string, std::string> after = Stats();
  EXPECT_EQ(after["requests"], before["requests"]);
  EXPECT_EQ(after["requests_get"], "0");
  EXPECT_EQ(client_->counters().rpc_gets, 0u);
}

TEST_F(EndToEndTest, RandomOperationsAgreeWithAMap) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::unordered_map<std::string, Value> model;
  const int operations = InLab() ? 2000 : 20000;
  for (int i = 0; i < operations; ++i) {
    const std::string key = absl::StrCat("key", random() % 500);
    const auto there = model.find(key);
    WriteOptions options;
    switch (random() % 8) {
      case 0:
        options.if_absent = true;
        break;
      case 1:
        options.if_version = there == model.end() ? 1 : there->second.version + random() % 2;
        break;
      default:
        break;
    }
    switch (random() % 4) {
      case 0: {
        const size_t bytes = random() % 50 == 0 ? random() % 300000 : random() % 600;
        const std::string text = Pattern(bytes, random());
        const absl::StatusOr<uint64_t> version = client_->Put(key, text, options);
        absl::StatusCode expected = absl::StatusCode::kOk;
        if (options.if_absent && there != model.end()) expected = absl::StatusCode::kAlreadyExists;
        if (options.if_version != 0) {
          if (there == model.end()) {
            expected = absl::StatusCode::kNotFound;
          } else if (options.if_version != there->second.version) {
            expected = absl::StatusCode::kFailedPrecondition;
          }
        }
        ASSERT_EQ(version.status().code(), expected) << version.status();
        if (version.ok()) model[key] = {text, *version};
        break;
      }
      case 1: {
        options.if_absent = false;
        const absl::StatusOr<uint64_t> version = client_->Delete(key, options);
        absl::StatusCode expected = absl::StatusCode::kOk;
        if (there == model.end()) {
          expected = absl::StatusCode::kNotFound;
        } else if (options.if_version != 0 && options.if_version != there->second.version) {
          expected = absl::StatusCode::kFailedPrecondition;
        }
        ASSERT_EQ(version.status().code(), expected) << version.status();
        if (version.ok()) model.erase(key);
        break;
      }
      default: {
        const absl::StatusOr<Value> value = client_->Get(key);
        if (there == model.end()) {
          ASSERT_TRUE(absl::IsNotFound(value.status())) << value.status();
        } else {
          ASSERT_TRUE(value.ok()) << value.status();
          ASSERT_TRUE(value->bytes == there->second.bytes);
          ASSERT_EQ(value->version, there->second.version);
        }
      }
    }
  }
  EXPECT_EQ(Stats()["requests_get"], "0");
  EXPECT_EQ(Stats()["keys"], absl::StrCat(model.size()));
}

TEST_F(EndToEndTest, AnotherClientSeesWhatWasWritten) {
  ASSERT_TRUE(client_->Put("planet", "saturn").ok());
  std::unique_ptr<Client> other = Connect();
  EXPECT_EQ(other->Get("planet")->bytes, "saturn");
  ASSERT_TRUE(other->Put("planet", "neptune").ok());
  EXPECT_EQ(client_->Get("planet")->bytes, "neptune");
}

TEST_F(EndToEndTest, ManyOperationsInFlightAreAllAnswered) {
  for (const WaitMode wait : {WaitMode::kSpin, WaitMode::kAdaptive, WaitMode::kEvent}) {
    SCOPED_TRACE(static_cast<int>(wait));
    Options options;
    options.wait = wait;
    options.deadline = absl::Seconds(20);
    std::unique_ptr<Client> client = Connect(options);
    constexpr int kKeys = 2000;
    int started = 0, stored = 0;
    while (stored < kKeys) {
      while (started < kKeys && client->in_flight() < 200) {
        const std::string text = Pattern(started % 97 == 0 ? 50000 : started % 300, started);
        ASSERT_TRUE(client
                        ->StartPut(absl::StrCat("key", started), text, {},
                                   [&](absl::StatusOr<uint64_t> version) {
                                     EXPECT_TRUE(version.ok()) << version.status();
                                     ++stored;
                                   })
                        .ok());
        ++started;
      }
      client->Wait(absl::Seconds(1));
    }
    int asked = 0, found = 0;
    while (found < kKeys) {
      while (asked < kKeys && client->in_flight() < 200) {
        const int i = asked++;
        const auto check = [&found, i](absl::StatusOr<Value> value) {
          ASSERT_TRUE(value.ok()) << value.status();
          EXPECT_TRUE(value->bytes == Pattern(i % 97 == 0 ? 50000 : i % 300, i));
          ++found;
        };
        ASSERT_TRUE(client->StartGet(absl::StrCat("key", i), check).ok());
      }
      client->Wait(absl::Seconds(1));
    }
    EXPECT_EQ(client->in_flight(), 0);
    EXPECT_EQ(client->counters().rpc_gets, 0u);
  }
}

// --- Faults

// GETs may be answered without a round of Poll. Operations beside them must still progress.
TEST_F(EndToEndTest, PutCompletesWhileTheCallerOnlyWaitsForGets) {
  ASSERT_TRUE(client_->Put("planet", "saturn").ok());
  bool done = false;
  const auto note = [&](const absl::StatusOr<uint64_t>& version) {
    EXPECT_TRUE(version.ok()) << version.status();
    done = true;
  };
  ASSERT_TRUE(client_->StartPut("star", "vega", {}, note).ok());
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (!done && absl::Now() < end) ASSERT_EQ(client_->Get("planet")->bytes, "saturn");
  EXPECT_TRUE(done);
}

// Each PUT begins when the previous one has ended. So a call that takes rounds of Poll makes
// progress with many, while the Poll at its end completes only one PUT.
TEST_F(EndToEndTest, ALongMultiGetLetsOtherOperationsGoOn) {
  ASSERT_TRUE(client_->Put("planet", "saturn").ok());
  int puts = 0;
  std::function<void()> put_next = [&] {
    ASSERT_TRUE(client_
                    ->StartPut("star", "vega", {},
                               [&](const absl::StatusOr<uint64_t>& version) {
                                 EXPECT_TRUE(version.ok()) << version.status();
                                 if (++puts > 0) put_next();
                               })
                    .ok());
  };
  put_next();
  const std::vector<absl::string_view> keys(20000, "planet");
  int most = 0;
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (most < 3 && absl::Now() < end) {
    const int before = puts;
    for (const absl::StatusOr<Value>& answer : client_->MultiGet(keys, absl::Seconds(20)))
      ASSERT_EQ(answer->bytes, "saturn");
    most = std::max(most, puts - before);
  }
  EXPECT_GE(most, 3);
  puts = -1;  // the last
  while (puts != 0) client_->Wait(absl::Seconds(1));
}

TEST_F(EndToEndTest, AStoppedServerStillServesGetsAndWritesTimeOut) {
  ASSERT_TRUE(client_->Put("planet", "saturn").ok());
  ASSERT_TRUE(client_->Put("large", Pattern(500000, 1)).ok());
  kill(server_->pid(), SIGSTOP);
  for (int i = 0; i < 1000; ++i) {
    const absl::StatusOr<Value> value = client_->Get("planet");
    ASSERT_TRUE(value.ok()) << value.status();
    ASSERT_EQ(value->bytes, "saturn");
  }
  EXPECT_TRUE(client_->Get("large")->bytes == Pattern(500000, 1));
  EXPECT_TRUE(absl::IsNotFound(client_->Get("absent").status()));
  WriteOptions options;
  options.deadline = absl::Milliseconds(200);
  const RunningTime time;
  const absl::Status late = client_->Put("planet", "neptune", options).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("may still be applied, once"));
  EXPECT_LT(time.Passed(), absl::Milliseconds(700));
  EXPECT_EQ(client_->Get("planet")->bytes, "saturn");
  kill(server_->pid(), SIGCONT);
  options.deadline = absl::Seconds(10);
  ASSERT_TRUE(client_->Put("planet", "uranus", options).ok());
  EXPECT_EQ(client_->Get("planet")->bytes, "uranus");
  EXPECT_EQ(client_->counters().connects, 1u);
}

TEST_F(EndToEndTest, AServerKilledAndRestartedUnderAReaderIsOnlyADelay) {
  const absl::Duration deadline = absl::Seconds(20);
  std::unique_ptr<Client> writer = Connect();
  WriteOptions patient;
  patient.deadline = deadline;
  for (int life = 0; life < 4; ++life) {
    SCOPED_TRACE(absl::StrCat("life ", life));
    const std::string text = absl::StrCat("value of life ", life, std::string(600, 'x'));
    // The writer may notice only now that its connection is gone: a write sent then is unknown.
    absl::Status put = writer->Put("planet", text, patient).status();
    if (put.code() == absl::StatusCode::kUnknown)
      put = writer->Put("planet", text, patient).status();
    ASSERT_TRUE(put.ok()) << put;
    for (int i = 0; i < 50; ++i) {
      const absl::StatusOr<Value> value = client_->Get("planet", deadline);
      ASSERT_TRUE(value.ok()) << value.status();
      ASSERT_EQ(value->bytes, text);
    }
    // GETs in flight while the server is killed and restarted return the value of its incarnation,
    // or "not found" in the next.
    constexpr int kGets = 50;
    int answered = 0;
    for (int i = 0; i < kGets; ++i) {
      const auto check = [&](absl::StatusOr<Value> value) {
        ++answered;
        if (value.ok()) {
          EXPECT_EQ(value->bytes, text);
        } else {
          EXPECT_TRUE(absl::IsNotFound(value.status())) << value.status();
        }
      };
      ASSERT_TRUE(client_->StartGet("planet", check, deadline).ok());
      if (i == kGets / 2) RestartServer();
    }
    while (client_->in_flight() > 0) client_->Wait(absl::Seconds(1));
    EXPECT_EQ(answered, kGets);
    EXPECT_TRUE(absl::IsNotFound(client_->Get("planet", deadline).status()));
  }
  EXPECT_GE(client_->counters().connects, 5u);
}

// Over shm the region of a killed server stays readable for its clients. No client reads anything
// between its last operation and the first after the server's end, as clients do that make
// occasional requests.
TEST_F(EndToEndTest, NothingIsReadFromAServerThatHasEnded) {
  ASSERT_TRUE(client_->Put("planet", "saturn").ok());
  ASSERT_TRUE(client_->Put("rings", Pattern(100000, 1)).ok());
  WriteOptions expiring;
  expiring.ttl = absl::Hours(1);
  ASSERT_TRUE(client_->Put("comet", "halley", expiring).ok());
  const absl::Duration deadline = absl::Milliseconds(100);
  ScanOptions scan;
  scan.deadline = deadline;
  using Read = std::function<absl::Status(Client&)>;
  const std::vector<std::pair<const char*, Read>> reads = {
      {"Get", [&](Client& c) { return c.Get("planet", deadline).status(); }},
      {"Get of a long value", [&](Client& c) { return c.Get("rings", deadline).status(); }},
      {"Get of a key with a time to live",
       [&](Client& c) { return c.Get("comet", deadline).status(); }},
      {"Get of no key", [&](Client& c) { return c.Get("absent", deadline).status(); }},
      {"MultiGet",
       [&](Client& c) {
         return c.MultiGet({"planet", "absent"}, deadline)[0].status();
       }},
      {"MultiGet of no key",
       [&](Client& c) {
         return c.MultiGet({"planet", "absent"}, deadline)[1].status();
       }},
      {"Exists", [&](Client& c) { return c.Exists("planet", deadline).status(); }},
      {"Exists of no key", [&](Client& c) { return c.Exists("absent", deadline).status(); }},
      {"Ttl", [&](Client& c) { return c.Ttl("comet", deadline).status(); }},
      {"Scan", [&](Client& c) { return c.Scan("", scan).status(); }},
      {"Count", [&](Client& c) { return c.Count(deadline).status(); }},
      {"MeasureRead", [&](Client& c) { return c.MeasureRead(64, deadline).status(); }},
  };
  std::vector<std::unique_ptr<Client>> clients;
  while (clients.size() < reads.size()) {
    clients.push_back(Connect());
    ASSERT_EQ(clients.back()->Get("planet")->bytes, "saturn");
  }
  server_.reset();
  for (size_t i = 0; i < reads.size(); ++i) {
    const absl::Status status = reads[i].second(*clients[i]);
    // Over verbs READs to a process that is gone are repeated for longer than this.
    EXPECT_TRUE(absl::IsUnavailable(status) || (InLab() && absl::IsDeadlineExceeded(status)))
        << reads[i].first << ": " << status;
  }
  // A client that was idle since then uses the next server.
  StartServer(uri_);
  EXPECT_TRUE(absl::IsNotFound(client_->Get("planet", absl::Seconds(20)).status()));
  EXPECT_EQ(client_->counters().connects, 2u);
}

// A lock's holder deletes it by its version. It must not delete a lock that another client acquired
// from the restarted server.
TEST_F(EndToEndTest, AConditionLearnedOfTheServerBeforeIsNotMet) {
  for (size_t bytes : {8, 600}) {  // inline, and not
    const std::string key = absl::StrCat("lock ", bytes);
    WriteOptions if_absent;
    if_absent.if_absent = true;
    if_absent.deadline = absl::Seconds(20);
    const absl::StatusOr<uint64_t> of_first =
        Connect()->Put(key, std::string(bytes, 'a'), if_absent);
    ASSERT_TRUE(of_first.ok()) << of_first.status();
    RestartServer();
    // As many writes as before.
    const absl::StatusOr<uint64_t> of_second =
        Connect()->Put(key, std::string(bytes, 'b'), if_absent);
    ASSERT_TRUE(of_second.ok()) << of_second.status();
    WriteOptions if_mine;
    if_mine.if_version = *of_first;
    if_mine.deadline = absl::Seconds(20);
    absl::Status unlock = client_->Delete(key, if_mine).status();
    // The client may notice only now that its connection is gone.
    if (unlock.code() == absl::StatusCode::kUnknown)
      unlock = client_->Delete(key, if_mine).status();
    EXPECT_EQ(ReasonOf(unlock), Reason::kWrongVersion) << unlock;
    const absl::StatusOr<Value> lock = client_->Get(key, absl::Seconds(20));
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_EQ(lock->bytes, std::string(bytes, 'b'));
    EXPECT_EQ(lock->version, *of_second);
  }
}

TEST_F(EndToEndTest, WithoutAServerOperationsEndAtTheirDeadlines) {
  ASSERT_TRUE(client_->Put("planet", "saturn").ok());
  server_.reset();
  EXPECT_FALSE(client_->Get("planet", absl::Milliseconds(500)).ok());
  const RunningTime time;
  const absl::Status get = client_->Get("planet", absl::Milliseconds(500)).status();
  EXPECT_TRUE(absl::IsUnavailable(get)) << get;
  EXPECT_THAT(std::string(get.message()), HasSubstr(uri_));
  WriteOptions options;
  options.deadline = absl::Milliseconds(500);
  const absl::Status put = client_->Put("planet", "mars", options).status();
  EXPECT_TRUE(absl::IsUnavailable(put)) << put;
  EXPECT_THAT(std::string(put.message()), HasSubstr("not applied"));
  EXPECT_LT(time.Passed(), absl::Seconds(2));
}

}  // namespace
}  // namespace osprey
