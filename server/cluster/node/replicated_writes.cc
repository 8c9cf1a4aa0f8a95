#include "server/cluster/node/replicated_writes.h"

#include <cassert>
#include <chrono>

namespace osprey::server {
namespace {

constexpr std::chrono::milliseconds kMeanwhile(10);

}  // namespace

absl::Status ReplicatedWrites::CommitWith(absl::FunctionRef<void()> meanwhile) {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t upto = decided_.load();
  const auto is_over = [&] { return !error_.ok() || committed_ >= upto; };
  if (is_over()) return error_;
  ++awaiting_;
  CommitDriver* const driver = driver_;
  lock.unlock();
  if (driver == nullptr) {
    wake_();
  } else {
    driver->Drive([&] {
      const std::lock_guard<std::mutex> driving(mutex_);
      return is_over();
    });
  }
  lock.lock();
  while (!changed_.wait_for(lock, kMeanwhile, is_over)) {
    lock.unlock();
    meanwhile();
    lock.lock();
  }
  --awaiting_;
  return error_;
}

void ReplicatedWrites::Decide(uint32_t, std::string body, uint64_t entries) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Add(std::move(body), entries);
}

// REQUIRES: mutex_ is held.
void ReplicatedWrites::Add(std::string body, uint64_t entries) {
  const uint64_t number = ++decided_;
  if (error_.ok()) {
    queue_.push_back({number, std::move(body), entries});
  } else {
    dropped_.push_back(std::move(body));  // its Commit fails
  }
}

void ReplicatedWrites::SessionBegun(uint64_t session) {
  DecideSession({wal::EntryKind::kSessionBegin, session});
}

void ReplicatedWrites::SessionEnded(uint64_t session) {
  DecideSession({wal::EntryKind::kSessionEnd, session});
}

// A session that began and ended while writes were refused leaves nothing. *Else* what clients leave has no
// bound.
void ReplicatedWrites::DecideSession(const SessionChange& change) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (refusal_.ok()) return Add(change);
  if (!error_.ok()) return;
  // (A session begins once, so only its end finds it here.)
  const size_t begun = std::erase_if(
      deferred_, [&](const SessionChange& other) { return other.session == change.session; });
  if (begun == 0) deferred_.push_back(change);
}

void ReplicatedWrites::Begin(CommitDriver* driver) {
  const std::lock_guard<std::mutex> lock(mutex_);
  assert(queue_.empty() && deferred_.empty());
  error_ = absl::OkStatus();
  driver_ = driver;
  committed_ = decided_.load();
}

void ReplicatedWrites::End(absl::Status why) {
  assert(!why.ok());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    error_ = std::move(why);
    for (Group& group : std::exchange(queue_, {})) dropped_.push_back(std::move(group.body));
    deferred_.clear();
  }
  changed_.notify_all();
}

std::vector<ReplicatedWrites::Group> ReplicatedWrites::TakeDecided() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(queue_, {});
}

std::vector<std::string> ReplicatedWrites::TakeDropped() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(dropped_, {});
}

void ReplicatedWrites::NoteCommitted(uint64_t number) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    assert(number >= committed_);
    committed_ = number;
  }
  changed_.notify_all();
}

void ReplicatedWrites::RefuseWith(const absl::Status& why) {
  std::vector<SessionChange> deferred;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    refusal_ = why;
    // Before any write of theirs.
    if (why.ok()) deferred = std::exchange(deferred_, {});
    for (const SessionChange& change : deferred) Add(change);
  }
  if (!deferred.empty()) wake_();
  RefuseWrites(!why.ok());
}

absl::Status ReplicatedWrites::Refusal() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return refusal_;
}

}  // namespace osprey::server
