// Puts the long values of the log into the tables: their pieces lie apart from their entries, so threads
// read several values at once.
//
//   Add ──> jobs of up to 64 MiB ──> Finish: threads read, verify and put them, in any order
//
// Only the last put of a key is made, so the order does not matter. A batch is small beside the memory:
// values come nearly in the order of the log.
//
// Thread rule: one thread; it starts others, which end before its calls return.

#ifndef OSPREY_SERVER_DURABILITY_LONG_VALUE_LOADER_H_
#define OSPREY_SERVER_DURABILITY_LONG_VALUE_LOADER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/durability/restorer.h"
#include "server/wal/data_directory.h"
#include "server/wal/format/entries.h"
#include "server/wal/replay.h"

namespace osprey::server {

class LongValueLoader {
 public:
  // On so many threads, the calling one included, or on fewer if the system has no more. `directory` and
  // `restorer` outlive it.
  LongValueLoader(const wal::DataDirectory& directory, Restorer& restorer, uint32_t threads)
      : directory_(directory), restorer_(restorer), threads_(threads) {}

  // Puts the entry's value now, or later with others. Errors: those of Finish.
  absl::Status Add(const wal::Entry& entry, const std::vector<wal::PiecePlace>& pieces,
                   uint64_t expiry_ns);
  // Puts all that were added. Errors: DATA_LOSS (damage; names file and offset), those of FileSystem and
  // of Restorer::Put.
  absl::Status Finish();

 private:
  // Of an entry, whose texts are gone by then.
  struct Job {
    std::string key;
    uint64_t version = 0;
    uint64_t expiry_ns = 0;
    uint64_t value_length = 0;
    uint64_t value_checksum = 0;
    std::vector<wal::PiecePlace> pieces;
  };
  static constexpr uint64_t kBatchBytes = 64 << 20;

  absl::Status Put(const Job& job, wal::ValueReader& values);

  const wal::DataDirectory& directory_;
  Restorer& restorer_;
  const uint32_t threads_;
  std::vector<Job> jobs_;
  uint64_t bytes_ = 0;  // of their values
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_LONG_VALUE_LOADER_H_
