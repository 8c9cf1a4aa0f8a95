// Long values whose pieces are in the log before their entry: crashes, checkpoints and full disks.

#include "server/durability/upload_log.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/requests/two_step_writes.h"
#include "server/wal/disk/posix_file_system.h"
#include "tests/server/durability/bounded_disk.h"
#include "tests/server/durability/durable_life.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

constexpr uint64_t kMib = 1 << 20;

std::string NewDirectory() {
  static int number = 0;
  const std::string directory = absl::StrCat(testing::TempDir(), "/uploads", ++number);
  std::filesystem::create_directories(directory);
  return directory;
}

// A value on its way, as a request has it.
class Arriving {
 public:
  Arriving(Life& life, std::string key, std::string value)
      : life_(life), key_(std::move(key)), value_(std::move(value)) {
    {
      const LockedTable table = life.access().For(key_);
      space_ = TableSpace(life.access(), table.partition(),
                          *table->Reserve(key_, value_.size(), absl::Now()));
    }
    upload_ = *life.durability().BeginUpload(0, "key", value_.size());
  }

  // So many bytes more.
  absl::Status Arrive(uint64_t bytes) {
    std::memcpy(space_.value().data() + arrived_, value_.data() + arrived_, bytes);
    space_.Hash(bytes);
    arrived_ += bytes;
    return upload_->Log(space_.value(), arrived_);
  }
  absl::Status ArriveAll() {
    absl::Status status = Arrive(value_.size() - arrived_);
    while (status.ok() && !upload_->IsLogged()) status = upload_->Log(space_.value(), arrived_);
    return status;
  }
  Answer Publish() {
    life_.access().set_write({1, 1, rdma::Opcode::kPut});
    return *PublishReserved(life_.access(), space_, upload_.get(), key_, {},
                            index::Lifetime::Forever(), absl::Now());
  }
  ValueUpload& upload() { return *upload_; }

 private:
  Life& life_;
  const std::string key_;
  const std::string value_;
  TableSpace space_;
  std::unique_ptr<ValueUpload> upload_;
  uint64_t arrived_ = 0;
};

std::optional<std::string> ValueOf(Life& life, absl::string_view key) {
  const LockedTable table = life.access().For(key);
  const absl::StatusOr<index::Table::View> view = table->Find(key);
  if (!view.ok()) return std::nullopt;
  return std::string(index::TextOf(view->value));
}

class UploadLogTest : public ::testing::TestWithParam<DurabilityMode> {
 protected:
  UploadLogTest() {
    options_.mode = GetParam();
    options_.segment_bytes = 4 * kMib;
  }

  const std::string directory_ = NewDirectory();
  DurabilityOptions options_;
};
INSTANTIATE_TEST_SUITE_P(Modes, UploadLogTest,
                         ::testing::Values(DurabilityMode::kAsync, DurabilityMode::kSync),
                         [](const auto& mode) {
                           return mode.param == DurabilityMode::kSync ? "Sync" : "Async";
                         });

// --- Crashes -------------------------------------------------------------------------------------

TEST_P(UploadLogTest, APublishedValueOutlivesTheServer) {
  // Not of whole pieces.
  const std::string value = Large(5 * kMib + 12345);
  {
    Life life(directory_, options_);
    Arriving arriving(life, "long", value);
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(arriving.Arrive(128 << 10).ok());
    life.Put("short", "between");
    ASSERT_TRUE(arriving.ArriveAll().ok());
    ASSERT_EQ(arriving.Publish().code(), StatusCode::kOk);
    ASSERT_TRUE(life.durability().Commit().ok());
  }
  Life life(directory_, options_);
  EXPECT_TRUE(ValueOf(life, "long") == value);
  EXPECT_EQ(ValueOf(life, "short"), "between");
}

TEST_P(UploadLogTest, PiecesWithoutAnEntryAreNothing) {
  const std::string value = Large(4 * kMib);
  for (const bool is_whole : {false, true}) {
    {
      Life life(directory_, options_);
      EXPECT_EQ(ValueOf(life, "long"), std::nullopt);
      Arriving arriving(life, "long", value);
      ASSERT_TRUE((is_whole ? arriving.ArriveAll() : arriving.Arrive(2 * kMib)).ok());
      EXPECT_GT(life.stats().log_written_bytes, kMib);
      life.Put("short", "value");
      ASSERT_TRUE(life.durability().Commit().ok());
    }  // killed, and the value with it
  }
  Life life(directory_, options_);
  EXPECT_EQ(ValueOf(life, "long"), std::nullopt);
  EXPECT_EQ(ValueOf(life, "short"), "value");
}

TEST_P(UploadLogTest, AnUploadThatEndsLeavesNothing) {
  Life life(directory_, options_);
  const uint64_t needed = [&] {
    (void)life.Await([](const DurabilityStats& now) { return now.disk_needed_bytes > 0; });
    return life.stats().disk_needed_bytes;
  }();
  {
    Arriving arriving(life, "long", Large(4 * kMib));
    ASSERT_TRUE(arriving.Arrive(2 * kMib).ok());
    EXPECT_TRUE(life.Await([&](const DurabilityStats& now) {
      return now.disk_needed_bytes >= needed + 6 * kMib;
    })) << "of 8 MiB, one or two are written";
  }
  EXPECT_TRUE(
      life.Await([&](const DurabilityStats& now) { return now.disk_needed_bytes == needed; }));
}

// --- Checkpoints ---------------------------------------------------------------------------------

// Else the first pieces are removed with their segment.
TEST_P(UploadLogTest, ACheckpointKeepsThePiecesOfAValueOnItsWay) {
  options_.checkpoint_log_bytes = 16 * kMib;
  options_.segment_bytes = kMib;
  const std::string value = Large(4 * kMib);
  const std::string filler(kMib, 'f');
  {
    LifeOptions own;
    own.memory_bytes = 64 << 20;
    Life life(directory_, options_, own);
    for (int i = 0; i < 14; ++i) life.Put("filler", filler);
    Arriving arriving(life, "long", value);
    ASSERT_TRUE(arriving.Arrive(3 * kMib / 2).ok());
    for (int i = 0; i < 4; ++i) life.Put("filler", filler);
    ASSERT_TRUE(life.durability().Commit().ok());
    ASSERT_TRUE(life.Await([](const DurabilityStats& now) { return now.checkpoints > 0; }));
    ASSERT_TRUE(arriving.ArriveAll().ok());
    ASSERT_EQ(arriving.Publish().code(), StatusCode::kOk);
    ASSERT_TRUE(life.durability().Commit().ok());
  }
  Life life(directory_, options_);
  EXPECT_TRUE(ValueOf(life, "long") == value);
}

TEST_P(UploadLogTest, AValueThatArrivesSlowlyDoesNotKeepTheLog) {
  options_.checkpoint_log_bytes = 8 * kMib;
  options_.segment_bytes = kMib;
  const std::string value = Large(4 * kMib);
  const std::string filler(kMib, 'f');
  {
    LifeOptions own;
    own.memory_bytes = 64 << 20;
    Life life(directory_, options_, own);
    Arriving arriving(life, "long", value);
    ASSERT_TRUE(arriving.Arrive(2 * kMib).ok());
    for (int i = 0; i < 40; ++i) {
      life.Put("filler", filler);
      ASSERT_TRUE(life.durability().Commit().ok());
      ASSERT_TRUE(arriving.Arrive(16 << 10).ok());
    }
    const uint64_t checkpoints = life.stats().checkpoints;
    for (int i = 0; i < 10; ++i) life.Put("filler", filler);
    ASSERT_TRUE(life.durability().Commit().ok());
    EXPECT_TRUE(life.Await([&](const DurabilityStats& now) {
      return now.checkpoints > checkpoints && now.log_bytes < 30 * kMib;
    })) << "of 50 MiB";
    EXPECT_FALSE(arriving.upload().IsLogged());
    ASSERT_TRUE(arriving.ArriveAll().ok());
    ASSERT_EQ(arriving.Publish().code(), StatusCode::kOk);
    ASSERT_TRUE(life.durability().Commit().ok());
  }
  Life life(directory_, options_);
  EXPECT_TRUE(ValueOf(life, "long") == value);
}

// --- The pace ------------------------------------------------------------------------------------

TEST_P(UploadLogTest, UploadsWaitForTheDisk) {
  LifeOptions own;
  own.memory_bytes = 128 << 20;
  options_.lag = absl::Seconds(100);    // no sync of others
  options_.segment_bytes = 256 * kMib;  // nor of a change of segments
  Life life(directory_, options_, own);
  Arriving arriving(life, "long", std::string(40 * kMib, 'v'));
  EXPECT_FALSE(arriving.upload().IsBehind());
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(arriving.Arrive(kMib).ok());
    ASSERT_TRUE(life.Await([&](const DurabilityStats&) { return !arriving.upload().IsBehind(); }));
    EXPECT_LE(life.stats().log_unsynced_bytes, (UploadLog::kAheadMibMax + 1) * kMib);
  }
  EXPECT_GT(life.stats().log_syncs, 1u) << "though no other write waits";
  EXPECT_EQ(arriving.Publish().code(), StatusCode::kOk);
}

// --- A full disk ---------------------------------------------------------------------------------

// An engine with a data directory on a small disk.
class SmallDiskTest : public UploadLogTest {
 protected:
  void Start() {
    options_.segment_bytes = kMib;
    options_.log_memory = kMib;
    options_.checkpoint_log_bytes = 1024 * kMib;
    options_.random = [this] { return ++random_ * 0x9e3779b97f4a7c15 | 1; };
    options_.log = [](absl::string_view) {};
    durability_ = *Durability::Open(
        std::make_unique<BoundedDisk>(*wal::OpenPosixFileSystem(directory_), capacity_), 2,
        options_);
    HarnessOptions options;
    options.region_bytes = 64 << 20;
    options.value_bytes_max = 4 * kMib;
    options.partitions = 2;
    options.write_log = durability_.get();
    options.changes = durability_->changes();
    server_.emplace(options);
    server_->set_clock([] { return absl::UnixEpoch(); });
    ASSERT_TRUE(durability_->Load(server_->tables(), {}).ok());
    const auto now = [] { return absl::Now(); };
    server_->set_clock(now);
    ASSERT_TRUE(durability_->Start(now, [] { return std::vector<SessionImage>(); }).ok());
    client_.emplace(*server_);
    client_->Establish();
  }
  void TearDown() override {
    client_.reset();
    EXPECT_TRUE(!server_.has_value() || server_->engine().failure().ok());
    if (durability_ == nullptr) return;
    EXPECT_TRUE(durability_->End().ok());
    durability_.reset();  // its thread uses the tables
  }

  // The disk has so much more than the log and the next checkpoint need.
  void LeaveFree(uint64_t bytes) {
    capacity_ = UINT64_MAX / 2;
    absl::SleepFor(absl::Milliseconds(300));  // the thread looks at the disk every 100 ms
    const DurabilityStats stats = durability_->stats();
    capacity_ = UINT64_MAX / 2 - stats.disk_free_bytes + stats.disk_needed_bytes + bytes;
  }
  RawReply Put(absl::string_view key, uint64_t bytes) {
    client_->Send(client_->RendezvousFrame(++sequence_, key, Large(bytes)));
    return AwaitReply();
  }
  RawReply Append(absl::string_view key) {
    client_->Send(client_->AppendFrame(++sequence_, key, "tail"));
    return AwaitReply();
  }
  void ExpectShortPutsGoOn() {
    const RawReply reply = client_->Ask(client_->PutFrame(++sequence_, "short", "value"));
    EXPECT_EQ(reply.code, StatusCode::kOk) << reply.data;
  }
  void ExpectRefused(const RawReply& reply) {
    EXPECT_EQ(reply.code, StatusCode::kResourceExhausted);
    EXPECT_EQ(reply.reason, Reason::kDiskFull);
    EXPECT_THAT(reply.data, HasSubstr("does not fit on the disk; nothing was changed"));
  }

  uint64_t next_sequence() { return ++sequence_; }

  static bool Await(const std::function<bool()>& reached) {
    for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
      if (reached()) return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  }

  std::atomic<uint64_t> capacity_{UINT64_MAX / 2};
  std::unique_ptr<Durability> durability_;
  std::optional<ServerHarness> server_;
  std::optional<RawClient> client_;

 private:
  RawReply AwaitReply() {
    for (int step = 0; step < 10000 && client_->replies() == 0; ++step) {
      server_->Advance(kUploadStep());
      absl::SleepFor(absl::Microseconds(100));  // for the thread that syncs
    }
    return client_->TakeReply().value();
  }

  std::atomic<uint64_t> random_{0};
  uint64_t sequence_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Modes, SmallDiskTest,
                         ::testing::Values(DurabilityMode::kAsync, DurabilityMode::kSync),
                         [](const auto& mode) {
                           return mode.param == DurabilityMode::kSync ? "Sync" : "Async";
                         });

// Clients that only read need no space.
TEST_P(SmallDiskTest, AFullDiskTakesNoSessions) {
  Start();
  const auto written_by_a_session = [this] {
    EXPECT_TRUE(durability_->Commit().ok());
    const uint64_t before = durability_->stats().log_written_bytes;
    durability_->SessionBegun(7);
    durability_->SessionEnded(7);
    EXPECT_TRUE(durability_->Commit().ok());
    return durability_->stats().log_written_bytes - before;
  };
  EXPECT_GT(written_by_a_session(), 0u);
  capacity_ = 0;
  ASSERT_TRUE(Await([this] { return durability_->stats().disk_full; }));
  EXPECT_EQ(written_by_a_session(), 0u);
  capacity_ = UINT64_MAX / 2;
  ASSERT_TRUE(Await([this] { return !durability_->stats().disk_full; }));
  EXPECT_GT(written_by_a_session(), 0u);
}

// Between two looks at the disk.
TEST_P(SmallDiskTest, ADiskThatFillsAtOnceRefusesWritesAtOnce) {
  options_.checkpoint_step = [] {};  // no thread looks
  Start();
  capacity_ = 0;
  int taken = 0;
  RawReply reply;
  do {
    reply = client_->Ask(client_->PutFrame(next_sequence(), "key", std::string(8000, 'v')));
  } while (reply.code == StatusCode::kOk && ++taken < 4000);
  EXPECT_EQ(reply.code, StatusCode::kResourceExhausted) << taken;
  EXPECT_EQ(reply.reason, Reason::kDiskFull);
  EXPECT_GT(taken, 100);
  EXPECT_TRUE(durability_->Commit().ok());
  capacity_ = UINT64_MAX / 2;
  durability_->RunDuties();
  ExpectShortPutsGoOn();
}

TEST_P(SmallDiskTest, AValueThatDoesNotFitIsRefusedAndOthersGoOn) {
  Start();
  ASSERT_EQ(Put("key", kMib).code, StatusCode::kOk);
  LeaveFree(kMib);
  for (int i = 0; i < 5; ++i) {
    ExpectRefused(Put("new", kMib));
    ExpectRefused(Append("key"));
    ExpectShortPutsGoOn();
  }
  EXPECT_TRUE(server_->Stored("key") == Large(kMib));
  // One of a quarter needs half of the space.
  EXPECT_EQ(Put("new", kMib / 4).code, StatusCode::kOk);
  LeaveFree(3 * kMib);
  EXPECT_EQ(Append("key").code, StatusCode::kOk);
  EXPECT_TRUE(server_->Stored("key") == Large(kMib) + "tail");
}

TEST_P(SmallDiskTest, AnUploadsSpaceGoesBackWhenItEnds) {
  Start();
  LeaveFree(5 * kMib);
  for (int i = 0; i < 3; ++i) {
    absl::StatusOr<std::unique_ptr<ValueUpload>> first =
        durability_->BeginUpload(0, "first", 2 * kMib);
    ASSERT_TRUE(first.ok()) << first.status();
    const absl::Status second = durability_->BeginUpload(0, "second", 2 * kMib).status();
    EXPECT_EQ(second.code(), StatusCode::kResourceExhausted);
    // Others may not use the space either.
    const absl::Status third = durability_->BeginUpload(0, "third", kMib).status();
    EXPECT_EQ(third.code(), StatusCode::kResourceExhausted);
    ExpectShortPutsGoOn();
  }
}

TEST_P(SmallDiskTest, ACheckpointMakesSpaceForARefusedValue) {
  Start();
  for (int i = 0; i < 4; ++i) ASSERT_EQ(Put("key", kMib).code, StatusCode::kOk);
  LeaveFree(kMib);
  EXPECT_EQ(durability_->stats().checkpoints, 0u);
  ExpectRefused(Put("new", kMib));
  EXPECT_TRUE(Await([&] { return durability_->stats().checkpoints > 0; }));
  // The old files are removed behind it.
  EXPECT_TRUE(Await([&] { return Put("new", kMib).code == StatusCode::kOk; }));
}

// Another program fills it.
TEST_P(SmallDiskTest, ADiskThatBecomesFullMeanwhileEndsTheUploadAlone) {
  Start();
  const std::string value = Large(4 * kMib);
  const index::ByteSpan bytes(reinterpret_cast<const std::byte*>(value.data()), value.size());
  std::unique_ptr<ValueUpload> upload = *durability_->BeginUpload(0, "key", value.size());
  ASSERT_TRUE(upload->Log(bytes, kMib).ok());
  capacity_ = 0;
  absl::Status status;
  for (uint64_t arrived = 2 * kMib; status.ok() && arrived <= value.size(); arrived += kMib)
    status = upload->Log(bytes, arrived);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(upload->IsLogged());
  upload.reset();
  EXPECT_TRUE(durability_->Commit().ok());
  capacity_ = UINT64_MAX / 2;
  EXPECT_TRUE(Await([&] { return durability_->MayWrite().ok(); }));
  ExpectShortPutsGoOn();
  EXPECT_EQ(Put("key", 4 * kMib).code, StatusCode::kOk);
}

}  // namespace
}  // namespace osprey::server
