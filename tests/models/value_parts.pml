/* Long values of a shard, which go to the other replicas in parts (server/cluster/table/value_parts.h): two of
 * one key, each of two parts. Other writes come in between. Server 2 may join at any time.
 *
 * Claim: no replica is sent a part without those before it, or a put without all its parts. A joiner that has
 * everything has the primary's value.
 *
 * Model        Code
 *   part, put  ReplicatedWrites::BeginUpload; ReplicatedChanges::OnPut
 *   give up    ValueUpload::GiveUp
 *   other      a write of another key
 *   made       Table::ApplyPublish: the primary's own value
 *   mark       ReplicatedWrites::TakeWhole: what the primary counts as applied
 *   take       TableReplica::Reserve
 *   apply      TableReplica::Apply
 *   demote     ShardReplica::TakePlaces: the primary's pending groups are reserved
 *   serve      TableReplica::TakeOver, once the tail is with all members
 *   join, add  a copy begins (TableCopy), and ends
 *
 * Mutants, each of which must be found (-DBUG_…):
 *   BUG_PARTS_COUNT_AT_ONCE   a primary counts parts as applied before their put
 *   BUG_UNIT_FORGOTTEN        … or once the put is made, though an older write is not
 *   BUG_PARTS_INTERLEAVED     the next value's parts begin before the put
 *   BUG_PARTS_END_EARLY       a replica drops parts when it sees a new term, and not after the tail
 *
 * Goals, each of which must be reached:
 *   GOAL_JOINED_AMID          a joiner counts whose groups began amid a value
 *   GOAL_PUT_OF_TAIL          a new primary has the put of the one before, and its parts
 */

#ifndef LOG
#define LOG 6
#endif
#define NONE 255
#define DROP 1
#define OTHER 2
#define PART(value, at) (16 * (value) + (at))
#define PUT(value) (16 * (value) + 3)
#define VALUE(group) ((group) >> 4)
#define STEP(group) ((group) & 15)
#define IN(set, server) (((set) >> (server)) & 1)

/* --- The shard. */
byte primary = 0, members = 3, dead = 0, term = 1, joining = 0;
bool up = true, serving = true;
byte log[LOG], term_of[LOG];
byte length = 0, committed = 0;
/* --- A server: groups that it has, and has applied; the value whose parts are applied, how many, of which term. */
byte has[3], applied[3], parts_of[3], parts[3], parts_term[3], key[3];
/* --- The primary'which: of each value, the parts that were sent; its groups; whether its client has an answer. */
byte sent[3], first[3], last[3];
bool over[3];
byte put_pending = NONE, other_pending = NONE;
bool other_written = false;
/* --- The joiner'which. */
bool named = false, copied = false, looked = false;
byte copy = 0;
bool begun_amid = false;

inline append(group) {
  log[length] = group;
  term_of[length] = term;
  length++;
  has[primary] = length
}

#define UNDER_WAY(value) (first[value] != NONE && last[value] == NONE)
#ifdef BUG_PARTS_INTERLEAVED
#define IS_NEXT(value) true
#else
#define IS_NEXT(value) (!UNDER_WAY(3 - (value)) && put_pending == NONE)
#endif

/* Which parts the server has behind `count` groups: `there` of them, of `value`, of a term. Each group on the way must follow. */
inline follow(server, count) {
  value = parts_of[server]; there = parts[server]; of_term = parts_term[server];
  at = applied[server];
  do
  :: at < count ->
    if
    :: of_term < term_of[at] -> value = 0; there = 0
    :: else
    fi;
    if
    :: log[at] == DROP -> value = 0; there = 0
    :: log[at] == OTHER
    :: log[at] > OTHER && STEP(log[at]) == 1 -> value = VALUE(log[at]); there = 1; of_term = term_of[at]
    :: log[at] > OTHER && STEP(log[at]) == 2 -> assert(value == VALUE(log[at]) && there == 1); there = 2
    :: log[at] > OTHER && STEP(log[at]) == 3 -> assert(value == VALUE(log[at]) && there == 2); value = 0; there = 0
    fi;
    at++
  :: else -> break
  od
}

/* The next group of the server. */
inline apply(server) {
  groups = applied[server] + 1;
  follow(server, groups);
  if
  :: log[groups - 1] > OTHER && STEP(log[groups - 1]) == 3 -> key[server] = VALUE(log[groups - 1])
  :: else
  fi;
  parts_of[server] = value; parts[server] = there; parts_term[server] = (there == 0 -> 0 : of_term);
  applied[server] = groups
}

inline is_everywhere(count) {
  all = true;
  which = 0;
  do
  :: which < 3 ->
    if
    :: IN(members, which) && which != primary && has[which] < count -> all = false
    :: else
    fi;
    which++
  :: else -> break
  od;
  which = 0
}

/* Another member is the primary, and what others have behind its tail is replaced. */
inline promote(to) {
  primary = to;
  length = has[to];
  if
  :: committed > length -> assert(false)
  :: else
  fi;
  which = 0;
  do
  :: which < 3 ->
    if
    :: has[which] > length -> has[which] = length
    :: else
    fi;
#ifdef BUG_PARTS_END_EARLY
    parts_of[which] = 0; parts[which] = 0;
#endif
    which++
  :: else -> break
  od;
  which = 0;
  joining = 0; looked = false;
  put_pending = NONE; other_pending = NONE;
  term++;
  serving = false
}

inline clear() {
  at = 0; groups = 0; which = 0; value = 0; there = 0; of_term = 0; made = 0; all = false
}

active proctype Server() {
  byte at, groups, which, value, there, of_term, made;
  bool all;
  d_step { first[1] = NONE; first[2] = NONE; last[1] = NONE; last[2] = NONE };
end:
  do
  /* --- Writes. */
  :: d_step { up && serving && length < LOG && !over[1] && sent[1] < 2 && (sent[1] > 0 || IS_NEXT(1)) -> /* part */
      if
      :: sent[1] == 0 -> first[1] = length; last[1] = NONE
      :: else
      fi;
      sent[1] = sent[1] + 1;
      append(PART(1, sent[1]))
    }
  :: d_step { up && serving && length < LOG && !over[2] && sent[2] < 2 && (sent[2] > 0 || IS_NEXT(2)) ->
      if
      :: sent[2] == 0 -> first[2] = length; last[2] = NONE
      :: else
      fi;
      sent[2] = sent[2] + 1;
      append(PART(2, sent[2]))
    }
  :: d_step { up && serving && length < LOG && sent[1] == 2 && !over[1] && put_pending == NONE -> /* put */
      put_pending = length;
      over[1] = true;
      append(PUT(1))
    }
  :: d_step { up && serving && length < LOG && sent[2] == 2 && !over[2] && put_pending == NONE ->
      put_pending = length;
      over[2] = true;
      append(PUT(2))
    }
  :: d_step { up && serving && length < LOG && sent[1] > 0 && !over[1] -> /* give up */
      over[1] = true;
      last[1] = length;
      append(DROP)
    }
  :: d_step { up && serving && length < LOG && !other_written -> /* other */
      other_written = true;
      other_pending = length;
      append(OTHER)
    }
  /* --- Their way. */
  :: d_step { up && has[1] < length && IN(members, 1) && primary != 1 -> groups = has[1] + 1; follow(1, groups); has[1] = groups; clear() } /* take */
  :: d_step { up && has[0] < length && IN(members, 0) && primary != 0 -> groups = has[0] + 1; follow(0, groups); has[0] = groups; clear() }
  :: d_step { up && has[2] < length && (IN(members, 2) || (joining && serving)) && primary != 2 ->
      groups = has[2] + 1; follow(2, groups); has[2] = groups; clear()
    }
  :: d_step { up && serving && committed < length -> /* commit */
      groups = committed + 1;
      is_everywhere(groups);
      if
      :: all -> committed = groups
      :: else
      fi;
      clear()
    }
  :: d_step { up && IN(members, 1) && primary != 1 && applied[1] < committed && applied[1] < has[1] -> apply(1); clear() }
  :: d_step { up && IN(members, 0) && primary != 0 && applied[0] < committed && applied[0] < has[0] -> apply(0); clear() }
  :: d_step { up && (IN(members, 2) || (joining && serving)) && primary != 2 && applied[2] < committed && applied[2] < has[2] ->
      if
      :: log[applied[2]] > OTHER && STEP(log[applied[2]]) == 3 -> named = true
      :: else
      fi;
      apply(2);
      clear()
    }
  :: d_step { up && serving && put_pending < committed && put_pending != NONE -> /* made */
      value = VALUE(log[put_pending]);
      key[primary] = value;
      last[value] = put_pending;
#ifdef BUG_UNIT_FORGOTTEN
      first[value] = NONE;
#endif
      put_pending = NONE;
      clear()
    }
  :: d_step { up && serving && other_pending < committed && other_pending != NONE -> other_pending = NONE }
  :: d_step { up && serving -> /* mark */
      made = committed;
      if
      :: put_pending < made -> made = put_pending
      :: else
      fi;
      if
      :: other_pending < made -> made = other_pending
      :: else
      fi;
#ifndef BUG_PARTS_COUNT_AT_ONCE
      value = 1;
      do
      :: value <= 2 ->
        if
        :: first[value] < made && (last[value] == NONE || made <= last[value]) -> made = first[value]
        :: else
        fi;
        value++
      :: else -> break
      od;
      value = 0;
#endif
      if
      :: made > applied[primary] -> applied[primary] = made
      :: else
      fi;
      clear()
    }
  /* --- Losses. */
  :: d_step { up && serving && IN(members, 1) && primary == 0 && dead == 0 -> /* demote */
      follow(0, length);
      promote(1);
      clear()
    }
  :: d_step { up && serving && primary == 0 && dead == 0 && (IN(members, 1) || IN(members, 2)) -> /* die */
      dead = 1;
      members = members & 6;
      if
      :: IN(members, 1) -> promote(1)
      :: else -> promote(2)
      fi;
      clear()
    }
  :: d_step { up && serving && primary == 1 && IN(members, 2) && term < 3 ->
      members = members & 5;
      promote(2);
      clear()
    }
  :: d_step { up && !serving -> /* serve */
      groups = length;
      is_everywhere(groups);
      if
      :: all ->
#ifdef GOAL_PUT_OF_TAIL
        groups = applied[primary];
        do
        :: groups < length ->
          assert(!(log[groups] > OTHER && STEP(log[groups]) == 3 && parts[primary] > 0));
          groups++
        :: else -> break
        od;
#endif
        committed = length;
        do
        :: applied[primary] < length -> apply(primary)
        :: else -> break
        od;
        parts_of[primary] = 0; parts[primary] = 0; parts_term[primary] = 0;
        value = 1;
        do
        :: value <= 2 ->
          over[value] = over[value] || sent[value] == 2; /* its client may not repeat it */
          sent[value] = 0; first[value] = NONE; last[value] = NONE;
          value++
        :: else -> break
        od;
        serving = true
      :: else
      fi;
      clear()
    }
  /* --- A joiner. */
  :: d_step { up && serving && !joining && !IN(members, 2) && primary != 2 -> /* join */
      joining = 1;
      begun_amid = UNDER_WAY(1) || UNDER_WAY(2);
      has[2] = applied[primary];
      applied[2] = applied[primary];
      parts_of[2] = 0; parts[2] = 0; parts_term[2] = 0; key[2] = 0;
      named = false; copied = false; looked = false
    }
  :: d_step { up && serving && joining && !looked -> looked = true; copy = key[primary] }
  :: d_step { up && serving && joining && looked && !copied ->
      copied = true;
      if
      :: !named -> key[2] = copy
      :: else
      fi;
      copy = 0
    }
  :: d_step { up && serving && joining && copied && has[2] >= committed -> /* add */
      members = members | 4;
#ifdef GOAL_JOINED_AMID
      assert(!begun_amid);
#endif
      joining = 0; looked = false
    }
  :: d_step { up && serving && IN(members, 2) && primary != 2 && applied[2] == length && put_pending == NONE ->
      assert(key[2] == key[primary])
    }
  od
}
