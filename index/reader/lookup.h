// The reader: finds a key in a table by RDMA READs alone.
//
// A Lookup is a resumable state machine without I/O, clock or memory of its own. It requests bytes,
// takes a private copy of them, and interprets it. index/README.md has its rules (R1, R2 …) and why
// the answer is linearizable.
//
//   DirectoryCache map(incarnation, region_bytes);            // once per connection
//   … map.NextRead() / map.Apply(bytes) until map.ready()
//   Lookup lookup(map, key);
//   Lookup::Step step = lookup.Start(hint);
//   while (step.kind == Lookup::Kind::kRead) {
//     bytes = READ(step.offset, step.length);            // step.backoff > 0: wait a little first
//     step = lookup.Resume(bytes);
//   }
//
// A long value (LookupOptions) comes in pieces instead, directly into the caller's buffer. The step
// is then kReadValue, and the caller does this:
//
//     READs [step.offset, step.offset + step.value_length), in whatever pieces, several at a time
//     lookup.TakeValue(piece);                           // each piece, in order, as it lands
//     step = lookup.FinishValue();                       // a hit; or torn: another READ
//
// For any bytes a Lookup stays within the region and within its bounds. Its only failure is to ask
// the server.

#ifndef OSPREY_INDEX_READER_LOOKUP_H_
#define OSPREY_INDEX_READER_LOOKUP_H_

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "index/layout/hash.h"
#include "index/layout/item.h"
#include "index/layout/layout.h"
#include "index/layout/line_search.h"
#include "index/reader/directory_cache.h"
#include "index/reader/directory_refresh.h"
#include "index/reader/item_fetch.h"
#include "index/reader/searched_lines.h"
#include "index/reader/server_time.h"

namespace osprey::index {

struct LookupOptions {
  // Items with a longer READ come in pieces. At most kLookupReadBytesMax; less in tests.
  uint64_t whole_read_bytes_max = kLookupReadBytesMax;
  // If false, a long value is not READ: the step is kAskServer instead.
  bool want_value = true;
  // Not 0: since the lookup's GET began, the server has answered that the key exists with this cas
  // version. An item of this version is a hit whatever its expiry.
  uint64_t present_version = 0;
};

// R4: the bounds of a lookup, after which it asks the server.
inline constexpr int kReadsMax = 64;        // READs in all
inline constexpr int kReadAttemptsMax = 8;  // torn records in all
inline constexpr int kItemAttemptsMax = 2;  // torn in a row at one item; then READ the line
inline constexpr int kLineAttemptsMax = 3;  // torn in a row at one line; then READ the map
inline constexpr int kRestartsMax = 8;      // from the window
inline constexpr int kRefreshesMax = 3;     // of the map

// The READs of a GET and their reasons, for the client's counters.
struct LookupCounters {
  uint32_t reads = 0;
  uint32_t torn = 0;         // records rejected because of a concurrent write
  uint32_t stale_hints = 0;  // the hint's item was dead or another's
  uint32_t restarts = 0;
};

class Lookup {
 public:
  enum class Kind {
    kRead,       // READ [offset, offset + length) and Resume
    kReadValue,  // READ [offset, offset + value_length) in pieces, TakeValue each, FinishValue
    kHit,        // `value` and `version`; `slot` as a hint for next time (0: inline)
    kMiss,       // absent at an instant since Start
    kAskServer,  // bounds are used up, or the bytes are invalid: GET by message
  };
  struct Step {
    Kind kind = Kind::kAskServer;
    uint64_t offset = 0;
    uint32_t length = 0;
    int backoff = 0;            // kRead: how many times in a row this was torn; 0: READ at once
    uint64_t value_length = 0;  // kReadValue: bytes
    ByteSpan value;             // kHit: within the bytes given to the last Resume, unless in_pieces
    bool in_pieces = false;     // kHit: the value consists of the pieces given to TakeValue
    uint64_t version = 0;       // kHit
    uint64_t expiry_ns = 0;     // kHit: server time at which the key expires; 0: never
    uint64_t landed_ns = 0;     // kHit of a key with an expiry: latest server time of its READ
    uint64_t slot = 0;          // kHit
    uint64_t line = 0;          // kHit by a line's slot: as SlotSeen::line; else 0
  };

  // `map` must be ready and outlive this; a lookup refreshes it if it is old. `key` must outlive
  // this.
  Lookup(DirectoryCache& map, absl::string_view key, const LookupOptions& options = {});
  // For callers that have computed these already: `hash` is HashKey(key, map.hash_seed()), and
  // `window` is map.WindowOf(hash), now or earlier.
  Lookup(DirectoryCache& map, absl::string_view key, KeyHash hash,
         const DirectoryCache::Window& window, const LookupOptions& options = {})
      : map_(map),
        key_(key),
        hash_(hash),
        options_(options),
        window_(window),
        fetch_(map, options.whole_read_bytes_max),
        lines_(key, hash) {
    assert(map.ready() && options.whole_read_bytes_max <= kLookupReadBytesMax);
  }

  // Replaces the key by an equal one at another address.
  void set_key(absl::string_view key) { key_ = key; }

  // `hint` is a slot from an earlier hit or reply, or 0.
  Step Start(uint64_t hint = 0);
  // While kRead is returned, the caller calls Resume with exactly the bytes requested. `time` gives
  // bounds of the server's clock during that READ (server_time.h). Without it, the server must
  // judge keys with an expiry. As a function it is called within Resume, and only for such keys: a
  // clock read takes a good part of a GET's time.
  using TimeOfRead = absl::FunctionRef<ServerTimeBounds()>;
  Step Resume(ByteSpan bytes, TimeOfRead time);
  Step Resume(ByteSpan bytes, const ServerTimeBounds& time = {}) {
    return Resume(bytes, [&time] { return time; });
  }

  // After kReadValue: TakeValue takes the value's bytes, private copies, in order and each once.
  // FinishValue returns the result. The pieces are hashed and not kept. REQUIRES at FinishValue:
  // the whole value was taken.
  void TakeValue(ByteSpan piece) { fetch_.TakeValue(piece); }
  Step FinishValue();

  // The slots in the lines that the last Resume received and found whole.
  absl::Span<const SlotSeen> slots_seen() const { return lines_.slots_seen(); }

  // The place of the hit that the last Resume or FinishValue returned, as an AccessHint of
  // partition 0.
  uint64_t AccessOf(const Step& hit) const;

  const LookupCounters& counters() const { return counters_; }
  // What the READ under way is of, for people; empty: there is none.
  absl::string_view Reading() const;

 private:
  Lookup(DirectoryCache& map, absl::string_view key, KeyHash hash, const LookupOptions& options)
      : Lookup(map, key, hash, map.WindowOf(hash), options) {}

  // The purpose of the READ under way.
  //
  //   Start -> kHint --------------------------------+--> hit
  //     |        v (not there)                       |
  //     +--> kWindow <----- restart -----+           |
  //            |  ^                      |           |
  //            |  +-- kRefresh <- (old map)          |
  //            v                                     |
  //          kItem (each matching slot) -------------+
  //            v
  //          kChainLine (and its kItems), as often as there is a link
  //            v
  //          kConfirmChainLine, kConfirmWindow -----------> miss
  //
  // kHint and kItem are two READs, of head and value, if the item is long. kRefresh is two, of
  // header and page.
  enum class State {
    kDone,
    kHint,
    kWindow,
    kItem,
    kChainLine,
    kConfirmChainLine,
    kConfirmWindow,
    kRefresh,
  };

  Step Read(State state, ReadSpan span, int backoff = 0);
  Step ReadWindow(int backoff = 0);
  Step ReadHome(int backoff = 0);
  Step ReadItem(State state, uint64_t slot, uint64_t line);
  Step AskServer();
  Step Hit(const ItemReading& item);
  Step HitInline(const InlineItem& item);
  Life LifeOf(uint64_t cas_version, uint64_t expiry_ns);
  Step Miss();

  Step ReadMore(ByteSpan bytes, uint64_t bytes_needed);
  Step ReadValue(ByteSpan head);

  Step Take(ByteSpan bytes);
  Step OnHint(ByteSpan bytes);
  Step StaleHint();
  Step OnWindow(ByteSpan bytes);
  Step OnItem(ByteSpan bytes);
  Step OnChainLine(ByteSpan bytes);
  Step OnConfirmChainLine(ByteSpan bytes);
  Step OnConfirmWindow(ByteSpan bytes);
  Step OnRefresh(ByteSpan bytes);

  Step NextCandidate();
  Step Conclude();
  Step ConfirmNext();
  Step Torn();
  Step Restart();
  Step Refresh();

  DirectoryCache& map_;
  absl::string_view key_;
  KeyHash hash_;
  const LookupOptions options_;
  DirectoryCache::Window window_;

  State state_ = State::kDone;
  ReadSpan read_;  // under way
  int torn_in_a_row_ = 0;
  int restarts_ = 0;
  int refreshes_ = 0;
  bool confirmed_early_ = false;  // for a mutant
  // Bounds of the last READ, if requested; for a long item, of its head's READ.
  ServerTimeBounds time_;
  const TimeOfRead* time_of_read_ = nullptr;  // within Resume

  ItemFetch fetch_;  // of the hint or the last candidate
  DirectoryRefresh refresh_;
  uint32_t confirm_next_ = 0;  // number of a line
  LookupCounters counters_;
  SearchedLines lines_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_READER_LOOKUP_H_
