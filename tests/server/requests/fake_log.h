// A log in memory, for engines without a disk. It checks what a caller of PartitionChanges and
// WriteLog must do, and replays what was logged into a second table.
//
//   FakeLog log(/*awaits_sync=*/true, partitions);
//   ServerHarness server(log.Options());
//   log.on_commit = [&] { nothing may be visible yet };
//   log.Difference(server)      between the tables and the log: "" if there is none
//
// Thread rule: as for the interfaces; the members that a test sets are set before, or by on_commit.

#ifndef OSPREY_TESTS_SERVER_REQUESTS_FAKE_LOG_H_
#define OSPREY_TESTS_SERVER_REQUESTS_FAKE_LOG_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/requests/sessions.h"
#include "server/requests/write_log.h"
#include "tests/server/server_harness.h"

namespace osprey::server {

struct LoggedChange {
  enum class Kind { kPut, kExpire, kDelete, kEvict, kResult };
  Kind kind = Kind::kPut;
  std::string key;
  std::string value;
  uint64_t version = 0;    // kDelete, kEvict: of what was deleted
  uint64_t expiry_ns = 0;  // kPut, kExpire
  ClientWrite write;       // without a session: of none
  Result result;           // kResult
};

class FakeLog final : public WriteLog {
 public:
  FakeLog(bool awaits_sync, uint32_t partitions);
  ~FakeLog() override;

  // Of a server with this log.
  HarnessOptions Options();

  bool AwaitsSync() const override { return awaits_sync_; }
  // Whether writes are refused with RESOURCE_EXHAUSTED.
  void RefuseAll(bool refuse) { RefuseWrites(refuse); }
  absl::StatusOr<std::unique_ptr<ValueUpload>> BeginUpload(uint32_t, absl::string_view,
                                                           uint64_t value_bytes) override;
  absl::Status Commit() override;

  // Of values from here on BeginUpload returns an upload.
  static constexpr uint64_t kUploadBytesMin = 64 << 10;
  // An upload logs at most so many bytes a call.
  uint64_t upload_step_bytes = UINT64_MAX;
  // What uploads say of the disk.
  bool is_behind = false;
  // From now on no upload begins, or none goes on.
  absl::Status begin_error, upload_error;
  // Uploads that began and have not ended.
  int uploads() const { return uploads_; }
  // Bytes that they logged.
  uint64_t uploaded_bytes() const { return uploaded_bytes_; }

  absl::Status commit_error;
  // Called by a Commit that has changes to commit, but not within another one's call.
  std::function<void()> on_commit;

  // Keys with a write that is logged and not yet made. By the thread that uses the tables.
  size_t pending() const;
  // Commits that had changes to commit.
  int commits() const { return commits_; }
  std::vector<LoggedChange> changes() const;
  // Why the tables are not what a replay of the log makes; "" if they are. Expired keys count as
  // absent in both.
  std::string Difference(ServerHarness& server) const;
  // The last result of a write in the log. Its code is kUnknown if there is none.
  Result ResultOf(uint64_t session, uint64_t sequence) const;

 private:
  absl::Status Refusal() const override { return absl::ResourceExhaustedError("the disk is full"); }

  class Partition;
  class Upload;

  void Append(std::vector<LoggedChange> group);

  const bool awaits_sync_;
  const uint32_t partitions_count_;
  std::vector<std::unique_ptr<Partition>> partitions_;
  std::atomic<int> commits_{0};
  std::atomic<bool> in_commit_{false};
  std::atomic<int> uploads_{0};
  std::atomic<uint64_t> uploaded_bytes_{0};

  mutable std::mutex mutex_;
  std::vector<LoggedChange> log_;
  size_t committed_ = 0;  // of log_
};

}  // namespace osprey::server

#endif  // OSPREY_TESTS_SERVER_REQUESTS_FAKE_LOG_H_
