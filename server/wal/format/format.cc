#include "server/wal/format/format.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "server/wal/format/checksum.h"

namespace osprey::server::wal {
namespace {

constexpr char kSegmentPrefix[] = "log-";
constexpr size_t kSegmentDigits = 16;

// Of all bytes but the last 8, where it stands.
template <typename T>
uint64_t ChecksumOf(const T& object) {
  return Checksum(BytesOf(object).first(sizeof(T) - sizeof(uint64_t)), 0);
}

uint64_t OriginsChecksum(absl::Span<const DirectoryId> origins) {
  if (origins.empty()) return 0;
  return Checksum(
      {reinterpret_cast<const std::byte*>(origins.data()), origins.size() * sizeof(DirectoryId)},
      0);
}

}  // namespace

std::string CheckFormat(uint32_t format) {
  if (format == kFormat) return "";
  return absl::StrCat("its format is ", format, "; this program has format ", kFormat);
}

bool HasBits(Bytes bytes) {
  return std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; });
}

bool Contains(absl::Span<const DirectoryId> ids, const DirectoryId& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

void FormatFile::Seal(absl::Span<const DirectoryId> more_origins) {
  origins = static_cast<uint32_t>(more_origins.size());
  origins_checksum = OriginsChecksum(more_origins);
  checksum = ChecksumOf(*this);
}

std::string FormatFile::OtherVersion() const {
  if (magic != kFormatMagic || checksum != ChecksumOf(*this)) return "";
  if (std::string wrong = CheckFormat(format); !wrong.empty()) return wrong;
  if ((incompatible_features & ~kIncompatibleFeatures) != 0)
    return absl::StrCat("it has features that this program lacks: ", incompatible_features);
  return "";
}

std::string FormatFile::Validate(absl::Span<const DirectoryId> more_origins) const {
  if (magic != kFormatMagic) return "it is no FORMAT file";
  if (checksum != ChecksumOf(*this)) return "its checksum is wrong";
  if (std::string other = OtherVersion(); !other.empty()) return other;
  if (shards == 0) return "it has no shards";
  if (directory == DirectoryId()) return "it has no directory id";
  if (directory == copied_from) return "it is a copy of itself";
  if (origins > kOriginsMax || (origins > 0 && copied_from == DirectoryId()))
    return absl::StrCat("it has ", origins, " origins");
  if (more_origins.size() != origins) return "its origins are cut off, or bytes follow them";
  if (origins_checksum != OriginsChecksum(more_origins))
    return "the checksum of its origins is wrong";
  if (reserved0 != 0 || HasBits(BytesOf(reserved))) return "reserved bytes are not zero";
  return "";
}

void SegmentHeader::Seal() { checksum = ChecksumOf(*this); }

std::string SegmentHeader::Validate(absl::Span<const DirectoryId> writers,
                                    uint64_t expected_number) const {
  if (magic != kSegmentMagic) return "it is no segment header";
  if (checksum != ChecksumOf(*this)) return "the segment header's checksum is wrong";
  if (std::string wrong = CheckFormat(format); !wrong.empty()) return wrong;
  if (!Contains(writers, directory)) return "the segment is of another data directory";
  if (number != expected_number)
    return absl::StrCat("the segment is number ", number, ", not ", expected_number);
  if (previous_number >= number) return "the segment follows a later one";
  const bool is_first = previous_number == 0;
  if (is_first != (previous_end == 0) || previous_end % kRecordAlignment != 0)
    return "the segment names no end of the one before";
  if (first_record == 0 || first_record > kRecordNumberMax || synced_to >= first_record)
    return "the segment's first record is out of order";
  if (reserved0 != 0 || HasBits(BytesOf(reserved))) return "reserved bytes are not zero";
  return "";
}

void RecordHeader::Seal(absl::Span<const Bytes> body, uint64_t seed) {
  body_checksum = Checksum(body, seed);
  header_checksum = HeaderChecksum(seed);
}

Bytes RecordHeader::Padding() const {
  static constexpr std::byte kZeros[kRecordAlignment] = {};
  return Bytes(kZeros).first(bytes() - sizeof(RecordHeader) - length);
}

uint64_t RecordHeader::HeaderChecksum(uint64_t seed) const {
  return Checksum(BytesOf(*this).first(offsetof(RecordHeader, header_checksum)), seed);
}

std::string RecordHeader::Validate(uint64_t seed) const {
  if (magic != kRecordMagic) return "there is no record";
  if (header_checksum != HeaderChecksum(seed)) return "the record header's checksum is wrong";
  if (length > kRecordBodyMax) return absl::StrCat("the record has ", length, " bytes");
  if (number == 0 || number > kRecordNumberMax || synced_to >= number)
    return "the record's number is out of order";
  return "";
}

std::string SegmentName(uint64_t number) {
  return absl::StrCat(kSegmentPrefix, absl::Dec(number, absl::kZeroPad16));
}

uint64_t SegmentNumber(absl::string_view name) {
  uint64_t number = 0;
  if (!absl::ConsumePrefix(&name, kSegmentPrefix) || name.size() != kSegmentDigits ||
      !absl::SimpleAtoi(name, &number) || SegmentName(number).substr(4) != name) {
    return 0;
  }
  return number;
}

absl::Status DamageError(const FileSystem& files, const std::string& name, uint64_t offset,
                         absl::string_view why) {
  return absl::DataLossError(absl::StrCat(files.PathOf(name), ", offset ", offset, ": ", why,
                                          "; restore the data directory from a backup"));
}

}  // namespace osprey::server::wal
