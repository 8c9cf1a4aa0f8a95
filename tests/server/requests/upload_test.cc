// Long values that an engine gives its log as they arrive: PUTs by rendezvous, and long APPENDs. The
// log is a fake one (fake_log.h), which compares what it was given with what is put.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/requests/write_log.h"
#include "tests/server/requests/fake_log.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;

// Of eight READs and of three.
constexpr size_t kLongBytes = 1000000;
constexpr size_t kShorterBytes = 300000;

class UploadTest : public ::testing::TestWithParam<bool> {
 protected:
  UploadTest() : log_(GetParam(), 2) {
    HarnessOptions options = log_.Options();
    options.value_bytes_max = 4 << 20;
    server_.emplace(options);
    client_.emplace(*server_);
    client_->Establish();
  }
  ~UploadTest() override { log_.on_commit = nullptr; }

  std::string PutFrame(absl::string_view key, const std::string& value) {
    return client_->RendezvousFrame(++sequence_, key, value);
  }
  std::string AppendFrame(absl::string_view key) {
    return client_->AppendFrame(++sequence_, key, "tail");
  }
  void Put(absl::string_view key, const std::string& value) {
    ASSERT_EQ(client_->Ask(PutFrame(key, value)).code, StatusCode::kOk);
  }
  // A short write is not affected.
  void ExpectShortPutsGoOn() {
    EXPECT_EQ(client_->Ask(client_->PutFrame(++sequence_, "short", "value")).code, StatusCode::kOk);
  }
  uint64_t ItemBytes() { return server_->tables().stats().item_bytes; }

  FakeLog log_;
  std::optional<ServerHarness> server_;
  std::optional<RawClient> client_;
  uint64_t sequence_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Modes, UploadTest, ::testing::Values(false, true),
                         [](const auto& mode) { return mode.param ? "Synced" : "Written"; });

TEST_P(UploadTest, LongValuesAreLoggedBeforeTheyArePut) {
  Put("key", Large(kLongBytes));
  EXPECT_EQ(log_.uploaded_bytes(), kLongBytes);
  EXPECT_EQ(client_->Ask(AppendFrame("key")).code, StatusCode::kOk);
  EXPECT_EQ(log_.uploaded_bytes(), 2 * kLongBytes + 4);
  EXPECT_EQ(log_.uploads(), 0);
  EXPECT_TRUE(server_->Stored("key") == Large(kLongBytes) + "tail");
  EXPECT_EQ(log_.Difference(*server_), "");
}

TEST_P(UploadTest, ShorterValuesAreLoggedWithTheirPut) {
  Put("key", Large(FakeLog::kUploadBytesMin - 1));
  EXPECT_EQ(log_.uploaded_bytes(), 0u);
  EXPECT_EQ(log_.Difference(*server_), "");
}

// The log takes less at a time than arrives.
TEST_P(UploadTest, ALogThatIsSlowerIsWaitedFor) {
  log_.upload_step_bytes = 10000;
  Put("key", Large(kLongBytes));
  EXPECT_EQ(client_->Ask(AppendFrame("key")).code, StatusCode::kOk);
  EXPECT_EQ(log_.uploaded_bytes(), 2 * kLongBytes + 4);
  EXPECT_EQ(log_.Difference(*server_), "");
}

TEST_P(UploadTest, NoByteIsFetchedWhileTheDiskIsBehind) {
  log_.is_behind = true;
  client_->Send(PutFrame("key", Large(kLongBytes)));
  server_->Advance(absl::Milliseconds(100), kUploadStep());
  EXPECT_EQ(server_->counters().rendezvous_reads, 0u);
  ExpectShortPutsGoOn();
  log_.is_behind = false;
  server_->Advance(kUploadStep());
  EXPECT_EQ(client_->TakeReply()->code, StatusCode::kOk);
  EXPECT_EQ(log_.Difference(*server_), "");
}

TEST_P(UploadTest, NoByteIsCopiedWhileTheDiskIsBehind) {
  Put("key", Large(kLongBytes));
  const uint64_t before = log_.uploaded_bytes();
  log_.is_behind = true;
  client_->Send(AppendFrame("key"));
  server_->Advance(absl::Milliseconds(100), kUploadStep());
  EXPECT_EQ(log_.uploaded_bytes(), before);
  ExpectShortPutsGoOn();
  EXPECT_FALSE(server_->Turn()) << "it is not looked at in each turn";
  log_.is_behind = false;
  server_->Advance(kUploadStep());
  EXPECT_EQ(client_->TakeReply()->code, StatusCode::kOk);
  EXPECT_EQ(log_.Difference(*server_), "");
}

// --- A full disk ---------------------------------------------------------------------------------

TEST_P(UploadTest, AFullDiskRefusesAPutBeforeItsFirstByte) {
  const uint64_t before = ItemBytes();
  log_.begin_error = absl::ResourceExhaustedError("the disk is full");
  const RawReply reply = client_->Ask(PutFrame("key", Large(kLongBytes)));
  EXPECT_EQ(reply.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(reply.reason, Reason::kDiskFull);
  EXPECT_EQ(reply.data, "the disk is full");
  EXPECT_EQ(server_->counters().rendezvous_reads, 0u);
  EXPECT_EQ(ItemBytes(), before);
  ExpectShortPutsGoOn();
  EXPECT_EQ(log_.Difference(*server_), "");
}

TEST_P(UploadTest, AFullDiskRefusesAnAppendBeforeItsFirstByte) {
  Put("key", Large(kLongBytes));
  const uint64_t before = ItemBytes();
  const uint64_t uploaded = log_.uploaded_bytes();
  log_.begin_error = absl::ResourceExhaustedError("the disk is full");
  const RawReply reply = client_->Ask(AppendFrame("key"));
  EXPECT_EQ(reply.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(reply.reason, Reason::kDiskFull);
  EXPECT_EQ(log_.uploaded_bytes(), uploaded);
  EXPECT_EQ(ItemBytes(), before);
  EXPECT_TRUE(server_->Stored("key") == Large(kLongBytes));
  ExpectShortPutsGoOn();
  EXPECT_EQ(log_.Difference(*server_), "");
}

// Others have filled the disk meanwhile.
TEST_P(UploadTest, AnUploadThatTheLogRefusesLeavesNothing) {
  Put("key", Large(kShorterBytes));
  const uint64_t before = ItemBytes();
  log_.upload_error = absl::ResourceExhaustedError("the disk is full");
  for (const std::string& frame : {PutFrame("key", Large(kLongBytes)), AppendFrame("key")}) {
    const RawReply reply = client_->Ask(frame);
    EXPECT_EQ(reply.code, StatusCode::kResourceExhausted);
    EXPECT_EQ(reply.reason, Reason::kDiskFull);
    EXPECT_EQ(ItemBytes(), before);
    EXPECT_EQ(log_.uploads(), 0);
  }
  log_.upload_error = absl::OkStatus();
  Put("other", Large(kLongBytes));
  EXPECT_TRUE(server_->Stored("key") == Large(kShorterBytes));
  EXPECT_EQ(log_.Difference(*server_), "");
}

// --- Uploads that end early ----------------------------------------------------------------------

TEST_P(UploadTest, AConnectionThatBreaksLeavesNothingOfItsUploads) {
  Put("key", Large(kLongBytes));
  const uint64_t before = ItemBytes();
  for (const bool is_put : {true, false}) {
    client_->Send(is_put ? PutFrame("new", Large(kLongBytes)) : AppendFrame("key"));
    log_.upload_step_bytes = 1000;
    for (int turn = 0; turn < 3; ++turn) server_->engine().Poll(server_->now());
    EXPECT_EQ(log_.uploads(), 1);
    server_->network().Break(client_->id());
    server_->Settle();
    EXPECT_EQ(log_.uploads(), 0);
    EXPECT_EQ(ItemBytes(), before);
    log_.upload_step_bytes = UINT64_MAX;
    client_->Establish(client_->session());
  }
  EXPECT_EQ(server_->Stored("new"), std::nullopt);
  EXPECT_TRUE(server_->Stored("key") == Large(kLongBytes));
  EXPECT_EQ(log_.Difference(*server_), "");
}

// W6: the client has changed its buffer.
TEST_P(UploadTest, AValueThatIsNotThePromisedOneIsNotPut) {
  const std::string frame = PutFrame("key", Large(kLongBytes));
  client_->value_memory()[kLongBytes / 2] ^= std::byte{1};
  EXPECT_EQ(client_->Ask(frame).reason, Reason::kValueChanged);
  EXPECT_EQ(log_.uploaded_bytes(), kLongBytes);
  EXPECT_EQ(log_.uploads(), 0);
  EXPECT_EQ(server_->Stored("key"), std::nullopt);
  EXPECT_EQ(log_.Difference(*server_), "");
}

TEST_P(UploadTest, AnAppendThatStartsOverGivesItsUploadUp) {
  Put("key", Large(kLongBytes));
  client_->Send(AppendFrame("key"));
  for (int turn = 0; turn < 2; ++turn) server_->engine().Poll(server_->now());
  EXPECT_EQ(log_.uploads(), 1);
  log_.is_behind = true;
  RawClient other(*server_);
  other.Establish();
  ASSERT_EQ(other.Ask(other.PutFrame(1, "key", "short")).code, StatusCode::kOk);
  log_.is_behind = false;
  server_->Advance(kUploadStep());
  EXPECT_EQ(client_->TakeReply()->code, StatusCode::kOk);
  EXPECT_EQ(server_->Stored("key"), "shorttail");
  EXPECT_EQ(log_.uploads(), 0);
  EXPECT_EQ(log_.Difference(*server_), "");
}

}  // namespace
}  // namespace osprey::server
