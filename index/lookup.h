// The reader: finds a key in a table of which it sees only the bytes that READs bring.
//
// A Lookup is a resumable machine without I/O, clock or memory of its own: it says which bytes it wants next, is given a
// private copy of them, and says what they mean. index/README.md has the rules (R1, R2 …) that it follows and why the
// answer is linearizable.
//
//   RegionMap map(incarnation, region_bytes);            // once per connection
//   … map.NextRead() / map.Apply(bytes) until map.ready()
//   Lookup lookup(map, key, hint);
//   for (Lookup::Step step = lookup.Start(); step.kind == Lookup::Kind::kRead; step = lookup.Resume(bytes)) {
//     bytes = READ(step.offset, step.length);             // after `step.backoff` tries: wait a little first
//   }
//
// Nothing that the bytes hold can make it read outside the region, loop without bound or fail otherwise than by
// asking the server.

#ifndef OSPREY_INDEX_LOOKUP_H_
#define OSPREY_INDEX_LOOKUP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "index/layout.h"

namespace osprey::index {

using ByteSpan = absl::Span<const std::byte>;

struct ReadSpan {
  uint64_t offset = 0;  // from the start of the region
  uint32_t length = 0;  // bytes
};

// A client's copy of the region header and the directory. Not thread-safe. Valid for one incarnation.
class RegionMap {
 public:
  RegionMap(uint64_t incarnation, uint64_t region_bytes);

  // True once every directory page has been read.
  bool ready() const;
  // What to READ next while not ready(): the header, then the directory page by page.
  ReadSpan NextRead() const;
  // Takes the bytes of NextRead(). OK: progress, or a torn record (READ again: bounded by kMapAttemptsMax in all).
  // Errors: DATA_LOSS when the bytes cannot be a region of this layout and incarnation; the message says which field.
  absl::Status Apply(ByteSpan bytes);

  uint64_t incarnation() const { return incarnation_; }
  uint64_t hash_seed() const { return hash_seed_; }
  uint64_t region_bytes() const { return region_bytes_; }

 private:
  friend class Lookup;
  // (the implementer's)
  uint64_t incarnation_;
  uint64_t region_bytes_;
  uint64_t hash_seed_ = 0;
};

// What READs a GET took and why, for the client's counters.
struct LookupCounters {
  uint32_t reads = 0;
  uint32_t torn = 0;        // records rejected because a write was going on
  uint32_t stale_hints = 0;  // the hint's item was dead or another's
  uint32_t restarts = 0;
};

class Lookup {
 public:
  enum class Kind {
    kRead,       // READ [offset, offset + length) and Resume
    kHit,        // `value` and `version`; `slot` as a hint for next time (0: inline)
    kMiss,       // absent at an instant since Start
    kAskServer,  // bounds are used up, or the bytes make no sense: GET by message
  };
  struct Step {
    Kind kind = Kind::kAskServer;
    uint64_t offset = 0;
    uint32_t length = 0;
    int backoff = 0;         // kRead: how many times in a row this was torn; 0: READ at once
    ByteSpan value;          // kHit: within the bytes given to the last Resume
    uint64_t version = 0;    // kHit
    uint64_t slot = 0;       // kHit
  };

  // `map` must be ready and outlive this; a lookup refreshes it when it finds it old. `key` must outlive this.
  // `hint` is a slot from an earlier hit or reply, or 0.
  Lookup(RegionMap& map, absl::string_view key, uint64_t hint);

  // Each is followed by Resume with exactly the bytes asked for, while kRead is returned.
  Step Start();
  Step Resume(ByteSpan bytes);

  const LookupCounters& counters() const { return counters_; }

 private:
  // (the implementer's)
  LookupCounters counters_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LOOKUP_H_
