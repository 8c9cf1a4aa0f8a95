#include "tests/history/linearizability.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/history/linearizability_model.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

constexpr int kPlaces = 64;
// The most interchangeable writes of unknown outcome that are examined.
constexpr int kAlikeMax = 2;
// … and the most of them that take effect for one other operation.
constexpr int kSpentMax = 2;
// The most comparisons for each possible configuration.
constexpr uint64_t kLooksMax = 1000;

struct Configuration {
  State state;
  uint64_t done = 0;   // pending operations, by place, that have had their instant
  int64_t latest = 0;  // the last instant was not before this
};

// Whether every continuation of `b` is also one of `a`. `optional`: operations that need not take
// effect.
bool Covers(const Configuration& a, const Configuration& b, uint64_t optional) {
  const State& s = a.state;
  const State& t = b.state;
  if (s.present != t.present || s.value != t.value) return false;
  // Operations that b has done and a has not may stay undone in a.
  if ((a.done & ~b.done) != 0 || (b.done & ~a.done & ~optional) != 0) return false;
  if (s.version != t.version && s.version != 0) return false;
  if (a.latest > b.latest) return false;
  if (s.expires_from == t.expires_from && s.expires_to == t.expires_to) return true;
  return s.expires_to != Operation::kNever && t.expires_to != Operation::kNever &&
         s.expires_from <= t.expires_from && s.expires_to >= t.expires_to;
}

// A set of configurations, none of which is covered by an earlier one.
class Frontier {
 public:
  void Clear(uint64_t optional) {
    optional_ = optional;
    all_.clear();
    groups_.clear();
  }
  // False if it is covered.
  bool Add(const Configuration& added) {
    if (all_.size() < kFew) {
      looks_ += all_.size();
      for (const Configuration& other : all_) {
        if (Covers(other, added, optional_)) return false;
      }
      all_.push_back(added);
      return true;
    }
    if (groups_.empty()) {
      for (uint32_t i = 0; i < all_.size(); ++i) groups_[GroupOf(all_[i])].push_back(i);
    }
    std::vector<uint32_t>& group = groups_[GroupOf(added)];
    looks_ += group.size();
    for (const uint32_t i : group) {
      if (Covers(all_[i], added, optional_)) return false;
    }
    group.push_back(static_cast<uint32_t>(all_.size()));
    all_.push_back(added);
    return true;
  }
  size_t size() const { return all_.size(); }
  uint64_t looks() const { return looks_; }
  const Configuration& operator[](size_t i) const { return all_[i]; }

 private:
  static constexpr size_t kFew = 12;  // few are compared faster than hashed
  using Group = std::pair<uint64_t, uint64_t>;

  // The part that two must have in common for one to cover the other.
  Group GroupOf(const Configuration& c) const {
    return {c.done & ~optional_, uint64_t{c.state.value} << 1 | (c.state.present ? 1 : 0)};
  }

  uint64_t optional_ = 0;
  uint64_t looks_ = 0;  // comparisons since the start
  std::vector<Configuration> all_;
  absl::flat_hash_map<Group, std::vector<uint32_t>> groups_;
};

bool IsUnknown(const Operation& op) { return op.outcome == Outcome::kUnknown; }

class Checker {
 public:
  Checker(std::vector<const Operation*> history, size_t configurations_max, int alike_max,
          int spent_max)
      : history_(std::move(history)),
        values_(history_),
        configurations_max_(configurations_max),
        alike_max_(alike_max),
        spent_max_(spent_max) {}

  Verdict Run() {
    struct Moment {
      int64_t time;
      bool is_return;
      size_t op;
    };
    std::vector<Moment> moments;
    moments.reserve(2 * history_.size());
    for (size_t i = 0; i < history_.size(); ++i) {
      const Operation& op = *history_[i];
      with_expiry_ |= op.ttl != 0;
      numbers_.push_back({values_.NumberOf(op.value), values_.NumberOf(op.answer)});
      moments.push_back({op.call, false, i});
      // An unknown write may still take effect after its return.
      if (!IsUnknown(op) && op.returned != Operation::kNever)
        moments.push_back({op.returned, true, i});
    }
    // Calls first: operations that touch at one time are concurrent.
    std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
      return a.time != b.time ? a.time < b.time : a.is_return < b.is_return;
    });
    configurations_ = {Configuration()};
    place_of_.resize(history_.size());
    for (const Moment& moment : moments) {
      if (!moment.is_return) {
        if (!Begin(moment.op)) return Undecided("too many operations are pending");
        continue;
      }
      if (!End(moment.op, moment.time)) return Undecided("too many configurations");
      if (!configurations_.empty()) continue;
      return left_out_ ? Undecided("too many writes of unknown end") : Wrong(moment.op);
    }
    return {};
  }

 private:
  uint64_t BitOf(size_t op) const { return uint64_t{1} << place_of_[op]; }

  bool Begin(size_t op) {
    const bool unknown = IsUnknown(*history_[op]);
    if (unknown && std::popcount(BetterThan(op)) >= alike_max_) return waiting_.push_back(op), true;
    if (taken_ == ~uint64_t{0}) return left_out_ = true, unknown;
    place_of_[op] = std::countr_one(taken_);
    taken_ |= BitOf(op);
    if (unknown) optional_ |= BitOf(op);
    pending_.push_back(op);
    return true;
  }

  void Forget(size_t op) {
    const uint64_t bit = BitOf(op);
    for (Configuration& at : configurations_) at.done &= ~bit;
    pending_.erase(std::find(pending_.begin(), pending_.end(), op));
    taken_ &= ~bit;
    optional_ &= ~bit;
  }

  // The operation must have had its instant by now. False: too much to examine.
  bool End(size_t op, int64_t now) {
    frontier_.Clear(optional_);
    better_.clear();
    for (const size_t other : pending_)
      better_.push_back(IsUnknown(*history_[other]) ? BetterThan(other) : 0);
    better_than_waiting_.clear();
    for (const size_t other : waiting_) better_than_waiting_.push_back(BetterThan(other));
    for (Configuration& at : configurations_) {
      Settle(at);
      LookAtLater(at, 0);
    }
    const uint64_t bit = BitOf(op);
    configurations_.clear();
    // Configurations with the fewest optional operations come first, since they cover most others.
    for (std::vector<uint32_t>& level : levels_) {
      while (!level.empty()) {
        const Configuration at = frontier_[level.back()];
        const int spent = spent_[level.back()];
        level.pop_back();
        if ((at.done & bit) != 0) {
          configurations_.push_back(at);
          continue;
        }
        for (const uint64_t better : better_than_waiting_) left_out_ |= (better & ~at.done) == 0;
        for (size_t i = 0; i < pending_.size(); ++i) {
          if ((at.done & BitOf(pending_[i])) != 0 || (better_[i] & ~at.done) != 0) continue;
          const int spends = spent + ((optional_ & BitOf(pending_[i])) != 0 ? 1 : 0);
          if (spends > spent_max_) {
            left_out_ = true;
          } else {
            Step(at, pending_[i], now, spends);
          }
        }
        if (frontier_.size() > configurations_max_ ||
            frontier_.looks() > kLooksMax * configurations_max_) {
          return false;
        }
      }
    }
    Tidy(op);
    return true;
  }

  void Tidy(size_t ended) {
    uint64_t done = optional_;  // by every remaining order
    for (const Configuration& at : configurations_) done &= at.done;
    const std::vector<size_t> pending = pending_;
    for (const size_t op : pending) {
      if (op == ended || (done & BitOf(op)) != 0) Forget(op);
    }
    std::vector<size_t> waited;
    std::swap(waited, waiting_);
    for (const size_t op : waited) {
      if (!EndsWith(*history_[op], *history_[ended])) Begin(op);
    }
  }

  // `spent`: the number of optional operations used since the last return.
  void LookAtLater(const Configuration& at, int spent) {
    if (!frontier_.Add(at)) return;
    spent_.resize(frontier_.size());
    spent_.back() = spent;
    const auto level = static_cast<size_t>(std::popcount(at.done & optional_));
    levels_[level].push_back(static_cast<uint32_t>(frontier_.size() - 1));
  }

  // A write that was given up is lost with its server.
  static bool EndsWith(const Operation& op, const Operation& loss) {
    return (loss.kind == Kind::kLoss || loss.kind == Kind::kRestart) && IsUnknown(op) &&
           op.returned < loss.call;
  }

  // Interchangeable writes.
  bool AreAlike(size_t a, size_t b) const {
    const Operation& one = *history_[a];
    const Operation& other = *history_[b];
    if (one.kind != other.kind || one.ttl != 0 || other.ttl != 0 || one.by != other.by ||
        one.if_version != other.if_version) {
      return false;
    }
    return one.kind == Kind::kAppend ? one.value == other.value
                                     : numbers_[a].value == numbers_[b].value;
  }

  // Pending writes like this unknown one, with call and end no later: they are used before it.
  uint64_t BetterThan(size_t op) const {
    uint64_t better = 0;
    const Operation& write = *history_[op];
    for (const size_t other : pending_) {
      const Operation& instead = *history_[other];
      if (other == op || !IsUnknown(instead) || instead.call > write.call ||
          instead.returned > write.returned || !AreAlike(other, op)) {
        continue;
      }
      if (instead.call != write.call || instead.returned != write.returned || other < op)
        better |= BitOf(other);
    }
    return better;
  }

  // Pending operations that only report the present state, correctly, have their instant now. This
  // makes no later operation harder to explain. (Only for a key that does not expire and whose
  // version is known, so that nothing is learned.)
  void Settle(Configuration& at) {
    if (at.state.expires_to != Operation::kNever || (at.state.present && at.state.version == 0))
      return;
    for (const size_t next : pending_) {
      const uint64_t bit = BitOf(next);
      if ((at.done & bit) != 0 || !ChangesNothing(*history_[next])) continue;
      after_.clear();
      Apply(*history_[next], numbers_[next], at.state, 0, values_, after_);
      if (after_.size() != 1 || !(after_[0] == at.state)) continue;
      at.done |= bit;
      if (with_expiry_) at.latest = std::max(at.latest, history_[next]->call);
    }
  }

  // `next` has its instant now, or as early as possible.
  void Step(const Configuration& at, size_t next, int64_t now, int spent) {
    const Operation& op = *history_[next];
    const int64_t from = with_expiry_ ? std::max(at.latest, op.call) : op.call;
    const int64_t to = IsUnknown(op) ? now : std::min(op.returned, now);
    if (from > to) return;
    const auto add = [&](const State& before, int64_t earliest, int64_t last) {
      after_.clear();
      Apply(op, numbers_[next], before, last, values_, after_);
      stepped_.clear();
      for (const State& state : after_) {
        // Without expiry the time does not matter, and there are fewer cases.
        stepped_.push_back({state, at.done | BitOf(next), with_expiry_ ? earliest : 0});
      }
      for (Configuration& after : stepped_) {
        for (const size_t other : pending_) {
          if (EndsWith(*history_[other], op)) after.done |= BitOf(other);
        }
        Settle(after);
        LookAtLater(after, spent);
      }
    };
    const bool expires = at.state.present && at.state.expires_to != Operation::kNever;
    // Before it expires …
    if (!expires || from < at.state.expires_to)
      add(at.state, from, expires ? std::min(to, at.state.expires_to) : to);
    // … or after.
    if (expires && to >= at.state.expires_from)
      add(State(), std::max(from, at.state.expires_from), to);
  }

  Verdict Undecided(const char* why) const { return {true, false, why}; }

  Verdict Wrong(size_t op) const {
    Verdict verdict{false, true, ""};
    absl::StrAppend(&verdict.explanation, "no order explains ", history_[op]->ToString(),
                    "\npending meanwhile, or just before:\n");
    std::vector<const Operation*> around;
    for (const Operation* other : history_) {
      if (other->call <= history_[op]->returned) around.push_back(other);
    }
    const auto end_of = [](const Operation* o) {
      return IsUnknown(*o) ? Operation::kNever : o->returned;
    };
    std::sort(around.begin(), around.end(),
              [&](const Operation* a, const Operation* b) { return end_of(a) < end_of(b); });
    constexpr size_t kShown = 24;
    for (size_t i = around.size() > kShown ? around.size() - kShown : 0; i < around.size(); ++i) {
      absl::StrAppend(&verdict.explanation, "  ", around[i]->ToString(), "\n");
    }
    return verdict;
  }

  const std::vector<const Operation*> history_;
  Values values_;
  std::vector<Numbers> numbers_;  // by place in history_
  const size_t configurations_max_;
  const int alike_max_;
  const int spent_max_;
  bool left_out_ = false;  // another order might explain the history
  bool with_expiry_ = false;
  std::vector<Configuration> configurations_;
  std::vector<int> place_of_;
  std::vector<size_t> pending_;
  std::vector<size_t> waiting_;  // unknown writes, while enough like them come first
  uint64_t taken_ = 0;           // places
  uint64_t optional_ = 0;        // places of operations that need not happen

  // Of End and Step; kept for their memory.
  Frontier frontier_;
  std::vector<int> spent_;        // by configuration of frontier_
  std::vector<uint64_t> better_;  // BetterThan of each that is pending
  std::vector<uint64_t> better_than_waiting_;
  std::vector<uint32_t> levels_[kPlaces + 1];  // by how many that are optional are done
  std::vector<State> after_;
  std::vector<Configuration> stepped_;
};

// The operations of a history that an explanation probably needs: all but the writes of unknown
// outcome without evidence that they were seen.
class Needed {
 public:
  explicit Needed(const std::vector<const Operation*>& history)
      : history_(history), values_(history), needed_(history.size(), true) {}

  std::vector<const Operation*> Find() {
    for (size_t i = 0; i < history_.size(); ++i)
      needed_[i] = !IsUnknown(*history_[i]) || WasSeen(*history_[i]);
    FindSeenByVersion();
    std::vector<const Operation*> result;
    for (size_t i = 0; i < history_.size(); ++i) {
      if (needed_[i]) result.push_back(history_[i]);
    }
    return result;
  }

 private:
  // A version reported without its value is probably that of one of the last writes before.
  static constexpr size_t kLastMax = 3;

  bool WasSeen(const Operation& op) {
    const auto any_answer = [&](auto is) {
      return std::any_of(history_.begin(), history_.end(), [&](const Operation* other) {
        return other->outcome == Outcome::kOk && is(absl::string_view(other->answer));
      });
    };
    switch (op.kind) {
      case Kind::kPut:
      case Kind::kPutIfAbsent:
      case Kind::kPutIfVersion:
        return values_.NumberOf(op.value) != Values::kUnseen;
      case Kind::kDelete:
        return std::any_of(history_.begin(), history_.end(), [&](const Operation* other) {
          return other->returned >= op.call && FoundNothing(*other);
        });
      case Kind::kIncrement:
        return any_answer([](absl::string_view answer) {
          int64_t number = 0;
          return absl::SimpleAtoi(answer, &number);
        });
      case Kind::kAppend:
        return any_answer(
            [&](absl::string_view answer) { return absl::StrContains(answer, op.value); });
      default:
        return true;
    }
  }

  static bool FoundNothing(const Operation& op) {
    return op.outcome == Outcome::kNotFound ||
           (op.outcome == Outcome::kOk && op.kind == Kind::kPutIfAbsent);
  }

  void FindSeenByVersion() {
    absl::flat_hash_set<uint64_t> explained = {0};
    std::vector<size_t> unseen;  // by call
    for (size_t i = 0; i < history_.size(); ++i) {
      const Operation& op = *history_[i];
      if (!needed_[i]) unseen.push_back(i);
      if (op.outcome == Outcome::kOk && op.kind != Kind::kExists) explained.insert(op.version);
    }
    std::sort(unseen.begin(), unseen.end(),
              [&](size_t a, size_t b) { return history_[a]->call < history_[b]->call; });
    for (const Operation* op : history_) {
      if (unseen.empty() || op->kind != Kind::kExists || op->outcome != Outcome::kOk ||
          explained.count(op->version) != 0) {
        continue;
      }
      auto last = std::partition_point(unseen.begin(), unseen.end(),
                                       [&](size_t i) { return history_[i]->call <= op->returned; });
      for (size_t left = kLastMax; left > 0 && last != unseen.begin(); --left)
        needed_[*--last] = true;
    }
  }

  const std::vector<const Operation*>& history_;
  Values values_;
  std::vector<bool> needed_;
};

}  // namespace

Verdict CheckLinearizable(const std::vector<const Operation*>& history, size_t configurations_max) {
  std::vector<const Operation*> all;
  for (const Operation* op : history) {
    // An operation without effect proves nothing. (It may have been refused for any reason.)
    if (op->outcome != Outcome::kUnapplied && !(IsUnknown(*op) && IsRead(op->kind)))
      all.push_back(op);
  }
  // Writes of unknown outcome that were not seen are omitted first: an order without them is an
  // order. Only if there is none, all are examined.
  if (std::any_of(all.begin(), all.end(), [](const Operation* op) { return IsUnknown(*op); })) {
    const Verdict verdict =
        Checker(Needed(all).Find(), configurations_max, kAlikeMax, kSpentMax).Run();
    if (verdict.decided && verdict.linearizable) return verdict;
  }
  const Verdict verdict = Checker(all, configurations_max, kAlikeMax, kSpentMax).Run();
  if (verdict.decided) return verdict;
  return Checker(std::move(all), 4 * configurations_max, kPlaces, kPlaces).Run();
}

Verdict CheckLinearizable(const std::vector<Operation>& history, size_t configurations_max) {
  std::vector<const Operation*> pointers;
  pointers.reserve(history.size());
  for (const Operation& op : history) pointers.push_back(&op);
  return CheckLinearizable(pointers, configurations_max);
}

}  // namespace osprey
