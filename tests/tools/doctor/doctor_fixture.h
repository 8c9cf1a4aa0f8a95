// kvcli doctor on simulated machines: files below a folder, devices from a list.

#ifndef OSPREY_TESTS_TOOLS_DOCTOR_DOCTOR_FIXTURE_H_
#define OSPREY_TESTS_TOOLS_DOCTOR_DOCTOR_FIXTURE_H_

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"
#include "tools/doctor/checks.h"

namespace osprey::doctor {

inline constexpr char kNoGid[] = "0000:0000:0000:0000:0000:0000:0000:0000";
inline constexpr char kIpv4Gid[] = "0000:0000:0000:0000:0000:ffff:0a4d:0001";
inline constexpr char kLinkLocalGid[] = "fe80:0000:0000:0000:0011:22ff:fe33:4455";

class FakeMachine : public RootedMachine {
 public:
  explicit FakeMachine(const std::string& root) : RootedMachine(root), root_(root) {}

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(
        std::filesystem::path(absl::StrCat(root_, path)).parent_path());
    std::ofstream(absl::StrCat(root_, path)) << text << "\n";
  }
  void Remove(const std::string& path) { std::filesystem::remove_all(absl::StrCat(root_, path)); }
  void SetLink(const std::string& path, const std::string& target) {
    std::filesystem::create_directories(
        std::filesystem::path(absl::StrCat(root_, path)).parent_path());
    Remove(path);
    std::filesystem::create_symlink(target, absl::StrCat(root_, path));
  }
  void SetGid(int index, const std::string& gid, const std::string& type) {
    const std::string port = "/sys/class/infiniband/rxe0/ports/1";
    Write(absl::StrCat(port, "/gids/", index), gid);
    if (gid == kNoGid) return;
    Write(absl::StrCat(port, "/gid_attrs/types/", index), type);
    Write(absl::StrCat(port, "/gid_attrs/ndevs/", index), "lab0");
  }

  std::vector<rdma::VerbsDevice> VerbsDevices() const override { return verbs; }
  rdma::ForkSupport Fork() const override { return fork; }
  std::optional<KernelClock> Clock() const override { return clock; }
  std::optional<std::string> Run(const std::vector<std::string>& args) const override {
    const auto found = output.find(absl::StrJoin(args, " "));
    if (found == output.end()) return std::nullopt;
    return found->second;
  }
  int OpenError(const std::string& path) const override {
    const auto found = open_errors.find(path);
    return found == open_errors.end() ? RootedMachine::OpenError(path) : found->second;
  }

  std::vector<rdma::VerbsDevice> verbs;
  rdma::ForkSupport fork = rdma::ForkSupport::kUnneeded;
  std::optional<KernelClock> clock = KernelClock{0, true};
  std::map<std::string, std::string> output;
  std::map<std::string, int> open_errors;

 private:
  const std::string root_;
};

class DoctorTest : public ::testing::Test {
 protected:
  DoctorTest() : machine_(NewTemporaryDirectory()) {
    machine_.Write("/proc/meminfo",
                   "MemTotal:       8000000 kB\nMemAvailable:   6000000 kB\nHugePages_Total:       "
                   "0\nHugePages_Free:        0\nHugepagesize:       2048 kB");
    machine_.Write("/proc/self/status", "Name:\tkvcli\nCapEff:\t0000000000000000");
    SetMemlock("unlimited");
    machine_.Write("/proc/sys/kernel/osrelease", "6.1.0-test");
    AddInterface("eth0", "up", 9000);
  }

  void AddInterface(const std::string& name, const std::string& state, int mtu) {
    machine_.Write(absl::StrCat("/sys/class/net/", name, "/type"), "1");
    machine_.Write(absl::StrCat("/sys/class/net/", name, "/operstate"), state);
    machine_.Write(absl::StrCat("/sys/class/net/", name, "/mtu"), absl::StrCat(mtu));
  }

  void SetMemlock(const std::string& limit) {
    machine_.Write("/proc/self/limits",
                   absl::StrCat("Limit                     Soft Limit           Hard Limit\n"
                                "Max locked memory         ",
                                limit, "              ", limit, "              bytes"));
  }

  // A machine with soft-RoCE and a correct configuration.
  void AddDevice() {
    AddInterface("lab0", "up", 9000);
    const std::string device = "/sys/class/infiniband/rxe0";
    machine_.Write(device + "/parent", "lab0");
    machine_.Write(device + "/ports/1/state", "4: ACTIVE");
    machine_.Write(device + "/ports/1/link_layer", "Ethernet");
    machine_.SetGid(0, kLinkLocalGid, "RoCE v2");
    machine_.SetGid(1, kIpv4Gid, "RoCE v2");
    machine_.SetGid(2, kNoGid, "");
    machine_.Write("/sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0");
    machine_.Write("/dev/infiniband/uverbs0", "");
    machine_.Write("/dev/infiniband/rdma_cm", "");
    machine_.verbs = {{"rxe0", "", {{1, 4096}}, 1000}};
    machine_.output["rdma -j resource show qp"] = "[]";
    machine_.output["nft list ruleset"] = "";
  }

  // The findings of one check.
  std::vector<Finding> Of(const std::string& check, const CheckOptions& options = {}) {
    std::vector<Finding> result;
    for (Finding& finding : CheckMachine(machine_, options)) {
      if (finding.check == check) result.push_back(std::move(finding));
    }
    return result;
  }

  // The finding of a check, which must be the only one.
  Finding One(const std::string& check, Outcome outcome, const CheckOptions& options = {}) {
    std::vector<Finding> findings = Of(check, options);
    EXPECT_EQ(findings.size(), 1U) << check;
    if (findings.empty()) return {};
    EXPECT_EQ(findings[0].outcome, outcome) << findings[0].reason;
    if (outcome == Outcome::kWarn || outcome == Outcome::kFail) {
      EXPECT_FALSE(findings[0].fixes.empty()) << findings[0].reason;
    } else {
      EXPECT_THAT(findings[0].fixes, ::testing::IsEmpty());
    }
    return findings[0];
  }

  static std::string Fixes(const Finding& finding) { return absl::StrJoin(finding.fixes, "\n"); }

  FakeMachine machine_;
};

}  // namespace osprey::doctor

#endif  // OSPREY_TESTS_TOOLS_DOCTOR_DOCTOR_FIXTURE_H_
