/* Expiries in a cluster whose servers' clocks differ. The primary judges them by its own clock, up to a mark
 * that all replicas in sync hold. A successor's clock goes on from there. Server 0, the first primary, is
 * ahead of the others.
 *
 * Claim: a key that a client was told to have expired is told to no later GET as alive.
 *
 * Model        Code
 *   note       ReplicatedWrites::NoteExpiry: a poller has decided a write with an expiry
 *   decide     ClusterNode takes that write from its poller's queue
 *   mark       TimeMarks::Due
 *   deliver    ShardBackup::TakeAppend
 *   count      TimeMarks::NoteHeld; the commit point
 *   drop, die  a member, or the primary, is lost
 *   promote    another member is the primary, once readers' leases have ended
 *   serve      TableReplica::TakeOver, once its tail is confirmed by all members
 *   join, add  a copy begins (TableCopy), and ends
 *   lease      ServingBeat::Check
 *   read       a READ under that lease
 *   GET        a GET by message: TimeMarks::MayJudge when the answer leaves
 *
 * With fewer than MIN replicas in sync the primary commits nothing that it decides, and answers GETs. So
 * marks count when they are held, not when they are committed.
 *
 * Mutants, each of which must be found (-DBUG_…):
 *   BUG_ANSWERS_BEYOND_MARK   a GET is answered whatever the mark
 *   BUG_CHECK_BEFORE_LOOK     … or checked before the server looks at its clock
 *   BUG_LEASE_BEYOND_MARK     a lease may end behind the mark
 *   BUG_MARK_WHEN_DECIDED     a mark counts when it is decided
 *   BUG_WRITE_BEFORE_MARK     the first write with an expiry is decided before a mark
 *   BUG_READS_BOUND_LATE      … and leases are bound only by a mark that is held
 *   BUG_CLOCK_OF_ITS_OWN      a successor's clock does not go on from the mark
 *   BUG_COPY_WITHOUT_MARK     a joiner's copy has no mark
 *   BUG_JOINER_BEHIND_MARK    a joiner is added that has what is committed, and not all marks that are held
 *
 * Goals, each of which must be reached:
 *   GOAL_EXPIRED_AT_BOTH      two primaries have told that the key has expired
 */

#ifndef TIME_MAX
#define TIME_MAX 4
#endif
#ifndef LOG
#define LOG 4
#endif
#define AHEAD 2 /* of the clock, when a mark is decided */
#define LEASE 1
#define MIN 2
#define PUT 255
#define NONE 3

#define IN(set, server) (((set) >> (server)) & 1)
#define SIZE(set) (IN(set, 0) + IN(set, 1) + IN(set, 2))
#define TIME(server) (clock + ahead[server])
#define LATER(a, b) ((a) > (b) -> (a) : (b))

byte clock;
byte ahead[3]; /* of each server's clock */

/* --- The shard. */
byte primary = 0;
bool up = true, serving = true;
byte members = 3, dead = 0;
byte joining = NONE;
/* --- Its groups: a mark, or the put. Who has how many; a copy stands for the first ones. */
byte log[LOG];
byte length = 0, has[3], copied[3], copied_mark[3];
/* --- The primary's. */
bool noted = false; /* a write with an expiry is in the queue, or was */
bool bounded = false;
byte held = 0, held_to = 0; /* the mark that counts; groups that all have */
byte committed = 0;
byte ttl = 1; /* of the key: within the mark that comes with it, or beyond */
byte expiry = 0; /* 0: the key was not put */
byte put_at = NONE + LOG; /* its group */
/* --- Clients. */
byte lease_until = 0; /* of the primary, which is no other before that; 0: it has ended */
byte got = 0; /* a GET: 1: begun, 2: alive, 3: expired */
bool getter_was_told = false; /* … when it began */
bool told = false; /* that the key has expired */
#ifdef GOAL_EXPIRED_AT_BOTH
byte told_by = NONE;
#endif

#define APPLIED (put_at < committed)
#define IS_HELD_BY_ALL(n) \
  ((!IN(members, 0) || has[0] >= (n)) && (!IN(members, 1) || has[1] >= (n)) && (!IN(members, 2) || has[2] >= (n)))

#ifdef BUG_JOINER_BEHIND_MARK
#define JOINER_MAY_BE_ADDED (has[2] >= committed)
#else
#define JOINER_MAY_BE_ADDED (has[2] >= committed && has[2] >= held_to)
#endif

inline append(what) {
  log[length] = what;
  length++;
  has[primary] = length
}

inline append_mark() {
  append(TIME(primary) + AHEAD);
#ifdef BUG_MARK_WHEN_DECIDED
  held = LATER(held, TIME(primary) + AHEAD);
  bounded = true
#endif
}

/* Into `to`: the highest mark among groups [from, upto). */
inline highest_mark(from, upto, to) {
  i = from;
  do
  :: i < upto ->
    if
    :: log[i] != PUT && log[i] > to -> to = log[i]
    :: else
    fi;
    i++
  :: else -> break
  od;
  i = 0
}

inline tell(is_expired, by, was_told) {
  if
  :: is_expired ->
#ifdef GOAL_EXPIRED_AT_BOTH
    assert(told_by == NONE || told_by == by);
    told_by = by;
#endif
    told = true
  :: else -> assert(!was_told)
  fi
}

active proctype Server() {
  byte i, s, n;
  d_step { ahead[0] = 2 };
  if
  :: ttl = 3
  :: true
  fi;
end:
  do
  :: d_step { clock < TIME_MAX ->
      clock++;
      if
      :: lease_until < clock -> lease_until = 0
      :: else
      fi
    }
  /* --- The primary. */
  :: d_step { up && serving && !noted && SIZE(members) >= MIN -> noted = true } /* note */
  :: d_step { up && serving && noted && expiry == 0 && SIZE(members) >= MIN && length + 2 <= LOG -> /* decide */
      expiry = TIME(primary) + ttl;
#ifdef BUG_WRITE_BEFORE_MARK
      put_at = length;
      append(PUT);
      append_mark()
#else
      append_mark();
      put_at = length;
      append(PUT)
#endif
    }
  :: d_step { up && serving && expiry != 0 && length < LOG && held <= TIME(primary) -> append_mark() } /* mark */
  :: d_step { up && serving && joining != NONE && has[joining] < length -> has[joining]++ } /* deliver */
  :: d_step { up && IN(members, 1) && has[1] < length -> has[1]++ }
  :: d_step { up && IN(members, 2) && has[2] < length -> has[2]++ }
  :: d_step { up && serving -> /* count */
      n = length;
      do
      :: !IS_HELD_BY_ALL(n) -> n--
      :: else -> break
      od;
      s = 0;
      highest_mark(copied[primary], n, s);
      if
      :: s > held -> held = s
      :: else
      fi;
      if
      :: n > held_to -> held_to = n
      :: else
      fi;
      if
      :: s > 0 && noted -> bounded = true
      :: else
      fi;
      if
      :: SIZE(members) >= MIN && n > committed -> committed = n
      :: else
      fi;
      n = 0; s = 0
    }
  /* --- Losses. */
  :: d_step { up && serving && IN(members, 1) && primary != 1 ->
      members = members & 5; /* drop */
      has[1] = 0
    }
  :: d_step { up && serving && SIZE(members) > 1 -> up = false; dead = dead | (1 << primary); /* die */
      if
      :: joining == 2 -> joining = NONE; has[2] = 0; copied[2] = 0; copied_mark[2] = 0
      :: else
      fi
    }
  :: d_step { !up && lease_until == 0 -> /* promote */
      members = members & ~(1 << primary);
      has[primary] = 0;
      primary = (IN(members, 1) -> 1 : 2);
      length = has[primary];
      s = 0;
      do
      :: s < 3 ->
        if
        :: has[s] > length -> has[s] = length
        :: else
        fi;
        s++
      :: else -> break
      od;
      s = 0;
      got = 0; getter_was_told = false;
      up = true;
      serving = false
    }
  :: d_step { up && !serving && IS_HELD_BY_ALL(length) -> /* serve */
      held = copied_mark[primary];
      highest_mark(copied[primary], length, held);
#ifndef BUG_CLOCK_OF_ITS_OWN
      if
      :: held > TIME(primary) -> ahead[primary] = held - clock
      :: else
      fi;
#endif
      committed = length;
      held_to = length;
      if
      :: put_at >= length -> expiry = 0; put_at = NONE + LOG; noted = false; bounded = false
      :: else -> noted = true; bounded = true
      fi;
      serving = true
    }
  /* --- A joiner. */
  :: d_step { up && serving && joining == NONE && !IN(members, 2) && !IN(dead, 2) -> /* join */
      joining = 2;
      has[2] = committed;
      copied[2] = committed;
#ifdef BUG_COPY_WITHOUT_MARK
      copied_mark[2] = 0
#else
      copied_mark[2] = held
#endif
    }
  :: d_step { up && serving && joining == 2 && JOINER_MAY_BE_ADDED -> /* add */
      members = members | 4;
      joining = NONE
    }
  od
}

#ifdef BUG_ANSWERS_BEYOND_MARK
#define MAY_JUDGE true
#else
#define MAY_JUDGE (!bounded || TIME(primary) <= held)
#endif
#ifdef BUG_READS_BOUND_LATE
#define READS_BOUNDED bounded
#else
#define READS_BOUNDED (bounded || noted)
#endif
#ifdef BUG_LEASE_BEYOND_MARK
#define LEASE_FITS (!READS_BOUNDED || TIME(primary) <= held)
#else
#define LEASE_FITS (!READS_BOUNDED || TIME(primary) + LEASE <= held)
#endif
#ifdef BUG_CHECK_BEFORE_LOOK
#define MAY_LOOK (got == 4)
#define MAY_LEAVE true
#else
#define MAY_LOOK (got == 1)
#define MAY_LEAVE MAY_JUDGE
#endif

active proctype Client() {
end:
  do
  :: d_step { up && serving && LEASE_FITS && clock + LEASE > lease_until -> lease_until = clock + LEASE } /* lease */
  :: d_step { lease_until != 0 && APPLIED -> /* read */
      tell(TIME(primary) >= expiry, primary, told)
    }
  od
}

active proctype Getter() {
end:
  do
  :: d_step { got == 0 && up && serving -> got = 1; getter_was_told = told }
#ifdef BUG_CHECK_BEFORE_LOOK
  :: d_step { got == 1 && up && serving && MAY_JUDGE -> got = 4 }
#endif
  :: d_step { MAY_LOOK && up && serving && APPLIED ->
      got = (TIME(primary) >= expiry -> 3 : 2)
    }
  :: d_step { (got == 2 || got == 3) && up && serving && MAY_LEAVE ->
      tell(got == 3, primary, getter_was_told);
      got = 0; getter_was_told = false
    }
  od
}
