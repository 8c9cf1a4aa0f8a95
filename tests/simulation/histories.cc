#include "tests/simulation/histories.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;
using History = std::vector<std::shared_ptr<Operation>>;

bool MayHaveHappened(const Operation& op) {
  return op.outcome == Outcome::kOk || op.outcome == Outcome::kUnknown;
}

// Whether the key may be absent after the operation, or because of it.
bool MayEnd(const Operation& op) {
  switch (op.kind) {
    case Kind::kDelete:
    case Kind::kDeleteIfVersion:
    case Kind::kLoss:
    case Kind::kEvicted:
      return true;
    case Kind::kRestart:
      return false;
    default:
      return op.ttl != 0;
  }
}

// The operation proves that the key was present at some moment of it.
bool ShowsPresent(const Operation& op) {
  if (op.outcome == Outcome::kExists || op.outcome == Outcome::kWrong) return true;
  return op.outcome == Outcome::kOk && (StoresValue(op.kind) || IsRead(op.kind));
}

// … that it was absent at some moment of it.
bool ShowsAbsent(const Operation& op) {
  if (op.outcome == Outcome::kNotFound) return true;
  return op.outcome == Outcome::kOk &&
         (op.kind == Kind::kDelete || op.kind == Kind::kDeleteIfVersion || op.kind == Kind::kLoss ||
          op.kind == Kind::kEvicted);
}

}  // namespace

class Greatest {
 public:
  void Add(int64_t at, int64_t value) { all_.emplace_back(at, value); }
  void Sort() {
    std::sort(all_.begin(), all_.end());
    for (size_t i = 1; i < all_.size(); ++i)
      all_[i].second = std::max(all_[i].second, all_[i - 1].second);
  }
  // The greatest of those up to `to`; `none` if there is none.
  int64_t UpTo(int64_t to, int64_t none) const {
    const auto behind =
        std::upper_bound(all_.begin(), all_.end(), std::make_pair(to, Operation::kNever));
    return behind == all_.begin() ? none : std::prev(behind)->second;
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> all_;
};

struct KeyTimes::Times {
  Greatest present;  // calls of operations that show that it was there, by their
                     // return
  Greatest absent;   // likewise, that it was not
  Greatest ends;     // the last times at which operations may end the key, by their call
  Greatest begins;   // … may put the key
};

KeyTimes::KeyTimes(const History& history) : times_(std::make_unique<Times>()) {
  std::vector<std::pair<int64_t, int64_t>> losses;
  for (const auto& op : history) {
    if (op->kind == Kind::kLoss || op->kind == Kind::kRestart)
      losses.emplace_back(op->call, op->returned);
  }
  std::sort(losses.begin(), losses.end());
  for (const auto& op : history) {
    if (ShowsPresent(*op)) times_->present.Add(op->returned, op->call);
    if (ShowsAbsent(*op)) times_->absent.Add(op->returned, op->call);
    if (!MayHaveHappened(*op)) continue;
    int64_t end = op->returned;
    if (op->outcome == Outcome::kUnknown) {
      const auto loss = std::upper_bound(losses.begin(), losses.end(),
                                         std::make_pair(op->returned, Operation::kNever));
      end = loss == losses.end() ? Operation::kNever : loss->second;
    }
    if (StoresValue(op->kind)) times_->begins.Add(op->call, end);
    // A time to live may end the key at any later time.
    if (MayEnd(*op)) times_->ends.Add(op->call, op->ttl != 0 ? Operation::kNever : end);
  }
  for (Greatest* each : {&times_->present, &times_->absent, &times_->ends, &times_->begins})
    each->Sort();
}

KeyTimes::~KeyTimes() = default;
KeyTimes::KeyTimes(KeyTimes&&) noexcept = default;

bool KeyTimes::PresentThroughout(int64_t from, int64_t to) const {
  constexpr int64_t kNone = -1;
  const int64_t present_from = times_->present.UpTo(from - 1, kNone);
  return present_from != kNone && times_->ends.UpTo(to, kNone) < present_from;
}

bool KeyTimes::AbsentThroughout(int64_t from, int64_t to) const {
  // At the start the key is absent, too.
  return times_->begins.UpTo(to, -2) < times_->absent.UpTo(from - 1, -1);
}

namespace {

// A condition on a version must not match another write's version, even in another incarnation of
// the server.
std::string JudgeVersions(const History& history) {
  std::map<uint64_t, const Operation*> written;
  for (const auto& op : history) {
    if (op->outcome != Outcome::kOk || op->version == 0 || !StoresValue(op->kind)) continue;
    const auto [first, is_new] = written.emplace(op->version, op.get());
    if (!is_new)
      return absl::StrCat("two writes have one version: ", first->second->ToString(), " and ",
                          op->ToString());
  }
  return "";
}

std::string JudgeScan(const std::map<std::string, KeyTimes>& times, const ScanHistory& scan) {
  const std::string when = absl::StrCat("a scan from ", scan.call, " to ", scan.returned);
  for (const auto& [key, of_key] : times) {
    const bool found = scan.keys.count(key) != 0;
    if (!found && of_key.PresentThroughout(scan.call, scan.returned))
      return absl::StrCat(when, " missed '", key, "', which was there all the while");
    if (found && of_key.AbsentThroughout(scan.call, scan.returned))
      return absl::StrCat(when, " found '", key, "', which was not there all the while");
  }
  for (const std::string& key : scan.keys) {
    if (times.count(key) == 0)
      return absl::StrCat(when, " found '", key, "', which no operation wrote");
  }
  return "";
}

}  // namespace

HistoriesVerdict Judge(const Histories& histories) {
  HistoriesVerdict result;
  std::vector<const Operation*> history;
  for (const auto& [key, pointers] : histories.keys) {
    if (const std::string wrong = JudgeVersions(pointers); !wrong.empty()) {
      result.wrong = absl::StrCat("key '", key, "': ", wrong);
      return result;
    }
    history.clear();
    for (const auto& operation : pointers) history.push_back(operation.get());
    const Verdict verdict = CheckLinearizable(history);
    result.undecided += verdict.decided ? 0 : 1;
    if (!verdict.linearizable) {
      result.wrong = absl::StrCat("key '", key, "': ", verdict.explanation);
      return result;
    }
  }
  if (histories.scans.empty()) return result;
  std::map<std::string, KeyTimes> times;
  for (const auto& [key, pointers] : histories.keys) times.emplace(key, KeyTimes(pointers));
  for (const ScanHistory& scan : histories.scans) {
    result.wrong = JudgeScan(times, scan);
    if (!result.wrong.empty()) break;
  }
  return result;
}

}  // namespace osprey
