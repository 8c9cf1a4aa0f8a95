#include "index/layout/serving_record.h"

#include <cassert>
#include <cstring>

#include "index/layout/record.h"

namespace osprey::index {

absl::optional<ServingState> ReadServingRecord(ByteSpan bytes, uint64_t region_incarnation) {
  assert(bytes.size() == sizeof(ServingRecord));
  ServingRecord copy;
  std::memcpy(&copy, bytes.data(), sizeof(copy));
  if (copy.record.tag != kServingRecordTag) return absl::nullopt;
  if (!RecordIsWhole(bytes, {kServingRecordOffset, region_incarnation})) return absl::nullopt;
  // No server writes such a record.
  if (copy.state.incarnation == 0 || copy.reserved != 0) return absl::nullopt;
  return copy.state;
}

}  // namespace osprey::index
