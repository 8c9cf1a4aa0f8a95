#include "server/monitoring/process_figures.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "rdma/unique_fd.h"

namespace osprey::server {
namespace {

// Fields of /proc/PID/stat behind the name, by proc(5): the state is the third of all.
constexpr size_t kFirstField = 3;
constexpr size_t kUserTicks = 14;
constexpr size_t kSystemTicks = 15;
constexpr size_t kThreads = 20;
constexpr size_t kStartTicks = 22;
constexpr size_t kVirtualBytes = 23;
constexpr size_t kResidentPages = 24;
constexpr size_t kStatBytesMax = 4096;  // 52 numbers and a name of 15 letters

absl::Duration OfTicks(uint64_t ticks) {
  return absl::Seconds(1) * ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

absl::Time BootTime() {
  timespec since_boot;
  if (clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) return absl::UnixEpoch();
  return absl::Now() - absl::DurationFromTimespec(since_boot);
}

// Empty if that fails. (A stream would throw.)
std::string ReadStat() {
  std::string text(kStatBytesMax, '\0');
  const rdma::UniqueFd file(open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
  const ssize_t bytes = file.valid() ? read(file.get(), text.data(), text.size()) : 0;
  text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
  return text;
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

ProcessFigures ParseProcessStat(absl::string_view stat, absl::Time boot) {
  ProcessFigures figures;
  // The name may have any characters.
  const size_t name_end = stat.rfind(')');
  if (name_end == absl::string_view::npos) return figures;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(stat.substr(name_end + 1), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  if (fields.size() <= kResidentPages - kFirstField) return figures;
  const auto field = [&](size_t number) {
    uint64_t value = 0;
    return absl::SimpleAtoi(fields[number - kFirstField], &value) ? value : 0;
  };
  figures.cpu = OfTicks(field(kUserTicks) + field(kSystemTicks));
  figures.started = boot + OfTicks(field(kStartTicks));
  figures.threads = field(kThreads);
  figures.virtual_bytes = field(kVirtualBytes);
  figures.resident_bytes = field(kResidentPages) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return figures;
}

ProcessFigures ReadProcessFigures() {
  ProcessFigures figures = ParseProcessStat(ReadStat(), BootTime());
  figures.open_fds = OpenDescriptors();
  if (rlimit limit; getrlimit(RLIMIT_NOFILE, &limit) == 0) figures.max_fds = limit.rlim_cur;
  return figures;
}

}  // namespace osprey::server
