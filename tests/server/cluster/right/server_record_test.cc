#include "server/cluster/right/server_record.h"

#include <string>

#include "gtest/gtest.h"

namespace osprey {
namespace {

TEST(ServerRecordTest, IsReadAsItWasWritten) {
  const ServerRecord record{0xF1,     {"rdma://10.0.0.1:7471", "shm:///run/osprey"},
                            17,       8,
                            "rack-1", {"rdma://10.0.0.1:7411"},
                            1 << 20,  true};
  const std::string text = EncodeServerRecord(record);
  EXPECT_EQ(
      text,
      R"({"addresses":["rdma://10.0.0.1:7471","shm:///run/osprey"],"clients":["rdma://10.0.0.1:7411"],)"
      R"("copy_rate":1048576,"counter":17,)"
      R"("incarnation":"00000000000000f1","slots":8,"value_parts":1,"zone":"rack-1"})");
  const absl::StatusOr<ServerRecord> read = DecodeServerRecord(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, record);
}

// Their brackets are none of JSON.
TEST(ServerRecordTest, MayHaveManyIpv6Addresses) {
  ServerRecord record{1, {}, 0};
  for (size_t i = 0; i < kServerAddressesMax; ++i)
    record.addresses.push_back("rdma://[fd00::1]:7471");
  const absl::StatusOr<ServerRecord> read = DecodeServerRecord(EncodeServerRecord(record));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, record);
  record.addresses.push_back("shm:///run/osprey");
  EXPECT_EQ(DecodeServerRecord(EncodeServerRecord(record)).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(ServerRecordTest, NamesWhatItLacks) {
  const std::string good = R"("addresses":[],"counter":1,"incarnation":"00000000000000f1")";
  ASSERT_TRUE(DecodeServerRecord("{" + good + "}").ok());
  EXPECT_FALSE(DecodeServerRecord("{" + good + "}")->takes_parts);
  EXPECT_TRUE(DecodeServerRecord("{" + good + R"(,"later":{"field":[]}})").ok());
  for (const std::string& text :
       {std::string(""),
        std::string("17"),
        "{" + good,
        std::string(100000, '['),
        "{" + good + R"(,"x":)" + std::string(20000, ' ') + "1}",
        std::string(R"({"counter":1,"incarnation":"00000000000000f1"})"),
        std::string(R"({"addresses":[1],"counter":1,"incarnation":"00000000000000f1"})"),
        std::string(R"({"addresses":[],"counter":-1,"incarnation":"00000000000000f1"})"),
        std::string(R"({"addresses":[],"counter":"1","incarnation":"00000000000000f1"})"),
        std::string(R"({"addresses":[],"counter":1,"incarnation":"0000000000000000"})"),
        std::string(R"({"addresses":[],"counter":1,"incarnation":"0x000000000000f1"})"),
        std::string(R"({"addresses":[],"counter":1,"incarnation":241})"),
        "{" + good + R"(,"slots":-1})",
        "{" + good + R"(,"slots":1025})",
        "{" + good + R"(,"copy_rate":-1})",
        "{" + good + R"(,"copy_rate":"1"})",
        "{" + good + R"(,"value_parts":2})",
        "{" + good + R"(,"clients":[7]})",
        "{" + good + R"(,"clients":"a"})",
        "{" + good + R"(,"zone":7})",
        "{" + good + R"(,"zone":"a b"})",
        "{" + good + R"(,"zone":")" + std::string(65, 'z') + "\"}"}) {
    EXPECT_EQ(DecodeServerRecord(text).status().code(), absl::StatusCode::kDataLoss)
        << text.substr(0, 80);
  }
}

}  // namespace
}  // namespace osprey
