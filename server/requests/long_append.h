// APPEND to a long value. It is copied to a longer place piece by piece, a step in each turn, so
// that the server answers other clients meanwhile.
//
//   Step: Find ──> still the version of the start? ──no──> Reserve a longer place, start over
//                        | yes
//                        v
//                  copy, hash and log the next piece; all? ──> the appended bytes, Publish if the
//                                                              version is still the same
//
// No client sees it before it is published. It may be dropped at any time: no READ lands in its
// place. Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_REQUESTS_LONG_APPEND_H_
#define OSPREY_SERVER_REQUESTS_LONG_APPEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "index/writer/table.h"
#include "server/requests/keyed_request.h"
#include "server/requests/requests.h"
#include "server/requests/tables.h"
#include "server/requests/write_log.h"

namespace osprey::server {

// Bytes copied and hashed in one step: some 50 us.
inline constexpr uint64_t kAppendStepBytes = 256 << 10;
// The limit of restarts because the value was written meanwhile. To write a long value a client
// must send it, which takes longer than this copy, so the limit is not reached.
inline constexpr int kAppendAttemptsMax = 100;

class LongAppend {
 public:
  // Copies key and value. REQUIRES: an APPEND.
  explicit LongAppend(const KeyedRequest& request);
  LongAppend(const LongAppend&) = delete;
  LongAppend& operator=(const LongAppend&) = delete;

  // The answer, if this was the last step. Else the next one is due at retry_at().
  absl::optional<Answer> Step(TableAccess& tables, uint64_t value_bytes_max, absl::Time now);
  // In the past: in the next turn.
  absl::Time retry_at() const { return retry_at_; }

  // It will not be published.
  void GiveUp() {
    if (upload_ != nullptr) upload_->GiveUp();
  }

  uint64_t sequence() const { return request_.sequence; }

 private:
  absl::optional<Answer> Begin(TableAccess& tables, LockedTable& table,
                               const index::Table::View& present, absl::Time now);
  bool LogArrived(uint64_t bytes);
  Answer Refuse();
  absl::optional<Answer> Finish(TableAccess& tables, absl::Time now);

  const std::string key_;
  const std::string addition_;
  KeyedRequest request_;  // of these
  int attempts_ = 0;
  uint64_t version_ = 0;  // of the value under copy
  uint64_t copied_ = 0;   // bytes of it
  TableSpace space_;
  std::unique_ptr<ValueUpload>
      upload_;               // null: the value is logged when it is published, if at all
  absl::Status log_status_;  // of the log's last answer
  RoomAwaited room_awaited_;
  absl::Time retry_at_ = absl::InfinitePast();
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_REQUESTS_LONG_APPEND_H_
