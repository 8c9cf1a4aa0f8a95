// Which servers are to have a copy of each shard, and which shard changes its primary for balance. Every server
// computes both by itself, from what it has read of the store. They need not agree at once: a joiner takes memory
// before it copies, and a primary takes no more joiners than copies are missing.
//
//   servers and their slots ─┐
//   copies of each shard ────┴─> MissingCopies ──> shard: servers that are to join it
//                            ├─> NextRelief    ──> a copy that moves, so that a missing one has room
//                            └─> NextHandOver  ──> shard, from its primary to another member
//
// - *Fewest copies first.* Shards without a copy come before those with one, and so on. *Else* a second copy takes
//   the memory that a lost shard needs.
// - *Zones.* A copy goes to a zone with the fewest of the shard's copies. There it goes to the server with the most
//   free slots, of several the first by ID.
// - *A restart.* What a server had waits for it for a while, unless too few copies are left for writes. *Else* a
//   restart copies all of it to others.
//
// Thread rule: plain values and functions.

#ifndef OSPREY_SERVER_CLUSTER_CONFIGURATION_PLACEMENT_H_
#define OSPREY_SERVER_CLUSTER_CONFIGURATION_PLACEMENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/cluster/configuration/shard_record.h"

namespace osprey {

struct PlacementServer {
  uint32_t slots = 0;  // for how many shards it has memory
  std::string zone;    // servers of one zone may fail together
  // It has ended not long ago. It gets no copy, but what is missing waits for it.
  bool is_away = false;
};

struct PlacementShard {
  // A copy that moves counts as that of the server to which it goes.
  std::optional<ShardMove> move = std::nullopt;
  std::string primary;               // empty: it has none
  std::vector<std::string> members;  // in sync; also servers that have ended
};

struct PlacementView {
  uint32_t replicas = 0;                           // of each shard
  uint32_t min_in_sync = 1;                        // without so many copies nothing waits
  std::map<std::string, PlacementServer> servers;  // by ID
  std::vector<PlacementShard> shards;              // by number
};

// By shard: the servers that are to join it, in the order of their choice. Fewer than are missing where servers or
// slots are. Members that have ended count as missing, and servers are never given more shards than slots. A shard
// all of whose members have ended is given to none, since none can join it. A server is given one copy that moves at a
// time, besides those that are missing.
std::vector<std::vector<std::string>> MissingCopies(const PlacementView& view);

// Whether nothing comes of the shard's move. It leads to a server without room for it, and other moves make none there:
// a missing copy is there instead, or the moves wait for each other in a circle. Or that server has joined in place of
// a missing copy, and no other has room.
bool IsMoveStuck(const PlacementView& view, uint32_t shard);

struct PlacedMove {
  uint32_t shard = 0;
  ShardMove move;

  friend bool operator==(const PlacedMove&, const PlacedMove&) = default;
};

// A move without which a missing copy finds no room: the servers with free slots all have that shard. Nothing: none
// is needed, none helps, or a copy moves already. More than one may be needed, one after the other.
std::optional<PlacedMove> NextRelief(const PlacementView& view);

struct PlacedHandOver {
  uint32_t shard = 0;
  std::string from, to;
  uint64_t primaries_from = 0, primaries_to = 0;  // before

  friend bool operator==(const PlacedHandOver&, const PlacedHandOver&) = default;
};

// One hand-over for balance; nothing: there is none. The server with the most primaries, from which hand-overs lead
// to one with at least two fewer, gets one fewer that way. The last of these hand-overs comes first, so that each
// is to a server with fewer primaries. Only of shards without a missing copy, as far as there are servers.
std::optional<PlacedHandOver> NextHandOver(const PlacementView& view);

// What a server begins of that, from look to look. A step on the way to others needs a second look. *Else* servers
// that have read different records give to the same one at once.
class HandOverPlan {
 public:
  std::optional<PlacedHandOver> Look(const PlacementView& view);

 private:
  std::optional<PlacedHandOver> last_;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_CONFIGURATION_PLACEMENT_H_
