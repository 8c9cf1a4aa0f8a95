// The bytes of every struct on the disk, and what Validate says of others.

#include <cstring>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/wal/format/checkpoint_format.h"
#include "server/wal/format/checksum.h"
#include "server/wal/format/entries.h"
#include "server/wal/format/format.h"

namespace osprey::server::wal {
namespace {

using ::testing::HasSubstr;

// 8 bytes a line, without those that are all zero: "OFFSET: BYTES".
std::string Lines(Bytes bytes) {
  std::string lines;
  for (size_t at = 0; at < bytes.size(); at += 8) {
    const Bytes row = bytes.subspan(at, 8);
    if (!HasBits(row)) continue;
    absl::StrAppend(&lines, at, ": ", absl::BytesToHexString(TextOf(row)), "\n");
  }
  return lines;
}
template <typename T>
std::string LinesOf(const T& object) {
  return Lines(BytesOf(object));
}

constexpr DirectoryId kDirectory{{0x1111, 0x2222}};

FormatFile SomeFormat() {
  FormatFile format;
  format.shards = 4;
  format.compatible_features = 5;
  format.directory = kDirectory;
  format.copied_from = {{3, 4}};
  format.server = 6;
  format.hash_seed = 7;
  format.Seal();
  return format;
}

// Up to the origins of a copy of a copy.
constexpr char kLinesOfSomeFormat[] = R"(0: 4f53464f524d4154
8: 0100000004000000
16: 0500000000000000
32: 1111000000000000
40: 2222000000000000
48: 0300000000000000
56: 0400000000000000
64: 0600000000000000
72: 0700000000000000
)";

TEST(WalFormatTest, FormatFileHasTheseBytes) {
  EXPECT_EQ(LinesOf(SomeFormat()), absl::StrCat(kLinesOfSomeFormat, "120: 16ee9fa7dcb731c9\n"));
  EXPECT_EQ(SomeFormat().Validate(), "");
}

TEST(WalFormatTest, FormatFileSaysWhyItIsNotValid) {
  FormatFile format = SomeFormat();
  format.shards = 5;
  EXPECT_EQ(format.Validate(), "its checksum is wrong");
  format = SomeFormat();
  format.incompatible_features = 2;
  format.Seal();
  EXPECT_THAT(format.Validate(), HasSubstr("features that this program lacks"));
  format = SomeFormat();
  format.format = 9;
  format.Seal();
  EXPECT_EQ(format.Validate(), "its format is 9; this program has format 1");
  format = SomeFormat();
  format.reserved[3] = 1;
  format.Seal();
  EXPECT_EQ(format.Validate(), "reserved bytes are not zero");
  // A compatible feature that this program lacks is no obstacle.
  EXPECT_EQ(SomeFormat().Validate(), "");
}

const std::vector<DirectoryId> kMoreOrigins = {{{5, 6}}, {{7, 8}}};

FormatFile SomeCopyOfCopies() {
  FormatFile format = SomeFormat();
  format.Seal(kMoreOrigins);
  return format;
}

TEST(WalFormatTest, FormatFileOfCopiesHasTheseBytes) {
  EXPECT_EQ(LinesOf(SomeCopyOfCopies()), absl::StrCat(kLinesOfSomeFormat, R"(80: 0200000000000000
88: 9f5fe976eda462ad
120: d16226cb8f02b9d6
)"));
  EXPECT_EQ(SomeCopyOfCopies().Validate(kMoreOrigins), "");
}

TEST(WalFormatTest, OriginsOfCopiesAreChecked) {
  FormatFile format = SomeCopyOfCopies();
  EXPECT_EQ(format.Validate(), "its origins are cut off, or bytes follow them");
  EXPECT_EQ(format.Validate({kMoreOrigins[1], kMoreOrigins[0]}),
            "the checksum of its origins is wrong");
  format.copied_from = DirectoryId();
  format.Seal(kMoreOrigins);
  EXPECT_EQ(format.Validate(kMoreOrigins), "it has 2 origins");
  const std::vector<DirectoryId> many(kOriginsMax + 1, DirectoryId{{9, 9}});
  format = SomeFormat();
  format.Seal(many);
  EXPECT_EQ(format.Validate(many), "it has 249 origins");
  format.copied_from = format.directory;
  format.Seal();
  EXPECT_EQ(format.Validate(), "it is a copy of itself");
}

SegmentHeader SomeSegment() {
  SegmentHeader header;
  header.directory = kDirectory;
  header.number = 9;
  header.life = 0xabcd;
  header.previous_number = 7;
  header.previous_life = 0x77;
  header.previous_end = 8192;
  header.previous_checksum = 0x99;
  header.first_record = 100;
  header.synced_to = 90;
  header.Seal();
  return header;
}

TEST(WalFormatTest, SegmentHeaderHasTheseBytes) {
  EXPECT_EQ(LinesOf(SomeSegment()), R"(0: 4f535345474d474e
8: 0100000000000000
16: 1111000000000000
24: 2222000000000000
32: 0900000000000000
40: cdab000000000000
48: 0700000000000000
56: 7700000000000000
64: 0020000000000000
72: 9900000000000000
80: 6400000000000000
88: 5a00000000000000
4088: 3886a978ca42abb6
)");
  EXPECT_EQ(SomeSegment().Validate({kDirectory}, 9), "");
  // In a copy.
  EXPECT_EQ(SomeSegment().Validate({DirectoryId{{1, 1}}, kDirectory}, 9), "");
}

TEST(WalFormatTest, SegmentHeaderSaysWhyItIsNotValid) {
  SegmentHeader header = SomeSegment();
  EXPECT_EQ(header.Validate({DirectoryId{{1, 1}}}, 9), "the segment is of another data directory");
  EXPECT_EQ(header.Validate({kDirectory}, 8), "the segment is number 9, not 8");
  header.synced_to = 100;
  header.Seal();
  EXPECT_EQ(header.Validate({kDirectory}, 9), "the segment's first record is out of order");
  header.first_record = UINT64_MAX;  // the next number would be 0
  header.Seal();
  EXPECT_EQ(header.Validate({kDirectory}, 9), "the segment's first record is out of order");
  header.magic = 0;
  EXPECT_EQ(header.Validate({kDirectory}, 9), "it is no segment header");
}

TEST(WalFormatTest, RecordHeaderHasTheseBytes) {
  RecordHeader header;
  header.kind = static_cast<uint8_t>(RecordKind::kPiece);
  header.flags = kMustUnderstand;
  header.length = 70;
  header.number = 12;
  header.chain = 0xc4a1;
  header.synced_to = 11;
  header.time_mark = 13;
  header.version_ceiling = 14;
  header.body_checksum = 15;
  const uint64_t seed = SeedOf(0xabcd, 9, 4096);
  header.header_checksum = header.HeaderChecksum(seed);
  EXPECT_EQ(LinesOf(header), R"(0: 4f52020146000000
8: 0c00000000000000
16: a1c4000000000000
24: 0b00000000000000
32: 0d00000000000000
40: 0e00000000000000
48: 0f00000000000000
56: 2ea4a5d04c980ac8
)");
  EXPECT_EQ(header.bytes(), 192u);
  EXPECT_EQ(header.Validate(seed), "");
  // At another place, in another segment, or of another life.
  EXPECT_EQ(header.Validate(SeedOf(0xabcd, 9, 4160)), "the record header's checksum is wrong");
  EXPECT_EQ(header.Validate(SeedOf(0xabcd, 8, 4096)), "the record header's checksum is wrong");
  EXPECT_EQ(header.Validate(SeedOf(0xabce, 9, 4096)), "the record header's checksum is wrong");
}

std::string Joined(absl::Span<const BodyPart> parts) {
  std::string body;
  for (const BodyPart& part : parts) absl::StrAppend(&body, TextOf(part.bytes));
  return body;
}

GroupHeader SomeGroup() {
  GroupHeader header;
  header.shard = 3;
  header.flags = kAtomic;
  header.replica_life = 0x1f;
  header.append_term = 2;
  header.first_lsn = 50;
  header.commit_point = 49;
  return header;
}

TEST(WalFormatTest, GroupOfEntriesHasTheseBytes) {
  GroupBuilder group(SomeGroup());
  const std::string value = "value";
  Entry put;
  put.term = 2;
  put.version = 0x51;
  put.expiry = 0x61;
  put.client = 0x71;
  put.sequence = 0x81;
  put.result = EntryResult{1, 2, 3, -4, 5, 6, 7};
  put.has_number = true;
  put.key = "key";
  put.value = BytesOfText(value);
  put.value_length = value.size();
  group.Add(put);
  Entry extend;
  extend.kind = EntryKind::kExtend;
  extend.base = EntryBase{0x91, 5000};
  extend.key = "k";
  extend.value_length = 6000;
  extend.value_checksum = 0xa1;
  extend.pieces = {{30, 5000, 0}, {31, 1000, 0}};
  group.Add(extend);
  const std::string body = Joined(group.Parts());
  EXPECT_EQ(Lines(BytesOfText(body)), R"(0: 0300000001000000
8: 1f00000000000000
16: 0200000000000000
24: 3200000000000000
32: 0200000000000000
40: 3100000000000000
48: 7000000001110300
56: 0500000000000000
64: 0200000000000000
72: 5100000000000000
80: 6100000000000000
88: 7100000000000000
96: 8100000000000000
104: 0100000002000000
112: 0300000000000000
120: fcffffffffffffff
128: 0500000000000000
136: 0600000000000000
144: 0700000000000000
152: 6b657976616c7565
160: 80000000020e0100
168: 7017000000000000
216: 9100000000000000
224: 8813000000000000
232: a100000000000000
240: 0200000000000000
248: 6b1e000000000000
256: 0088130000000000
264: 001f000000000000
272: 00e8030000000000
)");
  EXPECT_EQ(body.size(), group.bytes());

  Group read;
  ASSERT_EQ(ParseGroup(BytesOfText(body), read), "");
  EXPECT_EQ(read.header.count, 2u);
  EXPECT_EQ(read.header.commit_point, 49u);
  ASSERT_EQ(read.entries.size(), 2u);
  EXPECT_EQ(read.entries[0].key, "key");
  EXPECT_EQ(read.entries[0].value, BytesOfText(value));
  EXPECT_EQ(read.entries[0].result->number, -4);
  EXPECT_TRUE(read.entries[0].has_number);
  EXPECT_EQ(read.entries[0].sequence, 0x81u);
  EXPECT_EQ(read.entries[1].kind, EntryKind::kExtend);
  EXPECT_FALSE(read.entries[1].has_number);
  EXPECT_EQ(read.entries[1].base->length, 5000u);
  EXPECT_EQ(read.entries[1].pieces[1].record, 31u);
  EXPECT_EQ(read.entries[1].value_checksum, 0xa1u);
}

TEST(WalFormatTest, ShortPutHasTheBytesOfItsEntry) {
  for (const size_t value_bytes : {0, 1, 7, 8, 64, 4096}) {
    // The memory of an earlier group, which the padding must not show.
    GroupBuilder group(SomeGroup());
    const std::string before(8192, 'b');
    group.Add(ShortPut{absl::string_view(before).substr(0, 4096), BytesOfText(before).first(4096),
                       1, 0, 0, 0});
    group.Reset(SomeGroup());
    const std::string value(value_bytes, 'v');
    Entry put;
    put.key = "key";
    put.value = BytesOfText(value);
    put.value_length = value.size();
    put.version = 0x51;
    put.expiry = 0x61;
    put.client = 0x71;
    put.sequence = 0x81;
    group.Add(put);
    const std::string as_entry = Joined(group.Parts());
    group.Reset(SomeGroup());
    group.Add(ShortPut{put.key, put.value, 0x51, 0x61, 0x71, 0x81});
    EXPECT_EQ(Joined(group.Parts()), as_entry) << value_bytes;
    Group read;
    EXPECT_EQ(ParseGroup(BytesOfText(as_entry), read), "");
  }
}

TEST(WalFormatTest, LongValueStaysWhereItIs) {
  GroupBuilder group(SomeGroup());
  const std::string value(5000, 'v');
  Entry put;
  put.key = "key";
  put.value = BytesOfText(value);
  put.value_length = value.size();
  group.Add(put);
  const BodyParts parts = group.Parts();
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_TRUE(parts[1].pinned);
  EXPECT_EQ(parts[1].bytes.data(), BytesOfText(value).data());
  Group read;
  const std::string body = Joined(parts);
  EXPECT_EQ(ParseGroup(BytesOfText(body), read), "");
  EXPECT_EQ(read.entries[0].value, BytesOfText(value));
}

// A group with one entry, of which a test changes bytes.
std::string OneEntry(const Entry& entry) {
  GroupBuilder group(SomeGroup());
  group.Add(entry);
  return Joined(group.Parts());
}
std::string WhyNot(const std::string& body) {
  Group read;
  return ParseGroup(BytesOfText(body), read);
}

TEST(WalFormatTest, GroupSaysWhyItIsNotValid) {
  Entry entry;
  entry.key = "key";
  const std::string body = OneEntry(entry);
  constexpr size_t kEntry = sizeof(GroupHeader);
  std::string changed = body;
  changed[kEntry + offsetof(EntryHeader, kind)] = 77;
  EXPECT_EQ(WhyNot(changed), "an entry has the unknown kind 77");
  changed = body;
  changed[kEntry + offsetof(EntryHeader, key_length)] = 40;
  EXPECT_EQ(WhyNot(changed), "an entry is cut off");
  changed = body;
  changed[kEntry + offsetof(EntryHeader, flags)] = kInPieces;
  EXPECT_EQ(WhyNot(changed), "a short value is in pieces");
  changed = body;
  changed[kEntry + offsetof(EntryHeader, flags)] = 64;
  EXPECT_EQ(WhyNot(changed), "an entry has unknown flags");
  changed[kEntry + offsetof(EntryHeader, flags)] = kHasNumber;
  EXPECT_EQ(WhyNot(changed), "an entry has a number and no result");
  changed = body;
  changed.back() = 1;
  EXPECT_EQ(WhyNot(changed), "an entry is longer than its parts");
  changed = body;
  changed[offsetof(GroupHeader, count)] = 2;
  EXPECT_EQ(WhyNot(changed), "a group has 1 entries, and should have 2");
  EXPECT_EQ(WhyNot(body.substr(0, 40)), "a group is cut off");
  EXPECT_EQ(WhyNot(body.substr(0, body.size() - 1)), "an entry is cut off");
  entry.key = "";
  EXPECT_EQ(WhyNot(OneEntry(entry)), "an entry's key has 0 bytes");
  entry.kind = EntryKind::kTerm;
  EXPECT_EQ(WhyNot(OneEntry(entry)), "");
}

TEST(WalFormatTest, CheckpointStructsHaveTheseBytes) {
  PartHeader part;
  part.part = 1;
  part.directory = kDirectory;
  part.checkpoint = 3;
  part.life = 0xef;
  part.parts = 2;
  part.redo_record = 40;
  part.Seal();
  EXPECT_EQ(LinesOf(part), R"(0: 4f53455041525400
8: 0100000001000000
16: 1111000000000000
24: 2222000000000000
32: 0300000000000000
40: ef00000000000000
48: 0200000000000000
56: 2800000000000000
120: fdba0eb83024e66f
)");
  EXPECT_EQ(part.Validate(), "");
  BlockHeader block;
  block.kind = static_cast<uint32_t>(BlockKind::kShards);
  block.length = 80;
  block.count = 2;
  block.body_checksum = 5;
  block.header_checksum = block.HeaderChecksum(6);
  EXPECT_EQ(LinesOf(block), R"(0: 4f53424b04000000
8: 5000000002000000
16: 0500000000000000
24: ff6af35a66a95642
)");
  EXPECT_EQ(block.Validate(6), "");
  EXPECT_EQ(block.Validate(7), "the block header's checksum is wrong");
  const ItemHeader item{56, 3, kValueFollows, 2, 5, 6, 7, 8, 9, 10, 0};
  EXPECT_EQ(LinesOf(item), R"(0: 3800000003000102
8: 0500000000000000
16: 0600000000000000
24: 0700000000000000
32: 08000000090a0000
)");
  EXPECT_EQ(LinesOf(ShardState{1, 0, 2, 3, 4, 5}), R"(0: 0100000000000000
8: 0200000000000000
16: 0300000000000000
24: 0400000000000000
32: 0500000000000000
)");
  EXPECT_EQ(LinesOf(PartFooter{1, 2, 3, 4}), R"(0: 0100000000000000
8: 0200000000000000
16: 0300000000000000
24: 0400000000000000
)");
}

CurrentHeader SomeCurrent() {
  CurrentHeader current;
  current.parts = 1;
  current.directory = kDirectory;
  current.generation = 2;
  current.checkpoint = 3;
  current.redo_segment = 4;
  current.redo_record = 5;
  current.newest_segment = 6;
  current.newest_life = 7;
  current.synced_to = 8;
  current.version_ceiling = 9;
  current.time_mark = 10;
  return current;
}

TEST(WalFormatTest, CurrentHasTheseBytes) {
  CurrentHeader current = SomeCurrent();
  const PartSummary part{100, 0xef, 11};
  current.checksum = CurrentChecksum(current, {&part, 1});
  EXPECT_EQ(LinesOf(current), R"(0: 5343555252454e54
8: 0100000001000000
16: 1111000000000000
24: 2222000000000000
32: 0200000000000000
40: 0300000000000000
48: 0400000000000000
56: 0500000000000000
64: 0600000000000000
72: 0700000000000000
80: 0800000000000000
88: 0900000000000000
96: 0a00000000000000
112: 14bd2eb069314524
)");
  EXPECT_EQ(LinesOf(part), R"(0: 6400000000000000
8: ef00000000000000
16: 0b00000000000000
)");
  EXPECT_EQ(current.Validate(kDirectory), "");
  current.redo_segment = 7;
  EXPECT_EQ(current.Validate(kDirectory), "its segments are out of order");
  current = SomeCurrent();
  current.parts = 0;
  EXPECT_EQ(current.Validate(kDirectory), "its checkpoint has 0 parts");
}

TEST(WalFormatTest, ClosingRecordsHaveTheseBytes) {
  EXPECT_EQ(LinesOf(CloseBody{10, 11}), R"(0: 0a00000000000000
8: 0b00000000000000
)");
  EXPECT_EQ(LinesOf(CleanEndBody{12, 13}), R"(0: 0c00000000000000
8: 0d00000000000000
)");
}

TEST(WalFormatTest, NamesAreReadAsTheyAreWritten) {
  EXPECT_EQ(SegmentName(42), "log-0000000000000042");
  EXPECT_EQ(SegmentNumber("log-0000000000000042"), 42u);
  EXPECT_EQ(SegmentNumber("log-42"), 0u);
  EXPECT_EQ(SegmentNumber("log-000000000000004x"), 0u);
  EXPECT_EQ(SegmentNumber("log-+000000000000042"), 0u);
  EXPECT_EQ(PartName(3, 7), "checkpoint-0000000000000003-0007");
  uint64_t checkpoint = 0;
  uint32_t part = 0;
  EXPECT_TRUE(ParsePartName("checkpoint-0000000000000003-0007", checkpoint, part));
  EXPECT_EQ(checkpoint, 3u);
  EXPECT_EQ(part, 7u);
  EXPECT_FALSE(ParsePartName("checkpoint-0000000000000003-7", checkpoint, part));
}

}  // namespace
}  // namespace osprey::server::wal
