// What happens to a simulation's workload: losses, evictions, the ends of clients, and stores between
// those of the server.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/reasons.h"
#include "tests/simulation/workload.h"

namespace osprey {

void Workload::ClientEnded(SimulatedClient& client) {
  HadTurn(client);
  for (const SimulatedClient::Buffer& buffer : client.buffers) {
    if (buffer.busy) Wrong("a client has closed, and an operation has not ended");
    const std::byte* const data = buffer.memory->memory->data();
    if (std::any_of(data, data + kBufferBytes, [](std::byte b) { return b != kIdle; }))
      Wrong("something landed in memory that no operation used");
  }
  client.buffers.clear();
  for (auto it = versions_.begin(); it != versions_.end();)
    it = it->first.first == client.number ? versions_.erase(it) : std::next(it);
}

// It has ended now.
Workload::OperationPointer Workload::NoteEvent(const std::string& key, Operation::Kind kind,
                                               int64_t call) {
  auto event = std::make_shared<Operation>();
  event->kind = kind;
  event->outcome = Operation::Outcome::kOk;
  event->call = call;
  event->returned = world_.now();
  histories_.keys[key].push_back(event);
  return event;
}

void Workload::AllLost(int64_t from) {
  for (const auto& [key, history] : histories_.keys)
    NoteEvent(key, Operation::Kind::kLoss, from - 1);
}

void Workload::Restarted(int64_t from) {
  for (const auto& [key, history] : histories_.keys)
    NoteEvent(key, Operation::Kind::kRestart, from - 1);
}

// A client may repeat a write whose first effect a reader saw, and the server lost. Hence each lost
// change is a write of its own, which may have had its instant.
void Workload::Restored(int64_t from, const std::string& key, const LostKey& lost,
                        uint64_t server_time_ns) {
  const int64_t server_ahead = static_cast<int64_t>(server_time_ns) - world_.now();
  const auto set_expiry = [&](Operation& op, uint64_t expiry_ns) {
    if (expiry_ns == 0) return;
    op.ttl = std::max<int64_t>(static_cast<int64_t>(expiry_ns) - server_ahead - op.call, 1);
    op.ttl_slack = kTtlSlack;
  };
  for (const ReportedChange& change : lost.changes) {
    Operation::Kind kind = Operation::Kind::kPut;
    if (change.kind == ReportedChange::Kind::kDelete) kind = Operation::Kind::kDelete;
    if (change.kind == ReportedChange::Kind::kExpire)
      kind = change.expiry_ns == 0 ? Operation::Kind::kPersist : Operation::Kind::kExpire;
    const OperationPointer seen = NoteEvent(key, kind, change.at);
    seen->outcome = Operation::Outcome::kUnknown;
    seen->returned = change.at;
    seen->value = change.value;
    if (kind != Operation::Kind::kDelete) set_expiry(*seen, change.expiry_ns);
  }
  NoteEvent(key, Operation::Kind::kLoss, from - 1);
  if (!lost.is_present) return;
  if (lost.expiry_ns != 0 && lost.expiry_ns <= server_time_ns) return;
  const OperationPointer put = NoteEvent(key, Operation::Kind::kPut, world_.Tick());
  put->value = lost.value;
  put->returned = world_.Tick();
  set_expiry(*put, lost.expiry_ns);
}

void Workload::LostUnanswered(const ReportedChange& change) {
  if (change.kind != ReportedChange::Kind::kPut) return;
  for (const OperationPointer& op : histories_.keys[change.key]) {
    if (op->outcome != Operation::Outcome::kOk || !StoresValue(op->kind)) continue;
    if (op->version == change.version)
      Wrong(absl::StrCat("key '", change.key, "': lost, and it was answered: ", op->ToString()));
  }
}

void Workload::Evicting(absl::string_view key) {
  const OperationPointer gone =
      NoteEvent(std::string(key), Operation::Kind::kEvicted, world_.Tick());
  gone->returned = Operation::kNever;
  evicting_.push_back(gone);
}

void Workload::EvictionsUndone() {
  for (const OperationPointer& gone : evicting_) gone->outcome = Operation::Outcome::kUnapplied;
  ServerTurnEnded();
}

// Whether some write of this history may have had its instant after `from`.
bool Workload::IsWrittenSince(const std::vector<OperationPointer>& history, int64_t from) {
  return std::any_of(history.begin(), history.end(), [&](const OperationPointer& op) {
    const bool may_happen =
        op->outcome == Operation::Outcome::kOk || op->outcome == Operation::Outcome::kUnknown;
    return StoresValue(op->kind) && may_happen &&
           (op->returned > from || op->outcome == Operation::Outcome::kUnknown);
  });
}

// A deletion of each key. What is written meanwhile may stay.
void Workload::StartFlush(SimulatedClient& client) {
  std::vector<OperationPointer> deletions;
  const int64_t call = world_.Tick();
  for (const std::string& key : plan_.keys) {
    deletions.push_back(NoteEvent(key, Operation::Kind::kDelete, call));
    deletions.back()->outcome = Operation::Outcome::kUnknown;
    deletions.back()->returned = Operation::kNever;
    deletions.back()->client = client.number;
  }
  const int64_t deadline = world_.now() + 1'000'000'000;
  const absl::Time until = world_.ClientTime(client) + absl::Nanoseconds(deadline - call);
  ++in_flight_;
  const absl::Status status = client.engine->start().Flush(
      until, [this, deletions, call](const absl::StatusOr<uint64_t>& deleted) {
        --in_flight_;
        ++report_.operations;
        const int64_t returned = world_.Tick();
        Trace(static_cast<uint64_t>(returned));
        report_.flushes += deleted.ok();
        for (size_t i = 0; i < deletions.size(); ++i) {
          const OperationPointer& deletion = deletions[i];
          deletion->returned = returned;
          if (deleted.ok() && IsWrittenSince(histories_.keys[plan_.keys[i]], call)) continue;
          if (deleted.ok()) {
            deletion->kind = Operation::Kind::kEvicted;  // present or not
            deletion->outcome = Operation::Outcome::kOk;
          } else if (!MayBeApplied(deleted.status())) {
            deletion->outcome = Operation::Outcome::kUnapplied;
          } else {
            ++report_.unknown;
          }
        }
      });
  if (status.ok()) return;
  for (const OperationPointer& deletion : deletions)
    deletion->outcome = Operation::Outcome::kUnapplied;
  NotStarted(status);
}

void Workload::ServerTurnEnded() {
  for (const OperationPointer& gone : evicting_) gone->returned = world_.Tick();
  evicting_.clear();
}

void Workload::BetweenCopyAndPublish(index::Table& table) {
  // An insertion: an assertion forbids writing over an item to which the new lines lead.
  std::string key;
  for (int i = 0; i < 20 && (key.empty() || table.Find(key).ok()); ++i) key = ChooseKey();
  if (table.Find(key).ok()) return;
  auto operation = std::make_shared<Operation>();
  operation->kind = Operation::Kind::kPut;
  operation->client = 99;
  operation->value = NewValue();
  operation->call = world_.Tick();
  const std::string& value = operation->value;
  const index::WriteResult result =
      table.Put(key, {reinterpret_cast<const std::byte*>(value.data()), value.size()}, {},
                world_.ServerTime());
  operation->returned = world_.Tick();
  operation->outcome =
      result.status.ok() ? Operation::Outcome::kOk : Operation::Outcome::kUnapplied;
  operation->version = result.version;
  histories_.keys[key].push_back(std::move(operation));
}

}  // namespace osprey
