// The writer: the server's side of the table.
//
// It writes the region in the order that lets remote readers (lookup.h) tell a finished record from
// an unfinished one. The rules W1 … W8 of index/README.md stand beside the code that keeps them.
// Pure memory: it does no I/O and has no threads. The caller passes the time, except for expiry,
// which needs the time at certain moments within a write (R8). For that the table has a clock.
//
// Thread rule: one thread at a time. Remote readers need no synchronisation.
//
// A write of a small value is one call, Put. A value that arrives piece by piece (a rendezvous) is
// written to its final place. Reserve returns a span of item space that no reader can reach, and
// the caller fills value(). Then Publish makes it the key's value in one instant, or Abort frees
// the space.
//
// The table starts with one segment and grows in use. Writes note which segments have become too
// full, and the caller's GrowSteps split them one by one. A write never waits for growth: a key
// that does not fit yet goes to a chain.

#ifndef OSPREY_INDEX_WRITER_TABLE_H_
#define OSPREY_INDEX_WRITER_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/layout/line.h"
#include "index/space/compactor.h"
#include "index/space/item_store.h"
#include "index/space/region_space.h"
#include "index/space/region_writer.h"
#include "index/space/update_room.h"
#include "index/writer/chains.h"
#include "index/writer/clock_counters.h"
#include "index/writer/directory.h"
#include "index/writer/line_editor.h"
#include "index/writer/segment_split.h"

namespace osprey::index {

// A segment splits when this part of its usable words is used. It also splits when this part of its
// keys are small items that did not fit inline, each of which costs one more READ.
inline constexpr uint32_t kSplitPercent = 97;
inline constexpr uint32_t kSmallItemsPercent = 11;
// The most keys that one FlushStep deletes, and the most lines that it visits.
inline constexpr uint64_t kFlushKeysMax = 1024;
inline constexpr uint32_t kFlushLinesMax = 1024;
// The most entries that it visits, except that it finishes a line that it began.
inline constexpr uint64_t kFlushLooksMax = 4096;

// A sweep finds expired keys. One SweepStep visits so many lines, and ends so many keys.
inline constexpr uint32_t kSweepLinesMax = 64;
inline constexpr uint64_t kSweepKeysMax = 256;
// The shortest interval between sweeps, and the lines visited in one interval: some 200,000 keys.
inline constexpr absl::Duration kSweepPeriod() { return absl::Milliseconds(250); }
inline constexpr uint32_t kSweepLinesPerPeriod = 64 * kLinesPerUnit;

struct TableOptions {
  uint64_t incarnation = 0;  // random; not 0
  uint64_t hash_seed = 0;    // random
  // How long a dead item's space waits before reuse: longer than any READ takes (W4). If memory is
  // short it is reused earlier.
  absl::Duration reuse_grace = absl::Seconds(1);
  // The last cas version that counts as used; null: FirstCasVersion of the incarnation. A server
  // that continues the versions of an earlier incarnation sets it. Not with a counter.
  std::optional<uint64_t> cas_version;
  // The source of cas versions if tables share them; must outlive the table. Null: a counter of its
  // own.
  CasCounter* cas_counter = nullptr;
  // Server time, by which keys expire. It never goes back, and every `now` passed to the table was
  // read from it before. The default stands still, for tables whose keys have no time to live.
  std::function<absl::Time()> clock = [] { return absl::UnixEpoch(); };
  uint32_t split_percent = kSplitPercent;  // up to 100; 0 (for tests): after every insertion
  uint32_t small_items_percent = kSmallItemsPercent;
  // When memory is full, cold keys are evicted (index/README.md, "When memory is full").
  bool evict = false;
  // Item space reserved for a Reserve of a key whose present value is as long already, if there is
  // no other space. Without `evict`.
  uint64_t update_room_bytes = 0;
};

// The condition that must hold at the instant of a write.
struct Condition {
  enum class Kind { kNone, kAbsent, kVersionIs };
  Kind kind = Kind::kNone;
  uint64_t version = 0;  // kVersionIs
};

// The time to live of a key with its new value.
struct Lifetime {
  enum class Kind {
    kForever,
    kLimited,  // for `ttl` from the write on
    kKept,     // as before the write; forever if the key was absent
  };
  static Lifetime Forever() { return {}; }
  // A `ttl` of 0 or less has expired at once.
  static Lifetime For(absl::Duration ttl) { return {Kind::kLimited, ttl}; }
  static Lifetime Kept() { return {Kind::kKept, {}}; }

  Kind kind = Kind::kForever;
  absl::Duration ttl;
};

// The outcome of a write. `status` is OK; INVALID_ARGUMENT (key or value of impossible length, with
// the bound); NOT_FOUND (delete, or kVersionIs, of an absent key);
// ALREADY_EXISTS (kAbsent); FAILED_PRECONDITION (kVersionIs: `version` is the present one);
// RESOURCE_EXHAUSTED (full, IsChainFull or IsVersionsUsedUp; nothing changed).
struct WriteResult {
  absl::Status status;
  uint64_t version = 0;    // of the write; or the present one when a condition failed
  uint64_t slot = 0;       // the item's slot, a hint for readers; 0 if inline or deleted
  uint64_t expiry_ns = 0;  // when the key expires: nanoseconds of server time; 0: never
};

// Whether a write was refused because no cas version is left. This is permanent for the region;
// fullness is not.
bool IsVersionsUsedUp(const absl::Status& status);

// Whether a write was refused because the window and the chain of the key's home hold as many keys
// as they may. Uniform hashes do not fill a chain: such keys were chosen to share a home.
bool IsChainFull(const absl::Status& status);

// Small items that a delete makes inline in the space that it freed: bounded work.
inline constexpr int kPromotionsPerDelete = 2;
// An upper bound of the cas versions that one write draws, for all its records.
inline constexpr uint64_t kCasVersionsPerWriteMax = 64;
// The most keys of a window that one insertion evicts.
inline constexpr int kEvictionsNearMax = 8;

class Table;

// A span of item space that becomes an item. Move-only; destroying it without Publish aborts. Must
// not outlive its Table. Other writes of the same key may come before Publish.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  // The memory of the value (key and header are already there). Local or remote DMA writes may fill
  // it.
  absl::Span<std::byte> value() const { return value_; }
  // Hashes the next `bytes` of value(), which have arrived and will not change. So Publish need not
  // hash a long value, which would block all other requests. REQUIRES: there are so many.
  void Hash(uint64_t bytes);
  bool valid() const { return table_ != nullptr; }
  // Frees the space; value() may no longer be written to.
  void Abort();

 private:
  friend class Table;
  Reservation(Table* table, uint64_t offset);
  uint64_t HashRest();

  Table* table_ = nullptr;
  uint64_t offset_ = 0;  // of the item
  absl::Span<std::byte> value_;
  uint64_t hashed_ = 0;                  // bytes of value_
  std::unique_ptr<BytesHasher> hasher_;  // of the item's data
};

class alignas(128) Table {
 public:
  // Creates an empty table in `region` (zeroed, 4 KiB aligned, at least RegionBytesMin()), which
  // must outlive it. Errors: INVALID_ARGUMENT (too small, too large; with the bound).
  static absl::StatusOr<std::unique_ptr<Table>> Create(absl::Span<std::byte> region,
                                                       const TableOptions& options);
  static uint64_t RegionBytesMin();
  // REQUIRES: no Reservation is left.
  ~Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  // Expired keys count as absent in all of these.
  WriteResult Put(absl::string_view key, absl::Span<const std::byte> value, Condition condition,
                  absl::Time now, Lifetime lifetime = {}) {
    return Put(Hashed(key), value, condition, now, lifetime);
  }
  // For a key whose hash is known: HashKey of it, with TableOptions::hash_seed.
  WriteResult Put(const HashedKey& hashed, absl::Span<const std::byte> value, Condition condition,
                  absl::Time now, Lifetime lifetime = {});
  WriteResult Delete(absl::string_view key, Condition condition, absl::Time now);

  // Errors: INVALID_ARGUMENT (key or value length), RESOURCE_EXHAUSTED.
  absl::StatusOr<Reservation> Reserve(absl::string_view key, uint64_t value_length, absl::Time now);
  // Hashes the rest of the value and makes it the key's value. The reservation is used up whatever
  // the outcome.
  WriteResult Publish(Reservation reservation, Condition condition, absl::Time now,
                      Lifetime lifetime = {});

  // Sets a new lifetime for the present value: kLimited, or kForever. Neither value nor version
  // change, and the value is not copied. NOT_FOUND if the key is absent. RESOURCE_EXHAUSTED only
  // for an inline key, which needs an item to have an expiry. REQUIRES: not
  // Condition::Kind::kAbsent, not Lifetime::Kind::kKept.
  WriteResult Expire(absl::string_view key, Condition condition, Lifetime lifetime, absl::Time now);

  // Ends expired keys: one bounded step, if one is due. True if there is more to do now.
  bool SweepStep(absl::Time now);
  // The latest time of the next SweepStep, whatever happens until then; InfiniteFuture if no key
  // expires.
  absl::Time next_sweep() const;

  absl::Time ServerTime() const { return options_.clock(); }

  // A lock word for callers that let several threads use the table, one at a time: 0 at first, and
  // unused by the table. It is on the cache line that each write changes anyway. So a core fetches
  // one line from another core, and not two.
  std::atomic<uint32_t>& lock_word() { return writer_.hot().lock_word; }

  // One bounded step of compaction, if space for large items has become rare. True if there is more
  // to do now. Any call on the table may come in between.
  bool CompactStep(absl::Time now, const CompactionBound& bound = {});

  // The present value. It is valid until the next call on the table.
  struct View {
    absl::Span<const std::byte> value;
    uint64_t version = 0;
    uint64_t slot = 0;
    uint64_t expiry_ns = 0;  // as WriteResult::expiry_ns
  };
  // Errors: NOT_FOUND.
  absl::StatusOr<View> Find(absl::string_view key) const;

  // --- Growth.
  // Makes one bounded step towards a larger index, if needed. It splits one segment (some 3,300
  // keys; more when it had to wait) and makes small items inline that now fit. Or it writes
  // kDirectoryPagesPerStep pages of a directory that doubles. True if there is more to do now;
  // false also if there is no space to grow. Between steps the table is consistent.
  bool GrowStep(absl::Time now);

  // Whether a step is due. GrowStep may still find no space for it.
  bool GrowthWanted() const { return directory_.doubling() || !wants_split_.empty(); }

  // --- Eviction (table_eviction.cc). Only with TableOptions::evict.
  // Evicts some keys if little space is left: at most 256. True if there is more to do now.
  bool EvictStep(absl::Time now);
  bool evicts() const { return options_.evict; }
  uint64_t evictions() const { return counts_.evictions; }  // since the start
  // The work since the start besides the writes themselves, in units of about a microsecond. It
  // counts items moved or evicted for space, lines visited for that, expired keys, and items
  // visited by flushes.
  uint64_t effort() const {
    constexpr uint64_t kBytesPerUnit = 8192;  // copied and hashed
    constexpr uint64_t kLooksPerUnit = 8;
    constexpr uint64_t kPassedPerUnit = 32;
    return compactor_.stats().moved_items + compactor_.stats().moved_bytes / kBytesPerUnit +
           counts_.evictions + counts_.expiries + lines_looked_ / kPassedPerUnit +
           flush_looks_ / kLooksPerUnit;
  }
  // Whether a Reserve of that size that found no space may succeed later. Without eviction: enough
  // is free, in pieces, or the space for updates is in use. With eviction, where each attempt and
  // each step frees more: the value fits beside the data that stays longer than leases and
  // reservations.
  bool MayMakeRoom(absl::string_view key, uint64_t value_length) const;
  // Takes clients' access hints (access_hint.h): these keys stay longer. The hints may have any
  // content; the partition is ignored.
  void TakeHints(absl::Span<const uint64_t> hints);
  // Marks the key as in use. False if it is absent.
  bool Touch(absl::string_view key);

  // --- Flush.
  // Deletes up to `keys_max` (at most kFlushKeysMax) keys whose version is at most `version_bound`,
  // from `cursor` on; 0 is the beginning. A client that continues until the returned cursor is 0
  // has deleted every such key, despite writes, deletes and splits meanwhile.
  struct FlushResult {
    uint64_t cursor = 0;
    uint64_t deleted = 0;
  };
  // Errors: RESOURCE_EXHAUSTED (the versions are used up).
  absl::StatusOr<FlushResult> FlushStep(uint64_t cursor, uint64_t version_bound, uint64_t keys_max,
                                        absl::Time now);

  // Prefetches the memory that a call for `key` reads first. A batch of calls with prefetches waits
  // for memory once, instead of once for each call. By any thread at any time. `hash`: as Put's.
  void Prefetch(KeyHash hash) const;
  // Prefetches the memory that the call reads next: the key's item, if the table has more items
  // than inline keys. For use when the first memory has arrived. Only by the thread that may write.
  void PrefetchItem(KeyHash hash) const;
  // Prefetches the cache line that each write changes.
  void PrefetchHot() const { writer_.PrefetchHot(); }

  // Whether one of the steps (GrowStep, SweepStep, EvictStep, CompactStep) may have work now.
  bool StepWanted(absl::Time now);

  // Keeps the space of the item at `slot` from reuse until `until`, even if it dies (a reader was
  // sent there).
  void Lease(uint64_t slot, absl::Time until);

  struct Stats {
    uint64_t keys = 0;
    uint64_t inline_keys = 0;
    uint64_t key_bytes = 0;
    uint64_t value_bytes = 0;
    uint64_t region_bytes = 0;
    uint64_t index_bytes = 0;       // units in use
    uint64_t item_bytes = 0;        // live items, headers and rounding included
    uint64_t item_space_bytes = 0;  // taken from the region for items, free parts included
    uint64_t quarantine_bytes = 0;  // dead, not yet reusable
    uint64_t segments = 0;
    uint64_t directory_depth = 0;
    uint64_t overflow_lines = 0;
    double load_factor = 0;      // occupied words over all words of segments
    uint64_t cas_version = 0;    // the last that this table used
    uint64_t expiring_keys = 0;  // that have an expiry, whether or not it has passed
    uint64_t expiries = 0;       // keys that expired, since the start
    // Since the start: moves of keys between forms and places.
    uint64_t demotions = 0;
    uint64_t promotions = 0;
    uint64_t pull_backs = 0;
    uint64_t chained_inserts = 0;
    uint64_t chains_full = 0;  // insertions refused with IsChainFull
    uint64_t in_place_updates = 0;
    uint64_t splits = 0;
    // Since the start: items and bytes that compaction moved, and windows that it emptied or
    // abandoned.
    uint64_t compaction_items = 0;
    uint64_t compaction_bytes = 0;
    uint64_t compaction_windows = 0;
    uint64_t compaction_windows_given_up = 0;
    // Since the start.
    uint64_t evictions = 0;        // keys
    uint64_t evicted_bytes = 0;    // their keys and values
    uint64_t hints = 0;            // taken
    uint64_t hints_unmatched = 0;  // of these, hints whose key was gone

    // Adds the stats of another table of the same server: sums; the deeper directory. Does not
    // change load_factor.
    void Add(const Stats& other);
  };
  Stats stats() const;

 private:
  friend class Reservation;

  // The place of a key, or the place for a new key.
  struct Location {
    KeyHash hash;
    uint64_t home = 0;     // offset of line h
    uint64_t line = 0;     // of the line that holds the key
    bool chained = false;  // that line is an overflow line
    LineEntry entry;       // kEmpty: absent
    bool found() const { return entry.kind != WordKind::kEmpty; }
    bool out_of_line() const { return entry.kind == WordKind::kSlot; }
    uint64_t item() const { return Slot::Unpack(entry.head).offset; }
    bool has_expiry() const { return out_of_line() && Slot::Unpack(entry.head).has_expiry; }
  };
  struct Current {
    ByteSpan value;
    uint64_t version = 0;
    uint64_t expiry_ns = 0;
  };
  // A key's contribution to the accounts.
  struct Account {
    uint64_t keys = 0;
    uint64_t inline_keys = 0;
    uint64_t key_bytes = 0;
    uint64_t value_bytes = 0;
    uint32_t small_items = 0;
    uint32_t expiring = 0;
    bool operator==(const Account&) const = default;
  };

  // The state of a unit that is a segment.
  struct Segment {
    uint32_t words = 0;  // used by keys, with chains and without links
    uint32_t keys = 0;
    uint32_t small_items = 0;  // items that would be inline if there had been room
    uint32_t expiring = 0;     // keys that have an expiry
    // No key here expires before that. (Server time; not valid while it is being swept.)
    uint64_t expires_from_ns = UINT64_MAX;
    bool wants_split = false;
    uint8_t hand = 0;  // of eviction within it: a line
  };
  // The progress of a sweep through the segments whose keys may have expired.
  struct Sweep {
    bool under_way = false;
    uint32_t next_unit = 0;
    // The segment under way.
    absl::optional<uint32_t> unit;
    uint32_t line = 0;
    uint64_t expires_from_ns = UINT64_MAX;  // of its keys visited so far
    // No key expires before that, among those that this sweep has passed and those written since it
    // began.
    uint64_t passed_from_ns = UINT64_MAX;
    uint32_t lines_left = kSweepLinesPerPeriod;  // of this period
    absl::Time period_end = absl::InfinitePast();
    absl::Time next = absl::InfinitePast();  // no step before this time
  };

  Table(absl::Span<std::byte> region, const TableOptions& options);
  void LayOut();

  uint64_t UnitOffset(uint32_t unit) const { return space_.units_offset() + unit * kUnitBytes; }
  uint32_t UnitOf(uint64_t offset) const {
    return static_cast<uint32_t>((offset - space_.units_offset()) / kUnitBytes);
  }

  // The offset of line h.
  uint64_t HomeOf(KeyHash hash) const {
    return UnitOffset(directory_.At(hash.bits).unit) + hash.home() * kLineBytes;
  }
  HashedKey Hashed(absl::string_view key) const { return {key, HashKey(key, options_.hash_seed)}; }
  Location Locate(absl::string_view key) const { return Locate(Hashed(key)); }
  Location Locate(const HashedKey& hashed) const;
  void LocateInChain(absl::string_view key, const EntryPattern& pattern, Location& at) const;
  bool HoldsKey(uint64_t slot, absl::string_view key) const;
  absl::string_view KeyOf(const Location& at) const;
  // The place of the key if it is alive. An expired key is ended first.
  Location LocateLive(const HashedKey& hashed, absl::Time now) {
    Location at = Locate(hashed);
    if (at.has_expiry()) EndIfExpired(hashed, at, now);
    return at;
  }
  void EndIfExpired(const HashedKey& hashed, Location& at, absl::Time now);
  Current CurrentOf(const Location& at) const;
  absl::optional<WriteResult> Refuse(const Condition& condition, const Location& at) const;

  absl::optional<uint64_t> BeginItem(absl::string_view key, uint64_t value_length, Location* at,
                                     absl::Time now);
  absl::optional<uint64_t> BeginUpdate(absl::string_view key, uint64_t value_length,
                                       absl::Time now);
  bool MayUseUpdateRoom(absl::string_view key, uint64_t bytes) const;
  void ReplaceCopied(uint64_t from, const Sealing& sealing, absl::Time now);
  WriteResult PublishItem(const Location& at, const Sealing& sealing, uint64_t version,
                          absl::Time now);
  WriteResult NoPlaceAt(const Location& at);
  void ReplaceWithItem(const Location& at, uint64_t slot, const Sealing& sealing, absl::Time now);
  bool InsertItem(const Location& at, uint64_t slot, const Sealing& sealing, absl::Time now);
  bool InsertSlot(uint64_t home, uint64_t slot, absl::Time now);
  absl::optional<uint64_t> InlineRoom(const Location& at, uint64_t words) const;
  void PutInline(const Location& at, uint64_t line_offset, absl::string_view key, ByteSpan value,
                 uint64_t version, absl::Time now);
  static bool MayRewriteInline(const Location& at, absl::string_view key, ByteSpan value,
                               const Lifetime& lifetime);
  WriteResult RewriteInline(const Location& at, ByteSpan value);
  bool MayRewrite(const Location& at, absl::string_view key, ByteSpan value,
                  uint64_t expiry_ns) const;
  WriteResult RewriteItem(const Location& at, absl::string_view key, ByteSpan value,
                          uint64_t expiry_ns);
  WriteResult RewriteForWant(const Location& at, absl::string_view key, ByteSpan value,
                             const Condition& condition, uint64_t expiry_ns, absl::Time now);
  uint64_t LeadTo(const Location& at, bool has_expiry);
  absl::optional<uint64_t> RoomierLine(uint64_t home, uint32_t words) const;
  bool Demote(uint64_t home, absl::Time now);
  void Promote(uint64_t line_offset, int items_max, absl::Time now);
  void MoveFromOverflow(uint64_t line_offset);
  void MoveAsNobodyMay(absl::string_view key);  // mutants
  // Publishes the line and updates the account of words of segments' lines.
  void PublishLine(LineEditor& line, bool chained = false);
  // Removes the key, for any reason.
  void Remove(const Location& at, int promotions_max, absl::Time now);
  Account AccountOf(const Location& at) const;
  static Account AccountOf(absl::string_view key, ByteSpan value, WordKind form,
                           uint64_t expiry_ns);
  void Recount(const Location& at, const Account& before, const Account& after);

  // Time to live (table_expiry.cc).
  uint64_t ServerTimeNs() const;
  bool HasExpired(uint64_t expiry_ns) const;
  uint64_t ExpiryOf(const Lifetime& lifetime, const Location& at) const {
    return lifetime.kind == Lifetime::Kind::kForever ? 0 : ExpiryOfMortal(lifetime, at);
  }
  uint64_t ExpiryOfMortal(const Lifetime& lifetime, const Location& at) const;
  bool Prolongs(const Condition& condition, const Location& at, uint64_t expiry_ns) const {
    return condition.kind == Condition::Kind::kVersionIs && at.has_expiry() &&
           OutlivesThePresent(at, expiry_ns);
  }
  bool OutlivesThePresent(const Location& at, uint64_t expiry_ns) const;
  bool OutlivesTheWrite(const Location& at);
  bool SecondLook(uint64_t expiry_ns) const;
  WriteResult EndMeanwhile(const Location& at, absl::Time now);
  WriteResult MoveOutOfLine(absl::string_view key, const Condition& condition, uint64_t expiry_ns,
                            absl::Time now);
  void EndExpired(const Location& at, absl::Time now);
  void NoteExpiry(const Location& at, uint64_t expiry_ns);
  bool IsSweepDue(uint64_t time_ns) const;
  void SweepSome(uint64_t time_ns, absl::Time now);
  bool NextToSweep(uint64_t time_ns);
  bool SweepLine(uint64_t line, uint64_t time_ns, uint64_t& keys_left, absl::Time now);
  bool FirstExpired(uint64_t line, uint64_t time_ns, std::string& key);
  absl::optional<uint64_t> SweepForItem(absl::string_view key, uint64_t value_length,
                                        absl::Time now);

  // Eviction.
  struct Victims {
    uint32_t clock_max = 1;    // a key that has more stays
    bool of_any_kind = false;  // if false, only keys whose eviction frees item space
    uint64_t time_ns = 0;      // by the server's clock: expired keys go first
    absl::string_view spared;  // stays, whatever its counter
  };
  absl::optional<uint64_t> BeginItemEvicting(absl::string_view key, uint64_t value_length,
                                             Location* at, absl::Time now);
  uint64_t ReserveBytes() const;
  bool EvictionWanted() const;
  uint64_t Evict(uint64_t bytes, uint32_t keys_max, uint32_t lines_max, absl::string_view spared,
                 absl::Time now);
  absl::optional<Location> VictimIn(uint64_t line, const Victims& victims, absl::Time now) const;
  uint64_t EvictKey(const Location& at, int promotions_max, absl::Time now);
  bool EvictTogether(uint64_t bytes, absl::string_view spared, absl::Time now);
  std::vector<uint64_t> Pinned(absl::string_view key, absl::Time now) const;
  absl::optional<uint64_t> BeginLongEvicting(absl::string_view key, uint64_t value_length,
                                             absl::Span<const uint64_t> pinned, absl::Time now);
  bool MayAllGo(const ItemSpace::Extent& extent, absl::string_view spared, absl::Time now) const;
  absl::optional<Location> LocateItem(uint64_t offset) const;
  bool EvictNear(uint64_t home, absl::string_view spared, absl::Time now);
  bool PutInlineEvicting(absl::string_view key, ByteSpan value, uint64_t version, absl::Time now);
  bool ThinOut(uint32_t unit, absl::Time now);
  bool IsCalm(const Segment& segment) const;
  bool TakeItemHint(uint64_t offset, uint32_t fingerprint);
  bool TakeLineHint(uint64_t offset, uint32_t fingerprint);

  // Growth (table_growth.cc).
  DirectoryEntry NewSegment(uint32_t depth);
  void NoteLoad(const Location& at);
  bool MayDouble() const;
  bool Split(uint32_t hash_bits, DirectoryEntry old, absl::Time now);
  void PromoteIn(DirectoryEntry entry, absl::Time now);
  void WriteHalf(const SegmentSplit::Half& half, DirectoryEntry entry, uint64_t expires_from_ns);
  void WriteEmptyHalf(DirectoryEntry entry);  // for a mutant
  void Poison(DirectoryEntry old);
  bool FlushLine(uint64_t line, uint64_t version_bound, uint64_t keys_max, absl::Time now,
                 FlushResult& result, absl::Status& status);
  bool FirstUpTo(uint64_t line, uint64_t version_bound, std::string& key);

  RegionWriter writer_;
  RegionSpace space_;
  ItemStore items_;
  UpdateRoom update_room_;
  ClockCounters clocks_;
  Chains chains_;
  Directory directory_;
  SegmentSplit split_;
  Compactor compactor_;
  TableOptions options_;
  absl::flat_hash_set<uint64_t> reserved_;  // items of reservations, which are not moved
  uint32_t generation_ = 0;                 // the last used
  std::vector<Segment> segments_;           // by unit
  std::vector<uint64_t> segments_of_depth_;
  std::deque<uint32_t> wants_split_;  // the low hash bits of a key in each
  // Members that writes change follow.
  alignas(64) uint64_t occupied_words_ = 0;  // of segments' lines, without links
  uint64_t hand_ = 0;                        // of eviction: a line, as ClockCounters numbers them
  uint64_t lines_since_eviction_ = 0;        // lines passed since the last eviction
  uint64_t lines_looked_ = 0;                // lines passed since the start
  uint64_t place_ = 0;        // in item space: where the next search for neighbours starts
  uint64_t flush_looks_ = 0;  // entries visited by flushes
  Stats counts_;              // counters kept as events occur; stats() fills in the rest
  Sweep sweep_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_TABLE_H_
