// The files of import and export, whole and damaged. What is taken and then written, in any format,
// is taken again and is the same. However the bytes come, they mean the same. A binary file that was
// changed is refused.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "tests/fuzz/support/input.h"
#include "tools/bulk/file.h"
#include "tools/bulk/format.h"

namespace osprey {
namespace {

constexpr BulkFormat kFormats[] = {BulkFormat::kJsonl, BulkFormat::kCsv, BulkFormat::kBinary};
constexpr char kCutOff[] = "the disk is gone";

bool Same(const BulkRecord& a, const BulkRecord& b) {
  return a.key == b.key && a.value == b.value && a.ttl == b.ttl;
}

// What a reader made of a file.
struct Outcome {
  std::vector<BulkRecord> records;
  std::vector<std::string> errors;  // "line 2: …"
  bool is_broken = false;

  bool operator==(const Outcome& other) const {
    return std::equal(records.begin(), records.end(), other.records.begin(), other.records.end(),
                      Same) &&
           errors == other.errors && is_broken == other.is_broken;
  }
};

// Comes in pieces of `piece` bytes at most, and to its end or, with `fails`, to an error.
struct File {
  const std::string& text;
  size_t piece = SIZE_MAX;
  bool fails = false;

  BulkInput::Source Source() const {
    return [*this, at = size_t{0}](char* data, size_t bytes) mutable -> absl::StatusOr<size_t> {
      const size_t count = std::min({bytes, piece, text.size() - at});
      if (count == 0 && fails) return absl::UnknownError(kCutOff);
      std::memcpy(data, text.data() + at, count);
      at += count;
      return count;
    };
  }
};

void MustBeRecord(BulkFormat format, const BulkRecord& record, size_t file_bytes) {
  OSPREY_MUST(record.ttl > absl::ZeroDuration(), "a record that lives no time at all");
  OSPREY_MUST(record.ttl == absl::InfiniteDuration() || record.ttl <= kTtlMax(),
              "a record that lives too long");
  // (Of \u escapes, a character takes no more bytes than its escape.)
  OSPREY_MUST(record.key.size() + record.value.size() <= file_bytes, "bytes out of nothing");
  OSPREY_MUST(format != BulkFormat::kBinary ||
                  (!record.key.empty() && record.key.size() <= kBulkKeyBytesMax &&
                   record.value.size() <= kBulkValueBytesMax),
              "a record of the binary format with lengths that cannot be");
}

Outcome Read(BulkFormat format, const File& file) {
  BulkInput input(file.Source());
  const std::unique_ptr<BulkReader> reader = NewBulkReader(format, input);
  Outcome outcome;
  for (size_t i = 0; i <= file.text.size() + 1; ++i) {
    BulkRecord record;
    const BulkReader::Result result = reader->Next(record);
    OSPREY_MUST(input.offset() <= file.text.size(), "more was read than there is");
    OSPREY_MUST(!reader->place().empty(), "a place without a name");
    if (result == BulkReader::Result::kEnd) {
      OSPREY_MUST(!file.fails, "the end of a file that could not be read to its end");
      return outcome;
    }
    if (result == BulkReader::Result::kRecord) {
      MustBeRecord(format, record, file.text.size());
      outcome.records.push_back(std::move(record));
      continue;
    }
    OSPREY_MUST(!reader->error().empty() && !absl::StrContains(reader->error(), "\n"),
                "an error of several lines, or of none");
    outcome.errors.push_back(absl::StrCat(reader->place(), ": ", reader->error()));
    outcome.is_broken = result == BulkReader::Result::kBroken;
    if (outcome.is_broken) return outcome;
  }
  fuzz::Fail("a file without an end", __FILE__, __LINE__);
}

std::string Written(BulkFormat format, const std::vector<BulkRecord>& records, size_t first = 0) {
  const std::unique_ptr<BulkWriter> writer = NewBulkWriter(format, first);
  std::string text;
  if (first == 0) writer->Begin(text);
  for (size_t i = first; i < records.size(); ++i)
    OSPREY_MUST(writer->Append(records[i], text).ok(), "a record that cannot be written");
  writer->End(text);
  return text;
}

// As far as a format has room for it: text has milliseconds, and at least one.
absl::Duration Rounded(BulkFormat format, absl::Duration ttl) {
  if (ttl == absl::InfiniteDuration()) return ttl;
  const absl::Duration unit =
      format == BulkFormat::kBinary ? absl::Microseconds(1) : absl::Milliseconds(1);
  return std::max(ttl, unit);
}
absl::Duration Slack(BulkFormat format) {
  return format == BulkFormat::kBinary ? absl::Microseconds(1) : absl::Microseconds(501);
}

void MustComeBack(BulkFormat format, const std::vector<BulkRecord>& records) {
  const std::string text = Written(format, records);
  const Outcome again = Read(format, {text});
  OSPREY_MUST(again.errors.empty() && again.records.size() == records.size(),
              "a file of ours that is not taken");
  for (size_t i = 0; i < records.size(); ++i) {
    OSPREY_MUST(
        again.records[i].key == records[i].key && again.records[i].value == records[i].value,
        "a record that is another one when it comes back");
    const absl::Duration ttl = Rounded(format, records[i].ttl);
    OSPREY_MUST(ttl == again.records[i].ttl ||
                    absl::AbsDuration(ttl - again.records[i].ttl) < Slack(format),
                "a life of another length when it comes back");
  }
  // Written once more, nothing is rounded any more.
  OSPREY_MUST(Written(format, again.records) == text, "a file that is another one when copied");
}

// No server takes an empty key, and the binary format has no way to write one.
void DropWhatNoServerTakes(std::vector<BulkRecord>& records) {
  const auto is_none = [](const BulkRecord& record) {
    return record.key.empty() || record.key.size() > kBulkKeyBytesMax;
  };
  records.erase(std::remove_if(records.begin(), records.end(), is_none), records.end());
}

// A file of any bytes.
void TakeFile(BulkFormat format, fuzz::Input& input) {
  const size_t piece = 1 + input.UpTo(40);
  const bool fails = input.OneIn(4);
  const std::string text = input.Rest();
  const Outcome whole = Read(format, {text});
  OSPREY_MUST(Read(format, {text, piece}) == whole, "a file that is another one in pieces");
  if (fails) {
    const Outcome failed = Read(format, {text, piece, /*fails=*/true});
    // Or it broke before, by what was whole.
    const bool is_whole = format == BulkFormat::kBinary || absl::StrContains(text, "\n");
    OSPREY_MUST(failed.is_broken && (absl::StrContains(failed.errors.back(), kCutOff) ||
                                     (is_whole && failed == whole)),
                "nothing is said of a file that could not be read");
    OSPREY_MUST(
        failed.records.size() <= whole.records.size() &&
            std::equal(failed.records.begin(), failed.records.end(), whole.records.begin(), Same),
        "records of a part of a file that the whole of it has not");
  }
  std::vector<BulkRecord> records = whole.records;
  DropWhatNoServerTakes(records);
  for (const BulkFormat other : kFormats) MustComeBack(other, records);
}

absl::Duration TakeTtl(fuzz::Input& input) {
  if (input.Flag()) return absl::InfiniteDuration();
  const absl::Duration ttl = absl::Microseconds(static_cast<int64_t>(input.Number() >> 1));
  return std::clamp(ttl, absl::Nanoseconds(1), kTtlMax());
}

std::vector<BulkRecord> TakeRecords(fuzz::Input& input) {
  std::vector<BulkRecord> records;
  for (uint32_t left = input.Choice(6); left > 0; --left) {
    BulkRecord& record = records.emplace_back();
    record.key = absl::StrCat("k", input.Text(40));
    record.value = input.Text(200);
    record.ttl = TakeTtl(input);
  }
  return records;
}

// Any one change of a binary file must be noticed, and what was read before it is what was written.
void TakeDamage(fuzz::Input& input) {
  const std::vector<BulkRecord> records = TakeRecords(input);
  const std::string text = Written(BulkFormat::kBinary, records);
  const Outcome before = Read(BulkFormat::kBinary, {text});
  std::string damaged = text;
  const size_t at = input.Any<uint32_t>() % text.size();
  switch (input.Choice(5)) {
    case 0:
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (input.Byte() & 7)));
      break;
    case 1:
      damaged.resize(at);
      break;
    case 2:
      damaged.insert(at, input.Bytes(40));
      break;
    case 3:
      damaged.erase(at, 1 + input.UpTo(100));
      break;
    case 4:  // a piece of it twice
      damaged.insert(at, text.substr(at / 2, 32 + input.UpTo(100)));
      break;
  }
  if (damaged == text) return;
  const Outcome outcome = Read(BulkFormat::kBinary, {damaged});
  OSPREY_MUST(outcome.is_broken, "a damaged file that is accepted");
  OSPREY_MUST(
      outcome.records.size() <= before.records.size() &&
          std::equal(outcome.records.begin(), outcome.records.end(), before.records.begin(), Same),
      "a record of a damaged file that was never written");
}

// An export that was interrupted, and went on.
void TakeRecordsAll(fuzz::Input& input) {
  std::vector<BulkRecord> records = TakeRecords(input);
  for (const BulkFormat format : kFormats) MustComeBack(format, records);
  const size_t first = input.UpTo(records.size());
  if (first == 0) return;
  const std::unique_ptr<BulkWriter> writer = NewBulkWriter(BulkFormat::kBinary);
  std::string text;
  writer->Begin(text);
  for (size_t i = 0; i < first; ++i)
    OSPREY_MUST(writer->Append(records[i], text).ok(), "a record that cannot be written");
  OSPREY_MUST(
      text + Written(BulkFormat::kBinary, records, first) == Written(BulkFormat::kBinary, records),
      "an export that went on is another one");
}

void MustBeSameState(const ExportState& state) {
  const absl::StatusOr<ExportState> same = ExportState::Parse(state.Text());
  OSPREY_MUST(same.ok() && same->format == state.format && same->prefix == state.prefix &&
                  same->cursor == state.cursor && same->records == state.records &&
                  same->bytes == state.bytes,
              "a state that is another one when it comes back");
}

void TakeState(fuzz::Input& input) {
  if (input.Flag()) {
    ExportState state;
    state.format = std::string(NameOf(kFormats[input.Choice(3)]));
    state.records = input.Number();
    state.bytes = input.Number();
    state.prefix = input.Rest();
    return MustBeSameState(state);
  }
  const absl::StatusOr<ExportState> state = ExportState::Parse(input.Rest());
  if (state.ok()) return MustBeSameState(*state);
  OSPREY_MUST(absl::IsInvalidArgument(state.status()) && !state.status().message().empty() &&
                  !absl::StrContains(state.status().message(), "\n"),
              "an error of several lines, or of none");
}

void One(fuzz::Input input) {
  enum { kJsonl, kCsv, kBinary, kRecords, kDamage, kState, kKinds };
  switch (input.Choice(kKinds)) {
    case kJsonl:
      return TakeFile(BulkFormat::kJsonl, input);
    case kCsv:
      return TakeFile(BulkFormat::kCsv, input);
    case kBinary:
      return TakeFile(BulkFormat::kBinary, input);
    case kRecords:
      return TakeRecordsAll(input);
    case kDamage:
      return TakeDamage(input);
    case kState:
      return TakeState(input);
  }
}

}  // namespace
}  // namespace osprey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::One(osprey::fuzz::Input(data, size));
  return 0;
}
