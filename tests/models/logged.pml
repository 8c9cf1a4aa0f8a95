/* A key with a time to live, whose writes are made only when a log has them: decided, logged, synced, applied. The process
 * may end between any two steps. Then the log makes the key what it was, or what an entry on its way makes of it.
 *
 * Claim: a key that a client found expired does not come back but by a write that needs no presence. Neither a GET nor a
 * write's success says that it is there, before a crash or after it.
 *
 * As in expiry.pml a record is copied at once, while it is whole.
 *
 * Model            Code
 *   tick           the server's clock. It may run between any two steps, and does not go back in a crash.
 *   put            a Put without a condition: not of interest here, so it is durable at once
 *   prolong        expire, persist, put if version, in two steps: they need presence, and let the key live longer
 *     hide, look   Table::Prepare
 *     apply        Table::ApplyExpire, Table::ApplyPut
 *   add            increment, append, in two steps: they keep the expiry, and hide nothing
 *   sweep          Table::SweepStep
 *   Reader         Lookup::Hit (R8)
 *   ask            a GET by message: Table::AnswersLater
 *   crash          the process ends: an entry that is not synced may be lost, or not
 *
 * Mutants, each of which must be found (-DBUG_…):
 *   BUG_HIDDEN_AT_APPLY      prolong is decided without hiding the item: that is done when it is applied
 *   BUG_LOOK_BEFORE_HIDING   … or the clock is read before the item is hidden
 *   BUG_HIDDEN_SWEPT         a sweep ends a hidden key
 *   BUG_HIDDEN_IS_EXPIRED    a GET by message of a hidden key says 'absent' by its old expiry
 *   BUG_UNHIDDEN_ON_FAILURE  a failed sync unhides the item, although the entry may be durable
 */

#ifndef OPERATIONS
#define OPERATIONS 3
#endif
#ifndef TIME_MAX
#define TIME_MAX 4
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define TTL 2
#define NEVER 0

/* --- The region: one item. Value 0: there is none. */
bit unsealed;
byte value;
byte expiry;

/* --- The log: what a replay of its synced part makes, and the entry on its way. */
byte durable_value;
byte durable_expiry;
bool logged;
byte logged_value;
byte logged_expiry;

byte clock = 1;
bool locked; /* the partition's lock, in the steps before the log and after it */

/* --- Ghost: a client was answered 'absent' since the last put. The value of that put. */
bool told_absent;
byte newest;

#define HAS_ENDED(e) ((e) != NEVER && clock >= (e))
#define COUNTS (value != 0 && !HAS_ENDED(expiry))

active proctype Clock() {
  do
  :: clock < TIME_MAX -> clock++
  :: true -> break
  od
}

/* Whether the process ends here. What was decided and not logged is gone. */
inline crash() {
  d_step {
    value = durable_value; expiry = durable_expiry; unsealed = 0;
    logged = false; logged_value = 0; logged_expiry = 0;
    c = 0; next_expiry = 0; locked = false; crashes++
  }
}
inline keep_entry() { d_step { durable_value = logged_value; durable_expiry = logged_expiry } }
inline may_crash() {
  if
  :: true -> skip
  :: crashes < CRASHES ->
    if
    :: logged -> keep_entry()
    :: true -> skip
    fi;
    crash();
    goto next
  fi
}
inline log_entry(v, e) { d_step { logged = true; logged_value = v; logged_expiry = e } }
/* Between the log and the table. A failed sync ends the process, a while later. */
inline commit() {
  may_crash();
  if
  :: keep_entry()
  :: crashes < CRASHES ->
    if
    :: keep_entry()
    :: skip
    fi;
#ifdef BUG_UNHIDDEN_ON_FAILURE
    unsealed = 0;
#endif
    skip;
    crash();
    goto next
  fi;
  may_crash()
}

active proctype Writer() {
  byte operations, c, next_expiry, crashes;
  do
  :: operations == OPERATIONS || (value == 0 && newest == 2) -> break
  :: operations < OPERATIONS && newest < 2 -> /* put, with a time to live */
    operations++;
    unsealed = 1;
    d_step {
      newest++;
      value = newest; expiry = clock + TTL; unsealed = 0;
      durable_value = value; durable_expiry = expiry;
      told_absent = false
    }
  :: operations < OPERATIONS && value != 0 -> /* prolong: for ever, or by TTL from now on */
    operations++;
    locked = true;
    if
    :: !COUNTS -> told_absent = true; goto next
    :: atomic { COUNTS -> c = clock }
    fi;
    if
    :: next_expiry = NEVER
    :: next_expiry = c + TTL
    fi;
#ifndef BUG_HIDDEN_AT_APPLY
#ifdef BUG_LOOK_BEFORE_HIDING
    c = clock;
    unsealed = 1;
#else
    unsealed = 1;
    c = clock;
#endif
    if
    :: expiry != NEVER && c >= expiry -> /* too late: not found */
      d_step { value = 0; expiry = NEVER; unsealed = 0; told_absent = true };
      goto next
    :: else
    fi;
#endif
    log_entry(value, next_expiry);
    locked = false;
    commit();
    locked = true;
    unsealed = 1;
    atomic {
      /* It answers OK: a client that was told 'absent' was told so by the new expiry. */
      assert(!told_absent || HAS_ENDED(next_expiry));
      if
      :: value != 0 -> expiry = next_expiry
      :: else -> assert(HAS_ENDED(next_expiry)) /* the key is gone, and its entry is not */
      fi;
      unsealed = 0; logged = false
    };
    goto next
  :: operations < OPERATIONS && value != 0 -> /* add: another value, which counts as the same here */
    operations++;
    locked = true;
    if
    :: !COUNTS -> told_absent = true; goto next
    :: COUNTS -> log_entry(value, expiry)
    fi;
    locked = false;
    commit();
    d_step { logged = false }
next:
    skip;
    d_step {
      c = 0; next_expiry = 0; locked = false;
      logged = false; logged_value = 0; logged_expiry = 0
    }
  od
}

active proctype Sweeper() {
  byte sweeps;
  do
  :: sweeps == 1 -> break
#ifdef BUG_HIDDEN_SWEPT
  :: atomic { sweeps < 1 && !locked && value != 0 && HAS_ENDED(expiry) -> value = 0; expiry = NEVER; sweeps++ }
#else
  :: atomic { sweeps < 1 && !locked && !unsealed && value != 0 && HAS_ENDED(expiry) ->
      value = 0; expiry = NEVER; sweeps++ }
#endif
  :: true -> break
  od
}

/* A client's answers, of a READ or of a message. */
inline answer_absent() { told_absent = true }
inline answer_present(v) { assert(!told_then || (v) != newest) }

active proctype Reader() {
  byte before, after, r_value, r_expiry, gets, newest_then;
  bool told_then;
  do
  :: gets == 2 -> break
  :: gets < 2 ->
    gets++;
    d_step { newest_then = newest; told_then = told_absent };
    if /* a lower bound of the clock: right, or wrong by one */
    :: before = clock
    :: before = clock - 1
    fi;
    atomic {
      if
      :: !unsealed -> r_value = value; r_expiry = expiry
      :: else -> goto ask /* torn, again and again */
      fi
    };
    after = clock;
    atomic {
      if
      :: newest != newest_then -> skip /* a put came meanwhile: both answers are right */
      :: newest == newest_then && (r_value == 0 || (r_expiry != NEVER && before >= r_expiry)) ->
        answer_absent()
      :: newest == newest_then && r_value != 0 && (r_expiry == NEVER || after < r_expiry) ->
        answer_present(r_value)
      :: else -> goto ask
      fi
    };
    goto next_get;
ask:
    atomic {
#ifdef BUG_HIDDEN_IS_EXPIRED
      !locked ->
#else
      !locked && (!unsealed || (value != 0 && !HAS_ENDED(expiry))) ->
#endif
      if
      :: newest != newest_then -> skip
      :: newest == newest_then && COUNTS -> answer_present(value)
      :: else -> answer_absent()
      fi
    };
next_get:
    skip;
    d_step { before = 0; after = 0; r_value = 0; r_expiry = 0; newest_then = 0; told_then = 0 }
  od
}
