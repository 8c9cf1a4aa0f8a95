/* The replication of one shard: three replicas, of which server 0 is the first primary; the store with the shard's record;
 * writes of one key by a client, and readers.
 *
 * Claim: what outsiders have seen as done only grows, in one order, and has no write twice. A READ that counts never
 * returns less. So the key is linearizable, and each write takes effect once.
 *
 * Network: a message, once sent, may arrive at any later time or never. So what a primary has appended in a term is a log
 * of that term (sent), with its commit point and the acknowledgements. A backup takes the appends of one term in order.
 * Between terms and connections nothing is ordered. What a server has sent before it ended stays on its way.
 *
 * Store: a swap compares that the record is as its author has it. The author sees the outcome later, or never.
 *
 * Failures: a server ends, for good or to begin again as another incarnation. Or it is frozen beyond its right, its key is
 * removed, and it goes on later as if nothing had happened. With SYNC it has its log then, with ASYNC a part of it, else
 * nothing.
 *
 * Readers: a READ counts if the server's region says that it serves, and the server has its right (serving_right.h). That
 * readers may rely on the region for a while is another model's claim.
 *
 * Lives: a backup that cannot catch up drops its copy, within its incarnation, to begin another. It is another replica then
 * (ShardRecord): without what the one before had acknowledged, and without its place.
 *
 * A write that its primary has decided and committed, in one term, is on at least MIN_IN_SYNC replicas.
 *
 * An entry is the term in which it was decided, times 4, and the number of its write.
 *
 * Model              Code, as far as it exists
 *   counted          SwapTracker::Counted
 *   Drop, Add        DropMember, AddMember; the author has counted the joiner since SwapTracker::Begin
 *   promote          PromoteSelf
 *   resume           ResumePlace
 *   HandOver         HandOver
 *
 * Goals, each of which must be reached (-DGOAL_…): else the claim may hold for want of events
 *   GOAL_THIRD_TERM          a third term serves all writes
 *   GOAL_BACK_AS_PRIMARY     a server was lost, has joined again and is primary again
 *   GOAL_LATE_COMMIT         a deposed primary acknowledges what its successor does not have as committed
 *   GOAL_ALL_RESUME          SYNC: all have resumed, and the first primary was promoted again
 *   GOAL_HAND_OVER           a hand-over, and two promotions
 *   GOAL_LIFE                a replica of a second life is the primary
 *
 * Mutants, each of which must be found (-DBUG_…):
 *  Commit before publish
 *   BUG_READABLE_WHEN_DECIDED      an entry is READable when it is decided
 *   BUG_ANSWERED_BY_PENDING        a failed condition is answered by an entry that is pending
 *  In sync
 *   BUG_DROPPED_BEFORE_THE_SWAP    a primary commits without a dropped backup before the swap has happened
 *   BUG_JOINER_INCOMPLETE          a joiner is added before it has all that is committed
 *   BUG_JOINER_COUNTED_LATE        a joiner is counted once the swap is known to have happened
 *   BUG_REREAD_CONCLUDES           a record that was read again, unchanged, counts as the answer of a swap
 *   BUG_ADDED_BEFORE_THE_TAIL      a new primary adds a joiner before its own tail is committed
 *   BUG_COPY_WITHOUT_PENDING       copy and appends leave out what was pending when they began
 *   BUG_LIFE_UNNAMED               a record names servers' incarnations, without their lives
 *   BUG_COMMITS_BELOW_MIN          a primary commits what it has decided, with fewer than the least number in sync
 *  Terms
 *   BUG_LOWER_TERM_TAKEN           a backup takes appends of a lower term
 *   BUG_ACK_WITHOUT_TERM           an acknowledgement counts in every term
 *   BUG_ACK_OF_EARLIER_REPLICA     a late acknowledgement of an earlier incarnation counts for the next
 *   BUG_ACK_FOR_EARLIER_REPLICA    an acknowledgement of an incarnation counts for the earlier one
 *   BUG_TERM_FORGOTTEN             SYNC: the term is neither durable nor taken from the record
 *  Backups
 *   BUG_APPLIED_AT_ONCE            a backup applies appends at once
 *   BUG_TAIL_DROPPED_EARLY         a backup drops its pending entries when it sees a new term
 *   BUG_UNCONFIRMED_COMMITTED      the commit point covers entries that were not confirmed in this term
 *   BUG_LSN_ALONE_COMPARED         an entry of the same lsn counts as the same entry
 *   BUG_REST_KEPT                  a backup replaces an entry, and keeps those after it
 *  Promotion
 *   BUG_NONMEMBER_PROMOTED         a replica is promoted that the record does not name
 *   BUG_NAME_PROMOTED              a new incarnation is promoted by its server's name
 *   BUG_PRIMARY_BY_NAME            a new incarnation finds its server's name as primary, and goes on
 *   BUG_RECORD_UNCOMPARED          a promotion does not compare that the record is unchanged
 *   BUG_KEY_UNCOMPARED             a promotion does not compare that the primary's key is gone
 *   BUG_TAIL_FORGOTTEN             a new primary drops its tail
 *   BUG_SERVES_BEFORE_TAIL         a new primary serves before its tail is committed
 *   BUG_READ_BEFORE_TAIL           its region says so before
 *   BUG_TAIL_APPLIED_ALONE         a new primary applies its tail without the other members
 *   BUG_TAIL_BEFORE_PROMOTION      its tail is what it had before the transaction
 *   BUG_OLD_PRIMARY_KEPT           the old primary stays a member, and is not counted
 *  Hand-over
 *   BUG_SUCCESSOR_WITHOUT_TAIL     the successor serves before its tail is committed
 *   BUG_SWAP_BEFORE_READERS        the swap is sent while READs of the old primary count
 *   BUG_SUCCESSOR_TOLD             the same, but the successor serves when told so, or when the key is gone
 *   BUG_NONMEMBER_SUCCEEDS         the successor is no member
 *   BUG_HAND_OVER_GIVEN_UP         without an answer the old primary goes on as before
 *   BUG_SUCCESSOR_APPLIES_ALL      the successor applies its log, since the old primary had committed all
 *  Exactly once
 *   BUG_WINDOW_LOCAL               the window of results has the writes of this primary alone
 *   BUG_WINDOW_WITHOUT_PENDING     the window does not have pending entries
 *   BUG_COPY_WITHOUT_WINDOW        a joiner copies the keys without the window
 *   BUG_DROPPED_STAYS_IN_WINDOW    an entry that was dropped stays in the window
 *   BUG_BELOW_WINDOW_EXECUTED      a write below a window of one entry is executed
 *  Restart
 *   BUG_ASYNC_RESUMES              a server that may have lost a tail resumes its place
 *   BUG_OWN_LOG_NOT_AWAITED        SYNC: a primary commits before its own log has the entry
 *   BUG_LOG_TAKEN_AS_COMMITTED     SYNC: what a log has counts as committed
 *   BUG_RESUMES_WITHOUT_COPY       SYNC: a server that has dropped its copy, to begin another, resumes the place of that
 */

/* --- What some mistakes and goals need to show. */

#if defined(BUG_TERM_FORGOTTEN) || defined(BUG_OLD_PRIMARY_KEPT) || defined(BUG_OWN_LOG_NOT_AWAITED) || \
    defined(BUG_LOG_TAKEN_AS_COMMITTED) || defined(BUG_RESUMES_WITHOUT_COPY) || defined(GOAL_ALL_RESUME)
#define SYNC
#endif
#ifdef BUG_ASYNC_RESUMES
#define ASYNC
#endif
#if defined(BUG_WINDOW_LOCAL) || defined(BUG_WINDOW_WITHOUT_PENDING) || defined(BUG_COPY_WITHOUT_WINDOW) || \
    defined(BUG_BELOW_WINDOW_EXECUTED)
#define SLOTS 3
#endif
#ifdef BUG_ACK_FOR_EARLIER_REPLICA
#define FAILURES 3
#endif
#if defined(BUG_SUCCESSOR_WITHOUT_TAIL) || defined(BUG_SWAP_BEFORE_READERS) || defined(BUG_SUCCESSOR_TOLD) || \
    defined(BUG_NONMEMBER_SUCCEEDS) || defined(BUG_HAND_OVER_GIVEN_UP) || defined(BUG_SUCCESSOR_APPLIES_ALL) || \
    defined(GOAL_HAND_OVER)
#define HAND_OVERS 1
#endif
#if defined(BUG_LIFE_UNNAMED) || defined(BUG_RESUMES_WITHOUT_COPY) || defined(GOAL_LIFE)
#define LIVES 1
#endif
#ifdef BUG_COMMITS_BELOW_MIN
#define MIN_IN_SYNC 2
#endif

#ifndef WRITES
#define WRITES 2
#endif
#ifndef FAILURES
#define FAILURES 2
#endif
#ifndef SLOTS
#define SLOTS WRITES /* of a log; one more where a mistake may apply a write twice */
#endif
#ifndef HAND_OVERS
#define HAND_OVERS 0
#endif
#ifndef LIVES
#define LIVES 0 /* copies that begin again within an incarnation */
#endif
#ifndef MIN_IN_SYNC
#define MIN_IN_SYNC 1
#endif
#define TERMS (1 + FAILURES + HAND_OVERS)

#include "replication/state.pml"
#include "replication/steps.pml"

/* --- Goals. */

#define SERVES_ALL(t) (record_term == (t) && IN(serving, record_primary) && term[record_primary] == (t) && seen_entries == WRITES)
#if defined(GOAL_THIRD_TERM)
#define REACHED SERVES_ALL(3)
#elif defined(GOAL_BACK_AS_PRIMARY)
#define REACHED (SERVES_ALL(3) && record_primary == 0)
#elif defined(GOAL_LATE_COMMIT)
#define REACHED (IN(lapsed, 0) && IN(primaries, 0) && applied[0] == WRITES && record_primary == 1 && term[1] == 2 && applied[1] == 0)
#elif defined(GOAL_ALL_RESUME)
#define REACHED (SERVES_ALL(2) && record_primary == 0 && members == 7 && failures == FAILURES)
#elif defined(GOAL_HAND_OVER)
#define REACHED (SERVES_ALL(4) && hand_overs == 2 && handed_term == 2)
#elif defined(GOAL_LIFE)
#define REACHED (lives == 1 && began_again == BIT(record_primary) && SERVES_ALL(record_term))
#endif

active [3] proctype Server() {
end:
  do
  DECIDE(1) DECIDE(2) DECIDE(3)

  /* Commit, apply, publish, acknowledge. */
  :: d_step {
      IN(primaries, self) && IN(up, self) && applied[self] < entries[self] && MAY_BEGIN && MAY_COMMIT(applied[self] + 1) ->
      x = 0;
      found = true;
      i = applied[self] + 1;
      do
      :: x < 3 && found ->
        if :: x != self && IN(counted[self], x) && ASKS_MEMBERS -> find_acknowledgement(x, i) :: else fi;
        x++
      :: else -> break
      od;
      if
      :: found ->
        applied[self] = i;
        assert(ENTRY(self, i) < term[self] * 4 || SIZE(counted[self]) >= MIN_IN_SYNC);
        if :: commit_point[term[self]] < i -> commit_point[term[self]] = i :: else fi;
        expose(i)
      :: else
      fi;
      CLEAR
    }
#ifdef BUG_ANSWERED_BY_PENDING
  :: d_step {
      IN(primaries, self) && IN(serving, self) && IN(up, self) && !IN(lapsed, self) && applied[self] < entries[self] ->
      expose(applied[self] + 1); CLEAR
    }
#endif
#ifdef BUG_DROPPED_STAYS_IN_WINDOW /* it answers a write whose entry it has dropped */
  :: d_step {
      DECIDES ->
      x = 1;
      do
      :: x <= invoked ->
        if
        :: IN(window[self], x) ->
          found = false;
          j = 1;
          do
          :: j <= entries[self] ->
            if :: WRITE_OF(ENTRY(self, j)) == x -> found = true :: else fi;
            j++
          :: else -> break
          od;
          assert(found)
        :: else
        fi;
        x++
      :: else -> break
      od;
      CLEAR
    }
#endif

  /* A READ that counts; and what a member has. */
  :: d_step {
      SAYS_THAT_IT_SERVES && IN(up, self) && !IN(lapsed, self) ->
      assert(READABLE >= seen_entries);
      expose(READABLE); CLEAR
    }
#ifdef MEMBERS_HAVE_ALL
  :: d_step {
#ifdef SYNC
      IN(members, self) && (HAS_COPY(self) || !IN(superseded, self)) && seen_entries > 0 ->
#else
      IN(members, self) && IN(up, self) && !IN(superseded, self) && seen_entries > 0 ->
#endif
      i = 1;
      do :: i <= seen_entries -> assert(WRITE_OF(ENTRY(self, i)) == seen[i]); i++ :: else -> break od;
      i = 0;
      assert(applied[self] <= entries[self])
    }
#endif
#ifdef REACHED
  :: d_step { REACHED -> assert(false) }
#endif

  /* A backup: terms, appends, the commit point. */
#ifdef BUG_TERM_FORGOTTEN
  SEE_TERM(1)
#endif
  SEE_TERM(2) SEE_TERM(3)
#if TERMS > 3
  SEE_TERM(4)
#endif
#if TERMS > 4
  SEE_TERM(5)
#endif
  :: d_step {
      IN(up, self) && !IN(unconnected, self) && !IN(primaries, self) && term[self] > 0 &&
      confirmed[self] < sent_entries[term[self]] ->
      i = confirmed[self] + 1;
      if
      :: !IS_THERE(i) ->
        assert(i > applied[self]); /* what is applied is never undone */
#ifndef BUG_REST_KEPT
        cut(self, i - 1);
#endif
        if :: i > entries[self] -> entries[self] = i :: else fi;
        ENTRY(self, i) = SENT(term[self], i)
      :: else
      fi;
#ifdef BUG_APPLIED_AT_ONCE
      if :: applied[self] < i -> applied[self] = i :: else fi;
#endif
#ifdef BUG_DROPPED_STAYS_IN_WINDOW
      window[self] = window[self] | BIT(WRITE_OF(ENTRY(self, i)));
#endif
      confirmed[self] = i;
      if :: ACKNOWLEDGED(term[self], self) < i -> ACKNOWLEDGE(term[self], i) :: else fi;
      CLEAR
    }
  TAKE_LOWER_TERM(1) TAKE_LOWER_TERM(2)
  :: d_step {
      IN(up, self) && !IN(unconnected, self) && !IN(primaries, self) && term[self] > 0 &&
      applied[self] < commit_point[term[self]] && applied[self] < MAY_APPLY ->
      i = applied[self] + 1;
      assert(AGREES(i));
      applied[self] = i; CLEAR
    }

  /* promote: the transaction; the answer comes later or never. */
#ifdef BUG_RECORD_UNCOMPARED
  :: d_step {
      IN(up, self) && !IN(unconnected, self) && !IN(primaries, self) && IN(members, self) && !IN(has_read, self) &&
      !IN(superseded, self) ->
      has_read = has_read | BIT(self);
      read_members[self] = members & ~BIT(record_primary); CLEAR
    }
  :: d_step {
      IN(up, self) && !IN(unconnected, self) && !IN(primaries, self) && IN(has_read, self) && key_gone &&
      !IN(lapsed, self) && record_primary != self ->
      begin_term();
      members = read_members[self]; record_primary = self; key_gone = false; primary_resumed = false;
      CHANGES;
      promoted_in[self] = record_term; counted[self] = members; CLEAR
    }
#else
  :: d_step {
      IN(up, self) && IS_CONNECTED && !IN(lapsed, self) && !IN(primaries, self) && IS_MEMBER && PRIMARY_IS_GONE &&
      record_term < TERMS ->
      begin_term();
#ifdef BUG_OLD_PRIMARY_KEPT
      counted[self] = members & ~BIT(record_primary);
#else
      if :: !primary_resumed -> members = members & ~BIT(record_primary) :: else fi;
      counted[self] = members;
#endif
#ifdef BUG_NONMEMBER_PROMOTED
      members = members | BIT(self);
#endif
      unconnected = unconnected & ~BIT(self); superseded = superseded & ~BIT(self); unlisted_until[self] = 0;
#ifdef BUG_TAIL_BEFORE_PROMOTION
      tail_before[self] = entries[self];
#endif
      record_primary = self; key_gone = false; primary_resumed = false;
      CHANGES;
      promoted_in[self] = record_term; CLEAR
    }
#endif
  /* … the answer */
  :: d_step {
      IN(up, self) && !IN(unconnected, self) && promoted_in[self] > term[self] ->
      term[self] = promoted_in[self]; promoted_in[self] = 0;
      primaries = primaries | BIT(self);
#ifdef BUG_TAIL_BEFORE_PROMOTION
      if :: tail_before[self] < entries[self] -> cut(self, tail_before[self]) :: else fi;
#endif
#ifdef BUG_TAIL_FORGOTTEN
      cut(self, applied[self]);
#endif
      i = 1;
      do :: i <= entries[self] -> SENT(term[self], i) = ENTRY(self, i); i++ :: else -> break od;
      sent_entries[term[self]] = entries[self]; commit_point[term[self]] = applied[self];
      announced = announced | BIT(term[self]);
      confirmed[self] = 0;
      forget_messages(); CLEAR
    }
  :: d_step {
      IN(primaries, self) && IN(up, self) && !IN(serving, self) && !IN(stopped, self) && TAIL_IS_COMMITTED && MAY_BEGIN ->
      serving = serving | BIT(self)
    }

  DROP(0) DROP(1) DROP(2)
  JOIN(0) JOIN(1) JOIN(2)
#if LIVES > 0
  BEGIN_AGAIN
#endif
  ADD(0) ADD(1) ADD(2)
  :: d_step { IN(adding, self) -> members = members | adding; CHANGES; REGAIN; CLEAR } /* the swap that adds it happens */
  :: d_step { IN(primaries, self) && IN(up, self) && UNCHANGED && counted[self] != COUNTED -> counted[self] = COUNTED }

  /* Failures. */
  :: d_step {
      IN(up, self) && failures < FAILURES ->
      failures++;
      up = up & ~BIT(self); lapsed = lapsed | BIT(self);
      if :: record_primary == self -> key_gone = true :: else fi;
#ifndef BUG_OWN_LOG_NOT_AWAITED
      primaries = primaries & ~BIT(self);
#endif
      serving = serving & ~BIT(self); stopped = stopped & ~BIT(self);
#if defined(ASYNC) || defined(SYNC)
      lose_memory(entries[self]);
#else
      lose_memory(0);
#endif
      forget_messages(); CLEAR
    }
  :: d_step {
      IN(up, self) && failures < FAILURES && record_primary == self && !IN(lapsed, self) && !IN(superseded, self) &&
      !primary_resumed ->
      failures++;
      lapsed = lapsed | BIT(self); key_gone = true; CLEAR
    }
  RESTART(0) RESTART(1) RESTART(2)
#if SLOTS > 2
  RESTART(3)
#endif
#if defined(SYNC) || defined(BUG_ASYNC_RESUMES)
  /* resume: a swap of its incarnation. */
  :: d_step {
      IN(up, self) && IN(unconnected, self) && IN(superseded, self) && MAY_RESUME ->
      unconnected = unconnected & ~BIT(self); superseded = superseded & ~BIT(self);
      CHANGES;
#ifndef BUG_TERM_FORGOTTEN
      if :: term[self] < record_term -> term[self] = record_term :: else fi;
#endif
      unlisted_until[self] = 0; confirmed[self] = applied[self];
      if :: record_primary == self -> primary_resumed = true :: else fi;
      forget_messages(); CLEAR
    }
#endif

#if HAND_OVERS > 0
  /* The region has not said for a reader's lease that it serves; then the primary stops to decide. */
  :: d_step {
      IN(primaries, self) && IN(up, self) && IN(serving, self) && !IN(stopped, self) && hand_overs == 0 && UNCHANGED &&
      MAY_STOP ->
      hand_overs = 1;
      stopped = stopped | BIT(self); CLEAR
    }
#if defined(BUG_SWAP_BEFORE_READERS) || defined(BUG_SUCCESSOR_TOLD)
  :: d_step { IN(primaries, self) && IN(up, self) && IN(serving, self) && IN(stopped, self) -> serving = serving & ~BIT(self) }
#endif
  HAND_OVER(0) HAND_OVER(1) HAND_OVER(2)
  :: d_step { /* no swap is on its way: it goes on as before */
      IN(primaries, self) && IN(up, self) && IN(stopped, self) && UNCHANGED && NONE_ON_ITS_WAY ->
      stopped = stopped & ~BIT(self); serving = serving | BIT(self);
      hand_overs = 0
    }
#endif
  od
}
