// Programs run by tests: a command from start to end, and a kvserver in the background.
//
// Under Bazel, and in the lab, the working directory is the runfiles folder. So "tools/kvcli" is
// the program just built.

#ifndef OSPREY_TESTS_SUPPORT_SUBPROCESS_H_
#define OSPREY_TESTS_SUPPORT_SUBPROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace osprey {

struct ProgramResult {
  int exit_status = -1;  // 128 + N if signal N ended it, as in a shell
  std::string out;
  std::string err;
};

struct ProgramOptions {
  std::string input;                     // standard input
  std::vector<std::string> environment;  // NAME=VALUE, added to the test's environment
  std::string out_file;                  // standard output goes there instead of ProgramResult::out
  absl::Duration timeout = absl::Seconds(60);  // after this time it is killed
  // Sends `signal` once this is in the standard output, and `signal_delay` has passed; empty: never.
  std::string signal_at;
  int signal = SIGTERM;
  absl::Duration signal_delay;
};

// Runs args[0] (found by PATH if it has no slash) and waits for its end.
ProgramResult RunProgram(const std::vector<std::string>& args, const ProgramOptions& options = {});

// Starts args[0] (found by PATH if it has no slash) in the background, its standard error into
// `err_file`. The caller ends it and waits for it. Returns -1 if it cannot be run.
pid_t StartProgram(const std::vector<std::string>& args, const std::string& err_file);

// A kvserver. Killed on destruction if it still runs.
class ServerProcess {
 public:
  // Starts "kvserver --listen=`listen` --memory=64MiB …" and waits until it is ready.
  // It may open `open_files_max` files (its hard limit); 0: as many as this process.
  // Errors: what the server wrote to stderr, if it ended instead; DEADLINE_EXCEEDED.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(
      const std::string& listen, const std::vector<std::string>& flags = {},
      uint64_t open_files_max = 0);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // The URI in its ready line.
  const std::string& uri() const { return uri_; }
  pid_t pid() const { return pid_; }
  // Its output to stderr so far.
  std::string Log() const;
  // Of its metrics, on 127.0.0.1; 0 if its log tells none.
  uint16_t MetricsPort() const;

  // Sends SIGTERM, waits for the end, and returns the exit status. At most once.
  int Stop();

 private:
  ServerProcess() = default;

  std::string directory_;  // for its output
  std::string uri_;
  pid_t pid_ = -1;  // -1 once it has been waited for
};

// Whether this runs in the lab, where servers listen over RDMA.
bool InLab();

// The address for a test's server: in the lab a free port of the RDMA device, else a new socket.
std::string NewListenAddress();

// The descriptors that a process has open; -1: there is no such process.
int DescriptorsOf(pid_t pid);
// A number of /proc/PID/status, in KiB where it is a size: "VmPin", say.
// REQUIRES: the process has it.
int64_t StatusNumber(pid_t pid, absl::string_view name);

// The value of `name` in a server's statistics ("name=value" lines); "" if it is not in them.
std::string StatIn(absl::string_view stats, absl::string_view name);

// A new folder on a file system that supports sockets; removed with all in it when this process ends.
std::string NewTemporaryDirectory();

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_SUBPROCESS_H_
