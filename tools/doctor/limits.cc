#include <linux/capability.h>

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "server/program/size_flag.h"
#include "tools/doctor/checks.h"

namespace osprey::doctor {
namespace {

using Json = nlohmann::json;
using server::FormatSize;

constexpr uint64_t kKiB = 1024;
// Besides the table a server pins the frames of each connection (rdma/open_domain.h), some 124 KiB.
// This is enough for five hundred clients, more than a first installation needs.
constexpr uint64_t kFramesBytes = uint64_t{64} << 20;
// A few queue pairs are in error for a moment only, and are ignored.
constexpr int kBrokenQueuePairsMax = 64;
constexpr double kQueuePairsShareMax = 0.8;
// The limit of processes that a message names.
constexpr size_t kNamedMax = 5;

// The first word behind `name` at the beginning of a line ("MemTotal:   4 kB"); empty if there is
// none.
std::string FieldOf(const std::string& text, const std::string& name) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, name)) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line.substr(name.size()), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    return words.empty() ? "" : words.front();
  }
  return "";
}

uint64_t NumberOf(const std::string& text, const std::string& name) {
  uint64_t number = 0;
  return absl::SimpleAtoi(FieldOf(text, name), &number) ? number : 0;
}

bool MayLockWithoutLimit(const Machine& machine) {
  uint64_t effective = 0;
  return absl::SimpleHexAtoi(FieldOf(machine.Read("/proc/self/status").value_or(""), "CapEff:"),
                             &effective) &&
         ((effective >> CAP_IPC_LOCK) & 1) != 0;
}

void CheckMemlock(const Machine& machine, uint64_t bytes, size_t devices,
                  std::vector<Finding>& findings) {
  // Prevents an overflow, far above the memory of any machine.
  const uint64_t most = (UINT64_MAX / 2 - kFramesBytes) / devices;
  const uint64_t needed = std::min(bytes, most) * devices + kFramesBytes;
  const std::string wanted =
      absl::StrCat("a table of ", FormatSize(bytes), " and 100 clients pin ", FormatSize(needed));
  if (MayLockWithoutLimit(machine)) {
    findings.push_back(
        {Outcome::kPass, "memlock", absl::StrCat(wanted, ", and CAP_IPC_LOCK has no limit"), {}});
    return;
  }
  const std::string limits = machine.Read("/proc/self/limits").value_or("");
  const std::string soft = FieldOf(limits, "Max locked memory");
  uint64_t limit = 0;
  if (soft == "unlimited") {
    findings.push_back(
        {Outcome::kPass, "memlock", absl::StrCat(wanted, ", and there is no limit"), {}});
    return;
  }
  if (!absl::SimpleAtoi(soft, &limit)) {
    findings.push_back({Outcome::kSkip, "memlock", "/proc/self/limits cannot be read", {}});
    return;
  }
  const std::string what =
      absl::StrCat(wanted, ", and ", FormatSize(limit), " may be locked (ulimit -l)");
  if (needed <= limit) {
    findings.push_back({Outcome::kPass, "memlock", what, {}});
    return;
  }
  Finding finding{Outcome::kFail, "memlock", what, {}};
  finding.fixes.push_back(absl::StrCat("ulimit -l ", (needed + kKiB - 1) / kKiB,
                                       "   # as root; or: ulimit -l unlimited"));
  finding.fixes.push_back(InContainer(machine) ? "docker run --ulimit memlock=-1 …"
                                               : "LimitMEMLOCK=infinity   # in a systemd unit");
  findings.push_back(std::move(finding));
}

void CheckMemory(const Machine& machine, uint64_t bytes, std::vector<Finding>& findings) {
  const std::string text = machine.Read("/proc/meminfo").value_or("");
  const uint64_t total = NumberOf(text, "MemTotal:") * kKiB;
  const uint64_t free = NumberOf(text, "MemAvailable:") * kKiB;
  if (total == 0) {
    findings.push_back({Outcome::kSkip, "memory", "/proc/meminfo cannot be read", {}});
    return;
  }
  const uint64_t mib = uint64_t{1} << 20;
  const std::string what = absl::StrCat("a table of ", FormatSize(bytes), ", ", free / mib,
                                        " MiB available of ", total / mib, " MiB");
  if (bytes <= free) {
    findings.push_back({Outcome::kPass, "memory", what, {}});
  } else {
    findings.push_back(
        {bytes > total ? Outcome::kFail : Outcome::kWarn,
         "memory",
         what,
         {absl::StrCat("kvserver --memory=", free / 4 * 3 / mib, "MiB   # or end what uses it")}});
  }
  const uint64_t page = NumberOf(text, "Hugepagesize:") * kKiB;
  if (page == 0) return;  // a kernel without huge pages
  const uint64_t pages = NumberOf(text, "HugePages_Total:");
  const uint64_t pages_free = NumberOf(text, "HugePages_Free:");
  const uint64_t needed = bytes / page + (bytes % page != 0 ? 1 : 0);
  const std::string set = absl::StrCat("sysctl -w vm.nr_hugepages=", pages - pages_free + needed);
  if (pages == 0) {
    findings.push_back(
        {Outcome::kPass,
         "huge pages",
         absl::StrCat("none are set aside; kvserver --huge-pages would use them after ", set),
         {}});
  } else if (pages_free < needed) {
    findings.push_back(
        {Outcome::kWarn,
         "huge pages",
         absl::StrCat(pages_free, " of ", FormatSize(page), " are free, and a table of ",
                      FormatSize(bytes), " takes ", needed, ": kvserver would use ordinary ones"),
         {set}});
  } else {
    findings.push_back({Outcome::kPass,
                        "huge pages",
                        absl::StrCat(pages_free, " of ", FormatSize(page),
                                     " are free, enough for kvserver --huge-pages"),
                        {}});
  }
}

void CheckContainer(const Machine& machine, bool devices, std::vector<Finding>& findings) {
  const std::optional<std::string> own = machine.Link("/proc/self/ns/net");
  const std::optional<std::string> first = machine.Link("/proc/1/ns/net");
  if (InContainer(machine)) {
    findings.push_back({Outcome::kPass,
                        "container",
                        "this is one; soft-RoCE works in the host's network namespace alone "
                        "(--network=host)",
                        {}});
  } else if (own.has_value() && first.has_value() && *own != *first) {
    findings.push_back(
        {devices ? Outcome::kWarn : Outcome::kPass,
         "container",
         "this process is in a network namespace of its own, where soft-RoCE does not work",
         {"nsenter --net --target 1 kvserver …   # outside of the namespace"}});
    if (!devices) findings.back().fixes.clear();
  } else {
    findings.push_back({Outcome::kPass, "container", "this is none", {}});
  }
}

void CheckFork(const Machine& machine, std::vector<Finding>& findings) {
  switch (machine.Fork()) {
    case rdma::ForkSupport::kUnneeded:
      findings.push_back(
          {Outcome::kPass, "fork", "the kernel copies pinned pages when a process forks", {}});
      return;
    case rdma::ForkSupport::kEnabled:
      findings.push_back({Outcome::kPass, "fork", "libibverbs protects pinned pages", {}});
      return;
    case rdma::ForkSupport::kDisabled:
      findings.push_back({Outcome::kWarn,
                          "fork",
                          "a client's process that forks (system, popen) may lose pages that it "
                          "has registered",
                          {"export RDMAV_FORK_SAFE=1"}});
      return;
  }
}

// Resources of processes besides queue pairs, under their names in rdma(8).
constexpr const char* kOtherResources[] = {"cm_id", "cq", "mr", "pd"};

struct Holder {
  std::string name;  // "kvserver (123)"
  int queue_pairs = 0;
  int broken = 0;
  std::map<std::string, int> others;  // of kOtherResources
  bool alive = true;
};

// "kvserver (123): 40 queue pairs, 2 in error"
std::string Describe(const Holder& holder) {
  std::string text = absl::StrCat(holder.name, ": ", holder.queue_pairs, " queue pairs");
  if (holder.broken > 0) absl::StrAppend(&text, ", ", holder.broken, " in error");
  // A live process needs its resources.
  if (holder.alive) return text;
  for (const auto& [kind, count] : holder.others) absl::StrAppend(&text, ", ", count, " ", kind);
  return text + ", and the process has ended";
}

// The objects of one kind that processes hold; nullopt if rdma(8) does not list them.
std::optional<std::vector<Json>> ResourcesOf(const Machine& machine, const std::string& kind) {
  const std::optional<std::string> text = machine.Run({"rdma", "-j", "resource", "show", kind});
  if (!text.has_value()) return std::nullopt;
  const Json list = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return std::nullopt;
  std::vector<Json> entries;
  for (const Json& entry : list) {
    // The kernel's own objects have no process, and those of other PID namespaces have 0.
    if (!entry.is_object() || !entry.contains("pid") || !entry["pid"].is_number_integer()) continue;
    if (entry["pid"].get<int64_t>() > 0) entries.push_back(entry);
  }
  return entries;
}

// The "process" in the output of rdma(8) is the thread that made the object.
int64_t ProcessOf(const Machine& machine, int64_t thread) {
  const std::optional<std::string> status = machine.Read(absl::StrCat("/proc/", thread, "/status"));
  for (const absl::string_view line : absl::StrSplit(status.value_or(""), '\n')) {
    int64_t pid = 0;
    if (absl::StartsWith(line, "Tgid:") && absl::SimpleAtoi(line.substr(5), &pid)) return pid;
  }
  return thread;
}

Holder& HolderOf(const Machine& machine, const Json& entry, std::map<int64_t, Holder>& holders) {
  const auto thread = entry["pid"].get<int64_t>();
  const int64_t pid = ProcessOf(machine, thread);
  Holder& holder = holders[pid];
  if (holder.name.empty()) {
    const Json command = entry.contains("comm") ? entry["comm"] : Json("?");
    // (A process can set its name to anything.)
    std::string name = command.is_string() ? command.get<std::string>() : "?";
    if (pid != thread) name = machine.Read(absl::StrCat("/proc/", pid, "/comm")).value_or(name);
    holder.name = absl::StrCat(absl::CHexEscape(name), " (", pid, ")");
    holder.alive = !machine.List(absl::StrCat("/proc/", pid)).empty();
  }
  return holder;
}

std::optional<std::map<int64_t, Holder>> HoldersOf(const Machine& machine) {
  const std::optional<std::vector<Json>> queue_pairs = ResourcesOf(machine, "qp");
  if (!queue_pairs.has_value()) return std::nullopt;
  std::map<int64_t, Holder> holders;
  for (const Json& entry : *queue_pairs) {
    Holder& holder = HolderOf(machine, entry, holders);
    holder.queue_pairs++;
    if (entry.contains("state") && entry["state"] == "ERR") holder.broken++;
  }
  for (const char* kind : kOtherResources) {
    for (const Json& entry : ResourcesOf(machine, kind).value_or(std::vector<Json>()))
      HolderOf(machine, entry, holders).others[kind]++;
  }
  return holders;
}

void CheckResources(const Machine& machine, std::vector<Finding>& findings) {
  const std::optional<std::map<int64_t, Holder>> holders = HoldersOf(machine);
  if (!holders.has_value()) {
    findings.push_back({Outcome::kSkip,
                        "resources",
                        "`rdma resource show qp` prints nothing (package iproute2)",
                        {}});
    return;
  }
  int64_t used = 0;
  std::vector<Holder> by_use;
  for (const auto& [pid, holder] : *holders) {
    used += holder.queue_pairs;
    if (holder.queue_pairs > 0) by_use.push_back(holder);
    if (!holder.alive) {
      findings.push_back({Outcome::kWarn,
                          "resources",
                          Describe(holder),
                          {"dmesg | grep -i -e rdma -e rxe   # what the kernel waits for"}});
    } else if (holder.broken > kBrokenQueuePairsMax) {
      findings.push_back({Outcome::kWarn,
                          "resources",
                          absl::StrCat(Describe(holder), ": connections that it does not close"),
                          {absl::StrCat("kill ", pid, "   # its end frees them")}});
    }
  }
  int64_t most = 0;
  for (const rdma::VerbsDevice& device : machine.VerbsDevices())
    most = std::max(most, device.queue_pairs_max);
  if (most > 0 && static_cast<double>(used) > kQueuePairsShareMax * static_cast<double>(most)) {
    findings.push_back({Outcome::kWarn,
                        "resources",
                        absl::StrCat(used, " queue pairs of ", most, " are in use"),
                        {"rdma resource show qp   # whose they are"}});
  }
  std::stable_sort(by_use.begin(), by_use.end(),
                   [](const Holder& a, const Holder& b) { return a.queue_pairs > b.queue_pairs; });
  if (by_use.size() > kNamedMax) by_use.resize(kNamedMax);
  std::vector<std::string> named;
  for (const Holder& holder : by_use) named.push_back(Describe(holder));
  findings.push_back({Outcome::kPass,
                      "resources",
                      named.empty() ? "no process has a queue pair" : absl::StrJoin(named, "; "),
                      {}});
}

// The chains of nft for input that drop packets without a matching rule: "FAMILY TABLE CHAIN" for
// each.
std::vector<std::string> DroppingChains(const std::string& rules) {
  std::vector<std::string> chains;
  std::string table, chain;
  for (const absl::string_view line : absl::StrSplit(rules, '\n')) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() >= 3 && words[0] == "table") table = absl::StrCat(words[1], " ", words[2]);
    if (words.size() >= 2 && words[0] == "chain") chain = words[1];
    if (absl::StrContains(line, "hook input") && absl::StrContains(line, "policy drop"))
      chains.push_back(absl::StrCat(table, " ", chain));
  }
  return chains;
}

// Packets of soft-RoCE, and offloaded packets of a NIC, do not always pass the firewall. A rule
// that drops is worth a warning nevertheless.
void CheckFirewall(const Machine& machine, const std::vector<Port>& ports,
                   std::vector<Finding>& findings) {
  const bool roce =
      std::any_of(ports.begin(), ports.end(), [](const Port& port) { return port.ethernet(); });
  if (!roce) return;
  constexpr char kDropped[] = "what comes in is dropped, and no rule lets UDP 4791 (RoCE v2) pass";
  // Read only if the old tables are in use: otherwise the command would load their modules.
  const std::string old_tables = machine.Read("/proc/net/ip_tables_names").value_or("");
  if (absl::StrContains(old_tables, "filter")) {
    const std::string rules = machine.Run({"iptables-legacy", "-S", "INPUT"}).value_or("");
    if (absl::StrContains(rules, "-P INPUT DROP") && !absl::StrContains(rules, "4791")) {
      findings.push_back({Outcome::kWarn,
                          "firewall",
                          kDropped,
                          {"iptables-legacy -I INPUT -p udp --dport 4791 -j ACCEPT"}});
      return;
    }
  }
  const std::optional<std::string> rules = machine.Run({"nft", "list", "ruleset"});
  if (!rules.has_value()) {
    findings.push_back({Outcome::kSkip,
                        "firewall",
                        "its rules cannot be read (nft, as root); UDP 4791 must pass between hosts",
                        {}});
    return;
  }
  const std::vector<std::string> chains = DroppingChains(*rules);
  if (chains.empty() || absl::StrContains(*rules, "4791")) {
    findings.push_back(
        {Outcome::kPass, "firewall", "no rule of nft keeps UDP 4791 out by default", {}});
    return;
  }
  Finding finding{Outcome::kWarn, "firewall", kDropped, {}};
  for (const std::string& chain : chains)
    finding.fixes.push_back(absl::StrCat("nft insert rule ", chain, " udp dport 4791 accept"));
  findings.push_back(std::move(finding));
}

void CheckAddress(const std::vector<Port>& ports, const std::string& server,
                  std::vector<Finding>& findings) {
  if (server.empty() || !absl::StartsWith(server, "rdma://")) return;
  const bool loopback = absl::StartsWith(server, "rdma://127.") ||
                        absl::StartsWith(server, "rdma://localhost") ||
                        absl::StartsWith(server, "rdma://[::1]");
  if (!loopback) {
    findings.push_back(
        {Outcome::kPass, "address", absl::StrCat(server, " is no address of the loopback"), {}});
    return;
  }
  Finding finding{Outcome::kFail,
                  "address",
                  absl::StrCat(server, " is the loopback's, which no RDMA device has"),
                  {}};
  for (const Port& port : ports) {
    for (const Gid& gid : port.gids) {
      if (gid.link_local) continue;
      const bool ipv6 = absl::StrContains(gid.address, ":");
      finding.fixes.push_back(absl::StrCat("kvcli --server=rdma://", ipv6 ? "[" : "", gid.address,
                                           ipv6 ? "]" : "", ":7411 …"));
    }
  }
  if (finding.fixes.empty())
    finding.fixes.push_back("kvcli --server=rdma://HOST:7411 …   # HOST: an address of a device");
  findings.push_back(std::move(finding));
}

}  // namespace

bool InContainer(const Machine& machine) {
  // A process in the first process' namespaces is in no container. The signs below would mislead
  // there if its root is a shared folder (tools/lab shares the host's root with its guest).
  constexpr char kFirstPidNamespace[] = "pid:[4026531836]";
  const std::optional<std::string> mounts = machine.Link("/proc/self/ns/mnt");
  if (machine.Link("/proc/self/ns/pid") == kFirstPidNamespace && mounts.has_value() &&
      mounts == machine.Link("/proc/1/ns/mnt")) {
    return false;
  }
  if (machine.Exists("/.dockerenv") || machine.Exists("/run/.containerenv") ||
      machine.Exists("/run/systemd/container")) {
    return true;
  }
  const std::string group = machine.Read("/proc/1/cgroup").value_or("");
  for (const char* name : {"docker", "kubepods", "lxc", "containerd", "libpod"}) {
    if (absl::StrContains(group, name)) return true;
  }
  return false;
}

void CheckLimits(const Machine& machine, const std::vector<Port>& ports,
                 const CheckOptions& options, std::vector<Finding>& findings) {
  const size_t devices = machine.List("/sys/class/infiniband").size();
  if (devices > 0) CheckMemlock(machine, options.memory_bytes, devices, findings);
  CheckMemory(machine, options.memory_bytes, findings);
  CheckContainer(machine, devices > 0, findings);
  if (devices > 0) {
    CheckFork(machine, findings);
    CheckResources(machine, findings);
    CheckFirewall(machine, ports, findings);
  }
  CheckAddress(ports, options.server, findings);
}

}  // namespace osprey::doctor
