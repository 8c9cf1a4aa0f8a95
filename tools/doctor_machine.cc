#include "tools/doctor_machine.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

extern char** environ;

namespace osprey::doctor {
namespace {

using Clock = std::chrono::steady_clock;

struct FreeDevices {
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
};
struct CloseDevice {
  void operator()(ibv_context* context) const { (void)ibv_close_device(context); }
};

int BytesOf(ibv_mtu mtu) { return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0; }

VerbsDevice Describe(ibv_device* device) {
  VerbsDevice result;
  result.name = ibv_get_device_name(device);
  const std::unique_ptr<ibv_context, CloseDevice> context(ibv_open_device(device));
  if (context == nullptr) {
    result.error = std::strerror(errno);
    return result;
  }
  ibv_device_attr attributes = {};
  if (const int error = ibv_query_device(context.get(), &attributes); error != 0) {
    result.error = std::strerror(error);
    return result;
  }
  result.queue_pairs_max = attributes.max_qp;
  for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
    ibv_port_attr port = {};
    if (ibv_query_port(context.get(), static_cast<uint8_t>(number), &port) != 0) continue;
    result.ports.push_back({number, BytesOf(port.active_mtu)});
  }
  return result;
}

// What comes out of `fd` until its end, within the time. False: too late, or too much.
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
  // Not by its size, which is 0 for files of /proc and a page for those of /sys.
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

std::vector<VerbsDevice> ThisMachine::VerbsDevices() const {
  int count = 0;
  const std::unique_ptr<ibv_device*, FreeDevices> list(ibv_get_device_list(&count));
  std::vector<VerbsDevice> devices;
  for (int i = 0; list != nullptr && i < count; ++i) devices.push_back(Describe(list.get()[i]));
  return devices;
}

ForkSupport ThisMachine::Fork() const {
  // The first listing of devices is what makes libibverbs look at its environment.
  int count = 0;
  const std::unique_ptr<ibv_device*, FreeDevices> list(ibv_get_device_list(&count));
  switch (ibv_is_fork_initialized()) {
    case IBV_FORK_UNNEEDED:
      return ForkSupport::kUnneeded;
    case IBV_FORK_ENABLED:
      return ForkSupport::kEnabled;
    case IBV_FORK_DISABLED:
      return ForkSupport::kDisabled;
  }
  return ForkSupport::kDisabled;
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
  // Those that are run here end when their output does.
  if (!whole) kill(pid, SIGKILL);
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !whole || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return std::nullopt;
  return out;
}

}  // namespace osprey::doctor
