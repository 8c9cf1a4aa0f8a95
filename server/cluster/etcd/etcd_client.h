// The configuration store in etcd 3.4, by its JSON gateway.
//
//   Range, Execute ──> endpoint ──> [token] ──> POST ──> answer
//                        ^                        │ not sent, no leader: the next endpoint
//                        └────────────────────────┘ sent, no answer: only Range goes on
//
// Each call tries each endpoint at most once, and begins with the one that answered last. An
// endpoint gets an equal share of the time that is left. A transaction that was sent gets all of
// it, since no other endpoint can take it over.
//
// A token is fetched when etcd demands one, and again when it refuses ours.

#ifndef OSPREY_SERVER_CLUSTER_ETCD_ETCD_CLIENT_H_
#define OSPREY_SERVER_CLUSTER_ETCD_ETCD_CLIENT_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/cluster/etcd/etcd_http.h"
#include "server/cluster/etcd/etcd_messages.h"
#include "server/cluster/etcd/etcd_options.h"
#include "server/cluster/etcd/etcd_store.h"

namespace osprey {

// Thread rule: one thread at a time; calls block. Threads that must not delay each other have an
// object each.
class EtcdClient final : public ConfigurationStore {
 public:
  // Connects to nothing yet. Errors: INVALID_ARGUMENT, NOT_FOUND or PERMISSION_DENIED (a file),
  // with the option and the fix.
  static absl::StatusOr<std::unique_ptr<EtcdClient>> Create(EtcdOptions options);

  absl::StatusOr<RangeAnswer> Range(const StoreRange& range, absl::Duration timeout) override;
  TransactionResult Execute(const Transaction& transaction, absl::Duration timeout) override;

  // Of one endpoint, without the agreement of others. REQUIRES: an index of options().uri.endpoints.
  // Errors: those of Range.
  absl::StatusOr<EtcdMemberStatus> MemberStatus(size_t endpoint, absl::Duration timeout);

  const EtcdOptions& options() const { return options_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  // Takes an answer apart. An error: it is malformed.
  using Parse = absl::FunctionRef<absl::Status(absl::string_view)>;

  struct Request {
    const char* path;
    std::string body;
    bool may_repeat;  // after it was sent, at another endpoint
  };
  // What became of a request at one endpoint, or at all that were tried.
  struct Attempt {
    absl::Status status;          // OK: answered
    bool is_not_applied = false;  // for sure
    bool try_next = false;        // another endpoint may answer
    bool needs_token = false;     // with another token this endpoint may answer
  };

  EtcdClient(EtcdOptions options, std::unique_ptr<EtcdHttp> http)
      : options_(std::move(options)), http_(std::move(http)) {}

  Attempt Ask(const Request& request, absl::Duration timeout, Parse parse);
  // `unsent_until` bounds the time before it is sent.
  Attempt AskEndpoint(size_t endpoint, const Request& request, Time unsent_until, Time deadline,
                      Parse parse);
  Attempt PostOnce(size_t endpoint, const Request& request, Time unsent_until, Time deadline,
                   Parse parse);
  Attempt RenewToken(size_t endpoint, Time deadline);
  // Explains a gRPC error of etcd. `what` begins the message.
  Attempt Explain(const EtcdError& error, const std::string& what) const;

  const EtcdOptions options_;
  const std::unique_ptr<EtcdHttp> http_;
  size_t current_ = 0;  // the endpoint that comes first
  std::string token_;   // empty: none
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_ETCD_ETCD_CLIENT_H_
