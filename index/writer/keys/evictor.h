// Eviction: chooses the keys that are removed when memory is full.
//
// A CLOCK with two hands, which pass all lines in turn:
//
//   a new key  1 ──> the hand evicts it ──> a ghost (ghosts.h) ──it comes back──> 2
//              │                                                                  │
//              hint +6, write +1                                                  │
//              ▼                                                                  ▼
//              2 … 15 ──the aging hand: -1, only while few keys have a counter of 1──> 1
//
// So new keys that are not read go soon, as in S3-FIFO (SOSP '23), and others stay for as long as there are
// such keys. Keys that return were evicted too early. An eviction is a
// delete (W2); its item waits for its grace period and for leases, like any dead item (W4). A key
// with a pending write stays: the write's condition was judged by the present value.

#ifndef OSPREY_INDEX_WRITER_KEYS_EVICTOR_H_
#define OSPREY_INDEX_WRITER_KEYS_EVICTOR_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "index/space/compactor.h"
#include "index/writer/keys/expirer.h"
#include "index/writer/keys/keys.h"
#include "index/writer/keys/placement.h"

namespace osprey::index {

// Not thread-safe. Without TableOptions::evict nothing is ever evicted.
class Evictor {
 public:
  // All must outlive this. `reserved`: items of reservations, which are not moved.
  Evictor(Keys& keys, Placement& placement, Expirer& expirer, Compactor& compactor,
          const absl::flat_hash_set<uint64_t>& reserved)
      : keys_(keys),
        placement_(placement),
        expirer_(expirer),
        compactor_(compactor),
        reserved_(reserved) {}

  // As Table::EvictStep.
  bool Step(absl::Time now);
  bool Wanted() const { return BytesWanted() > 0; }
  // Each write may have made keys that can be evicted.
  void NoteWrite() {
    if (lines_since_eviction_ != 0) lines_since_eviction_ = 0;
  }
  uint64_t lines_looked() const { return lines_looked_; }  // since the start

  // Whether a value of that size fits beside the data that stays longer than leases and
  // reservations.
  bool MayMakeRoom(absl::string_view key, uint64_t value_length) const;
  // Begins an item for `key` after ItemRoom found no space. The key itself is spared, so that the
  // caller's checks of it stay valid; `at`, if any, is located again.
  absl::optional<uint64_t> BeginItem(absl::string_view key, uint64_t value_length, Location* at,
                                     absl::Time now);
  // Evicts the key of the window, or of its chain, with the lowest counter. False if there is none.
  bool EvictNear(uint64_t home, absl::string_view spared, absl::Time now);
  // Evicts a key of that line of a window, whatever its counter and its lease; one with a pending
  // write last. For a write that cannot be refused any more. False if the line has no key but
  // `spared`.
  bool EvictFrom(uint64_t line, absl::string_view spared, absl::Time now);
  // Stores a small key in place of others in its window if items have no space. False if that
  // cannot be.
  bool PutInline(absl::string_view key, ByteSpan value, uint64_t version, absl::Time now);
  // Thins out a segment that is full and cannot split. False without eviction.
  bool ThinOut(uint32_t unit, absl::Time now);
  // As Table::TakeHints and Table::Touch.
  void TakeHints(absl::Span<const uint64_t> hints);
  bool Touch(absl::string_view key);

 private:
  struct Victims {
    uint32_t clock_max = 1;    // a key that has more stays
    bool of_any_kind = false;  // if false, only keys whose eviction frees item space
    uint64_t time_ns = 0;      // by the server's clock: expired keys go first
    absl::string_view spared;  // stays, whatever its counter
  };

  uint64_t ReserveBytes() const;
  uint64_t BytesWanted() const;
  uint64_t Evict(uint64_t bytes, uint32_t keys_max, uint32_t lines_max, absl::string_view spared,
                 absl::Time now);
  absl::optional<Location> VictimIn(uint64_t line, const Victims& victims, absl::Time now) const;
  uint64_t EvictKey(const Location& at, int promotions_max, absl::Time now);
  bool EvictTogether(uint64_t bytes, absl::string_view spared, absl::Time now);
  std::vector<uint64_t> Pinned(absl::string_view key, absl::Time now) const;
  absl::optional<uint64_t> BeginLongItem(absl::string_view key, uint64_t value_length,
                                         absl::Span<const uint64_t> pinned, absl::Time now);
  bool MayAllGo(const ItemSpace::Extent& extent, absl::string_view spared, absl::Time now) const;
  void Age(uint64_t line);
  void AgeSome();
  bool IsCalm(const SegmentState& segment) const;
  bool TakeItemHint(uint64_t offset, uint32_t fingerprint);
  bool TakeLineHint(uint64_t offset, uint32_t fingerprint);

  Keys& keys_;
  Placement& placement_;
  Expirer& expirer_;
  Compactor& compactor_;
  const absl::flat_hash_set<uint64_t>& reserved_;
  uint64_t hand_ = 0;                  // a line, as ClockCounters numbers them; it evicts
  uint64_t aging_hand_ = 0;            // likewise; it decrements counters
  uint64_t lines_since_eviction_ = 0;  // lines passed since the last eviction
  uint64_t lines_looked_ = 0;          // lines passed since the start
  uint64_t place_ = 0;                 // in item space: where the next search for neighbours starts
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_KEYS_EVICTOR_H_
