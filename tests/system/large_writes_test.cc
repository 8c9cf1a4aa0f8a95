// Long values PUT to a kvserver: over shared memory, and in the lab over verbs. The server READs
// them from the client piece by piece, several in flight, and answers other requests meanwhile.

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

constexpr size_t kLongBytes = (6 << 20) + 12345;

class LargeWritesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(NewListenAddress(), {"--memory=128MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = Connect();
  }

  std::unique_ptr<Client> Connect() {
    Options options;
    options.deadline = absl::Seconds(20);
    options.buffer_bytes_max = uint64_t{128} << 20;
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  uint64_t Stat(const std::string& name) {
    const absl::StatusOr<std::string> text = client_->ServerStats();
    EXPECT_TRUE(text.ok()) << text.status();
    uint64_t value = 0;
    EXPECT_TRUE(absl::SimpleAtoi(StatIn(text.value_or(""), name), &value)) << "no " << name;
    return value;
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
};

std::string PatternOf(size_t bytes, uint64_t seed) {
  std::string text(bytes, '\0');
  std::minstd_rand random(static_cast<std::minstd_rand::result_type>(seed + 1));
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST_F(LargeWritesTest, LongValuesAreFetchedWholeWhileOthersAreAnswered) {
  constexpr int kLongValues = 6;
  std::vector<std::string> values;
  for (int i = 0; i < kLongValues; ++i) values.push_back(PatternOf(kLongBytes + i, i));
  int done = 0;
  for (int i = 0; i < kLongValues; ++i) {
    ASSERT_TRUE(client_
                    ->StartPut(absl::StrCat("long", i), values[i], {},
                               [&](absl::StatusOr<uint64_t> version) {
                                 EXPECT_TRUE(version.ok()) << version.status();
                                 ++done;
                               })
                    .ok());
  }
  const std::unique_ptr<Client> other = Connect();
  int answered = 0;
  for (; done < kLongValues; ++answered) {
    client_->Poll();
    ASSERT_TRUE(other->Put(absl::StrCat("short", answered % 100), "value").ok());
  }
  EXPECT_GT(answered, kLongValues);
  for (int i = 0; i < kLongValues; ++i) {
    const absl::StatusOr<Value> value = client_->Get(absl::StrCat("long", i));
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(value->bytes == values[i]);
  }
  EXPECT_EQ(Stat("rendezvous"), kLongValues);
  EXPECT_GE(Stat("rendezvous_reads"), kLongValues * (kLongBytes / (256 << 10) + 1));
  EXPECT_GE(Stat("rendezvous_bytes"), kLongValues * kLongBytes);
}

TEST_F(LargeWritesTest, AServerThatIsFullRefusesAndKeepsWhatItHas) {
  const std::string value = PatternOf(kLongBytes, 0);
  int kept = 0;
  absl::Status status;
  for (; kept < 40; ++kept) {
    status = client_->Put(absl::StrCat("key", kept), value).status();
    if (!status.ok()) break;
  }
  EXPECT_EQ(ReasonOf(status), Reason::kServerFull) << status;
  EXPECT_GE(kept, 15);
  for (int i = 0; i < kept; ++i) {
    const absl::StatusOr<Value> found = client_->Get(absl::StrCat("key", i));
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(found->bytes == value) << i;
  }
  // Small values still fit; deleted keys free space.
  EXPECT_TRUE(client_->Put("small", "value").ok());
  ASSERT_TRUE(client_->Delete("key0").ok());
  EXPECT_TRUE(client_->Put("another", value).ok());
}

}  // namespace
}  // namespace osprey
