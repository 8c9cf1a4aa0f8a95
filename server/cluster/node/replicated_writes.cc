#include "server/cluster/node/replicated_writes.h"

#include <algorithm>
#include <cassert>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "rdma/reasons.h"
#include "server/cluster/replication/test_hooks.h"

namespace osprey::server {
namespace {

constexpr std::chrono::milliseconds kMeanwhile(10);

// Parts that are decided and not committed. What is behind them waits for them.
constexpr size_t kPartsAhead = 4;

}  // namespace

// A long value.
class ReplicatedWrites::Upload final : public PartedValue {
 public:
  Upload(ReplicatedWrites& writes, uint32_t partition, absl::string_view key, uint64_t bytes)
      : PartedValue(writes.part_lengths_.part),
        writes_(writes),
        partition_(partition),
        key_(key),
        bytes_(bytes) {}
  ~Upload() override { writes_.EndUpload(*this); }

  absl::Status Log(index::ByteSpan value, uint64_t arrived) override {
    if (arrived == bytes_ && !IsLogged()) writes_.AddPart(*this, value);
    return absl::OkStatus();
  }
  bool IsLogged() const override { return sent_ == bytes_; }
  bool IsBehind() const override { return is_whole_ && !IsLogged() && !writes_.MayAddPart(*this); }
  void GiveUp() override { writes_.EndUpload(*this); }

 private:
  friend class ReplicatedWrites;

  ReplicatedWrites& writes_;
  const uint32_t partition_;
  const std::string key_;
  const uint64_t bytes_;
  bool is_whole_ = false;
  uint64_t sent_ = 0;  // bytes of parts
};

absl::Status ReplicatedWrites::CommitWith(absl::FunctionRef<void()> meanwhile) {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t upto = decided_.load();
  const auto is_over = [&] { return !error_.ok() || committed_ >= upto; };
  if (is_over()) return error_;
  ++awaiting_;
  CommitDriver* const driver = driver_;
  lock.unlock();
  if (driver == nullptr) {
    wake_();
  } else {
    driver->Drive([&] {
      const std::lock_guard<std::mutex> driving(mutex_);
      return is_over();
    });
  }
  lock.lock();
  while (!changed_.wait_for(lock, kMeanwhile, is_over)) {
    lock.unlock();
    meanwhile();
    lock.lock();
  }
  --awaiting_;
  return error_;
}

void ReplicatedWrites::Decide(uint32_t, std::string body, uint64_t entries) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Add(std::move(body), entries);
}

// REQUIRES: mutex_ is held.
void ReplicatedWrites::Add(std::string body, uint64_t entries) {
  const uint64_t number = ++decided_;
  if (error_.ok()) {
    queue_.push_back({number, std::move(body), entries});
  } else {
    dropped_.push_back(std::move(body));  // its Commit fails
  }
}

// --- Values in parts -----------------------------------------------------------

absl::StatusOr<std::unique_ptr<ValueUpload>> ReplicatedWrites::BeginUpload(uint32_t partition,
                                                                           absl::string_view key,
                                                                           uint64_t value_bytes) {
  if (value_bytes <= part_lengths_.value) return nullptr;
  if (!takes_parts_) {
    return MakeError(
        Reason::kValueTooLong,
        absl::StrCat("a value of ", value_bytes, " bytes is longer than another server takes (",
                     part_lengths_.value,
                     "; the same release of Osprey on all servers raises it)"));
  }
  return std::make_unique<Upload>(*this, partition, key, value_bytes);
}

// REQUIRES: mutex_ is held.
bool ReplicatedWrites::IsNext(const Upload& upload) const {
  return !uploads_.empty() && uploads_.front() == &upload && parts_.size() < kPartsAhead;
}

bool ReplicatedWrites::MayAddPart(const Upload& upload) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !error_.ok() || IsNext(upload);
}

// Another part, if it may follow. Only this thread adds parts of the value.
void ReplicatedWrites::AddPart(Upload& upload, index::ByteSpan value) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!std::exchange(upload.is_whole_, true)) uploads_.push_back(&upload);
    if (error_.ok() && !IsNext(upload)) return;
  }
  std::string body =
      ValuePartBody(upload.partition_, upload.key_, value, upload.sent_, upload.part_bytes());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!error_.ok()) {
      upload.sent_ = upload.bytes_;  // its Commit fails
      return;
    }
    parts_.push_back(decided_.load() + 1);
    if (upload.sent_ == 0) units_.push_back({decided_.load() + 1});
    Add(std::move(body), 1);
    upload.sent_ = std::min(upload.sent_ + upload.part_bytes(), upload.bytes_);
  }
  wake_();
}

void ReplicatedWrites::EndUpload(Upload& upload) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::erase(uploads_, &upload) == 0) return;
    // The unit of one that was under way at the end of this server's time as the primary stays open.
    if (upload.sent_ == 0 || !error_.ok()) return;
    if (!upload.is_named()) Add(PartsDroppedBody(upload.partition_), 1);
    units_.back().last = decided_.load();
  }
  wake_();
}

uint64_t ReplicatedWrites::TakeWhole(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!units_.empty() && units_.front().last <= number) units_.pop_front();
  if (IsMistake(ReplicationMistake::kPartsCountAtOnce)) return number;
  return units_.empty() ? number : std::min(number, units_.front().first - 1);
}

// --- Sessions ------------------------------------------------------------------

void ReplicatedWrites::SessionBegun(uint64_t session) {
  DecideSession({wal::EntryKind::kSessionBegin, session});
}

void ReplicatedWrites::SessionEnded(uint64_t session) {
  DecideSession({wal::EntryKind::kSessionEnd, session});
}

// A session that began and ended while writes were refused leaves nothing. *Else* what clients leave has no
// bound.
void ReplicatedWrites::DecideSession(const SessionChange& change) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (refusal_.ok()) return Add(change);
  if (!error_.ok()) return;
  // (A session begins once, so only its end finds it here.)
  const size_t begun = std::erase_if(
      deferred_, [&](const SessionChange& other) { return other.session == change.session; });
  if (begun == 0) deferred_.push_back(change);
}

// --- The owner -----------------------------------------------------------------

void ReplicatedWrites::Begin(CommitDriver* driver) {
  const std::lock_guard<std::mutex> lock(mutex_);
  assert(queue_.empty() && deferred_.empty() && uploads_.empty());
  error_ = absl::OkStatus();
  driver_ = driver;
  committed_ = decided_.load();
  units_.clear();
}

void ReplicatedWrites::End(absl::Status why) {
  assert(!why.ok());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    error_ = std::move(why);
    for (Group& group : std::exchange(queue_, {})) dropped_.push_back(std::move(group.body));
    deferred_.clear();
    parts_.clear();
  }
  changed_.notify_all();
}

std::vector<ReplicatedWrites::Group> ReplicatedWrites::TakeDecided() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(queue_, {});
}

std::vector<std::string> ReplicatedWrites::TakeDropped() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(dropped_, {});
}

void ReplicatedWrites::NoteCommitted(uint64_t number) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    assert(number >= committed_);
    committed_ = number;
    while (!parts_.empty() && parts_.front() <= number) parts_.pop_front();
  }
  changed_.notify_all();
}

void ReplicatedWrites::RefuseWith(const absl::Status& why) {
  std::vector<SessionChange> deferred;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    refusal_ = why;
    // Before any write of theirs.
    if (why.ok()) deferred = std::exchange(deferred_, {});
    for (const SessionChange& change : deferred) Add(change);
  }
  if (!deferred.empty()) wake_();
  RefuseWrites(!why.ok());
}

absl::Status ReplicatedWrites::Refusal() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return refusal_;
}

}  // namespace osprey::server
