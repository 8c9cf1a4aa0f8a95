#include "server/config/host_limits.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/program/size_flag.h"

namespace osprey::server {
namespace {

rlimit Descriptors() {
  rlimit limit = {};
  // It fails for no limit that exists.
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

uint32_t Cpus() {
  cpu_set_t cpus;
  // More CPUs than the set has room for: no warning.
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return UINT32_MAX;
  return static_cast<uint32_t>(CPU_COUNT(&cpus));
}

}  // namespace

Machine ThisMachine() {
  Machine machine;
  machine.memory_bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  machine.descriptors_max = Descriptors().rlim_max;
  machine.cpus = Cpus();
  return machine;
}

absl::Status CheckMachine(const Config& config, const Machine& machine) {
  if (config.memory_bytes > machine.memory_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--memory: ", FormatSize(config.memory_bytes), " is more than this machine has, ",
        machine.memory_bytes >> 20, "MiB in all; write less"));
  }
  if (DescriptorsFor(config) > machine.descriptors_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--connections-max: for ", config.connections_max, " the process must be able to have ",
        DescriptorsFor(config), " files open, and it may have ", machine.descriptors_max,
        " (ulimit -Hn); raise that, or write less"));
  }
  return absl::OkStatus();
}

std::string WarningAbout(const Config& config, const Machine& machine) {
  if (config.pollers == 1 || config.poll == PollMode::kEvent) return "";
  const bool has_clients_here = std::any_of(
      config.listen.begin(), config.listen.end(),
      [](const rdma::Address& address) { return address.scheme == rdma::Address::Scheme::kShm; });
  if (config.pollers + (has_clients_here ? 1 : 0) <= machine.cpus) return "";
  return absl::StrCat("warning: --pollers=", config.pollers,
                      has_clients_here ? " and clients over shm" : "", " share ", machine.cpus,
                      machine.cpus == 1 ? " CPU" : " CPUs",
                      ": writes wait for pollers that do not run; --pollers=",
                      std::max(1u, machine.cpus - (has_clients_here ? 1 : 0)), " fits");
}

uint32_t MemoriesPerClient(const Config& config, const Machine& machine) {
  const uint64_t spare = machine.descriptors_max - DescriptorsFor(config);
  return static_cast<uint32_t>(
      std::min<uint64_t>(kMemoriesLeast + spare / config.connections_max, UINT32_MAX));
}

void AllowDescriptors() {
  rlimit limit = Descriptors();
  // Up to the hard limit every process may.
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace osprey::server
