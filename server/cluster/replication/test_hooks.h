// Mistakes on purpose, for tests. In production IsMistake is constant, and the compiler removes them.
//
// The library is built twice (BUILD): `replication`, and for tests `replication_hooked`, with
// OSPREY_REPLICATION_TEST_HOOKS. replication_simulation_test finds each mistake of the
// shard, the tests of tests/server/cluster/table those of the table.

#ifndef OSPREY_SERVER_CLUSTER_REPLICATION_TEST_HOOKS_H_
#define OSPREY_SERVER_CLUSTER_REPLICATION_TEST_HOOKS_H_

#include <cstdint>

namespace osprey {

enum class ReplicationMistake : uint8_t {
  kNone,
  // A backup (shard_backup.h).
  kTakesLowerTerm,
  kDropsPendingEagerly,  // when it sees a new term
  kAppliesUnconfirmed,   // the commit point covers groups of earlier terms
  kSameLsnIsSameGroup,   // whatever its term
  kAppliesAtOnce,        // before the commit point passes a group
  // A primary (shard_primary.h).
  kServesBeforeTail,    // before the tail is committed
  kDropsTail,           // a new primary forgets what it has pending
  kCommitsTailAlone,    // without the other members
  kAddsBehind,          // a joiner that has what is applied, and not all that is committed
  kAddsAheadOfMembers,  // … whose copy has what a member has not applied
  kCommitsBelowMin,     // what it has decided, with fewer replicas than the cluster promises
  kDiscardsEarly,       // applied groups that a member has not applied
  kJoinsWithGap,        // a joiner's appends begin behind those pending when its copy began
  // A member (server/cluster/member).
  kAnswersWithoutRight,
  kAddsPartOfCopy,    // a joiner that has not said that its copy is whole
  kHandsOverAtOnce,   // while clients may still have leases
  kSwapsBeforeReads,  // tries a swap again before it reads what has changed
  kLinksMembersOnly,  // makes no link to a server that has sent a message
  // The table of a replica (server/cluster/table/table_replica.h).
  kCopyOverAppends,       // a key is taken from the copy though a group has put or deleted it
  kCopyForgetsExpiry,     // … with the expiry that it had before a group changed that
  kCopyWithoutExpired,    // … not at all, though the groups have only its expiry
  kCopyLeavesOutExpired,  // keys that have expired and are not removed yet
  kCopyRevivesSessions,   // a session that a group has ended is taken from the copy
  kCopyOverResults,       // results of groups are lost when the session comes
  kDeletesNewer,          // a deletion of an earlier value deletes the one that replaced it
  kReservesNoPlace,       // a put holds no place in the index
  kBackupDecides,         // a backup evicts keys, and ends expired ones
  kExpiryNotReported,     // a primary does not say that it has ended an expired key
  kForgetsReleased,       // what a group held is not given back when it is replaced
  kForgetsLostRemovals,  // what a primary has evicted alone stays at the others when it is one again
  kFloorOfAppliedKeys,   // the next primary may give out versions that clients have seen
  // A server at work (server/cluster/node).
  kAnswersUncommitted,  // a write is answered once it is decided
  // Expiries (server/cluster/table/time_marks.h).
  kJudgesBeyondMark,  // a primary judges expiries whatever the mark
  kForgetsMarks,      // a backup takes no mark of time from groups
  kCopyWithoutMark,   // a joiner's copy has none
  // Long values (server/cluster/table/value_parts.h).
  kPartsCountAtOnce,  // a primary counts parts as applied before their put
};

#ifdef OSPREY_REPLICATION_TEST_HOOKS

// Process-wide, for tests of one thread.
inline ReplicationMistake active_mistake = ReplicationMistake::kNone;
inline bool IsMistake(ReplicationMistake mistake) { return active_mistake == mistake; }

#else

constexpr bool IsMistake(ReplicationMistake) { return false; }

#endif

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_REPLICATION_TEST_HOOKS_H_
