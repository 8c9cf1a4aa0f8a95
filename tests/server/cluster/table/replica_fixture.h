// One replica of one partition, whose groups the test makes.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_TABLE_REPLICA_FIXTURE_H_
#define OSPREY_TESTS_SERVER_CLUSTER_TABLE_REPLICA_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/cluster/table/copy_chunk.h"
#include "server/cluster/table/table_replica.h"
#include "server/wal/format/entries.h"
#include "tests/index/index_test_util.h"
#include "xxhash.h"

namespace osprey::server {

using wal::EntryKind;

// About: an expiry is a multiple of 64 Ki ns.
inline constexpr uint64_t kSecondNs = 15259 << 16;

// Of chunks.
inline constexpr uint64_t kMarkNs = 7000000001;

inline constexpr uint64_t kLastVersion = (uint64_t{1} << 47) + 1000;

inline wal::Entry PutOf(absl::string_view key, absl::string_view value, uint64_t version,
                        uint64_t expiry_ns = 0) {
  wal::Entry entry;
  entry.kind = EntryKind::kPut;
  entry.key = key;
  entry.value = wal::BytesOfText(value);
  entry.value_length = value.size();
  if (value.size() > wal::kShortValueBytesMax)
    entry.value_checksum = XXH3_64bits(value.data(), value.size());
  entry.version = version;
  entry.expiry = expiry_ns;
  return entry;
}

inline wal::Entry KeyOf(EntryKind kind, absl::string_view key, uint64_t version,
                        uint64_t expiry_ns = 0) {
  wal::Entry entry;
  entry.kind = kind;
  entry.key = key;
  entry.version = version;
  entry.expiry = expiry_ns;
  return entry;
}

inline wal::Entry SessionOf(EntryKind kind, uint64_t session) {
  wal::Entry entry;
  entry.kind = kind;
  entry.client = session;
  return entry;
}

inline std::string BodyOf(const std::vector<wal::Entry>& entries, uint32_t partition = 0) {
  wal::GroupHeader header;
  header.shard = partition;
  wal::GroupBuilder group(header);
  for (const wal::Entry& entry : entries) group.Add(entry);
  std::string body;
  for (const wal::BodyPart& part : group.Parts()) absl::StrAppend(&body, wal::TextOf(part.bytes));
  return body;
}

struct ReplicaFixture {
  explicit ReplicaFixture(uint64_t memory_bytes = 4 << 20, bool evict = false)
      : memory(memory_bytes) {
    index::TableOptions options;
    options.incarnation = 5;
    options.hash_seed = 6;
    options.evict = evict;
    options.clock = [this] { return now; };
    tables = *Tables::Create(memory.span(), 1, options);
    replica.emplace(*tables, 7);
    replica->BeginBackup();
  }

  ReplicatedGroup Group(std::string body, uint64_t entries) {
    ReplicatedGroup group;
    group.first_lsn = last + 1;
    group.last_lsn = last + entries;
    group.term = 1;
    group.body = std::make_shared<const std::string>(std::move(body));
    return group;
  }
  absl::Status Reserve(const std::vector<wal::Entry>& entries) {
    ReplicatedGroup group = Group(BodyOf(entries), entries.size());
    absl::Status status = replica->Reserve(group);
    if (!status.ok()) return status;
    last = group.last_lsn;
    groups.push_back(std::move(group));
    return status;
  }
  void Apply() {
    replica->Apply(groups.front());
    groups.erase(groups.begin());
  }
  void Release() {
    replica->Release(groups.back());
    last = groups.back().first_lsn - 1;
    groups.pop_back();
  }
  void Make(const std::vector<wal::Entry>& entries) {
    ASSERT_EQ(Reserve(entries), absl::OkStatus());
    Apply();
  }
  std::string ValueOf(absl::string_view key) {
    const LockedTable table = tables->Lock(0);
    const absl::StatusOr<index::Table::View> view = table->Find(key);
    if (!view.ok()) return "absent";
    return absl::StrCat(wal::TextOf(view->value), " ", view->version, " ", view->expiry_ns);
  }

  index::RegionMemory memory;
  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  std::unique_ptr<Tables> tables;
  std::optional<TableReplica> replica;
  std::vector<ReplicatedGroup> groups;
  uint64_t last = 0;
};

inline std::string ChunkOf(const std::vector<CopiedItem>& items,
                           const std::vector<SessionImage>& sessions, bool is_last) {
  ChunkBuilder chunk;
  for (const CopiedItem& item : items) chunk.AddItem(item);
  for (const SessionImage& session : sessions) chunk.AddSession(session);
  return chunk.Finish(is_last, kLastVersion, kMarkNs);
}

inline CopiedItem ItemOf(absl::string_view key, absl::string_view value, uint64_t version,
                         uint64_t expiry_ns = 0) {
  return {key, wal::BytesOfText(value), version, expiry_ns};
}

}  // namespace osprey::server

#endif  // OSPREY_TESTS_SERVER_CLUSTER_TABLE_REPLICA_FIXTURE_H_
