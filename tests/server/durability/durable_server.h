// Tables with a log and checkpoints, on any file system: a server without requests. Each change is
// appended to the log as the table reports it, and kept in a model.
//
//   DurableServer server(files, options);
//   server.Start();                        recovers, and begins the log
//   server.Put("key", "value") …
//   server.Checkpoint();
//   server.Stop();                         Start again: the next life
//   server.Difference()                    between the model and the tables: "" if there is none
//
// Thread rule: Put, Delete and Expire may run on any threads; all else on one.

#ifndef OSPREY_TESTS_SERVER_DURABILITY_DURABLE_SERVER_H_
#define OSPREY_TESTS_SERVER_DURABILITY_DURABLE_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/durability/checkpoint.h"
#include "server/durability/recovery.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"
#include "server/requests/write_log.h"
#include "server/wal/format/entries.h"
#include "server/wal/log.h"
#include "tests/index/index_test_util.h"

namespace osprey::server {

struct ServerOptions {
  uint64_t memory_bytes = 16 << 20;
  uint32_t partitions = 4;
  bool evict = false;
  uint32_t threads = 1;  // of recovery
  uint64_t segment_bytes = 1 << 20;
  uint64_t spare_bytes = wal::LogOptions().spare_bytes;
};

// The client whose write follows. 0: none.
struct Asker {
  uint64_t client = 0;
  uint64_t sequence = 0;
  std::optional<wal::EntryResult> result;
  bool has_number = false;
};

class DurableServer final : private PartitionChanges {
 public:
  DurableServer(wal::FileSystem& files, const ServerOptions& options)
      : files_(files), options_(options) {}
  ~DurableServer() override { Stop(); }

  // Recovers into new tables. The model stays as it is, for comparison.
  absl::Status Start();
  void Stop();
  void set_memory(uint64_t bytes) { options_.memory_bytes = bytes; }

  absl::Status Put(absl::string_view key, absl::string_view value, absl::Duration ttl = {},
                   const Asker& asker = {});
  absl::Status Delete(absl::string_view key, const Asker& asker = {});
  absl::Status Expire(absl::string_view key, absl::Duration ttl, const Asker& asker = {});
  // A step of a flush from the beginning on.
  void Flush(uint64_t keys_max, const Asker& asker);
  void BeginSession(uint64_t client);
  void EndSession(uint64_t client);
  // Growth, sweeps and what else a server does between requests: some steps.
  void RunMaintenance();
  void Advance(absl::Duration time) { now_ns_ += absl::ToInt64Nanoseconds(time); }

  // Appends the pieces of a value ahead of its Put, as a long value's bytes arrive.
  void AppendPieces(absl::string_view value);

  // Runs `between` between steps. `redo_shift` is added to the redo record: a mistake.
  absl::StatusOr<CheckpointSize> Checkpoint(const std::function<void()>& between = {},
                                            uint64_t redo_shift = 0,
                                            const std::atomic<bool>* stop = nullptr);

  std::string Difference();
  uint64_t live_keys() const;

  // The first record that a checkpoint from now on needs; 0: the next one.
  uint64_t redo_record = 0;
  // Of recovery; as RecoveryOptions has them.
  std::function<void(const RecoveryProgress&)> progress;
  std::function<void(absl::string_view)> loading_log;
  std::atomic<bool> stop_loading{false};

  wal::Log& log() { return *log_; }
  wal::DataDirectory& directory() { return *directory_; }
  Tables& tables() { return *tables_; }
  absl::Span<const std::byte> region() const { return memory_->span(); }
  const Recovered& recovered() const { return recovered_; }
  wal::FileSystem& files() { return files_; }

 private:
  struct Value {
    std::string value;
    uint64_t version = 0;
    uint64_t expiry_ns = 0;
  };

  void OnPut(absl::string_view key, index::ByteSpan value, uint64_t version,
             uint64_t expiry_ns) override;
  void OnExpire(absl::string_view key, uint64_t version, uint64_t expiry_ns) override;
  void OnDelete(absl::string_view key, uint64_t version, uint64_t) override;
  void OnEvict(absl::string_view key, uint64_t version) override {
    OnDelete(key, version, version);
  }

  void SetWrite(const ClientWrite*) override {}
  void SetUpload(const ValueUpload*) override {}
  void OnResult(const Result&) override {}
  void OnRelease() override {}
  void BeginPending(uint64_t) override {}
  void ContinuePending(uint64_t) override {}
  bool IsPending(uint64_t) const override { return false; }
  void EndPending(uint64_t) override {}
  void DropPending() override {}

  absl::Time Now() const { return absl::FromUnixNanos(now_ns_); }
  void Append(wal::Entry entry);
  std::vector<wal::PieceRef> AppendPiecesOf(wal::Bytes value);
  void Remember(const wal::Entry& entry);
  std::string SessionDifference() const;

  wal::FileSystem& files_;
  ServerOptions options_;
  std::atomic<uint64_t> draws_{0};
  std::atomic<int64_t> now_ns_{1'700'000'000'000'000'000};
  std::atomic<bool> loading_{false};
  uint64_t cas_version_ = 1000;

  std::unique_ptr<index::RegionMemory> memory_;
  std::unique_ptr<Tables> tables_;
  std::unique_ptr<wal::DataDirectory> directory_;
  std::unique_ptr<wal::Log> log_;
  Recovered recovered_;

  mutable std::mutex mutex_;  // of the model
  std::map<std::string, Value> model_;
  std::map<uint64_t, SessionImage> sessions_;
  Asker asker_;  // one thread only, if it has a client
  std::vector<wal::PieceRef> pieces_;
};

}  // namespace osprey::server

#endif  // OSPREY_TESTS_SERVER_DURABILITY_DURABLE_SERVER_H_
