/* A key that is inline in its line, or out of line in an item, and goes to and fro: by puts, and
 * without being written by demotion, promotion and compaction, while clients remember its items.
 *
 * Claim: every GET answers what the key was at some instant of it, by whichever way it comes to the
 * key. What moves keeps its value, and has no instant.
 *
 * A reader copies line and items word by word in any order, as in item.pml. That an item may be
 * another key's, and what confirms a miss, is there.
 *
 * Model            Code
 *   kill           ItemStore::Kill
 *   publish_line   LineEditor::Publish, RegionWriter::WriteRecord, RegionWriter::AmendRecord
 *   put_inline     Placement::PutInline (W2: item dead, line), Table::RewriteInline
 *   put_item       Placement::ReplaceWithItem, Table::InsertItem (W2: item unsealed, old item dead, line, seal)
 *   put_in_place   ItemStore::RewriteInPlace
 *   delete         Placement::Remove
 *   demote         Placement::Demote (W2: item unsealed, line, seal)
 *   promote        Placement::Promote (W2: item dead, line)
 *   begin_move     Compactor::MoveOne: the copy is begun; anything may be written until it is complete
 *   end_move       Compactor::Copy, ItemCopy::unchanged, Placement::ReplaceCopied
 *   Reader         Lookup: OnHint, OnWindow, OnItem
 *
 * Mutants, each of which must be found (-DBUG_…; W1, W2 of index/README.md):
 *   BUG_NO_DEAD_MARK_ON_PROMOTION   the item that becomes inline lives on
 *   BUG_NO_DEAD_MARK_ON_PUT_INLINE  … whose key is written inline
 *   BUG_LINE_BEFORE_DEAD_MARK       … is dead only when the line has the new value
 *   BUG_SEALED_BEFORE_LINE          an inline key's new item is live before the line leads to it
 *   BUG_NO_DEAD_MARK_ON_MOVE        the item that was moved lives on
 *   BUG_CHANGED_ITEM_MOVED          the copy is of what the item was before a write
 *   BUG_COPY_LIVE_AT_ONCE           the copy is sealed when it is made, not when it takes the item's place
 *   BUG_LINE_WITHOUT_CHECKSUM       a line is believed when its version is even
 */

#ifndef OPERATIONS
#define OPERATIONS 3
#endif
#define ITEMS 2
#define NOWHERE 255

#define DEAD 0
#define LIVE 1

/* What a line says of the key. */
#define ABSENT 0
#define INLINE 1 /* the word is its value */
#define SLOT 2   /* the word is its item */

#define SUM(version, a, b) (((version) * 4 + (a)) * 8 + (b))
#define EVEN(version) ((version) % 2 == 0)

/* --- The region. */
byte line_version; short line_sum; byte line_kind; byte line_word;
byte item_version[ITEMS]; short item_sum[ITEMS]; byte item_tag[ITEMS]; byte item_value[ITEMS];

/* --- The server's own memory. */
byte next_version = 2;
byte next_value = 2;
bool used[ITEMS];
bool ready;

/* --- Ghost: what the key is (0: absent), and all that it was since the GET began. */
byte current = 1;
int was;
inline takes_effect(value) { current = value; was = was | (1 << current) }

inline draw(version) { version = next_version; next_version = next_version + 2 }

inline kill(x) {
  d_step { draw(v); item_version[x] = v + 1; item_tag[x] = DEAD };
  item_value[x] = 0;
  item_sum[x] = SUM(v, DEAD, 0);
  item_version[x] = v
}

/* The last store is the instant of what has one there. */
inline publish_line(kind, word, is_instant, value) {
  d_step { draw(v); line_version = v + 1 };
  line_kind = kind;
  line_word = word;
  line_sum = SUM(v, kind, word);
  d_step {
    line_version = v;
    if
    :: is_instant -> takes_effect(value)
    :: else
    fi
  }
}

inline begin(x, value) {
  d_step { draw(sealed); item_version[x] = sealed + 1; item_tag[x] = LIVE };
  item_value[x] = value
}
inline seal(x, version, is_instant) {
  item_sum[x] = SUM(version, LIVE, item_value[x]);
  d_step {
    item_version[x] = version;
    if
    :: is_instant -> takes_effect(item_value[x])
    :: else
    fi
  }
}

/* Any item that is not in use: reused at once, which W4 makes rare and nothing forbids. */
inline allocate(x) {
  d_step {
    if
    :: !used[0] -> x = 0
    :: else -> x = 1
    fi;
    used[x] = true
  }
}
#define ROOM (!used[0] || !used[1])

/* So that states that differ in nothing that matters are one. */
#define FORGET v = 0; sealed = 0; x = 0; old = 0

active proctype Writer() {
  byte operations, v, sealed, x, old;
  byte mine = NOWHERE; /* the key's item, if it has one */
  byte copy = NOWHERE; /* one that is being made of it, … */
  byte copy_sealed;    /* … its version */
  byte copied_from, copied_version;
  if
  :: d_step {
       line_kind = INLINE; line_word = 1; line_sum = SUM(0, INLINE, 1);
       item_version[0] = 1; item_version[1] = 1
     }
  :: d_step {
       line_kind = SLOT; line_word = 0; line_sum = SUM(0, SLOT, 0); mine = 0; used[0] = true;
       item_tag[0] = LIVE; item_value[0] = 1; item_sum[0] = SUM(0, LIVE, 1); item_version[1] = 1
     }
  fi;
  ready = true;
  do
  :: operations == OPERATIONS -> break
  :: operations < OPERATIONS -> /* put_inline */
    operations++;
    old = mine;
#ifdef BUG_LINE_BEFORE_DEAD_MARK
    publish_line(INLINE, next_value, true, next_value);
#endif
#ifndef BUG_NO_DEAD_MARK_ON_PUT_INLINE
    if
    :: old != NOWHERE -> kill(old)
    :: else
    fi;
#endif
#ifndef BUG_LINE_BEFORE_DEAD_MARK
    publish_line(INLINE, next_value, true, next_value);
#endif
    d_step {
      if
      :: old != NOWHERE -> used[old] = false
      :: else
      fi;
      mine = NOWHERE;
      next_value++;
      FORGET
    }
  :: operations < OPERATIONS && ROOM -> /* put_item */
    operations++;
    old = mine;
    allocate(x);
    begin(x, next_value);
    if
    :: old != NOWHERE -> kill(old)
    :: else
    fi;
#ifdef BUG_SEALED_BEFORE_LINE
    seal(x, sealed, true);
#endif
    publish_line(SLOT, x, false, 0);
#ifndef BUG_SEALED_BEFORE_LINE
    seal(x, sealed, true);
#endif
    d_step {
      if
      :: old != NOWHERE -> used[old] = false
      :: else
      fi;
      mine = x;
      next_value++;
      FORGET
    }
  :: operations < OPERATIONS && mine != NOWHERE -> /* put_in_place */
    operations++;
    begin(mine, next_value);
    seal(mine, sealed, true);
    d_step { next_value++; FORGET }
  :: operations < OPERATIONS && current != 0 -> /* delete */
    operations++;
    if
    :: mine != NOWHERE -> kill(mine)
    :: else
    fi;
    publish_line(ABSENT, 0, true, 0);
    d_step {
      if
      :: mine != NOWHERE -> used[mine] = false
      :: else
      fi;
      mine = NOWHERE;
      FORGET
    }
  :: operations < OPERATIONS && current != 0 && mine == NOWHERE && ROOM -> /* demote */
    operations++;
    allocate(x);
    begin(x, current);
    publish_line(SLOT, x, false, 0);
    seal(x, sealed, false);
    d_step { mine = x; FORGET }
  :: operations < OPERATIONS && mine != NOWHERE -> /* promote */
    operations++;
#ifndef BUG_NO_DEAD_MARK_ON_PROMOTION
    kill(mine);
#endif
    publish_line(INLINE, current, false, 0);
    d_step { used[mine] = false; mine = NOWHERE; FORGET }
  :: operations < OPERATIONS && mine != NOWHERE && copy == NOWHERE && ROOM -> /* begin_move */
    operations++;
    allocate(x);
    begin(x, current);
#ifdef BUG_COPY_LIVE_AT_ONCE
    seal(x, sealed, false);
#endif
    d_step {
      copy = x; copy_sealed = sealed; copied_from = mine; copied_version = item_version[mine];
      FORGET
    }
  :: copy != NOWHERE -> /* end_move */
    if
#ifdef BUG_CHANGED_ITEM_MOVED
    :: mine == copied_from ->
#else
    :: mine == copied_from && item_version[mine] == copied_version ->
#endif
#ifndef BUG_NO_DEAD_MARK_ON_MOVE
      kill(mine);
#endif
      publish_line(SLOT, copy, false, 0);
      seal(copy, copy_sealed, false);
      d_step { used[mine] = false; mine = copy }
    :: else -> used[copy] = false
    fi;
    d_step { copy = NOWHERE; copy_sealed = 0; copied_from = 0; copied_version = 0; FORGET }
  od
}

/* --- The reader. Copies are private; `copied` is a set of words. */

inline read_line() {
  do
  :: copied == 15 -> break
  :: (copied & 1) == 0 -> d_step { r_version = line_version; copied = copied | 1 }
  :: (copied & 2) == 0 -> d_step { r_tag = line_kind; copied = copied | 2 }
  :: (copied & 4) == 0 -> d_step { r_value = line_word; copied = copied | 4 }
  :: (copied & 8) == 0 -> d_step { r_sum = line_sum; copied = copied | 8 }
  od
}
inline read_item(x) {
  do
  :: copied == 15 -> break
  :: (copied & 1) == 0 -> d_step { r_version = item_version[x]; copied = copied | 1 }
  :: (copied & 2) == 0 -> d_step { r_tag = item_tag[x]; copied = copied | 2 }
  :: (copied & 4) == 0 -> d_step { r_value = item_value[x]; copied = copied | 4 }
  :: (copied & 8) == 0 -> d_step { r_sum = item_sum[x]; copied = copied | 8 }
  od
}

#define IS_WHOLE (EVEN(r_version) && r_sum == SUM(r_version, r_tag, r_value))
#ifdef BUG_LINE_WITHOUT_CHECKSUM
#define LINE_IS_WHOLE EVEN(r_version)
#else
#define LINE_IS_WHOLE IS_WHOLE
#endif
#define WAS(value) ((was >> (value)) & 1)
#define FORGET_COPY copied = 0; r_version = 0; r_tag = 0; r_value = 0; r_sum = 0

active proctype Reader() {
  byte copied, at;
  byte r_version, r_tag, r_value;
  short r_sum;

  d_step { ready -> was = 1 << current };
  if /* R3: a hint is any address, since any may have been right once */
  :: at = NOWHERE
  :: at = 0
  :: at = 1
  fi;
  if
  :: at != NOWHERE ->
    read_item(at);
    if
    :: IS_WHOLE && r_tag == LIVE -> assert(WAS(r_value))
    :: else /* to the line, which is as good as another GET */
    fi;
    goto done
  :: else
  fi;
  read_line();
  if
  :: !LINE_IS_WHOLE -> goto done /* READ again: likewise */
  :: LINE_IS_WHOLE && r_tag == ABSENT -> assert(WAS(0)); goto done
  :: LINE_IS_WHOLE && r_tag == INLINE -> assert(WAS(r_value)); goto done
  :: LINE_IS_WHOLE && r_tag == SLOT -> d_step { at = r_value; FORGET_COPY }
  fi;
  read_item(at);
  if
  :: IS_WHOLE && r_tag == LIVE -> assert(WAS(r_value))
  :: else /* torn, or dead: back to the line */
  fi;
done:
  skip;
  d_step { FORGET_COPY; at = 0; was = 0 }
}
