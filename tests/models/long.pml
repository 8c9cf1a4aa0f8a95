/* A long item: its head is READ without a checksum, then its value in two pieces, at any time and in any order,
 * while the item dies and its space is used for others.
 *
 * Claim: every GET answers what the key was at some instant of it. That holds for the miss, too, which
 * comes of a head with another key's bytes, and for what a hint leads to.
 *
 * The words of an item are copied one by one, in any order; those of the tag as well, though the
 * writer stores it at once. A line is copied at once, while it is whole, as in chain.pml.
 *
 * Model            Code
 *   kill           ItemStore::Kill: the key's bytes stay where they are
 *   begin          ItemStore::Begin, ItemStore::Fill; or a Reservation (W6), which the value comes to slowly
 *   seal           ItemStore::Seal
 *   publish_line   LineEditor::Publish
 *   put            Table::PublishItem -> ReplaceWithItem, InsertItem (W2)
 *   delete         Placement::Remove
 *   stranger       the same, of a key whose fingerprint is the same
 *   read_head      ItemFetch::Begin, of ItemHeadBytes; ReadItemHead
 *   pieces         ItemFetch::BeginValue, ItemFetch::TakeValue, ItemFetch::FinishValue
 *   Reader         Lookup: OnHint, OnWindow, OnItem, ConfirmNext, OnConfirmWindow
 *
 * Mutants, each of which must be found (-DBUG_…; W2, W4, R2, long items of index/README.md):
 *   BUG_PIECES_NOT_VERIFIED   the pieces are believed without the checksum
 *   BUG_VERSION_READ_AGAIN    … when the item has the version of the head while they are READ
 *   BUG_HEAD_BY_TAG           an item is another key's when its tag says so
 *   BUG_HEAD_NOT_CONFIRMED    … and makes a miss at once
 *   BUG_KEY_AFTER_LINE        a new item's key is there only after the line leads to it
 *   BUG_KEY_ERASED            a dead item's key is erased
 *   BUG_REUSED_BEFORE_LINE    a dead item's space is used while the line leads to it
 */

#ifndef OPERATIONS
#define OPERATIONS 4
#endif
#define ITEMS 2
#define NOWHERE 255

#define NOBODY 0
#define KEY 1      /* the key that is read */
#define STRANGER 2 /* another one */

#define DEAD 0
#define LIVE 1

/* Checksums are over all that they bind, as one number. Dead items have neither key nor value. */
#define SUM(version, key, first, second) (1 + ((((version) * 4 + (key)) * 8 + (first)) * 8 + (second)))
#define DEAD_SUM(version) (-1 - (version))
#define EVEN(version) ((version) % 2 == 0)

/* --- The region. A tag is the item's state and the length of its key: each key has one of its own. */
bool line_whole = true; byte line_version; byte line_slot;
byte item_version[ITEMS]; int item_sum[ITEMS]; byte item_state[ITEMS]; byte item_length[ITEMS];
byte item_key[ITEMS]; byte item_first[ITEMS]; byte item_second[ITEMS];

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
  d_step { draw(v); item_version[x] = v + 1; item_state[x] = DEAD; item_length[x] = 0 };
#ifdef BUG_KEY_ERASED
  item_key[x] = NOBODY;
#endif
  item_sum[x] = DEAD_SUM(v);
  item_version[x] = v
}

inline publish_line(slot, is_instant) {
  line_whole = false;
  d_step {
    draw(line_version);
    line_slot = slot;
    line_whole = true;
    if
    :: is_instant -> takes_effect(0)
    :: else
    fi
  }
}

inline store_head(x, key) {
  d_step { draw(sealed); item_version[x] = sealed + 1; item_state[x] = LIVE; item_length[x] = key }
}
inline store_data(x, key, value) {
  item_key[x] = key;
  item_first[x] = value;
  item_second[x] = value
}
inline begin(x, key, value) { store_head(x, key); store_data(x, key, value) }
inline seal(x, key, value) {
  item_sum[x] = SUM(sealed, key, value, value);
  d_step {
    item_version[x] = sealed;
    if
    :: key == KEY -> takes_effect(value)
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
  byte mine;             /* the key's item: at first it is there */
  byte theirs = NOWHERE; /* … the stranger's */
  bool in_line;          /* whether the line's word is the stranger's */
  d_step {
    item_state[0] = LIVE; item_length[0] = KEY; item_key[0] = KEY;
    item_first[0] = 1; item_second[0] = 1; item_sum[0] = SUM(0, KEY, 1, 1);
    item_version[1] = 1; used[0] = true; ready = true
  };
  do
  :: operations == OPERATIONS -> break
  :: operations < OPERATIONS && ROOM && !in_line -> /* put */
    operations++;
    old = mine;
    allocate(x);
#ifdef BUG_KEY_AFTER_LINE
    store_head(x, KEY);
#else
    begin(x, KEY, next_value);
#endif
    if
    :: old != NOWHERE -> kill(old)
    :: else
    fi;
    publish_line(x, false);
#ifdef BUG_KEY_AFTER_LINE
    store_data(x, KEY, next_value);
#endif
    seal(x, KEY, next_value);
    d_step {
      if
      :: old != NOWHERE -> used[old] = false
      :: else
      fi;
      mine = x;
      next_value++;
      FORGET
    }
  :: operations < OPERATIONS && mine != NOWHERE -> /* delete */
    operations++;
    kill(mine);
#ifdef BUG_REUSED_BEFORE_LINE
    begin(mine, STRANGER, 7);
#endif
    publish_line(NOWHERE, true);
    d_step { used[mine] = false; mine = NOWHERE; FORGET }
  :: operations < OPERATIONS && theirs == NOWHERE && ROOM -> /* the stranger comes: elsewhere … */
    operations++;
    allocate(x);
    begin(x, STRANGER, 7);
    if
    :: mine == NOWHERE -> publish_line(x, false); in_line = true /* … or in this very word */
    :: true
    fi;
    seal(x, STRANGER, 7);
    d_step { theirs = x; FORGET }
  :: operations < OPERATIONS && theirs != NOWHERE -> /* … and goes */
    operations++;
    kill(theirs);
    if
    :: in_line -> publish_line(NOWHERE, false)
    :: else
    fi;
    d_step { used[theirs] = false; theirs = NOWHERE; in_line = false; FORGET }
  od
}

/* --- The reader. Copies are private; `copied` is a set of words. */

inline read_head(x) {
  do
  :: copied == 31 -> break
  :: (copied & 1) == 0 -> d_step { r_version = item_version[x]; copied = copied | 1 }
  :: (copied & 2) == 0 -> d_step { r_state = item_state[x]; copied = copied | 2 }
  :: (copied & 4) == 0 -> d_step { r_length = item_length[x]; copied = copied | 4 }
  :: (copied & 8) == 0 -> d_step { r_key = item_key[x]; copied = copied | 8 }
  :: (copied & 16) == 0 -> d_step { r_sum = item_sum[x]; copied = copied | 16 }
  od;
  copied = 0
}
inline read_pieces(x) {
  do
  :: copied == 3 -> break
  :: (copied & 1) == 0 -> d_step { r_first = item_first[x]; copied = copied | 1 }
  :: (copied & 2) == 0 -> d_step { r_second = item_second[x]; copied = copied | 2 }
  od
}

#define IS_DEAD (EVEN(r_version) && r_state == DEAD && r_sum == DEAD_SUM(r_version))
#define SEEMS_LIVE (EVEN(r_version) && r_state == LIVE && r_length == KEY && r_key == KEY)
#ifdef BUG_HEAD_BY_TAG
#define IS_OTHER (!IS_DEAD && r_length != KEY)
#else
#define IS_OTHER (!IS_DEAD && r_key != KEY)
#endif
#ifdef BUG_PIECES_NOT_VERIFIED
#define FITS true
#else
#ifdef BUG_VERSION_READ_AGAIN
#define FITS (item_version[at] == r_version)
#else
#define FITS (r_sum == SUM(r_version, r_key, r_first, r_second))
#endif
#endif
#define WAS(value) ((was >> (value)) & 1)
#define FORGET_COPY \
  copied = 0; r_version = 0; r_state = 0; r_length = 0; r_key = 0; r_sum = 0; r_first = 0; r_second = 0

active proctype Reader() {
  byte copied, at, l_version;
  byte r_version, r_state, r_length, r_key, r_first, r_second;
  int r_sum;

  d_step { ready -> was = 1 << current };
  if
  :: atomic { line_whole -> at = line_slot; l_version = line_version }
    if
    :: at == NOWHERE -> assert(WAS(0)); goto done
    :: else
    fi
  :: at = 0; l_version = NOWHERE /* R3: a hint is any address */
  :: at = 1; l_version = NOWHERE
  fi;
  read_head(at);
  if
  :: SEEMS_LIVE ->
    read_pieces(at);
    if
    :: FITS -> assert(r_first == r_second && WAS(r_first))
    :: else /* torn */
    fi
  :: !SEEMS_LIVE && IS_OTHER && l_version != NOWHERE ->
#ifndef BUG_HEAD_NOT_CONFIRMED
    d_step { FORGET_COPY };
    atomic { /* R2 */
      if
      :: line_whole && line_version == l_version -> skip
      :: else -> goto done
      fi
    };
#endif
    assert(WAS(0))
  :: else /* torn, dead, or an old hint: to the line, which is as good as another GET */
  fi;
done:
  skip;
  d_step { FORGET_COPY; at = 0; l_version = 0; was = 0 }
}
