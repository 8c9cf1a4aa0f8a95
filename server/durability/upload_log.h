// Long values that are on their way into the tables, and their pieces in the log.
//
//   Begin ──> disk space for the pieces, and for the value in the next checkpoint
//     Log ──> a piece: appended and written at once, from the table's memory
//     …       OnPut: the entry names the pieces (ChangeLog)
//   end   ──> what is left of the space goes back
//
// A checkpoint keeps the log from the first piece of the oldest of these values. While much of the
// log is newer than that piece, a value that has not arrived yet gives its pieces up: it is logged
// again once it is whole. So a slow client does not keep the log from becoming shorter.
//
// Uploads do not run ahead of the disk, so that the syncs that other writes wait for stay short.
//
// Thread rule: all methods of UploadLog may run on any threads, but Start. An upload: one thread.

#ifndef OSPREY_SERVER_DURABILITY_UPLOAD_LOG_H_
#define OSPREY_SERVER_DURABILITY_UPLOAD_LOG_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "index/layout/layout.h"
#include "index/layout/long_hash.h"
#include "server/requests/write_log.h"
#include "server/wal/format/entries.h"
#include "server/wal/log.h"
#include "server/wal/sync_thread.h"

namespace osprey::server {

class UploadLog {
 public:
  // Uploads wait while this much of their pieces is not synced, in MiB. A disk that writes 300 MB/s
  // syncs that in 60 ms. At half of it a sync begins.
  static constexpr uint64_t kAheadMibMax = 16;

  // A value gives its pieces up when the log has grown by `postponed_after` bytes since the first of
  // them. `failed` is called with the error of a write, which ends the server.
  UploadLog(uint64_t postponed_after, std::function<void(absl::Status)> failed)
      : postponed_after_(postponed_after), failed_(std::move(failed)) {}
  // Both outlive this. Before the first upload. No thread: there is no upload of kAheadMibMax.
  void Start(wal::Log& log, wal::SyncThread* sync_thread) {
    log_ = &log;
    sync_thread_ = sync_thread;
  }

  // As WriteLog::BeginUpload. This outlives the upload.
  absl::StatusOr<std::unique_ptr<ValueUpload>> Begin(uint64_t value_bytes);

  // The first piece of the values on their way, or an earlier record; UINT64_MAX: there is none. A
  // checkpoint that reads it after Log::appended() misses none.
  uint64_t oldest_incomplete() const;
  // Whether a value did not fit on the disk, since the last call.
  bool TakeRefused() { return refused_.exchange(false); }

 private:
  friend class LoggedUpload;
  using Records = std::multiset<uint64_t>;

  Records::iterator Register(uint64_t first_record);
  void Unregister(Records::iterator place);
  absl::StatusOr<uint64_t> AppendPiece(wal::Bytes piece);
  void NotePiece(uint64_t record, uint64_t bytes);
  bool IsUnsynced(uint64_t mib_ago) const;
  absl::Status Failed(absl::Status status);

  const uint64_t postponed_after_;
  const std::function<void(absl::Status)> failed_;
  wal::Log* log_ = nullptr;
  wal::SyncThread* sync_thread_ = nullptr;
  mutable std::mutex mutex_;
  Records first_records_;  // of the values on their way that have pieces
  std::atomic<bool> refused_{false};
  std::atomic<uint64_t> bytes_{0};  // of all pieces
  // The last record of each of the last MiB of pieces, by their number modulo.
  std::array<std::atomic<uint64_t>, kAheadMibMax> records_{};
};

class LoggedUpload final : public ValueUpload {
 public:
  // So many bytes of disk space are reserved for it.
  LoggedUpload(UploadLog& owner, uint64_t reserved);
  ~LoggedUpload() override;
  LoggedUpload(const LoggedUpload&) = delete;
  LoggedUpload& operator=(const LoggedUpload&) = delete;

  absl::Status Log(index::ByteSpan value, uint64_t arrived) override;
  bool IsLogged() const override { return is_logged_; }
  bool IsBehind() const override;
  // Sets value length, checksum and pieces. REQUIRES: IsLogged().
  void NameIn(wal::Entry& entry) const;

 private:
  absl::Status Postpone();
  absl::Status LogPiece(wal::Bytes piece);

  UploadLog& owner_;
  uint64_t reserved_;
  uint64_t logged_ = 0;  // bytes of the value
  bool is_logged_ = false;
  bool postponed_ = false;  // until all of it is there
  std::vector<wal::PieceRef> pieces_;
  std::unique_ptr<index::BytesHasher> hasher_;  // of what is logged
  std::optional<UploadLog::Records::iterator> place_;
  uint64_t log_bytes_before_ = 0;  // Log::bytes_written() before its first piece
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_UPLOAD_LOG_H_
