// What became of the operations of a simulation's clients: outcomes for the histories, and rules that
// each answer keeps by itself.

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/reasons.h"
#include "index/layout/hash.h"
#include "tests/simulation/workload.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;

// A turn that begins this long after an operation's deadline ends it. (Clients' clocks differ.)
constexpr int64_t kLateMax = 2'000'000;
// … and its answer is accepted.
constexpr int64_t kBelievedLateMax = 50'000'000;

void Tell(const Value& value, Operation& operation) {
  operation.answer = value.bytes;
  operation.version = value.version;
}
void Tell(const Number& number, Operation& operation) {
  operation.answer = absl::StrCat(number.value);
  operation.version = number.version;
}
void Tell(uint64_t version, Operation& operation) { operation.version = version; }

Operation::Outcome OutcomeOf(const absl::Status& status, Kind kind) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return Operation::Outcome::kOk;
    case absl::StatusCode::kNotFound:
      return Operation::Outcome::kNotFound;
    case absl::StatusCode::kAlreadyExists:
      return Operation::Outcome::kExists;
    case absl::StatusCode::kFailedPrecondition:
      return Operation::Outcome::kWrong;
    default:
      break;
  }
  if (IsRead(kind) || MayBeApplied(status)) return Operation::Outcome::kUnknown;
  return Operation::Outcome::kUnapplied;
}

uint64_t HashOf(absl::string_view text) {
  return index::HashBytes({reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

}  // namespace

template <typename T>
void Workload::Ended(const Start& start, const absl::StatusOr<T>& answer) {
  --in_flight_;
  ++report_.operations;
  Operation& operation = *start.operation;
  const bool at_once = operation.returned != Operation::kNever;
  if (!at_once) operation.returned = world_.Tick();
  operation.outcome = OutcomeOf(answer.status(), operation.kind);
  if (operation.outcome == Operation::Outcome::kUnknown && !IsRead(operation.kind))
    ++report_.unknown;
  if (answer.ok()) {
    CountDone(operation.kind);
    Tell(*answer, operation);
    versions_[{start.client.number, start.key}] = operation.version;
  } else if (cleaning_ && !absl::IsNotFound(answer.status())) {
    cleaning_failed_ = true;
  }
  Trace(static_cast<uint64_t>(operation.returned));
  Trace(static_cast<uint64_t>(operation.kind) << 8 | static_cast<uint64_t>(operation.outcome));
  Trace(operation.version);
  Trace(HashOf(operation.answer));
  const absl::StatusCode code = answer.status().code();
  if (code == absl::StatusCode::kInternal || code == absl::StatusCode::kInvalidArgument ||
      code == absl::StatusCode::kDataLoss) {
    Wrong(absl::StrCat(operation.ToString(), ": ", answer.status().ToString()));
  }
  // R4, plus the time for which a Poll was stopped after its clock read. A call that answers GETs
  // before it returns may be stopped where it posts READs.
  const bool believed_late =
      at_once ? operation.returned > start.deadline + kLateMax && !start.reads_posted
              : start.client.poll_began > start.deadline + kBelievedLateMax;
  if (answer.ok() && operation.kind == Kind::kGet && believed_late)
    Wrong(absl::StrCat(operation.ToString(), " was accepted after its deadline"));
  // However long the client had no turn.
  const int64_t late = start.client.previous_poll_began - start.deadline;
  if (!at_once && late > kLateMax) {
    Wrong(absl::StrCat(operation.ToString(), " was not answered in a turn ", late / 1'000'000,
                       " ms after its deadline"));
  }
}

template void Workload::Ended(const Start& start, const absl::StatusOr<Value>& answer);
template void Workload::Ended(const Start& start, const absl::StatusOr<Number>& answer);
template void Workload::Ended(const Start& start, const absl::StatusOr<uint64_t>& answer);

void Workload::CountDone(Kind kind) {
  switch (kind) {
    case Kind::kPut:
      ++report_.puts_done;
      return;
    case Kind::kPutIfAbsent:
    case Kind::kPutIfVersion:
    case Kind::kDeleteIfVersion:
      ++report_.conditional_done;
      return;
    case Kind::kDelete:
      ++report_.deletes_done;
      return;
    case Kind::kIncrement:
      ++report_.increments_done;
      return;
    case Kind::kAppend:
      ++report_.appends_done;
      return;
    case Kind::kExpire:
    case Kind::kPersist:
      ++report_.expires_done;
      return;
    default:
      return;
  }
}

}  // namespace osprey
