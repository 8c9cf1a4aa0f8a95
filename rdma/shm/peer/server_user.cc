#include "rdma/shm/peer/server_user.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey::rdma {
namespace {

// As many as the kernel follows in one path.
constexpr int kSymlinksMax = 40;

// Walks to a directory from the root, as the kernel does, and looks at each directory and symlink.
class Walk {
 public:
  Walk(uid_t server, uid_t client) : server_(server), client_(client) {}

  // Empty if the directory is the server's, and each on the way can be written to by users alone
  // that the client trusts. Otherwise what is wrong.
  std::string To(const std::filesystem::path& directory) {
    Prepend(directory);
    std::string wrong = Enter("/");
    while (wrong.empty() && !rest_.empty()) {
      const std::filesystem::path name = std::move(rest_.front());
      rest_.pop_front();
      // A parent was judged on the way here.
      wrong = Enter(name == ".." ? at_.parent_path() : at_ / name);
    }
    if (wrong.empty() && owner_ != server_)
      return absl::StrCat(at_.string(), " belongs to user ", owner_);
    return wrong;
  }

 private:
  void Prepend(const std::filesystem::path& path) {
    std::deque<std::filesystem::path> names;
    for (const std::filesystem::path& name : path) {
      if (name != "/" && name != "." && !name.empty()) names.push_back(name);
    }
    rest_.insert(rest_.begin(), names.begin(), names.end());
  }

  std::string Enter(const std::filesystem::path& next) {
    struct stat info;
    if (lstat(next.c_str(), &info) != 0)
      return absl::StrCat("stat ", next.string(), ": ", std::strerror(errno));
    if (info.st_uid != 0 && info.st_uid != client_ && info.st_uid != server_)
      return absl::StrCat(next.string(), " belongs to user ", info.st_uid);
    if (S_ISLNK(info.st_mode)) return Follow(next);
    constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
    if ((info.st_mode & kOthersWrite) != 0)
      return absl::StrCat("more users than its owner may write to ", next.string());
    at_ = next;
    owner_ = info.st_uid;
    return "";
  }

  std::string Follow(const std::filesystem::path& symlink) {
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(symlink, error);
    if (error) return absl::StrCat("readlink ", symlink.string(), ": ", error.message());
    if (++symlinks_ > kSymlinksMax) return absl::StrCat(symlink.string(), " is a loop of symlinks");
    Prepend(target);
    return target.is_absolute() ? Enter("/") : "";
  }

  const uid_t server_, client_;
  std::deque<std::filesystem::path> rest_;  // still to be entered
  std::filesystem::path at_;                // entered last
  uid_t owner_ = 0;                         // of `at_`
  int symlinks_ = 0;
};

}  // namespace

absl::Status CheckServerUser(const std::string& path, uid_t server, uid_t client) {
  if (server == 0 || server == client) return absl::OkStatus();
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  const std::string wrong =
      error ? error.message() : Walk(server, client).To(absolute.parent_path());
  if (wrong.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "the server at ", path, " runs as user ", server, ", which this user does not trust: ", wrong,
      "; use an authentication key, or have the server listen in a directory of its own user, "
      "such as /run/osprey"));
}

}  // namespace osprey::rdma
