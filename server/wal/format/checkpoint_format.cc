#include "server/wal/format/checkpoint_format.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/wal/format/checksum.h"

namespace osprey::server::wal {
namespace {

constexpr char kPartPrefix[] = "checkpoint-";

}  // namespace

void PartHeader::Seal() {
  checksum = Checksum(BytesOf(*this).first(offsetof(PartHeader, checksum)), 0);
}

std::string PartHeader::Validate() const {
  if (magic != kPartMagic) return "it is no part of a checkpoint";
  if (checksum != Checksum(BytesOf(*this).first(offsetof(PartHeader, checksum)), 0))
    return "the part header's checksum is wrong";
  if (std::string wrong = CheckFormat(format); !wrong.empty()) return wrong;
  if (parts == 0 || parts > kPartsMax || part >= parts) return "the part's number is out of range";
  if (reserved0 != 0 || HasBits(BytesOf(reserved))) return "reserved bytes are not zero";
  return "";
}

void BlockHeader::Seal(Bytes body, uint64_t seed) {
  body_checksum = Checksum(body, seed);
  header_checksum = HeaderChecksum(seed);
}

uint64_t BlockHeader::HeaderChecksum(uint64_t seed) const {
  return Checksum(BytesOf(*this).first(offsetof(BlockHeader, header_checksum)), seed);
}

std::string BlockHeader::Validate(uint64_t seed) const {
  if (magic != kBlockMagic) return "there is no block";
  if (header_checksum != HeaderChecksum(seed)) return "the block header's checksum is wrong";
  if (length > kBlockBytesMax) return absl::StrCat("the block has ", length, " bytes");
  if (kind < static_cast<uint32_t>(BlockKind::kItems) ||
      kind > static_cast<uint32_t>(BlockKind::kFooter)) {
    return absl::StrCat("the block has the unknown kind ", kind);
  }
  return "";
}

std::string CurrentHeader::Validate(const DirectoryId& expected_directory) const {
  if (magic != kCurrentMagic) return "it is no CURRENT file";
  if (std::string wrong = CheckFormat(format); !wrong.empty()) return wrong;
  if (!(directory == expected_directory)) return "it is of another data directory";
  if (parts > kPartsMax || (parts == 0) != (checkpoint == 0))
    return absl::StrCat("its checkpoint has ", parts, " parts");
  if (redo_segment == 0 || redo_segment > newest_segment || redo_record == 0 ||
      redo_record > synced_to + 1) {
    return "its segments are out of order";
  }
  if (HasBits(BytesOf(reserved))) return "reserved bytes are not zero";
  return "";
}

uint64_t CurrentChecksum(const CurrentHeader& header, absl::Span<const PartSummary> parts) {
  const uint64_t seed = Checksum(BytesOf(header).first(offsetof(CurrentHeader, checksum)), 0);
  return Checksum(
      {reinterpret_cast<const std::byte*>(parts.data()), parts.size() * sizeof(PartSummary)}, seed);
}

std::string PartName(uint64_t checkpoint, uint32_t part) {
  return absl::StrCat(kPartPrefix, absl::Dec(checkpoint, absl::kZeroPad16), "-",
                      absl::Dec(part, absl::kZeroPad4));
}

bool ParsePartName(absl::string_view name, uint64_t& checkpoint, uint32_t& part) {
  absl::string_view rest = name;
  return absl::ConsumePrefix(&rest, kPartPrefix) && rest.size() == 16 + 1 + 4 &&
         absl::SimpleAtoi(rest.substr(0, 16), &checkpoint) &&
         absl::SimpleAtoi(rest.substr(17), &part) && PartName(checkpoint, part) == name;
}

}  // namespace osprey::server::wal
