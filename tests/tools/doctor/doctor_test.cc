// kvcli doctor on simulated machines: files below a folder, devices from a list.

#include <cerrno>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/doctor/doctor_fixture.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/peer.h"

namespace osprey::doctor {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(DoctorTest, AMachineWithSoftRoceAsItShouldBePassesEveryCheck) {
  AddDevice();
  std::vector<std::string> checks;
  for (const Finding& finding : CheckMachine(machine_, {})) {
    EXPECT_EQ(finding.outcome, Outcome::kPass) << finding.check << ": " << finding.reason;
    EXPECT_THAT(finding.fixes, IsEmpty()) << finding.check;
    checks.push_back(finding.check);
  }
  EXPECT_THAT(checks, ElementsAre("devices", "provider", "nodes", "nodes", "port", "gids", "roce",
                                  "mtu", "memlock", "memory", "huge pages", "container", "fork",
                                  "resources", "firewall"));
}

TEST_F(DoctorTest, WithoutADeviceItOffersSoftRoceOnARealInterfaceAndTheLab) {
  machine_.Write("/lib/modules/6.1.0-test/modules.dep",
                 "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko: x");
  AddInterface("dummy0", "down", 1500);
  const std::string fixes = Fixes(One("devices", Outcome::kFail));
  EXPECT_THAT(fixes, HasSubstr("rdma link add rxe0 type rxe netdev eth0"));
  EXPECT_THAT(fixes, HasSubstr("tools/lab --"));
  EXPECT_THAT(fixes, HasSubstr("shm://"));
  EXPECT_THAT(Of("nodes"), IsEmpty());
  EXPECT_THAT(Of("memlock"), IsEmpty());
}

TEST_F(DoctorTest, WithoutADeviceAndWithoutTheModuleItOffersTheLabAlone) {
  const Finding finding = One("devices", Outcome::kFail);
  EXPECT_THAT(finding.reason, HasSubstr("rdma_rxe"));
  EXPECT_THAT(Fixes(finding), AllOf(HasSubstr("tools/lab"), ::testing::Not(HasSubstr("link add"))));
}

TEST_F(DoctorTest, InAContainerItOffersNoSoftRoce) {
  machine_.Write("/sys/module/rdma_rxe/refcnt", "0");
  machine_.Write("/.dockerenv", "");
  const Finding finding = One("devices", Outcome::kFail);
  EXPECT_THAT(finding.reason, HasSubstr("outside of containers"));
  EXPECT_THAT(Fixes(finding), ::testing::Not(HasSubstr("link add")));
}

TEST_F(DoctorTest, ADeviceInSysfsWithoutItsProviderIsNamedWithThePackage) {
  AddDevice();
  machine_.verbs.clear();
  machine_.Remove("/sys/class/infiniband/rxe0/parent");
  machine_.SetLink("/sys/class/infiniband/rxe0/device/driver", "../../bus/pci/drivers/mlx5_core");
  const Finding finding = One("provider", Outcome::kFail);
  EXPECT_THAT(finding.reason, AllOf(HasSubstr("rxe0"), HasSubstr("mlx5_core")));
  EXPECT_THAT(Fixes(finding), HasSubstr("ibverbs-providers"));
}

TEST_F(DoctorTest, ADeviceThatCannotBeOpenedSaysWhy) {
  AddDevice();
  machine_.verbs[0].error = "Permission denied";
  EXPECT_THAT(One("provider", Outcome::kFail).reason, HasSubstr("Permission denied"));
}

TEST_F(DoctorTest, MissingNodesNameTheModules) {
  AddDevice();
  machine_.Remove("/dev/infiniband");
  const std::vector<Finding> nodes = Of("nodes");
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_THAT(nodes[0].fixes, ElementsAre("modprobe ib_uverbs"));
  EXPECT_THAT(nodes[1].fixes, ElementsAre("modprobe rdma_ucm"));
}

TEST_F(DoctorTest, WithoutAnyVerbsNodeInSysfsTheModuleIsMissing) {
  AddDevice();
  machine_.Remove("/sys/class/infiniband_verbs");
  EXPECT_THAT(Of("nodes")[0].fixes, ElementsAre("modprobe ib_uverbs"));
}

TEST_F(DoctorTest, MissingRightsAndAControlGroupAreDistinguished) {
  AddDevice();
  machine_.open_errors = {{"/dev/infiniband/uverbs0", EACCES}, {"/dev/infiniband/rdma_cm", EPERM}};
  const std::vector<Finding> nodes = Of("nodes");
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_THAT(Fixes(nodes[0]), HasSubstr("chmod 0666 /dev/infiniband/uverbs0"));
  EXPECT_THAT(Fixes(nodes[1]), AllOf(HasSubstr("--device"), HasSubstr("DeviceAllow")));
}

TEST_F(DoctorTest, APortThatIsDownNamesItsInterface) {
  AddDevice();
  machine_.Write("/sys/class/infiniband/rxe0/ports/1/state", "1: DOWN");
  const Finding finding = One("port", Outcome::kFail);
  EXPECT_THAT(finding.reason, HasSubstr("rxe0 port 1 is DOWN"));
  EXPECT_THAT(Fixes(finding), HasSubstr("ip link set dev lab0 up"));
}

TEST_F(DoctorTest, InfiniBandPortInInitRequiresASubnetManager) {
  AddDevice();
  machine_.Write("/sys/class/infiniband/rxe0/ports/1/state", "2: INIT");
  machine_.Write("/sys/class/infiniband/rxe0/ports/1/link_layer", "InfiniBand");
  EXPECT_THAT(Fixes(One("port", Outcome::kFail)), HasSubstr("opensm"));
  EXPECT_THAT(Of("roce"), IsEmpty());
  EXPECT_THAT(Of("firewall"), IsEmpty());
}

TEST_F(DoctorTest, InfiniBandPortRequiresAnIpoibAddress) {
  AddDevice();
  machine_.Write("/sys/class/infiniband/rxe0/ports/1/link_layer", "InfiniBand");
  EXPECT_THAT(Fixes(One("address", Outcome::kWarn)), HasSubstr("modprobe ib_ipoib"));
  machine_.Write("/sys/class/infiniband/rxe0/device/net/ib0/mtu", "2044");
  EXPECT_THAT(One("address", Outcome::kSkip).reason, HasSubstr("iproute2"));
  const std::string command = "ip -oneline address show dev ib0 scope global";
  machine_.output[command] = "";
  EXPECT_THAT(Fixes(One("address", Outcome::kWarn)),
              HasSubstr("ip address add 10.0.0.7/24 dev ib0"));
  machine_.output[command] = "4: ib0    inet 10.0.0.7/24 scope global ib0";
  EXPECT_THAT(One("address", Outcome::kPass).reason, HasSubstr("ib0"));
}

TEST_F(DoctorTest, GidsAreShownAsTheirAddresses) {
  AddDevice();
  EXPECT_THAT(One("gids", Outcome::kPass).reason,
              AllOf(HasSubstr("1: 10.77.0.1"), HasSubstr("0: fe80::11:22ff:fe33:4455")));
}

TEST_F(DoctorTest, MissingGidRequiresAnInterfaceAddress) {
  AddDevice();
  machine_.SetGid(0, kNoGid, "");
  machine_.SetGid(1, kNoGid, "");
  EXPECT_THAT(Fixes(One("gids", Outcome::kFail)), HasSubstr("ip address add"));
}

TEST_F(DoctorTest, LinkLocalGidsAloneAreAWarning) {
  AddDevice();
  machine_.SetGid(1, kNoGid, "");
  EXPECT_THAT(Fixes(One("gids", Outcome::kWarn)), HasSubstr("ip address add"));
}

TEST_F(DoctorTest, AnInterfaceOfAnotherNetworkNamespaceIsNamed) {
  AddDevice();
  machine_.Remove("/sys/class/net/lab0");
  EXPECT_THAT(One("gids", Outcome::kFail).reason,
              AllOf(HasSubstr("lab0"), HasSubstr("network namespace")));
}

TEST_F(DoctorTest, RoceV1AloneIsAWarning) {
  AddDevice();
  machine_.SetGid(0, kLinkLocalGid, "IB/RoCE v1");
  machine_.SetGid(1, kIpv4Gid, "IB/RoCE v1");
  EXPECT_THAT(Fixes(One("roce", Outcome::kWarn)), HasSubstr("cma_roce_mode -d rxe0 -p 1 -m 2"));
}

TEST_F(DoctorTest, PacketsSmallerThanTheInterfaceAllowsAreAWarning) {
  AddDevice();
  machine_.verbs[0].ports[0].mtu_bytes = 1024;
  EXPECT_THAT(One("mtu", Outcome::kWarn).reason, HasSubstr("4096 B would fit"));
  AddInterface("lab0", "up", 1500);
  EXPECT_THAT(One("mtu", Outcome::kPass).reason, HasSubstr("lab0: 1500 B"));
}

TEST_F(DoctorTest, LockedMemoryIsComparedWithTheTable) {
  AddDevice();
  SetMemlock("8388608");
  const Finding finding = One("memlock", Outcome::kFail);
  EXPECT_THAT(finding.reason, AllOf(HasSubstr("1GiB"), HasSubstr("8MiB")));
  EXPECT_THAT(Fixes(finding), HasSubstr("ulimit -l 1114112"));  // 1 GiB and 64 MiB
  SetMemlock("2147483648");
  One("memlock", Outcome::kPass);
  CheckOptions options;
  options.memory_bytes = uint64_t{4} << 30;
  One("memlock", Outcome::kFail, options);
}

TEST_F(DoctorTest, WithTheCapabilityThereIsNoLimitOfLockedMemory) {
  AddDevice();
  SetMemlock("8388608");
  machine_.Write("/proc/self/status", "CapEff:\t0000000000004000");
  EXPECT_THAT(One("memlock", Outcome::kPass).reason, HasSubstr("CAP_IPC_LOCK"));
}

TEST_F(DoctorTest, AMemoryOnEachOfTwoDevicesIsPinnedTwice) {
  AddDevice();
  machine_.Write("/sys/class/infiniband/rxe1/ports/1/state", "4: ACTIVE");
  SetMemlock("2147483648");
  One("memlock", Outcome::kFail);
}

TEST_F(DoctorTest, MoreMemoryThanThereIsFailsAndMoreThanIsFreeWarns) {
  CheckOptions options;
  options.memory_bytes = uint64_t{7} << 30;
  One("memory", Outcome::kWarn, options);
  options.memory_bytes = uint64_t{9} << 30;
  EXPECT_THAT(Fixes(One("memory", Outcome::kFail, options)), HasSubstr("kvserver --memory="));
}

TEST_F(DoctorTest, NoTableIsSoLargeThatItSeemsSmall) {
  AddDevice();
  CheckOptions options;
  options.memory_bytes = UINT64_MAX;
  SetMemlock("67108864");
  One("memory", Outcome::kFail, options);
  One("memlock", Outcome::kFail, options);
  machine_.Write("/proc/meminfo",
                 "MemTotal: 8000000 kB\nMemAvailable: 6000000 kB\nHugePages_Total: 110\n"
                 "HugePages_Free: 100\nHugepagesize: 2048 kB");
  One("huge pages", Outcome::kWarn, options);
}

TEST_F(DoctorTest, TooFewHugePagesAreAWarningAndNoneAreNot) {
  One("huge pages", Outcome::kPass);
  machine_.Write("/proc/meminfo",
                 "MemTotal: 8000000 kB\nMemAvailable: 6000000 kB\nHugePages_Total: 110\n"
                 "HugePages_Free: 100\nHugepagesize: 2048 kB");
  EXPECT_THAT(One("huge pages", Outcome::kWarn).fixes,
              ElementsAre("sysctl -w vm.nr_hugepages=522"));
}

TEST_F(DoctorTest, ANetworkNamespaceOfItsOwnIsAWarningWhereThereIsADevice) {
  machine_.SetLink("/proc/self/ns/net", "net:[2]");
  machine_.SetLink("/proc/1/ns/net", "net:[1]");
  One("container", Outcome::kPass);
  AddDevice();
  One("container", Outcome::kWarn);
}

TEST_F(DoctorTest, UnprotectedPinnedPagesAreAWarning) {
  AddDevice();
  machine_.fork = rdma::ForkSupport::kDisabled;
  EXPECT_THAT(One("fork", Outcome::kWarn).fixes, ElementsAre("export RDMAV_FORK_SAFE=1"));
}

TEST_F(DoctorTest, QueuePairsOfAProcessThatHasEndedAreALeak) {
  AddDevice();
  machine_.Write("/proc/7/comm", "kvserver");
  machine_.output["rdma -j resource show qp"] =
      R"([{"ifname":"rxe0","lqpn":1,"type":"GSI","state":"RTS","comm":"ib_core"},
          {"ifname":"rxe0","lqpn":17,"type":"RC","state":"RTS","pid":7,"comm":"kvserver"},
          {"ifname":"rxe0","lqpn":18,"type":"RC","state":"RTS","pid":9,"comm":"gone"}])";
  const std::vector<Finding> findings = Of("resources");
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].outcome, Outcome::kWarn);
  EXPECT_THAT(findings[0].reason, AllOf(HasSubstr("gone (9)"), HasSubstr("has ended")));
  EXPECT_THAT(findings[1].reason, HasSubstr("kvserver (7): 1 queue pairs"));
}

TEST_F(DoctorTest, WhatAThreadHoldsItsProcessHolds) {
  AddDevice();
  machine_.Write("/proc/7/comm", "kvserver");
  machine_.Write("/proc/8/status", "Name:\tosprey-verbs\nTgid:\t7\nPid:\t8");
  machine_.output["rdma -j resource show qp"] =
      R"([{"ifname":"rxe0","lqpn":17,"type":"RC","state":"RTS","pid":8,"comm":"osprey-verbs"},
          {"ifname":"rxe0","lqpn":18,"type":"RC","state":"RTS","pid":7,"comm":"kvserver"}])";
  EXPECT_THAT(One("resources", Outcome::kPass).reason, HasSubstr("kvserver (7): 2 queue pairs"));
}

TEST_F(DoctorTest, NamesOfProcessesSayNothingToTheTerminal) {
  AddDevice();
  machine_.Write("/proc/7/comm", "x");
  machine_.output["rdma -j resource show qp"] =
      R"([{"ifname":"rxe0","lqpn":17,"type":"RC","state":"RTS","pid":7,"comm":"a\u001b[2J\nb"}])";
  EXPECT_THAT(One("resources", Outcome::kPass).reason, HasSubstr(R"(a\x1b[2J\nb (7): 1 queue)"));
}

TEST_F(DoctorTest, SoIsWhateverElseAProcessThatHasEndedHolds) {
  AddDevice();
  machine_.Write("/proc/7/comm", "kvserver");
  machine_.output["rdma -j resource show mr"] =
      R"([{"mrn":1,"pid":7,"comm":"kvserver"},{"mrn":2,"pid":9,"comm":"gone"},
          {"mrn":3,"pid":9,"comm":"gone"},{"mrn":4,"comm":"ib_core"}])";
  machine_.output["rdma -j resource show cm_id"] = R"([{"cm-idn":0,"pid":9,"comm":"gone"}])";
  const std::vector<Finding> findings = Of("resources");
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].outcome, Outcome::kWarn);
  EXPECT_THAT(findings[0].reason, HasSubstr("gone (9): 0 queue pairs, 1 cm_id, 2 mr, and the"));
  EXPECT_EQ(findings[1].reason, "no process has a queue pair");
}

TEST_F(DoctorTest, ManyQueuePairsInErrorAndANearlyFullDeviceAreWarnings) {
  AddDevice();
  machine_.Write("/proc/7/comm", "kvserver");
  std::vector<std::string> entries(900, R"({"pid":7,"comm":"kvserver","state":"ERR"})");
  machine_.output["rdma -j resource show qp"] = absl::StrCat("[", absl::StrJoin(entries, ","), "]");
  const std::vector<Finding> findings = Of("resources");
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_THAT(findings[0].reason, HasSubstr("900 in error"));
  EXPECT_THAT(findings[1].reason, HasSubstr("900 queue pairs of 1000"));
}

TEST_F(DoctorTest, WhatCannotBeLookedAtIsSkippedAndDoesNotCount) {
  AddDevice();
  machine_.output["rdma -j resource show qp"] = "no json";
  machine_.output.erase("nft list ruleset");
  One("resources", Outcome::kSkip);
  EXPECT_THAT(One("firewall", Outcome::kSkip).reason, HasSubstr("UDP 4791"));
  EXPECT_EQ(WorstOf(CheckMachine(machine_, {})), Outcome::kPass);
}

TEST_F(DoctorTest, FirewallDropPolicyWarnsWithAFixForItsOwnChain) {
  AddDevice();
  machine_.output["nft list ruleset"] =
      "table ip nat {\n\tchain INPUT {\n\t\ttype nat hook input priority 0; policy "
      "accept;\n\t}\n}\n"
      "table inet mine {\n\tchain out {\n\t\ttype filter hook output priority 0; policy drop;\n"
      "\t}\n\tchain guard {\n\t\ttype filter hook input priority 0; policy drop;\n\t}\n}";
  EXPECT_THAT(One("firewall", Outcome::kWarn).fixes,
              ElementsAre("nft insert rule inet mine guard udp dport 4791 accept"));
  machine_.output["nft list ruleset"] += "udp dport 4791 accept";
  One("firewall", Outcome::kPass);
}

TEST_F(DoctorTest, TheOldIptablesIsLookedAtWhereItIsInUse) {
  AddDevice();
  machine_.output["iptables-legacy -S INPUT"] = "-P INPUT DROP\n-A INPUT -i lo -j ACCEPT";
  One("firewall", Outcome::kPass);
  machine_.Write("/proc/net/ip_tables_names", "nat\nfilter");
  EXPECT_THAT(Fixes(One("firewall", Outcome::kWarn)), HasSubstr("iptables-legacy -I INPUT"));
  machine_.output["iptables-legacy -S INPUT"] += "\n-A INPUT -p udp --dport 4791 -j ACCEPT";
  One("firewall", Outcome::kPass);
}

TEST_F(DoctorTest, WhatMarksAContainerIsAnothersInTheFirstNamespaces) {
  AddDevice();
  machine_.Write("/.dockerenv", "");
  EXPECT_THAT(One("container", Outcome::kPass).reason, HasSubstr("this is one"));
  machine_.SetLink("/proc/self/ns/pid", "pid:[4026531836]");
  machine_.SetLink("/proc/self/ns/mnt", "mnt:[1]");
  machine_.SetLink("/proc/1/ns/mnt", "mnt:[2]");  // --pid=host
  EXPECT_THAT(One("container", Outcome::kPass).reason, HasSubstr("this is one"));
  machine_.SetLink("/proc/1/ns/mnt", "mnt:[1]");
  EXPECT_EQ(One("container", Outcome::kPass).reason, "this is none");
}

TEST_F(DoctorTest, TheLoopbackAsServerIsNamedWithTheAddressesThatWouldDo) {
  AddDevice();
  CheckOptions options;
  options.server = "rdma://127.0.0.1:7411";
  EXPECT_THAT(One("address", Outcome::kFail, options).fixes,
              Contains(HasSubstr("rdma://10.77.0.1:7411")));
  options.server = "rdma://10.77.0.1:7411";
  One("address", Outcome::kPass, options);
}

TEST_F(DoctorTest, NonsenseInSysfsEndsNothing) {
  AddDevice();
  machine_.Write("/sys/class/infiniband/rxe0/ports/1/state", "x");
  machine_.Write("/sys/class/infiniband/rxe0/ports/1/gids/1", "not a gid");
  machine_.Write("/sys/class/infiniband/rxe0/ports/many/state", "4: ACTIVE");
  machine_.Write("/proc/meminfo", "MemTotal: lots");
  machine_.output["rdma -j resource show qp"] = R"([1, {"pid":"x"}, {"pid":3,"comm":4}])";
  EXPECT_EQ(WorstOf(CheckMachine(machine_, {})), Outcome::kFail);
}

TEST(DoctorPeerTest, SmallValuesThatPassAndLongOnesThatDoNotPointToTheMtu) {
  const Finding finding = SizeFailure(1024, 65536, absl::DeadlineExceededError("no answer"));
  EXPECT_EQ(finding.outcome, Outcome::kFail);
  EXPECT_THAT(finding.reason, AllOf(HasSubstr("64KiB: no answer"), HasSubstr("large packets")));
  EXPECT_THAT(finding.fixes, Contains(HasSubstr("mtu")));
}

TEST(DoctorPeerTest, WhereNothingPassesItIsNotTheMtu) {
  EXPECT_THAT(SizeFailure(0, 64, absl::UnavailableError("gone")).reason, "64B: gone");
}

TEST(DoctorPeerTest, AFullServerIsAWarning) {
  EXPECT_EQ(SizeFailure(1024, 65536, absl::ResourceExhaustedError("full")).outcome, Outcome::kWarn);
}

}  // namespace
}  // namespace osprey::doctor
