// Tests of the C API with a kvserver: over shared memory; in the lab, over verbs.

#ifndef OSPREY_TESTS_CLIENT_C_API_C_API_FIXTURE_H_
#define OSPREY_TESTS_CLIENT_C_API_C_API_FIXTURE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/osprey.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {

struct FreeResult {
  void operator()(osprey_result* result) const { osprey_result_free(result); }
};
using Result = std::unique_ptr<osprey_result, FreeResult>;
struct Close {
  void operator()(osprey_client* client) const { osprey_close(client); }
};
using ClientHandle = std::unique_ptr<osprey_client, Close>;

inline osprey_bytes Bytes(absl::string_view text) { return {text.data(), text.size()}; }

inline std::string Data(const osprey_result* result) {
  const char* data = osprey_result_data(result);
  return data == nullptr ? "(no data)" : std::string(data, osprey_result_length(result));
}

class CApiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(NewListenAddress(), {"--value-max=8MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override {
    ASSERT_NE(server_, nullptr);
    client_ = Connect(nullptr);
    ASSERT_NE(client_, nullptr);
    ASSERT_EQ(osprey_flush(client(), nullptr, nullptr), OSPREY_OK);
  }

  static ClientHandle Connect(const osprey_options* options) {
    osprey_client* client = nullptr;
    osprey_result* result = nullptr;
    EXPECT_EQ(osprey_connect(server_->uri().c_str(), options, &client, &result), OSPREY_OK)
        << osprey_result_message(result);
    osprey_result_free(result);
    return ClientHandle(client);
  }

  osprey_client* client() { return client_.get(); }

  int Put(const std::string& key, const std::string& value,
          const osprey_write_options* options = nullptr) {
    return osprey_put(client(), key.data(), key.size(), value.data(), value.size(), options,
                      nullptr);
  }
  Result Get(const std::string& key, const osprey_read_options* options = nullptr) {
    osprey_result* result = nullptr;
    const int code = osprey_get(client(), key.data(), key.size(), options, &result);
    EXPECT_EQ(osprey_result_code(result), code);
    return Result(result);
  }

  static inline std::unique_ptr<ServerProcess> server_;
  ClientHandle client_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_CLIENT_C_API_C_API_FIXTURE_H_
