/* A window of two lines and the chain of overflow lines that its home line leads to: inserts,
 * deletes, pull-backs, lines that come and go and are used again for other homes.
 *
 * Claim: a GET that finds nothing is right: the key was absent at some instant of it. (What a hit
 * finds is item.pml's. Here the key's slot is there or not.)
 *
 * That a record which is believed was whole at an instant of its READ is item.pml's as well. So here
 * a line is copied at once, and can be copied only while it is whole; but each line of one READ at
 * a moment of its own, in any order.
 *
 * Model            Code
 *   publish        LineEditor::Publish
 *   insert         Table::InsertItem; Chains::Add. Where there is room is left to chance.
 *   pull_back      Placement::MoveFromOverflow (W3: only into h, and there before it leaves the chain)
 *   trim           Chains::Trim (an overflow line is unlinked when it is the last, and empty)
 *   filler         a key of the same home, for which a line is kept
 *   other home     Chains::TakeLine for another home: an unlinked line is used at once
 *   Reader         Lookup: OnWindow, OnChainLine, Conclude, OnConfirmWindow (R2)
 *
 * Mutants, each of which must be found (-DBUG_…):
 *   BUG_NOT_CONFIRMED         a miss after a chain is believed at once
 *   BUG_CONFIRMED_TOO_EARLY   h is READ again before the chain's last READ, not after
 *   BUG_SOURCE_FIRST          a pull-back takes the key from the chain before h has it
 *   BUG_PULL_BACK_INTO_NEXT   … into h + 1
 *   BUG_MOVE_IN_WINDOW        from h to h + 1
 *   BUG_MOVE_TO_CHAIN         from the window to the chain
 *   BUG_MIDDLE_UNLINKED       a line that is not the last is unlinked, and used again
 *   BUG_ONE_LINE_OF_WINDOW    h + 1 is believed whatever its checksum
 */

#ifndef OPERATIONS
#define OPERATIONS 4
#endif
#define HOME 0
#define NEXT 1
#define FIRST 2 /* overflow lines: 2, 3, 4 */
#define LINES 5

#define EVEN(version) ((version) % 2 == 0)

byte version[LINES]; bit key[LINES]; byte link[LINES];

/* The server's own memory. */
byte next_version = 2;
bit filler[LINES];
bool ready;

/* Ghost. */
bit present;
bit was_absent;

#define KEEPS 0
#define APPEARS 1
#define VANISHES 2

inline publish(at, with_key, to, effect) {
  d_step { v = next_version; next_version = next_version + 2; version[at] = v + 1 };
  d_step {
    key[at] = with_key;
    link[at] = to;
    version[at] = v;
    if
    :: effect == APPEARS -> present = 1
    :: effect == VANISHES -> present = 0; was_absent = 1
    :: else
    fi;
    v = 0
  }
}

/* The line before `at` in the chain, and the last line of it. */
inline find_before() {
  before = HOME;
  do
  :: link[before] != at -> before = link[before]
  :: else -> break
  od;
  skip
}
inline find_last() {
  at = HOME;
  do
  :: link[at] != 0 -> at = link[at]
  :: else -> break
  od;
  skip
}
#define IN_CHAIN(x) \
  (link[HOME] == x || (link[HOME] != 0 && (link[link[HOME]] == x || \
   (link[link[HOME]] != 0 && link[link[link[HOME]]] == x))))
#define IS_FREE(x) (!IN_CHAIN(x) && !other[x])

inline trim() {
  d_step { find_last(); before = 0 };
  do
  :: at != HOME && !key[at] && !filler[at] ->
    d_step { find_before() };
    publish(before, key[before], 0, KEEPS);
    d_step { at = before; before = 0 }
  :: else -> break
  od;
  skip
}

#define FORGET at = 0; before = 0; place = 0; v = 0

active proctype Writer() {
  byte operations, at, before, place, v;
  bool other[LINES]; /* overflow lines of other homes */

  /* Where the GET begins: the key is somewhere or absent, the chain is of any length, with a key of
   * its own in each line. */
  if
  :: true
  :: link[HOME] = 2; filler[2] = 1
  :: link[HOME] = 2; filler[2] = 1; link[2] = 3; filler[3] = 1
  :: link[HOME] = 2; filler[2] = 1; link[2] = 3; filler[3] = 1; link[3] = 4; filler[4] = 1
  fi;
  if
  :: key[HOME] = 1; present = 1
  :: key[NEXT] = 1; present = 1
  :: link[HOME] != 0 -> d_step { find_last(); key[at] = 1; present = 1 }
  :: true
  fi;
  d_step { FORGET; ready = true };

  do
  :: operations == OPERATIONS -> break
  :: operations < OPERATIONS && !present -> /* insert */
    operations++;
    if
    :: publish(HOME, 1, link[HOME], APPEARS)
    :: publish(NEXT, 1, 0, APPEARS)
    :: link[HOME] != 0 -> d_step { find_last() }; publish(at, 1, 0, APPEARS)
    :: IS_FREE(2) || IS_FREE(3) || IS_FREE(4) -> /* to a new line, complete before it is linked */
      d_step {
        if
        :: IS_FREE(2) -> place = 2
        :: !IS_FREE(2) && IS_FREE(3) -> place = 3
        :: else -> place = 4
        fi;
        find_last()
      };
      publish(place, 1, 0, KEEPS);
      publish(at, key[at], place, APPEARS)
    fi;
    d_step { FORGET }
  :: operations < OPERATIONS && present -> /* delete */
    operations++;
    d_step {
      at = 0;
      do
      :: key[at] && (at <= NEXT || IN_CHAIN(at)) -> break
      :: else -> at++
      od;
      skip
    };
    publish(at, 0, link[at], VANISHES);
    trim();
    d_step { FORGET }
  :: operations < OPERATIONS && present && !key[HOME] && !key[NEXT] -> /* pull_back */
    operations++;
    d_step {
      place = FIRST;
      do
      :: key[place] && IN_CHAIN(place) -> break
      :: else -> place++
      od;
      skip
    };
#ifdef BUG_SOURCE_FIRST
    publish(place, 0, link[place], KEEPS);
    publish(HOME, 1, link[HOME], KEEPS);
#else
#ifdef BUG_PULL_BACK_INTO_NEXT
    publish(NEXT, 1, 0, KEEPS);
#else
    publish(HOME, 1, link[HOME], KEEPS);
#endif
    publish(place, 0, link[place], KEEPS);
#endif
    trim();
    d_step { FORGET }
#ifdef BUG_MOVE_IN_WINDOW
  :: operations < OPERATIONS && key[HOME] ->
    operations++;
    publish(NEXT, 1, 0, KEEPS);
    publish(HOME, 0, link[HOME], KEEPS)
#endif
#ifdef BUG_MOVE_TO_CHAIN
  :: operations < OPERATIONS && key[NEXT] && link[HOME] == 0 && IS_FREE(2) ->
    operations++;
    publish(2, 1, 0, KEEPS);
    publish(HOME, 0, 2, KEEPS);
    publish(NEXT, 0, 0, KEEPS)
#endif
  :: operations < OPERATIONS &&
     ((filler[2] && IN_CHAIN(2)) || (filler[3] && IN_CHAIN(3)) || (filler[4] && IN_CHAIN(4))) -> /* a filler goes */
    operations++;
    if
    :: filler[2] && IN_CHAIN(2) -> at = 2
    :: filler[3] && IN_CHAIN(3) -> at = 3
    :: filler[4] && IN_CHAIN(4) -> at = 4
    fi;
    filler[at] = 0;
    publish(at, key[at], link[at], KEEPS);
#ifdef BUG_MIDDLE_UNLINKED
    if
    :: !key[at] && !filler[at] && link[at] != 0 ->
      d_step { find_before() };
      publish(before, key[before], link[at], KEEPS);
      publish(at, 0, 0, KEEPS) /* another home's now, with nothing of ours */
    :: else
    fi;
#endif
    trim();
    d_step { FORGET }
  :: operations < OPERATIONS && (IS_FREE(2) || IS_FREE(3) || IS_FREE(4)) -> /* other home */
    operations++;
    d_step {
      if
      :: IS_FREE(2) -> at = 2
      :: !IS_FREE(2) && IS_FREE(3) -> at = 3
      :: else -> at = 4
      fi;
      other[at] = true
    };
    publish(at, 0, 0, KEEPS);
    d_step { FORGET }
  od
}

/* A copy of a line. While it is not whole: torn, and READ again, which is as good as another GET. */
inline read(x) {
  atomic {
    if
    :: EVEN(version[x]) -> l_version = version[x]; l_key = key[x]; l_link = link[x]
    :: else -> goto done
    fi
  }
}
#define FORGET_LINE l_version = 0; l_key = 0; l_link = 0

active proctype Reader() {
  byte l_version, l_link, followed, h_version, to;
  bit l_key, next_key;

  d_step { ready -> was_absent = !present };
  if /* the window is one READ: its lines come in any order */
  :: true -> read(HOME); h_version = l_version; to = l_link; next_key = l_key; read(NEXT)
#ifdef BUG_ONE_LINE_OF_WINDOW
  :: true -> read(HOME); h_version = l_version; to = l_link; next_key = 0
#endif
  :: true -> read(NEXT); next_key = l_key; read(HOME); h_version = l_version; to = l_link
  fi;
  if
  :: l_key || next_key -> goto done /* a hit */
  :: else -> d_step { FORGET_LINE }
  fi;
  if
  :: to == 0 -> assert(was_absent); goto done
  :: else
  fi;
#ifdef BUG_CONFIRMED_TOO_EARLY
  read(HOME);
  if
  :: l_version != h_version -> goto done
  :: else -> d_step { FORGET_LINE }
  fi;
#endif
  do
  :: to == 0 -> break
  :: to != 0 && followed == 3 -> goto done /* R4 */
  :: to != 0 && followed < 3 ->
    read(to);
    if
    :: l_key -> goto done /* a hit */
    :: !l_key -> d_step { to = l_link; followed++; FORGET_LINE }
    fi
  od;
#if defined(BUG_NOT_CONFIRMED) || defined(BUG_CONFIRMED_TOO_EARLY)
  assert(was_absent); goto done;
#endif
  read(HOME); /* R2: posted after the chain's last READ has completed */
  assert(l_version != h_version || was_absent);
done:
  skip;
  d_step { FORGET_LINE; followed = 0; h_version = 0; to = 0; next_key = 0; was_absent = 0 }
}
