#include "rdma/host_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

namespace osprey::rdma {
namespace {

HostMemory Make(size_t bytes, const HostMemoryOptions& options = {}) {
  absl::StatusOr<HostMemory> memory = HostMemory::Create("test", bytes, options);
  EXPECT_TRUE(memory.ok()) << memory.status();
  return *std::move(memory);
}

bool ReadsAsZero(const HostMemory& memory) {
  for (size_t i = 0; i < memory.size(); ++i) {
    if (memory.data()[i] != std::byte{0}) return false;
  }
  return true;
}

TEST(HostMemoryTest, IsZeroedWritableAndWholePages) {
  const HostMemory memory = Make(10000);
  EXPECT_EQ(memory.size() % memory.page_size(), 0u);
  EXPECT_GE(memory.size(), 10000u);
  EXPECT_LT(memory.size(), 10000u + memory.page_size());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % memory.page_size(), 0u);
  EXPECT_TRUE(ReadsAsZero(memory));
  std::memset(memory.data(), 0x5a, memory.size());
}

TEST(HostMemoryTest, AnotherMappingOfItsFileSeesItsBytes) {
  const HostMemory memory = Make(4096);
  void* other = mmap(nullptr, memory.size(), PROT_READ, MAP_SHARED, memory.fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  memory.data()[17] = std::byte{42};
  EXPECT_EQ(static_cast<const std::byte*>(other)[17], std::byte{42});
  munmap(other, memory.size());
}

TEST(HostMemoryTest, DescriptorAllowsNeitherResizeNorWrite) {
  const HostMemory memory = Make(8192);
  const off_t size = static_cast<off_t>(memory.size());
  EXPECT_NE(ftruncate(memory.fd(), 0), 0);
  EXPECT_NE(ftruncate(memory.fd(), size + 4096), 0);
  EXPECT_EQ(mmap(nullptr, memory.size(), PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0),
            MAP_FAILED);
  const char byte = 'x';
  EXPECT_EQ(pwrite(memory.fd(), &byte, 1, 0), -1);
  EXPECT_NE(fallocate(memory.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  void* readable = mmap(nullptr, memory.size(), PROT_READ, MAP_SHARED, memory.fd(), 0);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_NE(mprotect(readable, memory.size(), PROT_READ | PROT_WRITE), 0);
  munmap(readable, memory.size());
}

TEST(HostMemoryTest, PrefaultCommitsEveryPage) {
  const HostMemory lazy = Make(1 << 20);
  const HostMemory eager = Make(1 << 20, {.huge_pages = false, .prefault = true});
  struct stat lazy_stat, eager_stat;
  ASSERT_EQ(fstat(lazy.fd(), &lazy_stat), 0);
  ASSERT_EQ(fstat(eager.fd(), &eager_stat), 0);
  EXPECT_EQ(lazy_stat.st_blocks, 0);
  EXPECT_GE(eager_stat.st_blocks * 512, 1 << 20);
  EXPECT_TRUE(ReadsAsZero(eager));
}

TEST(HostMemoryTest, HugePagesOrTheFallbackWorkAlike) {
  const HostMemory memory = Make(3 << 20, {.huge_pages = true, .prefault = true});
  EXPECT_EQ(memory.size() % memory.page_size(), 0u);
  EXPECT_GE(memory.size(), size_t{3} << 20);
  EXPECT_TRUE(ReadsAsZero(memory));
  EXPECT_NE(ftruncate(memory.fd(), 0), 0);
}

TEST(HostMemoryTest, ImpossibleSizesAreRefusedWithTheNumbers) {
  for (const size_t bytes :
       {std::numeric_limits<size_t>::max(), size_t{1} << 62, size_t{1} << 50}) {
    const absl::StatusOr<HostMemory> memory =
        HostMemory::Create("region", bytes, {.prefault = true});
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
    const std::string message(memory.status().message());
    EXPECT_NE(message.find(std::to_string(bytes)), std::string::npos) << message;
    EXPECT_NE(message.find("bytes available"), std::string::npos) << message;
  }
  EXPECT_EQ(HostMemory::Create("region", 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HostMemoryTest, MovesLeaveOneOwner) {
  HostMemory first = Make(4096);
  std::byte* const data = first.data();
  HostMemory second = std::move(first);
  EXPECT_EQ(second.data(), data);
  HostMemory third = Make(4096);
  const int old_fd = third.fd();
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_NE(third.fd(), old_fd);
  third.data()[0] = std::byte{1};
}

TEST(HostMemoryTest, ItsDescriptorAndMappingGoWithIt) {
  int fd = -1;
  {
    const HostMemory memory = Make(4096);
    fd = memory.fd();
    EXPECT_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    EXPECT_EQ(line.find("memfd:test"), std::string::npos) << line;
}

}  // namespace
}  // namespace osprey::rdma
