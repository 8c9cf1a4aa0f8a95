// What happens to a simulation's workload: losses, evictions, the ends of clients, and stores between
// those of the server.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

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

void Workload::AllLost(int64_t from) {
  for (auto& [key, history] : histories_.keys) {
    auto lost = std::make_shared<Operation>();
    lost->kind = Operation::Kind::kLoss;
    lost->outcome = Operation::Outcome::kOk;
    lost->call = from - 1;
    lost->returned = world_.now();
    history.push_back(lost);
  }
}

void Workload::Evicting(absl::string_view key) {
  auto gone = std::make_shared<Operation>();
  gone->kind = Operation::Kind::kEvicted;
  gone->outcome = Operation::Outcome::kOk;
  gone->call = world_.Tick();
  histories_.keys[std::string(key)].push_back(gone);
  evicting_.push_back(std::move(gone));
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
