/* The directory: segments that split and merge, a directory that doubles and halves, and a client's
 * map of it that is put together from a header and pages READ at different times.
 *
 * Claim: whatever entry the map gives for a key names a segment that the key was in at some time.
 * (That such a segment's lines then tell the truth, or that they are another's, is split.pml's.)
 *
 * The key's hash ends in 11. A directory of depth d has an entry for each of 2^d endings; here each
 * entry is a page of its own, so that all of them are READ at different moments.
 *
 * Model          Code
 *   double       Directory::DoubleStep: the upper half beside the lower one, then the header
 *   halve        Directory::Halve: the header alone
 *   split        Directory::Name, of both halves
 *   merge        Directory::Name
 *   take_header  DirectoryCache::TakeHeader
 *   take_page    DirectoryCache::TakePage
 *   use          DirectoryCache::SegmentOf, with EntryAt
 *
 * Mutants, each of which must be found (-DBUG_…):
 *   BUG_DEEPER_USED      an entry deeper than the map is used
 *   BUG_DEEPER_COPIED    … or stands for the other half, whose page was not READ since
 *   BUG_ONE_HALF_SET     a split names the other half's segment in the key's entry
 *   BUG_MERGED_TOO_MUCH  a merge names its segment at the entries of others
 */

#ifndef STEPS
#define STEPS 8
#endif
#ifndef GENERATIONS
#define GENERATIONS 7
#endif
#define ENDING 3
#define MASK(depth) ((1 << (depth)) - 1)

/* --- The region. Generation 0: there is no entry. */
byte depth;
byte entry_generation[4]; byte entry_depth[4];

/* The key's segment at any time. */
byte last_generation = 1;
int keys_generations = 2; /* a set: bit g */

bool ready;

inline double() {
  i = 1 << depth;
  do
  :: i == 1 << (depth + 1) -> break
  :: else ->
    d_step {
      entry_generation[i] = entry_generation[i - (1 << depth)];
      entry_depth[i] = entry_depth[i - (1 << depth)];
      i++
    }
  od;
  skip;
  d_step { depth++; i = 0 }
}

#define KEYS_HALF (last_generation + 1 + ((ENDING >> deep) & 1))
#ifdef BUG_ONE_HALF_SET
#define HALF(i) (last_generation + 1)
#else
#define HALF(i) (last_generation + 1 + ((i >> deep) & 1))
#endif

/* Of the segment of all hashes that end as `at` does in the bits of the segment's depth. */
inline split(at) {
  d_step { deep = entry_depth[at]; i = 0 };
  do
  :: i == 1 << depth -> break
  :: i < 1 << depth && (i & MASK(deep)) != at -> i++
  :: i < 1 << depth && (i & MASK(deep)) == at ->
    d_step {
      entry_generation[i] = HALF(i);
      entry_depth[i] = deep + 1;
      if /* the key is in its half once that is named */
      :: (ENDING & MASK(deep)) == at -> keys_generations = keys_generations | (1 << KEYS_HALF)
      :: else
      fi;
      i++
    }
  od;
  skip;
  d_step { last_generation = last_generation + 2; i = 0; deep = 0 }
}

#ifdef BUG_MERGED_TOO_MUCH
#define IS_MERGED(i, at) true
#else
#define IS_MERGED(i, at) (((i) & MASK(deep - 1)) == at)
#endif

/* Of the two segments of depth `deeper` whose hashes end as `at` does but for their topmost bit. */
inline merge(at, deeper) {
  d_step { deep = deeper; i = 0 };
  do
  :: i == 1 << depth -> break
  :: i < 1 << depth && !IS_MERGED(i, at) -> i++
  :: i < 1 << depth && IS_MERGED(i, at) ->
    d_step {
      entry_generation[i] = last_generation + 1;
      entry_depth[i] = deep - 1;
      if
      :: (ENDING & MASK(deep - 1)) == at ->
        keys_generations = keys_generations | (1 << (last_generation + 1))
      :: else
      fi;
      i++
    }
  od;
  skip;
  d_step { last_generation++; i = 0; deep = 0 }
}

#define MAY_MERGE(at, deeper) (depth >= deeper && entry_depth[at] == deeper && \
                               entry_depth[at | (1 << (deeper - 1))] == deeper)

active proctype Writer() {
  byte i, deep;
  d_step { entry_generation[0] = 1; ready = true };
  do
  :: depth < 2 -> double()
  :: last_generation < GENERATIONS && entry_depth[0] < depth -> split(0)
  :: last_generation < GENERATIONS && depth > 0 && entry_depth[1] > 0 && entry_depth[1] < depth ->
    split(1)
  :: last_generation < GENERATIONS && MAY_MERGE(0, 1) -> merge(0, 1)
  :: last_generation < GENERATIONS && MAY_MERGE(0, 2) -> merge(0, 2)
  :: last_generation < GENERATIONS && MAY_MERGE(1, 2) -> merge(1, 2)
  :: depth == 1 && entry_depth[0] == 0 -> depth = 0
  :: depth == 2 && entry_depth[0] < 2 && entry_depth[1] < 2 -> depth = 1 /* halve */
  :: true -> break
  od
}

active proctype Reader() {
  byte steps, i, map_depth, stripped;
  byte map_generation[4], map_entry_depth[4];
  ready;
  do
  :: steps == STEPS -> break
  :: steps < STEPS -> /* take_header */
    atomic { steps++; map_depth = depth }
  :: steps < STEPS -> /* take_page: the key's, or a neighbour's */
    atomic {
      steps++;
      if
      :: i = ENDING & MASK(map_depth)
      :: i = (ENDING & MASK(map_depth)) >> 1
      fi;
      map_generation[i] = entry_generation[i];
      map_entry_depth[i] = entry_depth[i];
      i = 0
    }
  :: steps < STEPS -> /* use: the entry, or that of an index without its topmost bits */
    atomic {
      steps++;
      i = ENDING & MASK(map_depth);
      stripped = 3; /* no bit is */
      do
      :: map_generation[i] != 0 || i == 0 -> break
      :: else -> stripped = i >> 1; i = i - (1 << stripped)
      od;
      if
      :: map_generation[i] == 0 -> skip /* refreshed */
#ifndef BUG_DEEPER_USED
      :: map_entry_depth[i] > map_depth -> skip /* refreshed */
#endif
#ifndef BUG_DEEPER_COPIED
      :: map_entry_depth[i] > stripped -> skip /* refreshed */
#endif
      :: else -> assert((keys_generations >> map_generation[i]) & 1)
      fi;
      i = 0; stripped = 0
    }
  od
}
