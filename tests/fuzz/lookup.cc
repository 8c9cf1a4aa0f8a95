// The readers of index/ facing a region that lies: DirectoryCache, Lookup and Scan. None READs
// outside its region, and none goes on for ever. What a hit names lies within the bytes that were
// READ.

#include "index/reader/lookup.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "index/layout/partitions.h"
#include "index/reader/directory_cache.h"
#include "index/reader/mapped_probe.h"
#include "index/reader/scan.h"
#include "index/reader/window_probe.h"
#include "tests/fuzz/support/hostile_region.h"
#include "tests/fuzz/support/input.h"

namespace osprey::index {
namespace {

constexpr uint64_t kRegionSizes[] = {
    kDirectoryOffset + kDirectoryPageBytes + kUnitBytes,  // the least that a client takes
    128 << 10,
    1 << 20,
    (1 << 20) + 4096 - 8,
    64 << 20,
    uint64_t{1} << 30,
};
// READs of a scan between two places that its cursor is at.
constexpr int kStepsPerBlockMax = 20000;
// Of one input: a scan of a region that is full of keys has a right to go on for long.
constexpr int kStepsMax = 3000;

class Reader {
 public:
  explicit Reader(fuzz::Input& input)
      : input_(input),
        shape_{kRegionSizes[input.Choice(std::size(kRegionSizes))], 1, 1 + input.Number() % 1000,
               input.Byte()},
        region_(shape_, input) {
    region_.set_honest(input.Flag());
    for (int i = 0; i < 3; ++i) {
      // Of each length class that matters: inline, out of line, the longest.
      std::string key = input.Text(i == 2 ? 300 : 24);
      if (key.empty()) key = std::string(1, static_cast<char>('a' + i));
      if (input.OneIn(32)) key.resize(kKeyBytesMax, 'x');
      keys_.push_back(key);
      region_.WillBeAsked(key);
    }
  }

  void Run() {
    if (!ReadMap()) return;
    while (!input_.empty()) {
      region_.set_honest(input_.Flag());
      input_.Flag() ? Look() : Go();
    }
  }

 private:
  ByteSpan Read(uint64_t offset, uint64_t length) {
    OSPREY_MUST(
        length > 0 && length <= shape_.region_bytes && offset <= shape_.region_bytes - length,
        "a READ outside of the region");
    // On the heap and of this length, for the address sanitizer.
    bytes_ = std::make_unique<std::byte[]>(length);
    region_.Read(offset, {bytes_.get(), length});
    return {bytes_.get(), length};
  }

  ServerTimeBounds AnyTime() {
    ServerTimeBounds time;
    if (input_.Flag()) return time;
    time.earliest_ns = input_.Number();
    time.latest_ns = std::max(time.earliest_ns, input_.Number());
    return time;
  }

  bool ReadMap() {
    map_ = std::make_unique<DirectoryCache>(shape_.incarnation, shape_.region_bytes);
    // The header and each page, and as many torn ones as it takes.
    const uint64_t reads_max =
        1 + DirectoryPages(DirectoryDepthLimit(shape_.region_bytes)) + kMapAttemptsMax;
    for (uint64_t reads = 0; !map_->ready(); ++reads) {
      OSPREY_MUST(reads < reads_max, "a map that is never read to its end");
      const ReadSpan span = map_->NextRead();
      if (!map_->Apply(Read(span.offset, span.length)).ok()) return false;
    }
    return true;
  }

  // What a window where it stands leads to is within the region; and what is copied from there may
  // be anything, and is judged within its bytes.
  void Sight(const std::string& key) {
    const KeyHash hash = HashKey(key, map_->hash_seed());
    const DirectoryCache::Window window = map_->WindowOf(hash);
    const uint32_t read_bytes_max = 1024;
    MappedProbe mapped_probe;
    if (window.generation == kGenerationNone) {
      OSPREY_MUST(!mapped_probe.Look(nullptr, *map_, window, hash, key, read_bytes_max),
                  "a READ without a window");
      return;
    }
    const ByteSpan in_place = Read(window.offset, kWindowBytes);
    if (!mapped_probe.Look(in_place.data(), *map_, window, hash, key, read_bytes_max)) return;
    OSPREY_MUST(mapped_probe.read().length <= read_bytes_max, "a READ that is too long");
    const ByteSpan bytes = Read(mapped_probe.read().offset, mapped_probe.read().length);
    const MappedProbe::Found found = mapped_probe.Judge(bytes, map_->incarnation(), key);
    if (found.hit) MustBeWithin(found.value, bytes);
  }

  void Look() {
    // (Out of a byte that inputs have had since before there was a choice, so that those that are
    // kept mean what they did.)
    const uint8_t choice = input_.Byte();
    const std::string& key = keys_[choice % keys_.size()];
    if (choice >= 240) return Sight(key);
    LookupOptions options;
    if (input_.Flag()) options.whole_read_bytes_max = 64 << (input_.Byte() % 12);
    options.want_value = !input_.OneIn(4);
    if (input_.OneIn(8)) options.present_version = input_.Byte();
    const uint64_t hint = input_.Flag() ? region_.AnySlot() : 0;
    Lookup lookup(*map_, key, options);
    Lookup::Step step = lookup.Start(hint);
    for (int reads = 0;; ++reads) {
      // Each READ of a value follows one of a head.
      OSPREY_MUST(reads <= 2 * kReadsMax, "a lookup that does not end");
      if (step.kind == Lookup::Kind::kRead) {
        OSPREY_MUST(step.length <= kLookupReadBytesMax, "a READ that is too long");
        const ByteSpan bytes = Read(step.offset, step.length);
        const DirectoryCache::Window window = map_->WindowOf(HashKey(key, map_->hash_seed()));
        const bool window_probes = reads == 0 && hint == 0 && window.generation != 0;
        step = lookup.Resume(bytes, AnyTime());
        if (window_probes)
          WindowProbeMustAgree({bytes, *map_, window, {key, HashKey(key, map_->hash_seed())}},
                               bytes, lookup, step);
        if (step.kind == Lookup::Kind::kHit && !step.in_pieces) MustBeWithin(step.value, bytes);
        for (const SlotSeen& seen : lookup.slots_seen())
          OSPREY_MUST(KindOf(seen.slot) == WordKind::kSlot, "a slot that is none was seen");
      } else if (step.kind == Lookup::Kind::kReadValue) {
        step = ReadValue(lookup, step);
      } else {
        break;
      }
    }
    OSPREY_MUST(lookup.counters().reads <= kReadsMax, "a lookup that READs too often");
  }

  void WindowProbeMustAgree(const WindowProbe& probe, ByteSpan bytes, const Lookup& lookup,
                            const Lookup::Step& step) {
    bool agree = true;
    switch (probe.kind()) {
      case WindowProbe::Kind::kOther:
        return;
      case WindowProbe::Kind::kHit:
        MustBeWithin(probe.item().value, bytes);
        agree = step.kind == Lookup::Kind::kHit && step.slot == 0 &&
                step.value.data() == probe.item().value.data() &&
                step.value.size() == probe.item().value.size() &&
                step.version == probe.item().cas_version;
        break;
      case WindowProbe::Kind::kMiss:
        agree = step.kind == Lookup::Kind::kMiss;
        break;
    }
    OSPREY_MUST(agree && lookup.slots_seen().size() == probe.slots_seen().size(),
                "a probe and a lookup of the same bytes that differ");
  }

  Lookup::Step ReadValue(Lookup& lookup, const Lookup::Step& step) {
    const uint64_t end = shape_.region_bytes;
    OSPREY_MUST(step.value_length <= kValueBytesMax && step.offset <= end &&
                    step.value_length <= end - step.offset,
                "a value outside of the region");
    // A client bounds it by what its server stores (client_engine.cc); here it would only take
    // time.
    constexpr uint64_t kTakenMax = 2 << 20;
    if (step.value_length > kTakenMax) return {};
    const uint64_t piece_max = 1 + input_.Number() % (256 << 10);
    for (uint64_t at = 0; at < step.value_length;) {
      const uint64_t piece = std::min(std::max<uint64_t>(piece_max, 4096), step.value_length - at);
      lookup.TakeValue(Read(step.offset + at, piece));
      at += piece;
    }
    return lookup.FinishValue();
  }

  void Go() {
    ScanOptions options;
    const std::string prefix = input_.Flag() ? keys_[0].substr(0, 1) : "";
    options.prefix = prefix;
    if (input_.Flag()) options.entries_max = input_.Byte();
    options.want_values = input_.Flag();
    options.count_only = !options.want_values && input_.Flag();
    ScanCursor cursor;
    if (input_.OneIn(4)) {
      cursor.position = input_.Number() % ScanCursor::kPositions;
      cursor.home = input_.Byte() % kHomesPerSegment;
    }
    Scan scan(*map_, cursor, options);
    Scan::Step step = scan.Start();
    int steps = 0;
    for (int all = 0; step.kind == Scan::Kind::kRead && all < kStepsMax; ++all) {
      OSPREY_MUST(
          step.bytes > 0 && step.bytes <= kScanBytesMax && step.reads.size() <= kScanReadsMax,
          "a scan's step that is too long");
      const auto bytes = std::make_unique<std::byte[]>(step.bytes);
      uint64_t at = 0;
      for (const ReadSpan& span : step.reads) {
        const ByteSpan part = Read(span.offset, span.length);
        OSPREY_MUST(part.size() <= step.bytes - at, "a scan's step longer than it says");
        std::copy(part.begin(), part.end(), bytes.get() + at);
        at += part.size();
      }
      OSPREY_MUST(at == step.bytes, "a scan's step shorter than it says");
      const ScanCursor before = scan.cursor();
      step = scan.Resume({bytes.get(), step.bytes}, AnyTime());
      const ScanCursor& now = scan.cursor();
      const bool moved = now.position != before.position || now.home != before.home;
      OSPREY_MUST(!moved || now.position > before.position ||
                      (now.position == before.position && now.home > before.home),
                  "a scan that goes back");
      steps = moved ? 0 : steps + 1;
      OSPREY_MUST(steps < kStepsPerBlockMax, "a scan that stays where it is");
      for (const ScanEntry& entry : scan.entries()) {
        OSPREY_MUST(
            entry.key.size() <= kKeyBytesMax && entry.key.compare(0, prefix.size(), prefix) == 0,
            "a key that was not asked for");
        OSPREY_MUST(!entry.has_value || entry.value.size() == entry.value_length,
                    "a value of another length");
      }
      scan.entries().clear();
    }
  }

  static void MustBeWithin(ByteSpan value, ByteSpan bytes) {
    if (value.empty()) return;
    OSPREY_MUST(
        value.data() >= bytes.data() && value.data() + value.size() <= bytes.data() + bytes.size(),
        "a value that was not READ");
  }

  fuzz::Input& input_;
  const fuzz::RegionShape shape_;
  fuzz::HostileRegion region_;
  std::vector<std::string> keys_;
  std::unique_ptr<DirectoryCache> map_;
  std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace
}  // namespace osprey::index

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::fuzz::Input input(data, size);
  osprey::index::Reader(input).Run();
  return 0;
}
