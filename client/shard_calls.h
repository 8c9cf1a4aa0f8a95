// Operations on all shards: one for each, started at once, and their answers together.
//
// Thread rule: the client's thread. Callbacks run inside Poll.

#ifndef OSPREY_CLIENT_SHARD_CALLS_H_
#define OSPREY_CLIENT_SHARD_CALLS_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/common/errors.h"
#include "client/engine/shard_engines.h"

namespace osprey::client {

// `start(engine, callback)` starts the operation of a shard, which can fail for lack of room alone.
// `done` receives the answers by shard. Errors: nothing was started.
template <typename T, typename Start>
absl::Status StartOnShards(ShardEngines& engines, Start start,
                           absl::AnyInvocable<void(std::vector<absl::StatusOr<T>>)> done) {
  struct Call {
    std::vector<absl::StatusOr<T>> answers;
    size_t awaited;
    absl::AnyInvocable<void(std::vector<absl::StatusOr<T>>)> done;
  };
  if (absl::Status status = engines.CheckRoom(); !status.ok()) return status;
  const size_t count = engines.count();
  const auto call =
      std::make_shared<Call>(Call{std::vector<absl::StatusOr<T>>(count), count, std::move(done)});
  for (uint32_t shard = 0; shard < count; ++shard) {
    const absl::Status status = start(engines.at(shard), [call, shard](absl::StatusOr<T> answer) {
      call->answers[shard] = std::move(answer);
      if (--call->awaited > 0) return;
      auto all_done = std::move(call->done);
      all_done(std::move(call->answers));
    });
    assert(status.ok());
    (void)status;
  }
  return absl::OkStatus();
}

// The first error, with its shard; OK: there is none.
template <typename T>
absl::Status ErrorOfShards(const std::vector<absl::StatusOr<T>>& answers) {
  for (size_t shard = 0; shard < answers.size(); ++shard) {
    if (!answers[shard].ok())
      return OfShard(answers[shard].status(), static_cast<uint32_t>(shard),
                     static_cast<uint32_t>(answers.size()));
  }
  return absl::OkStatus();
}

// The sum of all answers, or the first error.
absl::StatusOr<uint64_t> SumOf(const std::vector<absl::StatusOr<uint64_t>>& answers);

// Likewise, of a write: the error says if parts of other shards may be applied.
absl::StatusOr<uint64_t> SumOfWrites(const std::vector<absl::StatusOr<uint64_t>>& answers);

// As StartOnShards, with the sum of the answers. Of one shard: the answer as it is.
template <typename Start>
absl::Status SumOfShards(ShardEngines& engines, Start start, Client::WriteCallback done) {
  if (engines.count() == 1) return start(engines.first(), std::move(done));
  return StartOnShards<uint64_t>(
      engines, std::move(start),
      [done = std::move(done)](std::vector<absl::StatusOr<uint64_t>> answers) mutable {
        done(SumOf(answers));
      });
}

// The statistics of several servers (Client::ServerStats). REQUIRES: all are OK.
std::string StatsOfShards(const std::vector<absl::StatusOr<std::string>>& texts);

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_SHARD_CALLS_H_
