// What a member needs of the server around it: the table of a replica, and messages to other servers.

#ifndef OSPREY_SERVER_CLUSTER_MEMBER_REPLICA_HOST_H_
#define OSPREY_SERVER_CLUSTER_MEMBER_REPLICA_HOST_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/cluster/replication/shard_backup.h"

namespace osprey {

// The table of one shard, as a replica of it is made, applied and copied.
class ReplicaTable : public ReplicaStore {
 public:
  // Begins to empty it. Nothing of it is served from then on.
  virtual void Clear() = 0;
  // Goes on, for a short time. True: it is empty.
  virtual bool ClearSome() = 0;

  // --- At a primary, which is one no more. Returns up to which lsn its own groups are made. Of those behind
  // it nothing is made, or prepared.
  virtual uint64_t EndPrimary() = 0;

  // --- At a primary: a copy of what is applied when it begins, or later. One at a time.
  virtual void BeginCopy() = 0;
  // Whether NextChunk may be called: else later.
  virtual bool HasChunk() = 0;
  // The next part; empty: there is none left.
  virtual std::string NextChunk() = 0;

  // --- At a joiner. Groups are applied in between.
  // REQUIRES: the table is empty.
  virtual void BeginJoin() = 0;
  // Errors: the chunk has no room, or is malformed.
  virtual absl::Status TakeChunk(absl::string_view chunk) = 0;
  virtual void EndCopy() = 0;
};

// … which has memory only while this server has a copy of the shard, or makes or clears one. Without memory it is asked
// for nothing but Clear and ClearSome.
class MemberTable : public ReplicaTable {
 public:
  // Takes memory, which is empty, unless it has some. False: none is free. The end of ClearSome gives it back.
  virtual bool Take() = 0;
  // Whether Take would return true.
  virtual bool CanTake() const = 0;
};

enum class PeerMessageKind : uint8_t { kAppend = 1, kAck = 2, kCopy = 3 };

// Messages to other servers, in order while a link lasts. What is sent without a link is lost.
class PeerSender {
 public:
  virtual ~PeerSender() = default;
  // Bytes of messages that are taken now.
  virtual uint64_t RoomFor(uint64_t incarnation) const = 0;
  virtual void Send(uint64_t incarnation, PeerMessageKind kind, std::string bytes) = 0;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_MEMBER_REPLICA_HOST_H_
