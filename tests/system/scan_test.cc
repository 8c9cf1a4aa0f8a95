// Scans of a kvserver: over shared memory, and in the lab over verbs.

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

class ScanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Start(NewListenAddress());
    Options options;
    options.deadline = absl::Seconds(30);
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  void Start(const std::string& listen) {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(listen, {"--memory=128MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void PutMany(int from, int to) {
    std::vector<std::string> keys, values;
    for (int i = from; i < to; ++i) {
      keys.push_back(absl::StrCat(i % 2 == 0 ? "moon" : "planet", i));
      values.push_back(std::string(i % 200, static_cast<char>('a' + i % 26)));
      values_[keys.back()] = values.back();
    }
    std::vector<KeyValue> items;
    for (size_t i = 0; i < keys.size(); ++i) items.push_back({keys[i], values[i]});
    for (const absl::StatusOr<uint64_t>& version : client_->MultiPut(items))
      ASSERT_TRUE(version.ok()) << version.status();
  }
  // Every page; calls `between` after each.
  template <typename Between>
  std::map<std::string, ScanItem> All(const ScanOptions& options, Between between) {
    std::map<std::string, ScanItem> found;
    std::string cursor;
    do {
      absl::StatusOr<ScanPage> page = client_->Scan(cursor, options);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok()) break;
      for (ScanItem& item : page->items) found[item.key] = item;
      cursor = page->cursor;
      between();
    } while (!cursor.empty());
    return found;
  }
  std::string Stat(absl::string_view name) {
    return StatIn(client_->ServerStats().value_or(""), name);
  }

  const int keys_ = InLab() ? 3000 : 30000;
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
  std::map<std::string, std::string> values_;
};

TEST_F(ScanTest, EveryKeyIsFoundWithItsValueAndTheServerIsNotAsked) {
  PutMany(0, keys_);
  for (const size_t bytes : {70000, 300000, 3000000}) {
    values_[absl::StrCat("long", bytes)] = std::string(bytes, 'l');
    ASSERT_TRUE(client_->Put(absl::StrCat("long", bytes), std::string(bytes, 'l')).ok());
  }
  ScanOptions options;
  options.values = true;
  const std::map<std::string, ScanItem> found = All(options, [] {});
  EXPECT_EQ(found.size(), values_.size());
  for (const auto& [key, value] : values_) {
    const auto item = found.find(key);
    ASSERT_NE(item, found.end()) << key;
    EXPECT_TRUE(item->second.value == value) << key;
    EXPECT_EQ(item->second.value_length, value.size());
    EXPECT_NE(item->second.version, 0u);
  }
  EXPECT_EQ(client_->Count().value(), values_.size());
  EXPECT_EQ(Stat("requests_get"), "0");
}

TEST_F(ScanTest, KeysThatAreThereThroughoutAreFoundThoughTheTableGrowsTenfold) {
  PutMany(0, keys_ / 10);
  const std::map<std::string, std::string> permanent = values_;
  ScanOptions options;
  options.limit = 10;
  int written = keys_ / 10;
  const std::map<std::string, ScanItem> found = All(options, [&] {
    const int end = std::min(keys_, written + keys_ / 20);
    PutMany(written, end);
    written = end;
  });
  EXPECT_EQ(written, keys_);
  for (const auto& [key, value] : permanent) EXPECT_EQ(found.count(key), 1u) << key;
  EXPECT_EQ(client_->Count().value(), static_cast<uint64_t>(keys_));
}

TEST_F(ScanTest, AskedForAPrefixOrFewItFindsThose) {
  PutMany(0, 2000);
  ScanOptions options;
  options.prefix = "moon1";
  options.limit = 7;
  const std::map<std::string, ScanItem> found = All(options, [] {});
  EXPECT_EQ(found.size(), 555u);
  for (const auto& [key, item] : found) {
    EXPECT_TRUE(absl::StartsWith(key, "moon1"));
    EXPECT_EQ(item.value, "");
    EXPECT_EQ(item.value_length, values_[key].size());
  }
  options.prefix = "comet";
  EXPECT_TRUE(All(options, [] {}).empty());
}

TEST_F(ScanTest, LongValuesAreLeftOutWhereThatIsAskedAndItemsSayWhatTheyAre) {
  WriteOptions expiring;
  expiring.ttl = absl::Hours(1);
  ASSERT_TRUE(client_->Put("small", "s").ok());
  ASSERT_TRUE(client_->Put("expiring", "e", expiring).ok());
  ASSERT_TRUE(client_->Put("middle", std::string(100'000, 'm'), expiring).ok());
  ASSERT_TRUE(client_->Put("long", std::string(100'001, 'l')).ok());
  ScanOptions options;
  options.values = true;
  options.value_bytes_max = 100'000;
  std::map<std::string, ScanItem> found = All(options, [] {});
  EXPECT_TRUE(found["small"].has_value && found["small"].is_inline);
  EXPECT_EQ(found["small"].ttl, absl::InfiniteDuration());
  EXPECT_TRUE(found["expiring"].has_value && !found["expiring"].is_inline);
  EXPECT_TRUE(found["middle"].has_value);
  EXPECT_EQ(found["middle"].value.size(), 100'000u);
  for (const char* key : {"expiring", "middle"}) {
    EXPECT_LE(found[key].ttl, absl::Hours(1));
    EXPECT_GT(found[key].ttl, absl::Minutes(50));
  }
  EXPECT_FALSE(found["long"].has_value);
  EXPECT_EQ(found["long"].value, "");
  EXPECT_EQ(found["long"].value_length, 100'001u);
  options.values = false;
  found = All(options, [] {});
  EXPECT_FALSE(found["small"].has_value);
  EXPECT_GT(found["expiring"].ttl, absl::Minutes(50));
}

TEST_F(ScanTest, ACursorThatIsNoneOrOfAnEarlierServerIsRefused) {
  PutMany(0, 2000);
  ScanOptions options;
  options.limit = 10;
  const absl::StatusOr<ScanPage> page = client_->Scan("", options);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(ReasonOf(client_->Scan("nonsense", options).status()), Reason::kBadCursor);
  const std::string uri = server_->uri();
  server_.reset();
  Start(uri);
  EXPECT_EQ(ReasonOf(client_->Scan(page->cursor, options).status()), Reason::kStaleCursor);
  EXPECT_EQ(client_->Count().value(), 0u);
}

}  // namespace
}  // namespace osprey
