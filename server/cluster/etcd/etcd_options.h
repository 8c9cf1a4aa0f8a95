// How etcd is reached: what a program's flags say, checked as a whole.
//
// Thread rule: plain functions and values.

#ifndef OSPREY_SERVER_CLUSTER_ETCD_ETCD_OPTIONS_H_
#define OSPREY_SERVER_CLUSTER_ETCD_ETCD_OPTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/cluster/etcd/etcd_http.h"
#include "server/cluster/etcd/etcd_uri.h"

namespace osprey {

struct EtcdOptions {
  EtcdUri uri;
  // Only for etcds://. A client's certificate is no substitute for a user. If etcd has authentication
  // enabled, its gateway refuses certificates with a common name (CN).
  TlsFiles tls;
  // Both or neither, and only for etcds://, since the password would be readable on the network. The
  // password is read for each new token.
  std::string user;
  std::string password_file;
};

// Whether the options fit each other, and the files can be read. Errors: INVALID_ARGUMENT,
// NOT_FOUND, PERMISSION_DENIED, each with the fix.
absl::Status CheckEtcdOptions(const EtcdOptions& options);

// The one line of a regular file, 1 to 1024 bytes. Only its owner, which is root or our effective
// user, may have access to it. Errors: those of CheckEtcdOptions, with the path.
absl::StatusOr<std::string> ReadPasswordFile(const std::string& path);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_ETCD_ETCD_OPTIONS_H_
