// A server's right to serve, which does not depend on the store's leases or clocks: a stalled leader
// of etcd answers keep-alives of leases that it revokes later (etcd issue 15247).
//
//   ServingRight right(options);
//   const absl::Time sent = now();
//   const TransactionResult result = store.Execute(right.NextRequest(), timeout);
//   status = right.TakeAnswer(result, sent);       // every third of the TTL or so
//   …
//   look at the data, then: if (now() < right.until()) answer
//
//   absent --create--> held --renew--> held
//                       |--the key is gone, or another's--> lost: a new ServingRight, with a new
//                       |                                    incarnation
//                       '--Release: the server ends--> lost, and no other waits for its time
//
// The server has a key of its own in the store. Each renewal changes the key, and compares that it is
// the one which this server created. A watcher that has seen the key at one revision for long enough
// (peer_watch.h) may delete it. A renewal that was sent at s, and answered, changed the key after s: so
// the key stays until s + TTL, and the server has its right until then. Hence:
//
// - The right counts from the sending. *Else* an answer that comes late gives a right that others have
//   stopped waiting for.
// - The server looks at the clock after it has looked at the data. *Else* it may be stopped in between
//   for any time.
//
// Thread rule: one thread; until() may be copied to others.

#ifndef OSPREY_SERVER_CLUSTER_RIGHT_SERVING_RIGHT_H_
#define OSPREY_SERVER_CLUSTER_RIGHT_SERVING_RIGHT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/cluster/etcd/etcd_store.h"
#include "server/cluster/right/server_record.h"

namespace osprey {

struct RightOptions {
  std::string key;      // of this server: "/osprey/NAME/servers/ID"
  ServerRecord record;  // its incarnation is new, and used for no other ServingRight
  absl::Duration ttl = absl::Seconds(3);
};

class ServingRight {
 public:
  explicit ServingRight(RightOptions options) : options_(std::move(options)) {}

  // Creates the key, or renews it. REQUIRES: !lost().
  Transaction NextRequest();

  // Of the request that was sent last. `sent`: before that, by the server's lease clock. An answer
  // that is missing or unknown changes nothing. Errors: ALREADY_EXISTS (another server, or an earlier
  // incarnation of this one, has the key: watch it), ABORTED (the key of this server is gone),
  // DATA_LOSS (an answer that no store gives).
  absl::Status TakeAnswer(const TransactionResult& result, absl::Time sent);

  // The server ends: it has no right from now on, and the transaction deletes its key. A renewal that takes
  // effect later is refused. Nothing: no key is known. REQUIRES: !lost(); no lease of a reader is left.
  // *Else* another server is the primary while READs of this one still count.
  std::optional<Transaction> Release();

  // The server may serve while the lease clock shows less. Never beyond the right that others wait
  // for. InfinitePast: it has none.
  absl::Time until() const { return until_; }
  bool lost() const { return lost_; }
  // Of the key in the store; 0: it is not known to be there. Names this incarnation to others.
  int64_t create_revision() const { return create_revision_; }

 private:
  absl::Status TakeRefusal(const TransactionResult& result);

  RightOptions options_;
  int64_t create_revision_ = 0;
  absl::Time until_ = absl::InfinitePast();
  bool lost_ = false;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_RIGHT_SERVING_RIGHT_H_
