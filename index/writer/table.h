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

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
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
#include "index/space/update_room.h"
#include "index/writer/flusher.h"
#include "index/writer/grower.h"
#include "index/writer/keys/changes.h"
#include "index/writer/keys/evictor.h"
#include "index/writer/keys/expirer.h"
#include "index/writer/keys/item_room.h"
#include "index/writer/keys/keys.h"
#include "index/writer/keys/placement.h"
#include "index/writer/keys/writes.h"
#include "index/writer/line_walk.h"
#include "index/writer/merger.h"
#include "index/writer/reservation.h"
#include "index/writer/segments.h"

namespace osprey::index {

// It has a method for each kind of write and each kind of step, so many are its interface. keys.h
// draws the classes behind it.
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
    return Put(keys_.Hashed(key), value, condition, now, lifetime);
  }
  // For a key whose hash is known: HashKey of it, with TableOptions::hash_seed. `hint`: of
  // Prefetch, for this key.
  WriteResult Put(const HashedKey& hashed, absl::Span<const std::byte> value,
                  const Condition& condition, absl::Time now, const Lifetime& lifetime = {},
                  const SlotHint& hint = {});
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

  // --- Writes in two steps, between which a log makes them durable. They are not reported.
  //
  //   forecast = Foresee(…)   no refusal?
  //   Prepare(…)              no refusal? log the write with NextVersion() and the forecast's expiry
  //   Apply…(…)               some time later, with the version and expiry that were logged
  //
  // The second step cannot fail. A key that expires in between, or is evicted, does not change that.
  struct Forecast {
    absl::optional<WriteResult> refusal;  // the write would be refused so
    bool present = false;
    uint64_t present_version = 0;  // of a present key
    uint64_t expiry_ns = 0;        // that it would get with `lifetime`
  };
  Forecast Foresee(const HashedKey& hashed, Condition condition, Lifetime lifetime, absl::Time now);
  // What Prepare prepares.
  struct Intent {
    enum class Kind { kPut, kPublish, kExpire };
    Kind kind = Kind::kPut;
    absl::Span<const std::byte> value;  // kPut
    // kPut, kPublish: the write's. Success under kVersionIs says that the key was there.
    Condition condition;
  };
  // Reserves what the write needs until it is applied, evicting other keys if it must. If the write
  // extends the key's life, its item is hidden until then (R8): readers find it torn, READ again at
  // most kReadAttemptsMax times, and ask the server (AnswersLater). Deletes need none of this.
  // Returns a refusal, and then nothing is reserved: RESOURCE_EXHAUSTED; NOT_FOUND (the key has
  // expired since Foresee); ABORTED (so that the forecast is void: Foresee again, which happens at
  // most once). REQUIRES: Foresee refused nothing; no write of the key is prepared.
  absl::optional<WriteResult> Prepare(const HashedKey& hashed, const Intent& intent,
                                      const Forecast& forecast, absl::Time now);
  // REQUIRES: Foresee refused nothing.
  uint64_t NextVersion() { return keys_.writer.NextCasVersion(); }
  // Make the write that was prepared. OK, with version, slot and expiry of the write. If its value has
  // expired by then, or the key of an Expire or Delete is gone, the write took effect just before
  // that. REQUIRES: Prepare refused nothing, and `value` has the length that it was given.
  WriteResult ApplyPut(const HashedKey& hashed, absl::Span<const std::byte> value, uint64_t version,
                       uint64_t expiry_ns, absl::Time now);
  WriteResult ApplyPublish(Reservation reservation, uint64_t version, uint64_t expiry_ns,
                           absl::Time now);
  WriteResult ApplyExpire(const HashedKey& hashed, uint64_t version, uint64_t expiry_ns,
                          absl::Time now);
  // REQUIRES: no write of the key is prepared.
  WriteResult ApplyDelete(const HashedKey& hashed, uint64_t version, absl::Time now);
  // Undoes Prepare for all writes that it has prepared and that were not applied: what they reserved is
  // free, and hidden keys are found as before. Versions that were given out stay used, and evicted keys
  // stay away. Reservations are their owners' to end. REQUIRES: none of these writes is applied later;
  // nothing counts that clients READ, since the server serves nothing.
  void DropPrepared();
  // Whether a GET of the key has no answer until the write that hides it is applied: its old expiry
  // has passed, or its value has more than `bytes_max` bytes, so that the reader would READ it.
  bool AnswersLater(const HashedKey& hashed, uint64_t bytes_max) const;

  // --- Changes of an earlier life, in the order in which they were reported. They are not reported
  // again. REQUIRES: no reader, and the clock stands still at 0, so that nothing expires.
  // The key has this value and version, whatever it had before. `expiry_ns`: 0: never. Errors: as
  // Put's.
  WriteResult Restore(const HashedKey& hashed, ByteSpan value, uint64_t version, uint64_t expiry_ns,
                      absl::Time now);
  WriteResult Restore(absl::string_view key, ByteSpan value, uint64_t version, uint64_t expiry_ns,
                      absl::Time now) {
    return Restore(keys_.Hashed(key), value, version, expiry_ns, now);
  }
  // The depth that every segment has, at least, once so many keys were put.
  static uint32_t DepthOf(uint64_t keys) { return Grower::DepthOf(keys); }
  // Lets the index grow to what it was where a key of that hash is, or until memory is full. Keys that are
  // restored in the order of a walk need that before each.
  void RestoreDepths(KeyHash hash, const SegmentDepths& depths, absl::Time now) {
    grower_.GrowTo(hash, depths, now);
  }

  // --- A replica: another server decides the writes, and they come here in its order. Not reported.
  //
  //   Hold…(…)   no refusal? Some time later, in the order of the holds:
  //   Make…(…)   with the version and expiry that were decided. It cannot fail.
  //
  // Several writes of a key may be held. Nothing is evicted, and no key ends because it has expired.
  // Whether the table evicts keys, and ends expired ones, by itself. At first it does. If not, no key
  // counts as expired here. REQUIRES: no write is prepared; before true: none is held.
  void SetDecides(bool decides) { keys_.decides = decides; }
  bool decides() const { return keys_.decides; }
  // What a put needs: an item, and a place in the index if it `is_new`: the key may be absent when the
  // put is made.
  // Errors: RESOURCE_EXHAUSTED, and then nothing is held.
  absl::StatusOr<HeldWrite> HoldPut(const HashedKey& hashed, uint64_t value_length, bool is_new,
                                    absl::Time now);
  // What an expiry needs. `expiry_ns`: 0: never. Errors: likewise.
  absl::StatusOr<HeldWrite> HoldExpire(const HashedKey& hashed, uint64_t expiry_ns, absl::Time now);
  // A deletion needs versions of records alone. Errors: RESOURCE_EXHAUSTED: they are used up.
  absl::Status CheckHolds() const;
  // It will not be made.
  void DropHeld(const HeldWrite& held);
  // REQUIRES: `value` has the length that was held.
  void MakePut(const HeldWrite& held, const HashedKey& hashed, ByteSpan value, uint64_t version,
               uint64_t expiry_ns, absl::Time now);
  // The same of a value that comes in parts. Its item is held first, before it is known what the key will
  // have when the put is made.
  absl::StatusOr<HeldValue> HoldValue(const HashedKey& hashed, uint64_t value_length,
                                      absl::Time now);
  void DropHeldValue(HeldValue held);
  // REQUIRES: the value is complete.
  void MakeValuePut(HeldValue held, const HashedKey& hashed, uint64_t version, uint64_t expiry_ns,
                    absl::Time now);
  // Of the value with that version. False: the key has none such, so nothing was done.
  bool MakeExpire(const HeldWrite& held, const HashedKey& hashed, uint64_t version,
                  uint64_t expiry_ns, absl::Time now);
  // Of a value up to that version. False: likewise.
  bool MakeDelete(const HashedKey& hashed, uint64_t version, absl::Time now);
  // The version of the key's value, expired or not; 0: it is absent.
  uint64_t HeldVersion(const HashedKey& hashed) const;

  // Ends expired keys: one bounded step, if one is due. True if there is more to do now.
  bool SweepStep(absl::Time now) { return expirer_.SweepStep(now); }
  // The latest time of the next SweepStep, whatever happens until then; InfiniteFuture if no key
  // expires.
  absl::Time next_sweep() const { return expirer_.next_sweep(); }
  // The same of any step: also when dead space may be freed.
  absl::Time next_step() const {
    return std::min(next_sweep(), keys_.items.space().quarantine().next_due());
  }

  absl::Time ServerTime() const { return keys_.options.clock(); }

  // A lock word for callers that let several threads use the table, one at a time: 0 at first, and
  // unused by the table. It is on the cache line that each write changes anyway. So a core fetches
  // one line from another core, and not two.
  std::atomic<uint32_t>& lock_word() { return keys_.writer.hot().lock_word; }

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
  // Errors: NOT_FOUND. A key that a prepared write hides is present, even if its expiry has passed: a
  // checkpoint needs it. For a GET see AnswersLater.
  absl::StatusOr<View> Find(absl::string_view key,
                            ExpiredKeys expired = ExpiredKeys::kAbsent) const;

  // --- Growth, and its reverse.
  // Makes one bounded step towards an index that fits its keys. It splits one segment (some 3,300
  // keys; more when it had to wait) and makes small items inline that now fit. Or it writes
  // kDirectoryPagesPerStep pages of a directory that doubles. Or, when many keys have gone, it merges
  // two segments or halves the directory. True if there is more to do now; false also if there is no
  // space to grow. Between steps the table is consistent.
  bool GrowStep(absl::Time now);

  // Whether growth is due, which writes wait for. GrowStep may still find no space for it.
  bool GrowthWanted() const { return grower_.Wanted(); }

  // --- Eviction. Only with TableOptions::evict.
  // Evicts some keys if little space is left: at most 256. True if there is more to do now.
  bool EvictStep(absl::Time now) { return evictor_.Step(now); }
  bool evicts() const { return keys_.options.evict; }
  uint64_t evictions() const { return keys_.counts.evictions; }  // since the start
  // The work since the start besides the writes themselves, in units of about a microsecond. It
  // counts items moved or evicted for space, lines visited for that, expired keys, and items
  // visited by flushes.
  uint64_t effort() const {
    constexpr uint64_t kBytesPerUnit = 8192;  // copied and hashed
    constexpr uint64_t kLooksPerUnit = 8;
    constexpr uint64_t kPassedPerUnit = 32;
    return compactor_.stats().moved_items + compactor_.stats().moved_bytes / kBytesPerUnit +
           keys_.counts.evictions + keys_.counts.expiries +
           evictor_.lines_looked() / kPassedPerUnit + flusher_.looks() / kLooksPerUnit;
  }
  // Whether a Reserve of that size that found no space may succeed later. Without eviction: enough
  // is free, in pieces, or the space for updates is in use. With eviction, where each attempt and
  // each step frees more: the value fits beside the data that stays longer than leases and
  // reservations.
  bool MayMakeRoom(absl::string_view key, uint64_t value_length) const {
    return item_room_.MayMakeRoom(key, value_length);
  }
  // Takes clients' access hints (access_hint.h): these keys stay longer. The hints may have any
  // content; the partition is ignored.
  void TakeHints(absl::Span<const uint64_t> hints) { evictor_.TakeHints(hints); }
  // Marks the key as in use. False if it is absent.
  bool Touch(absl::string_view key) { return evictor_.Touch(key); }

  // --- Flush.
  // Deletes up to `keys_max` (at most kFlushKeysMax) keys whose version is at most `version_bound`,
  // from `cursor` on; 0 is the beginning. A client that continues until the returned cursor is 0
  // has deleted every such key, despite writes, deletes and splits meanwhile.
  using FlushResult = Flusher::Result;
  // Errors: RESOURCE_EXHAUSTED (the versions are used up).
  absl::StatusOr<FlushResult> FlushStep(uint64_t cursor, uint64_t version_bound, uint64_t keys_max,
                                        absl::Time now);
  // The same in two steps, between which the caller logs the deletions: the keys, in the order of
  // the walk, and the cursor behind them. A line of the index is listed whole, with its chain.
  Flusher::List ListFlush(uint64_t cursor, uint64_t version_bound, uint64_t keys_max) {
    return flusher_.ListStep(cursor, version_bound, keys_max);
  }
  // Deletes those that still have their version. Not reported.
  void FlushListed(absl::Span<const Flusher::Listed> keys, absl::Time now);

  // Visits keys from `cursor` on, 0 being the beginning, and returns the cursor of the next step; 0:
  // the end. A step ends after some `bytes_max` bytes of keys and values (kWalkedValueBytesMax), or
  // kFlushLinesMax lines. A walk to the end visits at least once each key that is present
  // throughout, despite writes, splits and merges between its steps. It may visit a key again.
  uint64_t Walk(uint64_t cursor, uint64_t bytes_max,
                absl::FunctionRef<void(const WalkedKey&)> visit,
                ExpiredKeys expired = ExpiredKeys::kAbsent) const {
    return WalkKeys(keys_, expirer_, segments_, cursor, bytes_max, expired, visit);
  }

  // Prefetches the memory that a call for `key` reads first. A batch of calls with prefetches waits
  // for memory once, instead of once for each call. By any thread at any time. `hash`: as Put's.
  SlotHint Prefetch(KeyHash hash) const { return keys_.Prefetch(hash); }
  // Prefetches the memory that the call reads next: the key's item, if the table has more items
  // than inline keys. For use when the first memory has arrived. Only by the thread that may write.
  // `hint`: of Prefetch.
  void PrefetchItem(KeyHash hash, SlotHint& hint) const { keys_.PrefetchItem(hash, hint); }
  // Prefetches the cache line that each write changes.
  void PrefetchHot() const { keys_.writer.PrefetchHot(); }

  // Whether one of the steps (GrowStep, SweepStep, EvictStep, CompactStep) may have work now.
  bool StepWanted(absl::Time now);

  // Keeps the space of the item at `slot` from reuse until `until`, even if it dies (a reader was
  // sent there).
  void Lease(uint64_t slot, absl::Time until);

  using Stats = TableStats;
  Stats stats() const;

 private:
  Table(absl::Span<std::byte> region, const TableOptions& options);

  WriteResult PutUnreported(const HashedKey& hashed, absl::Span<const std::byte> value,
                            const Condition& condition, absl::Time now, const Lifetime& lifetime,
                            const SlotHint& hint);
  WriteResult DeleteUnreported(absl::string_view key, Condition condition, absl::Time now);
  WriteResult PublishUnreported(Reservation reservation, Condition condition, absl::Time now,
                                Lifetime lifetime);
  WriteResult ExpireUnreported(absl::string_view key, Condition condition, Lifetime lifetime,
                               absl::Time now);
  bool IsToReport(const WriteResult& result) const {
    return keys_.options.changes != nullptr && result.status.ok() &&
           keys_.writer.hot().given_version == 0;
  }
  absl::optional<WriteResult> Refuse(const Condition& condition, const Location& at) const;
  WriteResult PublishItem(const Location& at, const Sealing& sealing, uint64_t version,
                          absl::Time now);
  WriteResult NoPlaceAt(const Location& at);
  bool InsertItem(const Location& at, uint64_t slot, const Sealing& sealing, absl::Time now);
  static bool MayRewriteInline(const Location& at, absl::string_view key, ByteSpan value,
                               const Lifetime& lifetime);
  WriteResult RewriteInline(const Location& at, ByteSpan value);
  bool MayRewrite(const Location& at, absl::string_view key, ByteSpan value,
                  uint64_t expiry_ns) const;
  WriteResult RewriteItem(const Location& at, absl::string_view key, ByteSpan value,
                          uint64_t expiry_ns);
  WriteResult RewriteForWant(const Location& at, absl::string_view key, ByteSpan value,
                             const Condition& condition, uint64_t expiry_ns, absl::Time now);
  WriteResult PublishFilled(Reservation reservation, uint64_t data_hash, const Location& at,
                            uint64_t expiry_ns, absl::Time now);
  WriteResult RewriteHidden(const Location& at, absl::string_view key, ByteSpan value,
                            uint64_t data_hash, uint64_t expiry_ns);
  WriteResult RenewHidden(const Location& at, const ItemHeader& hidden, uint64_t expiry_ns);

  // While it lives, writes have this version, and what they set has this expiry (0: never). They are
  // not reported. REQUIRES: `version` is not 0; one at a time.
  class [[nodiscard]] GivenVersion {
   public:
    GivenVersion(Table& table, uint64_t version, uint64_t expiry_ns)
        : hot_(table.keys_.writer.hot()) {
      assert(version != 0 && hot_.given_version == 0);
      hot_.given_version = version;
      hot_.given_expiry_ns = expiry_ns;
    }
    ~GivenVersion() { hot_.given_version = 0; }
    GivenVersion(const GivenVersion&) = delete;
    GivenVersion& operator=(const GivenVersion&) = delete;

   private:
    RegionWriter::Hot& hot_;
  };
  bool PrepareItem(const HashedKey& hashed, const Intent& intent, uint64_t expiry_ns,
                   PendingWrite& pending, Location& at, absl::Time now);
  bool NeedsNoItem(const HashedKey& hashed, const Intent& intent, uint64_t expiry_ns,
                   const Location& at) const;
  bool MayBeNew(const Intent& intent, uint64_t expiry_ns, const Location& at,
                const PendingWrite& pending) const;
  absl::optional<WriteResult> PreparePlace(const Location& at, PendingWrite& pending);
  absl::optional<WriteResult> PrepareHidden(const Intent& intent, uint64_t expiry_ns,
                                            const Location& at, PendingWrite& pending,
                                            absl::Time now);
  PendingWrite TakePrepared(KeyHash hash);
  Location LocatePrepared(const HashedKey& hashed, const PendingWrite& pending, absl::Time now);
  WriteResult EvictedBefore(absl::string_view key, uint64_t version, uint64_t expiry_ns);
  WriteResult EndedBefore(absl::string_view key, const Location& at, uint64_t version,
                          uint64_t expiry_ns, absl::Time now);
  WriteResult MakeDecided(const HashedKey& hashed, const Location& at, ByteSpan value,
                          uint64_t version, uint64_t expiry_ns, PendingWrite& pending,
                          absl::Time now);
  WriteResult RenewOutOfLine(const Location& at, uint64_t item, uint64_t version,
                             uint64_t expiry_ns, absl::Time now);
  bool HasPlaceAt(const Location& at) const;
  absl::Status HoldPlace(const HashedKey& hashed, absl::Time now);
  void DropPlace(KeyHash hash);
  void PutInlineAtLast(const HashedKey& hashed, ByteSpan value, uint64_t version, absl::Time now);

  WriteResult WithUpdateRoom(absl::FunctionRef<WriteResult()> write);
  WriteResult EndMeanwhile(const Location& at, absl::Time now);
  WriteResult MoveOutOfLine(absl::string_view key, const Condition& condition, uint64_t expiry_ns,
                            absl::Time now);

  Keys keys_;
  UpdateRoom update_room_;
  Placement placement_;
  Expirer expirer_;
  Compactor compactor_;
  Reservations reservations_;
  Evictor evictor_;
  ItemRoom item_room_;
  Segments segments_;
  Grower grower_;
  Merger merger_;
  Flusher flusher_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_TABLE_H_
