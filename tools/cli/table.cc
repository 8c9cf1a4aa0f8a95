// The table of kvcli's commands.

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/program/spelling.h"
#include "tools/cli/commands.h"
#include "tools/cli/commands/run.h"

namespace osprey {
namespace {

constexpr Command kCommands[] = {
    {.name = "put",
     .arguments = "KEY VALUE",
     .summary = "store VALUE; --ttl=SECONDS: it expires then; --if-absent, --if-version=N: only if "
                "that holds",
     .example = "put planet saturn --ttl=3600",
     .arguments_min = 2,
     .arguments_max = 2,
     .needs_server = true,
     .flags = kIfAbsent | kIfVersion | kTtl | kLiteral,
     .check = CheckPut,
     .run = RunPut},
    {.name = "get",
     .arguments = "KEY",
     .summary = "print the value; piped, exactly its bytes",
     .example = "get planet",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .flags = kNoFlags,
     .check = nullptr,
     .run = RunGet},
    {.name = "trace",
     .arguments = "get KEY",
     .summary = "print each step of a GET with its time: READs, what was checked, retries; with "
                "-r 2 again, from the cached location",
     .example = "trace get planet",
     .arguments_min = 2,
     .arguments_max = 2,
     .needs_server = true,
     .flags = kNoFlags,
     .check = CheckTrace,
     .run = RunTrace},
    {.name = "del",
     .arguments = "KEY…",
     .summary = "delete; --if-version=N: one key, only if it has that version",
     .example = "del planet moon",
     .arguments_min = 1,
     .arguments_max = kAnyNumber,
     .needs_server = true,
     .flags = kIfVersion,
     .check = nullptr,
     .run = RunDelete},
    {.name = "exists",
     .arguments = "KEY",
     .summary = "print yes or no; the exit status of no is 1",
     .example = "exists planet",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .flags = kNoFlags,
     .check = nullptr,
     .run = RunExists},
    {.name = "incr",
     .arguments = "KEY [N]",
     .summary = "add N (1; may be negative) to a decimal number; an absent key counts as 0",
     .example = "incr visits 5",
     .arguments_min = 1,
     .arguments_max = 2,
     .needs_server = true,
     .flags = kIfVersion,
     .check = CheckIncrement,
     .run = RunIncrement},
    {.name = "append",
     .arguments = "KEY VALUE",
     .summary = "append VALUE to the value; an absent key counts as empty",
     .example = "append log 'one more line'",
     .arguments_min = 2,
     .arguments_max = 2,
     .needs_server = true,
     .flags = kIfVersion | kLiteral,
     .check = CheckPut,
     .run = RunAppend},
    {.name = "expire",
     .arguments = "KEY SECONDS",
     .summary = "let a key that exists expire after SECONDS from now",
     .example = "expire planet 60",
     .arguments_min = 2,
     .arguments_max = 2,
     .needs_server = true,
     .flags = kIfVersion,
     .check = CheckExpire,
     .run = RunExpire},
    {.name = "persist",
     .arguments = "KEY",
     .summary = "let a key that exists live until it is deleted",
     .example = "persist planet",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .flags = kIfVersion,
     .check = nullptr,
     .run = RunPersist},
    {.name = "ttl",
     .arguments = "KEY",
     .summary = "print the seconds until the key expires, or none if it does not",
     .example = "ttl planet",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .flags = kNoFlags,
     .check = nullptr,
     .run = RunTtl},
    {.name = "touch",
     .arguments = "KEY",
     .summary = "count as a use of the key, for a server that evicts cold keys",
     .example = "touch planet",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .flags = kNoFlags,
     .check = nullptr,
     .run = RunTouch},
    {.name = "mget",
     .arguments = "KEY…",
     .summary = "print the keys that exist and their values: piped, KEY, tab, VALUE, in C escapes",
     .example = "mget planet moon",
     .arguments_min = 1,
     .arguments_max = kAnyNumber,
     .needs_server = true,
     .flags = kNoFlags,
     .check = nullptr,
     .run = RunMultiGet},
    {.name = "mput",
     .arguments = "KEY VALUE…",
     .summary = "store several; prints their versions, a line each",
     .example = "mput planet saturn moon titan",
     .arguments_min = 2,
     .arguments_max = kAnyNumber,
     .needs_server = true,
     .flags = kIfAbsent | kTtl | kLiteral,
     .check = CheckMultiPut,
     .run = RunMultiPut},
    {.name = "scan",
     .arguments = "",
     .summary =
         "print all keys, in no order, in C escapes: --prefix=P --values --limit=N --cursor=C",
     .example = "scan --prefix=user/ --values",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .flags = kPrefix | kLimit | kCursor | kValues,
     .check = nullptr,
     .run = RunScan},
    {.name = "count",
     .arguments = "",
     .summary = "print the number of keys; --prefix=P: of those that begin with P",
     .example = "count --prefix=user/",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .flags = kPrefix,
     .check = nullptr,
     .run = RunCount},
    {.name = "bigkeys",
     .arguments = "",
     .summary =
         "print the longest values and keys, and what is stored in each way: --top=N --prefix=P",
     .example = "bigkeys --top=5",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .flags = kPrefix | kTop,
     .check = nullptr,
     .run = RunBigKeys},
    {.name = "export",
     .arguments = "FILE|-",
     .summary = "write all keys, values and times to live to FILE: --format=jsonl|csv|binary "
                "--prefix=P; --resume continues an interrupted export",
     .example = "export backup.jsonl",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .flags = kFormat | kPrefix | kResume,
     .check = CheckExport,
     .run = RunExport},
    {.name = "import",
     .arguments = "FILE|-",
     .summary = "store all records of FILE: --format=jsonl|csv|binary; --if-absent: only keys that "
                "do not exist; --skip=N: all but the first N",
     .example = "import backup.jsonl",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .flags = kFormat | kIfAbsent | kSkip,
     .check = CheckImport,
     .run = RunImport},
    {.name = "flush",
     .arguments = "",
     .summary = "delete every key, and print their number; on a terminal it asks first",
     .example = "flush --yes",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .flags = kYes,
     .check = nullptr,
     .run = RunFlush},
    {.name = "ping",
     .arguments = "",
     .summary = "measure the round trip of one message",
     .example = "ping -r 5 -i 1",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .flags = kNoFlags,
     .check = nullptr,
     .run = RunPing},
    {.name = "stats",
     .arguments = "",
     .summary = "print the connection's transport and device, and the server's counters",
     .example = "stats --json",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .flags = kNoFlags,
     .check = nullptr,
     .run = RunStats},
    {.name = "latency",
     .arguments = "",
     .summary = "measure GETs, PUTs, pings and bare READs for --duration=SECONDS (5) or --count=N "
                "of each, "
                "with values of --size=N bytes (64)",
     .example = "latency --duration=10",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .flags = kSize | kSamples | kDuration,
     .check = CheckLatency,
     .run = RunLatency},
    {.name = "stat",
     .arguments = "",
     .summary = "print the server's rates, a line a second: -i SECONDS, -r N lines (kvcli --stat). "
                "get/s is what clients report to a kvserver with --metrics, else -",
     .example = "stat -i 2 -r 10",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .flags = kNoFlags,
     .check = nullptr,
     .run = RunStat,
     .repeats_itself = true},
    {.name = "doctor",
     .arguments = "",
     .summary = "check whether RDMA works on this machine, and print repairs; --peer=URI: probe a "
                "server; --self-test: move bytes by every layer; --cluster=ETCD_URI: check etcd, "
                "servers and shards of a cluster, and this machine's clocks",
     .example = "doctor --memory=4GiB",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = false,
     .flags = kPeer | kMemory | kSelfTest | kBind | kDevice | kIbPort | kGidIndex | kCluster |
              kCaFile | kCertificateFile | kCertificateKeyFile | kUser | kPasswordFile,
     .check = CheckDoctor,
     .run = RunDoctor},
    {.name = "log",
     .arguments = "verify|dump DIR",
     .summary =
         "verify: read all of a data directory, check it, and print what it has; dump: print "
         "the entries of its log. A server may have it open",
     .example = "log verify /var/lib/osprey/data",
     .arguments_min = 2,
     .arguments_max = 2,
     .needs_server = false,
     .flags = kNoFlags,
     .check = CheckLog,
     .run = RunLog},
    {.name = "backup",
     .arguments = "FROM TO",
     .summary =
         "copy the data directory FROM, which a server may have open, to TO; the same command "
         "brings TO up to date, or completes an interrupted backup",
     .example = "backup /var/lib/osprey/data /backup/osprey",
     .arguments_min = 2,
     .arguments_max = 2,
     .needs_server = false,
     .flags = kNoFlags,
     .check = CheckBackup,
     .run = RunBackup},
    {.name = "cluster",
     .arguments = "create|status|move|cancel-move|await-moves|rebalance|drain|accept-loss ETCD_URI "
                  "[ARGUMENT]…",
     .summary =
         "create: make a cluster, which servers with --cluster=ETCD_URI join: --memory=SIZE "
         "--shards=N --replicas=N --min-in-sync=N; status: print its servers, and which have all "
         "data; move SHARD FROM TO: the copy of a shard goes to another server; cancel-move SHARD; "
         "await-moves: wait until no copy moves; rebalance: copies go to servers with more room; "
         "drain SERVER: all of its copies go to "
         "others (both print the moves, and begin them with --yes); accept-loss SHARD: give up a "
         "shard whose servers are all lost, so that it begins again, empty",
     .example = "cluster create etcd://10.0.0.1:2379/shop --memory=4GiB",
     .arguments_min = 2,
     .arguments_max = 5,
     .needs_server = false,
     .flags = kYes | kMemory | kShards | kReplicas | kMinInSync | kCaFile | kCertificateFile |
              kCertificateKeyFile | kUser | kPasswordFile,
     .check = CheckCluster,
     .run = RunCluster},
    {.name = "help",
     .arguments = "[COMMAND]",
     .summary = "print this text",
     .example = "help put",
     .arguments_min = 0,
     .arguments_max = 1,
     .needs_server = false,
     .flags = kNoFlags,
     .check = nullptr,
     .run = RunHelp},
};

constexpr FlagName kFlagNames[] = {
    {kIfAbsent, "--if-absent", ""},
    {kIfVersion, "--if-version", "N"},
    {kTtl, "--ttl", "SECONDS"},
    {kLiteral, "--literal", ""},
    {kPrefix, "--prefix", "P"},
    {kLimit, "--limit", "N"},
    {kCursor, "--cursor", "C"},
    {kValues, "--values", ""},
    {kTop, "--top", "N"},
    {kFormat, "--format", "csv|jsonl|binary"},
    {kResume, "--resume", ""},
    {kSkip, "--skip", "N"},
    {kYes, "--yes", ""},
    {kSize, "--size", "N"},
    {kSamples, "--count", "N"},
    {kDuration, "--duration", "SECONDS"},
    {kPeer, "--peer", "URI"},
    {kMemory, "--memory", "SIZE"},
    {kSelfTest, "--self-test", "serve|HOST[:PORT]"},
    {kBind, "--bind", "HOST[:PORT]"},
    {kDevice, "--device", "NAME"},
    {kIbPort, "--ib-port", "N"},
    {kGidIndex, "--gid-index", "N"},
    {kCluster, "--cluster", "ETCD_URI"},
    {kShards, "--shards", "N"},
    {kReplicas, "--replicas", "N"},
    {kMinInSync, "--min-in-sync", "N"},
    {kCaFile, "--cluster-ca-file", "FILE"},
    {kCertificateFile, "--cluster-certificate-file", "FILE"},
    {kCertificateKeyFile, "--cluster-certificate-key-file", "FILE"},
    {kUser, "--cluster-user", "NAME"},
    {kPasswordFile, "--cluster-password-file", "FILE"},
};

// Names of commands elsewhere, above all in redis-cli, and the equivalent here.
constexpr struct {
  const char* name;
  const char* here;
} kElsewhere[] = {
    {"set", "put KEY VALUE"},
    {"setnx", "put KEY VALUE --if-absent"},
    {"setex", "put KEY VALUE --ttl=SECONDS"},
    {"psetex", "put KEY VALUE --ttl=SECONDS"},
    {"add", "put KEY VALUE --if-absent"},
    {"mset", "mput KEY VALUE…"},
    {"delete", "del KEY…"},
    {"unlink", "del KEY…"},
    {"incrby", "incr KEY N"},
    {"decr", "incr KEY -1"},
    {"decrby", "incr KEY -N"},
    {"pexpire", "expire KEY SECONDS"},
    {"pttl", "ttl KEY"},
    {"strlen", "get KEY --json"},
    {"keys", "scan --prefix=P"},
    {"dbsize", "count"},
    {"flushall", "flush"},
    {"flushdb", "flush"},
    {"info", "stats"},
    {"monitor", "stat"},
    {"save", "export FILE"},
    {"bgsave", "export FILE"},
    {"auth", "--auth-key-file=FILE"},
    {"version", "--version"},
};

// The command that `name` probably means; "" if unknown.
std::string HereInsteadOf(absl::string_view name) {
  for (const auto& [elsewhere, here] : kElsewhere) {
    if (absl::EqualsIgnoreCase(name, elsewhere)) return absl::StrCat("; here it is: kvcli ", here);
  }
  // `kvcli -h HOST`, as in redis-cli, or without a flag.
  if (absl::EqualsIgnoreCase(name, "localhost") || name.find_first_of(".:") != name.npos)
    return "; a server is named by --server=rdma://HOST or --server=shm://PATH";
  std::vector<absl::string_view> names;
  for (const Command& command : Commands()) names.emplace_back(command.name);
  const std::string nearest = SuggestSpelling(absl::AsciiStrToLower(name), names);
  return nearest.empty() ? "" : absl::StrCat("; is it ", nearest, "?");
}

}  // namespace

absl::Span<const Command> Commands() { return kCommands; }

absl::Span<const FlagName> FlagNames() { return kFlagNames; }

const Command* FindCommand(absl::string_view name) {
  for (const Command& command : Commands()) {
    if (absl::EqualsIgnoreCase(name, command.name)) return &command;
  }
  return nullptr;
}

absl::Status NoSuchCommand(absl::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no command '", absl::Utf8SafeCHexEscape(name), "'", HereInsteadOf(name)));
}

}  // namespace osprey
