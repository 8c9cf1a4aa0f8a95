/* A key with a time to live: writes that look at the server's clock and take effect later, while
 * readers judge by bounds of that clock.
 *
 * Claim: every GET answers what the key was at some instant of it; and no key that has expired comes
 * back but by a write that needs no presence.
 *
 * As in chain.pml a record is copied at once, while it is whole: when, within the READ, is chance.
 *
 * Model            Code
 *   tick           the server's clock. It may run between any two steps: the process was stopped.
 *   hide           RegionWriter::Begin (W1): from here on no reader believes the item
 *   put            Table::Put without a condition, and if absent
 *   add            increment, append: they keep the expiry
 *   prolong        expire, persist, put if version: they need presence, and let the key live longer
 *   delete, sweep  Table::Delete, Table::SweepStep
 *   Reader         Lookup::Hit (R8)
 *   ask            a GET by message, whose answer names a version: Lookup::LifeOf
 *
 * Mutants, each of which must be found (-DBUG_…):
 *   BUG_ONE_LOOK             prolong does not look at the clock again once the item is hidden
 *   BUG_LOOK_BEFORE_HIDING   … or looks too early
 *   BUG_ABSENT_BY_AFTER      a reader judges 'expired' by the clock after the READ
 *   BUG_ABSENT_BY_UPPER      … or by the upper bound of the clock before it
 *   BUG_PRESENT_BY_LOWER     … and 'alive' by the lower bound of the clock before it
 *   BUG_SERVER_IGNORES       the server does not look at expiries
 *   BUG_STALE_CLOCK          … or looks at its clock before the request was sent
 */

#ifndef OPERATIONS
#define OPERATIONS 3
#endif
#ifndef TIME_MAX
#define TIME_MAX 5
#endif
#define TTL 2
#define NEVER 0

/* --- The region: one item. Value 0: there is none. */
bit unsealed;
byte value;
byte expiry;

byte clock = 1;
byte turn_clock; /* an old look at the clock: BUG_STALE_CLOCK's */

/* --- Ghost. What the key is: `truth` until `truth_expiry`. */
byte truth;
byte truth_expiry;
byte was; /* the values since the GET began, as a set; bit 0: absent */
bool in_a_get;
bool told_absent; /* a GET has answered 'absent' since the last write that needs no presence */
#define IS_PRESENT (truth != 0 && (truth_expiry == NEVER || clock < truth_expiry))
inline note() {
  if
  :: !in_a_get
  :: in_a_get && IS_PRESENT -> was = was | (1 << truth)
  :: else -> was = was | 1
  fi
}
inline takes_effect(v, e) { truth = v; truth_expiry = e; note() }

/* What the server believes at the time `at`. */
#ifdef BUG_SERVER_IGNORES
#define COUNTS_AT(at) (value != 0)
#else
#define COUNTS_AT(at) (value != 0 && (expiry == NEVER || (at) < expiry))
#endif
#ifdef BUG_STALE_CLOCK
#define LOOK turn_clock
#else
#define LOOK clock
#endif

active proctype Clock() {
  do
  :: clock < TIME_MAX -> d_step { clock++; note() }
  :: true -> break
  od
}

/* Whether somebody had been told 'absent' before. */
inline request_sent() { was_told = told_absent }

/* The instant of prolong, if the look at the clock says so. From then on its answer is OK, and
 * nobody may have been told since the key came that it is gone. */
inline promise() {
  atomic {
    if
    :: COUNTS_AT(c) -> assert(!told_absent); takes_effect(value, next_expiry)
    :: else
    fi
  }
}
inline look_and_promise() {
  atomic {
    c = LOOK;
    if
    :: COUNTS_AT(c) -> assert(!told_absent); takes_effect(value, next_expiry)
    :: else
    fi
  }
}

active proctype Writer() {
  byte operations, c, next_value, next_expiry;
  bool was_told;
  next_value = 1;
  do
  :: operations == OPERATIONS -> break
  :: operations < OPERATIONS && next_value < 4 -> /* put, with a time to live or without */
    operations++;
    c = clock;
    if
    :: next_expiry = NEVER
    :: next_expiry = c + TTL
    fi;
    unsealed = 1;
    d_step {
      value = next_value; expiry = next_expiry; unsealed = 0;
      takes_effect(next_value, next_expiry);
      told_absent = false;
      next_value++; next_expiry = 0; c = 0
    }
  :: operations < OPERATIONS && next_value < 4 -> /* put if absent */
    operations++;
    turn_clock = clock;
    request_sent();
    c = LOOK;
    if
    :: COUNTS_AT(c) -> skip /* refused */
    :: else ->
      unsealed = 1;
      d_step {
        value = next_value; expiry = NEVER; unsealed = 0;
        takes_effect(next_value, NEVER);
        told_absent = false;
        next_value++
      }
    fi;
    d_step { c = 0; turn_clock = 0; was_told = 0 }
  :: operations < OPERATIONS && next_value < 4 -> /* add */
    operations++;
    turn_clock = clock;
    request_sent();
    c = LOOK;
    if
    :: COUNTS_AT(c) ->
      unsealed = 1;
      assert(!was_told); /* it answers what it made of the old value */
      d_step { value = next_value; unsealed = 0; takes_effect(next_value, expiry); next_value++ }
    :: else -> skip /* a new key, which is a put */
    fi;
    d_step { c = 0; turn_clock = 0; was_told = 0 }
  :: operations < OPERATIONS -> /* prolong: for ever, or by TTL from now on */
    operations++;
    turn_clock = clock;
    request_sent();
    c = LOOK;
    if
    :: !COUNTS_AT(c) -> skip /* not found */
    :: COUNTS_AT(c) ->
      if
      :: next_expiry = NEVER
      :: next_expiry = c + TTL
      fi;
#ifdef BUG_ONE_LOOK
      promise();
      unsealed = 1;
#else
#ifdef BUG_LOOK_BEFORE_HIDING
      c = LOOK;
      promise();
      unsealed = 1;
#else
      unsealed = 1;
      look_and_promise();
#endif
#endif
      if
      :: COUNTS_AT(c) -> d_step { expiry = next_expiry; unsealed = 0 }
      :: else -> /* the key's time came meanwhile: not found */
        d_step { value = 0; expiry = NEVER; unsealed = 0; takes_effect(0, NEVER) }
      fi
    fi;
    d_step { c = 0; next_expiry = 0; turn_clock = 0; was_told = 0 }
  :: operations < OPERATIONS && value != 0 -> /* delete */
    operations++;
    unsealed = 1;
    d_step { value = 0; expiry = NEVER; unsealed = 0; takes_effect(0, NEVER) }
  :: operations < OPERATIONS && value != 0 && !COUNTS_AT(clock) -> /* sweep */
    operations++;
    unsealed = 1;
    d_step { value = 0; expiry = NEVER; unsealed = 0; takes_effect(0, NEVER) }
  od
}

#ifdef BUG_ABSENT_BY_AFTER
#define EXPIRED (r_expiry != NEVER && after >= r_expiry)
#else
#ifdef BUG_ABSENT_BY_UPPER
#define EXPIRED (r_expiry != NEVER && before + 1 >= r_expiry)
#else
#define EXPIRED (r_expiry != NEVER && before >= r_expiry)
#endif
#endif
#ifdef BUG_PRESENT_BY_LOWER
#define ALIVE (r_expiry == NEVER || before < r_expiry)
#else
#define ALIVE (r_expiry == NEVER || after < r_expiry)
#endif
#define WAS(v) ((was >> (v)) & 1)

active proctype Reader() {
  byte before, after, r_value, r_expiry, named, gets;
  do
  :: gets == 2 -> break
  :: gets < 2 ->
    gets++;
    d_step { in_a_get = true; note() };
    if /* a lower bound of the clock: right, or wrong by one */
    :: before = clock
    :: before = clock - 1
    fi;
    atomic {
      if
      :: !unsealed -> r_value = value; r_expiry = expiry
      :: else -> goto next /* torn */
      fi
    };
    if /* an upper bound */
    :: after = clock
    :: after = clock + 1
    fi;
    atomic {
      if
      :: r_value == 0 -> assert(WAS(0)); told_absent = !IS_PRESENT
      :: r_value != 0 && EXPIRED -> assert(WAS(0)); told_absent = !IS_PRESENT
      :: r_value != 0 && !EXPIRED && ALIVE -> assert(WAS(r_value))
      :: else -> goto ask
      fi
    };
    goto next;
ask: /* The server answers between two of its stores, by its clock. Versions are the values here. */
    atomic {
      !unsealed ->
      if
      :: COUNTS_AT(clock) -> named = value
      :: else -> assert(WAS(0)); told_absent = !IS_PRESENT; goto next
      fi
    };
    atomic {
      if
      :: !unsealed && value == named -> assert(WAS(named)) /* whatever the time */
      :: else /* torn, or another: from the start */
      fi
    };
next:
    skip;
    d_step { before = 0; after = 0; r_value = 0; r_expiry = 0; named = 0; was = 0; in_a_get = false }
  od
}
