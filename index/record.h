// Records: how a private copy of remote bytes is believed.
//
// A reader copies a record while it may be being written, in an order that nobody promises. The
// copy is believed when its version is even and its checksum fits: the checksum covers every byte
// of the contents, the version, the tag, the place and the server's life, so a mixture of two
// states, an old state that was copied in part, or bytes that were something else, do not fit. The
// version's parity makes rejection cheap; the checksum makes acceptance safe.

#ifndef OSPREY_INDEX_RECORD_H_
#define OSPREY_INDEX_RECORD_H_

#include <cassert>
#include <cstdint>
#include <cstring>

#include "index/layout.h"

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

// Where a record is and in which life of the server: what its checksum binds it to.
struct RecordPlace {
  uint64_t offset = 0;  // of the record, in the region
  uint64_t incarnation = 0;
};

// The checksum of a record whose contents hash (HashBytes) to `contents_hash`. For given contents
// any other version, tag, offset or incarnation gives another checksum for certain, not only very
// probably.
//
// An item's is ItemChecksum (item.h), of which this is a part.
uint64_t RecordChecksum(uint64_t contents_hash, uint32_t version, uint32_t tag, RecordPlace place);

// The header of a record, out of a copy of it. REQUIRES: bytes.size() >= sizeof(RecordHeader).
inline RecordHeader HeaderOf(ByteSpan bytes) {
  assert(bytes.size() >= sizeof(RecordHeader));
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header;
}

// Whether `record`, a private copy of exactly one record, is whole: what a writer had finished, at
// this place, in this life. The first of the room's two functions about records; the other is
// RegionWriter's Begin … Seal (writer.h).
bool RecordIsWhole(ByteSpan record, RecordPlace place);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_RECORD_H_
