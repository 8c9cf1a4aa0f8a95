// The reader and its map, in a region that no table would write.

#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/line_search.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"
#include "index/reader/lookup.h"
#include "index/reader/scan.h"
#include "index/segments/line_editor.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/index/reader/lookup_fixture.h"
#include "tests/support/allocation_count.h"

namespace osprey::index {
namespace {

// --- Hostile bytes ---------------------------------------------------------

// Any words, under valid checksums: a lookup ends, with a bounded number of READs, all inside the
// region.
TEST_F(LookupTest, NothingThatALineHoldsLeadsOutsideOrOnForever) {
  std::mt19937_64 random(7);
  const std::vector<std::string> keys = KeysOfHome(30, 20, false);
  for (const std::string& key : keys) Put(key, std::string(random() % 300, 'v'));
  const std::vector<std::byte> good = ReadRegion(memory_.data(), HomeLineOf(keys[0]), kWindowBytes);
  uint64_t kinds[5] = {};
  for (int round = 0; round < 20000; ++round) {
    const std::string& key = keys[random() % keys.size()];
    const uint32_t fingerprint = HashKey(key, kTestSeed).fingerprint();
    for (const uint64_t line : {HomeLineOf(key), HomeLineOf(key) + kLineBytes}) {
      Rewrite(line, [&](Line& l) {
        std::memcpy(&l, good.data() + (line - HomeLineOf(key)), sizeof(l));
        for (uint64_t i = random() % 3; i > 0; --i) {
          uint64_t& word = l.words[random() % kLineWords];
          const uint64_t offset = random() % 3 == 0 ? random() : random() % kBytes;
          switch (random() % 5) {
            case 0:
              word = random();
              break;
            case 1:
              word = Slot{offset & kOffsetMask, static_cast<uint32_t>(random() % 256), fingerprint}
                         .Pack();
              break;
            case 2:
              l.words[kLinkWord] = PackLink(HomeLineOf(keys[random() % keys.size()]));
              break;
            case 3:
              word = InlineHead{static_cast<uint32_t>(random() % 128),
                                static_cast<uint32_t>(random() % 128), 1}
                         .Pack();
              break;
            case 4:
              l.words[kLinkWord] = PackLink(offset & kOffsetMask);
              break;
          }
        }
      });
    }
    LookupOptions options;
    if (random() % 2 == 0) options.whole_read_bytes_max = random() % 400;
    Lookup lookup(map_, key, options);
    Lookup::Step step = lookup.Start(random() % 2 == 0 ? random() : 0);
    std::vector<std::byte> bytes;
    uint32_t reads = 0;
    while (step.kind == Lookup::Kind::kRead || step.kind == Lookup::Kind::kReadValue) {
      if (step.kind == Lookup::Kind::kReadValue) {
        ++kinds[static_cast<int>(step.kind)];
        ASSERT_LE(step.value_length, kBytes);
        ASSERT_LE(step.offset, kBytes - step.value_length);
        bytes.assign(memory_.data() + step.offset,
                     memory_.data() + step.offset + step.value_length);
        lookup.TakeValue(bytes);
        step = lookup.FinishValue();
        continue;
      }
      ASSERT_LT(reads++, static_cast<uint32_t>(kReadsMax));
      ASSERT_LE(step.length, kLookupReadBytesMax);
      ASSERT_LE(step.length, kBytes);
      ASSERT_LE(step.offset, kBytes - step.length);
      bytes = Copy(step);
      step = lookup.Resume(bytes);
    }
    ++kinds[static_cast<int>(step.kind)];
    if (step.kind == Lookup::Kind::kHit && !step.value.empty()) {
      ASSERT_GE(step.value.data(), bytes.data());
      ASSERT_LE(step.value.data() + step.value.size(), bytes.data() + bytes.size());
    }
  }
  EXPECT_GT(kinds[static_cast<int>(Lookup::Kind::kAskServer)], 100u);
  EXPECT_GT(kinds[static_cast<int>(Lookup::Kind::kMiss)], 100u);
  EXPECT_GT(kinds[static_cast<int>(Lookup::Kind::kHit)], 100u);
  EXPECT_GT(kinds[static_cast<int>(Lookup::Kind::kReadValue)], 100u);
}

TEST_F(LookupTest, ChainThatBitesItsTailEnds) {
  Rewrite(HomeLineOf("key"), [&](Line& l) { l.words[kLinkWord] = PackLink(HomeLineOf("key")); });
  const GetResult got = Get(map_, memory_.data(), "key");
  EXPECT_EQ(got.kind, Lookup::Kind::kAskServer);
  EXPECT_EQ(got.counters.reads, 1u + kChainLinesMax);
}

// The head of an inline item has 7 bits for the key's length. All memory is alike, so the comparison
// of a longer key would find it, beyond the line.
TEST(SearchLineTest, AKeyTooLongToBeInlineIsNotCompared) {
  std::vector<std::byte> memory(kLineBytes + kKeyBytesMax, std::byte{'k'});
  const uint64_t head = InlineHead{16, 0, 1}.Pack();
  std::memcpy(memory.data() + offsetof(Line, words), &head, sizeof(head));
  for (const uint64_t length : {16u, 16u + 128, 16u + 256, 16u + 31 * 128}) {
    const std::string key(length, 'k');
    InlineItem item;
    const InLine found = SearchLine(ByteSpan(memory.data(), kLineBytes), KeyPattern(key, KeyHash()),
                                    key, item, [](uint64_t) {});
    EXPECT_EQ(found, length == 16 ? InLine::kKey : InLine::kNothing) << length;
  }
}

TEST_F(LookupTest, LeadsOutsideTheRegionAreNotFollowed) {
  const uint32_t fingerprint = HashKey("key", kTestSeed).fingerprint();
  for (const uint64_t offset :
       {uint64_t{0}, uint64_t{4096}, kBytes - 16, kBytes, kRegionBytesMax - 16}) {
    Rewrite(HomeLineOf("key"), [&](Line& l) {
      l.words[0] = Slot{offset, 10, fingerprint, false}.Pack();
    });
    const GetResult got = Get(map_, memory_.data(), "key");
    EXPECT_EQ(got.kind, Lookup::Kind::kAskServer) << offset;
    EXPECT_EQ(got.counters.reads, 1u);
  }
  // At the region's end a READ is shortened to the region.
  Rewrite(HomeLineOf("key"), [&](Line& l) {
    l.words[0] = Slot{kBytes - 32, 40, fingerprint, false}.Pack();
  });
  Lookup lookup(map_, "key");
  const Lookup::Step step = lookup.Resume(Copy(lookup.Start()));
  EXPECT_EQ(step.kind, Lookup::Kind::kRead);
  EXPECT_EQ(step.length, 32u);
  // Longer than any single READ of a lookup.
  Rewrite(HomeLineOf("key"), [&](Line& l) {
    l.words[0] = Slot{UnitsOffset(kBytes), 255, fingerprint}.Pack();
  });
  DirectoryCache large_map(kTestIncarnation, kBytes);
  FillMap(large_map, memory_.data());
  EXPECT_NE(Get(large_map, memory_.data(), "key").kind, Lookup::Kind::kHit);
}

// --- The map ---------------------------------------------------------------

class DirectoryCacheTest : public LookupTest {
 protected:
  absl::Status ApplyHeader(const std::function<void(RegionHeader&)>& edit) {
    RegionHeader header = StructAt<RegionHeader>(0);
    edit(header);
    // Under the incarnation in its header.
    RegionWriter writer(memory_.span(), header.incarnation, writer_.cas_version() + 1);
    const ByteSpan bytes(reinterpret_cast<const std::byte*>(&header), sizeof(header));
    writer.WriteRecord(0, writer.NextRecordVersion(0), header.record.tag,
                       bytes.subspan(sizeof(RecordHeader)));
    DirectoryCache map(kTestIncarnation, kBytes);
    const absl::Status status = map.Apply(ReadRegion(memory_.data(), 0, sizeof(RegionHeader)));
    EXPECT_EQ(map.NextRead().offset, status.ok() ? 4096u : 0u);
    return status;
  }
};

TEST_F(DirectoryCacheTest, HeaderThatCannotBeIsRefusedByName) {
  EXPECT_TRUE(ApplyHeader([](RegionHeader&) {}).ok());
  const std::pair<const char*, std::function<void(RegionHeader&)>> cases[] = {
      {"magic", [](RegionHeader& h) { ++h.magic; }},
      {"layout_version", [](RegionHeader& h) { ++h.layout_version; }},
      {"incarnation", [](RegionHeader& h) { ++h.incarnation; }},
      {"region_bytes", [](RegionHeader& h) { h.region_bytes += 4096; }},
      {"directory_depth", [](RegionHeader& h) { h.directory_depth = 26; }},
      {"directory_depth", [](RegionHeader& h) { h.directory_depth = 0xffffffff; }},
      {"units_offset", [](RegionHeader& h) { h.units_offset = kBytes; }},
      {"units_offset", [](RegionHeader& h) { h.units_offset += 1; }},
  };
  const RegionHeader good = StructAt<RegionHeader>(0);
  for (const auto& [field, edit] : cases) {
    const absl::Status status = ApplyHeader(edit);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << field;
    EXPECT_NE(status.message().find(field), absl::string_view::npos) << status;
    SealStruct(0, good);
  }
}

TEST_F(DirectoryCacheTest, TornHeaderAndPagesAreReadAgainAndBounded) {
  DirectoryCache map(kTestIncarnation, kBytes);
  std::vector<std::byte> header = ReadRegion(memory_.data(), 0, sizeof(RegionHeader));
  header[20] ^= std::byte{1};
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(map.Apply(header).ok());
  EXPECT_FALSE(map.ready());
  EXPECT_EQ(map.NextRead().offset, 0u);
  EXPECT_TRUE(map.Apply(ReadRegion(memory_.data(), 0, sizeof(RegionHeader))).ok());
  absl::Status status;
  int attempts = 0;
  while (status.ok() && attempts < 1000) {
    status = map.Apply(std::vector<std::byte>(kDirectoryPageBytes));
    ++attempts;
  }
  EXPECT_EQ(attempts, kMapAttemptsMax - 10);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
}

// --- What a map allocates --------------------------------------------------

// A server's READs of a region of 64 GiB, whose header claims a directory of 64 MiB.
class ClaimingServer {
 public:
  static constexpr uint64_t kClaimedBytes = uint64_t{64} << 30;
  static constexpr uint32_t kSegmentDepth = 0;

  std::vector<std::byte> Header(uint32_t depth) {
    RegionHeader header = {};
    header.magic = kRegionMagic;
    header.layout_version = kLayoutVersion;
    header.directory_depth = depth;
    header.incarnation = kTestIncarnation;
    header.region_bytes = kClaimedBytes;
    header.units_offset = UnitsOffset(kClaimedBytes);
    return Sealed(header, kRegionHeaderTag, 0);
  }
  // All of its entries name one segment, under `generation`.
  std::vector<std::byte> Page(uint64_t offset, uint32_t generation) {
    DirectoryPage page = {};
    for (uint64_t& entry : page.entries)
      entry = DirectoryEntry{0, kSegmentDepth, generation}.Pack();
    return Sealed(page, kDirectoryPageTag, offset);
  }
  // Of two lines, both empty.
  std::vector<std::byte> Window(uint64_t offset, uint32_t generation) {
    std::vector<std::byte> both;
    for (const uint64_t at : {offset, offset + kLineBytes}) {
      const std::vector<std::byte> line = Sealed(Line{}, generation, at);
      both.insert(both.end(), line.begin(), line.end());
    }
    return both;
  }

 protected:
  template <typename T>
  static std::vector<std::byte> Sealed(T record, uint32_t tag, uint64_t offset) {
    record.record.version = 2;
    record.record.tag = tag;
    std::vector<std::byte> bytes(sizeof(T));
    std::memcpy(bytes.data(), &record, sizeof(T));
    record.record.checksum =
        RecordChecksum(HashBytes(ByteSpan(bytes).subspan(sizeof(RecordHeader))),
                       record.record.version, tag, {offset, kTestIncarnation});
    std::memcpy(bytes.data(), &record, sizeof(T));
    return bytes;
  }
};

constexpr uint64_t kBytesPerPageMax = 2 * kDirectoryPageBytes;
// For pages far from each other: the vector of chunks, and all that it was before it grew.
constexpr uint64_t kChunkListBytesMax = 4 * 24 * (uint64_t{1} << 23) / 512;

TEST(DirectoryCacheMemoryTest, HeaderAllocatesNothingAndPagesWhatTheyBring) {
  ClaimingServer server;
  const uint32_t depth = DirectoryDepthLimit(ClaimingServer::kClaimedBytes);
  ASSERT_EQ(depth, 23u);
  const std::vector<std::byte> header = server.Header(depth);
  DirectoryCache map(kTestIncarnation, ClaimingServer::kClaimedBytes);
  const uint64_t before = AllocatedBytesSoFar();
  ASSERT_TRUE(map.Apply(header).ok());
  EXPECT_EQ(AllocatedBytesSoFar() - before, 0u);
  constexpr uint64_t kPages = 100;
  uint64_t of_the_map = 0;
  for (uint64_t i = 0; i < kPages; ++i) {
    const std::vector<std::byte> page = server.Page(map.NextRead().offset, 1);
    const std::vector<std::byte> torn(kDirectoryPageBytes);
    const uint64_t before_page = AllocatedBytesSoFar();
    if (i < 10) {
      ASSERT_TRUE(map.Apply(torn).ok());
      EXPECT_EQ(AllocatedBytesSoFar() - before_page, 0u);
    }
    ASSERT_TRUE(map.Apply(page).ok());
    of_the_map += AllocatedBytesSoFar() - before_page;
  }
  EXPECT_LE(of_the_map, kPages * kBytesPerPageMax + 2 * 2 * 24 * kPages);
  EXPECT_FALSE(map.ready());
}

TEST(DirectoryCacheMemoryTest, ADeeperHeaderInALookupAllocatesNothingToo) {
  ClaimingServer server;
  DirectoryCache map(kTestIncarnation, ClaimingServer::kClaimedBytes);
  ASSERT_TRUE(map.Apply(server.Header(0)).ok());
  ASSERT_TRUE(map.Apply(server.Page(map.NextRead().offset, 1)).ok());
  ASSERT_TRUE(map.ready());
  const uint32_t depth = DirectoryDepthLimit(ClaimingServer::kClaimedBytes);
  uint64_t of_the_map = 0;
  constexpr int kKeys = 20;
  for (int i = 0; i < kKeys; ++i) {
    Lookup lookup(map, absl::StrCat("key ", i));
    Lookup::Step step = lookup.Start();
    std::vector<std::byte> bytes;
    while (step.kind == Lookup::Kind::kRead) {
      // Segments are always those of the next generation, so that the lookup refreshes the map.
      const uint32_t generation = 2 + static_cast<uint32_t>(i);
      if (step.length == sizeof(RegionHeader)) {
        bytes = server.Header(depth);
      } else if (step.length == kDirectoryPageBytes) {
        bytes = server.Page(step.offset, generation);
      } else {
        bytes = server.Window(step.offset, generation);
      }
      const uint64_t before = AllocatedBytesSoFar();
      step = lookup.Resume(bytes);
      of_the_map += AllocatedBytesSoFar() - before;
    }
    EXPECT_EQ(step.kind, Lookup::Kind::kMiss) << i;
    EXPECT_EQ(map.depth(), depth);
  }
  EXPECT_LE(of_the_map, kKeys * kBytesPerPageMax + kChunkListBytesMax);
}

// --- Depths that change ----------------------------------------------------

// Answers each READ of a ClaimingServer's region: every header has another depth, pages have entries
// of any depth, and lines are empty, mostly of one generation.
class DepthChangingServer : public ClaimingServer {
 public:
  static constexpr uint32_t kDepthMax = 12;

  std::vector<std::byte> Read(ReadSpan span) {
    EXPECT_LE(span.length, kClaimedBytes);
    EXPECT_LE(span.offset, kClaimedBytes - span.length);
    if (span.offset == 0) return Header(static_cast<uint32_t>(random_() % (kDepthMax + 1)));
    if (span.offset < UnitsOffset(kClaimedBytes)) {
      DirectoryPage page = {};
      for (uint64_t& entry : page.entries) entry = AnyEntry().Pack();
      return Sealed(page, kDirectoryPageTag, span.offset);
    }
    std::vector<std::byte> bytes;
    const uint32_t generation = AnyGeneration();
    for (uint64_t at = span.offset; at < span.offset + span.length; at += kLineBytes) {
      const std::vector<std::byte> line = Sealed(Line{}, generation, at);
      bytes.insert(bytes.end(), line.begin(), line.end());
    }
    return bytes;
  }
  std::mt19937_64& random() { return random_; }

 private:
  uint32_t AnyGeneration() { return random_() % 8 == 0 ? static_cast<uint32_t>(random_() % 3) : 1; }
  DirectoryEntry AnyEntry() {
    DirectoryEntry entry;
    entry.unit = static_cast<uint32_t>(random_() % (random_() % 8 == 0 ? 1u << 26 : 1000u));
    entry.depth = static_cast<uint32_t>(random_() % (random_() % 8 == 0 ? 64u : 4u));
    entry.generation = AnyGeneration();
    return entry;
  }

  std::mt19937_64 random_{11};
};

class DepthChangesTest : public ::testing::Test {
 protected:
  DepthChangesTest() : map_(kTestIncarnation, ClaimingServer::kClaimedBytes) {
    while (!map_.ready()) EXPECT_TRUE(map_.Apply(server_.Read(map_.NextRead())).ok());
  }

  DepthChangingServer server_;
  DirectoryCache map_;
};

TEST_F(DepthChangesTest, LookupsThatShareAMapEndInsideTheRegion) {
  struct OneLookup {
    OneLookup(DirectoryCache& map, std::string text) : key(std::move(text)), lookup(map, key) {
      step = lookup.Start();
    }
    const std::string key;
    Lookup lookup;
    Lookup::Step step;
    std::vector<std::byte> bytes;
  };
  uint64_t kinds[5] = {};
  for (int round = 0; round < 500; ++round) {
    std::deque<OneLookup> lookups;
    for (int i = 0; i < 8; ++i) lookups.emplace_back(map_, absl::StrCat("key ", round, " ", i));
    size_t running = lookups.size();
    while (running > 0) {
      OneLookup& one = lookups[server_.random()() % lookups.size()];
      if (one.step.kind != Lookup::Kind::kRead) continue;
      one.bytes = server_.Read({one.step.offset, one.step.length});
      one.step = one.lookup.Resume(one.bytes);
      if (one.step.kind == Lookup::Kind::kRead) continue;
      --running;
      ++kinds[static_cast<int>(one.step.kind)];
      ASSERT_LE(one.lookup.counters().reads, static_cast<uint32_t>(kReadsMax));
    }
  }
  EXPECT_GT(kinds[static_cast<int>(Lookup::Kind::kMiss)], 100u);
  EXPECT_GT(kinds[static_cast<int>(Lookup::Kind::kAskServer)], 100u);
}

// From any cursor that a client accepts, also of depths that no segment has.
TEST_F(DepthChangesTest, ScansFromAnyCursorGoForward) {
  uint64_t forward = 0;
  uint64_t given_up = 0;
  for (int round = 0; round < 200; ++round) {
    ScanCursor from;
    from.position = server_.random()() % ScanCursor::kPositions;
    from.depth = static_cast<uint32_t>(server_.random()() % (kDirectoryDepthMax + 1));
    from.from_hash = server_.random()() % 2 == 0 ? 0 : server_.random()();
    from.home = from.from_hash == 0 ? static_cast<uint32_t>(server_.random()() % kHomesPerSegment)
                                    : KeyHash{from.from_hash}.home();
    Scan scan(map_, from, {});
    Scan::Step step = scan.Start();
    const auto place = [&] {
      return std::make_pair(scan.cursor().position, uint64_t{scan.cursor().home});
    };
    auto last = place();
    for (int steps = 0, same = 0; steps < 200 && step.kind == Scan::Kind::kRead; ++steps) {
      std::vector<std::byte> bytes;
      for (const ReadSpan& span : step.reads) {
        const std::vector<std::byte> more = server_.Read(span);
        bytes.insert(bytes.end(), more.begin(), more.end());
      }
      step = scan.Resume(bytes);
      ASSERT_LE(last, place());
      same = last == place() ? same + 1 : 0;
      forward += last != place();
      ASSERT_LE(same, 4 * kScanRefreshesMax);
      last = place();
    }
    given_up += step.kind == Scan::Kind::kGiveUp;
  }
  EXPECT_GT(forward, 300u);
  EXPECT_LT(given_up, 200u);
}

TEST_F(DirectoryCacheTest, EntryThatLeadsOutsideAsksTheServer) {
  DirectoryPage page = StructAt<DirectoryPage>(kDirectoryOffset);
  const uint64_t good = page.entries[0];
  const uint64_t outside = DirectoryEntry{1000, 0, DirectoryEntry::Unpack(good).generation}.Pack();
  for (const uint64_t entry : {uint64_t{0}, outside, ~uint64_t{0}}) {
    page.entries[0] = entry;
    SealStruct(kDirectoryOffset, page);
    DirectoryCache map(kTestIncarnation, kBytes);
    FillMap(map, memory_.data());
    EXPECT_EQ(Get(map, memory_.data(), "key").kind, Lookup::Kind::kAskServer);
  }
}

}  // namespace
}  // namespace osprey::index
