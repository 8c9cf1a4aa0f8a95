// Keys that a client chooses to meet in one line of the index: what they cost a server, and that
// they are of no use against its next incarnation.

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/common/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/layout/partitions.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using testing::HasSubstr;

// The header of a server's region, by the server's own descriptor; `magic` is 0 when it has none.
index::RegionHeader RegionHeaderOf(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid, "/fd");
  const std::unique_ptr<DIR, int (*)(DIR*)> files(opendir(folder.c_str()), closedir);
  index::RegionHeader header = {};
  while (const dirent* entry = files == nullptr ? nullptr : readdir(files.get())) {
    const std::string path = absl::StrCat(folder, "/", entry->d_name);
    char target[256] = {};
    if (readlink(path.c_str(), target, sizeof(target) - 1) < 0 ||
        !absl::StartsWith(target, "/memfd:"))
      continue;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = pread(fd, &header, sizeof(header), 0);
    close(fd);
    if (bytes == sizeof(header) && header.magic == index::kRegionMagic) return header;
  }
  return {};
}

constexpr uint32_t kHome = 7;  // of the keys that meet

// As many keys as one home takes, and one more. All are in the first of however many partitions.
std::vector<std::string> KeysThatMeet(uint64_t seed) {
  constexpr size_t kKeys = (2 + index::kChainLinesMax) * index::kLineWordsUsable + 1;
  std::vector<std::string> keys;
  for (uint64_t i = 0; keys.size() < kKeys; ++i) {
    std::string key = absl::StrCat("meeting-", i);
    const index::KeyHash hash = index::HashKey(key, seed);
    if (hash.home() == kHome && index::PartitionOf(hash, index::kPartitionsMax) == 0)
      keys.push_back(std::move(key));
  }
  return keys;
}

// The seed is drawn: any given key shares the line of the others once in some hundred starts.
std::string KeyOfAnotherLine(uint64_t seed) {
  std::string key = "honest";
  while (index::HashKey(key, seed).home() == kHome) key += "!";
  return key;
}

TEST(HashSeedTest, EachStartDrawsOneAndChosenKeysMeetOnlyUnderTheOldOne) {
  if (InLab()) GTEST_SKIP() << "the region of a server over verbs is no file";
  const std::string address = NewListenAddress();
  absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(address);
  ASSERT_TRUE(server.ok()) << server.status();
  const index::RegionHeader first = RegionHeaderOf((*server)->pid());
  ASSERT_EQ(first.magic, index::kRegionMagic);
  const std::vector<std::string> keys = KeysThatMeet(first.hash_seed);
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect((*server)->uri());
  ASSERT_TRUE(client.ok()) << client.status();
  for (size_t i = 0; i + 1 < keys.size(); ++i) ASSERT_TRUE((*client)->Put(keys[i], "v").ok()) << i;
  const absl::Status refused = (*client)->Put(keys.back(), "v").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), Reason::kChainFull);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("too many keys share this key's line"));
  EXPECT_TRUE((*client)->Put(KeyOfAnotherLine(first.hash_seed), "v").ok());
  EXPECT_EQ(StatIn((*client)->ServerStats().value(), "index_chains_full"), "1");
  // What was stored stays, and can be written.
  EXPECT_EQ((*client)->Get(keys.front())->bytes, "v");
  EXPECT_TRUE((*client)->Put(keys.front(), "w").ok());
  EXPECT_TRUE((*client)->Delete(keys.front()).ok());
  EXPECT_TRUE((*client)->Put(keys.back(), "v").ok());
  EXPECT_EQ((*server)->Stop(), 0);

  server = ServerProcess::Start(address);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_NE(RegionHeaderOf((*server)->pid()).hash_seed, first.hash_seed);
  client = Client::Connect((*server)->uri());
  ASSERT_TRUE(client.ok()) << client.status();
  for (const std::string& key : keys) EXPECT_TRUE((*client)->Put(key, "v").ok());
  EXPECT_EQ(StatIn((*client)->ServerStats().value(), "index_chains_full"), "0");
}

}  // namespace
}  // namespace osprey
