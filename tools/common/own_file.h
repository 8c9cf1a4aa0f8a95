// Files that a program writes by name, in folders that other users may write to, such as /tmp.
//
// A name that is easy to predict may be taken: by a symbolic link, a FIFO, a hard link or a file of
// another user. So a file is created (O_EXCL, mode 0600) and never found; one that an
// earlier run left is opened only if it is a regular file of this user with one name.
//
// Thread rule: plain functions.

#ifndef OSPREY_TOOLS_COMMON_OWN_FILE_H_
#define OSPREY_TOOLS_COMMON_OWN_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rdma/unique_fd.h"

namespace osprey {

// Creates `path`, with mode 0600, to be read and written. What has that name is removed first,
// unless it is a folder. Errors: UNKNOWN, with the path and what to do.
absl::StatusOr<rdma::UniqueFd> CreateOwnFile(const std::string& path);

// Opens what an earlier run of this user created, to be read and written; `flags` adds to that
// (O_APPEND, O_CREAT). Never blocks. Errors: NOT_FOUND: there is nothing; UNKNOWN: it is no regular file of
// this user with one name, or cannot be opened, with the path and what to do.
absl::StatusOr<rdma::UniqueFd> OpenOwnFile(const std::string& path, int flags = 0);

// All of `fd` from its beginning, at most `bytes_max`. Errors: UNKNOWN, with the path.
absl::StatusOr<std::string> ReadOwnFile(const rdma::UniqueFd& fd, const std::string& path,
                                        size_t bytes_max);

// Gives `path` the contents `text`: writes `path`.part, and renames it. Errors: UNKNOWN, with the
// path and what to do; `path` is as it was.
absl::Status ReplaceOwnFile(const std::string& path, absl::string_view text);

// Whether the name `path` is still that of the open file `fd`.
bool IsStillNamed(int fd, const std::string& path);

// Whether another file can take the name `path` later: it is free, or that of a regular file which
// this user may replace. Looks and changes nothing. Errors: UNKNOWN, with the path and what to do.
absl::Status CheckReplaceable(const std::string& path);

}  // namespace osprey

#endif  // OSPREY_TOOLS_COMMON_OWN_FILE_H_
