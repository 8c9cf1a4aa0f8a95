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

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "index/layout/test_hooks.h"
#include "server/durability/entry_effects.h"
#include "server/durability/log_keys.h"
#include "server/durability/long_value_loader.h"
#include "server/durability/restorer.h"
#include "server/durability/session_bytes.h"
#include "server/wal/checkpoint_reader.h"
#include "server/wal/format/checkpoint_format.h"
#include "server/wal/format/entries.h"
#include "server/wal/format/format.h"

namespace osprey::server {
namespace {

// What pass 1 finds.
struct LogContent {
  explicit LogContent(uint64_t seed) : keys(seed) {}
  bool HasExpired(uint64_t expiry_ns) const { return expiry_ns != 0 && expiry_ns <= clock_ns; }

  LogKeys keys;
  // By entry: whether pass 2 makes this put, and whether its expiry is that in `keys`. So pass 2 need
  // not look for most keys.
  std::vector<bool> is_made;
  std::vector<bool> has_later_expiry;
  // The new life's clock starts here, or later. What had expired may have given its room to other
  // keys, so it is not put.
  uint64_t clock_ns = 0;
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
  switch (entry.kind) {
    case wal::EntryKind::kPut:
    case wal::EntryKind::kDelete:
    case wal::EntryKind::kExpire:
    case wal::EntryKind::kSessionBegin:
    case wal::EntryKind::kSessionEnd:
    case wal::EntryKind::kFlushBound: {
      const std::string wrong = WhyImpossible(entry);
      if (wrong.empty()) return absl::OkStatus();
      return wal::DamageError(directory.files(), wal::SegmentName(record.place.segment),
                              record.place.offset, wrong);
    }
    case wal::EntryKind::kExtend:
    case wal::EntryKind::kTerm:
    case wal::EntryKind::kShardReset:
    case wal::EntryKind::kTimeMark:
    case wal::EntryKind::kValuePart:
    case wal::EntryKind::kPartsDropped:
      break;
  }
  return absl::FailedPreconditionError(
      absl::StrCat(directory.files().PathOf(wal::SegmentName(record.place.segment)), ", offset ",
                   record.place.offset, ": an entry of kind ", static_cast<int>(entry.kind),
                   ", which this version never writes; start the version that wrote it"));
}

// --- Pass 1 ------------------------------------------------------------------

class KeyCollector final : public wal::ReplayVisitor {
 public:
  KeyCollector(const wal::DataDirectory& directory, Restorer& restorer, LogContent& log)
      : directory_(directory), restorer_(restorer), log_(log) {}

  absl::Status OnGroup(const wal::LogRecord& record, const wal::Group& group,
                       const std::vector<std::vector<wal::PiecePlace>>& pieces) override {
    if (absl::Status status = restorer_.CheckStop(); !status.ok()) return status;
    for (size_t i = 0; i < group.entries.size(); ++i) {
      const wal::Entry& entry = group.entries[i];
      const uint64_t number = log_.is_made.size();
      log_.is_made.push_back(false);
      log_.has_later_expiry.push_back(false);
      absl::Status status = CheckEntry(directory_, record, entry);
      if (!status.ok()) return status;
      // The bound of a flush is what its client sent, and no version of ours.
      if (!entry.key.empty()) restorer_.NoteVersion(entry.version);
      if (ChangesKey(entry)) Add(entry, number, IsAbsorbed(entry, pieces[i]));
    }
    restorer_.NoteRead(record.header.bytes());
    return absl::OkStatus();
  }
  bool WantsPiecesVerified() const override { return false; }
  // Notes the changes that Add has gathered. Also after the last group.
  void NoteGathered() {
    for (const Change& change : changes_) log_.keys.PrefetchLast(change.digest);
    for (const Change& change : changes_) {
      switch (change.kind) {
        case wal::EntryKind::kPut:
          NotePut(change);
          break;
        case wal::EntryKind::kDelete:
          NoteDelete(change);
          break;
        default:
          NoteExpire(change);
      }
    }
    changes_.clear();
  }

 private:
  struct Change {
    wal::EntryKind kind = wal::EntryKind::kPut;
    bool is_absorbed = false;
    LogKeys::Digest digest;
    uint64_t entry = 0;
    uint64_t version = 0;
    uint64_t expiry_ns = 0;
  };

  static bool ChangesKey(const wal::Entry& entry) {
    return entry.kind == wal::EntryKind::kPut || entry.kind == wal::EntryKind::kDelete ||
           entry.kind == wal::EntryKind::kExpire;
  }
  // Changes are noted many at a time, so that they wait for memory together.
  void Add(const wal::Entry& entry, uint64_t number, bool is_absorbed) {
    constexpr size_t kChangesMax = 64;
    if (changes_.size() == kChangesMax) NoteGathered();
    const LogKeys::Digest digest = log_.keys.DigestOf(entry.key);
    log_.keys.Prefetch(digest);
    changes_.push_back({entry.kind, is_absorbed, digest, number, entry.version, entry.expiry});
  }

  void NotePut(const Change& put) {
    LogKeys::Last& last = log_.keys.FindOrAdd(put.digest).first;
    if (last.version != 0) log_.is_made[last.entry] = false;
    last = {put.entry, put.is_absorbed, put.version, put.expiry_ns};
    log_.is_made[put.entry] = !put.is_absorbed;
  }
  void NoteDelete(const Change& deletion) {
    LogKeys::Last& last = log_.keys.FindOrAdd(deletion.digest).first;
    // It deleted an earlier value, while this put was logged and not made yet.
    if (last.version > deletion.version) return;
    if (last.version != 0) log_.is_made[last.entry] = false;
    last = {deletion.entry, false, 0, 0};
  }
  // The value may be the checkpoint's.
  void NoteExpire(const Change& expiry) {
    const auto [last, is_first] = log_.keys.FindOrAdd(expiry.digest);
    if (is_first) last = {expiry.entry, true, expiry.version, 0};
    if (last.version != expiry.version) return;
    last.expiry_ns = expiry.expiry_ns;
    log_.has_later_expiry[last.entry] = true;
  }

  const wal::DataDirectory& directory_;
  Restorer& restorer_;
  LogContent& log_;
  std::vector<Change> changes_;  // not noted yet, in the order of the log
};

// --- The checkpoint ----------------------------------------------------------

class PartLoader final : public wal::PartVisitor {
 public:
  PartLoader(const wal::DataDirectory& directory, uint32_t part, const LogContent& log,
             const Lengths& lengths, Restorer& restorer, SessionImages& images,
             std::mutex& images_mutex)
      : directory_(directory),
        part_(part),
        log_(log),
        lengths_(lengths),
        restorer_(restorer),
        images_(images),
        images_mutex_(images_mutex) {}

  void Expect(absl::Span<const wal::CheckpointItem> items) override {
    expected_.resize(items.size());
    next_ = 0;
    const bool is_logged = log_.keys.size() > 0;
    for (size_t i = 0; i < items.size() && is_logged; ++i) {
      expected_[i].digest = log_.keys.DigestOf(items[i].key);
      log_.keys.Prefetch(expected_[i].digest);
    }
    for (size_t i = 0; i < items.size(); ++i) {
      expected_[i].hash = restorer_.Prefetch(items[i].key);
      if (is_logged) log_.keys.PrefetchLast(expected_[i].digest);
    }
  }

  absl::Status OnItem(const wal::CheckpointItem& item, wal::Bytes value) override {
    if (absl::Status status = restorer_.CheckStop(); !status.ok()) return status;
    const Expected& expected = expected_[next_++];
    ++items_;
    NoteRead(sizeof(wal::ItemHeader) + item.key.size() + value.size());
    const absl::string_view wrong = WhyImpossible(item.version, item.expiry);
    if (!wrong.empty()) return Damage(absl::StrCat("item ", items_, ": ", wrong));
    if (item.depth > index::kDirectoryDepthMax || item.depth_min > item.depth)
      return Damage(absl::StrCat("item ", items_, ": a segment has an impossible depth"));
    item_ = {{item.key, expected.hash},   value, item.version, item.expiry, item.lives,
             {item.depth, item.depth_min}};
    const LogKeys::Last* const last =
        log_.keys.size() == 0 ? nullptr : log_.keys.Find(expected.digest);
    skipped_ = last != nullptr && !last->is_loaded;
    if (last != nullptr && item.version == last->version) item_.expiry_ns = last->expiry_ns;
    skipped_ |= log_.HasExpired(item_.expiry_ns);
    skipped_ |= !lengths_.Have(item.key.size(), item.value_length);
    value_left_ = item.value_length - value.size();
    if (value_left_ == 0 && !skipped_) return restorer_.Put(item_);
    restorer_.GrowFor(item_);
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
    item_.key.key = key_;
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
  struct Expected {
    index::KeyHash hash;
    LogKeys::Digest digest;
  };

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
  const LogContent& log_;
  const Lengths lengths_;
  Restorer& restorer_;
  SessionImages& images_;
  std::mutex& images_mutex_;
  std::vector<Expected> expected_;  // the items that come next
  size_t next_ = 0;                 // of them
  uint64_t items_ = 0;
  uint64_t uncounted_ = 0;
  Restorer::Item item_;
  bool skipped_ = false;
  uint64_t value_left_ = 0;  // bytes of item_ that are not here yet
  std::string key_;          // of item_, if its value comes in parts
  std::string value_;
};

absl::Status LoadCheckpoint(const wal::DataDirectory& directory, const RecoveryOptions& options,
                            const LogContent& log, const Lengths& lengths, Restorer& restorer,
                            SessionImages& images) {
  std::mutex images_mutex;
  std::vector<std::unique_ptr<PartLoader>> loaders;
  for (uint32_t part = 0; part < directory.current().parts.size(); ++part) {
    loaders.push_back(std::make_unique<PartLoader>(directory, part, log, lengths, restorer, images,
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
  EntryApplier(const wal::DataDirectory& directory, const LogContent& log, const Lengths& lengths,
               Restorer& restorer, SessionImages& images, uint32_t threads)
      : long_values_(directory, restorer, threads),
        log_(log),
        lengths_(lengths),
        restorer_(restorer),
        images_(images) {}

  absl::Status OnGroup(const wal::LogRecord& record, const wal::Group& group,
                       const std::vector<std::vector<wal::PiecePlace>>& pieces) override {
    if (absl::Status status = restorer_.CheckStop(); !status.ok()) return status;
    hashes_.resize(group.entries.size());
    for (size_t i = 0; i < group.entries.size(); ++i) {
      if (log_.is_made[entries_ + i]) hashes_[i] = restorer_.Prefetch(group.entries[i].key);
    }
    for (size_t i = 0; i < group.entries.size(); ++i) {
      const wal::Entry& entry = group.entries[i];
      const uint64_t number = entries_++;
      NoteClient(entry, images_);
      if (!log_.is_made[number]) continue;
      Restorer::Item item{{entry.key, hashes_[i]}, entry.value, entry.version, entry.expiry, 0, {}};
      if (log_.has_later_expiry[number])
        item.expiry_ns = log_.keys.Find(log_.keys.DigestOf(entry.key))->expiry_ns;
      if (log_.HasExpired(item.expiry_ns)) continue;
      if (!lengths_.Have(entry.key.size(), LengthOf(entry, pieces[i]))) continue;
      absl::Status status = Put(entry, pieces[i], item);
      if (!status.ok()) return status;
    }
    restorer_.NoteRead(record.header.bytes());
    return absl::OkStatus();
  }
  bool WantsPiecesVerified() const override { return false; }
  // After the last group.
  absl::Status Finish() { return long_values_.Finish(); }

 private:
  static uint64_t LengthOf(const wal::Entry& entry, const std::vector<wal::PiecePlace>& pieces) {
    uint64_t bytes = entry.value.size();
    for (const wal::PiecePlace& piece : pieces) bytes += piece.length;
    return bytes;
  }
  absl::Status Put(const wal::Entry& entry, const std::vector<wal::PiecePlace>& pieces,
                   Restorer::Item& item) {
    if (pieces.empty()) return restorer_.Put(item);
    return long_values_.Add(entry, pieces, item.expiry_ns);
  }

  LongValueLoader long_values_;
  const LogContent& log_;
  const Lengths lengths_;
  Restorer& restorer_;
  SessionImages& images_;
  std::vector<index::KeyHash> hashes_;  // of a group's keys
  uint64_t entries_ = 0;
};

// --- All passes ----------------------------------------------------------------

struct Loading {
  const wal::DataDirectory& directory;
  const RecoveryOptions& options;
  const LogContent& log;
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
  const auto& [directory, options, log, restorer, images] = loading;
  uint64_t bytes = end.bytes;
  for (const wal::PartSummary& part : directory.current().parts) bytes += part.length;
  const uint64_t total = read + parts.size() * bytes;
  for (const Lengths& lengths : parts) {
    images.clear();  // each reading finds all sessions
    restorer.BeginCheckpoint();
    restorer.SetTotal(read, total);
    absl::Status status = LoadCheckpoint(directory, options, log, lengths, restorer, images);
    // Of several threads' errors, the first.
    if (!restorer.error().ok()) return restorer.error();
    if (!status.ok()) return status;
    restorer.EndCheckpoint();
    restorer.GrowFor(log.keys.CountLasting(), bytes);
    read += bytes;
    restorer.SetTotal(read - end.bytes, total);
    EntryApplier applier(directory, log, lengths, restorer, images, options.threads);
    absl::StatusOr<wal::LogEnd> again = wal::Replay(directory, applier);
    if (!again.ok()) return again.status();
    status = applier.Finish();
    if (!status.ok()) return status;
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
  LogContent log(directory.Draw());
  KeyCollector collector(directory, restorer, log);
  absl::StatusOr<wal::LogEnd> end = wal::Replay(directory, collector);
  if (!end.ok()) return end.status();
  collector.NoteGathered();
  log.clock_ns = std::max(ClockAtEnd(*end), static_cast<uint64_t>(absl::ToUnixNanos(options.now)));

  SessionImages images;
  const Loading loading{directory, options, log, restorer, images};
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
