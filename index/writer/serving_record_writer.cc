#include "index/writer/serving_record_writer.h"

#include <cassert>

#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/layout/record.h"

namespace osprey::index {

// Versions come from a counter of its own: no other record was ever at that place.
ServingRecordWriter::ServingRecordWriter(absl::Span<std::byte> region, uint64_t region_incarnation)
    : writer_(region.first(kDirectoryOffset), region_incarnation, /*cas_version=*/0) {}

void ServingRecordWriter::Write(const ServingState& state) {
  assert(state.incarnation != 0);
  ServingRecord record{};
  record.state = state;
  const ByteSpan contents = ByteSpan(reinterpret_cast<const std::byte*>(&record), sizeof(record))
                                .subspan(sizeof(RecordHeader));
  const uint32_t version = RecordVersion(writer_.NextCasVersion());
  const uint64_t checksum = RecordChecksum(HashBytes(contents), version, kServingRecordTag,
                                           writer_.PlaceOf(kServingRecordOffset));
  writer_.Begin(kServingRecordOffset, version, kServingRecordTag);
  writer_.Store(kServingRecordOffset + sizeof(RecordHeader), contents);
  writer_.SealVisibly(kServingRecordOffset, version, kServingRecordTag, checksum);
}

}  // namespace osprey::index
