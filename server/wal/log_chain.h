// The segments that count, found from the newest one back.
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_WAL_LOG_CHAIN_H_
#define OSPREY_SERVER_WAL_LOG_CHAIN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/wal/data_directory.h"
#include "server/wal/format/format.h"

namespace osprey::server::wal {

struct LogChain {
  std::vector<SegmentHeader> segments;  // from the redo point's, oldest first
  uint64_t newest_number = 0;           // the highest number of any file
};

// Reads the headers alone. The newest segment with a valid header is the last of the chain: a later
// one without was never known to be synced, unless CURRENT or a close record names it. In a copy,
// those behind CURRENT count only if the copy itself wrote them. Errors:
// DATA_LOSS if a segment is missing or damaged that CURRENT or a later one names.
absl::StatusOr<LogChain> FindLogChain(const DataDirectory& directory, const CurrentHeader& current);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_LOG_CHAIN_H_
