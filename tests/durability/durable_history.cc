#include "tests/durability/durable_history.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

constexpr size_t kConfigurationsMax = 1 << 18;
// The clocks of client and server, and the steps of a time to live.
constexpr int64_t kTtlSlackNs = 50'000'000;

// Without a restart in its time, a key lives exactly as long as was requested.
void WidenTtl(Operation& op, const std::vector<Restart>& restarts) {
  if (op.ttl == 0) return;
  int64_t shorter = op.ttl, longer = op.ttl + kTtlSlackNs;
  for (const Restart& restart : restarts) {
    const bool meets = restart.ready_ns >= op.call && (op.returned == Operation::kNever ||
                                                       restart.ending_ns <= op.returned + longer);
    if (!meets) continue;
    shorter -= restart.unclean_ends * kClockAheadNs;
    longer += restart.ready_ns - restart.ending_ns;
  }
  op.ttl = std::max<int64_t>(shorter, 1);
  op.ttl_slack = longer - op.ttl;
}

bool MeetsRestart(const Operation& write, const Restart& restart) {
  return !IsRead(write.kind) && write.call < restart.ready_ns && write.returned > restart.ended_ns;
}

// Removes the reads from the call of a write that was under way at the end of a life, to that end.
// Returns their number.
uint64_t RemoveUnjudged(std::vector<Operation>& history, const std::vector<Restart>& restarts) {
  std::vector<std::pair<int64_t, int64_t>> intervals;
  for (const Restart& restart : restarts) {
    if (!restart.lost_unacknowledged) continue;
    for (const Operation& op : history) {
      if (MeetsRestart(op, restart)) intervals.emplace_back(op.call, restart.ready_ns);
    }
  }
  return std::erase_if(history, [&](const Operation& op) {
    return IsRead(op.kind) && std::any_of(intervals.begin(), intervals.end(), [&](const auto& in) {
             return op.returned > in.first && op.returned <= in.second;
           });
  });
}

// An operation sees a version that is no lower than that of any operation that had ended before it.
// A write draws a higher one.
std::string JudgeVersions(const std::vector<Operation>& history) {
  std::vector<const Operation*> by_call, by_return;
  std::set<uint64_t> drawn;
  for (const Operation& op : history) {
    if (op.outcome != Outcome::kOk || op.version == 0) continue;
    by_call.push_back(&op);
    if (StoresValue(op.kind) && !drawn.insert(op.version).second)
      return absl::StrCat("two writes have the version of ", op.ToString());
  }
  by_return = by_call;
  std::sort(by_call.begin(), by_call.end(),
            [](const Operation* a, const Operation* b) { return a->call < b->call; });
  std::sort(by_return.begin(), by_return.end(),
            [](const Operation* a, const Operation* b) { return a->returned < b->returned; });
  size_t ended = 0;
  const Operation* highest = nullptr;
  for (const Operation* op : by_call) {
    for (; ended < by_return.size() && by_return[ended]->returned < op->call; ++ended) {
      if (highest == nullptr || by_return[ended]->version > highest->version)
        highest = by_return[ended];
    }
    if (highest == nullptr) continue;
    const uint64_t least = highest->version + (StoresValue(op->kind) ? 1 : 0);
    if (op->version < least) {
      return absl::StrCat("the version fell from ", highest->ToString(), " to ", op->ToString());
    }
  }
  return "";
}

}  // namespace

DurableVerdict JudgeDurable(DurableHistories histories, const std::vector<Restart>& restarts) {
  DurableVerdict result;
  for (auto& [key, history] : histories) {
    for (Operation& op : history) {
      ++result.operations;
      result.unknown += !IsRead(op.kind) && op.outcome == Outcome::kUnknown;
      result.unapplied +=
          op.outcome == Outcome::kUnapplied || (IsRead(op.kind) && op.outcome == Outcome::kUnknown);
      WidenTtl(op, restarts);
    }
    result.unjudged += RemoveUnjudged(history, restarts);
    std::string wrong = JudgeVersions(history);
    if (wrong.empty()) {
      const Verdict verdict = CheckLinearizable(history, kConfigurationsMax);
      if (!verdict.decided) ++result.undecided;
      if (!verdict.linearizable) wrong = verdict.explanation;
    }
    if (!wrong.empty() && result.wrong.empty())
      result.wrong = absl::StrCat("key '", key, "': ", wrong);
  }
  return result;
}

}  // namespace osprey
