// Every operation, and every error of one, against a real server: the answer, its reason, and no
// effect on other clients. Over shared memory here, over verbs in the lab.

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

class OperationsTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({}); }
  void Start(const std::vector<std::string>& flags) {
    client_ = nullptr;
    server_ = nullptr;
    const std::string listen = NewListenAddress();
    absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(listen, flags);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = Connect();
  }
  std::unique_ptr<Client> Connect() {
    Options options;
    options.deadline = absl::Seconds(10);
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  static WriteOptions IfVersion(uint64_t version) {
    WriteOptions options;
    options.if_version = version;
    return options;
  }
  static WriteOptions IfAbsent() {
    WriteOptions options;
    options.if_absent = true;
    return options;
  }
  // The expected failure, of a write that was not applied.
  template <typename T>
  static void ExpectNotApplied(const absl::StatusOr<T>& result, absl::StatusCode code,
                               Reason reason) {
    EXPECT_EQ(result.status().code(), code) << result.status();
    EXPECT_EQ(ReasonOf(result.status()), reason) << result.status();
    EXPECT_FALSE(MayBeApplied(result.status()));
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("not applied"));
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(OperationsTest, IncrementsAreNumbersAsPeopleWriteThem) {
  absl::StatusOr<Number> number = client_->Increment("n");
  ASSERT_TRUE(number.ok()) << number.status();
  EXPECT_EQ(number->value, 1);
  EXPECT_EQ(client_->Get("n")->bytes, "1");
  EXPECT_EQ(client_->Get("n")->version, number->version);
  EXPECT_EQ(client_->Increment("n", -11)->value, -10);
  EXPECT_EQ(client_->Get("n")->bytes, "-10");
  ASSERT_TRUE(client_->Put("n", "9223372036854775800").ok());
  number = client_->Increment("n", 7);
  EXPECT_EQ(number->value, std::numeric_limits<int64_t>::max());
  ExpectNotApplied(client_->Increment("n"), absl::StatusCode::kOutOfRange, Reason::kOverflow);
  EXPECT_EQ(client_->Get("n")->version, number->version);
  ExpectNotApplied(client_->Increment("n", -1, IfVersion(number->version + 1000)),
                   absl::StatusCode::kFailedPrecondition, Reason::kWrongVersion);
  EXPECT_TRUE(client_->Increment("n", -1, IfVersion(number->version)).ok());
}

TEST_F(OperationsTest, IncrementOfTextSaysSoAndLeavesItAsItIs) {
  for (const char* text : {"", "text", "1.5", " 1", "1 ", "+1", "007", "-0", "-", "0x10",
                           "9223372036854775808", "123456789012345678901234567890"}) {
    SCOPED_TRACE(text);
    const uint64_t version = client_->Put("n", text).value();
    ExpectNotApplied(client_->Increment("n"), absl::StatusCode::kFailedPrecondition,
                     Reason::kNotANumber);
    EXPECT_EQ(client_->Get("n")->bytes, text);
    EXPECT_EQ(client_->Get("n")->version, version);
  }
}

TEST_F(OperationsTest, AppendsGrowAValueFromNothingThroughEverySize) {
  std::string expected;
  uint64_t last = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string piece(static_cast<size_t>(1) << (i % 12), static_cast<char>('a' + i % 26));
    const absl::StatusOr<uint64_t> version = client_->Append("log", piece);
    ASSERT_TRUE(version.ok()) << version.status();
    EXPECT_GT(*version, last);
    last = *version;
    expected += piece;
    ASSERT_EQ(client_->Get("log")->bytes, expected);
  }
  EXPECT_EQ(client_->Get("log")->bytes, expected);
  ExpectNotApplied(client_->Append("log", "x", IfVersion(1)), absl::StatusCode::kFailedPrecondition,
                   Reason::kWrongVersion);
  ExpectNotApplied(client_->Append("absent", "x", IfVersion(1)), absl::StatusCode::kNotFound,
                   Reason::kAbsent);
  EXPECT_EQ(client_->Get("log")->bytes, expected);
}

TEST_F(OperationsTest, FlushDeletesAllThatWasThereAndSaysHowMany) {
  const int keys = InLab() ? 2000 : 20000;
  std::vector<std::string> names;
  std::vector<KeyValue> items;
  for (int i = 0; i < keys; ++i) names.push_back(absl::StrCat("key", i));
  const std::string item(100, 'i'), small = "in the line";
  for (int i = 0; i < keys; ++i) items.push_back({names[i], i % 2 == 0 ? small : item});
  for (const auto& put : client_->MultiPut(items)) ASSERT_TRUE(put.ok()) << put.status();
  const std::unique_ptr<Client> other = Connect();
  ASSERT_EQ(other->Get("key1")->bytes, item);  // and caches its slot
  const absl::StatusOr<uint64_t> deleted = client_->Flush();
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(*deleted, static_cast<uint64_t>(keys));
  for (int i = 0; i < keys; i += 37) EXPECT_FALSE(client_->Exists(names[i]).value()) << i;
  EXPECT_TRUE(absl::IsNotFound(other->Get("key1").status()));
  EXPECT_EQ(*client_->Flush(), 0u);
  EXPECT_TRUE(client_->Put("key1", "again").ok());
  EXPECT_EQ(other->Get("key1")->bytes, "again");
}

TEST_F(OperationsTest, VersionsOfAKeyNeverRepeatWhateverWritesIt) {
  uint64_t last = 0;
  const auto newer = [&](const absl::StatusOr<uint64_t>& version) {
    ASSERT_TRUE(version.ok()) << version.status();
    EXPECT_GT(*version, last);
    last = *version;
  };
  for (int i = 0; i < 20; ++i) {
    newer(client_->Put("k", "1", IfAbsent()));
    const absl::StatusOr<Number> number = client_->Increment("k");
    newer(number.ok() ? absl::StatusOr<uint64_t>(number->version) : number.status());
    newer(client_->Append("k", "0"));
    newer(client_->Put("k", std::string(500, 'k'), IfVersion(last)));
    ExpectNotApplied(client_->Put("k", "", IfAbsent()), absl::StatusCode::kAlreadyExists,
                     Reason::kPresent);
    newer(client_->Delete("k", IfVersion(last)));
    ExpectNotApplied(client_->Delete("k"), absl::StatusCode::kNotFound, Reason::kAbsent);
    ExpectNotApplied(client_->Delete("k", IfVersion(last)), absl::StatusCode::kNotFound,
                     Reason::kAbsent);
  }
}

TEST_F(OperationsTest, BadArgumentsAreRefusedWithoutAffectingOthers) {
  Start({"--value-max=1MiB"});
  ASSERT_TRUE(client_->Put("here", "1").ok());
  const std::unique_ptr<Client> other = Connect();
  const std::string long_key(4097, 'k'), long_value((1 << 20) + 1, 'v');
  for (int i = 0; i < 3; ++i) {
    const absl::StatusCode invalid = absl::StatusCode::kInvalidArgument;
    EXPECT_EQ(ReasonOf(client_->Get("").status()), Reason::kEmptyKey);
    EXPECT_EQ(ReasonOf(client_->Exists(long_key).status()), Reason::kKeyTooLong);
    ExpectNotApplied(client_->Put("", "v"), invalid, Reason::kEmptyKey);
    ExpectNotApplied(client_->Put(long_key, "v"), invalid, Reason::kKeyTooLong);
    ExpectNotApplied(client_->Put("k", long_value), invalid, Reason::kValueTooLong);
    ExpectNotApplied(client_->Append("k", long_value), invalid, Reason::kAppendTooLong);
    ExpectNotApplied(client_->Put("here", "2", IfVersion(1 << 30)),
                     absl::StatusCode::kFailedPrecondition, Reason::kWrongVersion);
    WriteOptions late;
    late.deadline = absl::Hours(1);
    ExpectNotApplied(client_->Increment("here", 1, late), invalid, Reason::kBadDeadline);
    EXPECT_EQ(other->Get("here")->bytes, "1");
  }
  ASSERT_TRUE(client_->Put("long", std::string(1 << 20, 'v')).ok());
  ExpectNotApplied(client_->Append("long", "v"), absl::StatusCode::kInvalidArgument,
                   Reason::kValueTooLong);
  EXPECT_EQ(client_->Get("long")->bytes.size(), size_t{1} << 20);
  EXPECT_EQ(client_->counters().connects, 1u);
  EXPECT_EQ(other->counters().connects, 1u);
}

TEST_F(OperationsTest, AFullServerSaysSoAndKeepsWhatItHas) {
  const std::string value(100000, 'v');
  std::vector<uint64_t> versions;
  absl::Status full;
  for (int i = 0; i < 2000 && full.ok(); ++i) {
    const absl::StatusOr<uint64_t> put = client_->Put(absl::StrCat("key", i), value);
    full = put.status();
    if (put.ok()) versions.push_back(*put);
  }
  ExpectNotApplied(absl::StatusOr<uint64_t>(full), absl::StatusCode::kResourceExhausted,
                   Reason::kServerFull);
  const std::unique_ptr<Client> other = Connect();
  for (size_t i = 0; i < versions.size(); i += 17) {
    const absl::StatusOr<Value> got = other->Get(absl::StrCat("key", i));
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(got->version, versions[i]);
    ASSERT_EQ(got->bytes, value);
  }
  ASSERT_TRUE(client_->Delete("key0").ok());
  EXPECT_TRUE(client_->Increment("key0").ok());
  EXPECT_EQ(*client_->Flush(), versions.size());
  EXPECT_TRUE(other->Put("key0", value).ok());
}

}  // namespace
}  // namespace osprey
