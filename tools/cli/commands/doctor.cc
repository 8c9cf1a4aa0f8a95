#include "tools/cli/commands/doctor.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/client.h"
#include "rdma/address.h"
#include "rdma/selftest/selftest.h"
#include "server/cluster/etcd/etcd_flags.h"
#include "server/program/size_flag.h"
#include "tools/cli/commands/run.h"
#include "tools/doctor/cluster.h"
#include "tools/doctor/peer.h"

namespace osprey {
namespace {

using doctor::Finding;

// The length of the longest `check`: "huge pages".
constexpr int kCheckColumns = 10;

// Values of --self-test that are not addresses.
constexpr char kHere[] = "here";
constexpr char kServe[] = "serve";

std::string ForPeople(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    lines.push_back(absl::StrFormat("%s  %-*s  %s", doctor::NameOf(finding.outcome), kCheckColumns,
                                    finding.check, Printable(finding.reason)));
    for (const std::string& fix : finding.fixes)
      lines.push_back(absl::StrFormat("      %-*s    fix: %s", kCheckColumns, "", Printable(fix)));
  }
  return absl::StrJoin(lines, "\n");
}

std::string ForScripts(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    lines.push_back(absl::StrCat(doctor::NameOf(finding.outcome), "\t", finding.check, "\t",
                                 Printable(finding.reason), "\t",
                                 Printable(absl::StrJoin(finding.fixes, "; "))));
  }
  return absl::StrJoin(lines, "\n");
}

// Soft-RoCE whose interface was down under load (rdma/README.md) may look healthy and accept no
// connection. Only an attempt detects this.
void TrySoftRoce(std::vector<Finding>& findings) {
  for (const doctor::Port& port : doctor::PortsOf(doctor::ThisMachine())) {
    if (!port.soft_roce() || port.state != "ACTIVE") continue;
    rdma::selftest::Options options;
    options.device = port.device;
    options.port = port.number;
    const rdma::selftest::Report report = rdma::selftest::RunHere(options);
    Finding finding{doctor::Outcome::kPass,
                    "self-test",
                    absl::StrCat(port.name(), " moves bytes by every layer within one process"),
                    {}};
    for (const rdma::selftest::Step& step : report) {
      if (step.outcome != rdma::selftest::Outcome::kFail) continue;
      finding = {doctor::Outcome::kFail,
                 "self-test",
                 absl::StrCat(port.name(), ": ", step.layer, ": ", step.detail),
                 {absl::StrCat("kvcli doctor --self-test --device=", port.device,
                               "   # every step, with what helps"),
                  "reboot   # was its interface down under load? Then nothing else helps"}};
      break;
    }
    findings.push_back(std::move(finding));
  }
}

ExitStatus RunChecks(CommandContext& context) {
  doctor::CheckOptions options;
  options.server = context.server;
  if (context.options.memory.has_value())
    options.memory_bytes = *server::ParseSize(*context.options.memory);
  std::vector<Finding> findings = CheckMachine(doctor::ThisMachine(), options);
  if (WorstOf(findings) != doctor::Outcome::kFail) TrySoftRoce(findings);
  PrintFindings(*context.out, findings);
  return ExitStatusOf(WorstOf(findings));
}

ExitStatus RunPeer(CommandContext& context, const std::string& uri) {
  Options options;
  options.connect_timeout = context.timeout;
  options.await_listener = false;
  options.deadline = context.timeout;
  options.auth_key_file = context.auth_key_file;
  const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri, options);
  if (!client.ok()) {
    PrintFindings(*context.out, {doctor::CannotConnect(uri, client.status())});
    return ExitStatus::kCannotConnect;
  }
  const std::vector<Finding> findings = doctor::ProbePeer(**client, context.timeout);
  PrintFindings(*context.out, findings);
  return ExitStatusOf(WorstOf(findings));
}

EtcdFlags EtcdFlagsOf(const CommandOptions& options) {
  EtcdFlags flags = options.cluster.etcd;
  flags.uri = *options.doctor.cluster;
  return flags;
}

ExitStatus RunCluster(CommandContext& context) {
  const absl::StatusOr<EtcdOptions> etcd = MakeEtcdOptions(EtcdFlagsOf(context.options));
  if (!etcd.ok()) {
    context.out->Error("doctor --cluster", etcd.status(), "");
    return ExitStatus::kFailed;
  }
  const doctor::ClusterReport report =
      doctor::CheckCluster(*etcd, doctor::ThisMachine(), context.timeout);
  PrintFindings(*context.out, report.findings);
  return report.has_etcd ? ExitStatusOf(WorstOf(report.findings)) : ExitStatus::kCannotConnect;
}

// How long the serving host waits for the other.
constexpr absl::Duration kServeWait = absl::Seconds(60);

std::vector<Finding> FindingsOf(const rdma::selftest::Report& report) {
  std::vector<Finding> findings;
  for (const rdma::selftest::Step& step : report) {
    Finding finding{doctor::Outcome::kPass, step.layer, step.detail, {}};
    if (step.outcome == rdma::selftest::Outcome::kSkip) finding.outcome = doctor::Outcome::kSkip;
    if (step.outcome == rdma::selftest::Outcome::kFail) finding.outcome = doctor::Outcome::kFail;
    if (!step.hint.empty()) finding.fixes.push_back(step.hint);
    findings.push_back(std::move(finding));
  }
  return findings;
}

absl::StatusOr<rdma::selftest::Report> Serve(CommandContext& context, const std::string& address,
                                             const rdma::selftest::Options& options) {
  absl::StatusOr<rdma::selftest::Server> server = rdma::selftest::Server::Listen(address, options);
  if (!server.ok()) return server.status();
  context.out->Note(
      absl::StrCat("self-test: waiting for `kvcli doctor --self-test=", server->address(), "`"));
  return server->ServeOne(kServeWait);
}

ExitStatus RunSelfTest(CommandContext& context, const DoctorFlags& flags) {
  rdma::selftest::Options options;
  options.device = flags.device.value_or("");
  options.port = flags.ib_port.value_or(0);
  options.gid_index = flags.gid_index.value_or(-1);
  absl::StatusOr<rdma::selftest::Report> report =
      *flags.self_test == kHere    ? rdma::selftest::RunHere(options)
      : *flags.self_test == kServe ? Serve(context, *flags.bind, options)
                                   : rdma::selftest::RunWith(*flags.self_test, options);
  if (!report.ok()) {
    context.out->Error("doctor --self-test", report.status(), "");
    if (absl::IsInvalidArgument(report.status())) return ExitStatus::kUsage;
    return absl::IsDeadlineExceeded(report.status()) ? ExitStatus::kCannotConnect
                                                     : ExitStatus::kFailed;
  }
  // Without an answer there is one step, of the only layer that is not RDMA.
  const bool reached = report->size() > 1 || report->front().layer != "tcp";
  const std::vector<Finding> findings = FindingsOf(*report);
  PrintFindings(*context.out, findings);
  return reached ? ExitStatusOf(WorstOf(findings)) : ExitStatus::kCannotConnect;
}

}  // namespace

void PrintFindings(Output& out, const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    Json entry;
    entry["outcome"] = doctor::NameOf(finding.outcome);
    entry["check"] = finding.check;
    entry["reason"] = finding.reason;
    entry["mends"] = finding.fixes;  // its name in every release
    list.push_back(std::move(entry));
  }
  Json json;
  json["worst"] = doctor::NameOf(WorstOf(findings));
  json["findings"] = std::move(list);
  out.Result(ForPeople(findings), ForScripts(findings), json);
}

ExitStatus ExitStatusOf(doctor::Outcome worst) {
  switch (worst) {
    case doctor::Outcome::kPass:
    case doctor::Outcome::kSkip:
      return ExitStatus::kDone;
    case doctor::Outcome::kWarn:
      return ExitStatus::kNo;
    case doctor::Outcome::kFail:
      return ExitStatus::kFailed;
  }
  return ExitStatus::kFailed;
}

// Of the cluster's flags, which cluster create and status have as well.
absl::Status CheckDoctor(Arguments /*arguments*/, const CommandOptions& options) {
  const EtcdFlags& etcd = options.cluster.etcd;
  if (options.doctor.cluster.has_value()) {
    if (options.doctor.peer.has_value() || options.doctor.self_test.has_value() ||
        options.memory.has_value()) {
      return absl::InvalidArgumentError(
          "--cluster stands without --peer, --self-test and --memory");
    }
    return MakeEtcdOptions(EtcdFlagsOf(options)).status();
  }
  for (const std::string* given : {&etcd.ca_file, &etcd.certificate_file,
                                   &etcd.certificate_key_file, &etcd.user, &etcd.password_file}) {
    if (!given->empty())
      return absl::InvalidArgumentError("flags of etcd need --cluster=ETCD_URI here");
  }
  return absl::OkStatus();
}

absl::Status CheckDoctorFlags(const CommandOptions& options) {
  const DoctorFlags& flags = options.doctor;
  if (flags.peer.has_value()) {
    const absl::StatusOr<rdma::Address> peer = rdma::ParseAddress(*flags.peer);
    if (!peer.ok())
      return absl::InvalidArgumentError(absl::StrCat("--peer: ", peer.status().message()));
  }
  const bool about_self_test = flags.bind.has_value() || flags.device.has_value() ||
                               flags.ib_port.has_value() || flags.gid_index.has_value();
  if (!flags.self_test.has_value()) {
    if (about_self_test) {
      return absl::InvalidArgumentError(
          "--bind, --device, --ib-port and --gid-index mean nothing without --self-test");
    }
    return absl::OkStatus();
  }
  if (flags.peer.has_value() || options.memory.has_value())
    return absl::InvalidArgumentError("--self-test stands without --peer and --memory");
  if (flags.self_test->empty()) {
    return absl::InvalidArgumentError(
        "--self-test=: write --self-test, --self-test=serve or --self-test=HOST[:PORT]");
  }
  if (flags.bind.has_value() != (*flags.self_test == kServe)) {
    return absl::InvalidArgumentError(
        "--self-test=serve needs --bind=HOST[:PORT], and nothing else does: an address of this "
        "machine's RDMA device");
  }
  constexpr int kPortMax = 255;
  constexpr int kGidMax = 255;
  if (flags.ib_port.has_value() && (*flags.ib_port < 1 || *flags.ib_port > kPortMax))
    return absl::InvalidArgumentError("--ib-port is 1 to 255");
  if (flags.gid_index.has_value() && (*flags.gid_index < 0 || *flags.gid_index > kGidMax))
    return absl::InvalidArgumentError("--gid-index is 0 to 255");
  return absl::OkStatus();
}

ExitStatus RunDoctor(CommandContext& context, Arguments /*arguments*/) {
  const DoctorFlags& flags = context.options.doctor;
  if (flags.self_test.has_value()) return RunSelfTest(context, flags);
  if (flags.peer.has_value()) return RunPeer(context, *flags.peer);
  if (flags.cluster.has_value()) return RunCluster(context);
  return RunChecks(context);
}

}  // namespace osprey
