#include "tests/server/requests/fake_log.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/hash.h"
#include "index/layout/partitions.h"
#include "tests/index/index_test_util.h"

namespace osprey::server {
namespace {

std::string TextOf(index::ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The result that a change implies, as a log derives it.
Result ImpliedResult(const LoggedChange& change) {
  Result result;
  result.code = absl::StatusCode::kOk;
  result.version = change.version;
  return result;
}

// What a table has, expired keys left out.
struct Content {
  std::string value;
  uint64_t version = 0;
  uint64_t expiry_ns = 0;
  bool operator==(const Content& other) const {
    return value == other.value && version == other.version && expiry_ns == other.expiry_ns;
  }
};
using Contents = std::map<std::string, Content>;

void AddContents(const index::Table& table, uint64_t now_ns, Contents& contents) {
  uint64_t cursor = 0;
  do {
    cursor = table.Walk(cursor, 1 << 20, [&](const index::WalkedKey& key) {
      if (key.expiry_ns != 0 && key.expiry_ns <= now_ns) return;
      contents[std::string(key.key)] = {TextOf(key.value), key.version, key.expiry_ns};
    });
  } while (cursor != 0);
}

}  // namespace

// Keeps what it logged, so that a value that moves or changes meanwhile is noticed.
class FakeLog::Upload final : public ValueUpload {
 public:
  Upload(FakeLog& log, uint64_t bytes) : log_(log), bytes_(bytes) { ++log_.uploads_; }
  ~Upload() override { --log_.uploads_; }

  absl::Status Log(index::ByteSpan value, uint64_t arrived) override {
    EXPECT_EQ(value.size(), bytes_);
    EXPECT_GE(arrived, logged_.size());
    EXPECT_TRUE(failed_.ok()) << "it goes on after an error";
    failed_ = log_.upload_error;
    if (!failed_.ok()) return failed_;
    const uint64_t bytes = std::min(arrived - logged_.size(), log_.upload_step_bytes);
    logged_ += TextOf(value.subspan(logged_.size(), bytes));
    log_.uploaded_bytes_ += bytes;
    return absl::OkStatus();
  }
  bool IsLogged() const override { return logged_.size() == bytes_; }
  bool IsBehind() const override { return log_.is_behind; }
  const std::string& logged() const { return logged_; }

 private:
  FakeLog& log_;
  const uint64_t bytes_;
  std::string logged_;
  absl::Status failed_;
};

class FakeLog::Partition final : public PartitionChanges {
 public:
  explicit Partition(FakeLog& log) : log_(log) {}

  void SetWrite(const ClientWrite* write) override { write_ = write; }
  void SetUpload(const ValueUpload* upload) override {
    upload_ = static_cast<const Upload*>(upload);
  }
  void OnPut(absl::string_view key, index::ByteSpan value, uint64_t version,
             uint64_t expiry_ns) override {
    if (upload_ != nullptr) {
      EXPECT_EQ(upload_->logged(), TextOf(value)) << key;
    }
    Add({LoggedChange::Kind::kPut, std::string(key), TextOf(value), version, expiry_ns, {}, {}});
  }
  void OnExpire(absl::string_view key, uint64_t version, uint64_t expiry_ns) override {
    Add({LoggedChange::Kind::kExpire, std::string(key), "", version, expiry_ns, {}, {}});
  }
  void OnDelete(absl::string_view key, uint64_t version, uint64_t) override {
    Add({LoggedChange::Kind::kDelete, std::string(key), "", version, 0, {}, {}});
  }
  void OnEvict(absl::string_view key, uint64_t version) override {
    group_.push_back({LoggedChange::Kind::kEvict, std::string(key), "", version, 0, {}, {}});
  }
  void OnResult(const Result& result) override {
    LoggedChange change;
    change.kind = LoggedChange::Kind::kResult;
    change.write = *write_;
    change.result = result;
    group_.push_back(std::move(change));
  }
  void OnRelease() override {
    EXPECT_EQ(upload_, nullptr) << "a later put would be of this upload";
    if (!group_.empty()) log_.Append(std::exchange(group_, {}));
  }
  void BeginPending(uint64_t hash) override {
    EXPECT_TRUE(log_.AwaitsSync());
    EXPECT_TRUE(pending_.insert(hash).second) << "two writes of a key are pending";
    begun_ = true;
  }
  void ContinuePending(uint64_t hash) override {
    EXPECT_TRUE(IsPending(hash)) << "no earlier write of the key is pending";
    begun_ = true;
  }
  bool IsPending(uint64_t hash) const override { return pending_.contains(hash); }
  void EndPending(uint64_t hash) override {
    EXPECT_EQ(pending_.erase(hash), 1u) << "no write of the key is pending";
  }
  void DropPending() override { pending_.clear(); }
  size_t pending() const { return pending_.size(); }

 private:
  void Add(LoggedChange change) {
    ASSERT_NE(write_, nullptr);
    if (write_->session != 0 && write_->opcode != rdma::Opcode::kFlush) {
      change.write = *write_;
      // Else a checkpoint takes the change for made.
      if (log_.AwaitsSync()) {
        EXPECT_TRUE(std::exchange(begun_, false))
            << change.key << " is logged before it is pending";
      }
    }
    group_.push_back(std::move(change));
  }

  FakeLog& log_;
  const ClientWrite* write_ = nullptr;
  const Upload* upload_ = nullptr;  // of the puts that follow
  bool begun_ = false;              // the next change's key is pending
  std::set<uint64_t> pending_;
  std::vector<LoggedChange> group_;
};

FakeLog::FakeLog(bool awaits_sync, uint32_t partitions)
    : awaits_sync_(awaits_sync), partitions_count_(partitions) {
  for (uint32_t i = 0; i < partitions; ++i)
    partitions_.push_back(std::make_unique<Partition>(*this));
}

FakeLog::~FakeLog() {
  if (!commit_error.ok()) return;  // then changes stay pending, and the server ends
  for (const auto& partition : partitions_) EXPECT_EQ(partition->pending(), 0u);
  EXPECT_EQ(uploads_, 0);
}

HarnessOptions FakeLog::Options() {
  HarnessOptions options;
  options.partitions = partitions_count_;
  options.write_log = this;
  for (const auto& partition : partitions_) options.changes.push_back(partition.get());
  return options;
}

size_t FakeLog::pending() const {
  size_t count = 0;
  for (const auto& partition : partitions_) count += partition->pending();
  return count;
}

void FakeLog::Append(std::vector<LoggedChange> group) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (LoggedChange& change : group) log_.push_back(std::move(change));
}

absl::StatusOr<std::unique_ptr<ValueUpload>> FakeLog::BeginUpload(uint32_t, absl::string_view,
                                                                  uint64_t value_bytes) {
  if (value_bytes < kUploadBytesMin) return std::unique_ptr<ValueUpload>();
  if (!begin_error.ok()) return begin_error;
  return std::make_unique<Upload>(*this, value_bytes);
}

absl::Status FakeLog::Commit() {
  size_t target = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    target = log_.size();
    if (committed_ >= target) return commit_error;
  }
  if (!in_commit_.exchange(true)) {
    ++commits_;
    const std::function<void()> call = on_commit;  // which may change it
    if (call) call();
    in_commit_ = false;
  }
  if (!commit_error.ok()) return commit_error;
  const std::lock_guard<std::mutex> lock(mutex_);
  committed_ = std::max(committed_, target);
  return absl::OkStatus();
}

std::vector<LoggedChange> FakeLog::changes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return log_;
}

std::string FakeLog::Difference(ServerHarness& server) const {
  index::RegionMemory memory(16 << 20);
  index::TableOptions options;
  options.incarnation = index::kTestIncarnation;
  const std::unique_ptr<index::Table> replayed =
      index::Table::Create(memory.span(), options).value();
  const absl::Time epoch = absl::UnixEpoch();
  for (const LoggedChange& change : changes()) {
    switch (change.kind) {
      case LoggedChange::Kind::kPut: {
        const auto* const bytes = reinterpret_cast<const std::byte*>(change.value.data());
        const index::WriteResult result = replayed->Restore(
            change.key, {bytes, change.value.size()}, change.version, change.expiry_ns, epoch);
        EXPECT_TRUE(result.status.ok()) << result.status;
        break;
      }
      case LoggedChange::Kind::kExpire:
        EXPECT_TRUE(
            index::RestoreExpiry(*replayed, change.key, change.version, change.expiry_ns).ok());
        break;
      case LoggedChange::Kind::kDelete:
      case LoggedChange::Kind::kEvict:
        EXPECT_TRUE(index::RestoreDelete(*replayed, change.key, change.version).ok());
        break;
      case LoggedChange::Kind::kResult:
        break;
    }
  }
  const auto now_ns = static_cast<uint64_t>(absl::ToUnixNanos(server.tables().ServerTime()));
  Contents logged;
  AddContents(*replayed, now_ns, logged);
  Contents held;
  for (uint32_t i = 0; i < partitions_count_; ++i)
    AddContents(*server.tables().Lock(i), now_ns, held);
  for (const auto& [key, content] : held) {
    const auto found = logged.find(key);
    if (found == logged.end()) return absl::StrCat(key, " is not in the log");
    if (!(found->second == content)) {
      return absl::StrCat(key, " has version ", content.version, ", expiry ", content.expiry_ns,
                          ", ", content.value.size(), " bytes; in the log version ",
                          found->second.version, ", expiry ", found->second.expiry_ns, ", ",
                          found->second.value.size(), " bytes");
    }
  }
  for (const auto& [key, content] : logged) {
    if (!held.contains(key)) return absl::StrCat(key, " comes back from the log");
  }
  return "";
}

Result FakeLog::ResultOf(uint64_t session, uint64_t sequence) const {
  Result result;
  for (const LoggedChange& change : changes()) {
    if (change.write.session != session || change.write.sequence != sequence) continue;
    result = change.kind == LoggedChange::Kind::kResult ? change.result : ImpliedResult(change);
  }
  return result;
}

}  // namespace osprey::server
