// Bytes: the layout's golden bytes, known answers of the hashes, and the conditions of a valid
// record.

#include "index/layout/record.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/hash.h"
#include "index/layout/item.h"
#include "index/layout/layout.h"
#include "index/layout/serving_record.h"
#include "index/layout/test_hooks.h"
#include "index/segments/directory.h"
#include "index/segments/line_editor.h"
#include "index/space/region_writer.h"
#include "index/writer/serving_record_writer.h"
#include "tests/index/index_test_util.h"

namespace osprey::index {
namespace {

std::string Hex(ByteSpan bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    absl::StrAppend(
        &out, i == 0 ? "" : " ",
        absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes.data()) + i,
                                                 std::min<size_t>(8, bytes.size() - i))));
  }
  return out;
}

// --- Layout ----------------------------------------------------------------
//
// The checksums below were computed independently, in Python with libxxhash.

TEST(LayoutTest, WordsPackAsDrawn) {
  EXPECT_EQ((Slot{0x1000, 5, 0xabcd, false}.Pack()), 0x6af3414000000200u);
  EXPECT_EQ((Slot{0x1000, 5, 0xabcd, true}.Pack()), 0x6af3414000000201u);
  EXPECT_EQ(PackLink(0x8000), 0x8000000000001000u);
  EXPECT_EQ((InlineHead{3, 8, 0x123456789abc}.Pack()), 0xc188123456789abcu);
  EXPECT_EQ((DirectoryEntry{7, 3, 9}.Pack()), 0x000000090c000007u);
  EXPECT_EQ((ItemTag{5, ItemState::kLive}.Pack()), 0x00010005u);
  EXPECT_EQ((ItemTag{0, ItemState::kDead}.Pack()), 0x00020000u);
}

TEST(LayoutTest, WordsUnpackToWhatWasPacked) {
  const Slot slot = Slot::Unpack(Slot{kRegionBytesMax - 16, 255, 0xffff, true}.Pack());
  EXPECT_EQ(slot.offset, kRegionBytesMax - 16);
  EXPECT_TRUE(slot.has_expiry);
  EXPECT_FALSE(Slot::Unpack(Slot{kRegionBytesMax - 16, 255, 0xffff, false}.Pack()).has_expiry);
  EXPECT_EQ(slot.length_class, 255u);
  EXPECT_EQ(slot.fingerprint, 0xffffu);
  EXPECT_EQ(KindOf(Slot{}.Pack()), WordKind::kSlot);
  EXPECT_EQ(LinkOffset(PackLink(kRegionBytesMax - 128)), kRegionBytesMax - 128);
  EXPECT_EQ(KindOf(PackLink(0)), WordKind::kLink);
  const InlineHead head = InlineHead::Unpack(InlineHead{127, 126, kCasVersionMax}.Pack());
  EXPECT_EQ(head.key_length, 127u);
  EXPECT_EQ(head.value_length, 126u);
  EXPECT_EQ(head.cas_version, kCasVersionMax);
  EXPECT_EQ(KindOf(InlineHead{}.Pack()), WordKind::kInline);
  const DirectoryEntry entry =
      DirectoryEntry::Unpack(DirectoryEntry{(1 << 26) - 1, 26, 0xffffffff}.Pack());
  EXPECT_EQ(entry.unit, (1u << 26) - 1);
  EXPECT_EQ(entry.depth, 26u);
  EXPECT_EQ(entry.generation, 0xffffffffu);
}

TEST(LayoutTest, LengthClassesHoldWhatTheyPromise) {
  uint64_t before = 0;
  for (uint32_t length_class = 0; length_class < 256; ++length_class) {
    const uint64_t length = ReadLengthOf(length_class);
    ASSERT_GT(length, before);
    ASSERT_EQ(length % 16, 0u);
    ASSERT_EQ(LengthClassOf(length), length_class);
    ASSERT_EQ(LengthClassOf(before + 1), length_class);
    before = length;
  }
  for (uint64_t bytes = 1; bytes <= kItemBytesMax; bytes += 1 + bytes / 1000) {
    const uint64_t length = ReadLengthOf(LengthClassOf(bytes));
    ASSERT_GE(length, bytes);
    ASSERT_LE(length, std::max(bytes + 15, bytes + bytes / 8));
  }
  EXPECT_EQ(ReadLengthOf(63), 1024u);
  EXPECT_EQ(ReadLengthOf(64), 1152u);
  EXPECT_EQ(ReadLengthOf(71), 2048u);
  EXPECT_EQ(ReadLengthOf(72), 2304u);
}

TEST(LayoutTest, DirectoryFitsItsMaximumDepth) {
  for (uint64_t bytes :
       {uint64_t{256} << 10, uint64_t{4} << 20, uint64_t{1} << 30, kRegionBytesMax}) {
    const uint32_t depth = DirectoryDepthLimit(bytes);
    EXPECT_LE(depth, kDirectoryDepthMax);
    EXPECT_GE(uint64_t{1} << depth,
              std::min(2 * (bytes / kUnitBytes), uint64_t{1} << kDirectoryDepthMax));
    EXPECT_EQ(UnitsOffset(bytes) % kPageBytes, 0u);
    EXPECT_LE(UnitsOffset(bytes) - kDirectoryOffset, bytes / 250 + kDirectoryPageBytes);
  }
}

TEST(LayoutTest, LineHasTheseBytes) {
  RegionMemory memory(8192);
  RegionWriter writer(memory.span(), kTestIncarnation, 6);
  writer.NextCasVersion();
  ClockCounters lives(4096, /*on=*/false);
  LineEditor line = LineEditor::Empty(writer, lives, 4096, 17);
  line.AddSlot(Slot{0x1000, 5, 0xabcd, false}.Pack());
  line.AddInline("key", BytesOf("value!"), 5);
  line.SetLink(0x8000);
  line.Publish();
  EXPECT_EQ(Hex(writer.Bytes(4096, 128)),
            "0e00000011000000 a1a1566a5955f131 "
            "000200004041f36a 050000000000"
            "86c1 6b657976616c7565 2100000000000000 "
            "0000000000000000 0000000000000000 0000000000000000 0000000000000000 "
            "0000000000000000 0000000000000000 0000000000000000 0000000000000000 "
            "0000000000000000 0010000000000080");
  EXPECT_TRUE(RecordIsWhole(writer.Bytes(4096, 128), writer.PlaceOf(4096)));
}

TEST(LayoutTest, ItemHasTheseBytesAliveAndDead) {
  RegionMemory memory(1 << 20);
  RegionWriter writer(memory.span(), kTestIncarnation, 41);
  RegionSpace space(UnitsOffset(1 << 20), 1 << 20);
  ItemStore items(writer, space, absl::Seconds(1));
  const uint64_t version = writer.NextCasVersion();
  ASSERT_TRUE(items.space().TakeRun(1).has_value());  // the item's place counts
  const uint64_t offset = *items.Begin("greeting", 5, TestTime(0));
  ASSERT_EQ(offset, (uint64_t{1} << 20) - 16384);
  items.Fill(offset, BytesOf("hello"));
  constexpr uint64_t kExpiry = 0x1122334455660000;
  items.Seal(items.Finish(offset, version, kExpiry));
  EXPECT_EQ(Hex(writer.Bytes(offset, 48)),
            "5400000008000100 479101f4069dae97 0500000044332211 2a00000000006655 "
            "6772656574696e67 68656c6c6f000000");
  writer.NextCasVersion();
  items.Renew(offset, items.Hide(offset), 0);
  EXPECT_EQ(Hex(writer.Bytes(offset, 48)),
            "5600000008000100 8b2317753e211bcd 0500000000000000 2a00000000000000 "
            "6772656574696e67 68656c6c6f000000");
  writer.NextCasVersion();
  items.Kill(offset);
  EXPECT_EQ(Hex(writer.Bytes(offset, 48)),
            "5800000000000200 d77ac7e229737c14 0000000000000000 2c00000000000000 "
            "6772656574696e67 68656c6c6f000000");
}

TEST(LayoutTest, RegionHeaderAndDirectoryHaveTheseBytes) {
  constexpr uint64_t kBytes = 1 << 20;
  RegionMemory memory(kBytes);
  TableOptions options;
  options.incarnation = kTestIncarnation;
  options.hash_seed = kTestSeed;
  options.cas_version = 0;
  ASSERT_TRUE(Table::Create(memory.span(), options).ok());
  EXPECT_EQ(Hex(ReadRegion(memory.data(), 0, 64)),
            "0200000001000000 43a373c3b61c3777 4f53505245593031 0300000000000000 "
            "8877665544332211 2a00000000000000 0000100000000000 0020000000000000");
  EXPECT_EQ(Hex(ReadRegion(memory.data(), 4096, 40)),
            "0200000002000000 56017fdaca4fc019 0000000001000000 0000000000000000 "
            "0000000000000000");
}

TEST(LayoutTest, DoubledDirectoryHasTheseBytes) {
  RegionMemory memory(1 << 20);
  RegionWriter writer(memory.span(), kTestIncarnation, 6);
  Directory directory(writer, kTestSeed);
  directory.LayOut({0, 0, 1});
  directory.DoubleStep();
  directory.Name(0, {1, 1, 2});
  directory.Name(1, {2, 1, 3});
  EXPECT_EQ(Hex(ReadRegion(memory.data(), 0, 64)),
            "0e00000001000000 044bfae5e0004e8d 4f53505245593031 0300000001000000 "
            "8877665544332211 2a00000000000000 0000100000000000 0020000000000000");
  EXPECT_EQ(Hex(ReadRegion(memory.data(), 4096, 40)),
            "1200000002000000 21d14f4f3321a96f 0100000402000000 0200000403000000 "
            "0000000000000000");
}

TEST(LayoutTest, ServingRecordHasTheseBytes) {
  RegionMemory memory(1 << 20);
  ServingRecordWriter writer(memory.span(), kTestIncarnation);
  const ServingState state{0x0102030405, 7, 9, 0xabcd, 0x8000000000000005};
  writer.Write(state);
  const std::vector<std::byte> bytes = ReadRegion(memory.data(), 64, 64);
  EXPECT_EQ(Hex(bytes),
            "0200000003000000 5aabec45854995ef 0504030201000000 0700000000000000 "
            "0900000000000000 cdab000000000000 0500000000000080 0000000000000000");
  ASSERT_TRUE(ReadServingRecord(bytes, kTestIncarnation).has_value());
  EXPECT_EQ(*ReadServingRecord(bytes, kTestIncarnation), state);
}

TEST(LayoutTest, NoGenerationIsTheTagOfAnItem) {
  EXPECT_EQ(NextGeneration(kGenerationNone), 1u);
  EXPECT_EQ(NextGeneration(0xfffe), 0xffffu);
  EXPECT_EQ(NextGeneration(0xffff), 0x1000000u);
  EXPECT_EQ(NextGeneration(0x1000000), 0x1000001u);
  EXPECT_EQ(ItemTag::Unpack(0x10000).state, ItemState::kLive);
  EXPECT_EQ(ItemTag::Unpack(0x2ffff).state, ItemState::kDead);
}

TEST(LayoutTest, HalvedDirectoryHasTheDepthInItsHeader) {
  RegionMemory memory(1 << 20);
  RegionWriter writer(memory.span(), kTestIncarnation, 6);
  Directory directory(writer, kTestSeed);
  directory.LayOut({0, 0, 1});
  directory.DoubleStep();
  directory.Name(0, {1, 0, 2});
  directory.Halve();
  EXPECT_EQ(directory.depth(), 0u);
  DirectoryCache map = MapOf(memory);
  EXPECT_EQ(map.depth(), 0u);
  EXPECT_EQ(map.WindowOf(KeyHash{1}).generation, 2u);
  // It doubles again, over the entries of before.
  directory.DoubleStep();
  EXPECT_EQ(directory.At(1).generation, 2u);
}

TEST(LayoutTest, ExpiriesAreRoundedUpAndKeepTheirBits) {
  EXPECT_EQ(RoundUpToExpiry(0), 65536u);  // 0 means no expiry
  EXPECT_EQ(RoundUpToExpiry(1), 65536u);
  EXPECT_EQ(RoundUpToExpiry(65536), 65536u);
  EXPECT_EQ(RoundUpToExpiry(65537), 131072u);
  EXPECT_EQ(RoundUpToExpiry(UINT64_MAX), UINT64_MAX - 65535);
  for (const uint64_t expiry : {uint64_t{0}, uint64_t{65536}, RoundUpToExpiry(UINT64_MAX),
                                RoundUpToExpiry(1763765432123456789)}) {
    const ItemFields fields{kValueBytesMax, kCasVersionMax, expiry};
    const ItemFields again = ItemFields::Unpack({{}, fields.length_word(), fields.cas_word()});
    EXPECT_EQ(again.value_length, kValueBytesMax);
    EXPECT_EQ(again.cas_version, kCasVersionMax);
    EXPECT_EQ(again.expiry_ns, expiry);
  }
}

// --- Hashes ----------------------------------------------------------------

TEST(HashTest, KnownAnswers) {
  // XXH3's own: the empty input without a seed.
  EXPECT_EQ(HashBytes({}), 0x2d06800538d394c2u);
  EXPECT_EQ(HashBytes(BytesOf("osprey")), 0xfd8d8ff536a45f15u);
  EXPECT_EQ(HashKey("osprey", 42).bits, 0xcd276af2dadb7232u);
  EXPECT_NE(HashKey("osprey", 43).bits, HashKey("osprey", 42).bits);
}

TEST(HashTest, PiecesHashAsTheWhole) {
  std::mt19937_64 random(1);
  std::vector<std::byte> bytes(100000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (int i = 0; i < 50; ++i) {
    const size_t length = random() % bytes.size();
    BytesHasher hasher;
    for (size_t at = 0; at < length;) {
      const size_t piece = std::min<size_t>(length - at, random() % 5000);
      hasher.Update(ByteSpan(bytes).subspan(at, piece));
      at += piece;
    }
    ASSERT_EQ(hasher.Digest(), HashBytes(ByteSpan(bytes).first(length)));
  }
}

TEST(HashTest, HomeFingerprintAndDirectoryIndexShareNoBits) {
  EXPECT_EQ(KeyHash{0x00000000ffffffff}.home(), 0u);
  EXPECT_EQ(KeyHash{0x00000000ffffffff}.fingerprint(), 0u);
  EXPECT_EQ(KeyHash{0x0000ffff00000000}.home(), 0u);
  EXPECT_EQ(KeyHash{0x0000ffff00000000}.fingerprint(), 0xffffu);
  EXPECT_EQ(KeyHash{0xffff000000000000}.home(), kHomesPerSegment - 1);
  EXPECT_EQ(KeyHash{0xffffffff00000000}.directory_index(26), 0u);
  std::vector<int> homes(kHomesPerSegment);
  for (int i = 0; i < 255000; ++i) ++homes[HashKey(absl::StrCat(i), 7).home()];
  for (const int count : homes) ASSERT_NEAR(count, 1000, 200);
}

// --- Records ---------------------------------------------------------------

class RecordTest : public testing::Test {
 protected:
  ~RecordTest() override { active_mutant = Mutant::kNone; }

  std::vector<std::byte> NewRecord(uint64_t contents_bytes) {
    std::vector<std::byte> contents(contents_bytes);
    for (std::byte& byte : contents) byte = static_cast<std::byte>(random_());
    writer_.WriteRecord(512, RecordVersion(1234), 99, contents);
    return ReadRegion(memory_.data(), 512, sizeof(RecordHeader) + contents_bytes);
  }

  std::mt19937_64 random_{1};
  RegionMemory memory_{16384};
  RegionWriter writer_{memory_.span(), kTestIncarnation, 0};
};

TEST_F(RecordTest, EveryFlippedBitIsRejected) {
  for (const uint64_t bytes : {16, 48, 112, 600}) {
    std::vector<std::byte> record = NewRecord(bytes);
    ASSERT_TRUE(RecordIsWhole(record, {512, kTestIncarnation}));
    for (size_t bit = 0; bit < 8 * record.size(); ++bit) {
      record[bit / 8] ^= std::byte{1} << bit % 8;
      ASSERT_FALSE(RecordIsWhole(record, {512, kTestIncarnation})) << bit;
      record[bit / 8] ^= std::byte{1} << bit % 8;
    }
  }
}

TEST_F(RecordTest, RecordOfAnotherPlaceOrLifeIsRejected) {
  const std::vector<std::byte> record = NewRecord(112);
  EXPECT_FALSE(RecordIsWhole(record, {512 + 128, kTestIncarnation}));
  EXPECT_FALSE(RecordIsWhole(record, {512, kTestIncarnation + 1}));
  EXPECT_FALSE(RecordIsWhole(std::vector<std::byte>(128), {512, kTestIncarnation}));  // zeros
}

// The same record with another even version, as if a reader copied the version before the contents.
bool AcceptsAnotherVersion(std::vector<std::byte> record) {
  record[1] ^= std::byte{1};
  return RecordIsWhole(record, {512, kTestIncarnation});
}

TEST_F(RecordTest, ChecksumThatLeavesSomethingOutIsNoticed) {
  EXPECT_FALSE(AcceptsAnotherVersion(NewRecord(112)));
  active_mutant = Mutant::kChecksumWithoutVersion;
  EXPECT_TRUE(AcceptsAnotherVersion(NewRecord(112)));
  active_mutant = Mutant::kChecksumWithoutOffset;
  EXPECT_TRUE(RecordIsWhole(NewRecord(112), {512 + 128, kTestIncarnation}));
  active_mutant = Mutant::kChecksumWithoutIncarnation;
  EXPECT_TRUE(RecordIsWhole(NewRecord(112), {512, kTestIncarnation + 1}));
}

TEST_F(RecordTest, EveryPrefixOfAWriteIsRejected) {
  // A record over another one, checked before each store.
  const std::vector<std::byte> before = NewRecord(112);
  struct Looker : StoreObserver {
    void BeforeStore() override {
      const std::vector<std::byte> seen = ReadRegion(memory, 512, 128);
      whole += RecordIsWhole(seen, {512, kTestIncarnation}) ? 1 : 0;
      ++stores;
    }
    const std::byte* memory;
    int stores = 0;
    int whole = 0;
  } looker;
  looker.memory = memory_.data();
  store_observer = &looker;
  NewRecord(112);
  store_observer = nullptr;
  EXPECT_EQ(looker.stores, 1 + 14 + 2);
  EXPECT_EQ(looker.whole, 1);  // before the first store: the old record
}

TEST_F(RecordTest, VersionAtAnOffsetAlwaysChanges) {
  uint32_t last = writer_.Header(512).version;
  for (int i = 0; i < 1000; ++i) {
    if (random_() % 3 == 0) writer_.NextCasVersion();
    const uint32_t version = writer_.NextRecordVersion(512);
    ASSERT_NE(version, last);
    ASSERT_FALSE(IsBeingWritten(version));
    writer_.WriteRecord(512, version, 1, std::vector<std::byte>(16));
    last = version;
  }
}

// --- Items -----------------------------------------------------------------

class ItemTest : public testing::Test {
 protected:
  uint64_t NewItem(absl::string_view key, absl::string_view value) {
    const uint64_t version = writer_.NextCasVersion();
    const uint64_t offset = *items_.Begin(key, value.size(), TestTime(0));
    items_.Fill(offset, BytesOf(value));
    items_.Seal(items_.Finish(offset, version, 0));
    return offset;
  }
  ItemReading Read(uint64_t offset, uint64_t bytes, absl::string_view key) {
    return ReadItem(ReadRegion(memory_.data(), offset, bytes), writer_.PlaceOf(offset), key);
  }

  RegionMemory memory_{1 << 20};
  RegionWriter writer_{memory_.span(), kTestIncarnation, 0};
  RegionSpace space_{UnitsOffset(1 << 20), 1 << 20};
  ItemStore items_{writer_, space_, absl::Seconds(1)};
};

TEST_F(ItemTest, VerdictsAreWhatTheBytesSay) {
  const std::string value(1000, 'v');
  const uint64_t offset = NewItem("key", value);
  const uint64_t bytes = ItemBytes(3, 1000);
  const ItemReading live = Read(offset, bytes, "key");
  ASSERT_EQ(live.verdict, ItemVerdict::kLive);
  EXPECT_EQ(live.value.size(), 1000u);
  EXPECT_EQ(live.cas_version, 1u);
  EXPECT_EQ(Read(offset, bytes + 128, "key").verdict, ItemVerdict::kLive);  // read too long
  EXPECT_EQ(Read(offset, bytes, "kez").verdict, ItemVerdict::kOther);
  EXPECT_EQ(Read(offset, bytes, "ke").verdict, ItemVerdict::kOther);
  // READ too short: READ longer, if it may be the key's.
  const ItemReading cut = Read(offset, 64, "key");
  EXPECT_EQ(cut.verdict, ItemVerdict::kTooShort);
  EXPECT_EQ(cut.bytes_needed, bytes);
  EXPECT_EQ(Read(offset, 64, "kez").verdict, ItemVerdict::kTorn);
  items_.Kill(offset);
  EXPECT_EQ(Read(offset, bytes, "key").verdict, ItemVerdict::kDead);
  EXPECT_EQ(Read(offset, sizeof(ItemHeader), "key").verdict, ItemVerdict::kDead);
}

TEST_F(ItemTest, EveryFlippedBitIsRejected) {
  const uint64_t offset = NewItem("key", "the value");
  std::vector<std::byte> item = ReadRegion(memory_.data(), offset, ItemBytes(3, 9));
  ASSERT_TRUE(ItemIsWhole(item, writer_.PlaceOf(offset)));
  EXPECT_FALSE(ItemIsWhole(item, writer_.PlaceOf(offset + 16)));
  for (size_t bit = 0; bit < 8 * item.size(); ++bit) {
    item[bit / 8] ^= std::byte{1} << bit % 8;
    ASSERT_FALSE(ItemIsWhole(item, writer_.PlaceOf(offset))) << bit;
    item[bit / 8] ^= std::byte{1} << bit % 8;
  }
}

TEST_F(ItemTest, ExpiryIsRenewedWithoutTheDataBeingTouched) {
  const std::string value(5000, 'v');
  const uint64_t offset = NewItem("key", value);
  const uint64_t bytes = ItemBytes(3, 5000);
  uint32_t before = writer_.Header(offset).version;
  for (const uint64_t expiry :
       {RoundUpToExpiry(5), RoundUpToExpiry(uint64_t{1} << 60), uint64_t{0}}) {
    const ItemHeader hidden = items_.Hide(offset);
    EXPECT_EQ(Read(offset, bytes, "key").verdict, ItemVerdict::kTorn);
    items_.Renew(offset, hidden, expiry);
    const std::vector<std::byte> copy = ReadRegion(memory_.data(), offset, bytes);
    const ItemReading reading = ReadItem(copy, writer_.PlaceOf(offset), "key");
    ASSERT_EQ(reading.verdict, ItemVerdict::kLive);
    EXPECT_EQ(reading.expiry_ns, expiry);
    EXPECT_EQ(reading.cas_version, 1u);
    EXPECT_EQ(TextOf(reading.value), value);
    EXPECT_NE(writer_.Header(offset).version, before) << "versions at a place never repeat";
    before = writer_.Header(offset).version;
  }
}

TEST_F(ItemTest, AnyBytesAreJudgedWithoutHarm) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100000; ++i) {
    std::vector<std::byte> bytes(32 + random() % 100);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    if (i % 2 == 0) {  // even version, small lengths: further in
      bytes[0] &= std::byte{0xfe};
      bytes[5] = std::byte{0};
      for (int j = 17; j < 20; ++j) bytes[j] = std::byte{0};
      bytes[7] = std::byte{0};
    }
    const ItemReading reading = ReadItem(bytes, {4096, kTestIncarnation}, "key");
    ASSERT_TRUE(reading.verdict == ItemVerdict::kTorn || reading.verdict == ItemVerdict::kTooShort);
  }
}

TEST_F(ItemTest, RewrittenInPlaceItKeepsItsPlaceAndItsReaders) {
  const uint64_t offset = NewItem("key", std::string(100, 'a'));
  const uint64_t slot = items_.SlotOf(offset, 1);
  EXPECT_TRUE(items_.FitsInPlace(slot, 3, 100));
  EXPECT_TRUE(items_.FitsInPlace(slot, 3, 108));  // 144 B are read
  EXPECT_FALSE(items_.FitsInPlace(slot, 3, 110));
  EXPECT_TRUE(items_.FitsInPlace(slot, 3, 40));
  EXPECT_FALSE(items_.FitsInPlace(slot, 3, 20));  // would leave half of it idle
  writer_.NextCasVersion();
  items_.RewriteInPlace(offset, "key", BytesOf("bb"), 2, 0);
  const std::vector<std::byte> bytes = ReadRegion(memory_.data(), offset, 144);
  const ItemReading reading = ReadItem(bytes, writer_.PlaceOf(offset), "key");
  EXPECT_EQ(reading.verdict, ItemVerdict::kLive);
  EXPECT_EQ(TextOf(reading.value), "bb");
  EXPECT_EQ(reading.cas_version, 2u);
}

TEST_F(ItemTest, KeysAndValuesOfAnyAlignmentAreStoredWhole) {
  for (size_t key_length = 1; key_length < 20; ++key_length) {
    for (size_t value_length = 0; value_length < 20; ++value_length) {
      const std::string key(key_length, 'k');
      const std::string value(value_length, 'v');
      const uint64_t offset = NewItem(key, value);
      const uint64_t bytes = ItemBytes(key_length, value_length);
      const std::vector<std::byte> copy = ReadRegion(memory_.data(), offset, bytes);
      const ItemReading reading = ReadItem(copy, writer_.PlaceOf(offset), key);
      ASSERT_EQ(reading.verdict, ItemVerdict::kLive);
      ASSERT_EQ(TextOf(reading.value), value);
      for (size_t at = 32 + key_length + value_length; at < bytes; ++at)
        ASSERT_EQ(copy[at], std::byte{0});
      items_.Kill(offset);
      items_.Retire(offset, TestTime(0));
    }
  }
}

}  // namespace
}  // namespace osprey::index
