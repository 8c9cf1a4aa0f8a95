/* A segment that splits, again and again, while maps of any age lead readers to its old place, and
 * its space is used for other segments.
 *
 * Claim: a GET that finds nothing is right, and so is one that finds the key: it was absent, or
 * present, at some instant of the GET.
 *
 * As in chain.pml a line is copied at once, and each at a moment of its own; one that is torn says
 * nothing, and the other may say that the key is there. The key is in the line itself: what slots
 * and chains add is in the other models.
 *
 * Model          Code
 *   split        Segments::Replace: Segments::Write, Directory::Name, Segments::End (W7). Of those that
 *                begin the key's. A merge and a move are the same for it.
 *   other        the space of a former segment becomes a segment of other keys, and is left again
 *   Reader       DirectoryCache (its copy of the directory entry), Lookup::OnWindow, Lookup::Refresh
 *
 * Mutants, each of which must be found (-DBUG_…):
 *   BUG_DIRECTORY_FIRST      the directory names the half before its lines are there
 *   BUG_NOT_POISONED         the old lines stay as they are
 *   BUG_GENERATION_KEPT      a place has one generation, whichever segment is there
 *   BUG_WRITE_DURING_SPLIT   a key is inserted into the old lines between copy and publication
 *   BUG_GENERATION_OF_ONE    the generation of h + 1 is not looked at
 *   BUG_GENERATION_UNCHECKED
 */

#ifndef OPERATIONS
#define OPERATIONS 5
#endif
#define UNITS 3
#define HOME(unit) (2 * (unit))
#define NEXT(unit) (2 * (unit) + 1)
#define EVEN(version) ((version) % 2 == 0)

/* --- The region: lines, and the directory's entry for the key. */
bit being_written[6]; bit key[6]; byte generation[6];
byte directory_unit; byte directory_generation;

/* --- The server's own memory. */
bool taken[UNITS];
byte last_generation = 1;
bool ready;

/* --- Ghost. */
bit present;
bit was_absent;
bit was_present;

#define KEEPS 0
#define APPEARS 1
#define VANISHES 2

inline publish(line, with_key, life, effect) {
  being_written[line] = 1;
  d_step {
    key[line] = with_key;
    generation[line] = life;
    being_written[line] = 0;
    if
    :: effect == APPEARS -> present = 1; was_present = 1
    :: effect == VANISHES -> present = 0; was_absent = 1
    :: else
    fi
  }
}

inline take_unit(x) {
  d_step {
    if
    :: !taken[0] -> x = 0
    :: taken[0] && !taken[1] -> x = 1
    :: else -> x = 2
    fi;
    taken[x] = true;
#ifdef BUG_GENERATION_KEPT
    made = x + 1
#else
    last_generation++;
    made = last_generation
#endif
  }
}
#define ROOM (!taken[0] || !taken[1] || !taken[2])
#define FORGET x = 0; made = 0; old = 0

active proctype Writer() {
  byte operations, x, made, old;
  byte here; /* the unit of the key's segment */
  byte others = 255;
  d_step {
    taken[0] = true; directory_generation = 1; generation[0] = 1; generation[1] = 1; ready = true
  };
  do
  :: operations == OPERATIONS -> break
  :: operations < OPERATIONS && !present -> /* insert */
    operations++;
    if
    :: publish(HOME(here), 1, generation[HOME(here)], APPEARS)
    :: publish(NEXT(here), 1, generation[NEXT(here)], APPEARS)
    fi
  :: operations < OPERATIONS && present -> /* delete */
    operations++;
    if
    :: key[HOME(here)] -> publish(HOME(here), 0, generation[HOME(here)], VANISHES)
    :: else -> publish(NEXT(here), 0, generation[NEXT(here)], VANISHES)
    fi
  :: operations < OPERATIONS && ROOM -> /* split */
    operations++;
    old = here;
    take_unit(x);
#ifdef BUG_DIRECTORY_FIRST
    d_step { directory_unit = x; directory_generation = made };
    publish(HOME(x), 0, made, KEEPS);
    publish(NEXT(x), 0, made, KEEPS);
#endif
    publish(HOME(x), key[HOME(old)], made, KEEPS);
    publish(NEXT(x), key[NEXT(old)], made, KEEPS);
#ifdef BUG_WRITE_DURING_SPLIT
    if
    :: !present -> publish(HOME(old), 1, generation[HOME(old)], APPEARS)
    :: else
    fi;
#endif
    d_step { directory_unit = x; directory_generation = made };
#ifndef BUG_NOT_POISONED
    publish(HOME(old), 0, 0, KEEPS);
    publish(NEXT(old), 0, 0, KEEPS);
#endif
    d_step { taken[old] = false; here = x; FORGET }
  :: operations < OPERATIONS && others == 255 && ROOM -> /* other */
    operations++;
    take_unit(x);
    publish(HOME(x), 0, made, KEEPS);
    publish(NEXT(x), 0, made, KEEPS);
    d_step { others = x; FORGET }
  :: operations < OPERATIONS && others != 255 ->
    operations++;
    publish(HOME(others), 0, 0, KEEPS);
    publish(NEXT(others), 0, 0, KEEPS);
    d_step { taken[others] = false; others = 255 }
  od
}

inline read(line) {
  d_step {
    l_whole = !being_written[line]; l_key = 0; l_generation = 0;
    if
    :: l_whole -> l_key = key[line]; l_generation = generation[line]
    :: else
    fi
  }
}

#define H_IS_RIGHT (h_generation == m_generation)
#define N_IS_RIGHT (n_generation == m_generation)
#ifdef BUG_GENERATION_UNCHECKED
#undef H_IS_RIGHT
#define H_IS_RIGHT true
#endif
#if defined(BUG_GENERATION_UNCHECKED) || defined(BUG_GENERATION_OF_ONE)
#undef N_IS_RIGHT
#define N_IS_RIGHT true
#endif
/* A hit needs its own line alone, a miss both. */
#define HIT ((h_key && H_IS_RIGHT) || (n_key && N_IS_RIGHT))
#define TORN (!h_whole || !n_whole)
#define IS_RIGHT (H_IS_RIGHT && N_IS_RIGHT)

active proctype Reader() {
  byte m_unit, m_generation; /* the map */
  byte l_generation, h_generation, n_generation, refreshes;
  bit l_key, h_key, n_key, l_whole, h_whole, n_whole;
  ready;
  d_step { m_unit = directory_unit; m_generation = directory_generation };
  d_step { was_absent = !present; was_present = present };
window:
  if
  :: true ->
    read(HOME(m_unit)); h_key = l_key; h_generation = l_generation; h_whole = l_whole;
    read(NEXT(m_unit)); n_key = l_key; n_generation = l_generation; n_whole = l_whole
  :: true ->
    read(NEXT(m_unit)); n_key = l_key; n_generation = l_generation; n_whole = l_whole;
    read(HOME(m_unit)); h_key = l_key; h_generation = l_generation; h_whole = l_whole
  fi;
  if
  :: HIT -> assert(was_present)
  :: !HIT && TORN -> goto done /* READ again, which is as good as another GET */
  :: !HIT && !TORN && !IS_RIGHT && refreshes == 1 -> goto done /* R4 */
  :: !HIT && !TORN && !IS_RIGHT && refreshes == 0 ->
    d_step {
      refreshes = 1;
      m_unit = directory_unit; m_generation = directory_generation;
      l_key = 0; h_key = 0; n_key = 0; l_generation = 0; h_generation = 0; n_generation = 0;
      l_whole = 0; h_whole = 0; n_whole = 0
    };
    goto window
  :: !HIT && !TORN && IS_RIGHT -> assert(was_absent)
  fi;
done:
  skip;
  d_step {
    m_unit = 0; m_generation = 0; refreshes = 0; l_key = 0; h_key = 0; n_key = 0;
    l_generation = 0; h_generation = 0; n_generation = 0; l_whole = 0; h_whole = 0; n_whole = 0;
    was_absent = 0; was_present = 0
  }
}
