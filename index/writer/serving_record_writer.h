// Writes a server's ServingRecord (index/layout/serving_record.h) into its region.
//
// Thread rule: one thread at a time. It shares no byte with the tables.

#ifndef OSPREY_INDEX_WRITER_SERVING_RECORD_WRITER_H_
#define OSPREY_INDEX_WRITER_SERVING_RECORD_WRITER_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "index/layout/serving_record.h"
#include "index/space/region_writer.h"

namespace osprey::index {

class ServingRecordWriter {
 public:
  // `region` is the whole region, of at least kDirectoryOffset bytes, and outlives this;
  // `region_incarnation` is that of its partition 0. At most one writer in a region's life.
  ServingRecordWriter(absl::Span<std::byte> region, uint64_t region_incarnation);

  // When it returns, a READ that begins finds this state, and none finds an earlier one.
  // REQUIRES: state.incarnation is not 0.
  void Write(const ServingState& state);

 private:
  RegionWriter writer_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_SERVING_RECORD_WRITER_H_
