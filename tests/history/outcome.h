// The outcome of an operation of the client library, for a history.
//
// Thread rule: pure function.

#ifndef OSPREY_TESTS_HISTORY_OUTCOME_H_
#define OSPREY_TESTS_HISTORY_OUTCOME_H_

#include "absl/status/status.h"
#include "tests/history/linearizability.h"

namespace osprey {

// `status`: of a completed operation of that kind. A read that failed has kUnknown, which counts
// for nothing.
Operation::Outcome OutcomeOf(const absl::Status& status, Operation::Kind kind);

}  // namespace osprey

#endif  // OSPREY_TESTS_HISTORY_OUTCOME_H_
