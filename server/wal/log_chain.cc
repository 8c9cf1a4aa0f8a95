#include "server/wal/log_chain.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/wal/segment_reader.h"

namespace osprey::server::wal {
namespace {

// A segment's header, or why it has none.
struct Candidate {
  SegmentHeader header;
  std::string wrong = "the segment is missing";
};

class ChainFinder {
 public:
  ChainFinder(const DataDirectory& directory, const CurrentHeader& current)
      : directory_(directory), current_(current) {}

  absl::StatusOr<LogChain> Find() {
    absl::Status status = ReadHeaders();
    if (!status.ok()) return status;
    // Named by CURRENT, so a header that is not valid is damage.
    const Candidate newest_named = candidates_[current_.newest_segment];
    if (!newest_named.wrong.empty() || newest_named.header.life != current_.newest_life)
      return Damage(current_.newest_segment, newest_named, kCurrentName);
    uint64_t number = 0;
    for (const auto& [candidate, found] : candidates_) {
      if (found.wrong.empty() && MayCount(candidate, found)) number = std::max(number, candidate);
    }
    bool has_named = false;
    while (true) {
      const SegmentHeader& header = candidates_[number].header;
      chain_.segments.push_back(header);
      has_named |= number == current_.newest_segment;
      if (number == current_.redo_segment) break;
      const uint64_t previous = header.previous_number;
      const Candidate& found = candidates_[previous];
      if (previous < current_.redo_segment || !found.wrong.empty() ||
          found.header.life != header.previous_life) {
        return Damage(previous, found, SegmentName(number));
      }
      number = previous;
    }
    if (!has_named) {
      return DamageError(
          directory_.files(), SegmentName(current_.newest_segment), 0,
          absl::StrCat("CURRENT names the segment, but no later segment follows it"));
    }
    std::reverse(chain_.segments.begin(), chain_.segments.end());
    return std::move(chain_);
  }

 private:
  // A segment of an origin behind those of CURRENT is of a backup that is not complete.
  bool MayCount(uint64_t number, const Candidate& found) const {
    return number <= current_.newest_segment ||
           found.header.directory == directory_.format().directory;
  }

  absl::Status ReadHeaders() {
    const absl::StatusOr<std::vector<std::string>> names = directory_.files().List();
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      const uint64_t number = SegmentNumber(name);
      chain_.newest_number = std::max(chain_.newest_number, number);
      if (number == 0 || number < current_.redo_segment) continue;
      absl::StatusOr<std::unique_ptr<SegmentReader>> reader =
          SegmentReader::Open(directory_.files(), number);
      if (!reader.ok()) return reader.status();
      absl::StatusOr<std::string> wrong = (*reader)->ReadHeader(directory_.ids());
      if (!wrong.ok()) return wrong.status();
      candidates_[number] = {(*reader)->header(), *std::move(wrong)};
    }
    return absl::OkStatus();
  }

  absl::Status Damage(uint64_t number, const Candidate& found, absl::string_view named_by) {
    const std::string wrong =
        found.wrong.empty() ? "the segment is another one than before" : found.wrong;
    return DamageError(directory_.files(), SegmentName(number), 0,
                       absl::StrCat(wrong, ", and ", named_by, " names it"));
  }

  const DataDirectory& directory_;
  const CurrentHeader current_;
  std::map<uint64_t, Candidate> candidates_;
  LogChain chain_;
};

}  // namespace

absl::StatusOr<LogChain> FindLogChain(const DataDirectory& directory,
                                      const CurrentHeader& current) {
  return ChainFinder(directory, current).Find();
}

}  // namespace osprey::server::wal
