// What the tests of export and import share: a server of their own with some random records.

#ifndef OSPREY_TESTS_TOOLS_KVCLI_BULK_FIXTURE_H_
#define OSPREY_TESTS_TOOLS_KVCLI_BULK_FIXTURE_H_

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/support/pty_process.h"
#include "tests/support/subprocess.h"
#include "tests/support/volume.h"
#include "tests/tools/kvcli_fixture.h"

namespace osprey {

inline constexpr const char* kFormats[] = {"jsonl", "csv", "binary"};
// So many that a signal usually arrives before the end.
inline constexpr int kMany = 30'000 / kVolumeParts;
// The attempts with a signal that may arrive too late.
inline constexpr int kAttemptsMax = 20;

inline bool Exists(const std::string& path) { return std::ifstream(path).is_open(); }

// Tests of files alone would give the same results there, more slowly.
#define SKIP_IN_LAB() \
  if (InLab()) GTEST_SKIP() << "nothing in it has to do with RDMA"

class KvcliBulkTest : public KvcliOwnServerTest {
 protected:
  void SetUp() override {
    StartServer(NewListenAddress(), {"--memory=512MiB"});
    Options options;
    options.deadline = absl::Seconds(30);
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  // Random keys and values of any bytes; some values are empty, some have 1 MiB, some keys expire.
  void Fill(int keys, int megabytes) {
    std::mt19937_64 random(29);
    const auto bytes = [&](size_t length) {
      std::string text(length, '\0');
      for (char& c : text) c = static_cast<char>(random());
      return text;
    };
    for (int i = 0; i < keys; ++i) {
      const size_t length = i < megabytes ? 1 << 20 : i % 10 == 0 ? 0 : random() % 200;
      // Some are text, so that both encodings occur.
      values_[absl::StrCat(i, i % 3 == 0 ? "," : bytes(random() % 20))] =
          i % 4 == 0 ? std::string(length, "x\n\",\\"[i % 5]) : bytes(length);
    }
    std::vector<KeyValue> items, expiring;
    int number = 0;
    for (const auto& [key, value] : values_)
      (number++ % 5 == 0 ? expiring : items).push_back({key, value});
    for (const KeyValue& item : expiring) expiring_[std::string(item.key)] = true;
    WriteOptions options;
    for (const auto& version : client_->MultiPut(items, options))
      ASSERT_TRUE(version.ok()) << version.status();
    options.ttl = absl::Hours(10);
    for (const auto& version : client_->MultiPut(expiring, options))
      ASSERT_TRUE(version.ok()) << version.status();
  }

  void ExpectAllThere() {
    std::map<std::string, bool> found;
    ScanOptions options;
    options.values = true;
    std::string cursor;
    do {
      const absl::StatusOr<ScanPage> page = client_->Scan(cursor, options);
      ASSERT_TRUE(page.ok()) << page.status();
      for (const ScanItem& item : page->items) {
        found[item.key] = true;
        const auto value = values_.find(item.key);
        ASSERT_NE(value, values_.end()) << item.key;
        ASSERT_TRUE(value->second == item.value) << item.key;
        if (expiring_.count(item.key) > 0) {
          ASSERT_LE(item.ttl, absl::Hours(10));
          ASSERT_GT(item.ttl, absl::Hours(9));
        } else {
          ASSERT_EQ(item.ttl, absl::InfiniteDuration());
        }
      }
      cursor = page->cursor;
    } while (!cursor.empty());
    EXPECT_EQ(found.size(), values_.size());
  }

  // Waits until the import under way has stored so much, or some time has passed.
  void AwaitCount(uint64_t keys) {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (client_->Count().value_or(0) < keys && absl::Now() < end)
      absl::SleepFor(absl::Milliseconds(1));
  }
  // Waits until one of them exists.
  static void AwaitFile(const std::string& path, const std::string& other) {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (!Exists(path) && !Exists(other) && absl::Now() < end)
      absl::SleepFor(absl::Milliseconds(1));
  }

  // Calls `interrupt` with the process of an export that has begun, until one was in time. Returns
  // the terminal's output of that one. `interrupt` returns the exit status if it was in time.
  template <typename Interrupt>
  std::string InterruptExport(const std::string& path, const std::vector<std::string>& flags,
                              Interrupt interrupt) {
    std::vector<std::string> args = {"export", path};
    args.insert(args.end(), flags.begin(), flags.end());
    for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
      std::remove(path.c_str());
      auto started = PtyProcess::Start(Command(args));
      if (!started.ok()) break;
      AwaitFile(path + ".part", path);
      const int wanted = interrupt((*started)->pid());
      if ((*started)->AwaitEnd() == wanted && Exists(path + ".part.state"))
        return (*started)->screen();
    }
    ADD_FAILURE() << path << " was always complete before it could be interrupted";
    return "";
  }

  // Runs in a shell the command that a terminal shows after "go on with: ".
  static ProgramResult ResumeOn(const std::string& screen) {
    const std::string told = "go on with: ";
    const size_t at = screen.rfind(told);
    EXPECT_NE(at, screen.npos) << screen;
    if (at == screen.npos) return {};
    const std::string line = screen.substr(at + told.size());
    return RunProgram({"bash", "-c", "PATH=$PWD/tools:$PATH; eval \"$1\"", "bash",
                       line.substr(0, line.find_first_of("\r\n"))});
  }

  void ExpectTheFileIsAll(const std::string& path, const std::string& format) {
    EXPECT_FALSE(Exists(path + ".part"));
    EXPECT_FALSE(Exists(path + ".part.state"));
    ASSERT_EQ(Kvcli({"flush"}).exit_status, 0);
    const ProgramResult imported = Kvcli({"import", path, "--format=" + format, "--timeout=30"});
    ASSERT_EQ(imported.exit_status, 0) << imported.err;
    ExpectAllThere();
  }

  std::string Stat(absl::string_view name) {
    return StatIn(client_->ServerStats().value_or(""), name);
  }

  std::unique_ptr<Client> client_;
  std::map<std::string, std::string> values_;
  std::map<std::string, bool> expiring_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_TOOLS_KVCLI_BULK_FIXTURE_H_
