#include "server/cluster/right/serving_right.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "rdma/lease_time.h"

namespace osprey {

Transaction ServingRight::NextRequest() {
  assert(!lost_);
  const bool creates = create_revision_ == 0;
  if (!creates) ++options_.record.counter;
  Transaction request;
  request.compares = {creates ? StoreCompare::Absent(options_.key)
                              : StoreCompare::CreateRevision(options_.key, create_revision_)};
  request.operations = {StoreOperation::Put(options_.key, EncodeServerRecord(options_.record))};
  request.otherwise = {{options_.key}};
  return request;
}

std::optional<Transaction> ServingRight::Release() {
  assert(!lost_);
  lost_ = true;
  until_ = absl::InfinitePast();
  if (create_revision_ == 0) return std::nullopt;
  Transaction release;
  release.compares = {StoreCompare::CreateRevision(options_.key, create_revision_)};
  release.operations = {StoreOperation::Delete(options_.key)};
  return release;
}

absl::Status ServingRight::TakeAnswer(const TransactionResult& result, absl::Time sent) {
  switch (result.outcome) {
    case TransactionOutcome::kNotApplied:
    case TransactionOutcome::kUnknown:
      return absl::OkStatus();
    case TransactionOutcome::kRefused:
      return TakeRefusal(result);
    case TransactionOutcome::kApplied:
      break;
  }
  if (create_revision_ == 0) create_revision_ = result.header.revision;
  until_ = std::max(until_, sent + HeldFor(options_.ttl));
  return absl::OkStatus();
}

absl::Status ServingRight::TakeRefusal(const TransactionResult& result) {
  if (result.results.size() != 1 || result.results[0].keys.size() > 1)
    return absl::DataLossError("etcd answers a refused transaction without the key's state");
  const std::vector<StoredKey>& found = result.results[0].keys;
  if (create_revision_ != 0) {
    lost_ = true;
    until_ = absl::InfinitePast();
    return absl::AbortedError(absl::StrCat(
        options_.key, " is gone from etcd: other servers have taken over from this one"));
  }
  if (found.empty())
    return absl::DataLossError(
        absl::StrCat("etcd says both that ", options_.key, " exists and that it does not"));
  const absl::StatusOr<ServerRecord> record = DecodeServerRecord(found[0].value);
  if (!record.ok()) return record.status();
  if (record->incarnation != options_.record.incarnation)
    return absl::AlreadyExistsError(absl::StrCat(
        options_.key, " belongs to another server, or to this one before its restart"));
  // A creation without an answer. When it was sent is not known any more: the next renewal counts.
  create_revision_ = found[0].create_revision;
  return absl::OkStatus();
}

}  // namespace osprey
