#include "tests/cluster/cluster_processes.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "server/cluster/configuration/cluster_record.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

// On a busy machine etcd takes more than a second.
constexpr absl::Duration kStoreTimeout = absl::Seconds(10);
constexpr absl::Duration kPollEvery = absl::Milliseconds(20);
constexpr absl::Duration kStaysFor = absl::Milliseconds(500);
const absl::Duration kStartMax = absl::Minutes(InLab() ? 5 : 1);
// A primary hands over within 6 s, or ends without.
constexpr absl::Duration kEndMax = absl::Seconds(30);

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "cluster for tests: %s\n", why.c_str());
  std::abort();
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string UriOf(const EtcdOptions& options) { return options.uri.ToString(); }

// Above the ports of other tests' listeners in the lab's machine, which the kernel picks.
std::string NewAddress(const std::string& directory, const std::string& name) {
  if (!InLab()) return absl::StrCat("shm://", directory, "/", name);
  static int port = 12000 + static_cast<int>(std::random_device()() % 10'000);
  // Shards listen at the ports behind it.
  return absl::StrCat("rdma://", std::getenv("LAB_IP"), ":", port += static_cast<int>(kShardsMax));
}

}  // namespace

ClusterProcesses::ClusterProcesses(ClusterProcessesOptions options)
    : options_(std::move(options)),
      directory_(NewTemporaryDirectory()),
      etcd_uri_(UriOf(etcd_.ClientOptions())),
      keys_(etcd_.ClientOptions().uri.KeyPrefix()),
      store_(etcd_.NewClient()) {
  for (size_t i = 0; i < options_.servers; ++i) {
    const std::string id = absl::StrCat("s", i);
    servers_.push_back({.id = id,
                        .uri = NewAddress(directory_, id),
                        .cluster_uri = NewAddress(directory_, id + "-links"),
                        .logs = {}});
  }
  std::ofstream(directory_ + "/key") << "the secret of this test's cluster: 32 B and more\n";
  chmod((directory_ + "/key").c_str(), 0600);
  Create();
  for (size_t i = 0; i < servers(); ++i) Start(i);
  if (!AwaitInSync(replicas(), kStartMax)) Die(WhyNot());
}

ClusterProcesses::~ClusterProcesses() {
  for (size_t i = 0; i < servers(); ++i) Kill(i);
}

void ClusterProcesses::Create() {
  ClusterRecord record;
  record.id = 0x0123456789abcdef;
  record.shards = options_.shards;
  record.replicas = static_cast<uint32_t>(replicas());
  record.min_in_sync = options_.min_in_sync;
  record.hash_seed = 0x5e0f000000000001;
  record.shard_bytes =
      options_.shard_bytes != 0 ? options_.shard_bytes : (uint64_t{16} << 20) / options_.shards;
  const TransactionResult created =
      store_->Execute(CreateCluster(keys_, record), absl::Seconds(30));
  if (created.outcome != TransactionOutcome::kApplied)
    Die(absl::StrCat("it is not created: ", created.status.ToString()));
}

std::string ClusterProcesses::uri() const {
  std::vector<std::string> parts;
  for (const Server& server : servers_) {
    absl::string_view address = server.uri;
    if (!parts.empty()) address.remove_prefix(address.find("//") + 2);
    parts.emplace_back(address);
  }
  return absl::StrJoin(parts, ",");
}

void ClusterProcesses::Start(size_t index) {
  Server& server = servers_[index];
  assert(server.pid < 0);
  std::optional<std::vector<int64_t>> keys;
  for (const absl::Time end = absl::Now() + kStartMax; !keys.has_value(); keys = KeysOfServers()) {
    if (absl::Now() > end) Die("the store does not answer");
  }
  server.key_before = (*keys)[index];
  std::vector<std::string> command = {
      "setpriv",
      "--pdeathsig=KILL",  // it does not outlive a test that is killed
      "server/kvserver",
      "--cluster=" + etcd_uri_,
      "--server-id=" + server.id,
      "--cluster-listen=" + server.cluster_uri,
      "--cluster-key-file=" + directory_ + "/key",
      "--listen=" + server.uri,
      "--memory=" + options_.memory};
  command.insert(command.end(), options_.flags.begin(), options_.flags.end());
  server.logs.push_back(absl::StrCat(directory_, "/", server.id, ".", server.logs.size(), ".log"));
  server.pid = StartProgram(command, server.logs.back());
  if (server.pid < 0) Die("server/kvserver cannot be run from here");
}

void ClusterProcesses::Kill(size_t index) {
  Server& server = servers_[index];
  server.is_stopped = false;
  const pid_t pid = std::exchange(server.pid, -1);
  if (pid < 0) return;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

int ClusterProcesses::Terminate(size_t index) {
  const pid_t pid = std::exchange(servers_[index].pid, -1);
  assert(pid > 0);
  kill(pid, SIGTERM);
  int status = 0;
  for (const absl::Time end = absl::Now() + kEndMax; absl::Now() < end;
       absl::SleepFor(kPollEvery)) {
    if (waitpid(pid, &status, WNOHANG) != 0)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return 128 + SIGKILL;
}

void ClusterProcesses::Stop(size_t index) {
  kill(servers_[index].pid, SIGSTOP);
  waitpid(servers_[index].pid, nullptr, WUNTRACED);
  servers_[index].is_stopped = true;
}

void ClusterProcesses::Continue(size_t index) {
  kill(servers_[index].pid, SIGCONT);
  servers_[index].is_stopped = false;
}

std::vector<std::string> ClusterProcesses::Crashed() {
  std::vector<std::string> all;
  for (size_t i = 0; i < servers(); ++i) {
    Server& server = servers_[i];
    int status = 0;
    if (server.pid < 0 || waitpid(server.pid, &status, WNOHANG) <= 0) continue;
    server.pid = -1;
    all.push_back(absl::StrCat("server ", server.id, " has ended with status ", status, ":\n",
                               ReadFile(server.logs.back())));
  }
  return all;
}

std::string ClusterProcesses::Log(size_t server) const {
  std::string all;
  for (const std::string& path : servers_[server].logs) absl::StrAppend(&all, ReadFile(path));
  return all;
}

std::optional<ShardRecord> ClusterProcesses::Record(uint32_t shard) {
  const absl::StatusOr<RangeAnswer> answer = store_->Range({keys_.Shard(shard)}, kStoreTimeout);
  if (!answer.ok() || answer->keys.empty()) return std::nullopt;
  absl::StatusOr<ShardRecord> record = DecodeShardRecord(answer->keys[0].value);
  if (!record.ok()) Die(record.status().ToString());
  return *std::move(record);
}

std::optional<size_t> ClusterProcesses::Primary(uint32_t shard) {
  const std::optional<ShardRecord> record = Record(shard);
  for (size_t i = 0; record.has_value() && i < servers(); ++i) {
    if (servers_[i].id == record->primary) return i;
  }
  return std::nullopt;
}

std::optional<std::vector<size_t>> ClusterProcesses::Primaries() {
  std::vector<size_t> primaries(servers());
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    if (!Record(shard).has_value()) return std::nullopt;
    if (const std::optional<size_t> primary = Primary(shard); primary.has_value())
      ++primaries[*primary];
  }
  return primaries;
}

bool ClusterProcesses::AwaitBalance(absl::Duration time_max) {
  for (const absl::Time end = absl::Now() + time_max; absl::Now() < end;
       absl::SleepFor(kPollEvery)) {
    const std::optional<std::vector<size_t>> primaries = Primaries();
    if (!primaries.has_value()) continue;
    const auto [least, most] = std::minmax_element(primaries->begin(), primaries->end());
    if (std::accumulate(primaries->begin(), primaries->end(), size_t{0}) == options_.shards &&
        *most - *least <= 1)
      return true;
  }
  return false;
}

std::optional<std::vector<int64_t>> ClusterProcesses::KeysOfServers() {
  const absl::StatusOr<RangeAnswer> answer = store_->Range({keys_.Servers(), true}, kStoreTimeout);
  if (!answer.ok()) return std::nullopt;
  std::vector<int64_t> revisions(servers());
  for (size_t i = 0; i < servers(); ++i) {
    for (const StoredKey& key : answer->keys) {
      if (key.key == keys_.Server(servers_[i].id)) revisions[i] = key.create_revision;
    }
  }
  return revisions;
}

std::vector<uint64_t> ClusterProcesses::Terms() {
  std::vector<uint64_t> terms;
  for (uint32_t shard = 0; shard < shards(); ++shard) {
    const std::optional<ShardRecord> record = Record(shard);
    terms.push_back(record.has_value() ? record->term : 0);
  }
  return terms;
}

uint64_t ClusterProcesses::ChangesSince(const std::vector<uint64_t>& terms) {
  const std::vector<uint64_t> now = Terms();
  uint64_t most = 0;
  for (uint32_t shard = 0; shard < shards(); ++shard)
    most = std::max(most, now[shard] - terms[shard]);
  return most;
}

std::vector<size_t> ClusterProcesses::Copies() {
  std::vector<size_t> copies(servers());
  for (uint32_t shard = 0; shard < shards(); ++shard) {
    const std::optional<ShardRecord> record = Record(shard);
    for (size_t i = 0; record.has_value() && i < servers(); ++i)
      copies[i] += record->Find(servers_[i].id) != nullptr;
  }
  return copies;
}

bool ClusterProcesses::HasMoves() {
  for (uint32_t shard = 0; shard < shards(); ++shard) {
    const std::optional<ShardRecord> record = Record(shard);
    if (!record.has_value() || record->move.has_value()) return true;
  }
  return false;
}

bool ClusterProcesses::RunKvcli(const std::string& command, const std::vector<std::string>& args) {
  std::vector<std::string> words = {"tools/kvcli", "cluster", command, etcd_uri_};
  words.insert(words.end(), args.begin(), args.end());
  words.push_back("--timeout=30");
  const ProgramResult result = RunProgram(words);
  std::cout << result.out << result.err;
  return result.exit_status == 0;
}

bool ClusterProcesses::IsInSync(size_t replicas, uint32_t shard, const std::vector<int64_t>& keys) {
  const std::optional<ShardRecord> record = Record(shard);
  if (!record.has_value() || record->primary.empty()) return false;
  size_t in_sync = 0;
  for (size_t i = 0; i < servers(); ++i) {
    const Server& server = servers_[i];
    const Replica* const replica = record->Find(server.id);
    in_sync += server.pid > 0 && !server.is_stopped && replica != nullptr &&
               replica->create_revision == keys[i] && keys[i] != server.key_before;
  }
  return in_sync == replicas && record->in_sync.size() == replicas;
}

bool ClusterProcesses::AwaitInSync(size_t replicas, absl::Duration time_max) {
  absl::Time since = absl::InfiniteFuture();
  for (const absl::Time end = absl::Now() + time_max; absl::Now() < end;
       absl::SleepFor(kPollEvery)) {
    const std::optional<std::vector<int64_t>> keys = KeysOfServers();
    bool are_in_sync = keys.has_value();
    for (uint32_t shard = 0; are_in_sync && shard < options_.shards; ++shard)
      are_in_sync = IsInSync(replicas, shard, *keys);
    if (!are_in_sync) {
      since = absl::InfiniteFuture();
    } else if (since == absl::InfiniteFuture()) {
      since = absl::Now();
    } else if (absl::Now() - since >= kStaysFor) {
      return true;
    }
  }
  return false;
}

std::optional<size_t> ClusterProcesses::AwaitOtherPrimary(size_t server, absl::Duration time_max) {
  for (const absl::Time end = absl::Now() + time_max; absl::Now() < end;
       absl::SleepFor(kPollEvery)) {
    const std::optional<size_t> primary = Primary();
    if (primary.has_value() && *primary != server) return primary;
  }
  return std::nullopt;
}

std::string ClusterProcesses::WhyNot() {
  std::string all;
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    const std::optional<ShardRecord> record = Record(shard);
    absl::StrAppend(&all, "the record of shard ", shard, ": ",
                    record.has_value() ? EncodeShardRecord(*record) : "none", "\n");
  }
  for (size_t i = 0; i < servers(); ++i)
    absl::StrAppend(&all, "--- ", servers_[i].id, servers_[i].pid < 0 ? " (ended)" : "", ":\n",
                    Log(i));
  return all;
}

}  // namespace osprey
