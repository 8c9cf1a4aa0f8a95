// kvserver that is asked to end while it loads its data.

#include <signal.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"
#include "tests/support/volume.h"

namespace osprey {
namespace {

constexpr int kKeys = 64;
constexpr int kRounds =
    10000 / kVolumeParts;  // of changes of all keys: a log that takes a while to read

std::string ValueOf(int key) { return absl::StrCat(kRounds, " of ", key); }

void Fill(Client& client) {
  for (int round = 1; round <= kRounds; ++round) {
    std::vector<std::string> texts;
    std::vector<KeyValue> items;
    for (int key = 0; key < kKeys; ++key) {
      texts.push_back(absl::StrCat("key", key));
      texts.push_back(absl::StrCat(round, " of ", key));
    }
    for (int key = 0; key < kKeys; ++key) items.push_back({texts[2 * key], texts[2 * key + 1]});
    for (const absl::StatusOr<uint64_t>& put : client.MultiPut(items, {}))
      ASSERT_TRUE(put.ok()) << put.status();
  }
}

TEST(StoppedLoadingTest, TheServerEndsAtOnceAndLosesNothing) {
  const std::string directory = NewTemporaryDirectory();
  const std::string listen = NewListenAddress();
  const std::vector<std::string> flags = {"--data-dir=" + directory + "/data"};
  {
    const auto server = ServerProcess::Start(listen, flags);
    ASSERT_TRUE(server.ok()) << server.status();
    Options options;
    options.deadline = absl::Seconds(30);  // the disk may be slow
    const auto client = Client::Connect((*server)->uri(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    ASSERT_NO_FATAL_FAILURE(Fill(**client));
  }  // killed, so all of the log is read

  int stopped = 0;
  for (int delay_ms = 10; delay_ms < 2000 && stopped < 3; delay_ms += 10) {
    const ProgramResult result =
        RunProgram({"timeout", "--foreground", "--preserve-status", "--signal=TERM",
                    absl::StrCat(0.001 * delay_ms), "server/kvserver", "--listen=" + listen,
                    "--memory=64MiB", flags[0]});
    if (result.exit_status == 128 + SIGTERM) continue;  // before it handles signals
    ASSERT_EQ(result.exit_status, 0) << result.err;
    if (absl::StrContains(result.out, "ready")) break;
    EXPECT_TRUE(absl::StrContains(result.err, "ended while starting")) << result.err;
    ++stopped;
  }
  EXPECT_GT(stopped, 0) << "void: no server was asked while it loaded";

  const auto server = ServerProcess::Start(listen, flags);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto client = Client::Connect((*server)->uri());
  ASSERT_TRUE(client.ok()) << client.status();
  for (int key = 0; key < kKeys; ++key) {
    const auto value = (*client)->Get(absl::StrCat("key", key));
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(value->bytes, ValueOf(key));
  }
  EXPECT_EQ((*server)->Stop(), 0);
}

}  // namespace
}  // namespace osprey
