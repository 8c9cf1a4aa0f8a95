// EtcdClient beside an etcd with TLS and authentication.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/unique_fd.h"
#include "server/cluster/etcd/etcd_client.h"
#include "tests/server/cluster/etcd/etcd_process.h"

namespace osprey {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);
constexpr char kPassword[] = "s3cret \"password\"";

TransactionResult Put(EtcdClient& client, const std::string& key) {
  Transaction transaction;
  transaction.operations = {StoreOperation::Put(key, "1")};
  return client.Execute(transaction, kTimeout);
}

TransactionResult PutWith(const EtcdOptions& options, const std::string& key) {
  return Put(**EtcdClient::Create(options), key);
}

class EtcdTlsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    certificates_ = new TestCertificates();
    cluster_ = new EtcdCluster(1, {}, certificates_);
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete certificates_;
  }

  // The error of such a client, whose transaction is not applied.
  std::string ErrorOf(const EtcdOptions& options) const {
    const TransactionResult result = PutWith(options, "/osprey/test/a");
    EXPECT_EQ(result.outcome, TransactionOutcome::kNotApplied);
    return result.status.ToString();
  }

  static TestCertificates* certificates_;
  static EtcdCluster* cluster_;
  EtcdOptions options_ = cluster_->ClientOptions();
};

TestCertificates* EtcdTlsTest::certificates_ = nullptr;
EtcdCluster* EtcdTlsTest::cluster_ = nullptr;

TEST_F(EtcdTlsTest, CallsWorkOverTls) {
  const auto client = cluster_->NewClient();
  for (int i = 0; i < 3; ++i) {
    const TransactionResult result = Put(*client, "/osprey/test/a");
    EXPECT_EQ(result.outcome, TransactionOutcome::kApplied) << result.status;
  }
  EXPECT_TRUE(client->Range({"/osprey/test/a"}, kTimeout).ok());
}

TEST_F(EtcdTlsTest, ServerOfAnotherAuthorityIsRefused) {
  options_.tls.ca = certificates_->Path("other-ca.pem");
  EXPECT_THAT(ErrorOf(options_),
              AllOf(HasSubstr("cannot connect"), HasSubstr("certificate"), HasSubstr("check")));
  options_.tls.ca.clear();  // the system's authorities
  EXPECT_THAT(ErrorOf(options_), HasSubstr("certificate"));
}

TEST_F(EtcdTlsTest, ServerOfAnotherNameIsRefused) {
  options_.uri.endpoints[0].host = "localhost";
  EXPECT_THAT(ErrorOf(options_), HasSubstr("localhost"));
}

TEST_F(EtcdTlsTest, ClientNeedsACertificateOfTheAuthority) {
  EtcdOptions none = options_, other = options_;
  none.tls.certificate.clear();
  none.tls.key.clear();
  other.tls.certificate = certificates_->Path("other.pem");
  other.tls.key = certificates_->Path("other.key");
  for (const EtcdOptions& options : {none, other}) {
    // TLS 1.3 reports it after the handshake, so the request may have been sent.
    const TransactionResult result = PutWith(options, "/osprey/test/refused");
    EXPECT_FALSE(result.status.ok());
    EXPECT_THAT(result.status.ToString(), HasSubstr("certificate"));
  }
  EXPECT_TRUE(cluster_->NewClient()->Range({"/osprey/test/refused"}, kTimeout)->keys.empty());
}

TEST_F(EtcdTlsTest, KeyOfAnotherCertificateIsRefused) {
  options_.tls.key = certificates_->Path("server.key");
  EXPECT_THAT(ErrorOf(options_), HasSubstr("cannot connect"));
}

TEST_F(EtcdTlsTest, PlainClientIsPointedToTls) {
  options_.uri.is_tls = false;
  options_.tls = {};
  const TransactionResult result = PutWith(options_, "/osprey/test/refused");
  EXPECT_FALSE(result.status.ok());
  EXPECT_THAT(result.status.ToString(), HasSubstr("etcds://"));
}

// Forwards one connection after the other to 127.0.0.1:`port`. Each ends when the client has sent
// more than `bytes_max`.
class CuttingProxy {
 public:
  CuttingProxy(uint16_t port, size_t bytes_max) : target_(port), bytes_max_(bytes_max) {
    sockaddr_in address = Loopback(0);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~CuttingProxy() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

  uint16_t port() const { return port_; }

 private:
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }

  // False: nothing more comes.
  static bool Forward(int from, int to, size_t& bytes) {
    char buffer[4096];
    const ssize_t got = recv(from, buffer, sizeof(buffer), 0);
    if (got <= 0 || send(to, buffer, static_cast<size_t>(got), MSG_NOSIGNAL) != got) return false;
    bytes += static_cast<size_t>(got);
    return true;
  }

  void Serve() {
    while (true) {
      const rdma::UniqueFd client(accept(listener_.get(), nullptr, nullptr));
      if (!client.valid()) return;
      const rdma::UniqueFd server(socket(AF_INET, SOCK_STREAM, 0));
      const sockaddr_in address = Loopback(target_);
      if (connect(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
        continue;
      size_t sent = 0, received = 0;
      pollfd ends[] = {{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}};
      bool goes_on = true;
      while (goes_on && sent <= bytes_max_ && poll(ends, 2, -1) > 0) {
        if (ends[0].revents != 0) goes_on = Forward(client.get(), server.get(), sent);
        if (ends[1].revents != 0)
          goes_on = goes_on && Forward(server.get(), client.get(), received);
      }
      shutdown(client.get(), SHUT_WR);
    }
  }

  const uint16_t target_;
  const size_t bytes_max_;
  const rdma::UniqueFd listener_{socket(AF_INET, SOCK_STREAM, 0)};
  uint16_t port_ = 0;
  std::thread thread_;
};

// SIGPIPE would end this process.
TEST_F(EtcdTlsTest, ConnectionThatIsCutRaisesNoSignal) {
  ASSERT_EQ(std::signal(SIGPIPE, SIG_DFL), SIG_DFL);
  int broken_pipes = 0;
  for (const size_t bytes : {10000, 100000, 500000, 1000000}) {
    const CuttingProxy proxy(options_.uri.endpoints[0].port, bytes);
    EtcdOptions options = options_;
    options.uri.endpoints[0].port = proxy.port();
    for (int i = 0; i < 10; ++i) {
      Transaction transaction;
      transaction.operations = {StoreOperation::Put("/osprey/test/a", std::string(1400000, 'x'))};
      const TransactionResult result =
          (*EtcdClient::Create(options))->Execute(transaction, kTimeout);
      EXPECT_EQ(result.outcome, TransactionOutcome::kUnknown) << result.status;
      broken_pipes += absl::StrContains(result.status.message(), "Broken pipe") ? 1 : 0;
    }
  }
  EXPECT_GT(broken_pipes, 0) << "no write met the end of its connection";
}

// --- Authentication

class EtcdAuthenticationTest : public EtcdTlsTest {
 protected:
  static void SetUpTestSuite() {
    EtcdTlsTest::SetUpTestSuite();
    const std::string user = std::string("osprey:") + kPassword;
    cluster_->Control({"user", "add", "root:rootpw"});
    cluster_->Control({"user", "grant-role", "root", "root"});
    cluster_->Control({"role", "add", "osprey"});
    cluster_->Control(
        {"role", "grant-permission", "osprey", "--prefix", "readwrite", "/osprey/test/"});
    cluster_->Control({"user", "add", user});
    cluster_->Control({"user", "grant-role", "osprey", "osprey"});
    cluster_->Control({"auth", "enable"});
  }

  EtcdAuthenticationTest() {
    options_.user = "osprey";
    options_.password_file = certificates_->Path("password");
    WritePassword(kPassword);
  }

  void WritePassword(const std::string& password) const {
    const std::string path = certificates_->Path("password");
    std::ofstream(path, std::ios::trunc) << password << "\n";
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
};

TEST_F(EtcdAuthenticationTest, UserReadsAndWritesItsKeys) {
  const auto client = *EtcdClient::Create(options_);
  const TransactionResult result = Put(*client, "/osprey/test/a");
  EXPECT_EQ(result.outcome, TransactionOutcome::kApplied) << result.status;
  const auto read = client->Range({"/osprey/test/", true}, kTimeout);
  EXPECT_TRUE(read.ok()) << read.status();
  const auto status = client->MemberStatus(0, kTimeout);
  EXPECT_TRUE(status.ok()) << status.status();
}

TEST_F(EtcdAuthenticationTest, KeysOfOthersAreDeniedWithTheFix) {
  const auto client = *EtcdClient::Create(options_);
  const TransactionResult result = Put(*client, "/osprey/other/a");
  EXPECT_EQ(result.outcome, TransactionOutcome::kNotApplied);
  EXPECT_TRUE(absl::IsPermissionDenied(result.status));
  EXPECT_THAT(result.status.ToString(),
              AllOf(HasSubstr("user 'osprey'"), HasSubstr("readwrite /osprey/test/")));
  EXPECT_TRUE(absl::IsPermissionDenied(client->Range({"/osprey/other/a"}, kTimeout).status()));
}

TEST_F(EtcdAuthenticationTest, MissingUserIsNamed) {
  const TransactionResult result = Put(*cluster_->NewClient(), "/osprey/test/a");
  EXPECT_EQ(result.outcome, TransactionOutcome::kNotApplied);
  EXPECT_TRUE(absl::IsUnauthenticated(result.status)) << result.status;
  EXPECT_THAT(result.status.ToString(), HasSubstr("give a user"));
}

TEST_F(EtcdAuthenticationTest, CertificateWithACommonNameIsRefused) {
  options_.tls.certificate = certificates_->Path("named.pem");
  options_.tls.key = certificates_->Path("named.key");
  EXPECT_THAT(ErrorOf(options_), HasSubstr("certificate without a common name"));
}

TEST_F(EtcdAuthenticationTest, WrongPasswordIsReadAgainAfterItsCorrection) {
  WritePassword("wrong");
  const auto client = *EtcdClient::Create(options_);
  const TransactionResult result = Put(*client, "/osprey/test/a");
  EXPECT_EQ(result.outcome, TransactionOutcome::kNotApplied);
  EXPECT_TRUE(absl::IsUnauthenticated(result.status)) << result.status;
  EXPECT_THAT(result.status.ToString(), HasSubstr("check the user and the file of the password"));
  WritePassword(kPassword);
  EXPECT_EQ(Put(*client, "/osprey/test/a").outcome, TransactionOutcome::kApplied);
}

TEST_F(EtcdAuthenticationTest, TokenThatEtcdForgotIsRenewed) {
  const auto client = *EtcdClient::Create(options_);
  ASSERT_EQ(Put(*client, "/osprey/test/a").outcome, TransactionOutcome::kApplied);
  cluster_->Kill(0);
  cluster_->Restart(0);
  const TransactionResult result = Put(*client, "/osprey/test/a");
  EXPECT_EQ(result.outcome, TransactionOutcome::kApplied) << result.status;
  EXPECT_TRUE(client->Range({"/osprey/test/a"}, kTimeout).ok());
}

TEST_F(EtcdAuthenticationTest, CallsGoOnWhileRolesAreChanged) {
  const auto client = *EtcdClient::Create(options_);
  ASSERT_EQ(Put(*client, "/osprey/test/a").outcome, TransactionOutcome::kApplied);
  cluster_->Control({"--user=root:rootpw", "role", "add", "another"});
  const TransactionResult result = Put(*client, "/osprey/test/a");
  EXPECT_EQ(result.outcome, TransactionOutcome::kApplied) << result.status;
}

TEST_F(EtcdAuthenticationTest, CallsGoOnWhenItIsSwitchedOffAndOn) {
  const auto client = *EtcdClient::Create(options_);
  ASSERT_EQ(Put(*client, "/osprey/test/a").outcome, TransactionOutcome::kApplied);
  cluster_->Control({"--user=root:rootpw", "auth", "disable"});
  const TransactionResult off = Put(*client, "/osprey/test/a");
  EXPECT_EQ(off.outcome, TransactionOutcome::kApplied) << off.status;
  cluster_->Control({"auth", "enable"});
  const TransactionResult on = Put(*client, "/osprey/test/a");
  EXPECT_EQ(on.outcome, TransactionOutcome::kApplied) << on.status;
}

}  // namespace
}  // namespace osprey
