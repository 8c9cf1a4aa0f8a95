// How a TableWorld compares its servers.

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/server/cluster/table/table_world.h"

namespace osprey::server {
namespace {

struct Content {
  std::string value;
  uint64_t version = 0;
  uint64_t expiry_ns = 0;
  bool operator==(const Content&) const = default;
};

std::map<std::string, Content> ContentsOf(Tables& tables, uint64_t now_ns) {
  std::map<std::string, Content> contents;
  for (uint32_t i = 0; i < tables.partitions(); ++i) {
    const LockedTable table = tables.Lock(i);
    uint64_t cursor = 0;
    do {
      cursor = table->Walk(cursor, 1 << 20, [&](const index::WalkedKey& key) {
        if (key.expiry_ns != 0 && key.expiry_ns <= now_ns) return;
        contents[std::string(key.key)] = {std::string(wal::TextOf(key.value)), key.version,
                                          key.expiry_ns};
      });
    } while (cursor != 0);
  }
  return contents;
}

std::string Describe(const Content& content) {
  return absl::StrCat("version ", content.version, ", expiry ", content.expiry_ns, ", ",
                      content.value.size(), " bytes");
}

}  // namespace

// All members apply all, and have what the primary has.
std::string TableWorld::CompareAll() {
  std::string wrong = Commit();
  if (wrong.empty()) wrong = Commit();  // what the first one has brought about
  for (size_t i = 0; i < nodes_.size() && wrong.empty(); ++i) {
    if (nodes_[i] == nullptr || i == primary_ || !nodes_[i]->in_sync) continue;
    while (!nodes_[i]->pending.empty()) ApplyNext(*nodes_[i]);
    wrong = Compare(*nodes_[i]);
    if (wrong.empty()) wrong = CompareSessions(*nodes_[i]);
    if (wrong.empty() && nodes_[i]->replica->version_floor() < answered_)
      wrong = "clients have seen a version above the floor";
    if (!wrong.empty()) wrong = absl::StrCat("server ", i, ": ", wrong);
  }
  return wrong;
}

std::string TableWorld::Compare(TableNode& node) {
  const uint64_t now_ns = primary().NowNs();
  const std::map<std::string, Content> wanted = ContentsOf(*primary().tables, now_ns);
  const std::map<std::string, Content> held = ContentsOf(*node.tables, now_ns);
  for (const auto& [key, content] : wanted) {
    const auto found = held.find(key);
    if (found == held.end() && node.replica->LacksAlone(key)) continue;
    if (found == held.end()) return absl::StrCat(key, " is missing");
    if (!(found->second == content))
      return absl::StrCat(key, " has ", Describe(found->second), "; the primary's has ",
                          Describe(content));
  }
  for (const auto& [key, content] : held) {
    if (!wanted.contains(key)) return absl::StrCat(key, " is not at the primary");
  }
  // Expired ones included.
  uint64_t lacking = 0;
  for (int i = 0; i < options_.keys; ++i) {
    for (const char* name : {"key", "counter"}) {
      const std::string key = absl::StrCat(name, i);
      const index::KeyHash hash = primary().tables->HashOf(key);
      const LockedTable table = primary().tables->Lock(primary().tables->PartitionOf(hash));
      lacking += node.replica->LacksAlone(key) && table->HeldVersion({key, hash}) != 0;
    }
  }
  const uint64_t keys = node.tables->stats().keys + lacking;
  const uint64_t wanted_keys = primary().tables->stats().keys;
  return keys == wanted_keys ? "" : absl::StrCat(keys, " keys instead of ", wanted_keys);
}

std::string TableWorld::CompareSessions(TableNode& node) const {
  std::map<uint64_t, std::map<uint64_t, Result>> held;
  for (const SessionImage& session : node.replica->Sessions())
    held[session.id].insert(session.results.begin(), session.results.end());
  for (const SessionImage& session : SessionsOfClients()) {
    const uint64_t highest = session.results.back().first;
    for (const auto& [sequence, result] : session.results) {
      if (highest >= kResultsKept && sequence <= highest - kResultsKept) continue;
      const auto found = held[session.id].find(sequence);
      const std::string name = absl::StrCat("write ", sequence, " of session ", session.id);
      if (found == held[session.id].end()) return absl::StrCat(name, " has no result");
      const Result& is = found->second;
      if (is.code != result.code || is.version != result.version ||
          is.has_number != result.has_number || is.number != result.number ||
          (result.value_length != 0 && is.value_length != result.value_length) ||
          (result.expiry != 0 && is.expiry != result.expiry))
        return absl::StrCat(name, " has another result: version ", is.version, ", not ",
                            result.version);
    }
  }
  return "";
}

// What the groups held was given back.
std::string TableWorld::CompareEmpty(TableNode& node) {
  while (node.in_sync && !node.pending.empty()) ApplyNext(node);
  if (!node.in_sync) return "";
  node.replica->BeginClear();
  while (!node.replica->ClearSome()) {
  }
  now_ += absl::Seconds(100);
  for (int i = 0; i < 200; ++i) node.Maintain();
  const index::TableStats stats = node.tables->stats();
  if (stats.keys != 0) return absl::StrCat(stats.keys, " keys are left");
  return stats.item_bytes == 0 ? "" : absl::StrCat(stats.item_bytes, " bytes of items are left");
}

}  // namespace osprey::server
