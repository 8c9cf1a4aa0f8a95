// The reader of all keys: finds all keys of a table, or those with a prefix, by READs alone.
//
// A Scan is a resumable state machine like Lookup (lookup.h). It requests many READs at a time:
// whole segments, then the items that they lead to. index/README.md explains why a key that is
// present throughout is found at least once, while the table is written and grows.
//
//   Scan scan(map, cursor, options);                    // cursor {}: from the beginning
//   Scan::Step step = scan.Start();
//   while (step.kind == Scan::Kind::kRead) {
//     bytes = READ all of step.reads, one after the other   // step.backoff > 0: wait first
//     step = scan.Resume(bytes);
//   }
//   … scan.entries(), and where to go on: scan.cursor() …
//
// The cursor stays valid across splits and merges, so it may be kept for any time. Keys found before
// it stay found if the scan is given up; a new scan continues from there.

#ifndef OSPREY_INDEX_READER_SCAN_H_
#define OSPREY_INDEX_READER_SCAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "index/layout/hash.h"
#include "index/layout/item.h"
#include "index/layout/layout.h"
#include "index/layout/line.h"
#include "index/reader/directory_cache.h"
#include "index/reader/directory_refresh.h"
#include "index/reader/server_time.h"

namespace osprey::index {

// The position of a scan. Keys come in the order of their hashes' low bits, reversed. So the keys
// of a segment are neighbours, and stay neighbours when it splits or merges. Within a segment they
// come in the order of their homes; where a limit divides a home, in the order of their hashes.
//
// Done are all keys before the position; and of the keys that share with it the low `depth` bits,
// those of homes before `home`.
struct ScanCursor {
  static constexpr uint64_t kPositions = uint64_t{1} << kDirectoryDepthMax;
  uint64_t position = 0;
  uint32_t depth = 0;      // at most kDirectoryDepthMax
  uint32_t home = 0;       // below kHomesPerSegment
  uint64_t from_hash = 0;  // of that home, keys with hashes below this are done

  bool at_end() const { return position >= kPositions; }
};

struct ScanOptions {
  // Only keys with this prefix. Must outlive the scan.
  absl::string_view prefix;
  // The scan ends when it has found so many. (It returns more only if further keys have the same
  // hash as the last one. A count stops at the end of a block.)
  uint64_t entries_max = UINT64_MAX;
  // Returns values too, of items that are READ whole: see kScanWholeBytesMax.
  bool want_values = false;
  // Counts the keys without returning them.
  bool count_only = false;
};

struct ScanEntry {
  std::string key;
  std::string value;  // with want_values, of items up to kScanWholeBytesMax
  bool has_value = false;
  bool is_inline = false;  // a line holds it, and no item
  uint64_t value_length = 0;
  uint64_t version = 0;
  uint64_t expiry_ns = 0;  // server time at which the key expires; 0: never
};

// Items up to this length are READ whole, with and without want_values. Of longer ones only the
// head is READ.
inline constexpr uint64_t kScanWholeBytesMax = 64 << 10;
inline constexpr uint64_t kScanWholeBytesMaxForKeys = 1024;
// The bounds of a step: READs, and bytes in all of them.
inline constexpr size_t kScanReadsMax = 256;
inline constexpr uint64_t kScanBytesMax = 256 << 10;
// R4: the bounds on rounds over the homes of one block that are being written, and on refreshes of
// the directory. After that the scan gives up.
inline constexpr int kScanRoundsMax = 16;
inline constexpr int kScanRoundsBeforeRefresh = 3;
inline constexpr int kScanRefreshesMax = 16;

class Scan {
 public:
  enum class Kind {
    kRead,
    kDone,    // the end of the table, or entries_max
    kGiveUp,  // the homes at the cursor are written too often, or are invalid
  };
  struct Step {
    Kind kind = Kind::kGiveUp;
    absl::Span<const ReadSpan> reads;  // kRead: at most kScanReadsMax
    uint64_t bytes = 0;                // of all of them, at most kScanBytesMax
    int backoff = 0;                   // as Lookup::Step::backoff
  };

  // `map` must be ready and outlive this; it is refreshed if it is old. REQUIRES: !from.at_end(), and
  // `from` is within its bounds.
  Scan(DirectoryCache& map, ScanCursor from, const ScanOptions& options);

  Step Start() { return NextBlock(); }
  // `time`: bounds of the server's clock during the step's READs. A key that may or may not have
  // expired is READ again; expired keys are not found. Without bounds the scan gives up at a key
  // with an expiry.
  Step Resume(ByteSpan bytes, const ServerTimeBounds& time = {});

  ScanCursor cursor() const { return cursor_; }
  // All entries found before cursor(); the caller may take them out at any time.
  std::vector<ScanEntry>& entries() { return entries_; }
  uint64_t count() const { return count_; }  // of all found so far, including those taken out

 private:
  // A block is some homes of one segment. A round READs those homes that are not settled yet:
  //
  //   kLines -> kChains, as often as there is a link -> kItems -> kConfirm -> the next block
  //     ^  |                                                          |
  //     |  +-> kRefresh (another generation)                          |
  //     +---------------------- homes that have changed --------------+
  enum class Phase { kLines, kChains, kItems, kConfirm, kRefresh };

  static constexpr uint32_t kChainLine = UINT32_MAX;
  struct LineCopy {
    uint64_t offset = 0;
    uint32_t number = 0;  // in the segment, or kChainLine
    uint32_t home = 0;    // of a chain's line
    RecordHeader header{};
    uint32_t entries = 0;   // entries that are counted without a further READ
    bool settled = true;    // no contradiction was found
    bool followed = false;  // its slots or link were followed, so it must not change
  };
  struct Chain {
    uint32_t home = 0;
    uint64_t next = 0;  // 0: no more
    uint32_t lines = 0;
  };
  struct Item {
    uint64_t slot = 0;
    uint32_t line = 0;  // index into lines_
    bool head_only = false;
    int attempts = 0;
  };
  // An entry of this round, accepted when its home is settled.
  struct Found {
    ScanEntry entry;
    KeyHash hash;
  };
  // A long item whose head was READ, accepted if its header is still the same.
  struct Head {
    uint64_t offset = 0;
    ItemHeader header{};
    uint32_t line = 0;
  };
  // The purpose of a READ. `index` is into lines_ (the first of `count`), chains_, items_ or
  // heads_.
  struct Purpose {
    enum class Kind { kLines, kChain, kItem, kConfirmLines, kConfirmHead, kMap };
    Kind kind = Kind::kMap;
    uint32_t index = 0;
    uint32_t count = 0;
  };
  // The READs of a phase, in order: taken, posted, and not yet posted.
  class Reads {
   public:
    void Clear() {
      spans_.clear();
      purposes_.clear();
      taken_ = posted_ = 0;
    }
    void Add(ReadSpan span, Purpose purpose) {
      spans_.push_back(span);
      purposes_.push_back(purpose);
    }
    // Posts the next ones, as many as the bounds of a step allow.
    Step Post();
    bool has_posted() const { return taken_ < posted_; }
    bool all_taken() const { return taken_ == spans_.size(); }
    // REQUIRES for both: has_posted().
    uint32_t next_length() const { return spans_[taken_].length; }
    Purpose TakeNext() { return purposes_[taken_++]; }

   private:
    std::vector<ReadSpan> spans_;
    std::vector<Purpose> purposes_;  // of spans_
    size_t taken_ = 0;               // of spans_
    size_t posted_ = 0;              // likewise: the end of the step under way
  };
  // The homes of one segment that are found next.
  struct Block {
    uint64_t segment = 0;  // offset
    DirectoryEntry entry;
    uint32_t home_end = 0;
    std::vector<uint32_t> homes;  // not settled yet
    std::vector<Found> found;
    uint64_t count = 0;
    int rounds = 0;
  };

  Step NextBlock();
  Step BeginRound();
  Step EndRound();
  Step EndBlock();
  void KeepUpToLimit(ScanCursor& next);
  Step Refresh();
  Step GiveUp();
  Step Done();
  Step ReadMore();
  Step EndPhase();
  void WantLines(Phase phase);

  // False if the bytes have another generation.
  bool Take(const Purpose& purpose, ByteSpan bytes);
  // `chain`: the chain of the line; null for one of the segment's own lines.
  bool TakeLine(uint32_t index, ByteSpan bytes, Chain* chain = nullptr);
  void TakeChainLine(Chain& chain, ByteSpan bytes);
  void TakeItem(Item item, ByteSpan bytes);
  void WantItem(Item item, uint64_t bytes);
  void TakeEntry(uint32_t line, uint32_t fingerprint, const ItemReading& item,
                 bool is_inline = false);
  bool BelongsTo(const LineCopy& line, KeyHash hash) const;
  void CountEntries(const std::array<bool, kHomesPerSegment>& settled);

  DirectoryCache& map_;
  const ScanOptions options_;
  ScanCursor cursor_;
  std::vector<ScanEntry> entries_;
  uint64_t count_ = 0;

  Block block_;
  uint64_t homes_of_next_ = 0;  // the least number of homes in the next block
  DirectoryRefresh refresh_;
  int refreshes_ = 0;
  bool nonsense_ = false;

  // The round.
  Phase phase_ = Phase::kLines;
  Reads reads_;
  ServerTimeBounds time_;  // of the READs that landed last
  std::vector<LineCopy> lines_;
  std::array<uint32_t, kLinesPerUnit> line_at_{};  // index into lines_, by number
  std::vector<Chain> chains_;
  std::vector<Item> items_;
  std::vector<Head> heads_;
  std::vector<Found> found_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_READER_SCAN_H_
