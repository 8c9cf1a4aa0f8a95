// A program on its own terminal, for interactive tests.

#ifndef OSPREY_TESTS_SUPPORT_PTY_PROCESS_H_
#define OSPREY_TESTS_SUPPORT_PTY_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace osprey {

class PtyProcess {
 public:
  // Runs args[0] in a terminal of 100 columns, with NAME=VALUE of `environment` added to the test's
  // environment.
  static absl::StatusOr<std::unique_ptr<PtyProcess>> Start(
      const std::vector<std::string>& args, const std::vector<std::string>& environment = {});
  // Killed if it still runs.
  ~PtyProcess();
  PtyProcess(const PtyProcess&) = delete;
  PtyProcess& operator=(const PtyProcess&) = delete;

  // Types `keys`. "\n" is the return key; "\x03" Ctrl-C, "\x04" Ctrl-D, "\t" the tabulator.
  void Type(const std::string& keys);
  // Waits until `text` appears in the output since the last successful call; false after the
  // timeout.
  bool Await(const std::string& text, absl::Duration most = absl::Seconds(20));
  // All output from the start.
  const std::string& screen() const { return screen_; }
  // Waits for its end. Returns the exit status, 128 + N for signal N, or -1 after the timeout.
  int AwaitEnd(absl::Duration most = absl::Seconds(20));
  pid_t pid() const { return pid_; }

 private:
  PtyProcess() = default;
  // False at the end of output.
  bool ReadSome(absl::Duration most);

  int fd_ = -1;
  pid_t pid_ = -1;
  std::string screen_;
  size_t seen_ = 0;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_PTY_PROCESS_H_
