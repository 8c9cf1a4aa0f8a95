#include "server/cluster/node/replica_tables.h"

#include <cassert>
#include <utility>

namespace osprey::server {

ReplicaTables::ReplicaTables(Tables& tables, uint64_t seed, Owner& owner, CallThread& asker)
    : tables_(tables), owner_(owner), asker_(asker), replica_(tables, seed) {
  replica_.BeginBackup();
}

std::vector<SessionImage> ReplicaTables::TakeOver() {
  assert(!is_primary_);
  is_primary_ = true;
  return replica_.TakeOver();
}

uint64_t ReplicaTables::EndPrimary() {
  if (!is_primary_) return 0;  // it has not applied its tail yet
  copy_.reset();
  wants_sessions_ = false;
  EndedService ended = owner_.EndService();
  replica_.BeginBackup(std::move(ended.sessions));
  for (const std::string& body : ended.dropped) replica_.NoteDropped(body);
  is_primary_ = false;
  return ended.made;
}

void ReplicaTables::Clear() {
  (void)EndPrimary();
  replica_.BeginClear();
}

void ReplicaTables::BeginCopy() {
  copy_.reset();
  // Sessions that are on their way were read before this copy began.
  asked_ = nullptr;
  wants_sessions_ = true;
}

bool ReplicaTables::HasChunk() {
  (void)asker_.TakeDone();  // also for another shard
  if (asked_ != nullptr && asked_->is_done) {
    if (wants_sessions_ && asked_->sessions.has_value()) {
      wants_sessions_ = false;
      copy_.emplace(tables_, *std::move(asked_->sessions));
    }
    asked_ = nullptr;
  }
  if (wants_sessions_ && asked_ == nullptr && asker_.idle() && owner_.has_engines()) {
    asked_ = std::make_shared<Asked>();
    asker_.Begin([owner = &owner_, asked = asked_] {
      asked->sessions = owner->TakeSessions();
      asked->is_done = true;
    });
  }
  if (!copy_.has_value()) return false;
  // The copy lacks what was evicted meanwhile, so its end waits for those groups. *Else* they are lost with this primary,
  // and the joiner lacks what the next one has.
  return !copy_->at_end() || owner_.placed() >= decided_;
}

std::string ReplicaTables::NextChunk() {
  assert(copy_.has_value());
  if (copy_->at_end()) {
    copy_.reset();
    return "";
  }
  std::string chunk = copy_->NextChunk(time_mark_ns());
  if (copy_->at_end()) decided_ = owner_.decided();
  return chunk;
}

absl::Status ReplicaTables::TakeChunk(absl::string_view chunk) {
  if (!replica_.is_copying()) return absl::DataLossError("a part of a copy comes behind its last");
  return replica_.TakeChunk(chunk);
}

}  // namespace osprey::server
