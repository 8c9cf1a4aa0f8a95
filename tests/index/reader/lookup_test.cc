// The reader alone: hand-made regions, old maps, and schedules that only a script reaches.

#include "index/reader/lookup.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"
#include "index/reader/scan.h"
#include "index/segments/directory.h"
#include "index/segments/line_editor.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/index/reader/lookup_fixture.h"

namespace osprey::index {
namespace {

// --- Torn and dead ---------------------------------------------------------

// Each time after three attempts the map is READ as well: the segment might have ended.
TEST_F(LookupTest, TornLineIsReadAgainWithBackoffAndThenTheServerIsAsked) {
  Put("key", "value");
  const uint64_t line = HomeLineOf("key");
  const RecordHeader header = writer_.Header(line);
  writer_.Begin(line, header.version, header.tag);
  Lookup lookup(map_, "key");
  Lookup::Step step = lookup.Start();
  uint64_t of_line = 0;
  uint64_t of_map = 0;
  std::vector<std::byte> bytes;
  while (step.kind == Lookup::Kind::kRead) {
    if (step.offset == line) {
      EXPECT_EQ(step.backoff, of_line % kLineAttemptsMax);
      ++of_line;
    } else {
      ++of_map;
    }
    bytes = Copy(step);
    step = lookup.Resume(bytes);
  }
  EXPECT_EQ(step.kind, Lookup::Kind::kAskServer);
  EXPECT_EQ(of_line, kReadAttemptsMax);
  EXPECT_EQ(of_map, 2 * (kReadAttemptsMax / kLineAttemptsMax));
  EXPECT_EQ(lookup.counters().torn, 8u);
}

// Items use the space of a segment that has ended, so its lines stay torn.
class EndedSegmentTest : public LookupTest {
 protected:
  // A map that leads to space which no line uses.
  DirectoryCache OldMap() {
    const DirectoryPage page = StructAt<DirectoryPage>(kDirectoryOffset);
    DirectoryEntry entry = DirectoryEntry::Unpack(page.entries[0]);
    entry.unit += 3;
    entry.generation = 60;
    DirectoryPage old = page;
    old.entries[0] = entry.Pack();
    SealStruct(kDirectoryOffset, old);
    DirectoryCache map(kTestIncarnation, kBytes);
    FillMap(map, memory_.data());
    SealStruct(kDirectoryOffset, page);
    std::memset(memory_.span().data() + UnitsOffset(kBytes) + entry.unit * kUnitBytes, 0x5a,
                kUnitBytes);
    return map;
  }
};

TEST_F(EndedSegmentTest, LookupReadsTheMapAgain) {
  Put("key", "value");
  DirectoryCache map = OldMap();
  const GetResult got = Get(map, memory_.data(), "key");
  EXPECT_EQ(got.kind, Lookup::Kind::kHit);
  EXPECT_EQ(got.counters.torn, kLineAttemptsMax);
}

TEST_F(EndedSegmentTest, ScanReadsTheMapAgain) {
  Put("key", "value");
  DirectoryCache map = OldMap();
  Scan scan(map, {}, {});
  Scan::Step step = scan.Start();
  std::vector<std::byte> bytes;
  while (step.kind == Scan::Kind::kRead) {
    bytes.clear();
    for (const ReadSpan& span : step.reads) {
      const std::vector<std::byte> one = ReadRegion(memory_.data(), span.offset, span.length);
      bytes.insert(bytes.end(), one.begin(), one.end());
    }
    step = scan.Resume(bytes);
  }
  EXPECT_EQ(step.kind, Scan::Kind::kDone);
  EXPECT_EQ(scan.entries().size(), 1u);
}

TEST_F(LookupTest, DeadItemSendsTheReaderBackToTheLine) {
  Put("key", std::string(200, 'a'));
  Lookup lookup(map_, "key");
  Lookup::Step step = lookup.Start();
  step = lookup.Resume(Copy(step));
  ASSERT_EQ(step.kind, Lookup::Kind::kRead);  // the item, which dies now
  Put("key", std::string(600, 'b'));
  step = lookup.Resume(Copy(step));
  ASSERT_EQ(step.kind, Lookup::Kind::kRead);
  EXPECT_EQ(step.length, kWindowBytes);
  step = lookup.Resume(Copy(step));
  const std::vector<std::byte> item = Copy(step);
  step = lookup.Resume(item);
  ASSERT_EQ(step.kind, Lookup::Kind::kHit);
  EXPECT_EQ(TextOf(step.value), std::string(600, 'b'));
  EXPECT_EQ(lookup.counters().restarts, 1u);
}

TEST_F(LookupTest, SlotThatLeadsToADeadItemForeverAsksTheServer) {
  const Slot slot = Slot::Unpack(Put("key", std::string(200, 'a')).slot);
  ItemHeader dead{};
  dead.record.version = RecordVersion(writer_.NextCasVersion());
  dead.record.tag = ItemTag{0, ItemState::kDead}.Pack();
  dead.record.checksum = ItemChecksum(HashBytes({}), dead, writer_.PlaceOf(slot.offset));
  std::memcpy(memory_.span().data() + slot.offset, &dead, sizeof(dead));
  const GetResult got = Get(map_, memory_.data(), "key");
  EXPECT_EQ(got.kind, Lookup::Kind::kAskServer);
  EXPECT_EQ(got.counters.restarts, kRestartsMax + 1u);
}

TEST_F(LookupTest, ItemLongerThanItsSlotSaysIsReadAgainLonger) {
  const uint64_t slot_word = Put("key", std::string(900, 'a')).slot;
  for (const uint64_t line : {HomeLineOf("key"), HomeLineOf("key") + kLineBytes}) {
    Rewrite(line, [&](Line& l) {
      for (uint64_t& word : l.words) {
        if (word != slot_word) continue;
        Slot slot = Slot::Unpack(word);
        slot.length_class = LengthClassOf(64);
        word = slot.Pack();
      }
    });
  }
  const GetResult got = Get(map_, memory_.data(), "key");
  EXPECT_EQ(got.kind, Lookup::Kind::kHit);
  EXPECT_EQ(got.value, std::string(900, 'a'));
  EXPECT_EQ(got.counters.reads, 3u);
}

// --- Long items ------------------------------------------------------------

TEST_F(LookupTest, LongItemTakesAReadOfItsHeadAndThenItsValueInPieces) {
  const std::string value(kWholeValueBytesMax + 50000, 'v');
  const uint64_t slot = Put("key", value).slot;
  for (const uint64_t hint : {uint64_t{0}, slot}) {
    Lookup lookup(map_, "key");
    Lookup::Step step = lookup.Start(hint);
    if (hint == 0) step = lookup.Resume(Copy(step));  // the window
    ASSERT_EQ(step.kind, Lookup::Kind::kRead);
    EXPECT_EQ(step.length, ItemHeadBytes(3));
    step = lookup.Resume(Copy(step));
    ASSERT_EQ(step.kind, Lookup::Kind::kReadValue);
    EXPECT_EQ(step.value_length, value.size());
    EXPECT_EQ(step.offset, Slot::Unpack(slot).offset + sizeof(ItemHeader) + 3);
    lookup.TakeValue(BytesOf(value).first(1000));
    lookup.TakeValue(BytesOf(value).subspan(1000));
    step = lookup.FinishValue();
    ASSERT_EQ(step.kind, Lookup::Kind::kHit);
    EXPECT_TRUE(step.in_pieces);
    EXPECT_EQ(step.slot, slot);
    EXPECT_NE(step.version, 0u);
  }
}

TEST_F(LookupTest, AnyWrongByteOfAnyPieceIsNoticed) {
  const std::string value(1000, 'v');
  Put("key", value);
  LookupOptions options;
  options.whole_read_bytes_max = 100;
  for (size_t wrong = 0; wrong <= value.size(); ++wrong) {
    Lookup lookup(map_, "key", options);
    Lookup::Step step = lookup.Resume(Copy(lookup.Start()));
    step = lookup.Resume(Copy(step));
    ASSERT_EQ(step.kind, Lookup::Kind::kReadValue);
    std::string copy = value;
    if (wrong < copy.size()) copy[wrong] ^= 4;
    for (size_t from = 0; from < copy.size(); from += 300)
      lookup.TakeValue(BytesOf(absl::string_view(copy).substr(from, 300)));
    step = lookup.FinishValue();
    ASSERT_EQ(step.kind == Lookup::Kind::kHit, wrong == copy.size()) << wrong;
    if (step.kind == Lookup::Kind::kHit) continue;
    ASSERT_EQ(step.kind, Lookup::Kind::kRead) << "as any torn item";
    EXPECT_EQ(step.length, ItemHeadBytes(3));
    EXPECT_EQ(step.backoff, 1);
  }
}

// The value that was current when its head was READ, though it was replaced before its end was
// READ.
TEST_F(LookupTest, LongItemThatDiesWhileItsValueIsReadIsStillAHit) {
  const std::string old_value(3000, 'o');
  Put("key", old_value);
  LookupOptions options;
  options.whole_read_bytes_max = 100;
  Lookup lookup(map_, "key", options);
  Lookup::Step step = lookup.Resume(Copy(lookup.Start()));
  step = lookup.Resume(Copy(step));
  ASSERT_EQ(step.kind, Lookup::Kind::kReadValue);
  lookup.TakeValue({memory_.data() + step.offset, 1000});
  Put("key", std::string(3000, 'n'));
  lookup.TakeValue({memory_.data() + step.offset + 1000, 2000});
  EXPECT_EQ(lookup.FinishValue().kind, Lookup::Kind::kHit);
}

TEST_F(LookupTest, LongItemReusedDuringTheReadIsTorn) {
  const uint64_t slot = Put("key", std::string(3000, 'o')).slot;
  LookupOptions options;
  options.whole_read_bytes_max = 100;
  Lookup lookup(map_, "key", options);
  Lookup::Step step = lookup.Resume(Copy(lookup.Start()));
  step = lookup.Resume(Copy(step));
  ASSERT_EQ(step.kind, Lookup::Kind::kReadValue);
  const Lookup::Step value = step;
  lookup.TakeValue({memory_.data() + value.offset, 1000});
  Put("key", std::string(5000, 'n'));  // elsewhere
  for (int i = 0;
       Slot::Unpack(Put("other", std::string(3000, 'x')).slot).offset != Slot::Unpack(slot).offset;
       ++i) {
    ASSERT_LT(i, 100) << "the space was not used again";
  }
  lookup.TakeValue({memory_.data() + value.offset + 1000, 2000});
  step = lookup.FinishValue();
  ASSERT_EQ(step.kind, Lookup::Kind::kRead);
  step = lookup.Resume(Copy(step));  // another key's item now, without a slot in the line
  ASSERT_EQ(step.kind, Lookup::Kind::kRead);
}

TEST_F(LookupTest, LongItemOfAnotherKeyIsTakenForThatOnlyIfTheLineHasNotChanged) {
  const std::vector<std::string> twins = KeysOfHome(60, 2, /*same_fingerprint=*/true);
  LookupOptions options;
  options.whole_read_bytes_max = 100;
  for (const bool changed : {false, true}) {
    Put(twins[0], std::string(3000, 'a'));
    Lookup lookup(map_, twins[1], options);
    Lookup::Step step = lookup.Resume(Copy(lookup.Start()));
    ASSERT_EQ(step.length, ItemHeadBytes(twins[1].size()));
    step = lookup.Resume(Copy(step));
    ASSERT_EQ(step.kind, Lookup::Kind::kRead);
    EXPECT_EQ(step.length, kWindowBytes) << "to confirm";
    if (changed) Put(twins[0], std::string(3000, 'b'));
    step = lookup.Resume(Copy(step));
    EXPECT_EQ(step.kind, changed ? Lookup::Kind::kRead : Lookup::Kind::kMiss);
  }
}

// The tag of a dying item may be copied from both of its states, and name a key of another length.
// The key's own bytes are still right.
TEST_F(LookupTest, HeadOfTheKeysOwnItemIsNeverTakenForAnotherKeys) {
  const std::string key(0x105, 'k');
  const Slot slot = Slot::Unpack(Put(key, std::string(3000, 'a')).slot);
  std::vector<std::byte> head = ReadRegion(memory_.data(), slot.offset, ItemHeadBytes(key.size()));
  const RecordPlace place{slot.offset, kTestIncarnation};
  EXPECT_EQ(ReadItemHead(head, place, key).verdict, ItemVerdict::kTooShort);
  const uint32_t live = HeaderOf(head).tag;
  const uint32_t dead = ItemTag{0, ItemState::kDead}.Pack();
  for (uint32_t mix = 0; mix < 16; ++mix) {
    uint32_t tag = 0;
    for (int byte = 0; byte < 4; ++byte)
      tag |= ((mix >> byte & 1) != 0 ? dead : live) & 255u << (8 * byte);
    std::memcpy(head.data() + 4, &tag, sizeof(tag));
    EXPECT_NE(ReadItemHead(head, place, key).verdict, ItemVerdict::kOther) << mix;
    EXPECT_EQ(ReadItemHead(head, place, std::string(0x105, 'j')).verdict, ItemVerdict::kOther);
  }
}

TEST_F(LookupTest, LookupWithoutValueDoesNotReadALongItem) {
  Put("key", std::string(3000, 'a'));
  LookupOptions options;
  options.whole_read_bytes_max = 100;
  options.want_value = false;
  EXPECT_EQ(Get(map_, memory_.data(), "key", 0, options).kind, Lookup::Kind::kAskServer);
}

// --- Schedules that chance does not hit ------------------------------------

// A reader is about to READ the chain's second line. Then all keys of that line are deleted, and
// another chain takes a line. The third line's keys are present throughout.
Lookup::Kind ReadPastAnEmptiedLine(Table& table, DirectoryCache& map, const RegionMemory& memory) {
  const std::vector<std::string> keys = KeysOfHome(100, 5 * kLineWordsUsable, false);
  const std::vector<std::string> others = KeysOfHome(200, 2 * kLineWordsUsable + 1, false);
  const std::string value(100, 'v');
  for (const std::string& key : keys)
    EXPECT_TRUE(table.Put(key, BytesOf(value), {}, TestTime(0)).status.ok());
  for (size_t i = 0; i + 1 < others.size(); ++i) {
    EXPECT_TRUE(table.Put(others[i], BytesOf(value), {}, TestTime(0)).status.ok());
  }
  Lookup lookup(map, keys.back());
  Lookup::Step step = lookup.Start();
  std::vector<std::byte> bytes;
  for (int read = 0; read < 2; ++read) {  // window, first overflow line
    bytes = ReadRegion(memory.data(), step.offset, step.length);
    step = lookup.Resume(bytes);
  }
  EXPECT_EQ(step.length, kLineBytes);
  for (size_t i = 3 * kLineWordsUsable; i < 4 * kLineWordsUsable; ++i) {
    EXPECT_TRUE(table.Delete(keys[i], {}, TestTime(0)).status.ok());
  }
  EXPECT_TRUE(table.Put(others.back(), BytesOf(value), {}, TestTime(0)).status.ok());
  while (step.kind == Lookup::Kind::kRead) {
    bytes = ReadRegion(memory.data(), step.offset, step.length);
    step = lookup.Resume(bytes);
  }
  return step.kind;
}

TEST_F(LookupTest, KeyBehindAnEmptiedChainLineIsFound) {
  EXPECT_EQ(ReadPastAnEmptiedLine(*table_, map_, memory_), Lookup::Kind::kHit);
}

TEST_F(LookupTest, UnlinkingTheMiddleOfAChainIsNoticed) {
  active_mutant = Mutant::kMiddleOfChainUnlinked;
  EXPECT_EQ(ReadPastAnEmptiedLine(*table_, map_, memory_), Lookup::Kind::kMiss);
}

// --- Inline: one line says it -----------------------------------------------

TEST_F(LookupTest, InlineHitNeedsEveryByteOfItsOwnLineAndNoneOfTheOther) {
  const std::vector<std::string> keys = FillBothLines();
  const std::vector<std::byte> good = WindowBytesOf(keys[0]);
  for (const uint64_t own : {0, 1}) {
    for (uint64_t at = 0; at < kWindowBytes; ++at) {
      for (const std::byte mask : {std::byte{0x01}, std::byte{0x80}}) {
        std::vector<std::byte> bytes = good;
        bytes[at] ^= mask;
        Lookup lookup(map_, keys[own]);
        ASSERT_EQ(lookup.Start().kind, Lookup::Kind::kRead);
        const Lookup::Step step = lookup.Resume(bytes);
        if (at / kLineBytes == own) {
          ASSERT_EQ(step.kind, Lookup::Kind::kRead) << "line " << own << ", byte " << at;
          ASSERT_TRUE(lookup.slots_seen().empty());
        } else {
          ASSERT_EQ(step.kind, Lookup::Kind::kHit) << "line " << own << ", byte " << at;
          ASSERT_EQ(TextOf(step.value), "value");
        }
      }
    }
  }
}

TEST_F(LookupTest, InlineHitCachesSlotsOfTheOtherLineOnlyIfValid) {
  const std::vector<std::string> keys = FillBothLines();
  // It stays in its line, the first one.
  Put(keys[0], std::string(200, 'x'));
  for (uint64_t at = 0; at <= kLineBytes; ++at) {
    Lookup lookup(map_, keys[1]);
    std::vector<std::byte> bytes = Copy(lookup.Start());
    if (at < kLineBytes) bytes[at] ^= std::byte{0x01};
    ASSERT_EQ(lookup.Resume(bytes).kind, Lookup::Kind::kHit) << "byte " << at;
    ASSERT_EQ(lookup.slots_seen().size(), at < kLineBytes ? 0 : 1) << "byte " << at;
  }
}

TEST_F(LookupTest, InlineHitNeedsTheRightGenerationOfItsOwnLineAlone) {
  const std::vector<std::string> keys = FillBothLines();
  for (const uint64_t which : {0, 1}) {
    const uint64_t line = HomeLineOf(keys[0]) + which * kLineBytes;
    const uint32_t generation = writer_.Header(line).tag;
    Rewrite(line, [](Line& l) { l.record.tag += 1000; });
    EXPECT_EQ(Get(map_, memory_.data(), keys[which]).kind, Lookup::Kind::kAskServer);
    EXPECT_EQ(Get(map_, memory_.data(), keys[1 - which]).kind, Lookup::Kind::kHit);
    Rewrite(line, [&](Line& l) { l.record.tag = generation; });
  }
}

// --- Generations and old maps ----------------------------------------------

// One line of the window has another generation. For either line, no miss is accepted.
TEST_F(LookupTest, MissNeedsBothLinesInTheRightGeneration) {
  for (const uint64_t which : {0, 1}) {
    const uint64_t line = HomeLineOf("absent") + which * kLineBytes;
    const uint32_t generation = writer_.Header(line).tag;
    Rewrite(line, [](Line& l) { l.record.tag += 1000; });
    EXPECT_EQ(Get(map_, memory_.data(), "absent").kind, Lookup::Kind::kAskServer);
    active_mutant = Mutant::kGenerationUnchecked;
    EXPECT_EQ(Get(map_, memory_.data(), "absent").kind, Lookup::Kind::kMiss);
    active_mutant = Mutant::kGenerationOfOneLine;
    EXPECT_EQ(Get(map_, memory_.data(), "absent").kind,
              which == 0 ? Lookup::Kind::kAskServer : Lookup::Kind::kMiss);
    active_mutant = Mutant::kNone;
    Rewrite(line, [&](Line& l) { l.record.tag = generation; });
    EXPECT_EQ(Get(map_, memory_.data(), "absent").kind, Lookup::Kind::kMiss);
  }
}

// The steps of growth: the segment's lines are copied to another unit under a new generation, and
// the directory is doubled. Then the old lines are rewritten under their own next generation.
TEST_F(LookupTest, ReaderWithAnOldMapFindsItsWayAfterASplit) {
  std::vector<std::string> keys;
  for (int i = 0; i < 300; ++i) {
    keys.push_back(absl::StrCat("key", i));
    Put(keys.back(), absl::StrCat("value", i));
  }
  const uint64_t units = UnitsOffset(kBytes);
  const uint64_t unit = table_->stats().index_bytes / kUnitBytes;  // the next one, which is free
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    const Line line = LineAt(writer_, units + i * kLineBytes);
    Seal(units + unit * kUnitBytes + i * kLineBytes, 50,
         ByteSpan(reinterpret_cast<const std::byte*>(line.words), sizeof(line.words)));
  }
  DirectoryPage page = StructAt<DirectoryPage>(kDirectoryOffset);
  page.entries[0] = DirectoryEntry{0, 1, 51}.Pack();
  page.entries[1] = DirectoryEntry{static_cast<uint32_t>(unit), 1, 50}.Pack();
  SealStruct(kDirectoryOffset, page);
  RegionHeader header = StructAt<RegionHeader>(0);
  header.directory_depth = 1;
  SealStruct(0, header);
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    Rewrite(units + i * kLineBytes, [](Line& l) { l.record.tag = 51; });
  }
  uint32_t refreshing = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const GetResult got = Get(map_, memory_.data(), keys[i]);
    ASSERT_EQ(got.kind, Lookup::Kind::kHit) << keys[i];
    ASSERT_EQ(got.value, absl::StrCat("value", i));
    ASSERT_EQ(Get(map_, memory_.data(), keys[i] + "x").kind, Lookup::Kind::kMiss);
    refreshing += got.counters.restarts;
  }
  EXPECT_EQ(map_.depth(), 1u);
  EXPECT_LE(refreshing, 1u);  // one READ of the page refreshes all of its entries
}

// The header was READ before the directory was doubled, the page after. Entry 0 now serves half of
// the keys that a directory of one entry sends to it. Its generation is still right.
TEST_F(LookupTest, EntryOfADeeperDirectoryIsNotUsedForAllKeys) {
  Put("key", "value");
  DirectoryPage page = StructAt<DirectoryPage>(kDirectoryOffset);
  const DirectoryEntry entry = DirectoryEntry::Unpack(page.entries[0]);
  page.entries[0] = DirectoryEntry{entry.unit, 1, entry.generation}.Pack();
  page.entries[1] = DirectoryEntry{entry.unit, 1, entry.generation}.Pack();
  SealStruct(kDirectoryOffset, page);
  DirectoryCache map(kTestIncarnation, kBytes);
  FillMap(map, memory_.data());
  ASSERT_EQ(map.depth(), 0u);
  EXPECT_EQ(Get(map, memory_.data(), "absent").kind, Lookup::Kind::kAskServer);
  RegionHeader header = StructAt<RegionHeader>(0);
  header.directory_depth = 1;
  SealStruct(0, header);
  EXPECT_EQ(Get(map, memory_.data(), "absent").kind, Lookup::Kind::kMiss);
  EXPECT_EQ(Get(map, memory_.data(), "key").kind, Lookup::Kind::kHit);
  EXPECT_EQ(map.depth(), 1u);
}

// A lookup has READ the new header and the page of the lower half's entry. The page of the upper
// half's entry was not READ since the directory was doubled.
TEST(LookupOfManySegmentsTest, DeeperEntryOfTheLowerHalfDoesNotServeTheUpper) {
  constexpr uint64_t kLargeBytes = 64 << 20;
  constexpr uint32_t kOld = 60, kLower = 61;  // generations
  RegionMemory memory(kLargeBytes);
  TableOptions options;
  options.incarnation = kTestIncarnation;
  options.hash_seed = kTestSeed;
  const std::unique_ptr<Table> table = *Table::Create(memory.span(), options);
  RegionWriter writer(memory.span(), kTestIncarnation, uint64_t{1} << 20);
  const auto seal = [&](uint64_t offset, const auto& value) {
    const ByteSpan bytes(reinterpret_cast<const std::byte*>(&value), sizeof(value));
    writer.NextCasVersion();
    writer.WriteRecord(offset, writer.NextRecordVersion(offset), value.record.tag,
                       bytes.subspan(sizeof(RecordHeader)));
  };
  // Keys of the two halves of one entry.
  const auto index = [](const std::string& key) {
    return HashKey(key, kTestSeed).directory_index(10);
  };
  std::string lower = "lower", upper = "upper";
  while (index(lower) >= 500) lower += "'";
  while (index(upper) != index(lower) + 512) upper += "'";
  ASSERT_TRUE(table->Put(upper, BytesOf("value"), {}, TestTime(0)).status.ok());

  RegionHeader header;
  DirectoryPage page;
  std::memcpy(&header, memory.data(), sizeof(header));
  std::memcpy(&page, memory.data() + kDirectoryOffset, sizeof(page));
  const DirectoryEntry stored = DirectoryEntry::Unpack(page.entries[0]);
  const uint64_t pages[] = {kDirectoryOffset, kDirectoryOffset + kDirectoryPageBytes};
  // 512 entries, all of the segment under an older generation.
  for (uint64_t& entry : page.entries) entry = DirectoryEntry{stored.unit, 9, kOld}.Pack();
  for (const uint64_t offset : pages) seal(offset, page);
  header.directory_depth = 9;
  seal(0, header);
  DirectoryCache map(kTestIncarnation, kLargeBytes);
  FillMap(map, memory.data());
  ASSERT_EQ(map.depth(), 9u);
  // Doubled and split: the lower half has a new segment, which is empty.
  const uint32_t unit = stored.unit + 1;
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    Line line = {};
    line.record.tag = kLower;
    seal(UnitsOffset(kLargeBytes) + unit * kUnitBytes + i * kLineBytes, line);
  }
  page.entries[index(lower)] = DirectoryEntry{unit, 10, kLower}.Pack();
  seal(pages[0], page);
  page.entries[index(upper) - kDirectoryEntriesPerPage] =
      DirectoryEntry{stored.unit, 10, stored.generation}.Pack();
  seal(pages[1], page);
  header.directory_depth = 10;
  seal(0, header);

  EXPECT_EQ(Get(map, memory.data(), lower).kind, Lookup::Kind::kMiss);
  EXPECT_EQ(map.depth(), 10u);
  EXPECT_EQ(Get(map, memory.data(), upper).kind, Lookup::Kind::kHit);
}

// Lookups of one client share its map, and one may refresh it while another's READ is under way.
TEST_F(LookupTest, LookupsThatShareAMapMayRefreshItAtOnce) {
  Put("key", "value");
  const uint64_t line = HomeLineOf("key");
  DirectoryPage page = StructAt<DirectoryPage>(kDirectoryOffset);
  const DirectoryEntry old = DirectoryEntry::Unpack(page.entries[0]);
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    Rewrite(UnitsOffset(kBytes) + i * kLineBytes, [](Line& l) { l.record.tag = 60; });
  }
  page.entries[0] = page.entries[1] = DirectoryEntry{old.unit, 0, 60}.Pack();
  SealStruct(kDirectoryOffset, page);
  Lookup first(map_, "key");
  Lookup second(map_, "absent");
  Lookup::Step step = first.Start();
  EXPECT_EQ(step.offset, line);
  step = first.Resume(Copy(step));
  EXPECT_EQ(step.offset, 0u);
  const std::vector<std::byte> old_header = Copy(step);
  RegionHeader header = StructAt<RegionHeader>(0);
  header.directory_depth = 1;
  SealStruct(0, header);
  Lookup::Step other = second.Start();
  std::vector<std::byte> bytes;
  while (other.kind == Lookup::Kind::kRead) {
    bytes = Copy(other);
    other = second.Resume(bytes);
  }
  EXPECT_EQ(other.kind, Lookup::Kind::kMiss);
  EXPECT_EQ(map_.depth(), 1u);
  step = first.Resume(old_header);  // older than the map, as if the directory had halved
  EXPECT_EQ(map_.depth(), 0u);
  while (step.kind == Lookup::Kind::kRead) {
    bytes = Copy(step);
    step = first.Resume(bytes);
  }
  EXPECT_EQ(step.kind, Lookup::Kind::kHit);
}

// Both find no lines, and READ a directory of two pages again. It halves while one of them READs the
// second page.
TEST_F(LookupTest, DirectoryMayHalveWhileAPageOfItIsRead) {
  constexpr uint64_t kBytesOfTwoPages = 64 << 20;
  RegionMemory memory(kBytesOfTwoPages);
  RegionWriter writer(memory.span(), kTestIncarnation, 6);
  Directory directory(writer, kTestSeed);
  directory.LayOut({0, 0, 1});
  while (directory.depth() < 9) directory.DoubleStep();
  DirectoryCache map(kTestIncarnation, kBytesOfTwoPages);
  FillMap(map, memory.data());
  std::string key = "key";
  while (HashKey(key, kTestSeed).directory_index(9) < kDirectoryEntriesPerPage) key += "y";
  Lookup first(map, key);
  Lookup second(map, key);
  std::vector<std::byte> bytes;
  const auto read = [&](Lookup& lookup, const Lookup::Step& step) {
    bytes = ReadRegion(memory.data(), step.offset, step.length);
    return lookup.Resume(bytes);
  };
  Lookup::Step step = first.Start();
  while (step.offset != kDirectoryOffset + kDirectoryPageBytes) {
    ASSERT_EQ(step.kind, Lookup::Kind::kRead);
    step = read(first, step);
  }
  directory.Halve();
  for (Lookup::Step other = second.Start(); other.kind == Lookup::Kind::kRead;)
    other = read(second, other);
  EXPECT_EQ(map.depth(), 8u);
  while (step.kind == Lookup::Kind::kRead) step = read(first, step);
  EXPECT_EQ(step.kind, Lookup::Kind::kAskServer);
}

// A server that was restarted in the same memory: readers accept nothing of the previous
// incarnation.
TEST_F(LookupTest, DataOfAnEarlierIncarnationIsRejected) {
  const uint64_t slot = Put("key", std::string(300, 'o')).slot;
  TableOptions options;
  options.incarnation = kTestIncarnation + 1;
  options.hash_seed = kTestSeed;
  table_ = *Table::Create(memory_.span(), options);
  DirectoryCache map(kTestIncarnation + 1, kBytes);
  FillMap(map, memory_.data());
  EXPECT_EQ(Get(map, memory_.data(), "key", slot).kind, Lookup::Kind::kMiss);
  EXPECT_EQ(Get(map_, memory_.data(), "key").kind, Lookup::Kind::kAskServer);
}

}  // namespace
}  // namespace osprey::index
