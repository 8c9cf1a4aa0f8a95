#include "server/cluster/etcd/etcd_client.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

using std::chrono::steady_clock;

constexpr char kRangePath[] = "/v3/kv/range";
constexpr char kTransactionPath[] = "/v3/kv/txn";
constexpr char kStatusPath[] = "/v3/maintenance/status";
constexpr char kAuthenticatePath[] = "/v3/auth/authenticate";

steady_clock::time_point After(absl::Duration timeout) {
  return steady_clock::now() + absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24)));
}

std::chrono::milliseconds Until(steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time - steady_clock::now());
}

// --- Errors of etcd (rpctypes/error.go)

// What its gRPC code and a part of its message say. The first that matches counts.
struct KnownError {
  int grpc_code;
  absl::string_view message;
  absl::StatusCode code;
  bool is_not_applied;
  bool try_next;
  bool needs_token;
  absl::string_view fix;
};

constexpr KnownError kKnownErrors[] = {
    {14, "etcdserver: no leader", absl::StatusCode::kUnavailable, true, true, false,
     "wait for its election, or start more of its members"},
    {8, "too many requests", absl::StatusCode::kUnavailable, true, true, false,
     "give it a faster disk, or fewer users"},
    // Said before a transaction is proposed, but by etcd's quotaApplierV3 also after it was applied.
    {8, "database space exceeded", absl::StatusCode::kResourceExhausted, false, false, false,
     "compact and defragment it, and then: etcdctl alarm disarm"},
    // gRPC says the same of a request and of an answer.
    {8, "received message larger than max", absl::StatusCode::kInvalidArgument, false, false, false,
     "start it with a larger --max-request-bytes"},
    {16, "invalid auth token", absl::StatusCode::kUnauthenticated, true, false, true,
     "check its clock and --auth-token"},
    {3, "revision of auth store is old", absl::StatusCode::kUnauthenticated, true, false, true,
     "its users or roles are being changed; repeat it"},
    {3, "user name is empty", absl::StatusCode::kUnauthenticated, true, false, true,
     "it has authentication enabled: give a user, and the file of the password"},
    {3, "authentication failed", absl::StatusCode::kUnauthenticated, true, false, false,
     "check the user and the file of the password"},
    {7, "", absl::StatusCode::kPermissionDenied, true, false, false, ""},
    {3, "too many operations", absl::StatusCode::kInvalidArgument, true, false, false,
     "start it with a larger --max-txn-ops"},
    {3, "request is too large", absl::StatusCode::kInvalidArgument, true, false, false,
     "start it with a larger --max-request-bytes"},
    {3, "", absl::StatusCode::kInvalidArgument, true, false, false,
     "the request is a mistake of Osprey; please report it"},
    {9, "", absl::StatusCode::kFailedPrecondition, false, false, false, "check its authentication"},
};

constexpr char kAuthIsOff[] = "authentication is not enabled";
// Not in JSON: of etcd's accessController, before the gateway.
constexpr char kCommonName[] = "CommonName of client sending a request against gateway";

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdClient>> EtcdClient::Create(EtcdOptions options) {
  if (absl::Status status = CheckEtcdOptions(options); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<EtcdHttp>> http = EtcdHttp::Create(options.tls);
  if (!http.ok()) return http.status();
  return std::unique_ptr<EtcdClient>(new EtcdClient(std::move(options), *std::move(http)));
}

absl::StatusOr<RangeAnswer> EtcdClient::Range(const StoreRange& range, absl::Duration timeout) {
  absl::StatusOr<RangeAnswer> answer;
  const Attempt attempt =
      Ask({kRangePath, RangeRequest(range), true}, timeout, [&](absl::string_view text) {
        answer = ParseRangeAnswer(text, range);
        return answer.status();
      });
  if (!attempt.status.ok()) return attempt.status;
  return answer;
}

TransactionResult EtcdClient::Execute(const Transaction& transaction, absl::Duration timeout) {
  absl::StatusOr<TransactionResult> result;
  const Attempt attempt = Ask({kTransactionPath, TransactionRequest(transaction), false}, timeout,
                              [&](absl::string_view text) {
                                result = ParseTransactionAnswer(text, transaction);
                                return result.status();
                              });
  if (attempt.status.ok()) return *std::move(result);
  TransactionResult failed;
  failed.outcome =
      attempt.is_not_applied ? TransactionOutcome::kNotApplied : TransactionOutcome::kUnknown;
  failed.status = attempt.status;
  return failed;
}

absl::StatusOr<EtcdMemberStatus> EtcdClient::MemberStatus(size_t endpoint, absl::Duration timeout) {
  assert(endpoint < options_.uri.endpoints.size());
  absl::StatusOr<EtcdMemberStatus> answer;
  const Time deadline = After(timeout);
  const Attempt attempt = AskEndpoint(endpoint, {kStatusPath, "{}", true}, deadline, deadline,
                                      [&](absl::string_view text) {
                                        answer = ParseMemberStatus(text);
                                        return answer.status();
                                      });
  if (!attempt.status.ok()) return attempt.status;
  return answer;
}

EtcdClient::Attempt EtcdClient::Ask(const Request& request, absl::Duration timeout, Parse parse) {
  const Time deadline = After(timeout);
  const size_t count = options_.uri.endpoints.size();
  std::string failures;
  Attempt attempt{absl::DeadlineExceededError("no time is left to ask etcd"), true, true, false};
  for (size_t left = count; left > 0 && attempt.try_next; --left) {
    const Time now = steady_clock::now();
    if (now >= deadline) break;
    const Time share_ends = now + (deadline - now) / static_cast<int>(left);
    attempt = AskEndpoint(current_, request, share_ends, request.may_repeat ? share_ends : deadline,
                          parse);
    if (attempt.status.ok()) return attempt;
    absl::StrAppend(&failures, failures.empty() ? "" : " | ", attempt.status.message());
    if (attempt.try_next) current_ = (current_ + 1) % count;
    if (!attempt.is_not_applied && !request.may_repeat) break;
  }
  if (!failures.empty()) attempt.status = absl::Status(attempt.status.code(), failures);
  return attempt;
}

EtcdClient::Attempt EtcdClient::AskEndpoint(size_t endpoint, const Request& request,
                                            Time unsent_until, Time deadline, Parse parse) {
  const Attempt attempt = PostOnce(endpoint, request, unsent_until, deadline, parse);
  if (!attempt.needs_token || options_.user.empty()) return attempt;
  Attempt renewal = RenewToken(endpoint, unsent_until);
  renewal.is_not_applied = true;  // etcd refused the request unseen
  if (!renewal.status.ok()) return renewal;
  return PostOnce(endpoint, request, unsent_until, deadline, parse);
}

EtcdClient::Attempt EtcdClient::RenewToken(size_t endpoint, Time deadline) {
  token_.clear();
  absl::StatusOr<std::string> password = ReadPasswordFile(options_.password_file);
  if (!password.ok()) return {password.status()};
  const Request request{kAuthenticatePath, AuthenticateRequest(options_.user, *password), false};
  Attempt attempt = PostOnce(endpoint, request, deadline, deadline, [this](absl::string_view text) {
    absl::StatusOr<std::string> token = ParseToken(text);
    if (token.ok()) token_ = *std::move(token);
    return token.status();
  });
  // Disabled since the token that we had: no token is needed.
  if (absl::StrContains(attempt.status.message(), kAuthIsOff)) attempt = {};
  return attempt;
}

EtcdClient::Attempt EtcdClient::PostOnce(size_t endpoint, const Request& request, Time unsent_until,
                                         Time deadline, Parse parse) {
  const std::string address = options_.uri.endpoints[endpoint].ToString();
  const std::string what = absl::StrCat("etcd at ", address, ": ");
  const HttpReply reply = http_->Post(
      {absl::StrCat(options_.uri.is_tls ? "https://" : "http://", address, request.path),
       request.body, token_, Until(deadline), Until(unsent_until)});
  if (!reply.status.ok()) {
    const absl::string_view fix =
        options_.uri.is_tls ? "; check that it runs there, and the CA, certificate and key"
                            : "; check that it runs there, or write etcds:// if it requires TLS";
    return {absl::Status(reply.status.code(), absl::StrCat(what, reply.status.message(), fix)),
            !reply.sent, true};
  }
  if (reply.http_status == 200) {
    const absl::Status parsed = parse(reply.body);
    if (parsed.ok()) return {};
    return {absl::Status(parsed.code(),
                         absl::StrCat(what, parsed.message(), "; check that this is etcd 3.4")),
            false, true};
  }
  if (absl::StrContains(reply.body, kCommonName)) {
    return {
        absl::UnauthenticatedError(absl::StrCat(
            what, Excerpt(reply.body), "; use a client certificate without a common name (CN)")),
        true, false};
  }
  if (const std::optional<EtcdError> error = ParseEtcdError(reply.body))
    return Explain(*error, what);
  return {absl::UnavailableError(
              absl::StrCat(what, "HTTP status ", reply.http_status, ", '", Excerpt(reply.body),
                           "'; check that this is etcd 3.4, with its JSON gateway")),
          false, true};
}

EtcdClient::Attempt EtcdClient::Explain(const EtcdError& error, const std::string& what) const {
  const std::string message = absl::StrCat(what, error.message, " (gRPC code ", error.code, ")");
  for (const KnownError& known : kKnownErrors) {
    if (error.code != known.grpc_code || !absl::StrContains(error.message, known.message)) continue;
    const std::string fix =
        known.code != absl::StatusCode::kPermissionDenied
            ? std::string(known.fix)
            : absl::StrCat(
                  "let user '", Excerpt(options_.user),
                  "' read and write: etcdctl role grant-permission ROLE --prefix readwrite ",
                  options_.uri.KeyPrefix());
    return {absl::Status(known.code, absl::StrCat(message, "; ", fix)), known.is_not_applied,
            known.try_next, known.needs_token};
  }
  return {absl::UnavailableError(absl::StrCat(message, "; see its log")), false, true};
}

}  // namespace osprey
