#include "server/stats/cluster_stats.h"

#include <algorithm>

namespace osprey::server {

void ClusterStats::Add(const ClusterStats& other) {
  shards += other.shards;
  primaries += other.primaries;
  slots += other.slots;
  slots_used += other.slots_used;
  term = std::max(term, other.term);
  in_sync = std::min(in_sync, other.in_sync);
  replicas = std::max(replicas, other.replicas);
  right_left = std::min(right_left, other.right_left);
  links = std::max(links, other.links);
  promotions += other.promotions;
  groups += other.groups;
  groups_waiting += other.groups_waiting;
  moves.insert(moves.end(), other.moves.begin(), other.moves.end());
  for (const Member& member : other.members) {
    const auto place =
        std::lower_bound(members.begin(), members.end(), member.server,
                         [](const Member& one, const std::string& id) { return one.server < id; });
    if (place == members.end() || place->server != member.server) {
      members.insert(place, member);
      continue;
    }
    place->primaries += member.primaries;
    place->in_sync += member.in_sync;
    place->is_known |= member.is_known;
    place->is_needed |= member.is_needed;
    place->is_linked |= member.is_linked;
  }
}

}  // namespace osprey::server
