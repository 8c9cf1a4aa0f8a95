#include "tools/doctor/machine.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/timex.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

extern char** environ;

namespace osprey::doctor {
namespace {

using Clock = std::chrono::steady_clock;

// Reads `fd` until its end. False: it took too long, or was too much.
bool ReadAll(int fd, Clock::time_point end, std::string& out) {
  char block[4096];
  while (out.size() < Machine::kFileBytesMax) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd ready = {.fd = fd, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) return false;
    const ssize_t got = read(fd, block, sizeof(block));
    if (got <= 0) return got == 0;
    out.append(block, static_cast<size_t>(got));
  }
  return false;
}

// -1: it could not be started.
pid_t Spawn(const std::vector<std::string>& args, int out) {
  std::vector<char*> argv;
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

}  // namespace

bool Machine::Exists(const std::string& path) const {
  const size_t slash = path.rfind('/');
  const std::vector<std::string> names = List(path.substr(0, slash));
  return std::find(names.begin(), names.end(), path.substr(slash + 1)) != names.end();
}

std::optional<std::string> RootedMachine::Read(const std::string& path) const {
  std::ifstream file(absl::StrCat(root_, path), std::ios::binary);
  if (!file) return std::nullopt;
  // Reads until the end: the size is 0 for files of /proc and a page for those of /sys.
  std::string text;
  char block[4096];
  while (text.size() < kFileBytesMax && (file.read(block, sizeof(block)) || file.gcount() > 0))
    text.append(block, static_cast<size_t>(file.gcount()));
  if (file.bad()) return std::nullopt;
  return std::string(absl::StripAsciiWhitespace(text));
}

std::vector<std::string> RootedMachine::List(const std::string& path) const {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(absl::StrCat(root_, path, "/"), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> RootedMachine::Link(const std::string& path) const {
  std::error_code error;
  const std::filesystem::path target =
      std::filesystem::read_symlink(absl::StrCat(root_, path), error);
  if (error) return std::nullopt;
  return target.string();
}

int RootedMachine::OpenError(const std::string& path) const {
  const int fd = open(absl::StrCat(root_, path).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

std::vector<rdma::VerbsDevice> ThisMachine::VerbsDevices() const {
  return rdma::ListVerbsDevices();
}

rdma::ForkSupport ThisMachine::Fork() const { return rdma::GetForkSupport(); }

std::optional<KernelClock> ThisMachine::Clock() const {
  timex state = {};
  if (adjtimex(&state) < 0) return std::nullopt;
  const double tick_nominal = 1e6 / static_cast<double>(sysconf(_SC_CLK_TCK));
  constexpr double kFrequencyUnit =
      65536.0 * 1e6;  // of parts in a million, with 16 bits behind the point
  return KernelClock{static_cast<double>(state.tick) / tick_nominal - 1 +
                         static_cast<double>(state.freq) / kFrequencyUnit,
                     (state.status & STA_UNSYNC) == 0};
}

std::optional<std::string> ThisMachine::Run(const std::vector<std::string>& args) const {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return std::nullopt;
  const pid_t pid = Spawn(args, pipe_fds[1]);
  close(pipe_fds[1]);
  std::string out;
  const bool whole =
      pid > 0 && ReadAll(pipe_fds[0], Clock::now() + std::chrono::milliseconds(kCommandMsMax), out);
  close(pipe_fds[0]);
  if (pid <= 0) return std::nullopt;
  // The commands that run here end when they close their output.
  if (!whole) kill(pid, SIGKILL);
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !whole || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return std::nullopt;
  return out;
}

}  // namespace osprey::doctor
