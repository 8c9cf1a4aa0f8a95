// A session with a server: it numbers requests and matches replies. Pure bookkeeping.
//
// A session outlives connections. After a reconnect the server may still have it. Then unanswered
// requests are sent again under their old sequence, by which the server recognises repetitions. With
// a data directory so does the server's next incarnation.
//
// Window: at most `requests_max` sequences lie between the oldest request without an answer and the
// newest, both included. The server remembers as many. A request that its user abandoned at its
// deadline keeps its place, and its value's buffer. They stay until the reply or the end of the
// connection, because the server may READ the buffer until then.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_ENGINE_SESSION_H_
#define OSPREY_CLIENT_ENGINE_SESSION_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/common/buffer_pool.h"
#include "client/common/operation.h"

namespace osprey::client {

class Session {
 public:
  uint64_t id() const { return id_; }  // 0: no session yet
  uint64_t incarnation() const { return incarnation_; }
  uint64_t data_id() const { return data_id_; }  // as in ServerTerms
  uint32_t unanswered() const { return unanswered_; }

  // A new session. REQUIRES: unanswered() == 0.
  void Begin(uint64_t id, uint64_t incarnation, uint64_t data_id, uint32_t requests_max) {
    assert(unanswered_ == 0);
    id_ = id;
    incarnation_ = incarnation;
    data_id_ = data_id;
    places_.clear();
    places_.resize(requests_max);
    first_ = next_ = 1;
  }

  // The server has it still; `incarnation` is that of the present connection. REQUIRES: it has
  // begun.
  void Continue(uint64_t incarnation) {
    assert(id_ != 0);
    incarnation_ = incarnation;
  }

  bool HasRoom() const { return Room() > 0; }
  // The number of requests that may be added now.
  uint64_t Room() const { return places_.size() - (next_ - first_); }
  uint64_t next_sequence() const { return next_; }

  // Adds next_sequence(), sent for `operation` at `now` or later. REQUIRES: HasRoom().
  void Add(Operation& operation, absl::Time now) {
    assert(HasRoom());
    operation.set_sequence(next_);
    PlaceOf(next_) = Place{true, &operation, Buffer(), now};
    ++next_;
    ++unanswered_;
  }

  // The same for a request without an operation. REQUIRES: HasRoom().
  void AddUnowned(absl::Time now) {
    assert(HasRoom());
    PlaceOf(next_) = Place{true, nullptr, Buffer(), now};
    ++next_;
    ++unanswered_;
  }

  // True if `sequence` was sent and has no answer yet.
  bool IsUnanswered(uint64_t sequence) const {
    return sequence >= first_ && sequence < next_ && places_[sequence % places_.size()].taken;
  }
  // The operation that waits for the answer; null if its user abandoned it. REQUIRES:
  // IsUnanswered(sequence).
  Operation* Waiting(uint64_t sequence) const {
    assert(IsUnanswered(sequence));
    return places_[sequence % places_.size()].operation;
  }

  // The buffer of an abandoned request, if it has one. REQUIRES: IsUnanswered(sequence).
  const Buffer& Abandoned(uint64_t sequence) const {
    assert(IsUnanswered(sequence));
    return places_[sequence % places_.size()].buffer;
  }

  // The request was not sent before this time; for a repeated one, the first time counts. REQUIRES:
  // IsUnanswered(sequence).
  absl::Time SentAt(uint64_t sequence) const {
    assert(IsUnanswered(sequence));
    return places_[sequence % places_.size()].sent_at;
  }

  // The operation ends without an answer. The server may still READ `buffer` for it.
  void Abandon(Operation& operation, Buffer buffer) {
    assert(IsUnanswered(operation.sequence()));
    Place& place = PlaceOf(operation.sequence());
    place.operation = nullptr;
    place.buffer = std::move(buffer);
    operation.set_sequence(0);
  }

  // The request was answered, or never will be.
  void Remove(uint64_t sequence) {
    assert(IsUnanswered(sequence));
    Place& place = PlaceOf(sequence);
    if (place.operation != nullptr) place.operation->set_sequence(0);
    place = Place();
    --unanswered_;
    while (first_ < next_ && !PlaceOf(first_).taken) ++first_;
  }

  // The sequences between which all unanswered requests lie: [first, end).
  uint64_t first() const { return first_; }
  uint64_t end() const { return next_; }

 private:
  struct Place {
    bool taken = false;
    Operation* operation = nullptr;
    Buffer buffer;
    absl::Time sent_at;
  };
  Place& PlaceOf(uint64_t sequence) { return places_[sequence % places_.size()]; }

  uint64_t id_ = 0;
  uint64_t incarnation_ = 0;
  uint64_t data_id_ = 0;
  uint64_t first_ = 1;  // all lower sequences have their answers
  uint64_t next_ = 1;
  uint32_t unanswered_ = 0;
  std::vector<Place> places_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_SESSION_H_
