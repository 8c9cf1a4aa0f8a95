#include "client/lease/reader_lease.h"

#include <algorithm>

namespace osprey::client {
namespace {

constexpr uint64_t kBeatsOfLease = 2;
// So many beats have come after that time, by any clock.
absl::Duration BeatsPassIn() { return 3 * kBeatInterval(); }

}  // namespace

void ReaderLease::TakeRecord(const index::ServingState& state, absl::Time posted,
                             absl::Time landed) {
  if (!Adopt(state, landed)) return;
  SeeBeat(state.beat);
  if (state_.beat - state.beat >= kBeatsOfLease) return Extend(posted);
  Posting& posting = postings_[state.beat % postings_.size()];
  if (posting.beat != state.beat) posting = {state.beat};
  posting.posted = std::max(posting.posted, posted);
}

void ReaderLease::TakeGrant(const index::ServingState& state, absl::Time sent,
                            absl::Time received) {
  if (!Adopt(state, received)) return;
  SeeBeat(state.beat);
  Extend(sent);
}

bool ReaderLease::Adopt(const index::ServingState& state, absl::Time landed) {
  const bool is_same = state.incarnation == state_.incarnation;
  if (is_same && state.loss_revision < state_.loss_revision) return false;
  if (!is_same || state.loss_revision > state_.loss_revision) {
    const absl::Time read_at = read_at_;
    const absl::Time requested_at = requested_at_;
    Drop();
    read_at_ = read_at;
    requested_at_ = requested_at;
    state_.incarnation = state.incarnation;
    state_.loss_revision = state.loss_revision;
    state_.beat = state.beat;
  }
  if (state.gain_revision < state_.gain_revision) return true;
  for (uint32_t shard = 0; shard < named_.size(); ++shard) {
    if (state.Serves(shard) && !state_.Serves(shard)) named_[shard] = landed;
  }
  state_.gain_revision = state.gain_revision;
  state_.shards = state.shards;
  return true;
}

// Leases of the postings that this beat completes.
void ReaderLease::SeeBeat(uint64_t beat) {
  if (beat <= state_.beat) return;
  state_.beat = beat;
  for (const Posting& posting : postings_) {
    if (beat - posting.beat >= kBeatsOfLease) Extend(posting.posted);
  }
}

void ReaderLease::Extend(absl::Time from) {
  until_ = std::max(until_, from + HeldFor(kReaderLease()));
}

// No: there is a lease, or a READ that is posted now will bring one.
bool ReaderLease::WantsRequest(absl::Time now) const {
  if (now < until_ || now - requested_at_ < kBeatInterval()) return false;
  // The caller may have reported the READ already.
  if (!WantsRead(now) && read_at_ != now) return true;
  for (const Posting& posting : postings_) {
    const absl::Duration age = now - posting.posted;
    if (age >= BeatsPassIn() && age + kBeatInterval() < HeldFor(kReaderLease())) return false;
  }
  return true;
}

}  // namespace osprey::client
