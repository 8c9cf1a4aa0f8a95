#include "server/durability/recovery.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "index/layout/test_hooks.h"
#include "server/durability/entry_effects.h"
#include "server/durability/restorer.h"
#include "server/durability/session_bytes.h"
#include "server/wal/checkpoint_reader.h"
#include "server/wal/format/checkpoint_format.h"
#include "server/wal/format/entries.h"
#include "server/wal/format/format.h"
#include "xxhash.h"

namespace osprey::server {
namespace {

// Stands for a key. Two keys of one digest do not occur: 128 bits, and a random seed.
using Digest = std::pair<uint64_t, uint64_t>;

// What pass 1 finds: what the log makes of each key. What came before counts for nothing, and neither
// does the checkpoint's item, unless the checkpoint has that value.
struct LogKeys {
  struct Last {
    uint64_t entry = 0;      // entries are counted from 0 on, in the order of the log
    uint64_t version = 0;    // 0: it is deleted
    uint64_t expiry_ns = 0;  // the last one
    bool is_loaded = false;  // from the checkpoint: the value is not in the log
  };
  uint64_t seed = 0;
  absl::flat_hash_map<Digest, Last> last;
  // By entry: whether pass 2 makes this put, and whether its expiry is that in `last`. So pass 2 need
  // not look for most keys.
  std::vector<bool> is_made;
  std::vector<bool> has_later_expiry;
  // The new life's clock starts here, or later. What had expired may have given its room to other
  // keys, so it is not put.
  uint64_t clock_ns = 0;

  Digest Of(absl::string_view key) const {
    const XXH128_hash_t hash = XXH3_128bits_withSeed(key.data(), key.size(), seed);
    return {hash.low64, hash.high64};
  }
  bool HasExpired(uint64_t expiry_ns) const { return expiry_ns != 0 && expiry_ns <= clock_ns; }
};

bool IsAbsorbed(const wal::Entry& entry, const std::vector<wal::PiecePlace>& pieces) {
  if (index::IsMutant(index::Mutant::kPiecesAbsorbed)) return !entry.pieces.empty();
  return !entry.pieces.empty() && pieces.empty();
}

// Of items, keys and headers included.
struct Lengths {
  uint64_t bytes_min = 0;
  uint64_t bytes_max = ~uint64_t{0};
  bool Have(uint64_t key_bytes, uint64_t value_bytes) const {
    const uint64_t bytes = index::ItemBytes(key_bytes, value_bytes);
    return bytes >= bytes_min && bytes <= bytes_max;
  }
};

// --- Entries -----------------------------------------------------------------

absl::Status CheckEntry(const wal::DataDirectory& directory, const wal::LogRecord& record,
                        const wal::Entry& entry) {
  const std::string name = wal::SegmentName(record.place.segment);
  switch (entry.kind) {
    case wal::EntryKind::kPut:
    case wal::EntryKind::kDelete:
    case wal::EntryKind::kExpire:
    case wal::EntryKind::kSessionBegin:
    case wal::EntryKind::kSessionEnd:
    case wal::EntryKind::kFlushBound: {
      const std::string wrong = WhyImpossible(entry);
      if (wrong.empty()) return absl::OkStatus();
      return wal::DamageError(directory.files(), name, record.place.offset, wrong);
    }
    case wal::EntryKind::kExtend:
    case wal::EntryKind::kTerm:
    case wal::EntryKind::kShardReset:
    case wal::EntryKind::kTimeMark:
      break;
  }
  return absl::FailedPreconditionError(
      absl::StrCat(directory.files().PathOf(name), ", offset ", record.place.offset,
                   ": an entry of kind ", static_cast<int>(entry.kind),
                   ", which this version never writes; start the version that wrote it"));
}

// --- Pass 1 ------------------------------------------------------------------

class KeyCollector final : public wal::ReplayVisitor {
 public:
  KeyCollector(const wal::DataDirectory& directory, Restorer& restorer, LogKeys& keys)
      : directory_(directory), restorer_(restorer), keys_(keys) {}

  absl::Status OnGroup(const wal::LogRecord& record, const wal::Group& group,
                       const std::vector<std::vector<wal::PiecePlace>>& pieces) override {
    if (absl::Status status = restorer_.CheckStop(); !status.ok()) return status;
    Prefetch(group);
    for (size_t i = 0; i < group.entries.size(); ++i) {
      const wal::Entry& entry = group.entries[i];
      const uint64_t number = keys_.is_made.size();
      keys_.is_made.push_back(false);
      keys_.has_later_expiry.push_back(false);
      absl::Status status = CheckEntry(directory_, record, entry);
      if (!status.ok()) return status;
      // The bound of a flush is what its client sent, and no version of ours.
      if (!entry.key.empty()) restorer_.NoteVersion(entry.version);
      if (entry.kind == wal::EntryKind::kPut)
        NotePut(entry, number, IsAbsorbed(entry, pieces[i]), keys_.last[digests_[i]]);
      if (entry.kind == wal::EntryKind::kDelete) NoteDelete(entry, number, keys_.last[digests_[i]]);
      if (entry.kind == wal::EntryKind::kExpire) NoteExpire(entry, number, digests_[i]);
    }
    restorer_.NoteRead(record.header.bytes());
    return absl::OkStatus();
  }

 private:
  static bool ChangesKey(const wal::Entry& entry) {
    return entry.kind == wal::EntryKind::kPut || entry.kind == wal::EntryKind::kDelete ||
           entry.kind == wal::EntryKind::kExpire;
  }
  // Of all entries together, so that they wait for memory once.
  void Prefetch(const wal::Group& group) {
    digests_.resize(group.entries.size());
    for (size_t i = 0; i < group.entries.size(); ++i) {
      if (!ChangesKey(group.entries[i])) continue;
      digests_[i] = keys_.Of(group.entries[i].key);
      keys_.last.prefetch(digests_[i]);
    }
  }

  void NotePut(const wal::Entry& entry, uint64_t number, bool is_absorbed, LogKeys::Last& last) {
    if (last.version != 0) keys_.is_made[last.entry] = false;
    last = {number, entry.version, entry.expiry, is_absorbed};
    keys_.is_made[number] = !is_absorbed;
  }
  void NoteDelete(const wal::Entry& entry, uint64_t number, LogKeys::Last& last) {
    // It deleted an earlier value, while this put was logged and not made yet.
    if (last.version > entry.version) return;
    if (last.version != 0) keys_.is_made[last.entry] = false;
    last = {number, 0, 0, false};
  }
  // The value may be the checkpoint's.
  void NoteExpire(const wal::Entry& entry, uint64_t number, const Digest& digest) {
    const auto [found, is_first] =
        keys_.last.try_emplace(digest, LogKeys::Last{number, entry.version, 0, true});
    LogKeys::Last& last = found->second;
    if (last.version != entry.version) return;
    last.expiry_ns = entry.expiry;
    keys_.has_later_expiry[last.entry] = true;
  }

  const wal::DataDirectory& directory_;
  Restorer& restorer_;
  LogKeys& keys_;
  std::vector<Digest> digests_;  // of a group's keys
};

// --- The checkpoint ----------------------------------------------------------

class PartLoader final : public wal::PartVisitor {
 public:
  PartLoader(const wal::DataDirectory& directory, uint32_t part, const LogKeys& keys,
             const Lengths& lengths, Restorer& restorer, SessionImages& images,
             std::mutex& images_mutex)
      : directory_(directory),
        part_(part),
        keys_(keys),
        lengths_(lengths),
        restorer_(restorer),
        images_(images),
        images_mutex_(images_mutex) {}

  absl::Status OnItem(const wal::CheckpointItem& item, wal::Bytes value) override {
    if (absl::Status status = restorer_.CheckStop(); !status.ok()) return status;
    ++items_;
    NoteRead(sizeof(wal::ItemHeader) + item.key.size() + value.size());
    const absl::string_view wrong = WhyImpossible(item.version, item.expiry);
    if (!wrong.empty()) return Damage(absl::StrCat("item ", items_, ": ", wrong));
    item_ = {item.key, value, item.version, item.expiry, item.lives};
    if (item.depth > index::kDirectoryDepthMax || item.depth_min > item.depth)
      return Damage(absl::StrCat("item ", items_, ": a segment has an impossible depth"));
    restorer_.GrowFor(item.key, {item.depth, item.depth_min});
    const auto last = keys_.last.find(keys_.Of(item.key));
    if (last != keys_.last.end()) {
      skipped_ = !last->second.is_loaded;
      if (item.version == last->second.version) item_.expiry_ns = last->second.expiry_ns;
    } else {
      skipped_ = false;
    }
    skipped_ |= keys_.HasExpired(item_.expiry_ns);
    skipped_ |= !lengths_.Have(item.key.size(), item.value_length);
    value_left_ = item.value_length - value.size();
    if (value_left_ == 0) return skipped_ ? absl::OkStatus() : restorer_.Put(item_);
    if (skipped_) return absl::OkStatus();
    key_.assign(item.key.data(), item.key.size());
    value_.clear();
    value_.reserve(item.value_length);
    absl::StrAppend(&value_, wal::TextOf(value));
    return absl::OkStatus();
  }

  absl::Status OnValue(wal::Bytes bytes) override {
    NoteRead(bytes.size());
    value_left_ -= bytes.size();
    if (skipped_) return absl::OkStatus();
    absl::StrAppend(&value_, wal::TextOf(bytes));
    if (value_left_ > 0) return absl::OkStatus();
    item_.key = key_;
    item_.value = wal::BytesOfText(value_);
    absl::Status status = restorer_.Put(item_);
    value_ = std::string();  // it may be long
    return status;
  }

  absl::Status OnSession(wal::Bytes session) override {
    SessionImage image;
    const std::string wrong = DecodeSession(session, image);
    if (!wrong.empty()) return Damage(wrong);
    const std::lock_guard<std::mutex> lock(images_mutex_);
    const uint64_t id = image.id;
    if (!images_.emplace(id, std::move(image)).second)
      return Damage(absl::StrCat("session ", id, " occurs twice"));
    return absl::OkStatus();
  }

  absl::Status OnShard(const wal::ShardState&) override {
    return absl::FailedPreconditionError(
        absl::StrCat(directory_.files().PathOf(Name()),
                     ": it has the state of a shard, which this version never writes; start the "
                     "version that wrote it"));
  }

 private:
  std::string Name() const { return wal::PartName(directory_.current().header.checkpoint, part_); }
  // Of a block whose checksum is right.
  absl::Status Damage(absl::string_view why) const {
    return wal::DamageError(directory_.files(), Name(), 0, why);
  }
  // The threads share the counter, so it is changed rarely.
  void NoteRead(uint64_t bytes) {
    constexpr uint64_t kUncountedMax = 256 << 10;
    uncounted_ += bytes;
    if (uncounted_ > kUncountedMax) restorer_.NoteRead(std::exchange(uncounted_, 0));
  }

  const wal::DataDirectory& directory_;
  const uint32_t part_;
  const LogKeys& keys_;
  const Lengths lengths_;
  Restorer& restorer_;
  SessionImages& images_;
  std::mutex& images_mutex_;
  uint64_t items_ = 0;
  uint64_t uncounted_ = 0;
  Restorer::Item item_;
  bool skipped_ = false;
  uint64_t value_left_ = 0;  // bytes of item_ that are not here yet
  std::string key_;          // of item_, if its value comes in parts
  std::string value_;
};

absl::Status LoadCheckpoint(const wal::DataDirectory& directory, const RecoveryOptions& options,
                            const LogKeys& keys, const Lengths& lengths, Restorer& restorer,
                            SessionImages& images) {
  std::mutex images_mutex;
  std::vector<std::unique_ptr<PartLoader>> loaders;
  for (uint32_t part = 0; part < directory.current().parts.size(); ++part) {
    loaders.push_back(std::make_unique<PartLoader>(directory, part, keys, lengths, restorer, images,
                                                   images_mutex));
  }
  absl::Status status =
      wal::ReadCheckpoint(directory, std::max(options.threads, 1u),
                          [&](uint32_t part) -> wal::PartVisitor& { return *loaders[part]; });
  return status;
}

// --- Pass 2 ------------------------------------------------------------------

class EntryApplier final : public wal::ReplayVisitor {
 public:
  EntryApplier(const wal::DataDirectory& directory, const LogKeys& keys, const Lengths& lengths,
               Restorer& restorer, SessionImages& images)
      : directory_(directory),
        keys_(keys),
        lengths_(lengths),
        restorer_(restorer),
        images_(images) {}

  absl::Status OnGroup(const wal::LogRecord& record, const wal::Group& group,
                       const std::vector<std::vector<wal::PiecePlace>>& pieces) override {
    if (absl::Status status = restorer_.CheckStop(); !status.ok()) return status;
    for (size_t i = 0; i < group.entries.size(); ++i) {
      if (keys_.is_made[entries_ + i]) restorer_.Prefetch(group.entries[i].key);
    }
    for (size_t i = 0; i < group.entries.size(); ++i) {
      const wal::Entry& entry = group.entries[i];
      const uint64_t number = entries_++;
      NoteClient(entry, images_);
      if (!keys_.is_made[number]) continue;
      Restorer::Item item{entry.key, entry.value, entry.version, entry.expiry, 0};
      if (keys_.has_later_expiry[number])
        item.expiry_ns = keys_.last.find(keys_.Of(entry.key))->second.expiry_ns;
      if (keys_.HasExpired(item.expiry_ns)) continue;
      if (!lengths_.Have(entry.key.size(), LengthOf(entry, pieces[i]))) continue;
      absl::Status status = Put(entry, pieces[i], item);
      if (!status.ok()) return status;
    }
    restorer_.NoteRead(record.header.bytes());
    return absl::OkStatus();
  }

 private:
  static uint64_t LengthOf(const wal::Entry& entry, const std::vector<wal::PiecePlace>& pieces) {
    uint64_t bytes = entry.value.size();
    for (const wal::PiecePlace& piece : pieces) bytes += piece.length;
    return bytes;
  }
  absl::Status Put(const wal::Entry& entry, const std::vector<wal::PiecePlace>& pieces,
                   Restorer::Item& item) {
    if (pieces.empty()) return restorer_.Put(item);
    const absl::StatusOr<std::string> value = wal::ReadValue(directory_, entry, pieces);
    if (!value.ok()) return value.status();
    restorer_.NoteRead(value->size());
    item.value = wal::BytesOfText(*value);
    return restorer_.Put(item);
  }

  const wal::DataDirectory& directory_;
  const LogKeys& keys_;
  const Lengths lengths_;
  Restorer& restorer_;
  SessionImages& images_;
  uint64_t entries_ = 0;
};

// --- All passes ----------------------------------------------------------------

struct Loading {
  const wal::DataDirectory& directory;
  const RecoveryOptions& options;
  const LogKeys& keys;
  Restorer& restorer;
  SessionImages& images;
};

// Items that take whole pages come while free memory is in one piece. Of the others the longer ones
// come first: a short item fits into a long chunk (index/space/item_space.h).
constexpr Lengths kLongestFirst[] = {{(64 << 10) + 1, ~uint64_t{0}},
                                     {(8 << 10) + 1, 64 << 10},
                                     {(4 << 10) + 1, 8 << 10},
                                     {(2 << 10) + 1, 4 << 10},
                                     {(1 << 10) + 1, 2 << 10},
                                     {512 + 1, 1 << 10},
                                     {0, 512}};

// Reads checkpoint and log once for each of `parts`, and puts the items of such lengths. `read` is
// the number of bytes of files that were read before. `end` is that of the log; REQUIRES: of pass 1,
// or of an earlier call.
absl::Status Load(const Loading& loading, absl::Span<const Lengths> parts, uint64_t read,
                  wal::LogEnd& end) {
  const auto& [directory, options, keys, restorer, images] = loading;
  uint64_t bytes = end.bytes;
  for (const wal::PartSummary& part : directory.current().parts) bytes += part.length;
  const uint64_t total = read + parts.size() * bytes;
  for (const Lengths& lengths : parts) {
    images.clear();  // each reading finds all sessions
    restorer.BeginCheckpoint();
    restorer.SetTotal(read, total);
    absl::Status status = LoadCheckpoint(directory, options, keys, lengths, restorer, images);
    // Of several threads' errors, the first.
    if (!restorer.error().ok()) return restorer.error();
    if (!status.ok()) return status;
    restorer.EndCheckpoint();
    read += bytes;
    restorer.SetTotal(read - end.bytes, total);
    EntryApplier applier(directory, keys, lengths, restorer, images);
    absl::StatusOr<wal::LogEnd> again = wal::Replay(directory, applier);
    if (!again.ok()) return again.status();
    end = *std::move(again);
  }
  return absl::OkStatus();
}

absl::Status LoadAgain(const Loading& loading, Tables& tables, wal::LogEnd& end) {
  Restorer& restorer = loading.restorer;
  if (loading.options.log) {
    loading.options.log(absl::StrCat(
        "memory is too small for the keys in the order of the files; loading again, longest values "
        "first, which reads the files ",
        std::size(kLongestFirst), " times"));
  }
  restorer.Restart();
  const auto between = [&] {
    restorer.NoteRead(0);
    return restorer.CheckStop();
  };
  if (absl::Status status = tables.Clear(between); !status.ok()) return status;
  return Load(loading, kLongestFirst, restorer.read(), end);
}

}  // namespace

// The mark is ahead of that clock, so it counts only if the exact time is unknown.
uint64_t ClockAtEnd(const wal::LogEnd& end) {
  if (index::IsMutant(index::Mutant::kTimeMarkForgotten)) return 0;
  return end.clean ? end.clean_time : end.time_mark;
}

absl::StatusOr<Recovered> Recover(const wal::DataDirectory& directory, Tables& tables,
                                  const RecoveryOptions& options) {
  assert(tables.ServerTime() == absl::UnixEpoch());
  const auto begin = std::chrono::steady_clock::now();
  Restorer restorer(tables, options);
  LogKeys keys;
  keys.seed = directory.Draw();
  KeyCollector collector(directory, restorer, keys);
  absl::StatusOr<wal::LogEnd> end = wal::Replay(directory, collector);
  if (!end.ok()) return end.status();
  keys.clock_ns = std::max(ClockAtEnd(*end), static_cast<uint64_t>(absl::ToUnixNanos(options.now)));

  SessionImages images;
  const Loading loading{directory, options, keys, restorer, images};
  absl::Status status = Load(loading, {Lengths()}, end->bytes, *end);
  // The order of arrival left gaps between long values. In the other order there are none.
  if (absl::IsResourceExhausted(status) && !index::IsVersionsUsedUp(status)) {
    const absl::Status again = LoadAgain(loading, tables, *end);
    // Of two refusals the first has the better estimate of what will do.
    if (!absl::IsResourceExhausted(again)) status = again;
  }
  if (!status.ok()) return status;

  Recovered recovered;
  recovered.end = *std::move(end);
  for (auto& [id, image] : images) {
    ForgetResults(image);
    if (index::IsMutant(index::Mutant::kResultsNotRestored)) image.results.clear();
    recovered.sessions.push_back(std::move(image));
  }
  const index::TableStats stats = tables.stats();
  recovered.items = stats.keys;
  recovered.bytes = stats.key_bytes + stats.value_bytes;
  recovered.evictions = stats.evictions;
  recovered.version_max = restorer.version_max();
  recovered.took = absl::FromChrono(std::chrono::steady_clock::now() - begin);
  return recovered;
}

}  // namespace osprey::server
