// What the writer answers when it does not write, for the parts of Table.

#ifndef OSPREY_INDEX_OUTCOMES_H_
#define OSPREY_INDEX_OUTCOMES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "index/table.h"
#include "index/writer.h"

namespace osprey::index {

WriteResult Outcome(absl::Status status, uint64_t version = 0);
WriteResult NoSuchKey();
WriteResult Full();
absl::Status CheckLengths(uint64_t key_length, uint64_t value_length);
absl::Status CheckVersionsLeft(RegionWriter& writer);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_OUTCOMES_H_
