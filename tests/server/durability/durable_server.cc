#include "tests/server/durability/durable_server.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/durability/session_bytes.h"
#include "server/wal/format/checksum.h"

namespace osprey::server {
namespace {

constexpr uint64_t kLongValueBytes = 64 << 10;

void MustSucceed(const absl::Status& status) {
  if (status.ok()) return;
  fprintf(stderr, "%s\n", status.ToString().c_str());
  abort();
}

}  // namespace

absl::Status DurableServer::Start() {
  Stop();
  loading_ = true;
  memory_ = std::make_unique<index::RegionMemory>(options_.memory_bytes);
  index::TableOptions options;
  options.incarnation = index::kTestIncarnation + ++draws_;
  options.hash_seed = index::kTestSeed;
  options.evict = options_.evict;
  options.cas_version = cas_version_ += 1 << 20;
  options.clock = [this] { return loading_ ? absl::UnixEpoch() : Now(); };
  tables_ = *Tables::Create(memory_->span(), options_.partitions, options,
                            std::vector<PartitionChanges*>(options_.partitions, this));
  auto directory = wal::DataDirectory::Open(files_, wal::NewDirectory(),
                                            [this] { return ++draws_ * 0x9e3779b97f4a7c15 | 1; });
  if (!directory.ok()) return directory.status();
  directory_ = *std::move(directory);
  RecoveryOptions recovery;
  recovery.threads = options_.threads;
  recovery.memory_bytes = options_.memory_bytes;
  recovery.progress = progress;
  recovery.log = loading_log;
  recovery.stop = &stop_loading;
  absl::StatusOr<Recovered> recovered = Recover(*directory_, *tables_, recovery);
  if (!recovered.ok()) return recovered.status();
  recovered_ = *std::move(recovered);
  wal::LogOptions log_options;
  log_options.segment_bytes = options_.segment_bytes;
  log_options.queue_bytes_max = UINT64_MAX;
  log_options.spare_bytes = options_.spare_bytes;
  auto log = wal::StartLog(*directory_, recovered_.end, log_options);
  if (!log.ok()) return log.status();
  log_ = *std::move(log);
  loading_ = false;
  return recovered_.evictions == 0 ? absl::OkStatus() : Checkpoint().status();
}

void DurableServer::Stop() {
  log_.reset();
  directory_.reset();
  tables_.reset();
  memory_.reset();
}

absl::Status DurableServer::Put(absl::string_view key, absl::string_view value, absl::Duration ttl,
                                const Asker& asker) {
  const LockedTable table = tables_->Lock(tables_->PartitionOf(key));
  if (asker.client != 0) asker_ = asker;
  const index::Lifetime lifetime =
      ttl == absl::ZeroDuration() ? index::Lifetime::Forever() : index::Lifetime::For(ttl);
  absl::Status status = table->Put(key, index::BytesOf(value), {}, Now(), lifetime).status;
  if (asker.client != 0) asker_ = {};
  return status;
}

absl::Status DurableServer::Delete(absl::string_view key, const Asker& asker) {
  const LockedTable table = tables_->Lock(tables_->PartitionOf(key));
  if (asker.client != 0) asker_ = asker;
  absl::Status status = table->Delete(key, {}, Now()).status;
  if (asker.client != 0) asker_ = {};
  return status;
}

absl::Status DurableServer::Expire(absl::string_view key, absl::Duration ttl, const Asker& asker) {
  const LockedTable table = tables_->Lock(tables_->PartitionOf(key));
  if (asker.client != 0) asker_ = asker;
  const index::Lifetime lifetime =
      ttl == absl::ZeroDuration() ? index::Lifetime::Forever() : index::Lifetime::For(ttl);
  absl::Status status = table->Expire(key, {}, lifetime, Now()).status;
  if (asker.client != 0) asker_ = {};
  return status;
}

void DurableServer::Flush(uint64_t keys_max, const Asker& asker) {
  const LockedTable table = tables_->Lock(0);
  const auto result = table->FlushStep(0, index::kCasVersionMax, keys_max, Now());
  MustSucceed(result.status());
  wal::Entry entry;
  entry.kind = wal::EntryKind::kFlushBound;
  entry.client = asker.client;
  entry.sequence = asker.sequence;
  entry.result = wal::EntryResult();
  entry.result->length = result->deleted;
  entry.result->cursor = result->cursor;
  Append(entry);
}

void DurableServer::BeginSession(uint64_t client) {
  wal::Entry entry;
  entry.kind = wal::EntryKind::kSessionBegin;
  entry.client = client;
  Append(entry);
}

void DurableServer::EndSession(uint64_t client) {
  wal::Entry entry;
  entry.kind = wal::EntryKind::kSessionEnd;
  entry.client = client;
  Append(entry);
}

void DurableServer::RunMaintenance() {
  for (uint32_t partition = 0; partition < tables_->partitions(); ++partition) {
    const LockedTable table = tables_->Lock(partition);
    for (int i = 0; i < 4; ++i) (void)table->GrowStep(Now());
    (void)table->SweepStep(Now());
    (void)table->EvictStep(Now());
    (void)table->CompactStep(Now());
  }
}

absl::StatusOr<CheckpointSize> DurableServer::Checkpoint(const std::function<void()>& between,
                                                         uint64_t redo_shift,
                                                         const std::atomic<bool>* stop) {
  CheckpointInput input;
  input.redo_record = (redo_record != 0 ? redo_record : log_->appended() + 1) + redo_shift;
  input.sessions = [&] {
    if (between) between();
    std::vector<SessionImage> images;
    for (const auto& [id, image] : sessions_) images.push_back(image);
    return images;
  };
  if (between) input.pause = [&](uint64_t) { between(); };
  input.stop = stop;
  return WriteCheckpoint(*directory_, *log_, *tables_, input);
}

// --- Changes -----------------------------------------------------------------

void DurableServer::OnPut(absl::string_view key, index::ByteSpan value, uint64_t version,
                          uint64_t expiry_ns) {
  wal::Entry entry;
  entry.version = version;
  entry.expiry = expiry_ns;
  entry.key = key;
  entry.value_length = value.size();
  entry.value = value;
  if (value.size() > wal::kShortValueBytesMax) entry.value_checksum = wal::Checksum(value, 0);
  Append(entry);
  const std::lock_guard<std::mutex> lock(mutex_);
  model_[std::string(key)] = {index::TextOf(value), version, expiry_ns};
}

void DurableServer::OnExpire(absl::string_view key, uint64_t version, uint64_t expiry_ns) {
  wal::Entry entry;
  entry.kind = wal::EntryKind::kExpire;
  entry.version = version;
  entry.expiry = expiry_ns;
  entry.key = key;
  Append(entry);
  const std::lock_guard<std::mutex> lock(mutex_);
  model_[std::string(key)].expiry_ns = expiry_ns;
}

void DurableServer::OnDelete(absl::string_view key, uint64_t version, uint64_t) {
  // While the tables are loaded only evictions are reported, and there is no log.
  if (!loading_) {
    wal::Entry entry;
    entry.kind = wal::EntryKind::kDelete;
    entry.version = version;
    entry.key = key;
    Append(entry);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  model_.erase(std::string(key));
}

void DurableServer::Append(wal::Entry entry) {
  if (asker_.client != 0) {
    entry.client = asker_.client;
    entry.sequence = asker_.sequence;
    entry.result = asker_.result;
    entry.has_number = asker_.has_number;
  }
  if (entry.value_length > kLongValueBytes) {
    entry.pieces = pieces_.empty() ? AppendPiecesOf(entry.value) : std::move(pieces_);
    pieces_.clear();
    entry.value = {};
  }
  wal::GroupBuilder group((wal::GroupHeader()));
  group.Add(entry);
  wal::BodyParts parts = group.Parts();
  for (wal::BodyPart& part : parts) part.pinned = false;  // values may change before Write
  MustSucceed(log_->Append({{wal::RecordKind::kEntries, parts}}).status());
  if (entry.client != 0) Remember(entry);
}

std::vector<wal::PieceRef> DurableServer::AppendPiecesOf(wal::Bytes value) {
  std::vector<wal::PieceRef> pieces;
  while (!value.empty()) {
    const wal::Bytes piece = value.first(std::min<uint64_t>(value.size(), wal::kPieceBytesMax));
    value.remove_prefix(piece.size());
    const wal::BodyPart part{piece, false};
    const auto number =
        log_->Append({{wal::RecordKind::kPiece, absl::Span<const wal::BodyPart>(&part, 1)}});
    MustSucceed(number.status());
    pieces.push_back({*number, static_cast<uint32_t>(piece.size()), 0});
  }
  return pieces;
}

void DurableServer::AppendPieces(absl::string_view value) {
  pieces_ = AppendPiecesOf(index::BytesOf(value));
}

// --- The model ---------------------------------------------------------------

void DurableServer::Remember(const wal::Entry& entry) {
  if (entry.kind == wal::EntryKind::kSessionEnd) {
    sessions_.erase(entry.client);
    return;
  }
  SessionImage& image = sessions_[entry.client];
  image.id = entry.client;
  if (entry.kind == wal::EntryKind::kSessionBegin) {
    image.results.clear();
    return;
  }
  Result result;
  result.code = absl::StatusCode::kOk;
  result.version = entry.version;
  result.expiry = entry.expiry;
  if (entry.result.has_value()) {
    result.code = static_cast<absl::StatusCode>(entry.result->status);
    result.reason = ReasonOfWire(entry.result->reason);
    result.version = entry.result->version;
    result.number = entry.result->number;
    result.has_number = entry.has_number;
    result.value_length = entry.result->length;
    result.slot = entry.result->cursor;
    result.expiry = entry.result->expiry;
  }
  // As ResultWindow: the newest of each remainder, unless it is too old.
  std::erase_if(image.results, [&](const auto& one) { return one.first == entry.sequence; });
  image.results.emplace_back(entry.sequence, result);
  std::sort(image.results.begin(), image.results.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  while (image.results.front().first + kResultsKept <= image.results.back().first)
    image.results.erase(image.results.begin());
}

uint64_t DurableServer::live_keys() const {
  return static_cast<uint64_t>(std::count_if(model_.begin(), model_.end(), [this](const auto& one) {
    return one.second.expiry_ns == 0 ||
           one.second.expiry_ns > static_cast<uint64_t>(now_ns_.load());
  }));
}

std::string DurableServer::SessionDifference() const {
  if (recovered_.sessions.size() != sessions_.size()) {
    return absl::StrCat(recovered_.sessions.size(), " sessions, and not ", sessions_.size());
  }
  for (const SessionImage& image : recovered_.sessions) {
    const auto found = sessions_.find(image.id);
    if (found == sessions_.end()) return absl::StrCat("session ", image.id, " has ended");
    if (EncodeSession(image) != EncodeSession(found->second))
      return absl::StrCat("session ", image.id, " has other results");
  }
  return "";
}

std::string DurableServer::Difference() {
  uint64_t live = 0;
  for (const auto& [key, expected] : model_) {
    const LockedTable table = tables_->Lock(tables_->PartitionOf(key));
    const absl::StatusOr<index::Table::View> view = table->Find(key);
    const bool is_live =
        expected.expiry_ns == 0 || expected.expiry_ns > static_cast<uint64_t>(now_ns_.load());
    if (is_live != view.ok()) return absl::StrCat(key, is_live ? " is missing" : " has expired");
    if (!view.ok()) continue;
    ++live;
    if (view->version != expected.version)
      return absl::StrCat(key, " has version ", view->version, ", not ", expected.version);
    if (view->expiry_ns != expected.expiry_ns)
      return absl::StrCat(key, " has expiry ", view->expiry_ns, ", not ", expected.expiry_ns);
    if (index::TextOf(view->value) != expected.value)
      return absl::StrCat(key, " has another value");
  }
  // What has expired is in the tables until a sweep.
  for (uint32_t partition = 0; partition < tables_->partitions(); ++partition) {
    const LockedTable table = tables_->Lock(partition);
    uint64_t cursor = 0;
    std::string unknown;
    do {
      cursor = table->Walk(cursor, 1 << 20, [&](const index::WalkedKey& key) {
        if (!model_.contains(std::string(key.key))) unknown = std::string(key.key);
      });
    } while (cursor != 0);
    if (!unknown.empty()) return unknown + " was deleted";
  }
  return SessionDifference();
}

}  // namespace osprey::server
