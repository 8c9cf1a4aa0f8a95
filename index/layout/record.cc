#include "index/layout/record.h"

#include "index/layout/hash.h"

namespace osprey::index {
bool RecordIsWhole(ByteSpan record, RecordPlace place) {
  const RecordHeader header = HeaderOf(record);
  if (IsBeingWritten(header.version)) return false;
  const uint64_t contents_hash = HashBytes(record.subspan(sizeof(RecordHeader)));
  return header.checksum == RecordChecksum(contents_hash, header.version, header.tag, place);
}

}  // namespace osprey::index
