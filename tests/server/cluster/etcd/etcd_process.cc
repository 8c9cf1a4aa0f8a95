#include "tests/server/cluster/etcd/etcd_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/support/free_ports.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

constexpr absl::Duration kReadyMax = absl::Seconds(90);  // on a loaded machine with a slow disk
constexpr absl::Duration kPollEvery = absl::Milliseconds(50);
constexpr absl::Duration kProbeTimeout = absl::Seconds(2);

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "etcd for tests: %s\n", why.c_str());
  std::abort();
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void RunOrDie(const std::vector<std::string>& command) {
  const ProgramResult result = RunProgram(command);
  if (result.exit_status != 0)
    Die(absl::StrCat(command[0], " failed; tools/install-packages test installs it\n", result.err));
}

}  // namespace

// --- Certificates

TestCertificates::TestCertificates() : directory_(NewTemporaryDirectory()) {
  // etcd's gateway is a client of its own server, with the server's certificate.
  std::ofstream(Path("extensions")) << "subjectAltName=IP:127.0.0.1\n"
                                       "extendedKeyUsage=serverAuth,clientAuth\n";
  const auto make = [this](const std::string& name, const std::string& authority,
                           const std::string& field = "O") {
    const std::vector<std::string> kNewKey = {"-newkey", "ec", "-pkeyopt",
                                              "ec_paramgen_curve:prime256v1", "-nodes"};
    std::vector<std::string> command = {"openssl", "req",
                                        "-subj",   absl::StrCat("/", field, "=", name),
                                        "-keyout", Path(name + ".key")};
    command.insert(command.end(), kNewKey.begin(), kNewKey.end());
    if (authority.empty()) {
      command.insert(command.end(), {"-x509", "-days", "2", "-out", Path(name + ".pem")});
      return RunOrDie(command);
    }
    command.insert(command.end(), {"-new", "-out", Path("request")});
    RunOrDie(command);
    RunOrDie({"openssl", "x509", "-req", "-in", Path("request"), "-CA", Path(authority + ".pem"),
              "-CAkey", Path(authority + ".key"), "-CAcreateserial", "-days", "2", "-extfile",
              Path("extensions"), "-out", Path(name + ".pem")});
  };
  make("ca", "");
  make("server", "ca");
  make("client", "ca");
  make("named", "ca", "CN");
  make("other-ca", "");
  make("other", "other-ca");
}

std::string TestCertificates::Path(absl::string_view name) const {
  return absl::StrCat(directory_, "/", name);
}

// --- Cluster

EtcdCluster::EtcdCluster(size_t members, std::vector<std::string> flags,
                         const TestCertificates* certificates)
    : flags_(std::move(flags)),
      certificates_(certificates),
      directory_(NewTemporaryDirectory()),
      members_(members) {
  const std::vector<uint16_t> ports = FreePorts(2 * members);
  for (size_t i = 0; i < members; ++i) {
    members_[i].client_port = ports[2 * i];
    members_[i].peer_port = ports[2 * i + 1];
  }
  for (size_t i = 0; i < members; ++i) Start(i);
  WaitUntilReady();
}

EtcdCluster::~EtcdCluster() {
  for (size_t i = 0; i < members_.size(); ++i) Kill(i);
  std::filesystem::remove_all(directory_);  // now: a member reserves 64 MiB for its log
}

std::string EtcdCluster::ClientUrl(size_t member) const {
  return absl::StrCat(certificates_ == nullptr ? "http" : "https",
                      "://127.0.0.1:", members_[member].client_port);
}

std::string EtcdCluster::PeerUrl(size_t member) const {
  return absl::StrCat("http://127.0.0.1:", members_[member].peer_port);
}

void EtcdCluster::Start(size_t member) {
  const std::string name = absl::StrCat("m", member);
  std::string cluster;
  for (size_t i = 0; i < members_.size(); ++i)
    absl::StrAppend(&cluster, i == 0 ? "" : ",", "m", i, "=", PeerUrl(i));
  std::vector<std::string> command = {
      "setpriv",
      "--pdeathsig=KILL",  // it does not outlive a test that is killed
      "etcd",
      "--name=" + name,
      absl::StrCat("--data-dir=", directory_, "/", name),
      "--listen-client-urls=" + ClientUrl(member),
      "--advertise-client-urls=" + ClientUrl(member),
      "--listen-peer-urls=" + PeerUrl(member),
      "--initial-advertise-peer-urls=" + PeerUrl(member),
      "--initial-cluster=" + cluster,
      "--logger=zap",
      "--log-level=warn"};
  if (certificates_ != nullptr) {
    command.insert(command.end(),
                   {"--cert-file=" + certificates_->Path("server.pem"),
                    "--key-file=" + certificates_->Path("server.key"),
                    "--trusted-ca-file=" + certificates_->Path("ca.pem"), "--client-cert-auth"});
  }
  command.insert(command.end(), flags_.begin(), flags_.end());
  members_[member].pid = StartProgram(command, absl::StrCat(directory_, "/", name, ".log"));
  if (members_[member].pid < 0) Die("etcd cannot be run; tools/install-packages test installs it");
}

EtcdOptions EtcdCluster::ClientOptions(size_t first) const {
  EtcdOptions options;
  options.uri.name = "test";
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[(first + i) % members_.size()];
    options.uri.endpoints.push_back({"127.0.0.1", member.client_port});
  }
  if (certificates_ != nullptr) {
    options.uri.is_tls = true;
    options.tls = {certificates_->Path("ca.pem"), certificates_->Path("client.pem"),
                   certificates_->Path("client.key")};
  }
  return options;
}

std::unique_ptr<EtcdClient> EtcdCluster::NewClient(size_t first) const {
  absl::StatusOr<std::unique_ptr<EtcdClient>> client = EtcdClient::Create(ClientOptions(first));
  if (!client.ok()) Die(client.status().ToString());
  return *std::move(client);
}

bool EtcdCluster::Serves(size_t member) const {
  const auto status = NewClient()->MemberStatus(member, kProbeTimeout);
  return status.ok() && status->leader_id != 0;
}

void EtcdCluster::WaitUntilReady() {
  const absl::Time deadline = absl::Now() + kReadyMax;
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    while (member.pid > 0 && !member.is_stopped && !Serves(i)) {
      const std::string log = absl::StrCat(directory_, "/m", i, ".log");
      if (waitpid(member.pid, nullptr, WNOHANG) != 0)
        Die(absl::StrCat("etcd has ended: ", ReadFile(log)));
      if (absl::Now() > deadline) Die(absl::StrCat("etcd does not get ready: ", ReadFile(log)));
      absl::SleepFor(kPollEvery);
    }
  }
}

size_t EtcdCluster::WaitForLeader() const {
  const std::unique_ptr<EtcdClient> client = NewClient();
  for (const absl::Time deadline = absl::Now() + kReadyMax; absl::Now() < deadline;
       absl::SleepFor(kPollEvery)) {
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].pid < 0 || members_[i].is_stopped) continue;
      const auto status = client->MemberStatus(i, kProbeTimeout);
      if (status.ok() && status->leader_id == status->header.member_id) return i;
    }
  }
  Die("no leader");
}

void EtcdCluster::Kill(size_t member) {
  const pid_t pid = std::exchange(members_[member].pid, -1);
  if (pid < 0) return;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  members_[member].is_stopped = false;
}

void EtcdCluster::Restart(size_t member) {
  Start(member);
  WaitUntilReady();
}

void EtcdCluster::Stop(size_t member) {
  kill(members_[member].pid, SIGSTOP);
  waitpid(members_[member].pid, nullptr, WUNTRACED);
  members_[member].is_stopped = true;
}

void EtcdCluster::Continue(size_t member) {
  members_[member].is_stopped = false;
  kill(members_[member].pid, SIGCONT);
}

void EtcdCluster::Control(const std::vector<std::string>& arguments, size_t member) const {
  std::vector<std::string> command = {"etcdctl", "--endpoints=" + ClientUrl(member)};
  if (certificates_ != nullptr) {
    command.insert(command.end(), {"--cacert=" + certificates_->Path("ca.pem"),
                                   "--cert=" + certificates_->Path("client.pem"),
                                   "--key=" + certificates_->Path("client.key")});
  }
  command.insert(command.end(), arguments.begin(), arguments.end());
  ProgramOptions options;
  options.environment = {"ETCDCTL_API=3"};
  const ProgramResult result = RunProgram(command, options);
  ASSERT_EQ(result.exit_status, 0) << result.out << result.err;
}

}  // namespace osprey
