// Sessions: a client can repeat a write after its connection broke, and it is applied once.
//
// A client numbers its requests 1, 2, 3 … within its session. The server remembers its answers to
// the last writes of each session. It answers a write with a known number from that memory. A
// session outlives its connection by kSessionKept, so that the client can come back.
//
// With a data directory a session outlives its server as well: the directory's log learns each
// beginning and end, and each answer. The next incarnation restores the sessions, which are then
// kept.
//
// Bounded: a session without owner lives for kSessionKept at most. It ends earlier if there are
// `sessions_max` and a new client needs one: the session kept longest is dropped first. A client
// that comes back later gets a new session and a notice; it must report its unanswered writes as
// unknown.
//
//   (none)
//      | Hello
//      v            kDisconnected
//    owned ---------------------------> kept
//      |  <-----------------------------  |
//      |     Hello {resume_session}       |
//      |                                  |
//      | the client's DisconnectNotice             | kSessionKept passed, or its place is needed
//      v                                  v
//   (gone)                              (gone)
//
// A Hello for a session that is still owned waits for the owner's kDisconnected (W9).
//
// Pure memory: no clock (time is an argument), no I/O. Thread rule: one thread.

#ifndef OSPREY_SERVER_REQUESTS_SESSIONS_H_
#define OSPREY_SERVER_REQUESTS_SESSIONS_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rdma/reasons.h"
#include "rdma/wire/wire.h"

namespace osprey::server {

class Connection;

// A client repeats a write until its deadline, which is at most 60 s away (client/client.h): no
// session is needed longer.
inline constexpr absl::Duration kSessionKept() { return absl::Seconds(60); }

// The limit of a session's unanswered requests. As many fit in one Batch.
inline constexpr uint32_t kRequestsMax = 128;

// Answers remembered for each session (14 KiB). They are more than kRequestsMax, because one slow
// request (a large value) may stay unanswered while later ones complete. A client's oldest
// unanswered write may be this many numbers behind its newest.
inline constexpr uint32_t kResultsKept = 256;

// The answer to a write, as a repetition needs it.
struct Result {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  uint64_t version = 0;
  uint64_t slot = 0;
  uint64_t value_length = 0;
  int64_t number = 0;  // has_number: the result of an increment
  bool has_number = false;
  bool slot_is_cursor = false;  // of a FLUSH: `slot` is the next cursor, and no location
  Reason reason = Reason::kNone;
  uint64_t expiry = 0;
};

// A session as a data directory keeps it. Locations do not outlive the region: `slot` of a result is
// 0, except for the cursor of a FLUSH.
struct SessionImage {
  uint64_t id = 0;
  std::vector<std::pair<uint64_t, Result>> results;  // by ascending sequence
};

// The answers to the last writes of a session, by sequence.
class ResultWindow {
 public:
  enum class Seen {
    kNew,        // not answered yet
    kAnswered,   // `result` is the answer
    kForgotten,  // too long ago: it may have been applied
  };
  struct Lookup {
    Seen seen = Seen::kNew;
    Result result;
  };
  Lookup Find(uint64_t sequence) const;
  // As Find, without the result.
  Seen SeenOf(uint64_t sequence) const {
    assert(sequence != 0);
    if (IsForgotten(sequence)) return Seen::kForgotten;
    if (entries_.empty() || entries_[sequence % kResultsKept].sequence != sequence)
      return Seen::kNew;
    return Seen::kAnswered;
  }
  // REQUIRES: sequence >= 1. Forgets the answers kResultsKept behind the highest sequence.
  void Remember(uint64_t sequence, const Result& result) {
    // A slow write may end when its number is below the window already: then a repetition of it is
    // answered with UNKNOWN.
    if (IsForgotten(sequence)) return;
    if (entries_.empty()) entries_.resize(kResultsKept);
    if (sequence > highest_) highest_ = sequence;
    entries_[sequence % kResultsKept] = {sequence, result};
  }
  // The remembered answers, by ascending sequence. The last one is that of the highest sequence.
  std::vector<std::pair<uint64_t, Result>> Remembered() const;

 private:
  bool IsForgotten(uint64_t sequence) const {
    return highest_ >= kResultsKept && sequence <= highest_ - kResultsKept;
  }

  struct Entry {
    uint64_t sequence = 0;  // 0: empty
    Result result;
  };
  uint64_t highest_ = 0;
  std::vector<Entry> entries_;  // by sequence modulo kResultsKept; allocated with the first write
};

struct Session {
  uint64_t id = 0;
  ResultWindow results;
  Connection* owner = nullptr;     // the connection of the session; null: kept
  Connection* claimant = nullptr;  // the connection that waits for the owner's end
  absl::Time keep_until = absl::InfiniteFuture();
  std::list<Session*>::iterator place;  // among the kept; valid without an owner
};

// Receives the ids of sessions that begin and end, each call before the session's client can see
// the change. Either may be empty. Called on the thread of Sessions, inside its methods.
struct SessionEvents {
  std::function<void(uint64_t id)> begun;
  std::function<void(uint64_t id)> ended;
};

class Sessions {
 public:
  // `sessions_max` limits owned and kept together. `random` returns 64 random bits for an id.
  Sessions(size_t sessions_max, std::function<uint64_t()> random, SessionEvents events = {});

  // A new session of `owner`. If there are sessions_max, the one kept longest is dropped. REQUIRES:
  // fewer than sessions_max are owned.
  Session& Create(Connection* owner);
  // Null: unknown, or gone.
  Session* Find(uint64_t id);
  // Gives a kept session an owner. REQUIRES: it has none.
  void Own(Session& session, Connection* owner);
  // The owner is gone. REQUIRES: there was one, and its kDisconnected has been handled.
  void Keep(Session& session, absl::Time now);
  // Its client has ended it.
  void Forget(Session& session);
  // Drops sessions kept for long enough; returns their number.
  size_t Expire(absl::Time now);

  // Adds a session of an earlier incarnation, kept from `now` on. It does not count as begun. If
  // there are sessions_max, the one kept longest is dropped, and counts as ended. Among restored
  // sessions the first one is dropped first. REQUIRES: no session has this id, which is not 0;
  // sequences ascend from 1 or more; fewer than sessions_max are owned; `now` never decreases.
  void Restore(const SessionImage& image, absl::Time now);
  // All sessions, in the order in which Restore expects them: those kept longest first, then those
  // with owners.
  std::vector<SessionImage> Images() const;

  // When Expire has work to do.
  absl::Time next_expiry() const {
    return kept_.empty() ? absl::InfiniteFuture() : kept_.front()->keep_until;
  }

  size_t size() const { return by_id_.size(); }
  size_t kept() const { return kept_.size(); }

 private:
  void MakeRoom();

  const size_t sessions_max_;
  const std::function<uint64_t()> random_;
  const SessionEvents events_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Session>> by_id_;
  std::list<Session*> kept_;  // the one kept longest first
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_REQUESTS_SESSIONS_H_
