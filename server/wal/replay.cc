#include "server/wal/replay.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/wal/format/checksum.h"
#include "server/wal/format/test_hooks.h"
#include "server/wal/log_chain.h"

namespace osprey::server::wal {
namespace {

// A place behind a record, at which the log could be cut.
struct Boundary {
  uint64_t number = 0;  // of the record before; 0: none
  Place record;         // that record; of no segment at a segment's start
  Place place;
  uint64_t life = 0;
  uint64_t checksum = 0;
};

class Replayer {
 public:
  Replayer(const DataDirectory& directory, ReplayVisitor& visitor)
      : directory_(directory), visitor_(visitor), current_(directory.current().header) {}

  absl::StatusOr<LogEnd> Run() {
    absl::StatusOr<LogChain> chain = FindLogChain(directory_, current_);
    if (!chain.ok()) return chain.status();
    chain_ = std::move(chain->segments);
    end_.newest_number = chain->newest_number;
    end_.time_mark = current_.time_mark;
    end_.version_ceiling = current_.version_ceiling;
    Know(current_.synced_to);
    expected_ = chain_[0].first_record;
    checksum_ = chain_[0].previous_checksum;
    for (size_t i = 0; i < chain_.size() && !ended_; ++i) {
      absl::Status status = ReadSegment(i);
      if (!status.ok()) return status;
      end_.segments.push_back({chain_[i].number, chain_[i].life, end_place_.offset});
    }
    // The log may end before what CURRENT or a segment's header says.
    if (known_ >= expected_) {
      return DamageError(
          directory_.files(), SegmentName(end_place_.segment), end_place_.offset,
          absl::StrCat("the log ends before record ", known_, ", which was known to be synced"));
    }
    if (IsMutant(Mutant::kTailNotRewritten)) known_ = expected_ - 1;
    Forget();
    const Boundary& cut = boundaries_.front();
    end_.cut = cut.place;
    end_.cut_life = cut.life;
    end_.cut_checksum = cut.checksum;
    end_.synced_to = cut.number;
    for (size_t i = 1; i < boundaries_.size(); ++i) {
      if (boundaries_[i].record.segment != 0) end_.tail.push_back(boundaries_[i].record);
    }
    for (const SegmentHeader& header : chain_) {
      if (header.number <= cut.place.segment)
        end_.chain.push_back({header.number, header.life, header.first_record});
    }
    end_.last_record = expected_ - 1;
    return std::move(end_);
  }

 private:
  // All up to that record was synced.
  void Know(uint64_t synced_to) {
    known_ = std::max(known_, synced_to);
    Forget();
  }
  void Forget() {
    while (boundaries_.size() > 1 && boundaries_[1].number <= known_) boundaries_.pop_front();
  }

  absl::Status ReadSegment(size_t index) {
    const SegmentHeader& header = chain_[index];
    const bool is_last = index + 1 == chain_.size();
    absl::StatusOr<std::unique_ptr<SegmentReader>> opened =
        SegmentReader::Open(directory_.files(), header.number);
    if (!opened.ok()) return opened.status();
    SegmentReader& reader = **opened;
    absl::StatusOr<std::string> wrong = reader.ReadHeader(directory_.ids());
    if (!wrong.ok()) return wrong.status();
    const Place start{header.number, kSegmentHeaderBytes};
    if (wrong->empty() && header.first_record != expected_)
      *wrong =
          absl::StrCat("the segment begins with record ", header.first_record, ", not ", expected_);
    if (wrong->empty() && header.previous_checksum != checksum_)
      *wrong = "the segment names another end of the one before";
    if (!wrong->empty())
      return DamageError(directory_.files(), SegmentName(header.number), 0, *wrong);
    Know(header.synced_to);
    // The log may be cut at a start that is known to be on the disk.
    if (index == 0 || header.number == current_.newest_segment)
      boundaries_.push_back({expected_ - 1, Place(), start, header.life, checksum_});
    Forget();
    Place place = start;
    while (true) {
      end_place_ = place;
      if (!is_last && !IsMutant(Mutant::kOldEndNotNamed) &&
          place.offset == chain_[index + 1].previous_end) {
        // The next header's checks compare the checksum.
        return absl::OkStatus();
      }
      LogRecord record;
      const uint64_t trusted = IsMutant(Mutant::kTailPiecesNotRead) ? kRecordNumberMax : known_;
      wrong = reader.ReadRecord(place.offset, record, visitor_.WantsPiecesVerified() ? 0 : trusted);
      if (!wrong.ok()) return wrong.status();
      if (wrong->empty()) *wrong = CheckOrder(record, index);
      const bool is_close = wrong->empty() && IsClose(record);
      if (IsMutant(Mutant::kOldEndNotNamed) && !is_last && (is_close || !wrong->empty())) {
        expected_ = chain_[index + 1].first_record;
        checksum_ = chain_[index + 1].previous_checksum;
        return absl::OkStatus();
      }
      if (!wrong->empty()) return EndAt(index, place, *wrong, reader);
      if (is_close) {
        Know(record.header.synced_to);
        return CheckClose(record);
      }
      absl::Status status = Take(record, header);
      if (!status.ok()) return status;
      place.offset += record.header.bytes();
    }
  }

  static bool IsClose(const LogRecord& record) {
    return record.header.kind == static_cast<uint8_t>(RecordKind::kClose);
  }

  // Whether a valid record is the one that has to follow.
  std::string CheckOrder(const LogRecord& record, size_t index) {
    if (record.header.number != expected_ && !IsMutant(Mutant::kOldEndNotNamed))
      return absl::StrCat("the record has number ", record.header.number, ", not ", expected_);
    if (record.header.chain != checksum_ && !IsMutant(Mutant::kNoChain))
      return "the record follows another one than the one before it";
    if (index + 1 < chain_.size() && !IsMutant(Mutant::kOldEndNotNamed) &&
        record.place.offset + record.header.bytes() > chain_[index + 1].previous_end) {
      return "the record is not the end that the next segment names";
    }
    return "";
  }

  // The close record names a segment whose header was synced, and which is not in the chain.
  absl::Status CheckClose(const LogRecord& record) {
    CloseBody body;
    if (record.body.size() != sizeof(body)) {
      return DamageError(directory_.files(), SegmentName(record.place.segment), record.place.offset,
                         "the close record has no segment");
    }
    std::memcpy(&body, record.body.data(), sizeof(body));
    return DamageError(
        directory_.files(), SegmentName(body.next_number), 0,
        absl::StrCat("the segment is missing or damaged, and ", SegmentName(record.place.segment),
                     " at offset ", record.place.offset, " names it"));
  }

  // There is no valid record at `place`: damage, or the end of the log.
  absl::Status EndAt(size_t index, Place place, const std::string& wrong, SegmentReader& reader) {
    absl::StatusOr<uint64_t> known = reader.HighestSyncedTo(place.offset);
    if (!known.ok()) return known.status();
    uint64_t highest = std::max(known_, *known);
    for (size_t later = index + 1; later < chain_.size(); ++later) {
      absl::StatusOr<std::unique_ptr<SegmentReader>> opened =
          SegmentReader::Open(directory_.files(), chain_[later].number);
      if (!opened.ok()) return opened.status();
      const absl::StatusOr<std::string> header_wrong = (*opened)->ReadHeader(directory_.ids());
      if (!header_wrong.ok()) return header_wrong.status();
      known = (*opened)->HighestSyncedTo(kSegmentHeaderBytes);
      if (!known.ok()) return known.status();
      highest = std::max({highest, *known, chain_[later].synced_to});
    }
    if (highest >= expected_ && !IsMutant(Mutant::kNoSyncedTo)) {
      return DamageError(
          directory_.files(), SegmentName(place.segment), place.offset,
          absl::StrCat(wrong, "; record ", expected_, " stood there and was known to be synced"));
    }
    if (IsMutant(Mutant::kNoSyncedTo)) known_ = expected_ - 1;
    if (!IsMutant(Mutant::kNoSyncedTo)) Know(highest);
    ended_ = true;
    return absl::OkStatus();
  }

  absl::Status Take(const LogRecord& record, const SegmentHeader& segment) {
    const RecordHeader& header = record.header;
    ++expected_;
    if (IsMutant(Mutant::kOldEndNotNamed)) expected_ = header.number + 1;
    checksum_ = header.header_checksum;
    end_.bytes += header.bytes();
    Know(header.synced_to);
    boundaries_.push_back({header.number,
                           record.place,
                           {record.place.segment, record.place.offset + header.bytes()},
                           segment.life,
                           checksum_});
    end_.time_mark = std::max(end_.time_mark, header.time_mark);
    end_.version_ceiling = std::max(end_.version_ceiling, header.version_ceiling);
    end_.clean = false;
    switch (static_cast<RecordKind>(header.kind)) {
      case RecordKind::kEntries:
        return TakeGroup(record);
      case RecordKind::kPiece:
        if (header.number >= current_.redo_record && header.length > 0 &&
            header.length <= kPieceBytesMax) {
          pieces_[header.number] = {record.place, header.length};
        }
        return absl::OkStatus();
      case RecordKind::kCleanEnd: {
        CleanEndBody body;
        if (record.body.size() != sizeof(body)) return Wrong(record, "the clean end has no time");
        std::memcpy(&body, record.body.data(), sizeof(body));
        end_.clean = true;
        end_.clean_time = body.time;
        end_.time_mark = std::max(end_.time_mark, body.time);
        end_.version_ceiling = std::max(end_.version_ceiling, body.version_ceiling);
        return absl::OkStatus();
      }
      case RecordKind::kMark:
      case RecordKind::kClose:
        return absl::OkStatus();
    }
    if ((header.flags & kMustUnderstand) == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(directory_.files().PathOf(SegmentName(record.place.segment)), ", offset ",
                     record.place.offset, ": a record of the unknown kind ", header.kind,
                     "; start the newer version that wrote it"));
  }

  absl::Status TakeGroup(const LogRecord& record) {
    if (record.header.number < current_.redo_record) return absl::OkStatus();
    const std::string wrong = ParseGroup(record.body, group_);
    if (!wrong.empty()) return Wrong(record, wrong);
    group_pieces_.assign(group_.entries.size(), {});
    for (size_t i = 0; i < group_.entries.size(); ++i) {
      // An entry with a piece before the redo point was applied before the walk began.
      const bool is_applied = std::any_of(
          group_.entries[i].pieces.begin(), group_.entries[i].pieces.end(),
          [this](const PieceRef& piece) { return piece.record < current_.redo_record; });
      for (const PieceRef& piece : group_.entries[i].pieces) {
        if (is_applied) break;
        const auto found = pieces_.find(piece.record);
        if (found == pieces_.end() || found->second.length != piece.length) {
          return Wrong(record, absl::StrCat("record ", piece.record,
                                            " is not the piece that an entry names"));
        }
        group_pieces_[i].push_back(found->second);
        pieces_.erase(found);
      }
    }
    return visitor_.OnGroup(record, group_, group_pieces_);
  }

  // Of a record whose checksums are right.
  absl::Status Wrong(const LogRecord& record, absl::string_view why) {
    return DamageError(directory_.files(), SegmentName(record.place.segment), record.place.offset,
                       why);
  }

  const DataDirectory& directory_;
  ReplayVisitor& visitor_;
  const CurrentHeader current_;
  std::vector<SegmentHeader> chain_;
  LogEnd end_;
  uint64_t expected_ = 0;  // the number of the next record
  uint64_t checksum_ = 0;  // of the header before
  uint64_t known_ = 0;     // the highest record that is known to be synced
  bool ended_ = false;
  Place end_place_;
  std::deque<Boundary> boundaries_;                   // the first is the cut, so far
  absl::flat_hash_map<uint64_t, PiecePlace> pieces_;  // by record; not named by an entry so far
  Group group_;
  std::vector<std::vector<PiecePlace>> group_pieces_;
};

}  // namespace

absl::StatusOr<LogEnd> Replay(const DataDirectory& directory, ReplayVisitor& visitor) {
  return Replayer(directory, visitor).Run();
}

absl::StatusOr<Bytes> ValueReader::Read(const Entry& entry, absl::Span<const PiecePlace> pieces) {
  if (value_.capacity() > kKeptBytesMax) value_ = std::string();
  value_.clear();
  if (pieces.size() > 1) value_.reserve(entry.value_length);
  Bytes value;
  LogRecord record;
  for (const PiecePlace& piece : pieces) {
    absl::Status status = reader_.Read(piece.place, record);
    if (!status.ok()) return status;
    if (record.body.size() != piece.length) {
      return DamageError(files_, SegmentName(piece.place.segment), piece.place.offset,
                         "the piece has another length");
    }
    value = record.body;
    if (pieces.size() > 1) absl::StrAppend(&value_, TextOf(record.body));
  }
  if (pieces.size() > 1) value = BytesOfText(value_);
  if (value.size() != entry.value_length || Checksum(value, 0) != entry.value_checksum) {
    return DamageError(files_, SegmentName(record.place.segment), 0,
                       "the pieces of a value do not have its checksum");
  }
  return value;
}

absl::StatusOr<std::string> ReadValue(const DataDirectory& directory, const Entry& entry,
                                      absl::Span<const PiecePlace> pieces) {
  ValueReader reader(directory);
  const absl::StatusOr<Bytes> value = reader.Read(entry, pieces);
  if (!value.ok()) return value.status();
  return std::string(TextOf(*value));
}

}  // namespace osprey::server::wal
