/* One key of a server with a synchronous log: decide, log, sync, apply, and crashes of the machine
 * between any two steps, also while the server comes back.
 *
 * The key holds a number that each write increments: a plain PUT of which version it is. Claim: a reader sees at least the writes that
 * were answered, at most those and the ones under way, and never less than a reader before it.
 *
 * The disk keeps any prefix of the records that were not synced. A client repeats its write until it
 * has the answer.
 *
 * Model            Code
 *   decide, log    Decide and Report: the key is pending, and the change has its record
 *   replace        MayReplace, ReportReplacing: a PUT of the same batch, decided before the sync
 *   sync           Durability::Commit
 *   apply          Apply: the table has the change, and the key is not pending
 *   results        ResultWindow, Recover
 *   Reader         a READ, a GET by message, or a failed condition
 *   Machine        crashes; then Recover, and Durability::Load, which syncs the tail
 *
 * Mutants, each of which must be found (-DBUG_…):
 *   BUG_APPLY_BEFORE_SYNC       the table has the change before it is durable
 *   BUG_ANSWER_BEFORE_SYNC      the client has its answer before
 *   BUG_PENDING_TOLD            a failed condition is answered by a pending change
 *   BUG_PENDING_NOT_AWAITED     a write is decided while another one of the key is pending
 *   BUG_REPLACED_APPLIED        of PUTs that replace each other the first is made, and all are answered
 *   BUG_RESULT_NOT_RESTORED     a repeated write is executed again
 *   BUG_TAIL_NOT_SYNCED         the server is read before the tail that it found is durable
 */

#ifndef OPERATIONS
#define OPERATIONS 2
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#define WRITERS 2
#define RECORDS 16

/* --- The log. A record: the number after it, and which write of whom it answers. */
byte log_value[RECORDS];
byte log_writer[RECORDS];
byte log_write[RECORDS];
byte appended;
byte synced;

/* --- The memory of an incarnation. */
byte table;
bool pending;
bool open;                  /* the pending PUT may be replaced: it is not being synced */
byte last;                  /* what is pending, or the PUT that has replaced it */
byte replacing[WRITERS];    /* the write that has replaced another one, and is made with it; 0: none */
byte result_write[WRITERS]; /* the last write that is remembered; 0: none */
bool serves = true;
byte incarnation = 1;

/* --- Ghost. */
byte answered;  /* writes that were answered with success */
byte under_way; /* writes without an answer */
byte seen;      /* by any reader */
byte crashes;

inline append(value, write) {
  assert(appended < RECORDS);
  log_value[appended] = value;
  log_writer[appended] = me;
  log_write[appended] = write;
  appended++
}

inline crash() {
  crashes++;
  incarnation++;
  serves = false;
  do
  :: appended > synced ->
    appended--;
    log_value[appended] = 0; log_writer[appended] = 0; log_write[appended] = 0
  :: true -> break
  od
}

active proctype Machine() {
  byte i;
  do
  :: crashes == CRASHES -> break
  :: atomic { crashes < CRASHES -> crash() };
recover:
    atomic {
      table = 0;
      pending = false;
      open = false;
      last = 0;
      for (i : 0 .. WRITERS - 1) { result_write[i] = 0; replacing[i] = 0 }
      i = 0;
      do
      :: i < appended ->
        table = log_value[i];
#ifndef BUG_RESULT_NOT_RESTORED
        result_write[log_writer[i]] = log_write[i];
#endif
        i++
      :: else -> break
      od;
      i = 0
    };
    if
    :: atomic { crashes < CRASHES -> crash(); goto recover }
    :: true
    fi;
#ifdef BUG_TAIL_NOT_SYNCED
    serves = true
#else
    atomic { synced = appended; serves = true }
#endif
  od
}

/* Whether the incarnation that took the write is there. */
#define LIVES (serves && incarnation == mine)

active [WRITERS] proctype Writer() {
  byte me, write, value, mine, i;
  me = _pid - 1;
  do
  :: write == OPERATIONS -> break
  :: write < OPERATIONS ->
    d_step { write++; under_way++ };
again:
    atomic {
      serves -> mine = incarnation;
      if
      :: result_write[me] == write -> goto succeeds
      :: else
      fi
    };
    atomic {
      if
      :: !LIVES -> goto again
#ifdef BUG_PENDING_NOT_AWAITED
      :: LIVES ->
#else
      :: LIVES && !pending ->
#endif
        value = table + 1;
        last = value;
        pending = true;
        open = true;
        append(value, write)
      :: LIVES && open ->
        last++;
        replacing[me] = write;
        append(last, write)
      fi
    };
    atomic {
      if
      :: replacing[me] != write && LIVES && result_write[me] != write -> skip
      :: replacing[me] != write && !(LIVES && result_write[me] != write) -> goto again
      fi
    };
#ifdef BUG_APPLY_BEFORE_SYNC
    atomic {
      if
      :: LIVES -> table = value
      :: else -> goto again
      fi
    };
#endif
#ifdef BUG_ANSWER_BEFORE_SYNC
    atomic {
      if
      :: LIVES -> answered++; under_way--
      :: else -> goto again
      fi
    };
#endif
    atomic {
      if
      :: LIVES -> synced = appended; open = false
      :: else -> goto again
      fi
    };
    atomic {
      if
      :: !LIVES -> goto again
      :: LIVES ->
#ifdef BUG_REPLACED_APPLIED
        table = value;
#else
        table = last;
#endif
        pending = false;
        result_write[me] = write;
        for (i : 0 .. WRITERS - 1) {
          if
          :: replacing[i] != 0 -> result_write[i] = replacing[i]; replacing[i] = 0
          :: else
          fi
        };
        i = 0
      fi
    };
succeeds:
    atomic {
      if
      :: LIVES ->
#ifndef BUG_ANSWER_BEFORE_SYNC
        answered++; under_way--
#endif
      :: else ->
#ifdef BUG_ANSWER_BEFORE_SYNC
        skip
#else
        goto again
#endif
      fi
    };
    atomic { value = 0; mine = 0 }
  od
}

inline look(value) {
  assert(answered <= value && value <= answered + under_way);
  assert(value >= seen);
  seen = value
}

active proctype Reader() {
  do
  :: atomic { serves -> look(table) }
#ifdef BUG_PENDING_TOLD
  :: atomic { serves && pending -> look(log_value[appended - 1]) }
#endif
  :: break
  od
}
