#include "tools/loadgen/arguments.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tools/common/time_flag.h"

namespace osprey::loadgen {

absl::StatusOr<absl::Duration> ParseTimeFlag(absl::string_view flag, const std::string& text,
                                             absl::Duration least, absl::Duration most) {
  const absl::optional<absl::Duration> time = ParseTime(text);
  if (!time.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", absl::CHexEscape(text),
                                                   " is no time; examples: 5, 0.5, 200ms, 5m"));
  }
  // This form refuses NaN as well.
  if (!(*time >= least && *time <= most)) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", absl::CHexEscape(text),
                                                   " is not ", absl::FormatDuration(least), " to ",
                                                   absl::FormatDuration(most)));
  }
  return *time;
}

absl::StatusOr<YcsbArguments> TakeYcsbArguments(absl::Span<const std::string> args) {
  YcsbArguments taken;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "-s") {
      taken.rest.push_back("--status");
    } else if (arg == "-p" || arg == "-P") {
      if (++i == args.size())
        return absl::InvalidArgumentError(
            absl::StrCat(arg, arg == "-p" ? " needs NAME=VALUE" : " needs a file"));
      const absl::Status status = arg == "-p" ? ParseAssignment(args[i], taken.given)
                                              : ReadPropertiesFile(args[i], taken.files);
      if (!status.ok()) return status;
    } else {
      taken.rest.push_back(arg);
    }
  }
  return taken;
}

absl::StatusOr<Arrivals> ParseArrivals(absl::string_view text) {
  if (text == "poisson") return Arrivals::kPoisson;
  if (text == "fixed") return Arrivals::kFixed;
  if (text == "etc") return Arrivals::kEtc;
  return absl::InvalidArgumentError(
      absl::StrCat("--arrivals=", absl::CHexEscape(text), " is not one of poisson, fixed, etc"));
}

absl::StatusOr<WaitMode> ParseWait(absl::string_view text) {
  if (text == "adaptive") return WaitMode::kAdaptive;
  if (text == "spin") return WaitMode::kSpin;
  if (text == "event") return WaitMode::kEvent;
  return absl::InvalidArgumentError(
      absl::StrCat("--wait=", absl::CHexEscape(text), " is not one of adaptive, spin, event"));
}

}  // namespace osprey::loadgen
