#include "tools/quickstart.d/deb_index.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

std::vector<Stanza> Parse(absl::string_view index) {
  absl::StatusOr<std::vector<Stanza>> stanzas = ParseStanzas(index);
  EXPECT_TRUE(stanzas.ok()) << stanzas.status();
  return stanzas.ok() ? *stanzas : std::vector<Stanza>();
}

TEST(DebIndexTest, AStanzaHasItsLastNewlineAndNotTheEmptyLine) {
  const auto stanzas = Parse("Package: a\nVersion: 1\nTag: x,\n y\n\nPackage: b\nVersion: 2\n\n");
  ASSERT_EQ(stanzas.size(), 2u);
  EXPECT_EQ(stanzas[0].key, "a");
  EXPECT_EQ(stanzas[0].value, "Package: a\nVersion: 1\nTag: x,\n y\n");
  EXPECT_EQ(stanzas[1].key, "b");
  EXPECT_EQ(stanzas[1].value, "Package: b\nVersion: 2\n");
}

TEST(DebIndexTest, TheLastStanzaMayEndWithTheFileWithOrWithoutANewline) {
  EXPECT_EQ(Parse("Package: a\nVersion: 1\n")[0].value, "Package: a\nVersion: 1\n");
  EXPECT_EQ(Parse("Package: a\nVersion: 1")[0].value, "Package: a\nVersion: 1");
  EXPECT_EQ(Parse("Package: a")[0].value, "Package: a");
}

TEST(DebIndexTest, SeveralEmptyLinesSeparateAsOne) {
  const auto stanzas = Parse("\n\n \t\nPackage: a\n\n\n\nPackage: b\n \nPackage: c\n");
  ASSERT_EQ(stanzas.size(), 3u);
  EXPECT_EQ(stanzas[0].value, "Package: a\n");
  EXPECT_EQ(stanzas[1].value, "Package: b\n");
  EXPECT_EQ(stanzas[2].value, "Package: c\n");
}

TEST(DebIndexTest, RepeatedNamesAreDistinguishedByVersion) {
  const auto stanzas = Parse(
      "Package: a\nVersion: 1\n\nPackage: a\nVersion: 2\n\nPackage: a\nVersion: 2\n\nVersion: "
      "2\nPackage: a\n");
  ASSERT_EQ(stanzas.size(), 4u);
  EXPECT_EQ(stanzas[0].key, "a");
  EXPECT_EQ(stanzas[1].key, "a=2");
  EXPECT_EQ(stanzas[2].key, "a=2#2");
  EXPECT_EQ(stanzas[3].key, "a=2#3");
}

TEST(DebIndexTest, AContinuationLineIsNoField) {
  const auto stanzas = Parse("Package: a\nDescription: x\n Package: y\nVersion: 1\n");
  ASSERT_EQ(stanzas.size(), 1u);
  EXPECT_EQ(stanzas[0].key, "a");
}

TEST(DebIndexTest, AStanzaWithoutANameIsRefusedWithItsLine) {
  const auto stanzas = ParseStanzas("Package: a\n\nVersion: 2\n");
  EXPECT_TRUE(absl::IsInvalidArgument(stanzas.status()));
  EXPECT_THAT(std::string(stanzas.status().message()), HasSubstr("line 3"));
}

TEST(DebIndexTest, AnIndexWithoutStanzasIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(ParseStanzas("").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseStanzas("\n\n").status()));
}

}  // namespace
}  // namespace osprey
