#include "tests/support/pty_process.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace osprey {

absl::StatusOr<std::unique_ptr<PtyProcess>> PtyProcess::Start(
    const std::vector<std::string>& args, const std::vector<std::string>& environment) {
  // All resources of the child are made before the fork.
  std::vector<char*> words;
  for (const std::string& arg : args) words.push_back(const_cast<char*>(arg.c_str()));
  words.push_back(nullptr);
  auto process = std::unique_ptr<PtyProcess>(new PtyProcess());
  winsize size = {};
  size.ws_col = 100;
  size.ws_row = 40;
  process->pid_ = forkpty(&process->fd_, nullptr, nullptr, &size);
  if (process->pid_ < 0) return absl::UnknownError(absl::StrCat("forkpty: ", std::strerror(errno)));
  if (process->pid_ == 0) {
    for (const std::string& variable : environment) putenv(const_cast<char*>(variable.c_str()));
    execvp(words[0], words.data());
    _exit(127);
  }
  return process;
}

PtyProcess::~PtyProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (fd_ >= 0) close(fd_);
}

void PtyProcess::Type(const std::string& keys) {
  // (A terminal takes far more at once than any test types.)
  const ssize_t count = write(fd_, keys.data(), keys.size());
  (void)count;
}

bool PtyProcess::ReadSome(absl::Duration most) {
  pollfd fd = {fd_, POLLIN, 0};
  const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(most)) + 1;
  if (poll(&fd, 1, milliseconds) <= 0) return true;
  char piece[4096];
  const ssize_t count = read(fd_, piece, sizeof(piece));
  if (count <= 0) return false;  // EIO: no process has the terminal open
  screen_.append(piece, static_cast<size_t>(count));
  return true;
}

bool PtyProcess::Await(const std::string& text, absl::Duration most) {
  const absl::Time end = absl::Now() + most;
  while (true) {
    const size_t found = screen_.find(text, seen_);
    if (found != std::string::npos) {
      seen_ = found + text.size();
      return true;
    }
    const absl::Duration left = end - absl::Now();
    if (left <= absl::ZeroDuration() || !ReadSome(left)) return false;
  }
}

int PtyProcess::AwaitEnd(absl::Duration most) {
  const absl::Time end = absl::Now() + most;
  while (absl::Now() < end) {
    // Continues to read, or the program may block on its terminal.
    const bool open = ReadSome(absl::Milliseconds(20));
    int status = 0;
    if (waitpid(pid_, &status, open ? WNOHANG : 0) != pid_) continue;
    pid_ = -1;
    while (ReadSome(absl::ZeroDuration()) && absl::Now() < end) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return -1;
}

}  // namespace osprey
