// Batches of blocking GETs in virtual time. They begin together, and the caller polls for the
// results.

#ifndef OSPREY_TESTS_CLIENT_CLIENT_BATCHES_FIXTURE_H_
#define OSPREY_TESTS_CLIENT_CLIENT_BATCHES_FIXTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/client/client_engine_fixture.h"

namespace osprey {

class ClientWaitingTest : public ClientEngineTest {
 protected:
  explicit ClientWaitingTest(const fake::NetworkOptions& network) : ClientEngineTest(network) {}
  void SetUp() override {
    StartServer();
    StartEngine(/*operations_max=*/256, /*buffer_bytes_max=*/64 << 20, /*slot_cache_bytes=*/0);
    BecomeReady();
    network_.before_reads = [this](rdma::ConnectionId) { ++chains_; };
  }
  uint64_t Store(absl::string_view key, absl::string_view value,
                 absl::Duration ttl = absl::ZeroDuration()) {
    const index::WriteResult result = server_->table().Put(
        key, {reinterpret_cast<const std::byte*>(value.data()), value.size()}, {}, now_,
        ttl == absl::ZeroDuration() ? index::Lifetime::Forever() : index::Lifetime::For(ttl));
    EXPECT_TRUE(result.status.ok()) << result.status;
    return result.version;
  }
  // Begins as many as fit, and returns their number.
  size_t Begin(const std::vector<absl::string_view>& keys,
               absl::Duration deadline = absl::Seconds(1)) {
    answers_.assign(keys.size(), absl::UnknownError("not answered yet"));
    return engine_->StartGets(keys, answers_.data(), now_ + deadline, now_, unanswered_);
  }
  // Begins one that is alone. False: it cannot be begun so.
  bool BeginOne(absl::string_view key, absl::Duration deadline = absl::Seconds(1)) {
    answers_.assign(1, absl::UnknownError("not answered yet"));
    return engine_->GetOne(key, answers_[0], now_ + deadline, now_, unanswered_);
  }
  const Counters& counters() const { return engine_->counters(); }

  // A network that tears READs: it lands each READ's bytes piece by piece, in any order.
  static fake::NetworkOptions ShuffledPieces() {
    fake::NetworkOptions options;
    options.read_piece_bytes = 32;
    options.shuffle_pieces = true;
    return options;
  }
  // Three keys are rewritten while READs run, once before every few pieces. `get` must return all
  // of them each time, with a value that was valid during the GET.
  template <typename Get>
  void OverwriteWhileTheyAreRead(int rounds, Get get) {
    const std::vector<absl::string_view> keys = {"planet", "star", "moon"};
    std::vector<uint64_t> versions(keys.size());
    int pieces = 0;
    int writes = 0;
    const auto write = [&] {
      const size_t i = ++writes % keys.size();
      // Written inline, in place, and as a new item.
      const size_t bytes = i == 0 ? 30 : i == 1 ? 500 : 400 + 200 * (writes / 3 % 2);
      versions[i] = Store(keys[i], std::string(bytes, static_cast<char>('a' + writes % 26)));
    };
    for (size_t i = 0; i < keys.size(); ++i) write();
    network_.before_piece = [&](absl::Span<const std::byte>) {
      if (++pieces % 7 == 0) write();
    };
    for (int round = 0; round < rounds; ++round) {
      const std::vector<uint64_t> before = versions;
      get(keys);
      for (size_t i = 0; i < keys.size(); ++i) {
        ASSERT_TRUE(answers_[i].ok()) << answers_[i].status();
        const std::string& bytes = answers_[i]->bytes;
        ASSERT_EQ(bytes, std::string(bytes.size(), bytes[0]));
        ASSERT_GE(answers_[i]->version, before[i]);
        ASSERT_LE(answers_[i]->version, versions[i]);
      }
    }
    network_.before_piece = nullptr;
  }

  int chains_ = 0;
  size_t unanswered_ = 0;
  std::vector<absl::StatusOr<Value>> answers_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_CLIENT_CLIENT_BATCHES_FIXTURE_H_
