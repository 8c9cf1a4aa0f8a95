#include "rdma/shm/mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "rdma/host_memory.h"
#include "tests/rdma/shm/packets.h"
#include "tests/support/subprocess.h"

namespace osprey::rdma {
namespace {

TEST(ShmMappingTest, MemoryThatItsOwnerCouldTruncateIsRefused) {
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE}) {
    const UniqueFd fd = NewMemfd(4096, seals);
    EXPECT_EQ(MapSealed(fd.get(), 4096, MapAccess::kRead).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  const UniqueFd sealed = NewMemfd(4096);
  EXPECT_TRUE(MapSealed(sealed.get(), 4096, MapAccess::kRead).ok());
}

TEST(ShmMappingTest, AFileWithoutSealsAndWhatIsNoFileAreRefused) {
  const std::string name = NewTemporaryDirectory() + "/file";
  const UniqueFd file(open(name.c_str(), O_CREAT | O_RDWR, 0600));
  ASSERT_EQ(ftruncate(file.get(), 4096), 0);
  EXPECT_FALSE(MapSealed(file.get(), 4096, MapAccess::kRead).ok());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd in(ends[0]), out(ends[1]);
  EXPECT_FALSE(MapSealed(in.get(), 1, MapAccess::kRead).ok());
  EXPECT_FALSE(MapSealed(-1, 1, MapAccess::kRead).ok());
}

TEST(ShmMappingTest, MemoryShorterThanClaimedIsRefused) {
  const UniqueFd fd = NewMemfd(8192);
  EXPECT_TRUE(MapSealed(fd.get(), 8192, MapAccess::kRead).ok());
  EXPECT_FALSE(MapSealed(fd.get(), 8193, MapAccess::kRead).ok());
  EXPECT_FALSE(MapSealed(fd.get(), ~uint64_t{0}, MapAccess::kRead).ok());
  EXPECT_FALSE(MapSealed(fd.get(), 0, MapAccess::kRead).ok());
}

TEST(ShmMappingTest, HostMemoryMapsForReadingAndNotForWriting) {
  const HostMemory memory = HostMemory::Create("test", 4096).value();
  const absl::StatusOr<Mapping> mapping = MapSealed(memory.fd(), memory.size(), MapAccess::kRead);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  memory.data()[5] = std::byte{9};
  EXPECT_EQ(mapping->data()[5], std::byte{9});
  EXPECT_FALSE(MapSealed(memory.fd(), memory.size(), MapAccess::kReadWrite).ok());
}

TEST(ShmMappingTest, ASealedFileIsSharedForWriting) {
  const absl::StatusOr<SealedFile> file = CreateSealed("test", 4096, MapAccess::kReadWrite);
  ASSERT_TRUE(file.ok()) << file.status();
  const absl::StatusOr<Mapping> other = MapSealed(file->fd.get(), 4096, MapAccess::kReadWrite);
  ASSERT_TRUE(other.ok()) << other.status();
  other->data()[0] = std::byte{1};
  EXPECT_EQ(file->mapping.data()[0], std::byte{1});
  EXPECT_NE(ftruncate(file->fd.get(), 0), 0);
}

TEST(ShmMappingTest, CopySharedCopiesExactlyAtEveryAlignmentAndLength) {
  std::vector<std::byte> from(600);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 131 >> 3);
  for (size_t offset = 0; offset < 16; ++offset) {
    for (size_t length = 0; length < 300; ++length) {
      std::vector<std::byte> to(320, std::byte{0xcc});
      const size_t at = 1 + length % 9;  // destinations of every alignment, too
      CopyShared(to.data() + at, from.data() + offset, length);
      ASSERT_EQ(std::memcmp(to.data() + at, from.data() + offset, length), 0)
          << offset << " " << length;
      ASSERT_EQ(to[at - 1], std::byte{0xcc});
      ASSERT_EQ(to[at + length], std::byte{0xcc});
    }
  }
}

// Both sides on one mapping, so that ThreadSanitizer sees every access; and no aligned word is
// torn.
TEST(ShmMappingTest, CopySharedRacesWithAWriterWithoutTearingWords) {
  alignas(64) static uint64_t words[32];
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t round = 1; !stop.load(std::memory_order_relaxed); ++round) {
      const uint64_t pattern = round % 256 * 0x0101010101010101;  // one byte, eight times
      for (uint64_t& word : words)
        std::atomic_ref<uint64_t>(word).store(pattern, std::memory_order_release);
    }
  });
  for (int i = 0; i < 20000; ++i) {
    uint64_t copy[32];
    CopyShared(reinterpret_cast<std::byte*>(copy), reinterpret_cast<const std::byte*>(words),
               sizeof(copy));
    for (const uint64_t word : copy) ASSERT_EQ(word % 0x0101010101010101, 0u);
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace osprey::rdma
