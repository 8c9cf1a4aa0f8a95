// Waits for the end of another server's right (serving_right.h), and then ends its key.
//
//   PeerWatch watch(key, ttl);
//   const auto read = store.Range({key}, timeout);
//   if (read.ok()) watch.Saw(read->keys, now());          // the clock after the answer
//   …
//   if (watch.HasEnded(now())) store.Execute(watch.Removal(), timeout);
//
// Once a key has been at one revision for the TTL, counted from the answer of a linearizable read, its
// server has no right. Then the removal compares that revision:
//
// - The time counts from the answer. *Else* the server may have renewed after the read was sent, and
//   the read has that revision.
// - The removal compares the revision. *Else* it deletes a key that was renewed since.
//
// A removal without an answer may take effect later; it does harm to no renewed key.
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_CLUSTER_RIGHT_PEER_WATCH_H_
#define OSPREY_SERVER_CLUSTER_RIGHT_PEER_WATCH_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/cluster/etcd/etcd_store.h"

namespace osprey {

class PeerWatch {
 public:
  PeerWatch(std::string key, absl::Duration ttl) : key_(std::move(key)), ttl_(ttl) {}

  // What a linearizable read found, of this key and others. `answered`: after the answer, by the
  // watcher's lease clock.
  void Saw(absl::Span<const StoredKey> keys, absl::Time answered);
  // What was seen counts for nothing any more: the time begins with the next read.
  void Restart() {
    since_ = absl::InfiniteFuture();
    revision_ = 0;
  }

  // Whether the key was there in the last read, if one came after Restart.
  bool is_there() const { return revision_ != 0; }
  // Of the key in the last read; 0: it was not there.
  int64_t create_revision() const { return create_revision_; }
  // The right of the key's server has ended, if the key still has that revision. False between
  // Removal and the next read, which tells what became of it.
  bool HasEnded(absl::Time now) const;
  // Deletes the key if so. REQUIRES: is_there().
  Transaction Removal();

 private:
  const std::string key_;
  const absl::Duration ttl_;
  int64_t revision_ = 0;  // the last change of the key that was seen
  int64_t create_revision_ = 0;
  absl::Time since_ = absl::InfiniteFuture();  // that revision was first seen
  bool awaits_read_ = false;                   // since Removal
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_RIGHT_PEER_WATCH_H_
