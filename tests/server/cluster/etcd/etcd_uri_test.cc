// The URI of a cluster's configuration, and the options beside it.

#include "server/cluster/etcd/etcd_uri.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cluster/etcd/etcd_options.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string MistakeIn(const std::string& text) {
  const absl::StatusOr<EtcdUri> uri = ParseEtcdUri(text);
  return std::string(uri.status().message());
}

TEST(EtcdUriTest, OneHostAndNameAreParsed) {
  const absl::StatusOr<EtcdUri> uri = ParseEtcdUri("etcd://etcd-1.example_a.org:23790/a-9");
  ASSERT_TRUE(uri.ok()) << uri.status();
  EXPECT_FALSE(uri->is_tls);
  EXPECT_THAT(uri->endpoints, ElementsAre(EtcdEndpoint{"etcd-1.example_a.org", 23790}));
  EXPECT_EQ(uri->name, "a-9");
  EXPECT_EQ(uri->KeyPrefix(), "/osprey/a-9/");
}

TEST(EtcdUriTest, SeveralHostsOfAllKindsAreParsed) {
  const std::string text = "etcds://10.0.0.1:1,[2001:db8::1]:65535,[::1]:2379,host:2379/name";
  const absl::StatusOr<EtcdUri> uri = ParseEtcdUri(text);
  ASSERT_TRUE(uri.ok()) << uri.status();
  EXPECT_TRUE(uri->is_tls);
  EXPECT_THAT(uri->endpoints,
              ElementsAre(EtcdEndpoint{"10.0.0.1", 1}, EtcdEndpoint{"2001:db8::1", 65535},
                          EtcdEndpoint{"::1", 2379}, EtcdEndpoint{"host", 2379}));
  EXPECT_EQ(uri->ToString(), text);
}

TEST(EtcdUriTest, MissingPortIsThatOfEtcd) {
  const absl::StatusOr<EtcdUri> uri = ParseEtcdUri("etcd://a,[::1]/x");
  ASSERT_TRUE(uri.ok()) << uri.status();
  EXPECT_EQ(uri->ToString(), "etcd://a:2379,[::1]:2379/x");
}

TEST(EtcdUriTest, MistakesAreNamedWithTheFix) {
  const struct {
    std::string uri;
    std::string mistake;
  } kCases[] = {
      {"", "does not begin with etcd://"},
      {"http://a/b", "does not begin with etcd://"},
      {"ETCD://a/b", "does not begin with etcd://"},
      {"etcd://", "lacks the cluster's name"},
      {"etcd://a:2379", "lacks the cluster's name"},
      {"etcd://a/", "cluster name"},
      {"etcd://a/B", "cluster name"},
      {"etcd://a/b/", "cluster name"},
      {"etcd://a/b?c", "cluster name"},
      {"etcd://a/b\n", "cluster name"},
      {"etcd://a/" + std::string(64, 'a'), "cluster name"},
      {"etcd:///b", "lacks a host"},
      {"etcd://a,/b", "lacks a host"},
      {"etcd://:2379/b", "lacks a host"},
      {"etcd://a:/b", "port"},
      {"etcd://a:0/b", "port"},
      {"etcd://a:65536/b", "port"},
      {"etcd://a:+1/b", "port"},
      {"etcd://a: 1/b", "port"},
      {"etcd://a:99999999999/b", "port"},
      {"etcd://a b/b", "neither a name nor an address"},
      {"etcd://a%/b", "neither a name nor an address"},
      {"etcd://" + std::string(254, 'a') + "/b", "neither a name nor an address"},
      {"etcd://::1/b", "brackets around it"},
      {"etcd://[::1/b", "without a ']'"},
      {"etcd://[a]/b", "not an IPv6 address"},
      {"etcd://[::1%eth0]/b", "not an IPv6 address"},
      {"etcd://[::1]2379/b", "port"},
      {"etcd://a,b,a:2379/c", "names a:2379 twice"},
  };
  for (const auto& [uri, mistake] : kCases) {
    EXPECT_THAT(MistakeIn(uri), HasSubstr(mistake)) << uri;
    EXPECT_THAT(MistakeIn(uri), HasSubstr("write etcd://HOST:2379[,HOST2:2379]/NAME")) << uri;
    EXPECT_THAT(MistakeIn(uri), Not(HasSubstr("\n"))) << uri;
    EXPECT_LT(MistakeIn(uri).size(), 600u);
  }
}

TEST(EtcdUriTest, HostsAreBoundedInNumber) {
  std::string uri = "etcd://h0";
  for (size_t i = 1; i < kEtcdEndpointsMax; ++i) absl::StrAppend(&uri, ",h", i);
  EXPECT_TRUE(ParseEtcdUri(uri + "/a").ok());
  EXPECT_THAT(MistakeIn(uri + ",more/a"), HasSubstr("more than 16 hosts"));
}

TEST(EtcdUriTest, PasswordIsRefusedAndNotRepeated) {
  const std::string mistake = MistakeIn("etcd://root:secret@a:2379/b");
  EXPECT_THAT(mistake, HasSubstr("in a file"));
  EXPECT_THAT(mistake, Not(HasSubstr("secret")));
}

// --- Options

class EtcdOptionsTest : public ::testing::Test {
 protected:
  EtcdOptionsTest() { options_.uri = *ParseEtcdUri("etcds://a/b"); }
  ~EtcdOptionsTest() override {
    unlink(path_.c_str());
    rmdir(directory_.c_str());
  }

  void Write(const std::string& content, mode_t mode = 0600) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << content;
    chmod(path_.c_str(), mode);
  }

  std::string Mistake() const { return CheckEtcdOptions(options_).ToString(); }

  const std::string directory_ = NewTemporaryDirectory();
  const std::string path_ = directory_ + "/file";
  EtcdOptions options_;
};

TEST_F(EtcdOptionsTest, PasswordIsTheLineOfAPrivateFile) {
  for (const char* content : {"pass word", "pass word\n"}) {
    Write(content);
    EXPECT_EQ(*ReadPasswordFile(path_), "pass word");
  }
}

TEST_F(EtcdOptionsTest, UnfitPasswordFilesAreRefusedByName) {
  EXPECT_THAT(ReadPasswordFile(path_).status().ToString(), HasSubstr("NOT_FOUND"));
  for (const std::string& content :
       {std::string(), std::string("\n"), std::string("a\nb"), std::string(1025, 'a')}) {
    Write(content);
    const std::string mistake = ReadPasswordFile(path_).status().ToString();
    EXPECT_THAT(mistake, HasSubstr("one line of 1 to 1024 bytes"));
    EXPECT_THAT(mistake, HasSubstr(path_));
  }
  Write("secret", 0640);
  const std::string open = ReadPasswordFile(path_).status().ToString();
  EXPECT_THAT(open, HasSubstr("PERMISSION_DENIED"));
  EXPECT_THAT(open, HasSubstr("chmod 600"));
  EXPECT_THAT(ReadPasswordFile(directory_).status().ToString(), HasSubstr("not a regular file"));
}

TEST_F(EtcdOptionsTest, UserAndPasswordFileGoTogether) {
  options_.user = "osprey";
  EXPECT_THAT(Mistake(), HasSubstr("give both or none"));
  options_.password_file = path_;
  EXPECT_THAT(Mistake(), HasSubstr(path_));
  Write("secret");
  EXPECT_EQ(Mistake(), "OK");
}

TEST_F(EtcdOptionsTest, NoPasswordGoesOverPlainTcp) {
  Write("secret");
  options_.user = "osprey";
  options_.password_file = path_;
  options_.uri.is_tls = false;
  EXPECT_THAT(Mistake(), HasSubstr("write etcds:// for TLS"));
}

TEST_F(EtcdOptionsTest, CertificatesNeedTlsAndTheirKey) {
  Write("certificate");
  options_.tls.certificate = path_;
  EXPECT_THAT(Mistake(), HasSubstr("lacks its key"));
  options_.tls.key = path_ + "-none";
  EXPECT_THAT(Mistake(), HasSubstr("cannot read the key of etcd's client certificate"));
  options_.tls.key = path_;
  EXPECT_EQ(Mistake(), "OK");
  options_.uri.is_tls = false;
  EXPECT_THAT(Mistake(), HasSubstr("write etcds:// for TLS"));
}

}  // namespace
}  // namespace osprey
