// A log on the simulated disk, for tests that say step by step what happens.

#ifndef OSPREY_TESTS_SERVER_WAL_WAL_FIXTURE_H_
#define OSPREY_TESTS_SERVER_WAL_WAL_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/wal/format/checksum.h"
#include "server/wal/log.h"
#include "server/wal/replay.h"
#include "tests/server/wal/sim_disk.h"

namespace osprey::server::wal {

// Keeps what a replay brings.
class KeepingVisitor final : public ReplayVisitor {
 public:
  struct Put {
    uint64_t record = 0;
    std::string key;
    std::string value;
    std::vector<PiecePlace> pieces;
    Entry entry;  // its texts are gone
  };

  absl::Status OnGroup(const LogRecord& record, const Group& group,
                       const std::vector<std::vector<PiecePlace>>& pieces) override {
    for (size_t i = 0; i < group.entries.size(); ++i) {
      const Entry& entry = group.entries[i];
      puts.push_back({record.header.number, std::string(entry.key),
                      std::string(TextOf(entry.value)), pieces[i], entry});
    }
    return absl::OkStatus();
  }

  std::vector<Put> puts;
};

class WalFixture : public ::testing::Test {
 protected:
  WalFixture() : disk_(1) {
    options_.segment_bytes = 16 << 10;
    options_.spare_bytes = 0;
  }

  // Recovers, and starts the log.
  absl::Status Open() {
    Close();
    absl::StatusOr<std::unique_ptr<DataDirectory>> directory =
        DataDirectory::Open(disk_, NewDirectory(), [this] { return ++draws_ * 0x9e3779b9 | 1; });
    if (!directory.ok()) return directory.status();
    directory_ = *std::move(directory);
    visitor_.puts.clear();
    absl::StatusOr<LogEnd> end = Replay(*directory_, visitor_);
    if (!end.ok()) return end.status();
    end_ = *std::move(end);
    absl::StatusOr<std::unique_ptr<Log>> log = StartLog(*directory_, end_, options_);
    if (!log.ok()) return log.status();
    log_ = *std::move(log);
    return absl::OkStatus();
  }
  void Close() {
    log_.reset();
    directory_.reset();
  }

  absl::StatusOr<uint64_t> Append(const std::string& key, const std::string& value) {
    GroupBuilder group((GroupHeader()));
    Entry entry;
    entry.key = key;
    entry.value = BytesOfText(value);
    entry.value_length = value.size();
    if (value.size() > kShortValueBytesMax) entry.value_checksum = Checksum(entry.value, 0);
    group.Add(entry);
    return log_->Append({{RecordKind::kEntries, group.Parts()}});
  }
  // Appended, written and synced.
  void Put(const std::string& key, const std::string& value) {
    ASSERT_TRUE(Append(key, value).ok());
    ASSERT_TRUE(log_->Write().ok());
    ASSERT_TRUE(log_->Sync().ok());
  }
  std::string Keys() const {
    std::string keys;
    for (const KeepingVisitor::Put& put : visitor_.puts) absl::StrAppend(&keys, put.key, " ");
    return keys;
  }

  uint64_t draws_ = 0;
  SimDisk disk_;
  LogOptions options_;
  KeepingVisitor visitor_;
  LogEnd end_;
  std::unique_ptr<DataDirectory> directory_;
  std::unique_ptr<Log> log_;
};

}  // namespace osprey::server::wal

#endif  // OSPREY_TESTS_SERVER_WAL_WAL_FIXTURE_H_
