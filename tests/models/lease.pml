/* A client's lease on what it READs: one shard, of which server A is the primary, and B after it. A may
 * stop between any two steps, or be cut off from the store; its memory answers READs all the same.
 *
 * Claim: a READ that the client accepts, and that completes at that time, finds the newest value that
 * was acknowledged before it began; and no other server has acknowledged a newer one.
 *
 * All clocks are one clock. The shares of HeldFor and AwaitedFor cover what real ones differ by.
 *
 * Model         Code
 *   tick        the clock. It may run between any two steps: a process was stopped.
 *   RIGHT       A has its right until then; from then on others may remove its key (right.pml)
 *   check       ServingBeat::Check
 *   store       ServingBeat::Store
 *   lose        ServingBeat::Loses, and the wait that follows; then B is the primary
 *   gain        ServingBeat::Gains, of B, whose memory was a backup's until then
 *   record      the client READs A's record: ReaderLease::TakeRecord
 *   ask         ServingBeat::Grant, and the reply: ReaderLease::TakeGrant
 *   get         the client READs the value from A or B: ReaderLease::Covers
 *
 * B's right does not end, and the client has a lease on B: what it does not have is the shard's name.
 *
 * Mutants, each of which must be found (-DBUG_…):
 *   BUG_ONE_BEAT              a lease needs one beat more than was found at its posting
 *   BUG_LEASE_FROM_LANDING    it counts from when that READ landed
 *   BUG_GRANT_FROM_REPLY      … a lease by a reply, from when that came
 *   BUG_OTHER_REVISION        its beats are of different loss revisions
 *   BUG_STORE_UNCHECKED       a beat is stored whatever the right
 *   BUG_CHECK_BEFORE_STORE    the check comes before the store of the beat before
 *   BUG_ONE_CHECK_FOR_TWO     two beats are stored after one check
 *   BUG_REVISION_OF_CHECK     the store takes the revision that was there at the check
 *   BUG_SHORT_HAND_OVER       A waits less than a lease after it has said what it loses
 *   BUG_UNNAMED               a GET begins before the client has seen that B serves the shard
 */

#ifndef TIME_MAX
#define TIME_MAX 6
#endif
#ifndef STEPS
#define STEPS 4
#endif
#ifndef BEATS
#define BEATS 3
#endif
#ifndef RIGHT
#define RIGHT 4
#endif
#define LEASE 2
#define GETS 2

#ifdef BUG_ONE_BEAT
#define BEATS_OF_LEASE 1
#else
#define BEATS_OF_LEASE 2
#endif
#ifdef BUG_SHORT_HAND_OVER
#define HAND_OVER_WAIT (LEASE - 1)
#else
#define HAND_OVER_WAIT LEASE
#endif
#ifdef BUG_STORE_UNCHECKED
#define LEASE_FITS true
#else
#define LEASE_FITS (clock + LEASE <= RIGHT)
#endif

byte clock;
/* --- A's memory. Its value is 1. */
byte beat;
bit lost; /* its loss revision */
/* --- B's memory. Its value is older than A's until B is the primary. */
bool b_serves;
byte b_value;
/* --- Ghost: the newest acknowledged value. */
byte acked = 1;

active proctype Clock() {
  do
  :: clock < TIME_MAX -> clock++ /* tick */
  :: clock == TIME_MAX -> break
  od
}

inline store() {
  atomic {
    beat++;
#ifdef BUG_REVISION_OF_CHECK
    lost = revision
#endif
  }
}

#ifdef BUG_REVISION_OF_CHECK
#define NOTE_REVISION revision = lost
#else
#define NOTE_REVISION skip
#endif

active proctype Beats() {
#ifdef BUG_REVISION_OF_CHECK
  bit revision;
#endif
#ifdef BUG_CHECK_BEFORE_STORE
  bool fits, next_fits;
  do
  :: beat < BEATS ->
    next_fits = LEASE_FITS; /* check */
    if
    :: fits -> store()
    :: else
    fi;
    fits = next_fits
  :: true -> break
  od
#else
  do
  :: beat < BEATS ->
end_check: /* it may wait for ever for its right */
    atomic { LEASE_FITS -> NOTE_REVISION }; /* check */
    store();
#ifdef BUG_ONE_CHECK_FOR_TWO
    store()
#endif
  :: else -> break
  od
#endif
}

/* B after A: once A's key is gone, or by a hand-over. */
active proctype Successor() {
  byte since;
  if
  :: clock >= RIGHT
  :: atomic { lost = 1; since = clock }; /* lose */
end_wait:
    atomic { clock >= since + HAND_OVER_WAIT -> since = 0 }
  fi;
  b_value = 1; /* the tail that it holds */
  b_serves = true; /* gain */
  atomic { b_value = 2; acked = 2 }
}

#ifdef BUG_OTHER_REVISION
#define IS_NAMED true
#else
#define IS_NAMED (revision == 0)
#endif
#ifdef BUG_LEASE_FROM_LANDING
#define POSTED clock
#else
#define POSTED from
#endif
#ifdef BUG_GRANT_FROM_REPLY
#define SENT clock
#else
#define SENT from
#endif
#ifdef BUG_UNNAMED
#define WAS_NAMED named
#else
#define WAS_NAMED was_named
#endif

/* What the client keeps is forgotten once it makes no difference. */
inline forget() {
  if
  :: until <= clock -> until = 0
  :: else
  fi;
  if
  :: posted[0] > 0 && posted[0] - 1 + LEASE <= clock -> posted[0] = 0; beat_of[0] = 0
  :: else
  fi;
  if
  :: posted[1] > 0 && posted[1] - 1 + LEASE <= clock -> posted[1] = 0; beat_of[1] = 0
  :: else
  fi
}

inline extend(since) {
  if
  :: since + LEASE > until -> until = since + LEASE
  :: else
  fi
}

inline see_beat() {
  if
  :: found > newest ->
    newest = found;
    if
    :: posted[0] > 0 && newest >= beat_of[0] + BEATS_OF_LEASE ->
      extend(posted[0] - 1);
      posted[0] = 0; beat_of[0] = 0
    :: else
    fi;
    if
    :: posted[1] > 0 && newest >= beat_of[1] + BEATS_OF_LEASE ->
      extend(posted[1] - 1);
      posted[1] = 0; beat_of[1] = 0
    :: else
    fi
  :: else
  fi
}

/* It reads from A, or from B. */
active proctype Client() {
  bool named, was_named;
  byte floor, value;
  byte steps, from, found, until, newest;
  bit revision;
  bool granted;
  byte posted[2]; /* plus 1, at beat % 2; 0: none */
  byte beat_of[2];
  if
  :: true
  :: goto reads_b
  fi;
  do
  :: steps < STEPS ->
    if
    :: d_step { steps++; from = clock }; /* record */
      d_step { found = beat; revision = lost };
      d_step {
        if
        :: IS_NAMED ->
          see_beat();
          if
          :: newest >= found + BEATS_OF_LEASE -> extend(POSTED)
          :: else -> posted[found % 2] = POSTED + 1; beat_of[found % 2] = found
          fi
        :: else -> until = 0
        fi;
        from = 0; found = 0; revision = 0;
        forget()
      }
    :: d_step { steps++; from = clock }; /* ask */
      granted = (clock + LEASE <= RIGHT) && lost == 0;
      d_step {
        if
        :: granted -> extend(SENT)
        :: else
        fi;
        from = 0; granted = false;
        forget()
      }
    :: atomic { clock < until -> assert(acked == 1); goto end } /* get, whose READ lands */
    fi
  :: else -> goto end
  od;
reads_b:
  do
  :: steps < GETS ->
    d_step { steps++; floor = acked; was_named = named }; /* get */
    value = b_value;
    if
    :: named = b_serves /* B's record */
    :: true
    fi;
    d_step {
      assert(!WAS_NAMED || value >= floor);
      floor = 0; value = 0; was_named = false
    }
  :: else -> break
  od;
end:
  skip
}
