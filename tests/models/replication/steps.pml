/* Of replication.pml: the steps that are there for each server, term or write, and the conditions of others. */

/* --- Decide: a first sending of a write, or a repeated or late one. */

#ifdef BUG_BELOW_WINDOW_EXECUTED /* the client awaits each write */
#define MAY_ARRIVE(w) ((w) <= invoked || ((w) == invoked + 1 && invoked == seen_entries))
#else
#define MAY_ARRIVE(w) ((w) <= invoked + 1)
#endif
#define DECIDES (IN(primaries, self) && IN(serving, self) && !IN(stopped, self) && IN(up, self) && entries[self] < SLOTS)
#define DECIDE(w) \
  :: d_step { \
      (w) <= WRITES && DECIDES && MAY_ARRIVE(w) -> \
      find_result(w); \
      if \
      :: !found -> \
        if :: (w) > invoked -> invoked = (w) :: else fi; \
        entries[self] = entries[self] + 1; \
        ENTRY(self, entries[self]) = term[self] * 4 + (w); \
        SENT(term[self], entries[self]) = ENTRY(self, entries[self]); \
        sent_entries[term[self]] = entries[self] \
      :: else \
      fi; \
      CLEAR \
    }

/* --- Commit. */

#ifdef BUG_ACK_WITHOUT_TERM
inline find_acknowledgement(server, n) {
  found = false;
  k = 1;
  do :: k <= TERMS -> if :: ACKNOWLEDGED(k, server) >= (n) -> found = true :: else fi; k++ :: else -> break od
}
#else
inline find_acknowledgement(server, n) { found = (ACKNOWLEDGED(term[self], server) >= (n)) }
#endif
#if defined(BUG_TAIL_APPLIED_ALONE)
#define ASKS_MEMBERS IN(serving, self)
#elif defined(BUG_SUCCESSOR_APPLIES_ALL)
#define ASKS_MEMBERS !(term[self] == handed_term && !IN(serving, self))
#else
#define ASKS_MEMBERS true
#endif
#ifdef BUG_SUCCESSOR_TOLD
#define MAY_BEGIN (term[self] != handed_term || !IN(serving, handed_by) || IN(lapsed, handed_by))
#else
#define MAY_BEGIN true
#endif

/* With too few members it commits its tail, and nothing of its own. A joiner whose swap is under way is no member yet. */
#ifdef BUG_COMMITS_BELOW_MIN
#define MAY_COMMIT(n) true
#else
#define MAY_COMMIT(n) (ENTRY(self, n) < term[self] * 4 || SIZE(counted[self] & ~adding) >= MIN_IN_SYNC)
#endif

/* --- READs that count. */

#if defined(BUG_READ_BEFORE_TAIL)
#define SAYS_THAT_IT_SERVES IN(primaries, self)
#elif defined(BUG_SWAP_BEFORE_READERS) || defined(BUG_SUCCESSOR_TOLD)
#define SAYS_THAT_IT_SERVES IN(serving, self)
#else
#define SAYS_THAT_IT_SERVES (IN(serving, self) && !IN(stopped, self)) /* its region stopped a reader's lease before */
#endif
#ifdef BUG_READABLE_WHEN_DECIDED
#define READABLE entries[self]
#else
#define READABLE applied[self]
#endif

/* --- Backups. */

#ifdef BUG_ACK_FOR_EARLIER_REPLICA
#define NAMES_IT(t) true
#else
#define NAMES_IT(t) ((t) > unlisted_until[self])
#endif
#ifdef BUG_TAIL_DROPPED_EARLY
#define ON_NEW_TERM cut(self, applied[self])
#else
#define ON_NEW_TERM skip
#endif
/* Appends of a higher term: what differs is replaced as they come. */
#define SEE_TERM(t) \
  :: d_step { \
      (t) <= TERMS && IN(announced, t) && (t) > term[self] && NAMES_IT(t) && IN(up, self) && !IN(unconnected, self) && \
      !(IN(primaries, self) && IN(lapsed, self)) -> \
      term[self] = (t); \
      primaries = primaries & ~BIT(self); serving = serving & ~BIT(self); stopped = stopped & ~BIT(self); \
      ON_NEW_TERM; \
      confirmed[self] = applied[self]; \
      ACKNOWLEDGE(t, applied[self]); \
      forget_messages(); CLEAR \
    }

#ifdef BUG_LOWER_TERM_TAKEN
#define TAKE_LOWER_TERM(t) \
  :: d_step { \
      (t) <= TERMS && IN(announced, t) && (t) < term[self] && IN(up, self) && !IN(unconnected, self) && \
      !IN(primaries, self) && ACKNOWLEDGED(t, self) < sent_entries[t] && ACKNOWLEDGED(t, self) <= entries[self] -> \
      i = ACKNOWLEDGED(t, self) + 1; \
      if \
      :: i > entries[self] || ENTRY(self, i) != SENT(t, i) -> \
        cut(self, i - 1); entries[self] = i; ENTRY(self, i) = SENT(t, i); \
        if :: confirmed[self] >= i -> confirmed[self] = i :: else fi \
      :: else \
      fi; \
      ACKNOWLEDGE(t, i); CLEAR \
    }
#else
#define TAKE_LOWER_TERM(t)
#endif

/* The entry is there already. */
#ifdef BUG_LSN_ALONE_COMPARED
#define IS_THERE(i) (i <= entries[self])
#else
#define IS_THERE(i) (i <= entries[self] && ENTRY(self, i) == SENT(term[self], i))
#endif
#ifdef BUG_UNCONFIRMED_COMMITTED
#define MAY_APPLY entries[self]
#else
#define MAY_APPLY confirmed[self]
#endif
#ifdef BUG_LOG_TAKEN_AS_COMMITTED /* a primary's commit point may then be ahead of what outsiders have seen */
#define AGREES(n) (n > seen_entries || seen[n] == WRITE_OF(ENTRY(self, n)))
#else
#define AGREES(n) (n <= seen_entries && seen[n] == WRITE_OF(ENTRY(self, n)))
#endif

/* --- Promotion. */

#if defined(BUG_NAME_PROMOTED)
#define IS_OLD_REPLICA true
#define IS_CONNECTED true
#elif defined(BUG_LIFE_UNNAMED) /* nothing but the record says that it may not */
#define IS_OLD_REPLICA !IN(superseded, self)
#define IS_CONNECTED (!IN(unconnected, self) || !HAS_COPY(self))
#else
#define IS_OLD_REPLICA !IN(superseded, self)
#define IS_CONNECTED !IN(unconnected, self)
#endif
#ifdef BUG_NONMEMBER_PROMOTED
#define IS_MEMBER true
#else
#define IS_MEMBER (IN(members, self) && IS_OLD_REPLICA)
#endif
#ifdef BUG_KEY_UNCOMPARED
#define PRIMARY_IS_GONE (record_primary != self && record_term < TERMS)
#else
#define PRIMARY_IS_GONE key_gone
#endif
#if defined(BUG_SERVES_BEFORE_TAIL)
#define TAIL_IS_COMMITTED true
#elif defined(BUG_SUCCESSOR_WITHOUT_TAIL)
#define TAIL_IS_COMMITTED (applied[self] == entries[self] || term[self] == handed_term)
#else
#define TAIL_IS_COMMITTED (applied[self] == entries[self])
#endif
#ifdef BUG_PRIMARY_BY_NAME
#define ON_RESTART \
  if \
  :: record_primary == self -> \
    unconnected = unconnected & ~BIT(self); superseded = superseded & ~BIT(self); unlisted_until[self] = 0; \
    primaries = primaries | BIT(self); serving = serving | BIT(self); key_gone = false; \
    counted[self] = members; term[self] = record_term; sent_entries[record_term] = 0 \
  :: else \
  fi
#else
#define ON_RESTART skip
#endif

/* --- Copies. A copy is what the primary has applied. What is pending, and all appends after it, follow. */

#ifdef BUG_COPY_WITHOUT_WINDOW
#define COPY_OF(entry) WRITE_OF(entry)
#else
#define COPY_OF(entry) (entry)
#endif
inline copy_to(server) {
  cut(server, 0);
  i = 1;
  do :: i <= applied[self] -> ENTRY(server, i) = COPY_OF(ENTRY(self, i)); i++ :: else -> break od;
#ifdef BUG_COPY_WITHOUT_PENDING
  do :: i <= entries[self] -> ENTRY(server, i) = 0; i++ :: else -> break od;
#endif
  entries[server] = i - 1;
  confirmed[server] = entries[server];
  applied[server] = applied[self];
  term[server] = term[self];
  promoted_in[server] = 0;
#ifdef BUG_ACK_OF_EARLIER_REPLICA
  if
  :: ACKNOWLEDGED(term[self], server) < entries[server] -> ACKNOWLEDGED(term[self], server) = entries[server]
  :: else
  fi
#else
  ACKNOWLEDGED(term[self], server) = entries[server]
#endif
}
#define MAY_COPY(server) \
  (server != self && IN(primaries, self) && IN(up, self) && IN(serving, self) && IN(up, server) && \
   !IN(primaries, server) && !IN(counted[self], server))
/* The primary connects to a new incarnation. */
#define JOIN(server) \
  :: d_step { \
      MAY_COPY(server) && (IN(unconnected, server) && term[server] <= term[self] || \
                           unlisted_until[server] >= term[self] && term[server] < term[self]) -> \
      unconnected = unconnected & ~BIT(server); copy_to(server); CLEAR \
    }
/* A backup drops its copy. */
#ifdef BUG_LIFE_UNNAMED
#define SUPERSEDE skip
#else
#define SUPERSEDE superseded = superseded | (BIT(self) & (members | adding)); unlisted_until[self] = record_term
#endif
#define BEGIN_AGAIN \
  :: d_step { \
      IN(up, self) && !IN(unconnected, self) && !IN(primaries, self) && promoted_in[self] <= term[self] && lives < LIVES -> \
      lives++; \
      began_again = began_again | BIT(self); \
      cut(self, 0); applied[self] = 0; confirmed[self] = 0; counted[self] = 0; promoted_in[self] = 0; \
      unconnected = unconnected | BIT(self); \
      SUPERSEDE; forget_messages(); CLEAR \
    }

/* --- Members. */

#ifdef BUG_ADDED_BEFORE_THE_TAIL
#define MAY_ADD true
#else
#define MAY_ADD IN(serving, self)
#endif
#ifdef BUG_JOINER_INCOMPLETE
#define IS_COMPLETE(server) true
#else
#define IS_COMPLETE(server) (ACKNOWLEDGED(term[self], server) >= applied[self])
#endif
#ifdef BUG_JOINER_COUNTED_LATE
#define COUNT(server) skip
#else
#define COUNT(server) counted[self] = counted[self] | BIT(server)
#endif
#define ADD(server) \
  :: d_step { \
      server != self && IN(primaries, self) && IN(up, self) && MAY_ADD && UNCHANGED && adding == 0 && IN(up, server) && \
      !IN(unconnected, server) && !IN(members, server) && !IN(counted[self], server) && term[server] == term[self] && \
      IS_COMPLETE(server) -> \
      COUNT(server); adding = BIT(server); CLEAR \
    }
#ifdef BUG_DROPPED_BEFORE_THE_SWAP
#define UNCOUNT(server) \
  :: d_step { \
      server != self && IN(primaries, self) && IN(up, self) && IN(counted[self], server) -> \
      counted[self] = counted[self] & ~BIT(server) \
    }
#else
#define UNCOUNT(server)
#endif
#define DROP(server) \
  :: d_step { \
      server != self && IN(primaries, self) && IN(up, self) && UNCHANGED && IN(members, server) -> \
      members = members & ~BIT(server); CHANGES; CLEAR \
    } \
  UNCOUNT(server)
/* The record, as its primary has it, says whom it counts. */
#if defined(BUG_REREAD_CONCLUDES) || defined(BUG_JOINER_COUNTED_LATE)
#define COUNTED members
#elif defined(BUG_OLD_PRIMARY_KEPT)
#define COUNTED (counted[self] & members | adding)
#else
#define COUNTED (members | adding)
#endif

/* The swap that names this very replica gives it a place. */
#if LIVES > 0 && !defined(GOAL_LIFE)
#define REGAIN if :: !IN(superseded, self) -> began_again = began_again & ~BIT(self) :: else fi
#else
#define REGAIN skip
#endif

/* --- Restart, with n entries in the log. */

#if defined(ASYNC)
#define KEEPS(n) true
#elif defined(BUG_OWN_LOG_NOT_AWAITED)
#define KEEPS(n) ((n) == entries[self] || IN(primaries, self))
#elif defined(SYNC)
#define KEEPS(n) ((n) == entries[self])
#else
#define KEEPS(n) ((n) == 0)
#endif
#define RESTART(n) \
  :: d_step { \
      n <= SLOTS && IN(lapsed, self) && (n) <= entries[self] && KEEPS(n) -> \
      lose_memory(n); \
      up = up | BIT(self); lapsed = lapsed & ~BIT(self); \
      primaries = primaries & ~BIT(self); serving = serving & ~BIT(self); stopped = stopped & ~BIT(self); \
      unconnected = unconnected | BIT(self); \
      superseded = superseded | (BIT(self) & (members | adding)); \
      unlisted_until[self] = record_term; \
      ON_RESTART; forget_messages(); CLEAR \
    }

#ifdef BUG_RESUMES_WITHOUT_COPY
#define MAY_RESUME true
#else
#define MAY_RESUME HAS_COPY(self)
#endif

/* --- Hand-over. */

#ifdef BUG_NONMEMBER_SUCCEEDS
#define MAY_SUCCEED(server) (IN(up, server) && !IN(unconnected, server))
#else
#define MAY_SUCCEED(server) IN(members, server)
#endif
/* The old primary's swap: sent, then done, maybe much later, maybe never. */
#if HAND_OVERS > 0
#define HAND_OVER(server) \
  :: d_step { \
      server != self && handing_to == 0 && hand_overs == 1 && IN(primaries, self) && IN(up, self) && IN(stopped, self) && \
      UNCHANGED && MAY_SUCCEED(server) -> \
      handing_to = server + 1 \
    } \
  :: d_step { \
      handing_to == server + 1 && IN(primaries, self) && IN(up, self) && server != self && UNCHANGED -> \
      hand_overs = 2; begin_term(); handed_term = record_term; handed_by = self; record_primary = server; CHANGES; \
      primary_resumed = false; \
      key_gone = (IN(lapsed, server) || IN(superseded, server)); \
      if \
      :: IN(up, server) && !IN(superseded, server) && !IN(unconnected, server) -> \
        promoted_in[server] = record_term; counted[server] = members \
      :: else \
      fi; \
      CLEAR \
    }
#ifdef BUG_SUCCESSOR_APPLIES_ALL
#define MAY_STOP (applied[self] == entries[self])
#else
#define MAY_STOP true
#endif
#ifdef BUG_HAND_OVER_GIVEN_UP
#define NONE_ON_ITS_WAY true
#else
#define NONE_ON_ITS_WAY (handing_to == 0)
#endif
#endif
