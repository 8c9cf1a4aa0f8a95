// Why an operation failed, for programs. rdma/reasons.h has the reasons, and ReasonOf.

#ifndef OSPREY_CLIENT_REASONS_H_
#define OSPREY_CLIENT_REASONS_H_

#include "absl/status/status.h"
#include "rdma/reasons.h"

namespace osprey {

// Whether a failed write may have been applied, or may still be, once. False: it was not applied
// and never will be. The message says the same. Thread-safe.
bool MayBeApplied(const absl::Status& status);

}  // namespace osprey

#endif  // OSPREY_CLIENT_REASONS_H_
