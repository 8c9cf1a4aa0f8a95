#include "server/cluster/table/value_parts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/cluster/table/replicated_changes.h"
#include "xxhash.h"

namespace osprey::server {

std::string ValuePartBody(uint32_t partition, absl::string_view key, index::ByteSpan value,
                          uint64_t offset, uint64_t part_bytes) {
  wal::Entry entry;
  entry.kind = wal::EntryKind::kValuePart;
  entry.key = key;
  entry.value = value.subspan(offset, std::min(part_bytes, value.size() - offset));
  entry.value_length = entry.value.size();
  if (entry.value_length > wal::kShortValueBytesMax)
    entry.value_checksum = XXH3_64bits(entry.value.data(), entry.value.size());
  entry.version = offset + entry.value_length;
  entry.sequence = value.size();
  return BodyOfEntry(partition, entry);
}

std::string PartsDroppedBody(uint32_t partition) {
  wal::Entry entry;
  entry.kind = wal::EntryKind::kPartsDropped;
  return BodyOfEntry(partition, entry);
}

std::vector<wal::PieceRef> PartsOf(uint64_t value_bytes, uint64_t part_bytes) {
  std::vector<wal::PieceRef> parts;
  for (uint64_t offset = 0; offset < value_bytes; offset += part_bytes) {
    wal::PieceRef part;
    part.record = parts.size() + 1;
    part.length = static_cast<uint32_t>(std::min(part_bytes, value_bytes - offset));
    parts.push_back(part);
  }
  return parts;
}

std::string WhyWrongParts(const wal::Entry& entry) {
  // (Of a put's value each part was checked by itself.)
  if (entry.kind != wal::EntryKind::kValuePart)
    return entry.kind == wal::EntryKind::kPut ? "" : "what is no put has parts";
  if (entry.value_length == 0 || entry.value_length > kValuePartBytesMax ||
      entry.version < entry.value_length || entry.version > entry.sequence ||
      entry.sequence > wal::kValueBytesMax) {
    return absl::StrCat("a part of a value has the bytes up to ", entry.version, " of ",
                        entry.sequence, ", and ", entry.value_length, " of its own");
  }
  return "";
}

}  // namespace osprey::server
