// The C API as a program uses it: blocking calls.

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <set>
#include <string>

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
using ::testing::IsEmpty;

TEST_F(CApiTest, ValuesOfAnyBytesComeBackWithTheVersionOfTheirWrite) {
  const std::string key("k\0\xff", 3);
  const std::string value("\0v\n\xfe", 4);
  osprey_result* written = nullptr;
  ASSERT_EQ(
      osprey_put(client(), key.data(), key.size(), value.data(), value.size(), nullptr, &written),
      OSPREY_OK);
  const Result put(written);
  const Result got = Get(key);
  ASSERT_EQ(osprey_result_code(got.get()), OSPREY_OK);
  EXPECT_EQ(Data(got.get()), value);
  EXPECT_EQ(osprey_result_data(got.get())[value.size()], '\0');
  EXPECT_NE(osprey_result_version(got.get()), 0);
  EXPECT_EQ(osprey_result_version(got.get()), osprey_result_version(put.get()));
  EXPECT_STREQ(osprey_result_message(got.get()), "");

  ASSERT_EQ(Put("empty", ""), OSPREY_OK);
  EXPECT_EQ(Data(Get("empty").get()), "");
}

TEST_F(CApiTest, EveryOperationAnswersWhatItDid) {
  const auto number = [&](int code, osprey_result* result) {
    EXPECT_EQ(code, OSPREY_OK) << osprey_client_message(client());
    const Result owned(result);
    return osprey_result_number(result);
  };
  osprey_result* result = nullptr;
  ASSERT_EQ(Put("n", "40"), OSPREY_OK);
  int code = osprey_increment(client(), "n", 1, 2, nullptr, &result);
  EXPECT_EQ(number(code, result), 42);
  ASSERT_EQ(osprey_append(client(), "n", 1, "0", 1, nullptr, nullptr), OSPREY_OK);
  EXPECT_EQ(Data(Get("n").get()), "420");
  code = osprey_exists(client(), "n", 1, nullptr, &result);
  EXPECT_EQ(number(code, result), 1);
  code = osprey_exists(client(), "m", 1, nullptr, &result);
  EXPECT_EQ(number(code, result), 0);
  ASSERT_EQ(Put("m", "x"), OSPREY_OK);
  code = osprey_count(client(), nullptr, &result);
  EXPECT_EQ(number(code, result), 2);
  ASSERT_EQ(osprey_delete(client(), "m", 1, nullptr, nullptr), OSPREY_OK);
  code = osprey_flush(client(), nullptr, &result);
  EXPECT_EQ(number(code, result), 1);
  code = osprey_ping(client(), nullptr, &result);
  EXPECT_GT(number(code, result), 0);
  code = osprey_server_stats(client(), nullptr, &result);
  ASSERT_EQ(code, OSPREY_OK);
  EXPECT_THAT(Data(Result(result).get()), HasSubstr("requests="));
  EXPECT_THAT(osprey_client_describe(client()), HasSubstr("transport="));
  EXPECT_EQ(osprey_client_counter(client(), OSPREY_COUNTER_CONNECTS), 1);
  EXPECT_GT(osprey_client_counter(client(), OSPREY_COUNTER_GETS), 0);
  EXPECT_EQ(osprey_client_counter(client(), 999), 0);
}

TEST_F(CApiTest, KeysLiveAsLongAsTheyAreGiven) {
  const auto left = [&](const char* key) {
    osprey_result* result = nullptr;
    EXPECT_EQ(osprey_ttl(client(), key, 1, nullptr, &result), OSPREY_OK);
    const Result owned(result);
    return osprey_result_ttl_us(result);
  };
  constexpr int64_t kMinuteUs = 60'000'000;
  osprey_write_options options = OSPREY_WRITE_OPTIONS;
  options.ttl_us = kMinuteUs;
  ASSERT_EQ(Put("k", "v", &options), OSPREY_OK);
  EXPECT_LE(osprey_result_ttl_us(Get("k").get()), kMinuteUs);
  EXPECT_GT(left("k"), kMinuteUs / 2);
  osprey_result* result = nullptr;
  ASSERT_EQ(osprey_persist(client(), "k", 1, nullptr, &result), OSPREY_OK);
  EXPECT_EQ(osprey_result_version(result), osprey_result_version(Get("k").get()));
  osprey_result_free(result);
  EXPECT_EQ(left("k"), -1);
  EXPECT_EQ(osprey_result_ttl_us(Get("k").get()), -1);
  ASSERT_EQ(osprey_touch(client(), "k", 1, nullptr, nullptr), OSPREY_OK);
  EXPECT_EQ(osprey_expire(client(), "k", 1, 0, nullptr, nullptr), OSPREY_ERROR_BAD_TTL);
  EXPECT_EQ(osprey_expire(client(), "k", 1, -1, nullptr, nullptr), OSPREY_ERROR_BAD_TTL);
  EXPECT_EQ(osprey_delete(client(), "k", 1, &options, nullptr), OSPREY_ERROR_BAD_TTL);
  ASSERT_EQ(osprey_expire(client(), "k", 1, 10'000, nullptr, nullptr), OSPREY_OK);
  usleep(20'000);
  EXPECT_EQ(osprey_result_code(Get("k").get()), OSPREY_ERROR_ABSENT);
  EXPECT_EQ(osprey_ttl(client(), "k", 1, nullptr, nullptr), OSPREY_ERROR_ABSENT);
  EXPECT_EQ(osprey_expire(client(), "k", 1, 10'000, nullptr, nullptr), OSPREY_ERROR_ABSENT);
  EXPECT_EQ(osprey_touch(client(), "k", 1, nullptr, nullptr), OSPREY_ERROR_ABSENT);
  EXPECT_EQ(osprey_result_ttl_us(nullptr), -1);
}

TEST_F(CApiTest, EachFailureHasItsNumberAndSaysWhatHelps) {
  const auto message = [&] { return std::string(osprey_client_message(client())); };
  EXPECT_THAT(message(), IsEmpty());
  EXPECT_EQ(Put("", "v"), OSPREY_ERROR_EMPTY_KEY);
  EXPECT_EQ(Put(std::string(4097, 'k'), "v"), OSPREY_ERROR_KEY_TOO_LONG);
  EXPECT_THAT(message(), HasSubstr("4097"));
  EXPECT_EQ(Put("k", std::string((8 << 20) + 1, 'v')), OSPREY_ERROR_VALUE_TOO_LONG);
  EXPECT_THAT(message(), HasSubstr("--value-max"));
  const std::string much(10000, 'v');
  EXPECT_EQ(osprey_append(client(), "k", 1, much.data(), much.size(), nullptr, nullptr),
            OSPREY_ERROR_APPEND_TOO_LONG);
  EXPECT_EQ(osprey_result_code(Get("k").get()), OSPREY_ERROR_ABSENT);
  EXPECT_THAT(message(), HasSubstr("no such key"));
  EXPECT_EQ(osprey_delete(client(), "k", 1, nullptr, nullptr), OSPREY_ERROR_ABSENT);

  osprey_write_options options = OSPREY_WRITE_OPTIONS;
  options.if_absent = 1;
  ASSERT_EQ(Put("k", "v", &options), OSPREY_OK);
  EXPECT_EQ(Put("k", "v", &options), OSPREY_ERROR_PRESENT);
  options.if_version = 7;
  EXPECT_EQ(Put("k", "v", &options), OSPREY_ERROR_BAD_CONDITION);
  options.if_absent = 0;
  EXPECT_EQ(Put("k", "v", &options), OSPREY_ERROR_WRONG_VERSION);
  options = OSPREY_WRITE_OPTIONS;
  options.deadline_us = -1;
  EXPECT_EQ(Put("k", "v", &options), OSPREY_ERROR_BAD_DEADLINE);
  options.deadline_us = INT64_MAX;
  EXPECT_EQ(Put("k", "v", &options), OSPREY_ERROR_BAD_DEADLINE);

  EXPECT_EQ(osprey_increment(client(), "k", 1, 1, nullptr, nullptr), OSPREY_ERROR_NOT_A_NUMBER);
  ASSERT_EQ(Put("k", "9223372036854775807"), OSPREY_OK);
  EXPECT_EQ(osprey_increment(client(), "k", 1, 1, nullptr, nullptr), OSPREY_ERROR_OVERFLOW);
  EXPECT_EQ(osprey_scan(client(), "nonsense", nullptr, nullptr), OSPREY_ERROR_BAD_CURSOR);

  // The server waits for space before it refuses a PUT. On a slow machine this exceeds the default
  // deadline.
  osprey_write_options patient = OSPREY_WRITE_OPTIONS;
  patient.deadline_us = 30'000'000;
  const int full = [&] {
    const std::string big(8 << 20, 'v');
    for (int i = 0; i < 64; ++i) {
      if (const int code = Put(absl::StrCat("big", i), big, &patient); code != OSPREY_OK)
        return code;
    }
    return static_cast<int>(OSPREY_OK);
  }();
  EXPECT_EQ(full, OSPREY_ERROR_SERVER_FULL);
  EXPECT_THAT(message(), HasSubstr("not applied"));
}

TEST_F(CApiTest, ConnectingFailsWithItsNumberAndNoClient) {
  const auto failure = [](const char* uri, const osprey_options* options) {
    osprey_client* client = reinterpret_cast<osprey_client*>(8);
    osprey_result* result = nullptr;
    const int code = osprey_connect(uri, options, &client, &result);
    EXPECT_EQ(client, nullptr);
    EXPECT_EQ(osprey_result_code(result), code);
    EXPECT_STRNE(osprey_result_message(result), "");
    osprey_result_free(result);
    return code;
  };
  EXPECT_EQ(failure("http://server", nullptr), OSPREY_ERROR_BAD_ADDRESS);
  EXPECT_EQ(failure(nullptr, nullptr), OSPREY_ERROR_NULL_ARGUMENT);
  osprey_options* options = osprey_options_new();
  const absl::Cleanup free_options = [&] { osprey_options_free(options); };
  osprey_options_set_connect_timeout_us(options, 50'000);
  EXPECT_EQ(failure("shm:///absent/osprey", options), OSPREY_ERROR_NO_LISTENER);
  EXPECT_EQ(osprey_connect("shm:///absent/osprey", options, nullptr, nullptr),
            OSPREY_ERROR_NULL_ARGUMENT);

  const auto refused = [&](auto change) {
    osprey_options* wrong = osprey_options_new();
    change(wrong);
    EXPECT_EQ(failure(server_->uri().c_str(), wrong), OSPREY_ERROR_BAD_OPTION);
    osprey_options_free(wrong);
  };
  refused([](osprey_options* o) { osprey_options_set_connect_timeout_us(o, 0); });
  refused([](osprey_options* o) { osprey_options_set_deadline_us(o, 61'000'000); });
  refused([](osprey_options* o) { osprey_options_set_wait(o, 3); });
  refused([](osprey_options* o) { osprey_options_set_spin_us(o, -1); });
  refused([](osprey_options* o) { osprey_options_set_operations_max(o, 0); });
  refused([](osprey_options* o) { osprey_options_set_backoff_us(o, 2, 1); });
  refused([](osprey_options* o) { osprey_options_set_buffer_bytes_max(o, 1); });
  refused([](osprey_options* o) { osprey_options_set_slot_cache_bytes(o, UINT64_MAX); });
}

TEST_F(CApiTest, AKeyIsTakenAsBytesOrAsAFileAndSaysWhatIsWrong) {
  osprey_options* options = osprey_options_new();
  const auto failure = [&] {
    osprey_client* client = nullptr;
    const int code = osprey_connect(server_->uri().c_str(), options, &client, nullptr);
    EXPECT_EQ(client, nullptr);
    return code;
  };
  const std::string key(32, 'k');
  EXPECT_EQ(osprey_options_set_auth_key(options, key.data(), key.size()), OSPREY_OK);
  EXPECT_EQ(failure(), OSPREY_ERROR_SERVER_UNPROVEN);  // it has none
  EXPECT_EQ(osprey_options_set_auth_key(options, "short", 5), OSPREY_OK);
  EXPECT_EQ(failure(), OSPREY_ERROR_BAD_AUTH_KEY);
  EXPECT_EQ(osprey_options_set_auth_key_file(options, "/no/such/file"), OSPREY_OK);
  EXPECT_EQ(failure(), OSPREY_ERROR_BAD_OPTION);  // both
  EXPECT_EQ(osprey_options_set_auth_key(nullptr, "k", 1), OSPREY_ERROR_NULL_ARGUMENT);
  osprey_options_free(options);
}

// As from an unset environment variable: to continue without a key would be worse.
TEST_F(CApiTest, AKeyThatCouldNotBeSetIsNotLeftAway) {
  const auto failure = [&](auto set) {
    osprey_options* options = osprey_options_new();
    const int told = set(options);
    osprey_client* client = nullptr;
    EXPECT_EQ(osprey_connect(server_->uri().c_str(), options, &client, nullptr), told);
    EXPECT_EQ(client, nullptr);
    osprey_options_free(options);
    return told;
  };
  EXPECT_EQ(failure([](auto* o) { return osprey_options_set_auth_key(o, "", 0); }),
            OSPREY_ERROR_BAD_AUTH_KEY);
  EXPECT_EQ(failure([](auto* o) { return osprey_options_set_auth_key(o, nullptr, 0); }),
            OSPREY_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(failure([](auto* o) { return osprey_options_set_auth_key_file(o, ""); }),
            OSPREY_ERROR_BAD_AUTH_KEY);
  EXPECT_EQ(failure([](auto* o) { return osprey_options_set_auth_key_file(o, nullptr); }),
            OSPREY_ERROR_NULL_ARGUMENT);
}

TEST_F(CApiTest, EveryWaitModeWaits) {
  for (const int mode : {OSPREY_WAIT_SPIN, OSPREY_WAIT_ADAPTIVE, OSPREY_WAIT_EVENT}) {
    osprey_options* options = osprey_options_new();
    osprey_options_set_wait(options, mode);
    const ClientHandle other = Connect(options);
    osprey_options_free(options);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(osprey_put(other.get(), "k", 1, "v", 1, nullptr, nullptr), OSPREY_OK);
  }
}

TEST_F(CApiTest, AWriteWithoutAnAnswerSaysThatItMayHaveHappened) {
  ASSERT_EQ(kill(server_->pid(), SIGSTOP), 0);
  const absl::Cleanup go_on = [&] { kill(server_->pid(), SIGCONT); };
  osprey_write_options options = OSPREY_WRITE_OPTIONS;
  options.deadline_us = 100'000;
  osprey_result* result = nullptr;
  EXPECT_EQ(osprey_put(client(), "k", 1, "v", 1, &options, &result), OSPREY_ERROR_DEADLINE);
  EXPECT_EQ(osprey_result_may_be_applied(result), 1);
  osprey_result_free(result);
  options.if_absent = 1;
  EXPECT_EQ(osprey_delete(client(), "k", 1, &options, &result), OSPREY_ERROR_BAD_CONDITION);
  EXPECT_EQ(osprey_result_may_be_applied(result), 0);
  osprey_result_free(result);
}

TEST_F(CApiTest, OfManyKeysEachIsAnsweredByItself) {
  const std::string long_key(5000, 'k');
  const std::array<osprey_pair, 3> items = {
      {{Bytes("a"), Bytes("1")}, {Bytes(long_key), Bytes("2")}, {Bytes("c"), Bytes("3")}}};
  osprey_result* raw = nullptr;
  EXPECT_EQ(osprey_multi_put(client(), items.data(), items.size(), nullptr, &raw),
            OSPREY_ERROR_KEY_TOO_LONG);
  const Result put(raw);
  ASSERT_EQ(osprey_result_count(raw), 3);
  EXPECT_EQ(osprey_result_code(osprey_result_item(raw, 0)), OSPREY_OK);
  EXPECT_NE(osprey_result_version(osprey_result_item(raw, 0)), 0);
  EXPECT_EQ(osprey_result_code(osprey_result_item(raw, 1)), OSPREY_ERROR_KEY_TOO_LONG);
  EXPECT_THAT(osprey_result_message(osprey_result_item(raw, 1)), HasSubstr("5000"));
  EXPECT_EQ(osprey_result_code(osprey_result_item(raw, 2)), OSPREY_OK);
  EXPECT_EQ(osprey_result_item(raw, 3), nullptr);

  const std::array<osprey_bytes, 3> keys = {Bytes("c"), Bytes("b"), Bytes("a")};
  EXPECT_EQ(osprey_multi_get(client(), keys.data(), keys.size(), nullptr, &raw),
            OSPREY_ERROR_ABSENT);
  const Result got(raw);
  EXPECT_EQ(Data(osprey_result_item(raw, 0)), "3");
  EXPECT_EQ(osprey_result_code(osprey_result_item(raw, 1)), OSPREY_ERROR_ABSENT);
  EXPECT_EQ(Data(osprey_result_item(raw, 1)), "(no data)");
  EXPECT_EQ(Data(osprey_result_item(raw, 2)), "1");

  const std::array<osprey_bytes, 2> two = {Bytes("a"), Bytes("c")};
  EXPECT_EQ(osprey_multi_delete(client(), two.data(), two.size(), nullptr, nullptr), OSPREY_OK);
  EXPECT_EQ(osprey_multi_delete(client(), two.data(), two.size(), nullptr, nullptr),
            OSPREY_ERROR_ABSENT);
  EXPECT_EQ(osprey_multi_get(client(), nullptr, 0, nullptr, nullptr), OSPREY_OK);
}

TEST_F(CApiTest, AScanFindsEveryKeyPageByPage) {
  for (int i = 0; i < 100; ++i) ASSERT_EQ(Put(absl::StrCat("moon", i), absl::StrCat(i)), OSPREY_OK);
  ASSERT_EQ(Put("planet", "saturn"), OSPREY_OK);
  osprey_scan_options options = OSPREY_SCAN_OPTIONS;
  options.prefix = "moon";
  options.prefix_length = 4;
  options.limit = 10;
  options.values = 1;
  std::set<std::string> keys;
  std::string cursor;
  int pages = 0;
  do {
    osprey_result* page = nullptr;
    ASSERT_EQ(osprey_scan(client(), cursor.c_str(), &options, &page), OSPREY_OK);
    const Result owned(page);
    for (size_t i = 0; i < osprey_result_count(page); ++i) {
      const osprey_result* item = osprey_result_item(page, i);
      const std::string key(osprey_result_key(item), osprey_result_key_length(item));
      EXPECT_EQ(absl::StrCat("moon", Data(item)), key);
      keys.insert(key);
    }
    cursor = osprey_result_cursor(page);
  } while (!cursor.empty() && ++pages < 1000);
  EXPECT_EQ(keys.size(), 100);

  osprey_result* page = nullptr;
  ASSERT_EQ(osprey_scan(client(), nullptr, nullptr, &page), OSPREY_OK);
  const Result owned(page);
  ASSERT_EQ(osprey_result_count(page), 101);
  EXPECT_EQ(osprey_result_data(osprey_result_item(page, 0)), nullptr)
      << "values were not asked for";
  EXPECT_GT(osprey_result_length(osprey_result_item(page, 0)), 0);
}

TEST_F(CApiTest, AnItemOfAScanHasItsTimeToLiveAndAnEmptyValueOnlyIfAskedFor) {
  osprey_write_options write = OSPREY_WRITE_OPTIONS;
  write.ttl_us = 100'000'000;
  ASSERT_EQ(osprey_put(client(), "k", 1, "", 0, &write, nullptr), OSPREY_OK);
  osprey_scan_options options = OSPREY_SCAN_OPTIONS;
  for (const bool values : {false, true}) {
    options.values = values ? 1 : 0;
    osprey_result* page = nullptr;
    ASSERT_EQ(osprey_scan(client(), nullptr, &options, &page), OSPREY_OK);
    const Result owned(page);
    const osprey_result* item = osprey_result_item(page, 0);
    EXPECT_GT(osprey_result_ttl_us(item), 0);
    EXPECT_LE(osprey_result_ttl_us(item), 101'000'000);
    EXPECT_EQ(osprey_result_data(item) != nullptr, values);
  }
}

TEST_F(CApiTest, BuffersHoldLongValuesAndOutliveTheirClient) {
  osprey_buffer* buffer = nullptr;
  ASSERT_EQ(osprey_buffer_allocate(client(), 1 << 20, &buffer, nullptr), OSPREY_OK);
  const absl::Cleanup free_buffer = [&] { osprey_buffer_free(buffer); };
  ASSERT_EQ(osprey_buffer_size(buffer), 1 << 20);
  std::memset(osprey_buffer_data(buffer), 'r', 700'000);
  ASSERT_EQ(osprey_put_from(client(), "rings", 5, buffer, 0, 700'000, nullptr, nullptr), OSPREY_OK);
  std::memset(osprey_buffer_data(buffer), 0, 1 << 20);
  osprey_result* raw = nullptr;
  ASSERT_EQ(osprey_get_into(client(), "rings", 5, buffer, 1000, nullptr, &raw), OSPREY_OK);
  EXPECT_EQ(osprey_result_length(raw), 700'000);
  EXPECT_EQ(osprey_result_data(raw), nullptr);
  osprey_result_free(raw);
  const char* bytes = static_cast<char*>(osprey_buffer_data(buffer));
  EXPECT_EQ(bytes[999], 0);
  EXPECT_EQ(bytes[1000], 'r');
  EXPECT_EQ(bytes[700'999], 'r');
  EXPECT_EQ(bytes[701'000], 0);

  EXPECT_EQ(osprey_get_into(client(), "rings", 5, buffer, 500'000, nullptr, &raw),
            OSPREY_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(osprey_result_length(raw), 700'000);
  osprey_result_free(raw);
  EXPECT_EQ(osprey_put_from(client(), "rings", 5, buffer, 1 << 20, 1, nullptr, nullptr),
            OSPREY_ERROR_BAD_BUFFER);
  osprey_buffer* none = buffer;
  EXPECT_EQ(osprey_buffer_allocate(client(), 0, &none, nullptr), OSPREY_ERROR_BAD_BUFFER);
  EXPECT_EQ(none, nullptr);
  client_.reset();
  EXPECT_EQ(bytes[1000], 'r');
}

// Programs of older and of newer headers than the library.
TEST_F(CApiTest, OptionsOfAnotherVersionAreTakenWhereTheyCanBeUnderstood) {
  struct Newer {
    osprey_read_options known;
    uint64_t unknown;
  };
  Newer newer = {{sizeof(Newer), 0}, 0};
  ASSERT_EQ(Put("k", "v"), OSPREY_OK);
  EXPECT_EQ(osprey_result_code(Get("k", &newer.known).get()), OSPREY_OK);
  newer.unknown = 1;
  EXPECT_EQ(osprey_result_code(Get("k", &newer.known).get()), OSPREY_ERROR_BAD_OPTION);
  for (const size_t size : {size_t{0}, size_t{8}, SIZE_MAX}) {
    newer.known.size = size;
    EXPECT_EQ(osprey_result_code(Get("k", &newer.known).get()), OSPREY_ERROR_BAD_OPTION);
    EXPECT_THAT(osprey_client_message(client()), HasSubstr("sizeof(osprey_read_options)"));
  }
  osprey_write_options write = OSPREY_WRITE_OPTIONS;
  write.reserved = 1;
  EXPECT_EQ(Put("k", "v", &write), OSPREY_ERROR_BAD_OPTION);
  osprey_scan_options scan = OSPREY_SCAN_OPTIONS;
  scan.reserved = 1;
  EXPECT_EQ(osprey_scan(client(), "", &scan, nullptr), OSPREY_ERROR_BAD_OPTION);
}

TEST_F(CApiTest, NullIsRefusedWhereSomethingMustBe) {
  EXPECT_EQ(osprey_get(nullptr, "k", 1, nullptr, nullptr), OSPREY_ERROR_NULL_ARGUMENT);
  osprey_result* raw = nullptr;
  EXPECT_EQ(osprey_put(nullptr, "k", 1, "v", 1, nullptr, &raw), OSPREY_ERROR_NULL_ARGUMENT);
  EXPECT_THAT(osprey_result_message(raw), HasSubstr("client"));
  osprey_result_free(raw);
  EXPECT_EQ(osprey_start_get(nullptr, "k", 1, nullptr, nullptr, nullptr),
            OSPREY_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(osprey_poll(nullptr), -OSPREY_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(osprey_wait(nullptr, 1), -OSPREY_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(osprey_get(client(), nullptr, 1, nullptr, nullptr), OSPREY_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(osprey_put(client(), "k", 1, nullptr, 1, nullptr, nullptr), OSPREY_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(osprey_put(client(), "k", 1, nullptr, 0, nullptr, nullptr), OSPREY_OK);
  EXPECT_EQ(osprey_multi_get(client(), nullptr, 1, nullptr, nullptr), OSPREY_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(osprey_get_into(client(), "k", 1, nullptr, 0, nullptr, nullptr),
            OSPREY_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(osprey_buffer_allocate(client(), 1, nullptr, nullptr), OSPREY_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(osprey_result_code(nullptr), OSPREY_ERROR_NULL_ARGUMENT);
  EXPECT_STREQ(osprey_result_cursor(nullptr), "");
  EXPECT_EQ(osprey_result_item(nullptr, 0), nullptr);
  EXPECT_EQ(osprey_close(nullptr), OSPREY_OK);
  osprey_result_free(nullptr);
  osprey_buffer_free(nullptr);
  osprey_options_free(nullptr);
}

}  // namespace
}  // namespace osprey
