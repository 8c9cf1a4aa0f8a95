#include "index/layout/record.h"

#include "index/layout/hash.h"
#include "index/layout/test_hooks.h"

namespace osprey::index {
namespace {

// Any odd number makes the multiplication a bijection; this one is 2^64 divided by the golden
// ratio.
constexpr uint64_t kHeaderFactor = 0x9e3779b97f4a7c15;

}  // namespace

// Each of the three terms is a bijection of its input, so a change of one term alone always changes
// the sum.
uint64_t RecordChecksum(uint64_t contents_hash, uint32_t version, uint32_t tag, RecordPlace place) {
  if (IsMutant(Mutant::kChecksumWithoutVersion)) version = 0;
  if (IsMutant(Mutant::kChecksumWithoutOffset)) place.offset = 0;
  if (IsMutant(Mutant::kChecksumWithoutIncarnation)) place.incarnation = 0;
  const uint64_t header = uint64_t{tag} << 32 | version;
  return contents_hash ^ header * kHeaderFactor ^ Mix(place.offset ^ place.incarnation);
}

bool RecordIsWhole(ByteSpan record, RecordPlace place) {
  const RecordHeader header = HeaderOf(record);
  if (IsBeingWritten(header.version)) return false;
  const uint64_t contents_hash = HashBytes(record.subspan(sizeof(RecordHeader)));
  return header.checksum == RecordChecksum(contents_hash, header.version, header.tag, place);
}

}  // namespace osprey::index
