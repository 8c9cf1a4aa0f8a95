#include "tests/support/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cassert>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

extern char** environ;

namespace osprey {
namespace {

constexpr absl::Duration kPollEvery = absl::Milliseconds(2);
constexpr absl::Duration kReadyMax = absl::Seconds(60);  // on a loaded machine, with sanitizers
constexpr absl::Duration kStopMax = absl::Seconds(30);

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct Files {
  std::string in;
  std::string out;
  std::string err;
};

pid_t Spawn(std::vector<std::string> args, const std::vector<std::string>& more_environment,
            const Files& files) {
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable)
    environment.emplace_back(*variable);
  // The first of two equal names counts.
  environment.insert(environment.begin(), more_environment.begin(), more_environment.end());

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, files.in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, files.out.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, files.err.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, args[0].c_str(), &actions, nullptr, Pointers(args).data(),
                                 Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

int ExitStatusOf(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

// Waits until `pid` ends; kills it at `deadline`.
int WaitFor(pid_t pid, absl::Time deadline) {
  int wait_status = 0;
  while (waitpid(pid, &wait_status, WNOHANG) == 0) {
    if (absl::Now() > deadline) {
      kill(pid, SIGKILL);
      waitpid(pid, &wait_status, 0);
      break;
    }
    absl::SleepFor(kPollEvery);
  }
  return ExitStatusOf(wait_status);
}

// Sends options.signal to `pid`, a child that may end by itself, when `options` say so.
void SignalAt(pid_t pid, const std::string& out, const ProgramOptions& options,
              absl::Time deadline) {
  while (!absl::StrContains(ReadFile(out), options.signal_at)) {
    siginfo_t ended = {};
    waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (ended.si_pid == pid || absl::Now() > deadline) return;
    absl::SleepFor(kPollEvery);
  }
  absl::SleepFor(options.signal_delay);
  kill(pid, options.signal);
}

// The folders that this process made; they are removed when it ends.
class TemporaryDirectories {
 public:
  ~TemporaryDirectories() {
    if (getpid() != pid_) return;  // a fork of the test
    std::error_code ignored;
    for (const std::string& path : paths_) std::filesystem::remove_all(path, ignored);
  }
  void Add(std::string path) {
    const std::lock_guard<std::mutex> lock(mutex_);
    paths_.push_back(std::move(path));
  }

 private:
  const pid_t pid_ = getpid();
  std::mutex mutex_;
  std::vector<std::string> paths_;
};

}  // namespace

std::string NewTemporaryDirectory() {
  const char* base = getenv("TEST_TMPDIR");
  if (base == nullptr) base = getenv("TMPDIR");
  // A socket's path is at most 107 bytes, which Bazel's folders often exceed.
  std::string path = base != nullptr && absl::string_view(base).size() < 60 ? base : "/tmp";
  absl::StrAppend(&path, "/osprey.XXXXXX");
  const char* made = mkdtemp(path.data());
  assert(made != nullptr);
  static TemporaryDirectories directories;
  directories.Add(made);
  return made;
}

ProgramResult RunProgram(const std::vector<std::string>& args, const ProgramOptions& options) {
  const std::string directory = NewTemporaryDirectory();
  const Files files{directory + "/in",
                    options.out_file.empty() ? directory + "/out" : options.out_file,
                    directory + "/err"};
  std::ofstream(files.in, std::ios::binary) << options.input;
  ProgramResult result;
  const pid_t pid = Spawn(args, options.environment, files);
  if (pid > 0) {
    const absl::Time deadline = absl::Now() + options.timeout;
    if (!options.signal_at.empty()) SignalAt(pid, files.out, options, deadline);
    result.exit_status = WaitFor(pid, deadline);
  }
  if (options.out_file.empty()) result.out = ReadFile(files.out);
  result.err = ReadFile(files.err);
  for (const char* name : {"/in", "/out", "/err"}) unlink((directory + name).c_str());
  rmdir(directory.c_str());
  return result;
}

pid_t StartProgram(const std::vector<std::string>& args, const std::string& err_file) {
  return Spawn(args, {}, {"/dev/null", "/dev/null", err_file});
}

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(
    const std::string& listen, const std::vector<std::string>& flags, uint64_t open_files_max) {
  std::unique_ptr<ServerProcess> server(new ServerProcess());
  server->directory_ = NewTemporaryDirectory();
  const Files files{"/dev/null", server->directory_ + "/out", server->directory_ + "/err"};
  std::vector<std::string> args = {"server/kvserver", "--listen=" + listen, "--memory=64MiB"};
  args.insert(args.end(), flags.begin(), flags.end());
  if (open_files_max != 0) {
    const std::string limit = absl::StrCat("--nofile=", open_files_max, ":", open_files_max);
    args.insert(args.begin(), {"prlimit", limit});
  }
  server->pid_ = Spawn(args, {}, files);
  if (server->pid_ < 0) return absl::NotFoundError("server/kvserver cannot be run from here");

  const absl::Time deadline = absl::Now() + kReadyMax;
  while (absl::Now() < deadline) {
    for (absl::string_view line : absl::StrSplit(ReadFile(files.out), '\n')) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      if (words.size() < 2 || words[0] != "ready") continue;
      server->uri_ = words[1];
      return server;
    }
    int wait_status = 0;
    if (waitpid(server->pid_, &wait_status, WNOHANG) != 0) {
      server->pid_ = -1;
      return absl::AbortedError(absl::StrCat("kvserver ended with status ",
                                             ExitStatusOf(wait_status), ": ", ReadFile(files.err)));
    }
    absl::SleepFor(kPollEvery);
  }
  return absl::DeadlineExceededError("kvserver does not get ready");
}

std::string ServerProcess::Log() const { return ReadFile(directory_ + "/err"); }

uint16_t ServerProcess::MetricsPort() const {
  const std::vector<std::string> parts =
      absl::StrSplit(Log(), absl::MaxSplits("metrics at http://127.0.0.1:", 1));
  uint32_t port = 0;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts[1].substr(0, parts[1].find('/')), &port))
    return 0;
  return static_cast<uint16_t>(port);
}

int ServerProcess::Stop() {
  assert(pid_ > 0);
  kill(pid_, SIGTERM);
  return WaitFor(std::exchange(pid_, -1), absl::Now() + kStopMax);
}

ServerProcess::~ServerProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const char* name : {"/out", "/err"}) unlink((directory_ + name).c_str());
  rmdir(directory_.c_str());
}

bool InLab() { return std::getenv("LAB_IP") != nullptr; }

std::string NewListenAddress() {
  return InLab() ? absl::StrCat("rdma://", std::getenv("LAB_IP"), ":0")
                 : absl::StrCat("shm://", NewTemporaryDirectory(), "/socket");
}

int DescriptorsOf(pid_t pid) {
  std::error_code none;
  const std::filesystem::directory_iterator all(absl::StrCat("/proc/", pid, "/fd"), none);
  return none ? -1 : static_cast<int>(std::distance(begin(all), end(all)));
}

int64_t StatusNumber(pid_t pid, absl::string_view name) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  const std::string wanted = absl::StrCat(name, ":");
  int64_t number = 0;
  for (std::string word; status >> word;) {
    if (word == wanted && status >> number) return number;
  }
  assert(!"no such process, or no such number of it");
  return -1;
}

std::string StatIn(absl::string_view stats, absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(stats, '\n')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (pair.first == name) return std::string(pair.second);
  }
  return "";
}

}  // namespace osprey
