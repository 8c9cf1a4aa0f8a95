// kvcli trace: one GET, step by step.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/cli/commands/run.h"

namespace osprey {

absl::Status CheckTrace(Arguments arguments, const CommandOptions& /*options*/) {
  if (arguments[0] == "get") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", arguments[0], "' cannot be traced; write trace get KEY"));
}

ExitStatus RunTrace(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[1];
  const std::string server = context.client->Describe();
  std::vector<TraceStep> steps;
  const absl::StatusOr<Value> value =
      Timed(context, [&](Client& client) { return client.TraceGet(key, steps); });
  std::string people = absl::StrFormat("%12s  %-10s  %s", "", "server", server);
  std::string plain = absl::StrCat("0.0\tserver\t", server);
  Json json;
  SetBytes(json, "key", key);
  json["server"] = server;
  json["steps"] = Json::array();
  for (const TraceStep& step : steps) {
    const double us = absl::ToDoubleMicroseconds(step.at);
    const std::string detail = ForTerminal(step.detail);
    absl::StrAppendFormat(&people, "\n%9.1f µs  %-10s  %s", us, step.what, detail);
    absl::StrAppendFormat(&plain, "\n%.1f\t%s\t%s", us, step.what, detail);
    json["steps"].push_back({{"us", us}, {"what", step.what}, {"detail", step.detail}});
  }
  json["found"] = value.ok();
  context.out->Result(people, plain, json);
  if (value.ok()) return ExitStatus::kDone;
  return Fail(context, Quoted("trace get", key), value.status());
}

}  // namespace osprey
