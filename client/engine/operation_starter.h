// Starts the operations of the client's engine: checks their arguments and the limits, copies what
// must outlive the call, and puts them into the queue of their state (operations.h).
//
// Each method is as in client.h, with the deadline as a point in ClientEngine::Poll's time. Errors:
// nothing was started, and `done` is not called.

#ifndef OSPREY_CLIENT_ENGINE_OPERATION_STARTER_H_
#define OSPREY_CLIENT_ENGINE_OPERATION_STARTER_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/common/registered_memory.h"
#include "client/engine/message_operation.h"
#include "client/engine/operations.h"
#include "client/engine/server_link.h"
#include "client/read/get_trace.h"
#include "client/read/scans.h"

namespace osprey::client {

// Thread rule: as ClientEngine; its methods may also be called in callbacks.
class OperationStarter {
 public:
  // All must outlive this.
  OperationStarter(ServerLink& link, Operations& operations, Scans& scans);

  absl::Status Get(absl::string_view key, bool want_value, absl::Time deadline,
                   Client::GetCallback done);
  // `trace` outlives the operation's end.
  absl::Status TraceGet(absl::string_view key, GetTrace& trace, absl::Time deadline,
                        Client::GetCallback done);
  absl::Status Exists(absl::string_view key, absl::Time deadline, Client::ExistsCallback done);
  absl::Status Ttl(absl::string_view key, absl::Time deadline, Client::TtlCallback done);
  // The memory's owner must hold ClientEngine::exposer_link(). operations.h explains what lands there, and
  // when the operation is answered.
  absl::Status GetInto(absl::string_view key, UserMemory target, absl::Time deadline,
                       Client::GetIntoCallback done);
  absl::Status PutFrom(absl::string_view key, UserMemory source, const WriteOptions& options,
                       absl::Time deadline, Client::WriteCallback done);
  absl::Status Put(absl::string_view key, absl::string_view value, const WriteOptions& options,
                   absl::Time deadline, Client::WriteCallback done);
  absl::Status Delete(absl::string_view key, const WriteOptions& options, absl::Time deadline,
                      Client::WriteCallback done);
  absl::Status Increment(absl::string_view key, int64_t by, const WriteOptions& options,
                         absl::Time deadline, Client::IncrementCallback done);
  absl::Status Append(absl::string_view key, absl::string_view value, const WriteOptions& options,
                      absl::Time deadline, Client::WriteCallback done);
  // `ttl` InfiniteDuration: it lives until it is deleted.
  absl::Status Expire(absl::string_view key, absl::Duration ttl, const WriteOptions& options,
                      absl::Time deadline, Client::WriteCallback done);
  absl::Status Touch(absl::string_view key, absl::Time deadline, Client::WriteCallback done);
  absl::Status Flush(absl::Time deadline, Client::WriteCallback done);
  // Ends at its deadline with the results so far, if any (client/read/scans.h).
  absl::Status Scan(Scans::Request request);
  // One READ of the region's first `bytes`: 1 to Client::kMeasureBytesMax.
  absl::Status Measure(uint32_t bytes, absl::Time deadline, Client::GetCallback done);
  absl::Status Ping(absl::Time deadline, Client::WriteCallback done);
  absl::Status Stats(absl::Time deadline, MessageOperation::TextCallback done);
  // Calls `done` in the next Poll, like an operation that has ended at once.
  void Defer(absl::AnyInvocable<void()> done) { operations_.Defer(std::move(done)); }

  // OK if an operation may be started now, otherwise CANCELLED or RESOURCE_EXHAUSTED.
  absl::Status CheckRoom() const;
  // How many may be started now.
  size_t Room() const;
  // Applies from now on; operations in flight above it stay.
  void set_operations_max(int operations) { operations_max_ = operations; }
  // From now on nothing can be started.
  void Close() { closed_ = true; }
  bool closed() const { return closed_; }

 private:
  absl::Status CheckKey(absl::string_view key) const;
  absl::Status CheckPut(absl::string_view key, uint64_t value_length,
                        const WriteOptions& options) const;
  absl::Status CheckChange(absl::string_view key, const WriteOptions& options) const;
  template <typename... Arguments>
  absl::Status StartGet(absl::string_view key, Arguments&&... arguments);
  absl::Status Start(MessageOperation::Request request);
  absl::Status Start(MessageOperation& message, MessageOperation::Request request);

  ServerLink& link_;
  Operations& operations_;
  Scans& scans_;
  int operations_max_;
  bool closed_ = false;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_OPERATION_STARTER_H_
