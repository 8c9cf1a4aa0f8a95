#include "tests/fuzz/support/hostile_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "rdma/shm/listener.h"
#include "rdma/shm/socket.h"
#include "tests/fuzz/support/ancillary.h"
#include "tests/fuzz/support/input.h"

namespace osprey::fuzz {

size_t OpenDescriptors() {
  size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

std::string NewFolder() {
  const char* tmp = std::getenv("TMPDIR");
  std::string folder = absl::StrCat(tmp == nullptr ? "/tmp" : tmp, "/osprey-fuzz-XXXXXX");
  OSPREY_MUST(mkdtemp(folder.data()) != nullptr, "a folder");
  return folder;
}

void RemoveFolder(const std::string& folder) {
  if (DIR* files = opendir(folder.c_str()); files != nullptr) {
    while (const dirent* entry = readdir(files))
      unlink(absl::StrCat(folder, "/", entry->d_name).c_str());
    closedir(files);
  }
  rmdir(folder.c_str());
}

rdma::UniqueFd ListenAt(const std::string& path) {
  rdma::UniqueFd listener = rdma::NewSocket().value();
  const sockaddr_un address = rdma::SocketAddress(path).value();
  OSPREY_MUST(
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
          listen(listener.get(), 8) == 0,
      "a listener");
  return listener;
}

rdma::UniqueFd NewIncarnationPage() {
  rdma::UniqueFd page = NewMemfd(rdma::kIncarnationPageBytes, F_SEAL_SHRINK | F_SEAL_GROW);
  const uint64_t words[] = {rdma::kIncarnationMagic, 7, 1};
  OSPREY_MUST(pwrite(page.get(), words, sizeof(words), 0) == sizeof(words), "a page");
  return page;
}

}  // namespace osprey::fuzz
