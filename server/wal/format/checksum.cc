#include "server/wal/format/checksum.h"

#include <cassert>

#include "server/wal/format/test_hooks.h"
#include "xxhash.h"
#ifdef __x86_64__
// Replaces the functions below by variants that select SSE2, AVX2 or AVX-512 at run time.
#include "xxh_x86dispatch.h"
#endif

namespace osprey::server::wal {

uint64_t Checksum(Bytes bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t Checksum(absl::Span<const Bytes> pieces, uint64_t seed) {
  if (pieces.size() == 1) return Checksum(pieces[0], seed);
  XXH3_state_t* const state = XXH3_createState();
  assert(state != nullptr);
  XXH3_64bits_reset_withSeed(state, seed);
  for (const Bytes& piece : pieces) XXH3_64bits_update(state, piece.data(), piece.size());
  const uint64_t checksum = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return checksum;
}

uint64_t SeedOf(uint64_t life, uint64_t number, uint64_t offset) {
  if (IsMutant(Mutant::kNoLife)) life = number = 0;
  // splitmix64's finalizer: neighbours in offset and number get unlike seeds.
  uint64_t seed = life ^ number * 0x9e3779b97f4a7c15 ^ offset * 0xd1342543de82ef95;
  seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9;
  seed = (seed ^ seed >> 27) * 0x94d049bb133111eb;
  return seed ^ seed >> 31;
}

}  // namespace osprey::server::wal
