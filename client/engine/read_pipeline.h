// The READs of the client's engine: blocking GETs, the GETs that need an operation, long values and
// scans. They share the connection's limit of READs, and the buffers.

#ifndef OSPREY_CLIENT_ENGINE_READ_PIPELINE_H_
#define OSPREY_CLIENT_ENGINE_READ_PIPELINE_H_

#include <array>
#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/engine/operations.h"
#include "client/engine/server_link.h"
#include "client/read/get_batches.h"
#include "client/read/read_batches.h"
#include "client/read/scans.h"
#include "client/read/shm_fast_path.h"
#include "client/read/value_reads.h"
#include "rdma/transport.h"

namespace osprey::client {

absl::Status CheckKeyAlone(absl::string_view key);

// Not thread-safe.
class ReadPipeline final : private GetBatches::Owner {
 public:
  // All must outlive this.
  ReadPipeline(ServerLink& link, Operations& operations, ReadBatches& batches,
               ValueReads& value_reads);

  // As ClientEngine::StartGets, for as many keys as the limits allow.
  size_t StartGets(absl::Span<const absl::string_view> keys, absl::StatusOr<Value>* answers,
                   absl::Time deadline, absl::Time now, size_t& unanswered);
  // As ClientEngine::GetOne, with no other operation in flight.
  bool GetOne(absl::string_view key, absl::StatusOr<Value>& answer, absl::Time deadline,
              absl::Time now, size_t& unanswered);
  Scans& scans() { return scans_; }
  const Scans& scans() const { return scans_; }

  // Begins lookups and posts what is ready. REQUIRES: the connection is ready.
  void PostAll(absl::Time now);
  // A chain that was posted here has ended, with this status.
  void OnReadsDone(ReadChainId id, const absl::Status& status, absl::Time now);

  // Ends GETs of batches and scans whose deadline has come; all of them.
  void Expire(absl::Time now, const absl::Status& error);
  void EndAll(const absl::Status& error);
  absl::Time NextDeadline() const;

 private:
  size_t AnswerMapped(absl::Span<BatchedGet> gets, absl::Time deadline);
  GetOperation& OperationOf(const BatchCall& call, const BatchedGet& batched);
  void OnLanded(GetOperation& get, bool believe, absl::Time now);
  void OnPieceDone(uint32_t number, bool believe, absl::Time now);
  void BeginLookups(absl::Time now);
  void PostReads(absl::Time now);
  void PostReadsOfAll(absl::Time now);
  bool ReclaimBuffers();
  void PostValueReads(const ReadSource& source, absl::Time now);

  void Continue(const BatchCall& call, const BatchedGet& batched,
                std::unique_ptr<CachedLookup>& lookup, const CachedLookup::Step& step,
                absl::Time begun) override;
  void Restart(const BatchCall& call, const BatchedGet& batched) override;
  void Answered(size_t count) override;
  void Timed(absl::Time begun_at) override;
  index::ServerTimeBounds ClockSince(absl::Time posted) override;
  bool IsLate(absl::Time deadline) const override { return link_.IsLate(deadline); }

  ServerLink& link_;
  Operations& operations_;
  ReadBatches& batches_;
  ValueReads& value_reads_;
  ShmFastPath mapped_;
  GetBatches get_batches_;
  Scans scans_;
  std::array<BatchedGet, GetBatches::kGetsMax> starting_;  // within StartGets
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_READ_PIPELINE_H_
