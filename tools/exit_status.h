// The exit status of every Osprey tool: what scripts rely on.

#ifndef OSPREY_TOOLS_EXIT_STATUS_H_
#define OSPREY_TOOLS_EXIT_STATUS_H_

#include "absl/status/status.h"

namespace osprey {

enum class ExitStatus {
  kDone = 0,
  kNo = 1,             // not found, or a condition not met
  kUsage = 2,          // the command line is wrong; nothing was done
  kCannotConnect = 3,  // no server, or no way to it
  kFailed = 4,         // anything else
};

// Of an operation's status on a connected Client. (A connection that cannot be had is
// kCannotConnect whatever its code.)
inline ExitStatus ExitStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitStatus::kDone;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
      return ExitStatus::kNo;
    case absl::StatusCode::kInvalidArgument:
      return ExitStatus::kUsage;
    case absl::StatusCode::kUnavailable:
      return ExitStatus::kCannotConnect;
    default:
      return ExitStatus::kFailed;
  }
}

}  // namespace osprey

#endif  // OSPREY_TOOLS_EXIT_STATUS_H_
