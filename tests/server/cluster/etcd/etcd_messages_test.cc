// What is sent to etcd's JSON gateway, and which answers of it are taken.

#include "server/cluster/etcd/etcd_messages.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace osprey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

constexpr char kHeader[] =
    R"("header":{"cluster_id":"18446744073709551615","member_id":"7","revision":"10","raft_term":"2"})";
constexpr char kKey[] =
    R"({"key":"YS8x","create_revision":"2","mod_revision":"9","version":"3","value":"dg=="})";

std::string Answer(const std::string& fields) {
  return absl::StrCat("{", kHeader, fields.empty() ? "" : ",", fields, "}");
}

std::string KeyWith(const std::string& from, const std::string& to) {
  return Answer(absl::StrCat(R"("kvs":[)", absl::StrReplaceAll(kKey, {{from, to}}), "]"));
}

const StoreRange kRange{"a/", true};

// --- Requests

TEST(EtcdMessagesTest, RangeOfAPrefixEndsBehindIt) {
  EXPECT_EQ(Json::parse(RangeRequest({"a/", true, 7})),
            Json::parse(R"({"key":"YS8=","range_end":"YTA=","min_mod_revision":"7"})"));
  EXPECT_EQ(Json::parse(RangeRequest({"a\xff\xff", true}))["range_end"], "Yg==");
  EXPECT_EQ(Json::parse(RangeRequest({"\xff", true}))["range_end"], "AA==");
  EXPECT_EQ(Json::parse(RangeRequest({"a"})), Json::parse(R"({"key":"YQ=="})"));
}

TEST(EtcdMessagesTest, TransactionHasAllKindsOfParts) {
  Transaction transaction;
  transaction.compares = {StoreCompare::ModRevision("a", 1), StoreCompare::CreateRevision("a", 2),
                          StoreCompare::Version("a", 3), StoreCompare::Value("a", "v"),
                          StoreCompare::Absent("a")};
  transaction.operations = {StoreOperation::Put("b", "v"), StoreOperation::Delete("c"),
                            StoreOperation::Range({"d", true})};
  transaction.otherwise = {{"e"}};
  EXPECT_EQ(Json::parse(TransactionRequest(transaction)), Json::parse(R"({
    "compare":[
      {"key":"YQ==","result":"EQUAL","target":"MOD","mod_revision":"1"},
      {"key":"YQ==","result":"EQUAL","target":"CREATE","create_revision":"2"},
      {"key":"YQ==","result":"EQUAL","target":"VERSION","version":"3"},
      {"key":"YQ==","result":"EQUAL","target":"VALUE","value":"dg=="},
      {"key":"YQ==","result":"EQUAL","target":"CREATE","create_revision":"0"}],
    "success":[
      {"request_put":{"key":"Yg==","value":"dg=="}},
      {"request_delete_range":{"key":"Yw=="}},
      {"request_range":{"key":"ZA==","range_end":"ZQ=="}}],
    "failure":[{"request_range":{"key":"ZQ=="}}]})"));
}

TEST(EtcdMessagesTest, PasswordsOfAnyBytesMakeJson) {
  EXPECT_EQ(Json::parse(AuthenticateRequest("u", "a\"\\\n")),
            Json::parse(R"({"name":"u","password":"a\"\\\n"})"));
  EXPECT_TRUE(Json::accept(AuthenticateRequest("\xff", "\xc3")));
}

// --- Answers

TEST(EtcdMessagesTest, RangeAnswerHasAllFields) {
  const auto answer = ParseRangeAnswer(KeyWith("", ""), kRange);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->header, (StoreHeader{18446744073709551615u, 7, 10}));
  EXPECT_THAT(answer->keys, ElementsAre(StoredKey{"a/1", "v", 2, 9, 3}));
}

TEST(EtcdMessagesTest, MissingFieldsAreZero) {
  const auto none = ParseRangeAnswer(Answer(R"("count":"1")"), kRange);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(none->keys, IsEmpty());
  const auto empty = ParseRangeAnswer(KeyWith(R"(,"value":"dg==")", ""), kRange);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->keys[0].value, "");
}

TEST(EtcdMessagesTest, NumbersMayBeNumbers) {
  EXPECT_TRUE(ParseRangeAnswer(KeyWith(R"("9")", "9"), kRange).ok());
}

TEST(EtcdMessagesTest, MalformedRangeAnswersAreErrors) {
  const struct {
    std::string text;
    std::string mistake;
  } kCases[] = {
      {"", "is not a JSON object"},
      {"nonsense", "is not a JSON object"},
      {"[]", "is not a JSON object"},
      {"null", "is not a JSON object"},
      {Answer("") + "}", "is not a JSON object"},
      {Answer("").substr(0, 30), "is not a JSON object"},
      {"{\"a\":\"\xff\"}", "is not a JSON object"},
      {std::string(100000, '['), "is not a JSON object"},
      {"{}", "lacks an object: header"},
      {R"({"header":[]})", "lacks an object: header"},
      {R"({"header":{"member_id":"1","revision":"1"}})", "cluster_id"},
      {R"({"header":{"cluster_id":"1","revision":"1"}})", "member_id"},
      {R"({"header":{"cluster_id":"1","member_id":"1"}})", "revision"},
      {R"({"header":{"cluster_id":"1","member_id":"1","revision":"-1"}})", "no number: revision"},
      {R"({"header":{"cluster_id":"1","member_id":"1","revision":-1}})", "no number: revision"},
      {R"({"header":{"cluster_id":"1","member_id":"1","revision":1.5}})", "no number: revision"},
      {R"({"header":{"cluster_id":"1","member_id":"1","revision":" 1"}})", "no number: revision"},
      {R"({"header":{"cluster_id":"1","member_id":"1","revision":""}})", "no number: revision"},
      {R"({"header":{"cluster_id":"1","member_id":"1","revision":"0x1"}})", "no number"},
      {R"({"header":{"cluster_id":"1","member_id":"1","revision":true}})", "no number"},
      {R"({"header":{"cluster_id":"1","member_id":"1","revision":"9223372036854775808"}})",
       "out of range: revision"},
      {R"({"header":{"cluster_id":"18446744073709551616","member_id":"1","revision":"1"}})",
       "no number: cluster_id"},
      {Answer(R"("kvs":{})"), "no list: kvs"},
      {Answer(R"("kvs":"")"), "no list: kvs"},
      {Answer(R"("kvs":[1])"), "where an object belongs"},
      {Answer(R"("kvs":[[]])"), "where an object belongs"},
      {Answer(R"("kvs":[null])"), "where an object belongs"},
      {Answer(R"("kvs":[],"more":true)"), "leaves out keys"},
      {Answer(R"("kvs":[],"more":"true")"), "no boolean: more"},
      {KeyWith(R"("YS8x")", R"("!")"), "no base64: key"},
      {KeyWith(R"("YS8x")", "7"), "no string: key"},
      {KeyWith(R"("dg==")", R"("d")"), "no base64: value"},
      {KeyWith(R"("YS8x")", R"("Yg==")"), "outside the range"},
      {KeyWith(R"("YS8x")", R"("")"), "outside the range"},
      {KeyWith(R"("create_revision":"2",)", ""), "impossible revisions"},
      {KeyWith(R"("mod_revision":"9",)", ""), "impossible revisions"},
      {KeyWith(R"("version":"3",)", ""), "impossible revisions"},
      {KeyWith(R"("9")", R"("1")"), "impossible revisions"},
      {KeyWith(R"("9")", R"("11")"), "impossible revisions"},
  };
  for (const auto& [text, mistake] : kCases) {
    const auto answer = ParseRangeAnswer(text, kRange);
    EXPECT_TRUE(absl::IsDataLoss(answer.status())) << Excerpt(text);
    EXPECT_THAT(std::string(answer.status().message()), HasSubstr(mistake)) << Excerpt(text);
    EXPECT_LT(answer.status().message().size(), 400u);
  }
}

TEST(EtcdMessagesTest, NestingIsBounded) {
  EXPECT_TRUE(ParseRangeAnswer(Answer(R"("x":[[[[[[["[[\"[["]]]]]]])"), kRange).ok());
  const auto deep = ParseRangeAnswer(Answer(R"("x":[[[[[[[[]]]]]]]])"), kRange);
  EXPECT_TRUE(absl::IsDataLoss(deep.status())) << deep.status();
}

TEST(EtcdMessagesTest, KeyThatWasNotAskedForIsAnError) {
  EXPECT_TRUE(ParseRangeAnswer(KeyWith("", ""), {"a/1"}).ok());
  EXPECT_FALSE(ParseRangeAnswer(KeyWith("", ""), {"a/"}).ok());
  EXPECT_TRUE(ParseRangeAnswer(KeyWith("", ""), {"a/", true, 9}).ok());
  EXPECT_FALSE(ParseRangeAnswer(KeyWith("", ""), {"a/", true, 10}).ok());
}

TEST(EtcdMessagesTest, TransactionAnswerFollowsItsBranch) {
  Transaction transaction;
  transaction.operations = {StoreOperation::Put("p", ""), StoreOperation::Delete("d"),
                            StoreOperation::Range(kRange)};
  transaction.otherwise = {kRange};
  const auto applied = ParseTransactionAnswer(
      Answer(absl::StrCat(R"("succeeded":true,"responses":[{"response_put":{}},)",
                          R"({"response_delete_range":{"deleted":"1"}},)",
                          R"({"response_range":{"kvs":[)", kKey, "]}}]")),
      transaction);
  ASSERT_TRUE(applied.ok()) << applied.status();
  EXPECT_EQ(applied->outcome, TransactionOutcome::kApplied);
  EXPECT_EQ(applied->header.revision, 10);
  ASSERT_THAT(applied->results, SizeIs(3));
  EXPECT_EQ(applied->results[1].deleted, 1);
  EXPECT_EQ(applied->results[2].keys[0].key, "a/1");

  const auto refused =
      ParseTransactionAnswer(Answer(R"("responses":[{"response_range":{}}])"), transaction);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(refused->outcome, TransactionOutcome::kRefused);
  ASSERT_THAT(refused->results, SizeIs(1));
  EXPECT_THAT(refused->results[0].keys, IsEmpty());

  EXPECT_TRUE(ParseTransactionAnswer(Answer(""), {}).ok());
}

TEST(EtcdMessagesTest, MalformedTransactionAnswersAreErrors) {
  Transaction transaction;
  transaction.operations = {StoreOperation::Delete("d")};
  for (const char* fields :
       {"", R"("succeeded":1)", R"("succeeded":"true")", R"("succeeded":true)",
        R"("succeeded":true,"responses":[])", R"("succeeded":true,"responses":[7])",
        R"("succeeded":true,"responses":[{}])",
        R"("succeeded":true,"responses":[{"response_put":{}}])",
        R"("succeeded":true,"responses":[{"response_delete_range":{"deleted":"2"}}])",
        R"("succeeded":true,"responses":[{"response_delete_range":{}},{}])",
        R"("responses":[{"response_delete_range":{}}])"}) {
    const auto answer = ParseTransactionAnswer(Answer(fields), transaction);
    // Without a compare that can fail, an answer that the transaction was refused has no responses.
    if (*fields == '\0') {
      EXPECT_EQ(answer->outcome, TransactionOutcome::kRefused);
    } else {
      EXPECT_TRUE(absl::IsDataLoss(answer.status())) << fields;
    }
  }
}

TEST(EtcdMessagesTest, TokenFitsIntoAHeader) {
  EXPECT_EQ(*ParseToken(R"({"token":"abc.17"})"), "abc.17");
  for (const std::string& text :
       {std::string("{}"), std::string(R"({"token":""})"), std::string(R"({"token":7})"),
        std::string(R"({"token":"a b"})"), std::string(R"({"token":"a\r\nHost: b"})"),
        absl::StrCat(R"({"token":")", std::string(4097, 'a'), R"("})")}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseToken(text).status())) << Excerpt(text);
  }
}

TEST(EtcdMessagesTest, MemberStatusIsParsed) {
  const auto status = ParseMemberStatus(Answer(
      R"("version":"3.4.23","dbSize":"24576","leader":"7","errors":["etcdserver: no leader"])"));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->version, "3.4.23");
  EXPECT_EQ(status->leader_id, 7u);
  EXPECT_EQ(status->database_bytes, 24576u);
  EXPECT_THAT(status->errors, ElementsAre("etcdserver: no leader"));
  EXPECT_FALSE(ParseMemberStatus(Answer(R"("errors":[7])")).ok());
  EXPECT_FALSE(ParseMemberStatus(Answer(R"("version":7)")).ok());
}

TEST(EtcdMessagesTest, ErrorsOfTheGatewayAreReported) {
  const auto error = ParseEtcdError(
      R"({"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14})");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, 14);
  EXPECT_EQ(error->message, "etcdserver: no leader");
  const auto strange = ParseEtcdError(R"({"error":"\u001b[31m\n","code":2})");
  ASSERT_TRUE(strange.has_value());
  EXPECT_EQ(strange->message, "\\033[31m\\n");
  for (const char* text :
       {"", "Not Found", "{}", R"({"error":"a"})", R"({"error":"a","code":0})",
        R"({"error":"a","code":17})", R"({"error":7,"code":1})", R"({"error":"","code":1})"}) {
    EXPECT_FALSE(ParseEtcdError(text).has_value()) << text;
  }
}

TEST(EtcdMessagesTest, ExcerptIsShortAndPrintable) {
  EXPECT_EQ(Excerpt("a\nb"), "a\\nb");
  EXPECT_LE(Excerpt(std::string(1000, '\x01')).size(), 210u);
  EXPECT_EQ(Excerpt(std::string(200, 'a')), std::string(200, 'a'));
}

}  // namespace
}  // namespace osprey
