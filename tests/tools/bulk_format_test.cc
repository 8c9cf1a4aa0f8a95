// The files of export and import: their exact bytes, round trips, and errors for all other
// contents.

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/allocation_count.h"
#include "tests/support/volume.h"
#include "tools/bulk/file.h"
#include "tools/bulk/format.h"

namespace osprey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Result = BulkReader::Result;

constexpr BulkFormat kAll[] = {BulkFormat::kJsonl, BulkFormat::kCsv, BulkFormat::kBinary};
const std::string kBytes("\0\xff\n,\"", 5);

// Gives `text` in pieces of `piece` bytes.
BulkInput::Source Pieces(const std::string& text, size_t piece = SIZE_MAX) {
  return [text, piece, at = size_t{0}](char* data, size_t bytes) mutable -> absl::StatusOr<size_t> {
    const size_t count = std::min({bytes, piece, text.size() - at});
    std::memcpy(data, text.data() + at, count);
    at += count;
    return count;
  };
}

std::string Written(BulkFormat format, const std::vector<BulkRecord>& records) {
  const std::unique_ptr<BulkWriter> writer = NewBulkWriter(format);
  std::string text;
  writer->Begin(text);
  for (const BulkRecord& record : records) EXPECT_TRUE(writer->Append(record, text).ok());
  writer->End(text);
  return text;
}

struct Outcome {
  std::vector<BulkRecord> records;
  std::vector<std::string> errors;  // "line 2: …"
  bool is_broken = false;
};

// Bounded: a reader that does not end fails.
Outcome ReadAll(BulkFormat format, const std::string& text, size_t piece = SIZE_MAX) {
  BulkInput input(Pieces(text, piece));
  const std::unique_ptr<BulkReader> reader = NewBulkReader(format, input);
  Outcome outcome;
  for (size_t i = 0; i <= text.size() + 2; ++i) {
    BulkRecord record;
    switch (reader->Next(record)) {
      case Result::kRecord:
        outcome.records.push_back(record);
        break;
      case Result::kEnd:
        return outcome;
      case Result::kBadRecord:
        outcome.errors.push_back(absl::StrCat(reader->place(), ": ", reader->error()));
        break;
      case Result::kBroken:
        outcome.errors.push_back(absl::StrCat(reader->place(), ": ", reader->error()));
        outcome.is_broken = true;
        return outcome;
    }
  }
  ADD_FAILURE() << "it does not end";
  return outcome;
}

void ExpectError(BulkFormat format, const std::string& text, const std::string& error) {
  const Outcome outcome = ReadAll(format, text);
  ASSERT_FALSE(outcome.errors.empty()) << "taken without an error: " << absl::CHexEscape(text);
  EXPECT_THAT(outcome.errors[0], HasSubstr(error)) << absl::CHexEscape(text);
}

std::vector<BulkRecord> Records() {
  return {{"planet", "saturn", absl::InfiniteDuration()},
          {"says", "a,\"b\"\r\nc\n", absl::Milliseconds(59'500)},
          {kBytes, std::string("\x01"), absl::InfiniteDuration()},
          {"empty", "", absl::Hours(24 * 365)}};
}

TEST(BulkFormatTest, JsonlIsAnObjectALine) {
  EXPECT_EQ(Written(BulkFormat::kJsonl, Records()),
            "{\"key\":\"planet\",\"value\":\"saturn\"}\n"
            "{\"key\":\"says\",\"value\":\"a,\\\"b\\\"\\r\\nc\\n\",\"ttl\":59.500}\n"
            "{\"key\":\"AP8KLCI=\",\"key_encoding\":\"base64\",\"value\":\"AQ==\","
            "\"value_encoding\":\"base64\"}\n"
            "{\"key\":\"empty\",\"value\":\"\",\"ttl\":31536000.000}\n");
}

TEST(BulkFormatTest, CsvIsAsRfc4180Says) {
  EXPECT_EQ(Written(BulkFormat::kCsv, Records()),
            "key,value,ttl,key_encoding,value_encoding\n"
            "planet,saturn,,,\n"
            "says,\"a,\"\"b\"\"\r\nc\n\",59.500,,\n"
            "AP8KLCI=,AQ==,,base64,base64\n"
            "empty,,31536000.000,,\n");
}

TEST(BulkFormatTest, BinaryIsHeaderRecordsAndEnd) {
  const std::string text = Written(BulkFormat::kBinary, {{"key", "value", absl::Milliseconds(1)}});
  EXPECT_EQ(absl::BytesToHexString(text),
            "4f53505245594b56"                  // OSPREYKV
            "0100000000000000"                  // version 1
            "0300000000000000"                  // key length
            "0500000000000000"                  // value length
            "e803000000000000"                  // ttl, us
            "af8e6804fbde9926"                  // checksum
            "6b657976616c7565"                  // key, value
            "00000000000000000100000000000000"  // the end: one record
            "0000000000000000"
            "a54eb6332a4ac71c");
}

TEST(BulkFormatTest, WhatIsWrittenIsReadAgainHoweverTheBytesCome) {
  std::mt19937_64 random(7);
  std::vector<BulkRecord> records = Records();
  for (int i = 0; i < 300; ++i) {
    BulkRecord record;
    for (std::string* bytes : {&record.key, &record.value}) {
      const size_t length = (bytes == &record.key ? 1 : 0) + random() % 60;
      const uint64_t alphabet = random() % 2 == 0 ? 256 : 5;
      for (size_t k = 0; k < length; ++k)
        bytes->push_back(static_cast<char>((alphabet == 5 ? ',' - 2 : 0) + random() % alphabet));
    }
    if (random() % 3 == 0) record.ttl = absl::Milliseconds(1 + random() % 1'000'000'000);
    records.push_back(record);
  }
  records.push_back(
      {"long", std::string((1 << 20) / kVolumeParts, '\xfe'), absl::InfiniteDuration()});
  for (const BulkFormat format : kAll) {
    const std::string text = Written(format, records);
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}, SIZE_MAX}) {
      const Outcome outcome = ReadAll(format, text, piece);
      EXPECT_THAT(outcome.errors, ElementsAre()) << NameOf(format);
      ASSERT_EQ(outcome.records.size(), records.size()) << NameOf(format) << " " << piece;
      for (size_t i = 0; i < records.size(); ++i) {
        EXPECT_EQ(outcome.records[i].key, records[i].key) << NameOf(format);
        EXPECT_TRUE(outcome.records[i].value == records[i].value) << NameOf(format) << i;
        EXPECT_EQ(outcome.records[i].ttl, records[i].ttl) << NameOf(format);
      }
    }
  }
}

TEST(BulkFormatTest, ABinaryFileThatIsCutOffOrChangedAnywhereIsNoticed) {
  const std::string text = Written(BulkFormat::kBinary, Records());
  for (size_t length = 0; length < text.size(); ++length)
    EXPECT_TRUE(ReadAll(BulkFormat::kBinary, text.substr(0, length)).is_broken) << length;
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char flip : {1, 0x40, -128}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      EXPECT_TRUE(ReadAll(BulkFormat::kBinary, changed).is_broken) << i;
    }
  }
  EXPECT_TRUE(ReadAll(BulkFormat::kBinary, text + "x").is_broken);
  EXPECT_TRUE(ReadAll(BulkFormat::kBinary, text + text).is_broken);
}

TEST(BulkFormatTest, BinaryRecordsThatAreSwappedRepeatedOrLeftOutAreNoticed) {
  const std::vector<BulkRecord> two = {{"a", "1", absl::InfiniteDuration()},
                                       {"b", "2", absl::InfiniteDuration()}};
  const std::string text = Written(BulkFormat::kBinary, two);
  const std::string header = text.substr(0, 16), first = text.substr(16, 34),
                    second = text.substr(50, 34), end = text.substr(84);
  EXPECT_EQ(ReadAll(BulkFormat::kBinary, header + first + second + end).records.size(), 2u);
  for (const std::string& records : {second + first, first, first + first, first + second + second})
    EXPECT_TRUE(ReadAll(BulkFormat::kBinary, header + records + end).is_broken);
}

TEST(BulkFormatTest, HugeLengthsOfABinaryFileTakeNoMemory) {
  std::string text = Written(BulkFormat::kBinary, {}).substr(0, 16);
  std::string record(32, '\0');
  record[0] = 1;
  record[11] = 0x40;  // a value of 1 GiB, without its bytes
  EXPECT_TRUE(ReadAll(BulkFormat::kBinary, text + record + "k").is_broken);
  record[15] = 0x7F;  // of 2^62
  ExpectError(BulkFormat::kBinary, text + record, "lengths cannot be");
  record.assign(32, '\xFF');
  ExpectError(BulkFormat::kBinary, text + record, "lengths cannot be");
}

TEST(BulkFormatTest, AnotherVersionOrOtherFilesAreSaidToBe) {
  std::string text = Written(BulkFormat::kBinary, {});
  text[8] = 2;
  ExpectError(BulkFormat::kBinary, text, "version is 2");
  ExpectError(BulkFormat::kBinary, "{\"key\":1}\n", "does not begin as a binary export");
  ExpectError(BulkFormat::kBinary, "", "does not begin");
  ExpectError(BulkFormat::kJsonl, Written(BulkFormat::kBinary, Records()), "--format=binary");
}

TEST(BulkFormatTest, ABadLineOfJsonlIsSaidAndTheNextIsTaken) {
  const Outcome outcome = ReadAll(BulkFormat::kJsonl,
                                  "{\"key\":\"a\",\"value\":\"1\"}\n"
                                  "\n"
                                  "nonsense\n"
                                  "{\"ttl\":null,\"key\":\"b\",\"value\":\"2\"}\r\n"
                                  "{\"key\":\"c\",\"value\":\"3\"");
  ASSERT_EQ(outcome.records.size(), 2u);
  EXPECT_EQ(outcome.records[1].key, "b");
  EXPECT_THAT(outcome.errors,
              ElementsAre("line 3: it is no JSON object", "line 5: it is no JSON object"));
  EXPECT_FALSE(outcome.is_broken);
}

TEST(BulkFormatTest, JsonlThatIsNoRecordSaysWhatIsMissing) {
  const auto error = [](const std::string& line, const std::string& what) {
    ExpectError(BulkFormat::kJsonl, line + "\n", what);
  };
  error("[]", "no JSON object");
  error("{\"key\":\"a\"}", "\"value\"");
  error("{\"key\":1,\"value\":\"b\"}", "\"key\"");
  error("{\"key\":\"a\",\"value\":\"!\",\"value_encoding\":\"base64\"}", "no base64");
  error("{\"key\":\"a\",\"value\":\"!\",\"value_encoding\":\"rot13\"}", "neither");
  error("{\"key\":\"a\",\"value\":\"!\",\"value_encoding\":7}", "no text");
  error("{\"key\":\"a\",\"value\":\"b\",\"ttl\":\"1\"}", "no number");
  error("{\"key\":\"a\",\"value\":\"b\",\"ttl\":0}", "above 0");
  error("{\"key\":\"a\",\"value\":\"b\",\"ttl\":1e30}", "100 years");
  // To the client, a time of 0 means forever.
  error("{\"key\":\"a\",\"value\":\"b\",\"ttl\":1e-20}", "above 0");
  error("{\"key\":\"a\xff\",\"value\":\"b\"}", "no JSON object");
  error(std::string(100'000, '['), "no JSON object");
  error("{}", "\"key\"");
  error("{\"key\":\"a\",\"value\":\"b\"}{}", "no JSON object");
  error("{\"key\":null,\"value\":\"b\"}", "\"key\"");
  error("{\"key\":\"a\",\"value\":\"b\",\"ttl\":\"1\"}", "its ttl is no number");
  error("{\"key\":\"a\",\"value\":{}}", "its value is an object");
  error("{\"key\":[],\"value\":\"b\"}", "its key is a list");
  error("{\"key\":\"a\",\"value\":\"b\",\"key\":\"c\"}", "its key is there twice");
  error("{\"key\":\"a\",\"value\":\"b\",\"tll\":5}", "it has the name 'tll'; a record has");
  error("{\"" + std::string(1000, 'n') + "\":1}",
        "it has the name '" + std::string(64, 'n') + "';");
}

// Each is refused at the first thing that no record has, with the line and the reason.
TEST(BulkFormatTest, HostileLinesTakeNoMoreMemoryThanTheirLength) {
  std::string wide = "{";
  for (int i = 0; i < 400'000; ++i) absl::StrAppend(&wide, "\"name", i, "\":", i, ",");
  wide.back() = '}';
  std::string repeated = "{";
  for (int i = 0; i < 400'000; ++i) absl::StrAppend(&repeated, "\"key\":\"k\",");
  repeated.back() = '}';
  const std::string nested(20'000'000, '[');
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"key\":";
  const std::pair<const std::string&, std::string> lines[] = {
      {wide, "line 1: it has the name 'name0'"},
      {repeated, "line 1: its key is there twice"},
      {nested, "line 1: it is no JSON object"},
      {objects, "line 1: its key is an object"}};
  for (const auto& [line, reason] : lines) {
    const std::string text = line + "\n{\"key\":\"a\",\"value\":\"1\"}\n";
    const uint64_t bytes_before = AllocatedBytesSoFar();
    const uint64_t before = AllocationsSoFar();
    const Outcome outcome = ReadAll(BulkFormat::kJsonl, text);
    // The test gives a copy of the text, and the reader gathers the line.
    EXPECT_LT(AllocatedBytesSoFar() - bytes_before, 6 * text.size() + (1 << 20)) << reason;
    EXPECT_LT(AllocationsSoFar() - before, 1000u) << reason;
    ASSERT_EQ(outcome.errors.size(), 1u) << reason;
    EXPECT_THAT(outcome.errors[0], HasSubstr(reason));
    EXPECT_EQ(outcome.records.size(), 1u) << "the next line is taken";
  }
}

TEST(BulkFormatTest, CsvColumnsMayStandInAnyOrderAndBesideOthers) {
  const Outcome outcome = ReadAll(BulkFormat::kCsv,
                                  "\xEF\xBB\xBFid,value,key\r\n"
                                  "1,\"sat\"\"urn\",planet\r\n"
                                  "\r\n"
                                  "2,,empty\r\n"
                                  "3,\"two\nlines\",\"a,b\"");
  EXPECT_THAT(outcome.errors, ElementsAre());
  ASSERT_EQ(outcome.records.size(), 3u);
  EXPECT_EQ(outcome.records[0].key, "planet");
  EXPECT_EQ(outcome.records[0].value, "sat\"urn");
  EXPECT_EQ(outcome.records[1].value, "");
  EXPECT_EQ(outcome.records[2].key, "a,b");
  EXPECT_EQ(outcome.records[2].value, "two\nlines");
}

TEST(BulkFormatTest, ABadRecordOfCsvIsSaidAndTheNextIsTaken) {
  const Outcome outcome = ReadAll(BulkFormat::kCsv,
                                  "key,value,ttl\n"
                                  "a\n"
                                  "\"b\"x,1,\n"
                                  "c\"c,1,\n"
                                  "\"d\nd\",1,soon\n"
                                  "e,1,-5\n"
                                  "f,2,7\n"
                                  "\"g,2,7\n");
  ASSERT_EQ(outcome.records.size(), 1u);
  EXPECT_EQ(outcome.records[0].key, "f");
  EXPECT_EQ(outcome.records[0].ttl, absl::Seconds(7));
  ASSERT_EQ(outcome.errors.size(), 6u);
  EXPECT_EQ(outcome.errors[0], "line 2: it has 1 fields, and the first line has 3");
  EXPECT_THAT(outcome.errors[1], HasSubstr("line 3: something stands behind"));
  EXPECT_THAT(outcome.errors[2], HasSubstr("line 4: a quote stands within"));
  EXPECT_EQ(outcome.errors[3], "line 5: its ttl is no number");
  EXPECT_THAT(outcome.errors[4], HasSubstr("line 7: its ttl is not above 0"));
  EXPECT_THAT(outcome.errors[5], HasSubstr("line 9: a quote is not closed"));
}

TEST(BulkFormatTest, CsvThatDoesNotNameItsColumnsIsRefused) {
  EXPECT_TRUE(ReadAll(BulkFormat::kCsv, "").is_broken);
  EXPECT_TRUE(ReadAll(BulkFormat::kCsv, "planet,saturn\n").is_broken);
  EXPECT_TRUE(ReadAll(BulkFormat::kCsv, std::string(5000, ',')).is_broken);
}

TEST(BulkFormatTest, AnythingAtAllIsReadWithoutHarm) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 3000; ++i) {
    const BulkFormat format = kAll[random() % 3];
    std::string text = Written(format, Records());
    for (uint64_t k = random() % 5; k > 0; --k) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = "\",\n\r{}\\:x0"[random() % 10];
      } else {
        text.erase(at, random() % 20);
        if (text.empty()) text = ",";
      }
    }
    ReadAll(format, text, 1 + random() % 50);
  }
}

TEST(BulkFormatTest, AnErrorOfTheInputIsNoEnd) {
  for (const BulkFormat format : kAll) {
    const std::string text = Written(format, Records());
    // In the first line, or header, and in a record.
    for (const size_t good : {size_t{3}, text.size() - 40}) {
      BulkInput input([&, at = size_t{0}](char* data, size_t) mutable -> absl::StatusOr<size_t> {
        if (at == good) return absl::UnknownError("the disk is gone");
        data[0] = text[at++];
        return 1;
      });
      const std::unique_ptr<BulkReader> reader = NewBulkReader(format, input);
      BulkRecord record;
      Result result = Result::kRecord;
      for (int i = 0; i < 10 && result == Result::kRecord; ++i) result = reader->Next(record);
      EXPECT_EQ(result, Result::kBroken) << NameOf(format);
      EXPECT_EQ(reader->error(), "the disk is gone");
    }
  }
}

TEST(BulkFormatTest, ALifeComesBackToTheMicrosecondHoweverLong) {
  const absl::Duration ttl = absl::Seconds(3'100'000'001) + absl::Microseconds(7);
  const Outcome outcome =
      ReadAll(BulkFormat::kBinary, Written(BulkFormat::kBinary, {{"key", "value", ttl}}));
  ASSERT_EQ(outcome.records.size(), 1u);
  EXPECT_EQ(outcome.records[0].ttl, ttl);
}

TEST(BulkFormatTest, TextTakesNoValuesOfUnreasonableLength) {
  const BulkRecord record{"k", std::string(kBulkTextValueBytesMax + 1, 'x'),
                          absl::InfiniteDuration()};
  for (const BulkFormat format : {BulkFormat::kCsv, BulkFormat::kJsonl}) {
    std::string text;
    const absl::Status status = NewBulkWriter(format)->Append(record, text);
    EXPECT_THAT(std::string(status.message()), HasSubstr("--format=binary"));
    EXPECT_EQ(text, "");
  }
}

TEST(BulkFormatTest, TheFormatIsWhatWasSaidOrAsTheNameEnds) {
  EXPECT_EQ(BulkFormatOf("", "a.csv").value(), BulkFormat::kCsv);
  EXPECT_EQ(BulkFormatOf("", "a.osprey").value(), BulkFormat::kBinary);
  EXPECT_EQ(BulkFormatOf("", "-").value(), BulkFormat::kJsonl);
  EXPECT_EQ(BulkFormatOf("binary", "a.csv").value(), BulkFormat::kBinary);
  EXPECT_TRUE(absl::IsInvalidArgument(BulkFormatOf("xml", "a.csv").status()));
  EXPECT_EQ(BulkFormatOf("", "A.CSV").value(), BulkFormat::kCsv);
  EXPECT_EQ(BulkFormatOf("", "a.Bin").value(), BulkFormat::kBinary);
  EXPECT_EQ(BulkFormatOf("", "a.b/c.jsonl").value(), BulkFormat::kJsonl);
  for (const char* without_an_ending :
       {"backup", "a.gz/backup", ".backup", "/dev/stdin", "backup."})
    EXPECT_EQ(BulkFormatOf("", without_an_ending).value(), BulkFormat::kJsonl);
}

TEST(BulkFormatTest, ANameWithAnotherEndingIsRefusedWithTheFormats) {
  for (const char* path : {"a.txt", "a.json", "a.csv.1", "backup.2026-11-24"}) {
    EXPECT_THAT(std::string(BulkFormatOf("", path).status().message()),
                AllOf(HasSubstr("--format=jsonl, csv or binary"), HasSubstr(".osprey")));
    EXPECT_EQ(BulkFormatOf("csv", path).value(), BulkFormat::kCsv);
  }
  // Given a compressed file, for any format: nothing here compresses.
  for (const char* name : {"", "jsonl", "binary"}) {
    EXPECT_THAT(std::string(BulkFormatOf(name, "x.jsonl.GZ").status().message()),
                HasSubstr("kvcli export - --format=jsonl | gzip > FILE"));
    EXPECT_FALSE(BulkFormatOf(name, "x.zst").ok());
  }
}

TEST(BulkFormatTest, TheStateOfAnExportComesBackAndNonsenseIsNone) {
  ExportState state;
  state.format = "csv";
  state.prefix = kBytes;
  state.cursor = "c0ffee";
  state.records = 7;
  state.bytes = 1234;
  const absl::StatusOr<ExportState> read = ExportState::Parse(state.Text());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->prefix, kBytes);
  EXPECT_EQ(read->cursor, "c0ffee");
  EXPECT_EQ(read->records, 7u);
  EXPECT_EQ(read->bytes, 1234u);
  for (const std::string text : {"", "{}", "[]", "{\"format\":1}"})
    EXPECT_FALSE(ExportState::Parse(text).ok()) << text;
  std::string text = state.Text();
  text.replace(text.find("00ff"), 2, "zz");
  EXPECT_FALSE(ExportState::Parse(text).ok());
}

}  // namespace
}  // namespace osprey
