// Results of writes that do not write, for the parts of Table.

#ifndef OSPREY_INDEX_WRITER_KEYS_WRITE_RESULTS_H_
#define OSPREY_INDEX_WRITER_KEYS_WRITE_RESULTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "index/space/region_writer.h"
#include "index/writer/keys/writes.h"

namespace osprey::index {

WriteResult Outcome(absl::Status status, uint64_t version = 0);
WriteResult NoSuchKey();
WriteResult Full();
WriteResult ChainFull();
WriteResult VersionsUsedUp();
inline WriteResult Written(uint64_t version) {
  WriteResult result;
  result.version = version;
  return result;
}
// Begins a write. False if it is refused, since the versions are used up.
inline bool BeginWrite(RegionWriter& writer) {
  writer.BeginWrite();
  return writer.CasVersionsLeft(kCasVersionsPerWriteMax);
}
// An error with the bound, unless AreLengthsPossible.
absl::Status CheckLengths(uint64_t key_length, uint64_t value_length);
constexpr bool AreLengthsPossible(uint64_t key_length, uint64_t value_length) {
  return key_length > 0 && key_length <= kKeyBytesMax && value_length <= kValueBytesMax;
}
absl::Status CheckVersionsLeft(RegionWriter& writer);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_KEYS_WRITE_RESULTS_H_
