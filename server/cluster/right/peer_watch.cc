#include "server/cluster/right/peer_watch.h"

#include <algorithm>
#include <cassert>

#include "rdma/lease_time.h"

namespace osprey {

void PeerWatch::Saw(absl::Span<const StoredKey> keys, absl::Time answered) {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const StoredKey& one) { return one.key == key_; });
  awaits_read_ = false;
  const int64_t revision = found == keys.end() ? 0 : found->mod_revision;
  create_revision_ = found == keys.end() ? 0 : found->create_revision;
  if (revision == revision_) return;
  revision_ = revision;
  since_ = answered;
}

bool PeerWatch::HasEnded(absl::Time now) const {
  return is_there() && !awaits_read_ && now - since_ >= AwaitedFor(ttl_);
}

Transaction PeerWatch::Removal() {
  assert(is_there());
  awaits_read_ = true;
  Transaction removal;
  removal.compares = {StoreCompare::ModRevision(key_, revision_)};
  removal.operations = {StoreOperation::Delete(key_)};
  return removal;
}

}  // namespace osprey
