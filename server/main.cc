// kvserver: serves the table to clients that READ it.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gflags/gflags.h"
#include "server/config/config.h"
#include "server/config/host_limits.h"
#include "server/config/sizing.h"
#include "server/engine/pollers.h"
#include "server/program/flags.h"
#include "server/program/out_of_memory.h"
#include "server/program/printable.h"
#include "server/program/size_flag.h"
#include "server/program/version.h"
#include "server/serve.h"

// Each ends with its default, since --help prints nothing else of it.
DEFINE_string(listen, "rdma://0.0.0.0:7411",
              "addresses at which clients connect, separated by commas: rdma://HOST[:PORT] (port 0 "
              "picks one), shm://PATH [rdma://0.0.0.0:7411]");
DEFINE_string(memory, "1GiB",
              "size of the table, such as 512MiB; over RDMA all of it is pinned at start [1GiB]");
DEFINE_string(
    poll, "adaptive",
    "busy|adaptive|event: never sleep, sleep after a moment without work, or sleep at once "
    "[adaptive]");
DEFINE_int64(connections_max, 1024, "bound of connections; more are refused [1024]");
DEFINE_string(
    value_max, "",
    "the longest value that is accepted, at most 1GiB, with --cluster 1MiB [1GiB, or 1MiB; "
    "if that is less: --memory, or with several --pollers a part of it]");
DEFINE_string(
    evict, "none",
    "none|clock: when memory is full, refuse writes that need more, or evict cold keys [none]");
DEFINE_int64(
    connections_per_address_max, 0,
    "bound of connections from one address (over shm:// of one user); 0: --connections-max [0]");
DEFINE_string(auth_key_file, "",
              "file with the key, 32 B to 4 KiB, of mode 0600; clients need the same key [none: "
              "any client that can connect may do everything]");
DEFINE_string(socket_mode, "0600",
              "0600|0660|0666: mode of shm:// sockets: this user, also its group, or every user of "
              "this host may connect [0600]");
DEFINE_int64(pollers, 1,
             "threads that serve, 1 to 64. The memory is divided into some four partitions for "
             "each, and a value lies in one [1]");
DEFINE_string(metrics, "",
              "HOST:PORT or PORT: address of the HTTP endpoint for Prometheus metrics (/metrics), "
              "health checks (/healthz) and a status page (/); without HOST on 127.0.0.1 alone; "
              "unauthenticated [none: no endpoint]");
DEFINE_string(
    data_dir, "",
    "directory that keeps the data across restarts; created if it does not exist; holds "
    "the log and checkpoints, up to 4 times the data [none: data is held in memory only]");
DEFINE_string(
    durability, "async",
    "async|sync: with --data-dir, a write is acknowledged when it is written to the log (killing "
    "the server loses nothing, a crash of the machine at most the last --durability-lag), or when "
    "it is on the disk [async]");
DEFINE_string(durability_lag, "100ms",
              "with --durability=async, the most that a crash of the machine may lose; writes wait "
              "while the disk is further behind [100ms]");
DEFINE_string(log_memory, "64MiB",
              "with --data-dir, the most memory for changes that are not written yet [64MiB]");
DEFINE_string(checkpoint_log_bytes, "2GiB",
              "with --data-dir, a checkpoint is written when the log since the last one has this "
              "length, and that of the data; less means a faster start and more writing [2GiB]");
DEFINE_string(clock_jump_max, "24h",
              "with --data-dir, by how much the machine's clock may be behind the last write; the "
              "start is refused if it is more, since keys would live longer [24h]");
DEFINE_string(
    cluster, "",
    "etcd://HOST:2379[,HOST:2379]/NAME, or etcds:// for TLS: the server is one of the "
    "cluster NAME (kvcli cluster create), serves while it is the primary, and is a backup "
    "otherwise; all data is in memory [none: a server by itself]");
DEFINE_string(server_id, "",
              "with --cluster, the name of this server, which no other has: a to z, 0 to 9 and - "
              "[none: no cluster]");
DEFINE_string(cluster_listen, "",
              "with --cluster, addresses at which the other servers connect, in the form of "
              "--listen, and other ones [none: no cluster]");
DEFINE_string(
    cluster_key_file, "",
    "with --cluster, file with the key of the servers, 32 B to 4 KiB, of mode 0600; other "
    "than --auth-key-file; needed unless --cluster-listen is shm:// alone [none: there the "
    "socket's mode decides]");
DEFINE_string(cluster_ca_file, "",
              "with etcds://, file with the certificates of the authority that signed etcd's, in "
              "PEM [none: the system's authorities]");
DEFINE_string(
    cluster_certificate_file, "",
    "with etcds://, file with this server's certificate for etcd, in PEM [none: it shows none]");
DEFINE_string(cluster_certificate_key_file, "",
              "with --cluster-certificate-file, file with its key, in PEM [none: no certificate]");
DEFINE_string(cluster_user, "", "with etcds://, the user at etcd [none: no user]");
DEFINE_string(cluster_password_file, "",
              "with --cluster-user, file with the password, a line, of mode 0600 [none: no user]");
DEFINE_string(backup_timeout, "1s",
              "with --cluster, a primary may drop a backup that acknowledges nothing for so long; "
              "writes wait until then, 100ms to 1m [1s]");
DEFINE_string(zone, "",
              "with --cluster, what may fail at once, as a rack: copies of a shard are placed in "
              "different zones where there is room [none: as all servers without one]");
DEFINE_string(
    rejoin_after, "30s",
    "with --cluster, the copies of a server that has ended wait for so long that it comes "
    "back, before servers with room make them, 0s to 24h [30s]");
DEFINE_string(copy_rate, "",
              "with --cluster, bytes a second that this server sends at most for copies to other "
              "servers, as 100MiB: least 1MiB [none: no limit]");
DEFINE_string(memory_for, "",
              "KEYS,KEY_BYTES,VALUE_BYTES: print the --memory that such pairs fill to nine tenths, "
              "and end [none: serve]");
DEFINE_bool(huge_pages, false, "use reserved huge pages, if there are enough [no]");

namespace osprey::server {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitOther = 4;

void PrintHelp() {
  std::printf(
      "usage: kvserver [FLAG]...\n"
      "Serves a key-value table that clients read by RDMA READs. Prints \"ready URI\" for each "
      "address when it accepts\n"
      "clients, or, with --cluster, when it has started; the primary accepts them. SIGTERM and "
      "SIGINT end it. Data is\n"
      "held in memory, with --data-dir also on disk, with --cluster also by other servers.\n\n"
      "%s"
      "In names - and _ are alike.\n\n"
      "Example: kvserver --listen=rdma://10.0.0.7:7411,shm:///run/osprey.sock --memory=4GiB\n\n"
      "Exit status: 0 it ended on request; 2 invalid flags; 3 it cannot listen; 4 other errors.\n",
      DescribeFlags("server/main", {{"--flagfile=FILE", "read flags from FILE, a line each"},
                                    {"--help", "print this and end; also -h"},
                                    {"--version", "print the version and end"}})
          .c_str());
}

int Fail(int exit_status, absl::string_view message) {
  const std::string line = absl::StrCat("kvserver: ", Printable(message), "\n");
  std::fputs(line.c_str(), stderr);
  return exit_status;
}

int PrintMemoryFor(absl::string_view text, int64_t pollers) {
  const absl::StatusOr<Pairs> pairs = ParsePairs(text);
  if (!pairs.ok()) return Fail(kExitUsage, pairs.status().message());
  if (pollers < 1 || pollers > kPollersMax)
    return Fail(kExitUsage,
                absl::StrCat("--pollers: ", pollers, " is out of range; write 1 to ", kPollersMax));
  const absl::StatusOr<uint64_t> memory = MemoryFor(*pairs, static_cast<uint32_t>(pollers));
  if (!memory.ok())
    return Fail(absl::IsInvalidArgument(memory.status()) ? kExitUsage : kExitOther,
                memory.status().message());
  std::printf("--memory=%s\n", FormatSize(*memory).c_str());
  return 0;
}

ClusterFlags ClusterFlagsGiven() {
  ClusterFlags flags;
  flags.etcd = {FLAGS_cluster,
                FLAGS_cluster_ca_file,
                FLAGS_cluster_certificate_file,
                FLAGS_cluster_certificate_key_file,
                FLAGS_cluster_user,
                FLAGS_cluster_password_file};
  flags.server_id = FLAGS_server_id;
  flags.listen = FLAGS_cluster_listen;
  flags.key_file = FLAGS_cluster_key_file;
  flags.backup_timeout = FLAGS_backup_timeout;
  flags.zone = FLAGS_zone;
  flags.rejoin_after = FLAGS_rejoin_after;
  flags.copy_rate = FLAGS_copy_rate;
  return flags;
}

int Main(int argc, char** argv) {
  const absl::StatusOr<std::vector<std::string>> arguments = ParseFlags(ArgumentsOf(argc, argv));
  if (!arguments.ok())
    return Fail(kExitUsage, absl::StrCat(arguments.status().message(), "; see kvserver --help"));
  if (AsksForHelp()) {
    PrintHelp();
    return 0;
  }
  if (AsksForVersion()) {
    std::printf("%s\n", VersionLine("kvserver").c_str());
    return 0;
  }
  if (!arguments->empty()) {
    return Fail(kExitUsage, absl::StrCat("unexpected argument '", arguments->front(),
                                         "'; flags begin with --"));
  }
  for (const char* const flag :
       {"auth_key_file", "metrics", "data_dir", "memory_for", "cluster", "server_id",
        "cluster_listen", "zone", "cluster_key_file", "cluster_ca_file", "cluster_certificate_file",
        "cluster_certificate_key_file", "cluster_user", "cluster_password_file"}) {
    if (const absl::Status status = CheckNotEmpty(flag); !status.ok())
      return Fail(kExitUsage, status.message());
  }
  if (!FLAGS_memory_for.empty()) return PrintMemoryFor(FLAGS_memory_for, FLAGS_pollers);
  const absl::StatusOr<Config> config =
      MakeConfig({FLAGS_listen, FLAGS_memory, FLAGS_poll, FLAGS_connections_max, FLAGS_value_max,
                  FLAGS_huge_pages, FLAGS_evict, FLAGS_connections_per_address_max,
                  FLAGS_auth_key_file, FLAGS_socket_mode, FLAGS_pollers, FLAGS_metrics,
                  FLAGS_data_dir, FLAGS_durability, FLAGS_durability_lag, FLAGS_log_memory,
                  FLAGS_checkpoint_log_bytes, FLAGS_clock_jump_max, ClusterFlagsGiven()});
  if (!config.ok()) return Fail(kExitUsage, config.status().message());
  if (const absl::Status status = CheckMachine(*config, ThisMachine()); !status.ok())
    return Fail(kExitUsage, status.message());
  const ServeResult result = Serve(*config);
  if (result.exit != ServeExit::kClean)
    return Fail(static_cast<int>(result.exit), result.status.message());
  return 0;
}

}  // namespace
}  // namespace osprey::server

int main(int argc, char** argv) {
  osprey::EndWhenOutOfMemory("kvserver");
  return osprey::server::Main(argc, argv);
}
