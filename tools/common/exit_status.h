// The exit status of every Osprey tool, on which scripts rely.

#ifndef OSPREY_TOOLS_COMMON_EXIT_STATUS_H_
#define OSPREY_TOOLS_COMMON_EXIT_STATUS_H_

#include "absl/status/status.h"

namespace osprey {

enum class ExitStatus {
  kDone = 0,
  kNo = 1,             // not found, or a condition not met
  kUsage = 2,          // the command line is wrong; nothing was done
  kCannotConnect = 3,  // no server, or no route to it
  kFailed = 4,         // any other failure
};

// The status for an operation on a connected Client. (A failure to connect is kCannotConnect with
// any code.)
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

#endif  // OSPREY_TOOLS_COMMON_EXIT_STATUS_H_
