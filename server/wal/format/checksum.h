// XXH3-64, by the variant for the CPU that runs it. Every checksum on the disk is one of these.

#ifndef OSPREY_SERVER_WAL_FORMAT_CHECKSUM_H_
#define OSPREY_SERVER_WAL_FORMAT_CHECKSUM_H_

#include <cstdint>

#include "absl/types/span.h"
#include "server/wal/disk/file_system.h"

namespace osprey::server::wal {

uint64_t Checksum(Bytes bytes, uint64_t seed);
// As Checksum of the pieces one after the other.
uint64_t Checksum(absl::Span<const Bytes> pieces, uint64_t seed);

// Of what stands at `offset` of a file: a block that belongs to another file, to another place or
// to an earlier file of the same name has another seed. `life` is the file's random number.
uint64_t SeedOf(uint64_t life, uint64_t number, uint64_t offset);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_FORMAT_CHECKSUM_H_
