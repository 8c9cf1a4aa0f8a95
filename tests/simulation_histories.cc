#include "tests/simulation_histories.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;
using History = std::vector<std::shared_ptr<Operation>>;

bool IsRead(Kind kind) { return kind == Kind::kGet || kind == Kind::kExists; }

bool MayHaveHappened(const Operation& op) {
  return op.outcome == Outcome::kOk || op.outcome == Outcome::kUnknown;
}

// When it can no longer take effect.
int64_t EndOf(const Operation& op) {
  return op.outcome == Outcome::kUnknown ? Operation::kNever : op.returned;
}

bool MakesPresent(Kind kind) {
  switch (kind) {
    case Kind::kPut:
    case Kind::kPutIfAbsent:
    case Kind::kPutIfVersion:
    case Kind::kIncrement:
    case Kind::kAppend:
      return true;
    case Kind::kGet:
    case Kind::kExists:
    case Kind::kDelete:
    case Kind::kDeleteIfVersion:
    case Kind::kExpire:
    case Kind::kPersist:
    case Kind::kLoss:
      return false;
  }
  return false;
}

// Whether the key may be absent after it, or because of it.
bool MayEnd(const Operation& op) {
  switch (op.kind) {
    case Kind::kDelete:
    case Kind::kDeleteIfVersion:
    case Kind::kLoss:
      return true;
    default:
      return op.ttl != 0;
  }
}

// It says that the key was there at some moment of it.
bool ShowsPresent(const Operation& op) {
  if (op.outcome == Outcome::kExists || op.outcome == Outcome::kWrong) return true;
  return op.outcome == Outcome::kOk && (MakesPresent(op.kind) || IsRead(op.kind));
}

// … that it was absent at some moment of it.
bool ShowsAbsent(const Operation& op) {
  if (op.outcome == Outcome::kNotFound) return true;
  return op.outcome == Outcome::kOk &&
         (op.kind == Kind::kDelete || op.kind == Kind::kDeleteIfVersion || op.kind == Kind::kLoss);
}

std::string JudgeScan(const Histories& histories, const ScanHistory& scan) {
  for (const auto& [key, history] : histories.keys) {
    const bool found = scan.keys.count(key) != 0;
    if (!found && WasPresentThroughout(history, scan.call, scan.returned))
      return absl::StrCat("a scan from ", scan.call, " to ", scan.returned, " missed '", key,
                          "', which was there all the while");
    if (found && WasAbsentThroughout(history, scan.call, scan.returned))
      return absl::StrCat("a scan from ", scan.call, " to ", scan.returned, " found '", key,
                          "', which was not there all the while");
  }
  for (const std::string& key : scan.keys) {
    if (histories.keys.count(key) == 0)
      return absl::StrCat("a scan found '", key, "', which nobody wrote");
  }
  return "";
}

}  // namespace

bool WasPresentThroughout(const History& history, int64_t from, int64_t to) {
  int64_t ended_from = from;  // no later than this, some operation shows that it is there
  bool shown = false;
  for (const auto& op : history) {
    if (!ShowsPresent(*op) || op->returned >= from) continue;
    if (!shown || op->call > ended_from) ended_from = op->call;
    shown = true;
  }
  if (!shown) return false;
  return std::none_of(history.begin(), history.end(), [&](const auto& op) {
    if (!MayEnd(*op) || !MayHaveHappened(*op) || op->call > to) return false;
    // A time to live may end the key at any later time.
    return op->ttl != 0 || EndOf(*op) >= ended_from;
  });
}

bool WasAbsentThroughout(const History& history, int64_t from, int64_t to) {
  // The latest moment before `from` from which on it is known to be absent; the beginning, too.
  int64_t absent_from = -1;
  for (const auto& op : history) {
    if (ShowsAbsent(*op) && op->returned < from) absent_from = std::max(absent_from, op->call);
  }
  return std::none_of(history.begin(), history.end(), [&](const auto& op) {
    return MakesPresent(op->kind) && MayHaveHappened(*op) && op->call <= to &&
           EndOf(*op) >= absent_from;
  });
}

HistoriesVerdict Judge(const Histories& histories) {
  HistoriesVerdict result;
  for (const auto& [key, pointers] : histories.keys) {
    std::vector<Operation> history;
    history.reserve(pointers.size());
    for (const auto& operation : pointers) history.push_back(*operation);
    const Verdict verdict = CheckLinearizable(std::move(history));
    result.undecided += verdict.decided ? 0 : 1;
    if (!verdict.linearizable) {
      result.wrong = absl::StrCat("key '", key, "': ", verdict.explanation);
      return result;
    }
  }
  for (const ScanHistory& scan : histories.scans) {
    result.wrong = JudgeScan(histories, scan);
    if (!result.wrong.empty()) break;
  }
  return result;
}

}  // namespace osprey
