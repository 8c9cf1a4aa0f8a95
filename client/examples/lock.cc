// lock SERVER NAME LEASE_S COMMAND…: runs a command while it holds a lock. A holder that dies loses the lock after LEASE_S.
//
// The lock is a key with a time to live, renewed while the command runs. If that fails, the command is killed before the key
// expires, unless this process itself is stopped.

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "client/client.h"

namespace {

// Seconds since the machine started.
double Now() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Lock {
 public:
  Lock(osprey::Client& client, const std::string& name, double lease_s)
      : client_(client), key_("lock/" + name), lease_s_(lease_s) {}

  // Takes or renews: the key must be absent, or as this holder wrote it last.
  absl::Status Hold() {
    const double before = Now();
    const osprey::WriteOptions options{.if_absent = version_ == 0,
                                       .if_version = version_,
                                       .ttl = absl::Seconds(lease_s_),
                                       .deadline = Patience()};
    const absl::StatusOr<uint64_t> version = client_.Put(key_, holder_, options);
    if (version.ok()) {
      version_ = *version;
      safe_until_ = before + 0.75 * lease_s_;  // the server counts from later on
      return absl::OkStatus();
    }
    // An earlier attempt without an answer may have been applied: the next one continues from there.
    const absl::StatusOr<osprey::Value> present = client_.Get(key_, Patience());
    if (present.ok() && present->bytes == holder_) version_ = present->version;
    if (absl::IsNotFound(present.status()) && safe_until_ == 0) version_ = 0;
    return version.status();
  }

  // Only its own: the key of the next holder has another version.
  absl::Status Release() { return client_.Delete(key_, {.if_version = version_}).status(); }

  bool IsSafe() const { return Now() < safe_until_; }

 private:
  // At most a second: deadlines keep their bound (kDeadlineMax) with any lease.
  absl::Duration Patience() const { return absl::Seconds(std::min(lease_s_ / 20, 1.0)); }
  osprey::Client& client_;
  std::random_device random_;
  const std::string key_;
  const std::string holder_ = std::to_string((uint64_t{random_()} << 32) | random_());
  const double lease_s_;
  uint64_t version_ = 0;   // of this holder's last write; 0: none
  double safe_until_ = 0;  // 0: never held
};

int Fail(const std::string& why) { return std::fprintf(stderr, "lock: %s\n", why.c_str()), 1; }

}  // namespace

int main(int argc, char** argv) {
  // Below 2 s a loaded machine renews too late; above 24 h a dead holder blocks others for days.
  const int lease_s = argc > 4 ? std::atoi(argv[3]) : 0;
  if (lease_s < 2 || lease_s > 86400)
    return Fail("usage: lock SERVER NAME LEASE_S COMMAND…, LEASE_S from 2 to 86400");
  auto client = osprey::Client::Connect(argv[1]);
  if (!client.ok()) return Fail(client.status().ToString());
  Lock lock(**client, argv[2], lease_s);
  for (absl::Status held = lock.Hold(); !held.ok(); held = lock.Hold()) {
    if (absl::IsInvalidArgument(held)) return Fail(held.ToString());
    usleep(50'000);
  }
  pid_t command;
  int status = 0;
  if (posix_spawnp(&command, argv[4], nullptr, nullptr, argv + 4, environ) != 0)
    return lock.Release().IgnoreError(), Fail(std::string("cannot run ") + argv[4]);
  for (double renewed = Now(); waitpid(command, &status, WNOHANG) == 0; usleep(5'000)) {
    if (Now() - renewed > std::min(lease_s / 4.0, 1.0) && lock.Hold().ok()) renewed = Now();
    if (lock.IsSafe()) continue;
    kill(command, SIGKILL);
    return Fail("the lock is lost, the command was killed");
  }
  if (absl::Status released = lock.Release(); !released.ok()) return Fail(released.ToString());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
