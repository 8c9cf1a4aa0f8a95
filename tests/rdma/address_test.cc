#include "rdma/address.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace osprey::rdma {
namespace {

TEST(AddressTest, AHostHasTheDefaultPort) {
  const absl::StatusOr<Address> address = ParseAddress("rdma://db7.example.org");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->scheme, Address::Scheme::kRdma);
  EXPECT_EQ(address->host, "db7.example.org");
  EXPECT_EQ(address->port, 7411);
  EXPECT_EQ(address->ToString(), "rdma://db7.example.org:7411");
}

TEST(AddressTest, APortIsTakenFromZeroToTheLast) {
  EXPECT_EQ(ParseAddress("rdma://10.0.0.7:0").value().port, 0);
  EXPECT_EQ(ParseAddress("rdma://10.0.0.7:65535").value().port, 65535);
  EXPECT_EQ(ParseAddress("rdma://10.0.0.7:65535").value().ToString(), "rdma://10.0.0.7:65535");
}

TEST(AddressTest, Ipv6StandsInBracketsWithOrWithoutAPort) {
  const absl::StatusOr<Address> with = ParseAddress("rdma://[fd00::7]:9");
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(with->host, "fd00::7");
  EXPECT_EQ(with->port, 9);
  EXPECT_EQ(with->ToString(), "rdma://[fd00::7]:9");
  EXPECT_EQ(ParseAddress("rdma://[fe80::1%eth0]").value().host, "fe80::1%eth0");
  EXPECT_EQ(ParseAddress("rdma://[::1]").value().port, 7411);
}

TEST(AddressTest, AShmPathIsTakenAsItIs) {
  EXPECT_EQ(ParseAddress("shm:///run/osprey.sock").value().path, "/run/osprey.sock");
  EXPECT_EQ(ParseAddress("shm://a b:c.sock").value().path, "a b:c.sock");
  EXPECT_EQ(ParseAddress("shm:///x").value().ToString(), "shm:///x");
}

TEST(AddressTest, WhatToStringWritesParsesToTheSame) {
  for (const std::string uri : {"rdma://a:1", "rdma://[::1]:2", "shm://p", "shm:///p/q"}) {
    EXPECT_EQ(ParseAddress(uri).value().ToString(), uri);
  }
}

TEST(AddressTest, EveryRefusalQuotesTheAddressSaysWhyAndShowsARightOne) {
  struct Case {
    std::string uri;
    std::string why;
  };
  const std::vector<Case> cases = {
      {"", "neither rdma:// nor shm://"},
      {"10.0.0.7:7411", "neither rdma:// nor shm://"},
      {"tcp://10.0.0.7", "neither rdma:// nor shm://"},
      {"RDMA://10.0.0.7", "neither rdma:// nor shm://"},
      {"rdma://", "the host is missing"},
      {"rdma://:7411", "the host is missing"},
      {"rdma://a b", "neither a name nor an IP address"},
      {"rdma://a/b", "neither a name nor an IP address"},
      {"rdma://" + std::string(254, 'a'), "neither a name nor an IP address"},
      {"rdma://host:", "not a number from 0 to 65535"},
      {"rdma://host:65536", "not a number from 0 to 65535"},
      {"rdma://host:-1", "not a number from 0 to 65535"},
      {"rdma://host:+1", "not a number from 0 to 65535"},
      {"rdma://host: 1", "not a number from 0 to 65535"},
      {"rdma://host:1/", "not a number from 0 to 65535"},
      {"rdma://host:99999999999", "not a number from 0 to 65535"},
      {"rdma://fd00::7", "written in [ ]"},
      {"rdma://[fd00::7", "closing ]"},
      {"rdma://[fd00::7]7411", ":PORT or nothing"},
      {"rdma://[10.0.0.7]:1", "not an IPv6 address"},
      {"rdma://[]:1", "not an IPv6 address"},
      {"shm://", "path of the socket is missing"},
      {std::string("shm:///a\0b", 10), "NUL"},
  };
  for (const Case& c : cases) {
    const absl::StatusOr<Address> address = ParseAddress(c.uri);
    ASSERT_FALSE(address.ok()) << c.uri;
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << c.uri;
    const std::string message(address.status().message());
    EXPECT_NE(message.find(c.why), std::string::npos) << message;
    EXPECT_NE(message.find("rdma://10.0.0.7:7411"), std::string::npos) << message;
  }
  EXPECT_NE(std::string(ParseAddress("rdma://a b").status().message()).find("\"rdma://a b\""),
            std::string::npos);
}

std::vector<std::string> ListOf(absl::string_view uri) { return ParseAddresses(uri).value(); }

TEST(AddressListTest, OneAddressIsAListOfItself) {
  EXPECT_EQ(ListOf("rdma://host"), std::vector<std::string>{"rdma://host"});
  EXPECT_EQ(ListOf("shm:///run/a.sock"), std::vector<std::string>{"shm:///run/a.sock"});
}

TEST(AddressListTest, EachAddressHasTheSchemeAtTheStart) {
  EXPECT_EQ(ListOf("rdma://a:7411,b,[fd00::7]:7411"),
            (std::vector<std::string>{"rdma://a:7411", "rdma://b", "rdma://[fd00::7]:7411"}));
  EXPECT_EQ(ListOf("shm:///p1,/p2,p3"),
            (std::vector<std::string>{"shm:///p1", "shm:///p2", "shm://p3"}));
}

TEST(AddressListTest, ItHasSixteenAddressesAtMost) {
  std::string list = "rdma://a0";
  for (int i = 1; i < 16; ++i) list += ",a" + std::to_string(i);
  EXPECT_EQ(ListOf(list).size(), kAddressesMax);
  const std::string message(ParseAddresses(list + ",a16").status().message());
  EXPECT_NE(message.find("17 addresses; give at most 16"), std::string::npos) << message;
}

TEST(AddressListTest, AFaultIsNamedWithItsAddressAndTheFix) {
  const struct {
    const char* uri;
    const char* why;
  } cases[] = {
      {"rdma://a,,b", "address 2 of 3 is empty"},
      {"rdma://a,", "address 2 of 2 is empty"},
      {"rdma://,a", "address 1 of 2 is empty"},
      {"shm://,/p", "address 1 of 2 is empty"},
      {"rdma://a,rdma://b", "\"rdma://b\" has a scheme of its own"},
      {"rdma://a,shm:///p", "\"shm:///p\" has a scheme of its own"},
      {"shm:///p,shm:///q", "\"shm:///q\" has a scheme of its own"},
      {"rdma://a,b,a", "rdma://a is there twice"},
      {"rdma://a,A:7411", "rdma://A:7411 is there twice"},
      {"shm:///p,/q,/q", "shm:///q is there twice"},
      {"rdma://a,b c", "address \"rdma://b c\": the host is neither"},
      {"rdma://a,b:x", "address \"rdma://b:x\": the port"},
      {"a,b", "address \"a\": it begins with neither"},
      {"", "it begins with neither"},
      {"rdma://", "the host is missing"},
  };
  for (const auto& c : cases) {
    const absl::Status status = ParseAddresses(c.uri).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.uri;
    const std::string message(status.message());
    EXPECT_NE(message.find(c.why), std::string::npos) << message;
    EXPECT_NE(message.find("rdma://10.0.0.7:7411"), std::string::npos) << message;
  }
  // Paths are what they are.
  EXPECT_EQ(ListOf("shm:///P,/p").size(), 2u);
}

std::string ShardOfUri(absl::string_view uri, uint32_t shard) {
  const absl::StatusOr<Address> there = ShardAddress(ParseAddress(uri).value(), shard);
  return there.ok() ? there->ToString() : std::string(there.status().message());
}

TEST(ShardAddressTest, AShardHasAPortOrAPathOfItsOwn) {
  EXPECT_EQ(ShardOfUri("rdma://a:7411", 0), "rdma://a:7411");
  EXPECT_EQ(ShardOfUri("rdma://a:7411", 63), "rdma://a:7474");
  EXPECT_EQ(ShardOfUri("rdma://[fd00::7]", 1), "rdma://[fd00::7]:7412");
  EXPECT_EQ(ShardOfUri("rdma://a:65532", 3), "rdma://a:65535");
  EXPECT_EQ(ShardOfUri("shm:///run/a.sock", 0), "shm:///run/a.sock");
  EXPECT_EQ(ShardOfUri("shm:///run/a.sock", 12), "shm:///run/a.sock.12");
  // Shard 0 may be anywhere.
  EXPECT_EQ(ShardOfUri("rdma://a:0", 0), "rdma://a:0");
}

TEST(ShardAddressTest, APortOutOfRangeIsNamedWithTheFix) {
  EXPECT_EQ(ShardAddress(ParseAddress("rdma://a:65533").value(), 3).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ShardOfUri("rdma://a:65533", 3),
            "address \"rdma://a:65533\": shard 3 would listen above port 65535; shard k listens at "
            "the port + k: give a port from 1 to 65532");
  EXPECT_NE(ShardOfUri("rdma://a:0", 1).find("shard 1, where the system chooses the port"),
            std::string::npos);
}

}  // namespace
}  // namespace osprey::rdma
