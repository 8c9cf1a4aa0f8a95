// The flags of programs that use etcd: kvserver's and kvcli's have the same names.
//
// Thread rule: plain functions and values.

#ifndef OSPREY_SERVER_CLUSTER_ETCD_ETCD_FLAGS_H_
#define OSPREY_SERVER_CLUSTER_ETCD_ETCD_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/cluster/etcd/etcd_options.h"

namespace osprey {

// As given; empty: not given.
struct EtcdFlags {
  std::string uri;                   // kvserver: --cluster; kvcli: an argument
  std::string ca_file;               // --cluster-ca-file
  std::string certificate_file;      // --cluster-certificate-file
  std::string certificate_key_file;  // --cluster-certificate-key-file
  std::string user;                  // --cluster-user
  std::string password_file;         // --cluster-password-file
};

// The options, checked as CheckEtcdOptions does. Errors: those of ParseEtcdUri (without a flag, since
// the URI's differs) and of CheckEtcdOptions, with the flag in front: "--cluster-ca-file: …".
absl::StatusOr<EtcdOptions> MakeEtcdOptions(const EtcdFlags& flags);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_ETCD_ETCD_FLAGS_H_
