#include "tests/history/outcome.h"

#include "client/reasons.h"

namespace osprey {

using Outcome = Operation::Outcome;

Outcome OutcomeOf(const absl::Status& status, Operation::Kind kind) {
  if (status.ok()) return Outcome::kOk;
  switch (ReasonOf(status)) {
    case Reason::kAbsent:
      return Outcome::kNotFound;
    case Reason::kPresent:
      return Outcome::kExists;
    case Reason::kWrongVersion:
    case Reason::kNotANumber:
    case Reason::kOverflow:
      return Outcome::kWrong;
    default:
      return IsRead(kind) || MayBeApplied(status) ? Outcome::kUnknown : Outcome::kUnapplied;
  }
}

}  // namespace osprey
