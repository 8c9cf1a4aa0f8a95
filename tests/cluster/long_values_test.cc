// Values above 1 MiB in a cluster, whose servers are killed, stopped, ended and restarted meanwhile. Each copy
// of the data becomes the primary's, and has them whole.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/reasons.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster_processes.h"
#include "tests/support/split_mix64.h"

namespace osprey {
namespace {

constexpr uint64_t kMib = 1 << 20;

// A value that says which one it is, and of which each word depends on that.
std::string ValueOf(uint64_t number) {
  SplitMix64 random(number);
  const uint64_t bytes = kMib + 1 + random.Below(3 * kMib);
  std::string value(bytes, '\0');
  std::memcpy(value.data(), &number, sizeof(number));
  for (size_t at = sizeof(number); at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    const uint64_t word = random.Next();
    std::memcpy(value.data() + at, &word, sizeof(word));
  }
  return value;
}

uint64_t NumberOf(absl::string_view value) {
  uint64_t number = 0;
  if (value.size() >= sizeof(number)) std::memcpy(&number, value.data(), sizeof(number));
  return number;
}

// Puts long values, one key after the other, and GETs them.
class LongLoad {
 public:
  static constexpr size_t kKeys = 3;

  explicit LongLoad(const std::string& uri)
      : writer_([this, uri] { Write(uri); }), reader_([this, uri] { Read(uri); }) {}
  ~LongLoad() { End(); }
  static std::string KeyOf(size_t key) { return absl::StrCat("long", key); }

  void End() {
    ends_ = true;
    for (std::thread* const thread : {&writer_, &reader_})
      if (thread->joinable()) thread->join();
  }
  // Until so many more are put.
  bool AwaitPuts(uint64_t more) {
    const uint64_t until = puts_ + more;
    for (const absl::Time end = absl::Now() + 2 * kPatience; puts_ < until;
         absl::SleepFor(absl::Milliseconds(2)))
      if (absl::Now() > end || failed_) return false;
    return true;
  }
  uint64_t puts() const { return puts_; }
  uint64_t gets() const { return gets_; }
  // Of the key's value, at least.
  uint64_t acknowledged(size_t key) const { return acknowledged_[key]; }
  std::string error() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return error_;
  }

 private:
  void Fail(const std::string& error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_.empty()) error_ = error;
    failed_ = true;
  }

  void Write(const std::string& uri) {
    const std::unique_ptr<Client> client = *Client::Connect(uri, PatientOptions());
    for (uint64_t number = 1; !ends_ && !failed_; ++number) {
      const size_t key = number % kKeys;
      const absl::StatusOr<uint64_t> put = client->Put(KeyOf(key), ValueOf(number));
      if (!put.ok()) return Fail(absl::StrCat("PUT ", number, ": ", put.status().ToString()));
      acknowledged_[key] = number;
      ++puts_;
      // Those of one value go while another is on its way.
      const absl::StatusOr<uint64_t> small = client->Put("small", absl::StrCat(number));
      if (!small.ok()) return Fail(absl::StrCat("PUT: ", small.status().ToString()));
      // What was replaced stays for a second, for clients that READ it.
      absl::SleepFor(absl::Milliseconds(40));
    }
  }

  void Read(const std::string& uri) {
    const std::unique_ptr<Client> client = *Client::Connect(uri, PatientOptions());
    for (uint64_t i = 0; !ends_ && !failed_; ++i) {
      const size_t key = i % kKeys;
      const uint64_t least = acknowledged_[key];
      const absl::StatusOr<Value> value = client->Get(KeyOf(key));
      if (absl::IsNotFound(value.status()) && least == 0) continue;
      if (!value.ok()) return Fail(absl::StrCat("GET: ", value.status().ToString()));
      const uint64_t number = NumberOf(value->bytes);
      if (number < least || value->bytes != ValueOf(number))
        return Fail(absl::StrCat("GET of a value that was ", least, " at least has ", number));
      ++gets_;
    }
  }

  std::atomic<bool> ends_{false};
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> puts_{0}, gets_{0};
  std::array<std::atomic<uint64_t>, kKeys> acknowledged_ = {};
  std::mutex mutex_;
  std::string error_;
  std::thread writer_;
  std::thread reader_;
};

class LongValuesTest : public ::testing::Test {
 protected:
  void AwaitAll() {
    ASSERT_TRUE(cluster_.AwaitInSync(cluster_.servers(), 2 * kPatience)) << cluster_.WhyNot();
    for (const std::string& crash : cluster_.Crashed()) FAIL() << crash;
  }
  size_t Primary() {
    const std::optional<size_t> primary = cluster_.Primary();
    EXPECT_TRUE(primary.has_value()) << cluster_.WhyNot();
    return primary.value_or(0);
  }
  // At any moment of a value's way.
  void Pause() { absl::SleepFor(absl::Microseconds(random_.Below(100'000))); }

  const uint64_t seed_ = std::random_device()();
  SplitMix64 random_{seed_};
  ClusterProcesses cluster_{{.memory = "512MiB", .flags = {"--pollers=2"}}};
};

TEST_F(LongValuesTest, AreWholeAndCurrentWhateverServersDo) {
  SCOPED_TRACE(absl::StrCat("seed ", seed_));
  LongLoad load(cluster_.uri());
  ASSERT_TRUE(load.AwaitPuts(10)) << load.error();
  for (int fault = 0; fault < 4; ++fault) {
    SCOPED_TRACE(absl::StrCat("fault ", fault));
    Pause();
    const size_t primary = Primary();
    const size_t backup = (primary + 1) % cluster_.servers();
    switch (fault) {
      case 0:
        cluster_.Kill(primary);
        cluster_.Start(primary);
        break;
      case 1:
        EXPECT_EQ(cluster_.Terminate(primary), 0) << cluster_.Log(primary);
        cluster_.Start(primary);
        break;
      case 2:
        cluster_.Kill(backup);
        cluster_.Start(backup);
        break;
      case 3:
        cluster_.Stop(primary);
        EXPECT_TRUE(cluster_.AwaitOtherPrimary(primary, kPatience).has_value());
        cluster_.Continue(primary);
        break;
    }
    ASSERT_NO_FATAL_FAILURE(AwaitAll());
    ASSERT_TRUE(load.AwaitPuts(5)) << load.error();
  }
  load.End();
  ASSERT_EQ(load.error(), "");
  EXPECT_GE(load.gets(), 20u);

  // Every copy has the same.
  const std::unique_ptr<Client> client = *Client::Connect(cluster_.uri(), PatientOptions());
  for (size_t turn = 0; turn < cluster_.servers(); ++turn) {
    for (size_t key = 0; key < LongLoad::kKeys; ++key) {
      const absl::StatusOr<Value> value = client->Get(LongLoad::KeyOf(key));
      ASSERT_TRUE(value.ok()) << value.status();
      const uint64_t number = NumberOf(value->bytes);
      EXPECT_GE(number, load.acknowledged(key));
      EXPECT_EQ(value->bytes, ValueOf(number)) << number;
    }
    const size_t primary = Primary();
    cluster_.Kill(primary);
    ASSERT_TRUE(cluster_.AwaitOtherPrimary(primary, kPatience).has_value()) << cluster_.WhyNot();
    cluster_.Start(primary);
    ASSERT_NO_FATAL_FAILURE(AwaitAll());
  }
}

// The shorter ones are whole first, and so their parts go first.
TEST_F(LongValuesTest, OfOneClientAreStoredTogether) {
  const std::unique_ptr<Client> client = *Client::Connect(cluster_.uri(), PatientOptions());
  for (int round = 0; round < 8; ++round) {
    std::vector<std::string> keys, values;
    for (uint64_t i = 0; i < 6; ++i) {
      keys.push_back(absl::StrCat("key", i));
      values.push_back(ValueOf(random_.Next()));
    }
    std::sort(values.begin(), values.end(), [](const std::string& one, const std::string& other) {
      return one.size() > other.size();
    });
    std::vector<KeyValue> items;
    for (size_t i = 0; i < keys.size(); ++i) items.push_back({keys[i], values[i]});
    for (const absl::StatusOr<uint64_t>& put : client->MultiPut(items))
      ASSERT_TRUE(put.ok()) << put.status();
    for (size_t i = 0; i < keys.size(); ++i) {
      const absl::StatusOr<Value> value = client->Get(keys[i]);
      ASSERT_TRUE(value.ok()) << value.status();
      EXPECT_EQ(value->bytes == values[i], true);
    }
  }
}

TEST_F(LongValuesTest, OfManyMibAreStoredAndGrow) {
  const std::unique_ptr<Client> client = *Client::Connect(cluster_.uri(), PatientOptions());
  std::string value(12 * kMib + 3, '\0');
  for (size_t at = 0; at < value.size(); ++at) value[at] = static_cast<char>(at >> 8 ^ at);
  ASSERT_TRUE(client->Put("key", value).ok());
  for (int i = 0; i < 3; ++i) {
    const std::string more = absl::StrCat("more ", i);
    const auto appended = client->Append("key", more);
    ASSERT_TRUE(appended.ok()) << appended.status();
    value += more;
  }
  cluster_.Kill(Primary());
  const absl::StatusOr<Value> read = client->Get("key");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->bytes == value, true);
  // A partition of the shard has 64 MiB.
  const absl::Status longer = client->Put("longer", std::string(65 * kMib, 'x')).status();
  EXPECT_EQ(ReasonOf(longer), Reason::kValueTooLong) << longer;
}

}  // namespace
}  // namespace osprey
