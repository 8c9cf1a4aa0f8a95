// EtcdClient beside an etcd with TLS and authentication.

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

// OpenSSL writes to a connection that has ended; SIGPIPE would end this process.
TEST_F(EtcdTlsTest, DeathOfAMemberRaisesNoSignal) {
  ASSERT_EQ(std::signal(SIGPIPE, SIG_DFL), SIG_DFL);
  for (int i = 0; i < 3; ++i) {
    const auto client = cluster_->NewClient();
    ASSERT_EQ(Put(*client, "/osprey/test/a").outcome, TransactionOutcome::kApplied);
    cluster_->Kill(0);
    EXPECT_FALSE(client->Range({"/osprey/test/a"}, kTimeout).ok());
    EXPECT_FALSE(Put(*client, "/osprey/test/a").status.ok());
    cluster_->Restart(0);
    EXPECT_EQ(Put(*client, "/osprey/test/a").outcome, TransactionOutcome::kApplied);
  }
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
