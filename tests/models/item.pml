/* A key whose item lies out of line: record, update in place and by a new item, delete, reuse of
 * space at once, hints to any address, and the reader's whole way to a hit or a miss.
 *
 * Claim: every GET answers what the key was at some instant between its call and its return,
 * 'absent' included, although the reader copies each record word by word in any order, with the
 * writer's stores in between.
 *
 * Model                          Code
 *   kill                         ItemStore::Kill
 *   publish_line                 LineEditor::Publish, RegionWriter::WriteRecord
 *   put_new                      Table::Put -> BeginItem, ReplaceWithItem / InsertItem (W2)
 *   put_in_place                 ItemStore::RewriteInPlace (W1)
 *   delete                       Table::Delete
 *   stranger                     the same, of a key in another line whose fingerprint is the same
 *   read_line, read_item         a READ: words in any order
 *   Reader                       Lookup: OnHint, OnWindow, OnItem, ConfirmNext, OnConfirmWindow
 *
 * A checksum is the tuple that it is made of, as one number: nothing else has the same.
 *
 * Mutants, each of which must be found (-DBUG_…; W1, W2, R1, R2 of index/README.md):
 *   BUG_NO_CHECKSUM             what was READ is believed when its version is even
 *   BUG_CHECKSUM_WITHOUT_VERSION
 *   BUG_LIVE_BEFORE_DEAD        the new item is sealed before the old one is dead
 *   BUG_NO_DEAD_MARK_ON_UPDATE
 *   BUG_NO_DEAD_MARK_ON_DELETE
 *   BUG_SLOT_BEFORE_DEAD_MARK   delete clears the slot before the item is dead
 *   BUG_DEAD_IS_MISS
 *   BUG_KEY_NOT_COMPARED
 *   BUG_STATE_NOT_COMPARED
 *   BUG_NOT_CONFIRMED           another key's item under the slot makes a miss at once
 *   BUG_CONFIRMED_BY_SLOT       by the slot instead of the line's version
 */

#ifndef OPERATIONS
#define OPERATIONS 4
#endif
#ifndef TRIES
#define TRIES 1
#endif
#define ITEMS 2
#define NONE 255

#define KEY 1      /* the key that is read */
#define STRANGER 2 /* another one */

#define DEAD 0 /* tags: the state and the key */
#define LIVE_KEY 1
#define LIVE_STRANGER 2

#ifdef BUG_CHECKSUM_WITHOUT_VERSION
#define SUM(version, a, b) ((a) * 8 + (b))
#else
#define SUM(version, a, b) (((version) * 4 + (a)) * 8 + (b))
#endif
#define EVEN(version) ((version) % 2 == 0)

/* --- The region. */
byte line_version; short line_sum; byte line_slot; /* leads to item 0 */
byte item_version[ITEMS]; short item_sum[ITEMS]; byte item_tag[ITEMS]; /* item 0 is live: set up by Writer */ byte item_value[ITEMS];

/* --- The server's own memory. */
byte next_version = 2;
byte next_value = 1;
bool used[ITEMS];
bool ready;

/* --- Ghost: what the key is, and all that it was since the GET began (bit v: the value v; bit 0:
 * absent). */
byte current;
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
inline publish_line(slot, is_instant, value) {
  d_step { draw(v); line_version = v + 1 };
  line_slot = slot;
  line_sum = SUM(v, 0, slot % 8);
  d_step {
    line_version = v;
    if
    :: is_instant -> takes_effect(value)
    :: else
    fi
  }
}

inline seal(x, version, tag, value) {
  item_sum[x] = SUM(version, tag, value);
  d_step {
    item_version[x] = version;
    if
    :: tag == LIVE_KEY -> takes_effect(value)
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
  byte v, sealed, x, old;
  byte operations = 0;
  d_step {
    item_tag[0] = LIVE_KEY; item_value[0] = 1; item_sum[0] = SUM(0, LIVE_KEY, 1);
    used[0] = true; current = 1; next_value = 2; ready = true
  };
  byte mine;          /* where the key's item is: at first it is there */
  byte theirs = NONE; /* … the stranger's */
  bool in_line;       /* whether the line's word is the stranger's */
  do
  :: operations == OPERATIONS -> break
  :: operations < OPERATIONS && ROOM && !in_line -> /* put_new */
    operations++;
    old = mine;
    allocate(x);
    d_step { draw(sealed); item_version[x] = sealed + 1; item_tag[x] = LIVE_KEY };
    item_value[x] = next_value;
#ifdef BUG_LIVE_BEFORE_DEAD
    seal(x, sealed, LIVE_KEY, next_value);
#endif
#ifndef BUG_NO_DEAD_MARK_ON_UPDATE
    if
    :: old != NONE -> kill(old)
    :: else
    fi;
#endif
    publish_line(x, false, 0);
#ifndef BUG_LIVE_BEFORE_DEAD
    seal(x, sealed, LIVE_KEY, next_value);
#endif
    d_step {
      next_value++;
      mine = x;
      if
      :: old != NONE -> used[old] = false
      :: else
      fi;
      FORGET
    }
  :: operations < OPERATIONS && mine != NONE -> /* put_in_place */
    operations++;
    d_step { draw(sealed); item_version[mine] = sealed + 1 };
    item_value[mine] = next_value;
    seal(mine, sealed, LIVE_KEY, next_value);
    d_step { next_value++; FORGET }
  :: operations < OPERATIONS && mine != NONE -> /* delete */
    operations++;
#ifdef BUG_SLOT_BEFORE_DEAD_MARK
    publish_line(NONE, true, 0);
    kill(mine);
#else
#ifndef BUG_NO_DEAD_MARK_ON_DELETE
    kill(mine);
#endif
    publish_line(NONE, true, 0);
#endif
    d_step { used[mine] = false; mine = NONE; FORGET }
  :: operations < OPERATIONS && theirs == NONE && ROOM -> /* the stranger comes: elsewhere … */
    operations++;
    allocate(x);
    d_step { draw(sealed); item_version[x] = sealed + 1; item_tag[x] = LIVE_STRANGER };
    item_value[x] = 7;
    if
    :: mine == NONE -> publish_line(x, false, 0); in_line = true /* … or in this very word */
    :: true
    fi;
    seal(x, sealed, LIVE_STRANGER, 7);
    d_step { theirs = x; FORGET }
  :: operations < OPERATIONS && theirs != NONE -> /* … and goes */
    operations++;
    kill(theirs);
    if
    :: in_line -> publish_line(NONE, false, 0)
    :: else
    fi;
    d_step { used[theirs] = false; theirs = NONE; in_line = false; FORGET }
  od
}

/* --- The reader. Copies are private; `copied` is a set of words. */

inline read_line() {
  copied = 0;
  do
  :: copied == 7 -> break
  :: (copied & 1) == 0 -> d_step { l_version = line_version; copied = copied | 1 }
  :: (copied & 2) == 0 -> d_step { l_slot = line_slot; copied = copied | 2 }
  :: (copied & 4) == 0 -> d_step { l_sum = line_sum; copied = copied | 4 }
  od
}

inline read_item(x) {
  copied = 0;
  do
  :: copied == 15 -> break
  :: (copied & 1) == 0 -> d_step { i_version = item_version[x]; copied = copied | 1 }
  :: (copied & 2) == 0 -> d_step { i_tag = item_tag[x]; copied = copied | 2 }
  :: (copied & 4) == 0 -> d_step { i_value = item_value[x]; copied = copied | 4 }
  :: (copied & 8) == 0 -> d_step { i_sum = item_sum[x]; copied = copied | 8 }
  od
}

#ifdef BUG_NO_CHECKSUM
#define ITEM_IS_WHOLE EVEN(i_version)
#else
#define ITEM_IS_WHOLE (EVEN(i_version) && i_sum == SUM(i_version, i_tag, i_value))
#endif
#define LINE_IS_WHOLE (EVEN(l_version) && l_sum == SUM(l_version, 0, l_slot % 8))

#ifdef BUG_STATE_NOT_COMPARED
#define IS_HIT (i_tag != LIVE_STRANGER)
#else
#ifdef BUG_KEY_NOT_COMPARED
#define IS_HIT (i_tag != DEAD)
#else
#define IS_HIT (i_tag == LIVE_KEY)
#endif
#endif
#define WAS(value) ((was >> (value)) & 1)

#define FORGET_ITEM copied = 0; i_version = 0; i_tag = 0; i_value = 0; i_sum = 0
#define FORGET_LINE copied = 0; l_version = 0; l_slot = 0; l_sum = 0

active proctype Reader() {
  byte copied, tries, hint;
  byte l_version, l_slot, first_version, first_slot;
  short l_sum, first_sum, i_sum;
  byte i_version, i_tag, i_value;

  d_step { ready -> was = 1 << current };
  if /* R3: a hint is any address, since any may have been right once */
  :: hint = NONE
  :: hint = 0
  :: hint = 1
  fi;
  if
  :: hint != NONE ->
    read_item(hint);
    if
    :: ITEM_IS_WHOLE && IS_HIT -> assert(WAS(i_value)); goto done
    :: else -> d_step { FORGET_ITEM; hint = NONE }
    fi
  :: else
  fi;
restart:
  if
  :: tries == TRIES -> goto done /* R4: the server is asked */
  :: else -> tries++
  fi;
  read_line();
  if
  :: !LINE_IS_WHOLE -> goto restart
  :: LINE_IS_WHOLE && l_slot == NONE -> assert(WAS(0)); goto done
  :: LINE_IS_WHOLE && l_slot != NONE
  fi;
  d_step {
    first_version = l_version; first_slot = l_slot; first_sum = l_sum;
    FORGET_LINE
  };
  read_item(first_slot);
  if
  :: !ITEM_IS_WHOLE -> d_step { FORGET_ITEM }; goto restart
  :: ITEM_IS_WHOLE && IS_HIT -> assert(WAS(i_value)); goto done
  :: ITEM_IS_WHOLE && !IS_HIT && i_tag == DEAD ->
#ifdef BUG_DEAD_IS_MISS
    assert(WAS(0)); goto done
#else
    d_step { FORGET_ITEM };
    goto restart
#endif
  :: ITEM_IS_WHOLE && !IS_HIT && i_tag != DEAD -> d_step { FORGET_ITEM }
  fi;
#ifdef BUG_NOT_CONFIRMED
  assert(WAS(0)); goto done;
#endif
  read_line(); /* R2: posted after the item's READ has completed */
  if
#ifdef BUG_CONFIRMED_BY_SLOT
  :: LINE_IS_WHOLE && l_slot == first_slot -> assert(WAS(0))
#else
  :: l_version == first_version && l_sum == first_sum -> assert(WAS(0))
#endif
  :: else -> goto restart
  fi;
done:
  skip;
  d_step { FORGET_ITEM; FORGET_LINE; first_version = 0; first_slot = 0; first_sum = 0; tries = 0; hint = 0; was = 0 }
}
