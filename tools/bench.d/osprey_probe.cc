// osprey_probe: executes the commands on standard input on a server, one after the other, and
// prints how long they took.
//
//   osprey_probe --server=URI [--wait=spin|adaptive|event]
//
//   fill keys=i from=0 count=1000 size=8    PUTs keys i0000000 …, many at a time
//   get keys=i of=1000 count=2000        one at a time; keys at random. known=0: by a Client that
//                                        remembers no places. size=: what must be found
//   gets keys=i of=1000 count=20000 depth=16    that many in flight; batch=16: by MultiGet
//   put, puts                            likewise; puts with timed=1 tells p50 and p99 as well
//   spread keys=i of=1000 count=2000 connections=100 depth=64    on so many connections in turn,
//                                        depth GETs at a time
//   bulk-get keys=l of=2 count=50 size=1048576 depth=2    into registered memory; timed=1 tells p50
//   bulk-put                             from there
//   read bytes=256 count=2000            a bare READ
//   ping count=2000
//   hash bytes=1048576 count=100         XXH3 alone, of memory that changes
//   stats                                the server's
//
// Every value is looked at, outside of what is timed. Exit status: 0; 1 if something failed or was
// wrong; 2 usage.

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "client/client.h"
#include "gflags/gflags.h"
#include "server/program/flags.h"
#include "tools/bench.d/probe.h"

DEFINE_string(server, "", "rdma://HOST[:PORT] or shm://PATH");
DEFINE_string(wait, "spin", "how to wait for answers: spin, adaptive or event");

namespace osprey::bench {
namespace {

constexpr uint64_t kCountMax = 1'000'000'000;
constexpr uint64_t kKeysMax = 100'000'000;
constexpr uint64_t kBytesMax = uint64_t{1} << 30;
constexpr int kDepthMax = 4096;
constexpr uint64_t kConnectionsMax = 10'000;
// Not counted: caches, branch predictors, and the connection's own READ after a pause.
constexpr uint64_t kWarmup = 100;
constexpr absl::Duration kWaitMax = absl::Seconds(5);

absl::StatusOr<std::unique_ptr<Client>> NewClient(WaitMode wait, uint64_t slot_cache_bytes,
                                                  int operations_max = kDepthMax) {
  Options options;
  options.wait = wait;
  options.operations_max = operations_max;
  options.slot_cache_bytes = slot_cache_bytes;
  options.buffer_bytes_max = uint64_t{512} << 20;  // some values of 64 MiB at a time
  // An emulated CPU that others share may stand still for a while.
  options.deadline = absl::Seconds(10);
  return Client::Connect(FLAGS_server, options);
}

class Probe {
 public:
  Probe(std::unique_ptr<Client> knowing, std::unique_ptr<Client> forgetful)
      : knowing_(std::move(knowing)), forgetful_(std::move(forgetful)) {}

  absl::StatusOr<Json> Answer(Request& request) {
    set_ = request.Text("keys", "k");
    of_ = std::max<uint64_t>(1, request.Number("of", 1, kKeysMax));
    count_ = request.Number("count", 1, kCountMax);
    size_ = request.Number("size", 8, kBytesMax);
    depth_ = static_cast<int>(std::max<uint64_t>(1, request.Number("depth", 1, kDepthMax)));
    batch_ = request.Number("batch", 0, kDepthMax);
    from_ = request.Number("from", 0, kKeysMax);
    connections_ = request.Number("connections", 1, kConnectionsMax);
    absent_ = request.Number("absent", 0, 1) != 0;
    timed_ = request.Number("timed", 0, 1) != 0;
    bytes_ = request.Number("bytes", 8, kBytesMax);
    client_ = request.Number("known", 1, 1) != 0 ? knowing_.get() : forgetful_.get();
    if (absl::Status status = request.error(); !status.ok()) return status;
    failure_ = absl::OkStatus();
    for (const auto& [name, method] : kMethods) {
      if (request.what() == name) return (this->*method)();
    }
    return absl::InvalidArgumentError("no such request");
  }

 private:
  using Method = absl::StatusOr<Json> (Probe::*)();
  static const std::vector<std::pair<std::string, Method>> kMethods;

  std::string RandomKey() { return KeyOf(set_, random_() % of_); }

  void Check(const absl::Status& status) {
    if (!status.ok() && failure_.ok()) failure_ = status;
  }
  void CheckValue(absl::string_view key, const absl::StatusOr<Value>& value) {
    if (absent_ && absl::IsNotFound(value.status())) return;
    if (absent_ || !value.ok()) return Check(absent_ ? Wrong(key) : value.status());
    if (value->bytes != ValueOf(key, size_)) Check(Wrong(key));
  }
  static absl::Status Wrong(absl::string_view key) {
    return absl::DataLossError(absl::StrCat("a wrong answer for key ", key));
  }

  // `operation(key)` one at a time: each lasts until the next begins, what is done between them
  // aside.
  template <typename Operation, typename After>
  absl::StatusOr<Json> OneAtATime(Operation operation, After after) {
    Histogram times;
    std::vector<uint64_t> each;
    Counters before;
    const uint64_t warmup = std::min(kWarmup, count_);  // few, where each takes long
    for (uint64_t i = 0; i < warmup + count_ && failure_.ok(); ++i) {
      if (i == warmup) before = client_->counters();
      const std::string key = RandomKey();
      const uint64_t began = NowNs();
      auto result = operation(key);
      const uint64_t took = NowNs() - began;
      if (i >= warmup) {
        times.Record(took);
        each.push_back(took);
      }
      after(key, result);
    }
    if (!failure_.ok()) return failure_;
    Json json = Summary(times);
    json["p50_us"] = MedianUs(each);
    AddReads(json, before);
    return json;
  }

  // To the nanosecond: the histogram's is up to 0.8 % above it.
  static double MedianUs(std::vector<uint64_t>& each_ns) {
    const auto middle = each_ns.begin() + static_cast<ptrdiff_t>(each_ns.size() / 2);
    std::nth_element(each_ns.begin(), middle, each_ns.end());
    return static_cast<double>(*middle) / 1e3;
  }

  void AddReads(Json& json, const Counters& before) const {
    const Counters& now = client_->counters();
    const auto per = [](uint64_t a, uint64_t b) {
      return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
    };
    json["reads_per_get"] = per(now.reads - before.reads, now.gets - before.gets);
    json["read_bytes"] = per(now.read_bytes - before.read_bytes, now.reads - before.reads);
    json["torn"] = now.torn - before.torn;
  }

  // Keeps depth_ of them in flight: start(done) begins one, done() is to be called at its end.
  template <typename Start>
  absl::StatusOr<Json> Pipelined(Start start) {
    uint64_t started = 0;
    uint64_t ended = 0;
    const Counters before = client_->counters();
    const uint64_t began = NowNs();
    std::function<void()> next = [&] {
      if (started == count_ || !failure_.ok()) return;
      ++started;
      Check(start([&] { ++ended, next(); }));
    };
    for (int i = 0; i < depth_; ++i) next();
    while (failure_.ok() && ended < count_) client_->Wait(kWaitMax);
    const uint64_t took = NowNs() - began;
    while (client_->in_flight() > 0) client_->Wait(kWaitMax);
    if (!failure_.ok()) return failure_;
    Json json = RateOf(took);
    AddReads(json, before);
    return json;
  }

  Json RateOf(uint64_t took_ns) const {
    const double seconds = static_cast<double>(took_ns) / 1e9;
    return {{"count", count_}, {"seconds", seconds}, {"per_second", count_ / seconds}};
  }

  absl::StatusOr<Json> Fill() {
    uint64_t i = from_;
    client_ = knowing_.get();
    depth_ = std::max(depth_, 128);
    return Pipelined([&](auto done) {
      const std::string key = KeyOf(set_, i++);
      return client_->StartPut(key, ValueOf(key, size_), {},
                               [this, done](const absl::StatusOr<uint64_t>& version) {
                                 Check(version.status());
                                 done();
                               });
    });
  }

  absl::StatusOr<Json> Get() {
    return OneAtATime([&](const std::string& key) { return client_->Get(key); },
                      [&](const std::string& key, auto& value) { CheckValue(key, value); });
  }

  absl::StatusOr<Json> Put() {
    std::string value;
    const std::string longest = ValueOf(KeyOf(set_, 0), size_);
    return OneAtATime([&](const std::string& key) { return client_->Put(key, longest); },
                      [&](const std::string&, auto& version) { Check(version.status()); });
  }

  absl::StatusOr<Json> Ping() {
    return OneAtATime([&](const std::string&) { return client_->Ping(); },
                      [&](const std::string&, auto& took) { Check(took.status()); });
  }

  absl::StatusOr<Json> Read() {
    return OneAtATime(
        [&](const std::string&) { return client_->MeasureRead(static_cast<uint32_t>(bytes_)); },
        [&](const std::string&, auto& took) { Check(took.status()); });
  }

  absl::StatusOr<Json> Gets() {
    if (batch_ != 0) return MultiGets();
    return Pipelined([&](auto done) {
      const std::string key = RandomKey();
      return client_->StartGet(key, [this, key, done](const absl::StatusOr<Value>& value) {
        CheckLength(key, value);
        done();
      });
    });
  }

  // In rates what is looked at counts: as little as can be.
  void CheckLength(const std::string& key, const absl::StatusOr<Value>& value) {
    if (!value.ok()) return Check(value.status());
    const size_t length = std::min(value->bytes.size(), key.size());
    if (value->bytes.size() != size_ || value->bytes.compare(0, length, key, 0, length) != 0)
      Check(Wrong(key));
  }

  absl::StatusOr<Json> MultiGets() {
    return InBatches([&](const std::vector<std::string>& keys) {
      const std::vector<absl::string_view> views(keys.begin(), keys.end());
      const std::vector<absl::StatusOr<Value>> values = client_->MultiGet(views);
      for (size_t i = 0; i < keys.size(); ++i) CheckLength(keys[i], values[i]);
    });
  }

  absl::StatusOr<Json> Puts() {
    const std::string value = ValueOf(KeyOf(set_, 0), size_);
    if (batch_ != 0) {
      return InBatches([&](const std::vector<std::string>& keys) {
        std::vector<KeyValue> items;
        for (const std::string& key : keys) items.push_back({key, value});
        for (const absl::StatusOr<uint64_t>& version : client_->MultiPut(items))
          Check(version.status());
      });
    }
    Histogram times;
    absl::StatusOr<Json> json = Pipelined([&](auto done) {
      const uint64_t began = timed_ ? NowNs() : 0;
      return client_->StartPut(RandomKey(), value, {},
                               [=, this, &times](const absl::StatusOr<uint64_t>& version) {
                                 if (timed_) times.Record(NowNs() - began);
                                 Check(version.status());
                                 done();
                               });
    });
    if (json.ok() && timed_) json->update(Summary(times));
    return json;
  }

  template <typename Batch>
  absl::StatusOr<Json> InBatches(Batch batch) {
    std::vector<std::string> keys(batch_);
    std::vector<uint64_t> each;
    const Counters before = client_->counters();
    const uint64_t began = NowNs();
    for (uint64_t i = 0; i < count_ && failure_.ok(); i += batch_) {
      for (std::string& key : keys) key = RandomKey();
      const uint64_t batch_began = NowNs();
      batch(keys);
      each.push_back(NowNs() - batch_began);
    }
    const uint64_t took = NowNs() - began;
    if (!failure_.ok()) return failure_;
    Json json = RateOf(took);
    json["batch_p50_us"] = MedianUs(each);
    AddReads(json, before);
    return json;
  }

  // GETs on many connections, a Client each, in turn: depth_ at a time.
  absl::StatusOr<Json> Spread() {
    while (crowd_.size() < connections_) {
      absl::StatusOr<std::unique_ptr<Client>> client =
          NewClient(WaitMode::kSpin, 0, Options().operations_max);
      if (!client.ok()) return client.status();
      crowd_.push_back(*std::move(client));
    }
    crowd_.resize(connections_);
    uint64_t next = 0;
    const uint64_t began = NowNs();
    for (uint64_t done = 0; done < count_ && failure_.ok();) {
      const uint64_t together = std::min(static_cast<uint64_t>(depth_), count_ - done);
      uint64_t left = together;
      for (uint64_t i = 0; i < together; ++i) {
        const std::string key = RandomKey();
        const auto check = [this, key, &left](const absl::StatusOr<Value>& value) {
          CheckLength(key, value);
          --left;
        };
        Check(crowd_[(next + i) % connections_]->StartGet(key, check));
        crowd_[(next + i) % connections_]->Poll();
      }
      for (uint64_t i = 0; left > 0 && failure_.ok(); ++i)
        crowd_[(next + i % std::min(together, connections_)) % connections_]->Poll();
      if (!failure_.ok()) crowd_.clear();  // no callback may change `left` any more
      next += together;
      done += together;
    }
    const uint64_t took = NowNs() - began;
    if (!failure_.ok()) return failure_;
    return RateOf(took);
  }

  // A place in the buffer for each that is in flight.
  absl::StatusOr<Buffer> TakeBuffer() {
    free_.clear();
    for (int i = 0; i < depth_; ++i) free_.push_back(i);
    return client_->AllocateBuffer(size_ * static_cast<uint64_t>(depth_));
  }

  absl::StatusOr<Json> BulkGet() {
    absl::StatusOr<Buffer> buffer = TakeBuffer();
    if (!buffer.ok()) return buffer.status();
    std::vector<uint64_t> each;
    absl::StatusOr<Json> json = Pipelined([&](auto done) {
      const std::string key = RandomKey();
      const uint64_t place = free_.back();
      free_.pop_back();
      const uint64_t began = timed_ ? NowNs() : 0;
      const auto check = [=, this, &buffer, &each](const absl::StatusOr<ValueInfo>& info) {
        if (timed_) each.push_back(NowNs() - began);
        Check(info.status());
        if (info.ok() && (info->length != size_ ||
                          std::memcmp(buffer->data() + place * size_, key.data(), key.size()) != 0))
          Check(Wrong(key));
        free_.push_back(place);
        done();
      };
      return client_->StartGetInto(key, *buffer, place * size_, check);
    });
    AddBandwidth(json);
    if (json.ok() && timed_) (*json)["p50_us"] = MedianUs(each);
    return json;
  }

  absl::StatusOr<Json> BulkPut() {
    absl::StatusOr<Buffer> buffer = TakeBuffer();
    if (!buffer.ok()) return buffer.status();
    uint64_t next = 0;
    absl::StatusOr<Json> json = Pipelined([&](auto done) {
      const std::string key = KeyOf(set_, next++ % of_);
      const uint64_t place = free_.back();
      free_.pop_back();
      std::memcpy(buffer->data() + place * size_, key.data(), key.size());
      const auto check = [=, this](const absl::StatusOr<uint64_t>& version) {
        Check(version.status());
        free_.push_back(place);
        done();
      };
      return client_->StartPutFrom(key, *buffer, place * size_, size_, {}, check);
    });
    AddBandwidth(json);
    return json;
  }

  void AddBandwidth(absl::StatusOr<Json>& json) const {
    if (json.ok())
      (*json)["mib_per_second"] =
          json->at("per_second").get<double>() * static_cast<double>(size_) / (1 << 20);
  }

  absl::StatusOr<Json> Hash() {
    std::vector<std::byte> bytes(bytes_, std::byte{'x'});
    Histogram times;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count_; ++i) {
      bytes[0] = static_cast<std::byte>(sum);
      const uint64_t began = NowNs();
      sum += XXH3_64bits(bytes.data(), bytes.size());
      times.Record(NowNs() - began);
    }
    Json json = Summary(times);
    json["sum"] = sum;
    return json;
  }

  absl::StatusOr<Json> Stats() {
    const absl::StatusOr<std::string> text = client_->ServerStats();
    if (!text.ok()) return text.status();
    Json json;
    for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
      const std::pair<absl::string_view, absl::string_view> pair =
          absl::StrSplit(line, absl::MaxSplits('=', 1));
      json[std::string(pair.first)] = std::string(pair.second);
    }
    json["client"] = client_->Describe();
    return json;
  }

  std::unique_ptr<Client> knowing_;
  std::unique_ptr<Client> forgetful_;
  std::vector<std::unique_ptr<Client>> crowd_;
  std::minstd_rand random_{std::random_device()()};

  // Of the request under way.
  std::string set_;
  uint64_t of_ = 1, from_ = 0, count_ = 1, size_ = 8, batch_ = 0, bytes_ = 8, connections_ = 1;
  int depth_ = 1;
  bool absent_ = false, timed_ = false;
  Client* client_ = nullptr;
  std::vector<uint64_t> free_;
  absl::Status failure_;
};

const std::vector<std::pair<std::string, Probe::Method>> Probe::kMethods = {
    {"fill", &Probe::Fill},        {"get", &Probe::Get},     {"gets", &Probe::Gets},
    {"put", &Probe::Put},          {"puts", &Probe::Puts},   {"bulk-get", &Probe::BulkGet},
    {"bulk-put", &Probe::BulkPut}, {"read", &Probe::Read},   {"ping", &Probe::Ping},
    {"hash", &Probe::Hash},        {"stats", &Probe::Stats}, {"spread", &Probe::Spread}};

int Run(int argc, char** argv) {
  const absl::StatusOr<std::vector<std::string>> rest = ParseFlags(ArgumentsOf(argc, argv));
  const bool known = FLAGS_wait == "spin" || FLAGS_wait == "adaptive" || FLAGS_wait == "event";
  if (!rest.ok() || !rest->empty() || FLAGS_server.empty() || !known) {
    std::cerr << "usage: osprey_probe --server=URI [--wait=spin|adaptive|event], requests on "
                 "standard input\n";
    return 2;
  }
  const WaitMode wait = FLAGS_wait == "spin"       ? WaitMode::kSpin
                        : FLAGS_wait == "adaptive" ? WaitMode::kAdaptive
                                                   : WaitMode::kEvent;
  absl::StatusOr<std::unique_ptr<Client>> knowing = NewClient(wait, Options().slot_cache_bytes);
  absl::StatusOr<std::unique_ptr<Client>> forgetful = NewClient(wait, 0);
  if (!knowing.ok() || !forgetful.ok()) {
    std::cerr << "osprey_probe: " << (knowing.ok() ? forgetful : knowing).status().message()
              << "\n";
    return 1;
  }
  Probe probe(*std::move(knowing), *std::move(forgetful));
  return Serve([&](Request& request) { return probe.Answer(request); });
}

}  // namespace
}  // namespace osprey::bench

int main(int argc, char** argv) { return osprey::bench::Run(argc, argv); }
