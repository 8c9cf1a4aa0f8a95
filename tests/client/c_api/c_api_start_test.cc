// The C API as a program uses it: asynchronous operations, and their completion.

#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "client/osprey.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/c_api/c_api_fixture.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

TEST_F(CApiTest, OperationsWithoutACallbackAreTakenInOrderOfTheirEnds) {
  int contexts[3] = {};
  for (int& context : contexts) {
    const std::string key = absl::StrCat("k", &context - contexts);
    ASSERT_EQ(
        osprey_start_put(client(), key.data(), key.size(), "v", 1, nullptr, nullptr, &context),
        OSPREY_OK);
  }
  EXPECT_EQ(osprey_in_flight(client()), 3);
  EXPECT_EQ(osprey_take_ended(client(), nullptr), nullptr);
  int ended = 0;
  while (ended < 3) {
    const int count = osprey_wait(client(), 1'000'000);
    ASSERT_GT(count, 0);
    ended += count;
  }
  std::set<void*> taken;
  void* context = nullptr;
  while (osprey_result* raw = osprey_take_ended(client(), &context)) {
    EXPECT_EQ(osprey_result_code(raw), OSPREY_OK);
    taken.insert(context);
    osprey_result_free(raw);
  }
  EXPECT_EQ(taken.size(), 3);
  EXPECT_EQ(osprey_in_flight(client()), 0);
  // Results that are not taken are freed with the client.
  ASSERT_EQ(osprey_start_get(client(), "k0", 2, nullptr, nullptr, nullptr), OSPREY_OK);
  ASSERT_EQ(osprey_wait(client(), 1'000'000), 1);
}

TEST_F(CApiTest, EveryOperationCanBeStarted) {
  ASSERT_EQ(Put("n", "1"), OSPREY_OK);
  osprey_buffer* buffer = nullptr;
  ASSERT_EQ(osprey_buffer_allocate(client(), 4096, &buffer, nullptr), OSPREY_OK);
  const absl::Cleanup free_buffer = [&] { osprey_buffer_free(buffer); };
  std::memcpy(osprey_buffer_data(buffer), "from", 4);
  const auto end = [&](int code) {
    EXPECT_EQ(code, OSPREY_OK) << osprey_client_message(client());
    if (code != OSPREY_OK) return Result();
    EXPECT_EQ(osprey_wait(client(), 1'000'000), 1);
    return Result(osprey_take_ended(client(), nullptr));
  };
  const osprey_bytes key = {"n", 1};
  const osprey_pair pair = {{"m", 1}, {"7", 1}};
  const auto number = [](const Result& result) { return osprey_result_number(result.get()); };
  osprey_client* c = client();
  EXPECT_EQ(Data(end(osprey_start_get(c, "n", 1, nullptr, nullptr, nullptr)).get()), "1");
  EXPECT_EQ(number(end(osprey_start_exists(c, "n", 1, nullptr, nullptr, nullptr))), 1);
  EXPECT_EQ(number(end(osprey_start_increment(c, "n", 1, 4, nullptr, nullptr, nullptr))), 5);
  EXPECT_NE(osprey_result_version(
                end(osprey_start_append(c, "n", 1, "5", 1, nullptr, nullptr, nullptr)).get()),
            0);
  EXPECT_EQ(Data(Get("n").get()), "55");
  end(osprey_start_expire(c, "n", 1, 60'000'000, nullptr, nullptr, nullptr));
  EXPECT_GT(osprey_result_ttl_us(end(osprey_start_ttl(c, "n", 1, nullptr, nullptr, nullptr)).get()),
            0);
  end(osprey_start_persist(c, "n", 1, nullptr, nullptr, nullptr));
  end(osprey_start_touch(c, "n", 1, nullptr, nullptr, nullptr));
  EXPECT_EQ(osprey_result_ttl_us(Get("n").get()), -1);
  EXPECT_EQ(Data(osprey_result_item(
                end(osprey_start_multi_get(c, &key, 1, nullptr, nullptr, nullptr)).get(), 0)),
            "55");
  EXPECT_EQ(osprey_result_count(
                end(osprey_start_multi_put(c, &pair, 1, nullptr, nullptr, nullptr)).get()),
            1);
  EXPECT_EQ(number(end(osprey_start_count(c, nullptr, nullptr, nullptr))), 2);
  EXPECT_EQ(osprey_result_count(end(osprey_start_scan(c, "", nullptr, nullptr, nullptr)).get()), 2);
  EXPECT_EQ(osprey_result_count(
                end(osprey_start_multi_delete(c, &key, 1, nullptr, nullptr, nullptr)).get()),
            1);
  end(osprey_start_put_from(c, "f", 1, buffer, 0, 4, nullptr, nullptr, nullptr));
  EXPECT_EQ(osprey_result_length(
                end(osprey_start_get_into(c, "f", 1, buffer, 8, nullptr, nullptr, nullptr)).get()),
            4);
  EXPECT_EQ(std::memcmp(static_cast<char*>(osprey_buffer_data(buffer)) + 8, "from", 4), 0);
  end(osprey_start_delete(c, "f", 1, nullptr, nullptr, nullptr));
  EXPECT_EQ(number(end(osprey_start_flush(c, nullptr, nullptr, nullptr))), 1);
}

struct Chain {
  osprey_client* client;
  int left;
  int in_callback = 0;  // the code of a blocking call in the callback
  int closed = 0;       // … of closing there
  std::vector<int> codes = {};
};

void Continue(void* context, osprey_result* result) {
  auto* chain = static_cast<Chain*>(context);
  chain->codes.push_back(osprey_result_code(result));
  osprey_result_free(result);
  chain->in_callback = osprey_get(chain->client, "k", 1, nullptr, nullptr);
  EXPECT_EQ(osprey_poll(chain->client), -OSPREY_ERROR_IN_CALLBACK);
  chain->closed = osprey_close(chain->client);
  if (--chain->left > 0)
    chain->codes.push_back(osprey_start_get(chain->client, "k", 1, nullptr, Continue, chain));
}

TEST_F(CApiTest, CallbacksMayStartOperationsButNotWaitForThemNorClose) {
  Chain chain = {client(), 3};
  ASSERT_EQ(osprey_start_get(client(), "k", 1, nullptr, Continue, &chain), OSPREY_OK);
  for (int i = 0; i < 100 && osprey_in_flight(client()) > 0; ++i) osprey_wait(client(), 1'000'000);
  EXPECT_EQ(chain.left, 0);
  EXPECT_EQ(chain.in_callback, OSPREY_ERROR_IN_CALLBACK);
  EXPECT_EQ(chain.closed, OSPREY_ERROR_IN_CALLBACK);
  EXPECT_EQ(chain.codes, std::vector<int>({OSPREY_ERROR_ABSENT, OSPREY_OK, OSPREY_ERROR_ABSENT,
                                           OSPREY_OK, OSPREY_ERROR_ABSENT}));
}

TEST_F(CApiTest, ClosingEndsWhatIsInFlightAndNothingStartsAnyMore) {
  Chain chain = {client(), 2};
  ASSERT_EQ(osprey_start_get(client(), "k", 1, nullptr, Continue, &chain), OSPREY_OK);
  EXPECT_EQ(osprey_close(client_.release()), OSPREY_OK);
  EXPECT_EQ(chain.codes, std::vector<int>({OSPREY_ERROR_CLOSED, OSPREY_ERROR_CLOSED}));
}

TEST_F(CApiTest, ArgumentsAreCopiedWhenAnOperationStarts) {
  std::string key = "key";
  std::string value(100, 'v');
  ASSERT_EQ(osprey_start_put(client(), key.data(), key.size(), value.data(), value.size(), nullptr,
                             nullptr, nullptr),
            OSPREY_OK);
  key = "???";
  value.assign(100, '?');
  ASSERT_EQ(osprey_wait(client(), 1'000'000), 1);
  EXPECT_EQ(Data(Get("key").get()), std::string(100, 'v'));
}

TEST_F(CApiTest, MoreOperationsThanTheBoundAreRefused) {
  osprey_options* options = osprey_options_new();
  osprey_options_set_operations_max(options, 2);
  const ClientHandle few = Connect(options);
  osprey_options_free(options);
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(osprey_start_get(few.get(), "k", 1, nullptr, nullptr, nullptr), OSPREY_OK);
  EXPECT_EQ(osprey_start_get(few.get(), "k", 1, nullptr, nullptr, nullptr),
            OSPREY_ERROR_TOO_MANY_OPERATIONS);
}

TEST_F(CApiTest, UntakenResultsCountTowardsTheOperationLimit) {
  const std::vector<osprey_bytes> none;
  for (int i = 0; i < 65536; ++i) {
    ASSERT_EQ(osprey_start_multi_get(client(), nullptr, 0, nullptr, nullptr, nullptr), OSPREY_OK);
    osprey_poll(client());
  }
  EXPECT_EQ(osprey_start_get(client(), "k", 1, nullptr, nullptr, nullptr),
            OSPREY_ERROR_TOO_MANY_OPERATIONS);
  EXPECT_THAT(osprey_client_message(client()), HasSubstr("osprey_take_ended"));
  osprey_result_free(osprey_take_ended(client(), nullptr));
  EXPECT_EQ(osprey_start_get(client(), "k", 1, nullptr, nullptr, nullptr), OSPREY_OK);
}

// A program that makes any call at any time, including invalid ones.
class Monkey {
 public:
  explicit Monkey(uint64_t seed) : random_(seed) {}
  uint64_t started() const { return started_; }
  uint64_t ended() const { return ended_; }

  void Step(osprey_client* client, osprey_buffer* buffer) {
    const std::string key(Below(20) == 0 ? Below(5000) : 1 + Below(3),
                          static_cast<char>('a' + Below(4)));
    const std::string value(Below(10) == 0 ? Below(200'000) : Below(100), 'v');
    osprey_write_options write = OSPREY_WRITE_OPTIONS;
    write.if_absent = Below(4) == 0;
    write.if_version = Below(8) == 0 ? Below(100) : 0;
    const osprey_callback done = &Monkey::Ended;
    const auto count = [&](int code) { started_ += code == OSPREY_OK ? 1 : 0; };
    const osprey_bytes keys[] = {Bytes(key), Bytes(value)};
    const osprey_pair pairs[] = {{Bytes(key), Bytes(value)}, {Bytes("k"), Bytes(key)}};
    switch (Below(13)) {
      case 0:
        return count(osprey_start_get(client, key.data(), key.size(), nullptr, done, this));
      case 1:
        return count(osprey_start_put(client, key.data(), key.size(), value.data(), value.size(),
                                      &write, done, this));
      case 2:
        write.if_absent = 0;
        return count(osprey_start_delete(client, key.data(), key.size(), &write, done, this));
      case 3:
        return count(
            osprey_start_increment(client, key.data(), key.size(), 1, nullptr, done, this));
      case 4:
        return count(osprey_start_append(client, key.data(), key.size(), value.data(), value.size(),
                                         nullptr, done, this));
      case 5:
        return count(osprey_start_multi_get(client, keys, Below(3), nullptr, done, this));
      case 6:
        return count(osprey_start_multi_put(client, pairs, Below(3), &write, done, this));
      case 7:
        return count(osprey_start_scan(client, "", nullptr, done, this));
      case 8:
        return count(osprey_start_get_into(client, key.data(), key.size(), buffer, Below(70'000),
                                           nullptr, done, this));
      case 9:
        return count(osprey_start_put_from(client, key.data(), key.size(), buffer, Below(50'000),
                                           Below(50'000), nullptr, done, this));
      case 10:
        osprey_wait(client, static_cast<int64_t>(Below(1000)));
        return;
      case 11:
        osprey_get(client, key.data(), key.size(), nullptr, nullptr);
        return;
      default:
        osprey_poll(client);
        return;
    }
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  static void Ended(void* monkey, osprey_result* result) {
    ++static_cast<Monkey*>(monkey)->ended_;
    osprey_result_free(result);
  }

  std::mt19937_64 random_;
  uint64_t started_ = 0;
  uint64_t ended_ = 0;
};

TEST_F(CApiTest, WhateverIsStartedEndsExactlyOnceAlsoWhenItsClientIsClosed) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  Monkey monkey(seed);
  for (int life = 0; life < 10; ++life) {
    ClientHandle client = Connect(nullptr);
    ASSERT_NE(client, nullptr);
    osprey_buffer* buffer = nullptr;
    ASSERT_EQ(osprey_buffer_allocate(client.get(), 65536, &buffer, nullptr), OSPREY_OK);
    for (int i = 0; i < 500; ++i) monkey.Step(client.get(), buffer);
    client.reset();
    osprey_buffer_free(buffer);
    ASSERT_EQ(monkey.ended(), monkey.started());
  }
  EXPECT_GT(monkey.started(), 1000);
}

}  // namespace
}  // namespace osprey
