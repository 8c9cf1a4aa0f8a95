#include "tests/support/reads_count.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

constexpr int kMoments = 8;  // of a fill; from a half to all of the keys, a doubling apart
constexpr int kDepth = 64;
constexpr absl::Duration kDeadline = absl::Seconds(20);

[[noreturn]] void Die(absl::string_view what, const absl::Status& status) {
  std::fprintf(stderr, "counting READs: %s: %s\n", std::string(what).c_str(),
               status.ToString().c_str());
  std::exit(4);
}

std::string KeyOf(uint64_t i) { return absl::StrFormat("%08x", static_cast<uint32_t>(i)); }

std::unique_ptr<Client> Connect(const std::string& uri, uint64_t slot_cache_bytes) {
  Options options;
  options.connect_timeout = kDeadline;
  options.deadline = kDeadline;
  options.slot_cache_bytes = slot_cache_bytes;
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri, options);
  if (!client.ok()) Die("connect", client.status());
  return *std::move(client);
}

void AwaitAll(Client& client) {
  while (client.in_flight() > 0) client.Wait(absl::Seconds(1));
}

void AwaitRoom(Client& client) {
  while (client.in_flight() >= kDepth) client.Wait(absl::Seconds(1));
}

void Put(Client& client, uint64_t i, const std::string& value) {
  AwaitRoom(client);
  const absl::Status started =
      client.StartPut(KeyOf(i), value, {}, [](const absl::StatusOr<uint64_t>& version) {
        if (!version.ok()) Die("put", version.status());
      });
  if (!started.ok()) Die("put", started);
}

void Get(Client& client, uint64_t i, bool present) {
  AwaitRoom(client);
  const absl::Status started =
      client.StartGet(KeyOf(i), [present](const absl::StatusOr<Value>& value) {
        if (value.ok() != present) Die("get", value.status());
      });
  if (!started.ok()) Die("get", started);
}

struct Counted {
  double reads_per_get = 0;
  double torn_share = 0;
};

// The cost of `gets`, in READs a GET.
template <typename Gets>
Counted Count(Client& client, Gets&& gets) {
  AwaitAll(client);
  const Counters before = client.counters();
  gets();
  AwaitAll(client);
  const Counters after = client.counters();
  const double count = static_cast<double>(after.gets - before.gets);
  return {static_cast<double>(after.reads - before.reads) / count,
          static_cast<double>(after.torn - before.torn) / count};
}

double StatOf(Client& client, absl::string_view name) {
  const absl::StatusOr<std::string> stats = client.ServerStats();
  if (!stats.ok()) Die("stats", stats.status());
  double value = 0;
  if (absl::SimpleAtod(StatIn(*stats, name), &value)) return value;
  Die("stats", absl::NotFoundError(absl::StrCat("the server does not tell ", name)));
}

// CPU seconds of a process so far.
double CpuSecondsOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  // After the name in parentheses: state is field 3, utime and stime are 14 and 15.
  const std::vector<std::string> fields = absl::StrSplit(line.substr(line.rfind(')') + 2), ' ');
  uint64_t user = 0, system = 0;
  if (fields.size() < 13 || !absl::SimpleAtoi(fields[11], &user) ||
      !absl::SimpleAtoi(fields[12], &system)) {
    Die("read /proc", absl::DataLossError(line));
  }
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// The number of times that threads of a process have gone to sleep so far. A poller with work does,
// too, after each piece of it.
double SleepsOf(pid_t pid) {
  double sleeps = 0;
  for (const auto& task :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"))) {
    std::ifstream file(task.path() / "status");
    for (std::string line; std::getline(file, line);) {
      const std::pair<absl::string_view, absl::string_view> field =
          absl::StrSplit(line, absl::MaxSplits(':', 1));
      double count = 0;
      if (field.first == "voluntary_ctxt_switches" && absl::SimpleAtod(field.second, &count))
        sleeps += count;
    }
  }
  return sleeps;
}

// Zipf with exponent 0.99 over 0 … n - 1, by inverting the distribution's sum.
class Zipf {
 public:
  explicit Zipf(uint64_t n) {
    double sum = 0;
    for (uint64_t i = 1; i <= n; ++i)
      sums_.push_back(sum += std::pow(static_cast<double>(i), -0.99));
  }
  template <typename Random>
  uint64_t operator()(Random& random) const {
    const double at = std::uniform_real_distribution<double>(0, sums_.back())(random);
    return static_cast<uint64_t>(std::upper_bound(sums_.begin(), sums_.end(), at) - sums_.begin());
  }

 private:
  std::vector<double> sums_;
};

class Bench {
 public:
  explicit Bench(const ReadsOptions& options)
      : options_(options), listen_(NewListenAddress()), random_(options.seed) {}

  std::vector<ReadsRow> Run() {
    CountFill("inline 8 B keys, 8 B values", 8, 1.10, 1.10);
    CountFill("100 B values", 100, 2.05, 1.15);
    CountPureGets();
    CountUpdates();
    return rows_;
  }

 private:
  void StartServer() {
    server_.reset();
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(listen_, {absl::StrCat("--memory=", options_.memory)});
    if (!server.ok()) Die("start kvserver", server.status());
    server_ = *std::move(server);
  }

  uint64_t Present(uint64_t keys) {
    return std::uniform_int_distribution<uint64_t>(0, keys - 1)(random_);
  }

  // Cold: a client with an empty location cache. Known: a client that has seen every key once.
  void CountFill(const std::string& what, size_t value_bytes, double cold_target,
                 double miss_target) {
    StartServer();
    const std::unique_ptr<Client> writer = Connect(server_->uri(), 0);
    const std::string value(value_bytes, 'v');
    double cold = 0, known = 0, miss = 0;
    uint64_t filled = 0;
    for (int moment = 1; moment <= kMoments; ++moment) {
      const double share = std::exp2(static_cast<double>(moment - kMoments) / kMoments);
      const uint64_t keys = static_cast<uint64_t>(static_cast<double>(options_.keys) * share);
      for (; filled < keys; ++filled) Put(*writer, filled, value);
      AwaitAll(*writer);
      const std::unique_ptr<Client> forgetful = Connect(server_->uri(), 0);
      cold += Count(*forgetful, [&] {
                for (uint64_t i = 0; i < options_.samples; ++i)
                  Get(*forgetful, Present(keys), true);
              }).reads_per_get;
      miss += Count(*forgetful, [&] {
                for (uint64_t i = 0; i < options_.samples; ++i)
                  Get(*forgetful, options_.keys + Present(keys), false);
              }).reads_per_get;
      const std::unique_ptr<Client> knowing = Connect(server_->uri(), uint64_t{64} << 20);
      std::vector<uint64_t> sample(options_.samples);
      for (uint64_t& i : sample) i = Present(keys);
      const auto get_all = [&] {
        for (uint64_t i : sample) Get(*knowing, i, true);
      };
      Count(*knowing, get_all);
      known += Count(*knowing, get_all).reads_per_get;
    }
    rows_.push_back({absl::StrCat(what, ": hit, cold"), cold / kMoments, cold_target, "READs/GET"});
    rows_.push_back({absl::StrCat(what, ": miss"), miss / kMoments, miss_target, "READs/GET"});
    if (value_bytes > 32) {
      rows_.push_back(
          {absl::StrCat(what, ": hit, slot known"), known / kMoments, 1.01, "READs/GET"});
    }
  }

  // REQUIRES, as the next: the server holds options_.keys keys.
  void CountPureGets() {
    const std::unique_ptr<Client> client = Connect(server_->uri(), uint64_t{16} << 20);
    const double requests = StatOf(*client, "requests");
    const double cpu = CpuSecondsOf(server_->pid());
    const double sleeps = SleepsOf(server_->pid());
    const absl::Time start = absl::Now();
    // Long enough that the clock ticks of /proc (10 ms) do not decide.
    while (absl::Now() - start < absl::Seconds(4)) {
      for (int i = 0; i < 1000; ++i) Get(*client, Present(options_.keys), true);
    }
    AwaitAll(*client);
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    const double used = CpuSecondsOf(server_->pid()) - cpu;
    const double woken = SleepsOf(server_->pid()) - sleeps;
    rows_.push_back({"pure GET load: requests at the server",
                     StatOf(*client, "requests") - requests, 0, "requests"});
    rows_.push_back({"pure GET load: wake-ups of the server", woken / seconds, 20, "a second"});
    rows_.push_back({"pure GET load: CPU of the server", 100 * used / seconds, 1, "% of a core",
                     /*is_count=*/false});
  }

  void CountUpdates() {
    const Zipf zipf(options_.keys);
    const std::string value(100, 'u');
    const std::unique_ptr<Client> reader = Connect(server_->uri(), uint64_t{16} << 20);
    const std::unique_ptr<Client> writer = Connect(server_->uri(), 0);
    const auto mixed = [&](bool update) {
      return Count(*reader, [&] {
        for (uint64_t i = 0; i < 4 * options_.samples; ++i) {
          Get(*reader, zipf(random_), true);
          if (update) Put(*writer, zipf(random_), value);
          if (update) writer->Poll();
        }
        AwaitAll(*writer);
      });
    };
    mixed(false);  // learns the slots
    const double read_only = mixed(false).reads_per_get;
    const Counted updated = mixed(true);
    rows_.push_back({"50 % updates, Zipf 0.99 / read-only", updated.reads_per_get / read_only, 1.05,
                     "times the READs"});
    rows_.push_back(
        {"50 % updates, Zipf 0.99: torn READs", 100 * updated.torn_share, 1, "% of GETs"});
  }

  const ReadsOptions options_;
  const std::string listen_;
  std::mt19937_64 random_;
  std::unique_ptr<ServerProcess> server_;
  std::vector<ReadsRow> rows_;
};

}  // namespace

std::vector<ReadsRow> CountReads(const ReadsOptions& options) { return Bench(options).Run(); }

}  // namespace osprey
