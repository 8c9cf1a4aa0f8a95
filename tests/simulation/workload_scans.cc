// The scans of a simulation's clients, and the keys in their pages.

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "client/read/scans.h"
#include "tests/simulation/workload.h"

namespace osprey {

struct Workload::ScanUnderWay {
  SimulatedClient* client = nullptr;
  ScanHistory history;
  client::ScanPlace place;
  uint64_t limit = 0;
  bool values = false;
  int pages_left = 0;
};

void Workload::StartScan(SimulatedClient& client) {
  auto scan = std::make_shared<ScanUnderWay>();
  scan->client = &client;
  scan->history.call = world_.Tick();
  const bool at_once = Chance(70);
  scan->limit = at_once ? 1000 : 1 + Random(30);
  scan->values = Chance(at_once ? 20 : 50);
  scan->pages_left = 400;
  ++in_flight_;
  NextPage(std::move(scan));
}

void Workload::NextPage(std::shared_ptr<ScanUnderWay> scan) {
  client::Scans::Request request;
  request.from = scan->place;
  request.limit = scan->limit;
  request.values = scan->values;
  const int64_t call = world_.Tick();
  const int64_t deadline = world_.now() + 300'000'000;
  request.deadline = world_.ClientTime(*scan->client) + absl::Nanoseconds(deadline - call);
  request.done = [this, scan, call](absl::StatusOr<client::Scans::Found> found) {
    const int64_t returned = world_.Tick();
    Trace(static_cast<uint64_t>(returned));
    if (!found.ok()) {  // late; or the server was replaced
      --in_flight_;
      return;
    }
    for (const index::ScanEntry& entry : found->entries) {
      scan->history.keys.insert(entry.key);
      auto seen = std::make_shared<Operation>();
      const bool has_value = scan->values && entry.has_value;
      seen->kind = has_value ? Operation::Kind::kGet : Operation::Kind::kExists;
      seen->outcome = Operation::Outcome::kOk;
      seen->answer = has_value ? entry.value : "";
      seen->version = entry.version;
      seen->call = call;
      seen->returned = returned;
      seen->client = scan->client->number;
      histories_.keys[entry.key].push_back(std::move(seen));
    }
    scan->place = found->next;
    if (scan->place.at_end()) {
      ++report_.scans;
      scan->history.returned = returned;
      histories_.scans.push_back(scan->history);
      --in_flight_;
      return;
    }
    if (--scan->pages_left == 0) {
      --in_flight_;
      return Wrong("a scan does not come to its end");
    }
    NextPage(scan);
  };
  const absl::Status status = scan->client->engine->start().Scan(std::move(request));
  if (!status.ok()) NotStarted(status);
}

}  // namespace osprey
