// Many keys in one call: one result per key, for any number, with other operations in flight. Over
// shared memory.

#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/running_time.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

class ClientMultiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(absl::StrCat("shm://", NewTemporaryDirectory(), "/socket"));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override { Connect({}); }
  void Connect(Options options) {
    options.deadline = absl::Seconds(30);  // for sanitizers
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  // key0 … key(n - 1); every third value is too long for the index's lines.
  void Name(int n) {
    names_.clear();
    values_.clear();
    for (int i = 0; i < n; ++i) {
      names_.push_back(absl::StrCat("key", i));
      values_.push_back(i % 3 == 0 ? std::string(300, static_cast<char>('a' + i % 26))
                                   : absl::StrCat("value", i));
    }
    keys_.assign(names_.begin(), names_.end());
    items_.clear();
    for (int i = 0; i < n; ++i) items_.push_back({names_[i], values_[i]});
  }
  void RunToTheEnd() {
    while (client_->in_flight() > 0) client_->Wait(absl::Seconds(1));
  }

  static inline std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
  std::vector<std::string> names_, values_;
  std::vector<absl::string_view> keys_;
  std::vector<KeyValue> items_;
};

TEST_F(ClientMultiTest, ManyMoreKeysThanOperationsMayBeInFlight) {
  Options options;
  options.operations_max = 16;
  Connect(options);
  Name(1000);
  const std::vector<absl::StatusOr<uint64_t>> puts = client_->MultiPut(items_);
  ASSERT_EQ(puts.size(), 1000u);
  for (const absl::StatusOr<uint64_t>& put : puts) ASSERT_TRUE(put.ok()) << put.status();
  const std::vector<absl::StatusOr<Value>> gets = client_->MultiGet(keys_);
  ASSERT_EQ(gets.size(), 1000u);
  for (size_t i = 0; i < gets.size(); ++i) {
    ASSERT_TRUE(gets[i].ok()) << gets[i].status();
    ASSERT_EQ(gets[i]->bytes, values_[i]);
    ASSERT_EQ(gets[i]->version, *puts[i]);
  }
  for (const absl::StatusOr<uint64_t>& deleted : client_->MultiDelete(keys_))
    ASSERT_TRUE(deleted.ok()) << deleted.status();
  for (const absl::StatusOr<Value>& get : client_->MultiGet(keys_))
    ASSERT_TRUE(absl::IsNotFound(get.status())) << get.status();
}

TEST_F(ClientMultiTest, EachKeyIsAnsweredByItself) {
  ASSERT_TRUE(client_->Put("here", "1").ok());
  const std::string long_key(4097, 'k');
  const std::vector<absl::StatusOr<Value>> gets =
      client_->MultiGet({"here", "", "absent", long_key, "here"});
  ASSERT_EQ(gets.size(), 5u);
  EXPECT_EQ(gets[0]->bytes, "1");
  EXPECT_EQ(ReasonOf(gets[1].status()), Reason::kEmptyKey);
  EXPECT_EQ(ReasonOf(gets[2].status()), Reason::kAbsent);
  EXPECT_EQ(ReasonOf(gets[3].status()), Reason::kKeyTooLong);
  EXPECT_EQ(gets[4]->bytes, "1");
  WriteOptions absent;
  absent.if_absent = true;
  const std::vector<absl::StatusOr<uint64_t>> puts =
      client_->MultiPut({{"here", "2"}, {"there", "3"}}, absent);
  EXPECT_EQ(ReasonOf(puts[0].status()), Reason::kPresent);
  EXPECT_TRUE(puts[1].ok());
  ASSERT_TRUE(client_->Delete("there").ok());
}

TEST_F(ClientMultiTest, NoKeysAreNoResults) {
  EXPECT_TRUE(client_->MultiGet({}).empty());
  EXPECT_TRUE(client_->MultiPut({}).empty());
  EXPECT_TRUE(client_->MultiDelete({}).empty());
  int calls = 0;
  ASSERT_TRUE(client_->StartMultiGet({}, [&](auto gets) { calls += gets.empty() ? 1 : 100; }).ok());
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(client_->in_flight(), 1);
  RunToTheEnd();
  EXPECT_EQ(calls, 1);
}

TEST_F(ClientMultiTest, ADeadlineThatCannotBeIsEachKeysAnswer) {
  for (const absl::StatusOr<Value>& get : client_->MultiGet({"a", "b"}, absl::Hours(1)))
    EXPECT_EQ(ReasonOf(get.status()), Reason::kBadDeadline);
}

TEST_F(ClientMultiTest, AsynchronousOnesCopyWhatTheyAreGivenAndRunBesideEachOther) {
  Name(500);
  for (const auto& put : client_->MultiPut(items_)) ASSERT_TRUE(put.ok());
  ASSERT_TRUE(client_->set_operations_max(10).ok());
  int calls = 0;
  {
    std::vector<std::string> gone = names_;
    const std::vector<absl::string_view> keys(gone.begin(), gone.end());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(client_->set_operations_max(10 * (i + 1)).ok());
      ASSERT_TRUE(client_
                      ->StartMultiGet(keys,
                                      [&](std::vector<absl::StatusOr<Value>> gets) {
                                        ++calls;
                                        ASSERT_EQ(gets.size(), 500u);
                                        for (size_t k = 0; k < gets.size(); ++k) {
                                          ASSERT_TRUE(gets[k].ok()) << gets[k].status();
                                          ASSERT_EQ(gets[k]->bytes, values_[k]);
                                        }
                                      })
                      .ok());
    }
    for (std::string& key : gone) key.assign("overwritten");
  }
  EXPECT_EQ(client_->in_flight(), 30);
  const absl::Status full = client_->StartMultiGet({"key1"}, [](auto) {});
  EXPECT_EQ(ReasonOf(full), Reason::kTooManyOperations);
  RunToTheEnd();
  EXPECT_EQ(calls, 3);
}

TEST_F(ClientMultiTest, MultiGetWaitsWhileOthersUseTheOperationLimit) {
  Name(50);
  for (const auto& put : client_->MultiPut(items_)) ASSERT_TRUE(put.ok());
  ASSERT_TRUE(client_->set_operations_max(4).ok());
  int others = 0;
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(client_->StartGet("key1", [&](auto value) { others += value.ok(); }).ok());
  for (const absl::StatusOr<Value>& get : client_->MultiGet(keys_)) EXPECT_TRUE(get.ok());
  EXPECT_EQ(others, 4);
}

TEST_F(ClientMultiTest, PutAboveTheOperationLimitFailsAtItsDeadline) {
  ASSERT_TRUE(client_->set_operations_max(1).ok());
  // A server that is stopped answers nothing.
  ASSERT_EQ(kill(server_->pid(), SIGSTOP), 0);
  WriteOptions long_wait;
  long_wait.deadline = absl::Milliseconds(500);
  absl::Status other;
  ASSERT_TRUE(client_->StartPut("a", "1", long_wait, [&](auto put) { other = put.status(); }).ok());
  WriteOptions short_wait;
  short_wait.deadline = absl::Milliseconds(20);
  const RunningTime time;
  const auto puts = client_->MultiPut({{"b", "1"}, {"c", "1"}}, short_wait);
  EXPECT_LT(time.Passed(), absl::Milliseconds(400));
  for (const auto& put : puts) EXPECT_EQ(ReasonOf(put.status()), Reason::kTooManyOperations);
  ASSERT_EQ(kill(server_->pid(), SIGCONT), 0);
  RunToTheEnd();
  EXPECT_TRUE(other.ok()) << other;
}

TEST_F(ClientMultiTest, ItsCallbackMayStartAnother) {
  int rounds = 0;
  std::function<void()> next = [&] {
    ASSERT_TRUE(client_
                    ->StartMultiPut({{"a", "1"}, {"b", "2"}, {"", ""}}, {},
                                    [&](std::vector<absl::StatusOr<uint64_t>> puts) {
                                      EXPECT_TRUE(puts[0].ok() && puts[1].ok() && !puts[2].ok());
                                      if (++rounds < 100) next();
                                    })
                    .ok());
  };
  next();
  RunToTheEnd();
  EXPECT_EQ(rounds, 100);
  EXPECT_TRUE(client_->MultiDelete({"a", "b"})[1].ok());
}

TEST_F(ClientMultiTest, ClosingAnswersAllOfIt) {
  Name(100);
  ASSERT_TRUE(client_->set_operations_max(5).ok());
  int cancelled = 0;
  ASSERT_TRUE(client_
                  ->StartMultiDelete(keys_, {},
                                     [&](std::vector<absl::StatusOr<uint64_t>> deleted) {
                                       for (const auto& one : deleted)
                                         cancelled += absl::IsCancelled(one.status());
                                     })
                  .ok());
  client_.reset();
  EXPECT_EQ(cancelled, 100);
}

TEST_F(ClientMultiTest, ValuesLongerThanTheBuffersTogetherTakeTurns) {
  Options options;
  options.buffer_bytes_max = 4 << 20;
  Connect(options);
  const std::string value(1 << 20, 'v');
  std::vector<KeyValue> items;
  Name(20);
  for (const std::string& name : names_) items.push_back({name, value});
  for (const auto& put : client_->MultiPut(items)) ASSERT_TRUE(put.ok()) << put.status();
  for (const auto& get : client_->MultiGet(keys_)) ASSERT_EQ(get->bytes, value);
  for (const auto& deleted : client_->MultiDelete(keys_)) ASSERT_TRUE(deleted.ok());
}

TEST_F(ClientMultiTest, TheBoundOnOperationsMayBeChangedWithinItsRange) {
  EXPECT_THAT(std::string(client_->set_operations_max(0).message()), HasSubstr("operations_max"));
  EXPECT_EQ(ReasonOf(client_->set_operations_max(65537)), Reason::kBadOption);
  EXPECT_TRUE(client_->set_operations_max(65536).ok());
}

}  // namespace
}  // namespace osprey
