// native_probe: GETs in batches of a kvserver on this host, lookups in a hash table of this very
// process, and bare copies of as many bytes. Standard input has the commands
// (tools/bench.d/probe.h).
//
//   native_probe --server=shm://PATH
//
//   fill set=1 keys=1000000 size=8 [first=N]    the server, and with map=1 (the default) the table
//   gets set=1 keys=… size=8 batch=16 count=…     by MultiGet
//   finds …                              in the absl::flat_hash_map, strings to strings
//   copies bytes=256 mib=1024 batch=16 count=…    from anywhere in so much memory
//   drop                                 empties the hash table
//
// Keys are numbers of 8 bytes, made as they are needed: no memory is read for them. Each value
// begins with its key, which is compared. Exit status as osprey_probe's.

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "gflags/gflags.h"
#include "server/program/flags.h"
#include "tools/bench.d/probe.h"
#include "tools/loadgen/workload/random.h"

DEFINE_string(server, "", "shm://PATH");

namespace osprey::bench {
namespace {

constexpr uint64_t kCountMax = 1'000'000'000;
constexpr uint64_t kKeysMax = 100'000'000;
constexpr uint64_t kBatchMax = 256;
constexpr uint64_t kSetMax = 255;
constexpr uint64_t kSizeMin = 8, kSizeMax = 4096;
constexpr uint64_t kMibMax = 16 << 10;
constexpr int kPutsInFlight = 256;

using Key = std::array<char, 8>;

// Set and number; an odd factor, so that all differ in their low bytes, too.
Key NumberedKey(uint64_t set, uint64_t i) {
  const uint64_t word = (set << 56 | i) * 0x9e3779b97f4a7c15;
  Key key;
  std::memcpy(key.data(), &word, sizeof(word));
  return key;
}
absl::string_view View(const Key& key) { return {key.data(), key.size()}; }

class Memory {
 public:
  explicit Memory(uint64_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    if (data_ == MAP_FAILED) std::abort();
    (void)madvise(data_, bytes, MADV_HUGEPAGE);
    std::memset(data_, 1, bytes);
  }
  ~Memory() { munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  const std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_;
  std::byte* data_;
};

class Probe {
 public:
  explicit Probe(std::unique_ptr<Client> client) : client_(std::move(client)) {}

  absl::StatusOr<Json> Answer(Request& request) {
    set_ = request.Number("set", 1, kSetMax);
    keys_ = std::max<uint64_t>(1, request.Number("keys", 1, kKeysMax));
    size_ = std::max(kSizeMin, request.Number("size", kSizeMin, kSizeMax));
    batch_ = std::max<uint64_t>(1, request.Number("batch", 16, kBatchMax));
    count_ = std::max<uint64_t>(1, request.Number("count", 1, kCountMax));
    bytes_ = std::max<uint64_t>(8, request.Number("bytes", 256, kSizeMax));
    first_ = request.Number("first", 0, kKeysMax);
    in_map_ = request.Number("map", 1, 1) != 0;
    mib_ = std::max<uint64_t>(1, request.Number("mib", 1024, kMibMax));
    if (absl::Status status = request.error(); !status.ok()) return status;
    if (request.what() == "fill") return Fill();
    if (request.what() == "gets") return Gets();
    if (request.what() == "finds") return Finds();
    if (request.what() == "copies") return Copies();
    if (request.what() != "drop") return absl::InvalidArgumentError("no such request");
    map_ = {};
    return Json::object();
  }

 private:
  // The key, and whatever.
  std::string ValueOf(const Key& key) const {
    std::string value(size_, 'v');
    std::memcpy(value.data(), key.data(), key.size());
    return value;
  }
  static bool IsOf(absl::string_view value, const Key& key, uint64_t size) {
    return value.size() == size && std::memcmp(value.data(), key.data(), key.size()) == 0;
  }

  absl::StatusOr<Json> Fill() {
    absl::Status failure;
    if (in_map_) map_.reserve(map_.size() + keys_);
    const uint64_t began = NowNs();
    for (uint64_t i = first_; i < first_ + keys_ && failure.ok(); ++i) {
      const Key key = NumberedKey(set_, i);
      std::string value = ValueOf(key);
      const absl::Status started = client_->StartPut(
          View(key), value, {}, [&failure](const absl::StatusOr<uint64_t>& version) {
            if (!version.ok()) failure = version.status();
          });
      if (!started.ok()) return started;
      if (in_map_) map_.emplace(std::string(View(key)), std::move(value));
      while (client_->in_flight() >= kPutsInFlight) client_->Wait(absl::Seconds(1));
    }
    while (client_->in_flight() > 0) client_->Wait(absl::Seconds(1));
    if (!failure.ok()) return failure;
    return RateOf(keys_, NowNs() - began);
  }

  // `batch(keys)` says whether all were right.
  template <typename Batch>
  absl::StatusOr<Json> InBatches(Batch batch) {
    std::vector<Key> keys(batch_);
    uint64_t done = 0;
    const uint64_t began = NowNs();
    for (; done < count_; done += batch_) {
      for (Key& key : keys) key = NumberedKey(set_, random_.Below(keys_));
      if (!batch(keys)) return absl::DataLossError("a wrong answer, or none");
    }
    return RateOf(done, NowNs() - began);
  }

  absl::StatusOr<Json> Gets() {
    std::vector<absl::string_view> views(batch_);
    const Counters before = client_->counters();
    absl::StatusOr<Json> json = InBatches([&](const std::vector<Key>& keys) {
      for (size_t i = 0; i < keys.size(); ++i) views[i] = View(keys[i]);
      const std::vector<absl::StatusOr<Value>> values = client_->MultiGet(views);
      for (size_t i = 0; i < keys.size(); ++i) {
        if (!values[i].ok() || !IsOf(values[i]->bytes, keys[i], size_)) return false;
      }
      return true;
    });
    const uint64_t gets = client_->counters().gets - before.gets;
    if (json.ok() && gets > 0) {
      (*json)["reads_per_get"] =
          static_cast<double>(client_->counters().reads - before.reads) / static_cast<double>(gets);
    }
    return json;
  }

  absl::StatusOr<Json> Finds() {
    return InBatches([&](const std::vector<Key>& keys) {
      bool right = true;
      for (const Key& key : keys) {
        const auto found = map_.find(View(key));
        if (found == map_.end()) return false;
        right &= IsOf(found->second, key, size_);
      }
      return right;
    });
  }

  absl::StatusOr<Json> Copies() {
    if (memory_ == nullptr || memory_->bytes() != mib_ << 20)
      memory_ = std::make_unique<Memory>(mib_ << 20);
    std::vector<const std::byte*> from(batch_);
    std::vector<std::byte> to(bytes_);
    const uint64_t places = (memory_->bytes() - bytes_) / 128;
    uint64_t sum = 0;
    const uint64_t began = NowNs();
    uint64_t done = 0;
    for (; done < count_; done += batch_) {
      for (const std::byte*& one : from) {
        one = memory_->data() + random_.Below(places) * 128;
        for (uint64_t at = 0; at < bytes_; at += 64) __builtin_prefetch(one + at);
      }
      for (const std::byte* one : from) {
        std::memcpy(to.data(), one, bytes_);
        sum += static_cast<uint64_t>(to[0]);
      }
    }
    const uint64_t took = NowNs() - began;
    if (sum != done) return absl::DataLossError("copied something else");
    return RateOf(done, took);
  }

  static Json RateOf(uint64_t count, uint64_t took_ns) {
    const double seconds = static_cast<double>(took_ns) / 1e9;
    return {{"count", count}, {"seconds", seconds}, {"per_second", count / seconds}};
  }

  std::unique_ptr<Client> client_;
  absl::flat_hash_map<std::string, std::string> map_;
  std::unique_ptr<Memory> memory_;
  loadgen::Random random_{1};
  // Of the request under way.
  uint64_t set_ = 0, keys_ = 1, size_ = 8, batch_ = 16, count_ = 1, bytes_ = 256, mib_ = 1,
           first_ = 0;
  bool in_map_ = true;
};

int Run(int argc, char** argv) {
  const absl::StatusOr<std::vector<std::string>> rest = ParseFlags(ArgumentsOf(argc, argv));
  if (!rest.ok() || !rest->empty() || FLAGS_server.empty()) {
    std::cerr << "usage: native_probe --server=URI, requests on standard input\n";
    return 2;
  }
  Options options;
  options.wait = WaitMode::kSpin;
  options.operations_max = kPutsInFlight + 1;
  options.deadline = absl::Seconds(10);
  options.slot_cache_bytes = 0;  // cold: the window, then the item
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(FLAGS_server, options);
  if (!client.ok()) {
    std::cerr << "native_probe: " << client.status().message() << "\n";
    return 1;
  }
  Probe probe(*std::move(client));
  return Serve([&](Request& request) { return probe.Answer(request); });
}

}  // namespace
}  // namespace osprey::bench

int main(int argc, char** argv) { return osprey::bench::Run(argc, argv); }
