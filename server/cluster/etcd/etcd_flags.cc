#include "server/cluster/etcd/etcd_flags.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/cluster/etcd/etcd_uri.h"

namespace osprey {
namespace {

// The flag is the cause of an error if the options were right without it.
absl::Status CheckFlag(absl::string_view flag, const EtcdOptions& options) {
  const absl::Status status = CheckEtcdOptions(options);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--", flag, ": ", status.message()));
}

}  // namespace

absl::StatusOr<EtcdOptions> MakeEtcdOptions(const EtcdFlags& flags) {
  absl::StatusOr<EtcdUri> uri = ParseEtcdUri(flags.uri);
  if (!uri.ok()) return uri.status();
  EtcdOptions options;
  options.uri = *std::move(uri);
  options.tls.ca = flags.ca_file;
  if (absl::Status status = CheckFlag("cluster-ca-file", options); !status.ok()) return status;
  options.tls.certificate = flags.certificate_file;
  options.tls.key = flags.certificate_key_file;
  const bool is_key_alone = flags.certificate_file.empty();
  if (absl::Status status = CheckFlag(
          is_key_alone ? "cluster-certificate-key-file" : "cluster-certificate-file", options);
      !status.ok())
    return status;
  options.user = flags.user;
  options.password_file = flags.password_file;
  const bool is_password_alone = flags.user.empty();
  if (absl::Status status =
          CheckFlag(is_password_alone ? "cluster-password-file" : "cluster-user", options);
      !status.ok())
    return status;
  return options;
}

}  // namespace osprey
