#include "server/config/cluster_config.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/right/server_record.h"
#include "server/config/flag_parsing.h"

namespace osprey::server {
namespace {

using Scheme = rdma::Address::Scheme;

constexpr absl::Duration kBackupTimeoutLeast() { return absl::Milliseconds(100); }
constexpr absl::Duration kBackupTimeoutMost() { return absl::Minutes(1); }
constexpr absl::Duration kRejoinAfterMost() { return absl::Hours(24); }
constexpr uint64_t kCopyRateLeast = uint64_t{1} << 20;
constexpr uint64_t kCopyRateMost = uint64_t{1} << 40;

// Any address of the machine.
bool IsWildcard(const rdma::Address& address) {
  return address.scheme == Scheme::kRdma && (address.host == "0.0.0.0" || address.host == "::");
}

// Whether only one of both can be listened at.
bool Collide(const rdma::Address& one, const rdma::Address& other) {
  if (one.scheme != other.scheme) return false;
  if (one.scheme == Scheme::kShm) return one.path == other.path;
  return one.port == other.port && (one.host == other.host || IsWildcard(one) || IsWildcard(other));
}

absl::Status CheckServerId(absl::string_view id) {
  if (id.empty())
    return Wrong("server-id", "--cluster needs it; name this server, as --server-id=a");
  if (IsServerId(id)) return absl::OkStatus();
  return Wrong("server-id",
               absl::StrCat("'", absl::CEscape(id), "' is no name of a server; write 1 to ",
                            kServerIdBytesMax, " of a to z, 0 to 9 and '-'"));
}

// A port that is picked at the start is unknown to clients and to other servers.
absl::Status CheckPorts(absl::string_view flag, absl::Span<const rdma::Address> addresses) {
  for (const rdma::Address& address : addresses) {
    if (address.scheme == Scheme::kRdma && address.port == 0) {
      return Wrong(flag, absl::StrCat(absl::CEscape(address.ToString()),
                                      " has port 0; in a cluster write a port"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<rdma::Address>> ParseClusterListen(
    absl::string_view text, absl::Span<const rdma::Address> for_clients) {
  constexpr absl::string_view kFlag = "cluster-listen";
  if (text.empty()) {
    return Wrong(kFlag,
                 "--cluster needs an address for the other servers; write "
                 "rdma://HOST:PORT, with the host that they connect to, or shm://PATH");
  }
  absl::StatusOr<std::vector<rdma::Address>> addresses = ParseAddresses(kFlag, text);
  if (!addresses.ok()) return addresses;
  if (absl::Status ports = CheckPorts(kFlag, *addresses); !ports.ok()) return ports;
  for (const rdma::Address& address : *addresses) {
    const std::string quoted = absl::CEscape(address.ToString());
    if (IsWildcard(address)) {
      return Wrong(kFlag, absl::StrCat(quoted,
                                       " is no address that other servers can connect to; write "
                                       "that of this machine in their network"));
    }
    const bool is_taken =
        std::any_of(for_clients.begin(), for_clients.end(),
                    [&](const rdma::Address& client) { return Collide(client, address); });
    if (is_taken) {
      return Wrong(kFlag, absl::StrCat(quoted,
                                       " is an address of --listen, too; write another port or "
                                       "path here"));
    }
  }
  return addresses;
}

}  // namespace

std::vector<std::string> ClientAddresses(absl::Span<const rdma::Address> listen,
                                         absl::Span<const rdma::Address> cluster_listen) {
  std::vector<std::string> uris;
  for (rdma::Address address : listen) {
    if (IsWildcard(address)) {
      const auto remote = absl::c_find_if(
          cluster_listen, [](const auto& other) { return other.scheme == Scheme::kRdma; });
      if (remote == cluster_listen.end()) continue;
      address.host = remote->host;
    }
    // Clients have other working directories.
    if (address.scheme == Scheme::kShm)
      address.path = std::filesystem::absolute(address.path).string();
    uris.push_back(address.ToString());
  }
  return uris;
}

absl::Status CheckShardAddresses(uint32_t shards, absl::Span<const rdma::Address> listen,
                                 absl::Span<const rdma::Address> cluster_listen) {
  std::vector<rdma::Address> taken(cluster_listen.begin(), cluster_listen.end());
  for (const rdma::Address& address : listen) {
    for (uint32_t shard = 0; shard < shards; ++shard) {
      absl::StatusOr<rdma::Address> own = rdma::ShardAddress(address, shard);
      if (!own.ok()) return Wrong("listen", own.status().message());
      const auto other = std::find_if(taken.begin(), taken.end(),
                                      [&](const rdma::Address& one) { return Collide(one, *own); });
      if (other != taken.end()) {
        return Wrong("listen",
                     absl::StrCat(absl::CEscape(address.ToString()), " has ", shards,
                                  " shards, and that of shard ", shard,
                                  " would meet another address, ", absl::CEscape(other->ToString()),
                                  "; leave as many ports between them as there are shards"));
      }
      taken.push_back(*std::move(own));
    }
  }
  return absl::OkStatus();
}

namespace {

bool IsSame(const rdma::AuthKey& one, const rdma::AuthKey& other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size()) == 0;
}

absl::StatusOr<rdma::AuthKey::Pointer> ReadClusterKey(const std::string& path,
                                                      absl::Span<const rdma::Address> listen,
                                                      const rdma::AuthKey::Pointer& auth_key) {
  constexpr absl::string_view kFlag = "cluster-key-file";
  if (path.empty()) {
    const bool is_remote = std::any_of(listen.begin(), listen.end(), [](const auto& address) {
      return address.scheme == Scheme::kRdma;
    });
    if (!is_remote) return rdma::AuthKey::Pointer();
    return Wrong(
        kFlag,
        "a --cluster-listen of rdma:// needs it, so that only servers can send changes; name a "
        "file of 32 B to 4 KiB, the same at all servers");
  }
  absl::StatusOr<rdma::AuthKey::Pointer> key = rdma::AuthKey::FromFile(path);
  if (!key.ok()) {
    return absl::Status(key.status().code(),
                        absl::StrCat("--", kFlag, ": ", key.status().message()));
  }
  if (auth_key != nullptr && IsSame(**key, *auth_key)) {
    return Wrong(kFlag,
                 "it has the key of --auth-key-file, so that every client could act as a server; "
                 "make another key for the servers");
  }
  return key;
}

}  // namespace

absl::StatusOr<ClusterConfig> MakeClusterConfig(const ClusterFlags& flags,
                                                const ServedConfig& served) {
  ClusterConfig config;
  absl::StatusOr<EtcdOptions> etcd = MakeEtcdOptions(flags.etcd);
  if (!etcd.ok()) {
    const bool has_flag = etcd.status().message().find("--") == 0;
    return has_flag ? etcd.status() : Wrong("cluster", etcd.status().message());
  }
  config.etcd = *std::move(etcd);
  if (absl::Status id = CheckServerId(flags.server_id); !id.ok()) return id;
  config.server_id = flags.server_id;
  if (absl::Status ports = CheckPorts("listen", served.listen); !ports.ok()) return ports;
  absl::StatusOr<std::vector<rdma::Address>> listen =
      ParseClusterListen(flags.listen, served.listen);
  if (!listen.ok()) return listen.status();
  config.listen = *std::move(listen);
  absl::StatusOr<rdma::AuthKey::Pointer> key =
      ReadClusterKey(flags.key_file, config.listen, served.auth_key);
  if (!key.ok()) return key.status();
  config.key = *std::move(key);
  const absl::StatusOr<absl::Duration> timeout = ParseTime(
      "backup-timeout", flags.backup_timeout, kBackupTimeoutLeast(), kBackupTimeoutMost());
  if (!timeout.ok()) return timeout.status();
  config.backup_timeout = *timeout;
  if (!IsZone(flags.zone)) {
    return Wrong(
        "zone", absl::StrCat("'", absl::CEscape(flags.zone), "' is no name of a zone; write up to ",
                             kZoneBytesMax, " of a to z, A to Z, 0 to 9, '.', '_' and '-'"));
  }
  config.zone = flags.zone;
  const absl::StatusOr<absl::Duration> rejoin_after =
      ParseTime("rejoin-after", flags.rejoin_after, absl::ZeroDuration(), kRejoinAfterMost());
  if (!rejoin_after.ok()) return rejoin_after.status();
  config.rejoin_after = *rejoin_after;
  if (!flags.copy_rate.empty()) {
    const absl::StatusOr<uint64_t> rate =
        ParseBytes("copy-rate", flags.copy_rate, kCopyRateLeast, kCopyRateMost);
    if (!rate.ok()) return rate.status();
    config.copy_rate = *rate;
  }
  return config;
}

absl::Status CheckNoCluster(const ClusterFlags& flags) {
  const std::pair<absl::string_view, const std::string*> others[] = {
      {"server-id", &flags.server_id},
      {"cluster-listen", &flags.listen},
      {"cluster-key-file", &flags.key_file},
      {"zone", &flags.zone},
      {"copy-rate", &flags.copy_rate},
      {"cluster-ca-file", &flags.etcd.ca_file},
      {"cluster-certificate-file", &flags.etcd.certificate_file},
      {"cluster-certificate-key-file", &flags.etcd.certificate_key_file},
      {"cluster-user", &flags.etcd.user},
      {"cluster-password-file", &flags.etcd.password_file}};
  for (const auto& [flag, value] : others) {
    if (!value->empty()) {
      return Wrong(flag,
                   "it has a meaning only with --cluster; name the cluster, as "
                   "--cluster=etcd://HOST:2379/NAME, or leave it out");
    }
  }
  return absl::OkStatus();
}

}  // namespace osprey::server
