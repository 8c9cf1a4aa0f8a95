// Records: validation of a private copy of remote bytes.
//
// A reader may copy a record while it is being written, in any order of its bytes. It accepts the
// copy if the version is even and the checksum matches. The checksum covers every byte of the
// contents, the version, the tag, the place and the server's incarnation. So a mixture of two
// states, a partial copy of an old state, or unrelated bytes do not match. The parity of the
// version makes rejection cheap; the checksum makes acceptance safe.

#ifndef OSPREY_INDEX_LAYOUT_RECORD_H_
#define OSPREY_INDEX_LAYOUT_RECORD_H_

#include <cassert>
#include <cstdint>
#include <cstring>

#include "index/layout/layout.h"
#include "index/layout/test_hooks.h"

namespace osprey::index {

// A bijection in which every input bit reaches every output bit (the finalizer of MurmurHash3).
constexpr uint64_t Mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccd;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53;
  return x ^ x >> 33;
}

// Versions are 31 bits of the cas counter and a bit that says "being written".
constexpr uint32_t RecordVersion(uint64_t cas_version) {
  return static_cast<uint32_t>(cas_version << 1);
}
constexpr bool IsBeingWritten(uint32_t version) { return (version & 1) != 0; }

// The place of a record, to which its checksum is bound.
struct RecordPlace {
  uint64_t offset = 0;  // of the record, in the region
  uint64_t incarnation = 0;
};

// The checksum of a record whose contents have the hash `contents_hash` (HashBytes). For given
// contents any other version, tag, offset or incarnation always gives another checksum, not only
// with high probability.
//
// Items use ItemChecksum (item.h), of which this is a part.
inline uint64_t RecordChecksum(uint64_t contents_hash, uint32_t version, uint32_t tag,
                               RecordPlace place) {
  // Any odd number makes the multiplication a bijection; this one is 2^64 divided by the golden
  // ratio.
  constexpr uint64_t kHeaderFactor = 0x9e3779b97f4a7c15;
  if (IsMutant(Mutant::kChecksumWithoutVersion)) version = 0;
  if (IsMutant(Mutant::kChecksumWithoutOffset)) place.offset = 0;
  if (IsMutant(Mutant::kChecksumWithoutIncarnation)) place.incarnation = 0;
  const uint64_t header = uint64_t{tag} << 32 | version;
  // Each of the three terms is a bijection of its input, so a change of one term alone always
  // changes the sum.
  return contents_hash ^ header * kHeaderFactor ^ Mix(place.offset ^ place.incarnation);
}

// The header of a record, from a copy of it. REQUIRES: bytes.size() >= sizeof(RecordHeader).
inline RecordHeader HeaderOf(ByteSpan bytes) {
  assert(bytes.size() >= sizeof(RecordHeader));
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header;
}

// Whether `record`, a private copy of exactly one record, is whole: a record that a writer finished
// at this place, in this incarnation. Its counterpart is RegionWriter's Begin … Seal
// (space/region_writer.h).
bool RecordIsWhole(ByteSpan record, RecordPlace place);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LAYOUT_RECORD_H_
