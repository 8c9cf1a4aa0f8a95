#include "tools/kvcli_doctor.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/client.h"
#include "server/size_flag.h"
#include "tools/doctor_peer.h"
#include "tools/kvcli_run.h"

namespace osprey {
namespace {

using doctor::Finding;
using doctor::Outcome;

// The longest of `check`: "huge pages".
constexpr int kCheckColumns = 10;

std::string ForPeople(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    lines.push_back(absl::StrFormat("%s  %-*s  %s", doctor::NameOf(finding.outcome), kCheckColumns,
                                    finding.check, finding.reason));
    for (const std::string& mend : finding.mends)
      lines.push_back(absl::StrFormat("      %-*s    mend: %s", kCheckColumns, "", mend));
  }
  return absl::StrJoin(lines, "\n");
}

std::string ForScripts(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    lines.push_back(absl::StrCat(doctor::NameOf(finding.outcome), "\t", finding.check, "\t",
                                 finding.reason, "\t", absl::StrJoin(finding.mends, "; ")));
  }
  return absl::StrJoin(lines, "\n");
}

ExitStatus RunChecks(CommandContext& context, const DoctorFlags& flags) {
  doctor::CheckOptions options;
  options.server = context.server;
  if (flags.memory.has_value()) options.memory_bytes = *server::ParseSize(*flags.memory);
  const std::vector<Finding> findings = CheckMachine(doctor::ThisMachine(), options);
  PrintFindings(*context.out, findings);
  return ExitStatusOf(WorstOf(findings));
}

ExitStatus RunPeer(CommandContext& context, const std::string& uri) {
  Options options;
  options.connect_timeout = context.timeout;
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

}  // namespace

void PrintFindings(Output& out, const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    Json entry;
    entry["outcome"] = doctor::NameOf(finding.outcome);
    entry["check"] = finding.check;
    entry["reason"] = finding.reason;
    entry["mends"] = finding.mends;
    list.push_back(std::move(entry));
  }
  Json json;
  json["worst"] = doctor::NameOf(WorstOf(findings));
  json["findings"] = std::move(list);
  out.Result(ForPeople(findings), ForScripts(findings), json);
}

ExitStatus ExitStatusOf(Outcome worst) {
  switch (worst) {
    case Outcome::kPass:
    case Outcome::kSkip:
      return ExitStatus::kDone;
    case Outcome::kWarn:
      return ExitStatus::kNo;
    case Outcome::kFail:
      return ExitStatus::kFailed;
  }
  return ExitStatus::kFailed;
}

absl::Status CheckDoctorFlags(const DoctorFlags& flags) {
  if (flags.peer.has_value() && !absl::StartsWith(*flags.peer, "rdma://") &&
      !absl::StartsWith(*flags.peer, "shm://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--peer=", *flags.peer, " starts neither with rdma:// nor with shm://"));
  }
  if (flags.memory.has_value()) {
    const absl::StatusOr<uint64_t> size = server::ParseSize(*flags.memory);
    if (!size.ok())
      return absl::InvalidArgumentError(absl::StrCat("--memory: ", size.status().message()));
  }
  return absl::OkStatus();
}

ExitStatus RunDoctor(CommandContext& context, Arguments /*arguments*/) {
  const DoctorFlags& flags = context.options.doctor;
  if (flags.peer.has_value()) return RunPeer(context, *flags.peer);
  return RunChecks(context, flags);
}

}  // namespace osprey
