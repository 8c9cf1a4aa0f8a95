// Stores a set of keys and values through one Client, or reads it back and compares every byte.
//
// Each job has two passes. The first does all of it with `depth` operations in flight, for the
// rate. The second does a sample one at a time, for the latency of a single operation.
//
// Thread rule: that of the Client.

#ifndef OSPREY_TOOLS_QUICKSTART_D_CATALOG_JOB_H_
#define OSPREY_TOOLS_QUICKSTART_D_CATALOG_JOB_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/client.h"
#include "tools/common/histogram.h"
#include "tools/quickstart.d/deb_index.h"

namespace osprey {

struct JobOptions {
  int depth = 32;  // operations in flight; at most Options::operations_max of the Client
  uint64_t samples =
      2000;  // operations of the second pass, spread evenly; at most as many as there are keys
  // Called from time to time during the first pass.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

struct JobResult {
  uint64_t keys = 0;
  uint64_t bytes = 0;      // of values
  absl::Duration elapsed;  // of the first pass
  Histogram latency_ns;    // of the second pass
  // Set by Verify only.
  uint64_t missing = 0;
  uint64_t different = 0;
  std::string first_wrong_key;
  // For the second pass: the bytes that a GET of the median size READ, and the number of its READs.
  uint64_t median_get_read_bytes = 0;
  uint64_t median_get_reads = 0;
};

// Errors: that of the first failed operation, with its key.
absl::StatusOr<JobResult> PutAll(Client& client, absl::Span<const Stanza> stanzas,
                                 const JobOptions& options);

// Missing and different values are counted; they are not errors.
absl::StatusOr<JobResult> VerifyAll(Client& client, absl::Span<const Stanza> stanzas,
                                    const JobOptions& options);

}  // namespace osprey

#endif  // OSPREY_TOOLS_QUICKSTART_D_CATALOG_JOB_H_
