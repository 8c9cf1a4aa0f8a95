#include "client/read/read_lease.h"

#include "absl/types/optional.h"
#include "index/layout/serving_record.h"

namespace osprey::client {

void ReadLease::OnReady(bool in_cluster, uint32_t shard, uint64_t region_incarnation) {
  in_cluster_ = in_cluster;
  shard_ = shard;
  region_incarnation_ = region_incarnation;
  if (in_cluster_) ReadClock();
}

void ReadLease::OnLost() {
  lease_.Drop();
  in_cluster_ = renews_ = is_reading_ = false;
}

GetTrace::LeaseTimes ReadLease::times() const {
  const absl::Time now = clock_();
  return {now - posted_at_, lease_.until() - now};
}

bool ReadLease::IsCovered(absl::Time begun) {
  if (!is_now_) {
    ReadClock();
    is_now_ = true;
  }
  return lease_.Covers(shard_, begun, now_);
}

void ReadLease::PostRead(const ReadSource& source, absl::Time now) {
  if (is_reading_ || !lease_.WantsRead(now_)) return;
  if (!buffer_.valid()) buffer_ = buffers_.Take(sizeof(index::ServingRecord));
  if (!buffer_.valid() || reads_.Room(source) == 0) return;
  rdma::ReadRequest read;
  read.remote_address = source.region.address + index::kServingRecordOffset;
  read.remote_key = source.region.key;
  read.segments[0] = {buffer_.data(), sizeof(index::ServingRecord), &buffer_.memory()};
  posted_at_ = now_;
  if (!reads_.Post(source, {&read, 1}, {ReadChainId::User::kLease, 0}, now).ok()) return;
  ++counters_.lease_reads;
  lease_.ReadPosted(now_);
  is_reading_ = true;
  renews_ = false;
}

void ReadLease::Landed(bool believe) {
  is_reading_ = false;
  if (!believe) return;
  const absl::optional<index::ServingState> state =
      index::ReadServingRecord({buffer_.data(), sizeof(index::ServingRecord)}, region_incarnation_);
  if (!state.has_value()) return;  // torn, or not written yet: the next READ is due soon
  const bool had = ReadClock() < lease_.until();
  lease_.TakeRecord(*state, posted_at_, now_);
  if (!had && now_ < lease_.until()) ++counters_.leases;
}

}  // namespace osprey::client
