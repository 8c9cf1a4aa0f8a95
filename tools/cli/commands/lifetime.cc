// kvcli's commands on the time to live of keys.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "tools/cli/commands/run.h"
#include "tools/common/time_flag.h"

namespace osprey {
namespace {

// Milliseconds are precise enough, for people and scripts.
std::string SecondsOf(absl::Duration ttl) {
  return absl::StrFormat("%.3f", absl::ToDoubleSeconds(ttl));
}

ExitStatus RunWith(CommandContext& context, absl::string_view verb, const std::string& key,
                   absl::string_view people, const absl::StatusOr<uint64_t>& version) {
  if (!version.ok()) return Fail(context, Quoted(verb, key), version.status());
  PrintWritten(context, absl::StrCat(ForTerminal(key), " ", people), key, *version);
  return ExitStatus::kDone;
}

}  // namespace

absl::StatusOr<absl::Duration> ParseTtl(absl::string_view name, const std::string& text) {
  const absl::optional<absl::Duration> ttl = ParseTime(text);
  if (!ttl.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, text, " is no time; examples: 60, 0.5, 200ms, 24h"));
  }
  // This form refuses NaN as well.
  if (!(*ttl > absl::ZeroDuration() && *ttl <= kTtlMax())) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, text, " is not above 0 and at most 100 years"));
  }
  return *ttl;
}

absl::Status CheckExpire(Arguments arguments, const CommandOptions& /*options*/) {
  return ParseTtl("SECONDS ", arguments[1]).status();
}

ExitStatus RunExpire(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[0];
  const absl::StatusOr<absl::Duration> ttl = ParseTtl("SECONDS ", arguments[1]);
  if (!ttl.ok()) return ExitStatus::kUsage;  // CheckExpire has checked it
  return RunWith(context, "expire", key, absl::StrCat("expires in ", SecondsOf(*ttl), " s"),
                 Timed(context, [&](Client& client) {
                   return client.Expire(key, *ttl, WriteOptionsOf(context.options));
                 }));
}

ExitStatus RunPersist(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[0];
  return RunWith(context, "persist", key, "lives until it is deleted",
                 Timed(context, [&](Client& client) {
                   return client.Persist(key, WriteOptionsOf(context.options));
                 }));
}

ExitStatus RunTouch(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[0];
  return RunWith(context, "touch", key, "counts as used now",
                 Timed(context, [&](Client& client) { return client.Touch(key); }));
}

ExitStatus RunTtl(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[0];
  const absl::StatusOr<absl::Duration> ttl =
      Timed(context, [&](Client& client) { return client.Ttl(key); });
  if (!ttl.ok()) return Fail(context, Quoted("ttl", key), ttl.status());
  Json json;
  SetBytes(json, "key", key);
  if (*ttl == absl::InfiniteDuration()) {
    json["ttl"] = nullptr;
    context.out->Result(absl::StrCat(ForTerminal(key), " lives until it is deleted"), "none", json);
  } else {
    json["ttl"] = absl::ToDoubleSeconds(*ttl);
    context.out->Result(absl::StrCat(ForTerminal(key), " expires in ", SecondsOf(*ttl), " s"),
                        SecondsOf(*ttl), json);
  }
  return ExitStatus::kDone;
}

}  // namespace osprey
