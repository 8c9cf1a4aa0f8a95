// Long values to and from a kvserver through Buffers: over shared memory, and in the lab over
// verbs. They come back whole, without a request, under concurrent work. No call returns while the
// NIC may still write to the caller's memory.

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kLongest = 64 * kMiB;
// Where a test writes it again and again: in the lab each byte costs a hundred times more.
const size_t kLong = (InLab() ? 16 : 64) * kMiB;

class LargeValuesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string listen = NewListenAddress();
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(listen, {"--memory=256MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = Connect();
  }
  std::unique_ptr<Client> Connect() {
    Options options;
    options.deadline = absl::Seconds(30);
    options.buffer_bytes_max = 4 * kMiB;  // long values do not need it
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }
  Buffer Allocate(Client& client, size_t bytes) {
    absl::StatusOr<Buffer> buffer = client.AllocateBuffer(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : Buffer();
  }
  uint64_t Stat(const std::string& name) {
    const absl::StatusOr<std::string> text = client_->ServerStats();
    EXPECT_TRUE(text.ok()) << text.status();
    uint64_t value = 0;
    EXPECT_TRUE(absl::SimpleAtoi(StatIn(text.value_or(""), name), &value)) << "no " << name;
    return value;
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
};

void Fill(const Buffer& buffer, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at + 8 <= buffer.size(); at += 8) {
    const uint64_t word = random();
    std::memcpy(buffer.data() + at, &word, 8);
  }
}
bool IsAll(const Buffer& buffer, std::byte byte) {
  return buffer.data()[0] == byte &&
         std::memcmp(buffer.data(), buffer.data() + 1, buffer.size() - 1) == 0;
}

TEST_F(LargeValuesTest, ValuesComeBackIntoBuffersAndIntoStrings) {
  const Buffer source = Allocate(*client_, kLongest);
  Buffer target = Allocate(*client_, kLongest + 1000);
  Fill(source, 1);
  for (const size_t bytes : {size_t{0}, size_t{100}, size_t{8000}, size_t{70000},
                             256 * size_t{1024}, size_t{300000}, 5 * kMiB + 1, kLongest - 5}) {
    SCOPED_TRACE(absl::StrCat(bytes, " bytes"));
    const absl::StatusOr<uint64_t> version = client_->PutFrom("planet", source, 5, bytes);
    ASSERT_TRUE(version.ok()) << version.status();
    std::memset(target.data(), 0xee, target.size());
    const absl::StatusOr<ValueInfo> got = client_->GetInto("planet", target, 3);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->length, bytes);
    EXPECT_EQ(got->version, *version);
    EXPECT_EQ(std::memcmp(target.data() + 3, source.data() + 5, bytes), 0);
    EXPECT_EQ(target.data()[2], std::byte{0xee});
    EXPECT_EQ(target.data()[3 + bytes], std::byte{0xee});
    const absl::StatusOr<Value> value = client_->Get("planet");
    ASSERT_TRUE(value.ok()) << value.status();
    ASSERT_EQ(value->bytes.size(), bytes);
    EXPECT_EQ(std::memcmp(value->bytes.data(), source.data() + 5, bytes), 0);
    EXPECT_EQ(value->version, *version);
  }
  EXPECT_EQ(Stat("requests_get"), 0u);
}

TEST_F(LargeValuesTest, MemoryOfTheApplicationIsRegisteredOverRdmaAndRefusedOverShm) {
  std::vector<std::byte> own(3 * kMiB + 17, std::byte{0x5a});
  absl::StatusOr<Buffer> buffer = client_->RegisterBuffer(own.data() + 1, own.size() - 1);
  if (!InLab()) {
    EXPECT_TRUE(absl::IsFailedPrecondition(buffer.status())) << buffer.status();
    EXPECT_TRUE(absl::StrContains(buffer.status().message(), "AllocateBuffer"));
    return;
  }
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->data(), own.data() + 1);
  ASSERT_TRUE(client_->PutFrom("planet", *buffer, 0, 2 * kMiB).ok());
  std::fill(own.begin(), own.end(), std::byte{0});
  const absl::StatusOr<ValueInfo> got = client_->GetInto("planet", *buffer, 10);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(std::count(own.begin(), own.end(), std::byte{0x5a}), static_cast<int>(2 * kMiB));
  EXPECT_EQ(own[11], std::byte{0x5a});
}

TEST_F(LargeValuesTest, TooSmallABufferFailsWithTheBytesNeeded) {
  const Buffer source = Allocate(*client_, 3 * kMiB);
  ASSERT_TRUE(client_->PutFrom("planet", source, 0, 3 * kMiB).ok());
  Buffer target = Allocate(*client_, kMiB);
  std::memset(target.data(), 0x11, target.size());
  const absl::Status status = client_->GetInto("planet", target).status();
  EXPECT_EQ(ReasonOf(status), Reason::kBufferTooSmall) << status;
  EXPECT_EQ(BytesNeeded(status), 3 * kMiB);
  EXPECT_TRUE(IsAll(target, std::byte{0x11}));
}

TEST_F(LargeValuesTest, BadSpansOfABufferAndOtherClientsBuffersAreRefused) {
  Buffer buffer = Allocate(*client_, kMiB);
  Buffer none;
  const std::unique_ptr<Client> other = Connect();
  Buffer foreign = Allocate(*other, kMiB);
  const auto reason = [](const auto& result) { return ReasonOf(result.status()); };
  EXPECT_EQ(reason(client_->GetInto("planet", buffer, kMiB + 1)), Reason::kBadBuffer);
  EXPECT_EQ(reason(client_->PutFrom("planet", buffer, 1, kMiB)), Reason::kBadBuffer);
  EXPECT_EQ(reason(client_->PutFrom("planet", buffer, ~size_t{0}, 2)), Reason::kBadBuffer);
  EXPECT_EQ(reason(client_->GetInto("planet", none)), Reason::kBadBuffer);
  EXPECT_EQ(reason(client_->GetInto("planet", foreign)), Reason::kBadBuffer);
  EXPECT_EQ(reason(client_->AllocateBuffer(0)), Reason::kBadBuffer);
}

TEST_F(LargeValuesTest, NothingLandsInABufferAfterALateGetHasReturned) {
  const Buffer source = Allocate(*client_, kLong);
  Fill(source, 1);
  ASSERT_TRUE(client_->PutFrom("planet", source, 0, kLong).ok());
  Buffer target = Allocate(*client_, kLong);
  int late = 0;
  for (int i = 0; i < 10; ++i) {
    const absl::Status status =
        client_->GetInto("planet", target, 0, absl::Milliseconds(i)).status();
    if (status.ok() || absl::IsInvalidArgument(status)) continue;
    ++late;
    std::memset(target.data(), 0x11, target.size());
    absl::SleepFor(absl::Milliseconds(20));
    client_->Poll();
    ASSERT_TRUE(IsAll(target, std::byte{0x11})) << "a READ landed after " << status;
  }
  EXPECT_GE(late, 3);
  EXPECT_TRUE(client_->GetInto("planet", target).ok());
  EXPECT_EQ(std::memcmp(target.data(), source.data(), kLong), 0);
}

// A put that was late was applied whole or not at all.
TEST_F(LargeValuesTest, LatePutIsAtomicEvenIfItsBufferIsReused) {
  for (int i = 1; i < 10; ++i) {
    {
      const Buffer source = Allocate(*client_, kLong / 2);
      std::memset(source.data(), 'a' + i, source.size());
      WriteOptions options;
      options.deadline = absl::Milliseconds(i);
      (void)client_->PutFrom("planet", source, 0, source.size(), options);
      std::memset(source.data(), 'z', source.size());
    }
    const absl::StatusOr<Value> value = client_->Get("planet");
    if (absl::IsNotFound(value.status())) continue;
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(value->bytes, std::string(kLong / 2, value->bytes[0]));
    EXPECT_NE(value->bytes[0], 'z');
  }
}

TEST_F(LargeValuesTest, ManyBuffersMayComeAndGo) {
  for (int i = 0; i < 150; ++i) {  // more than may be exposed at once over shm
    const Buffer buffer = Allocate(*client_, 20000);
    std::memset(buffer.data(), 'a' + i % 26, buffer.size());
    ASSERT_TRUE(client_->PutFrom("planet", buffer, 0, buffer.size()).ok()) << i;
    EXPECT_EQ(client_->Get("planet")->bytes[19999], 'a' + i % 26);
  }
  Buffer outlives = Allocate(*client_, 20000);
  client_.reset();
  EXPECT_EQ(outlives.size(), 20000u);
}

TEST_F(LargeValuesTest, ManyBuffersMayBePutFromAtOnce) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < 48; ++i) {
    buffers.push_back(Allocate(*client_, 20000));
    std::memset(buffers.back().data(), 'a' + i % 26, buffers.back().size());
  }
  int written = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto done = [&written](absl::StatusOr<uint64_t> version) {
      EXPECT_TRUE(version.ok()) << version.status();
      ++written;
    };
    ASSERT_TRUE(
        client_->StartPutFrom(absl::StrCat("planet", i), buffers[i], 0, 20000, {}, done).ok());
  }
  while (client_->in_flight() > 0) client_->Wait(absl::Seconds(1));
  EXPECT_EQ(written, 48);
  EXPECT_EQ(client_->counters().connects, 1u) << "the server took offence";
}

TEST_F(LargeValuesTest, ReadersSeeOldOrNewValuesWhileTheseAreReplaced) {
  constexpr size_t kBytes = 8 * kMiB;
  const std::unique_ptr<Client> writer = Connect();
  std::vector<Buffer> sources;
  for (const char c : {'a', 'b', 'c'}) {
    sources.push_back(Allocate(*writer, kBytes));
    std::memset(sources.back().data(), c, kBytes);
  }
  ASSERT_TRUE(writer->PutFrom("planet", sources[0], 0, kBytes).ok());
  Buffer target = Allocate(*client_, kBytes);
  uint64_t newest = 0;
  int writes = 0;
  bool writing = false;
  const auto write = [&] {
    writing = true;
    const absl::Status started = writer->StartPutFrom(
        "planet", sources[writes % 3], 0, kBytes, {}, [&](absl::StatusOr<uint64_t> version) {
          ASSERT_TRUE(version.ok()) << version.status();
          newest = *version;
          ++writes;
          writing = false;
        });
    ASSERT_TRUE(started.ok()) << started;
  };
  const int gets_max = InLab() ? 10 : 100;
  constexpr int kWritesMin = 3;
  // On a busy machine the server has fewer turns than the readers: the readers continue.
  for (int gets = 0; gets < gets_max || (writes < kWritesMin && gets < 100 * gets_max);) {
    const uint64_t before = newest;
    bool done = false;
    absl::StatusOr<ValueInfo> got;
    ASSERT_TRUE(client_
                    ->StartGetInto("planet", target, 0,
                                   [&](absl::StatusOr<ValueInfo> answer) {
                                     got = answer;
                                     done = true;
                                   })
                    .ok());
    while (!done) {
      if (!writing) write();
      writer->Poll();
      client_->Poll();
    }
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_TRUE(IsAll(target, target.data()[0])) << "a mixture";
    ASSERT_GE(got->version, before);
    ++gets;
  }
  EXPECT_GE(writes, kWritesMin);
  while (writing) writer->Poll();
}

}  // namespace
}  // namespace osprey
