#include "server/cluster/etcd/etcd_options.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rdma/unique_fd.h"
#include "server/cluster/etcd/etcd_messages.h"

namespace osprey {
namespace {

constexpr size_t kPasswordBytesMax = 1024;

absl::Status CannotRead(absl::string_view file, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", file));
}

}  // namespace

absl::StatusOr<std::string> ReadPasswordFile(const std::string& path) {
  const std::string file = absl::StrCat("the file of etcd's password, ", path, ",");
  // Nonblocking, since open() of a pipe would wait for its writer.
  const rdma::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (!fd.valid() || fstat(fd.get(), &info) != 0) return CannotRead(file, errno);
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(file, " is not a regular file"));
  if ((info.st_uid != geteuid() && info.st_uid != 0) || (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(file, " is open to other users; chown it to this user, and chmod 600"));
  }
  std::array<char, kPasswordBytesMax + 2> bytes;
  const ssize_t size = read(fd.get(), bytes.data(), bytes.size());
  if (size < 0) return CannotRead(file, errno);
  std::string password(bytes.data(), static_cast<size_t>(size));
  if (!password.empty() && password.back() == '\n') password.pop_back();
  if (password.empty() || password.size() > kPasswordBytesMax ||
      password.find('\n') != password.npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, " must hold one line of 1 to ", kPasswordBytesMax, " bytes"));
  }
  return password;
}

absl::Status CheckEtcdOptions(const EtcdOptions& options) {
  assert(!options.uri.endpoints.empty());
  const TlsFiles& tls = options.tls;
  const std::string uri = options.uri.ToString();
  const std::pair<absl::string_view, const std::string*> files[] = {
      {"the certificate of etcd's CA, ", &tls.ca},
      {"etcd's client certificate, ", &tls.certificate},
      {"the key of etcd's client certificate, ", &tls.key}};
  for (const auto& [what, path] : files) {
    if (path->empty()) continue;
    if (!options.uri.is_tls)
      return absl::InvalidArgumentError(
          absl::StrCat(what, *path, ", is of no use for ", uri, "; write etcds:// for TLS"));
    if (access(path->c_str(), R_OK) != 0) return CannotRead(absl::StrCat(what, *path), errno);
  }
  if (tls.certificate.empty() != tls.key.empty())
    return absl::InvalidArgumentError("etcd's client certificate lacks its key; give both or none");
  if (options.user.empty() != options.password_file.empty())
    return absl::InvalidArgumentError(
        "etcd's user lacks a file of the password; give both or none");
  if (options.user.empty()) return absl::OkStatus();
  if (!options.uri.is_tls)
    return absl::InvalidArgumentError(
        absl::StrCat("the password of etcd's user '", Excerpt(options.user),
                     "' would be readable on the way to ", uri, "; write etcds:// for TLS"));
  return ReadPasswordFile(options.password_file).status();
}

}  // namespace osprey
