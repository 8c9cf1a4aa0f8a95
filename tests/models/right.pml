/* The right of a server to serve, without trust in the store's leases or clocks: one server renews its
 * key, and one watcher ends it, unless the server does so itself.
 *
 * Claim: when the key is gone, the server has no right, and no reader has a lease.
 *
 * Both clocks are one clock. The shares of HeldFor and AwaitedFor cover what real ones differ by.
 *
 * Model        Code
 *   tick       the clock. It may run between any two steps: the process was stopped.
 *   renew      ServingRight::NextRequest
 *   execute    ConfigurationStore: the transaction takes effect, at any time after it was sent
 *   answer     ServingRight::TakeAnswer; or the answer is lost
 *   read       ConfigurationStore: a linearizable read; PeerWatch::Saw once it is answered
 *   remove     PeerWatch::Removal
 *   lease      ServingBeat::Check
 *   lose       ServingBeat::Loses
 *   release    ServingRight::Release
 *
 * Mutants, each of which must be found (-DBUG_…):
 *   BUG_RIGHT_FROM_ANSWER     the right counts from the answer of a renewal
 *   BUG_WATCHED_FROM_SENDING  a revision counts as seen when the read was sent
 *   BUG_REMOVAL_UNCOMPARED    the key is deleted whatever its revision
 *   BUG_RELEASED_WITH_READERS the server deletes its key without awaiting the end of leases
 *   BUG_LEASE_AFTER_LOSS      … and gives leases while it awaits that
 */

#ifndef TIME_MAX
#define TIME_MAX 9
#endif
#ifndef READS
#define READS 4
#endif
#define RENEWALS 3
#define TTL 3
#define LEASE 1

byte clock;
byte revision = 1; /* of the key, which was created at time 0 by a request of that time */
byte right = TTL;
byte lease; /* a reader has one up to this time: given last, all others end earlier */
bool gone;

inline GiveLease() {
  if
  :: clock + LEASE <= right -> lease = clock + LEASE
  :: else
  fi
}

active proctype Clock() {
  do
  :: clock < TIME_MAX -> clock++ /* tick */
  :: clock == TIME_MAX -> break
  od
}

active proctype Server() {
  byte sent, renewals;
  bool applied;
  do
  :: renewals < RENEWALS ->
    renewals++;
    sent = clock; /* renew */
    atomic { /* execute */
      applied = !gone;
      if
      :: applied -> revision++
      :: else
      fi
    }
    if
    :: applied -> atomic { /* answer */
#ifdef BUG_RIGHT_FROM_ANSWER
      sent = clock;
#endif
      if
      :: sent + TTL > right -> right = sent + TTL
      :: else
      fi;
      assert(!gone || clock >= right)
    }
    :: true /* no answer */
    fi
  :: true -> break
  od;
  if
  :: true /* it was killed */
  :: atomic { /* lease, lose */
      GiveLease();
      sent = clock
    }
#ifndef BUG_RELEASED_WITH_READERS
end_of_time:
    clock >= sent + LEASE;
#endif
    atomic { /* release */
#ifdef BUG_LEASE_AFTER_LOSS
      GiveLease();
#endif
      right = 0;
      if
      :: !gone -> gone = true; assert(clock >= lease)
      :: else
      fi
    }
  fi
}

active proctype Watcher() {
  byte seen, since, found, at, reads;
  do
  :: reads < READS ->
    reads++;
    at = clock;
    atomic { /* read */
      found = revision
    }
    atomic { /* it is answered */
#ifndef BUG_WATCHED_FROM_SENDING
      at = clock;
#endif
      if
      :: found != seen -> seen = found; since = at
      :: else
      fi;
      found = 0;
      at = 0
    }
    if
    :: seen != 0 && clock >= since + TTL ->
      atomic { /* remove */
        if
#ifdef BUG_REMOVAL_UNCOMPARED
        :: !gone -> gone = true; assert(clock >= right && clock >= lease)
#else
        :: !gone && revision == seen -> gone = true; assert(clock >= right && clock >= lease)
#endif
        :: else
        fi
      }
    :: true
    fi
  :: true -> break
  od
}
