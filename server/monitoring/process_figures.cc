#include "server/monitoring/process_figures.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "rdma/unique_fd.h"

namespace osprey::server {
namespace {

// By read: a stream would throw where that fails.
void ReadMemory(ProcessFigures& figures) {
  const rdma::UniqueFd file(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  char text[128];  // seven numbers; the first two are of pages in all and of those in RAM
  const ssize_t bytes = file.valid() ? read(file.get(), text, sizeof(text) - 1) : -1;
  if (bytes < 0) return;
  text[bytes] = '\0';
  uint64_t pages = 0, resident = 0;
  if (std::sscanf(text, "%" SCNu64 " %" SCNu64, &pages, &resident) != 2) return;
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  figures.virtual_bytes = pages * page_bytes;
  figures.resident_bytes = resident * page_bytes;
}

uint64_t OpenDescriptors() {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  uint64_t count = 0;
  while (const dirent* const entry = readdir(directory))
    if (entry->d_name[0] != '.') ++count;
  closedir(directory);
  return count > 0 ? count - 1 : 0;  // but for the directory's own
}

}  // namespace

ProcessFigures ReadProcessFigures() {
  ProcessFigures figures;
  ReadMemory(figures);
  figures.open_fds = OpenDescriptors();
  if (rlimit limit; getrlimit(RLIMIT_NOFILE, &limit) == 0) figures.max_fds = limit.rlim_cur;
  return figures;
}

}  // namespace osprey::server
