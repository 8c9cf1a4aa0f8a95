/* Of replication.pml: what store, servers, network and outsiders have, and what changes it. */

/* --- Sets of servers are bits. */

#define self _pid
#define BIT(server) (1 << (server))
#define IN(set, server) (((set) >> (server)) & 1)
#define SIZE(set) (IN(set, 0) + IN(set, 1) + IN(set, 2))
#define WRITE_OF(entry) ((entry) & 3)
#define ENTRY(server, i) log[(server) * SLOTS + (i) - 1]
#define SENT(t, i) sent[((t) - 1) * SLOTS + (i) - 1]
#define ACKNOWLEDGED(t, server) acknowledged[((t) - 1) * 3 + (server)]

/* --- The store: the shard's record, and the primary's key. */

byte record_term = 1, record_primary = 0, members = 7;
bool key_gone = false;        /* of the incarnation that the record names as primary */
bool primary_resumed = false; /* its server's next incarnation has resumed the place: the record has no primary */
byte adding = 0;              /* a swap that adds this replica is on its way; it fails if the record changes first */

/* --- Servers. */

byte up = 7;
byte lapsed = 0;        /* without a right */
byte unconnected = 0;   /* a new incarnation, in no connection yet */
byte superseded = 0;    /* the record, or a swap on its way, names an earlier replica of it */
byte unlisted_until[3]; /* primaries of terms up to this have, if any, an earlier replica of it */
byte primaries = 1;     /* those that take themselves for it */
byte serving = 1;       /* the region says so */
byte stopped = 0;       /* decides no more, since it hands over */
byte term[3] = 1, entries[3], applied[3], confirmed[3];
byte counted[3] = 7;    /* those that a primary waits for */
byte promoted_in[3];    /* the term, before the server has the answer */
byte log[3 * SLOTS];

/* --- The network: of each term. */

byte sent[TERMS * SLOTS], sent_entries[TERMS + 1], commit_point[TERMS + 1], acknowledged[3 * TERMS];
byte announced = 2; /* terms whose primary has sent something */

/* --- What outsiders have seen, and how much has happened. */

byte seen[WRITES + 1], seen_entries = 0, invoked = 0, failures = 0, hand_overs = 0;
byte handed_term = 0, handing_to = 0, handed_by = 0; /* handing_to: a swap on its way; the successor + 1 */
#if LIVES > 0
byte lives = 0;
byte began_again = 0; /* durable where a log is: it has given up its place */
#define HAS_COPY(server) (!IN(began_again, server))
#else
#define HAS_COPY(server) true
#endif
#ifdef BUG_DROPPED_STAYS_IN_WINDOW
byte window[3];
#endif
#ifdef BUG_RECORD_UNCOMPARED
byte has_read = 0, read_members[3];
#endif
#ifdef BUG_TAIL_BEFORE_PROMOTION
byte tail_before[3];
#endif

byte i, j, k, x, found; /* of one step; 0 between steps */
#define CLEAR i = 0; j = 0; k = 0; x = 0; found = 0

/* --- The record. */

#define UNCHANGED (record_term == term[self] && record_primary == self) /* as this primary has it: its swap succeeds */
#define CHANGES adding = 0; handing_to = 0; superseded = superseded & members /* swaps on their way fail */

inline begin_term() {
  record_term++;
  i = 0;
  do :: i < 3 -> if :: IN(superseded, i) -> unlisted_until[i] = record_term :: else fi; i++ :: else -> break od
}

/* --- Logs. */

/* An outsider has seen the n-th entry, and so all before it, as done. */
inline expose(n) {
  x = 1;
  do
  :: x <= (n) ->
    if
    :: x <= seen_entries -> assert(seen[x] == WRITE_OF(ENTRY(self, x)))
    :: else ->
      j = 1;
      do :: j <= seen_entries -> assert(seen[j] != WRITE_OF(ENTRY(self, x))); j++ :: else -> break od;
      seen_entries = x;
      seen[x] = WRITE_OF(ENTRY(self, x))
    fi;
    x++
  :: else -> break
  od
}

inline cut(server, n) {
  j = n + 1;
  do :: j <= entries[server] -> ENTRY(server, j) = 0; j++ :: else -> break od;
  entries[server] = n
}

/* Whether the window of results, or a pending entry, has the write. */
#if defined(BUG_WINDOW_LOCAL)
#define HAS_RESULT(w, i) (ENTRY(self, i) == term[self] * 4 + (w))
#elif defined(BUG_WINDOW_WITHOUT_PENDING)
#define HAS_RESULT(w, i) (WRITE_OF(ENTRY(self, i)) == (w) && i <= applied[self])
#elif defined(BUG_COPY_WITHOUT_WINDOW)
#define HAS_RESULT(w, i) (WRITE_OF(ENTRY(self, i)) == (w) && ENTRY(self, i) >= 4)
#elif defined(BUG_BELOW_WINDOW_EXECUTED)
#define HAS_RESULT(w, i) (WRITE_OF(ENTRY(self, i)) == (w) && i == entries[self])
#else
#define HAS_RESULT(w, i) (WRITE_OF(ENTRY(self, i)) == (w))
#endif
inline find_result(w) {
  found = false;
  j = 1;
  do :: j <= entries[self] -> if :: HAS_RESULT(w, j) -> found = true :: else fi; j++ :: else -> break od
}

/* What a new incarnation of this server still has: n entries. */
inline lose_memory(n) {
  cut(self, n);
  confirmed[self] = 0;
#ifdef BUG_LOG_TAKEN_AS_COMMITTED
  applied[self] = n;
#else
  applied[self] = 0;
#endif
#if !defined(SYNC) || defined(BUG_TERM_FORGOTTEN)
  term[self] = 0;
#endif
#ifdef BUG_DROPPED_STAYS_IN_WINDOW
  window[self] = 0;
#endif
  counted[self] = 0;
  promoted_in[self] = 0
}

/* --- Messages that no server can take any more count as gone: fewer states, and the same behaviour. */

#ifdef BUG_TERM_FORGOTTEN
#define ACKNOWLEDGE(t, n) ACKNOWLEDGED(t, self) = (n)
inline forget_messages() { skip }
#else
#define LISTENS(server, t) (IN(up, server) && !IN(unconnected, server) && term[server] <= (t))
#define LEADS(server, t) (IN(up, server) && IN(primaries, server) && term[server] == (t))
#define IS_LED(t) (LEADS(0, t) || LEADS(1, t) || LEADS(2, t))
#define ACKNOWLEDGE(t, n) \
  if :: IS_LED(t) -> ACKNOWLEDGED(t, self) = (n) :: else fi
inline forget_messages() {
  k = 1;
  do
  :: k <= TERMS ->
    if :: IS_LED(k) :: else -> ACKNOWLEDGED(k, 0) = 0; ACKNOWLEDGED(k, 1) = 0; ACKNOWLEDGED(k, 2) = 0 fi;
    if
    :: k >= record_term || LISTENS(0, k) || LISTENS(1, k) || LISTENS(2, k)
    :: else ->
      j = 1;
      do :: j <= sent_entries[k] -> SENT(k, j) = 0; j++ :: else -> break od;
      sent_entries[k] = 0;
      commit_point[k] = 0
    fi;
    k++
  :: else -> break
  od
}
#endif
