#include "tests/linearizability.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

// What the key is. With a time to live: it expires at some instant from `expires_from` to
// `expires_to`. Time to live is counted from some moment of the write's call, its instant at the
// latest.
struct State {
  bool present = false;
  uint32_t value = 0;    // its number in Values
  uint64_t version = 0;  // 0: that of a write whose version nobody was told
  int64_t expires_from = Operation::kNever;
  int64_t expires_to = Operation::kNever;

  friend bool operator==(const State& a, const State& b) = default;
  template <typename H>
  friend H AbslHashValue(H h, const State& s) {
    return H::combine(std::move(h), s.present, s.value, s.version, s.expires_from, s.expires_to);
  }
};

// Values by number, so that states are small.
class Values {
 public:
  uint32_t NumberOf(const std::string& value) {
    const auto [at, is_new] = numbers_.emplace(value, static_cast<uint32_t>(values_.size()));
    if (is_new) values_.push_back(value);
    return at->second;
  }
  const std::string& At(uint32_t number) const { return values_[number]; }

 private:
  absl::flat_hash_map<std::string, uint32_t> numbers_;
  std::vector<std::string> values_;
};

// An operation's value and answer.
struct Numbers {
  uint32_t value = 0;
  uint32_t answer = 0;
};

struct Configuration {
  State state;
  uint64_t done = 0;   // pending operations, by place, that have had their instant
  int64_t latest = 0;  // that of the last was not before this

  friend bool operator==(const Configuration& a, const Configuration& b) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Configuration& c) {
    return H::combine(std::move(h), c.state, c.done, c.latest);
  }
};

using Configurations = absl::flat_hash_set<Configuration>;

int64_t Plus(int64_t time, int64_t ttl) {
  return time >= Operation::kNever - ttl ? Operation::kNever : time + ttl;
}

bool VersionAgrees(uint64_t told, uint64_t present) {
  return told == 0 || present == 0 || told == present;
}

// The state after a write at an instant up to `to`.
State Written(const Operation& op, uint32_t value, int64_t to) {
  State state;
  state.present = true;
  state.value = value;
  state.version = op.outcome == Outcome::kOk ? op.version : 0;
  if (op.ttl != 0) {
    state.expires_from = Plus(op.call, op.ttl);
    state.expires_to = Plus(to, op.ttl + op.ttl_slack);
  }
  return state;
}

// What the operation does where the key is present as `state` says, or absent. Appends each state
// that it may leave behind; none if it cannot have answered as it did.
void Apply(const Operation& op, const Numbers& numbers, const State& state, int64_t to,
           Values& values, std::vector<State>& after) {
  const bool unknown = op.outcome == Outcome::kUnknown;
  const auto answered = [&](Outcome outcome) { return unknown || op.outcome == outcome; };
  const auto unchanged = [&] { after.push_back(state); };
  switch (op.kind) {
    case Kind::kGet:
    case Kind::kExists:
      if (unknown) return unchanged();
      if (!state.present) {
        if (op.outcome == Outcome::kNotFound) unchanged();
        return;
      }
      if (op.outcome != Outcome::kOk || (op.kind == Kind::kGet && numbers.answer != state.value) ||
          !VersionAgrees(op.version, state.version)) {
        return;
      }
      unchanged();
      if (op.version != 0) after.back().version = op.version;
      return;
    case Kind::kPut:
      if (answered(Outcome::kOk)) after.push_back(Written(op, numbers.value, to));
      return;
    case Kind::kPutIfAbsent:
      if (state.present) {
        if (answered(Outcome::kExists)) unchanged();
      } else if (answered(Outcome::kOk)) {
        after.push_back(Written(op, numbers.value, to));
      }
      return;
    case Kind::kPutIfVersion:
    case Kind::kDeleteIfVersion: {
      if (!state.present) {
        if (answered(Outcome::kNotFound)) unchanged();
        return;
      }
      // A version that nobody was told may be the one asked for, or not.
      const bool may_agree = VersionAgrees(op.if_version, state.version);
      const bool may_differ = state.version == 0 || op.if_version != state.version;
      if (may_agree && answered(Outcome::kOk)) {
        after.push_back(op.kind == Kind::kPutIfVersion ? Written(op, numbers.value, to) : State());
      }
      if (may_differ && answered(Outcome::kWrong)) unchanged();
      return;
    }
    case Kind::kDelete:
      if (state.present) {
        if (answered(Outcome::kOk)) after.push_back(State());
      } else if (answered(Outcome::kNotFound)) {
        unchanged();
      }
      return;
    case Kind::kIncrement: {
      int64_t number = 0;
      int64_t sum = 0;
      // Numbers are written in one way.
      if ((state.present && (!absl::SimpleAtoi(values.At(state.value), &number) ||
                             absl::StrCat(number) != values.At(state.value))) ||
          __builtin_add_overflow(number, op.by, &sum)) {
        if (answered(Outcome::kWrong)) unchanged();
        return;
      }
      if (!answered(Outcome::kOk)) return;
      const uint32_t value = values.NumberOf(absl::StrCat(sum));
      if (!unknown && value != numbers.answer) return;
      State state_after = Written(op, value, to);
      state_after.expires_from = state.expires_from;
      state_after.expires_to = state.expires_to;
      after.push_back(std::move(state_after));
      return;
    }
    case Kind::kAppend: {
      if (!answered(Outcome::kOk)) return;
      const std::string before = state.present ? values.At(state.value) : "";
      State state_after = Written(op, values.NumberOf(before + op.value), to);
      state_after.expires_from = state.expires_from;
      state_after.expires_to = state.expires_to;
      after.push_back(std::move(state_after));
      return;
    }
    case Kind::kLoss:
      after.push_back(State());
      return;
    case Kind::kExpire:
    case Kind::kPersist:
      if (!state.present) {
        if (answered(Outcome::kNotFound)) unchanged();
        return;
      }
      if (!answered(Outcome::kOk) || !VersionAgrees(op.version, state.version)) return;
      unchanged();
      after.back().expires_from = Plus(op.call, op.ttl);
      after.back().expires_to = Plus(to, op.ttl + op.ttl_slack);
      if (op.kind == Kind::kPersist)
        after.back().expires_from = after.back().expires_to = Operation::kNever;
      return;
  }
}

// Whether an operation with this outcome leaves the key as it is, whatever it is.
bool ChangesNothing(const Operation& op) {
  switch (op.outcome) {
    case Outcome::kNotFound:
    case Outcome::kExists:
    case Outcome::kWrong:
      return true;
    case Outcome::kOk:
      return op.kind == Kind::kGet || op.kind == Kind::kExists;
    case Outcome::kUnapplied:
    case Outcome::kUnknown:
      return false;
  }
  return false;
}

class Checker {
 public:
  Checker(std::vector<Operation> history, size_t configurations_max)
      : history_(std::move(history)), configurations_max_(configurations_max) {}

  Verdict Run() {
    // What did not happen says nothing. (It may have been refused for any reason.)
    history_.erase(std::remove_if(history_.begin(), history_.end(),
                                  [](const Operation& op) {
                                    return op.outcome == Outcome::kUnapplied ||
                                           ((op.kind == Kind::kGet || op.kind == Kind::kExists) &&
                                            op.outcome == Outcome::kUnknown);
                                  }),
                   history_.end());
    struct Moment {
      int64_t time;
      bool is_return;
      size_t op;
    };
    std::vector<Moment> moments;
    for (size_t i = 0; i < history_.size(); ++i) {
      moments.push_back({history_[i].call, false, i});
      // What is unknown may still take effect after its return.
      if (history_[i].outcome == Outcome::kUnknown) history_[i].returned = Operation::kNever;
      if (history_[i].returned != Operation::kNever)
        moments.push_back({history_[i].returned, true, i});
    }
    // Calls first: operations that touch are concurrent.
    std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
      return a.time != b.time ? a.time < b.time : a.is_return < b.is_return;
    });
    for (const Operation& op : history_) with_expiry_ |= op.ttl != 0;
    configurations_ = {Configuration()};
    place_of_.resize(history_.size());
    for (const Operation& op : history_)
      numbers_.push_back({values_.NumberOf(op.value), values_.NumberOf(op.answer)});
    for (const Moment& moment : moments) {
      if (!moment.is_return) {
        if (!Begin(moment.op)) return Undecided("more than 64 operations are pending");
        continue;
      }
      if (!End(moment.op, moment.time)) return Undecided("too many configurations");
      if (configurations_.empty()) return Wrong(moment.op);
    }
    return {};
  }

 private:
  bool Begin(size_t op) {
    for (int place = 0; place < 64; ++place) {
      if ((taken_ >> place & 1) != 0) continue;
      taken_ |= uint64_t{1} << place;
      place_of_[op] = place;
      pending_.push_back(op);
      return true;
    }
    return false;
  }

  // The operation must have had its instant by now. False: too much to look at.
  bool End(size_t op, int64_t now) {
    const uint64_t bit = uint64_t{1} << place_of_[op];
    Configurations reached;
    std::vector<Configuration> to_look_at;
    Configurations seen;
    for (Configuration at : configurations_) {
      Settle(at);
      if (seen.insert(at).second) to_look_at.push_back(std::move(at));
    }
    while (!to_look_at.empty()) {
      const Configuration at = std::move(to_look_at.back());
      to_look_at.pop_back();
      if ((at.done & bit) != 0) {
        Configuration without = at;
        without.done &= ~bit;
        reached.insert(std::move(without));
        continue;
      }
      for (const size_t next : pending_) {
        if ((at.done >> place_of_[next] & 1) != 0) continue;
        for (Configuration& after : Step(at, next, now)) {
          Settle(after);
          if (seen.size() > configurations_max_) return false;
          if (seen.insert(after).second) to_look_at.push_back(std::move(after));
        }
      }
    }
    configurations_ = std::move(reached);
    pending_.erase(std::find(pending_.begin(), pending_.end(), op));
    taken_ &= ~bit;
    return true;
  }

  // Pending operations that only say what the key is, and say so rightly here, have their instant
  // now: whatever comes after, it is no harder to explain without them. (Of a key that does not
  // expire and whose version is known, so that nothing is learned.)
  void Settle(Configuration& at) {
    if (at.state.expires_to != Operation::kNever || (at.state.present && at.state.version == 0))
      return;
    for (const size_t next : pending_) {
      const uint64_t bit = uint64_t{1} << place_of_[next];
      if ((at.done & bit) != 0 || !ChangesNothing(history_[next])) continue;
      after_.clear();
      Apply(history_[next], numbers_[next], at.state, 0, values_, after_);
      if (after_.size() != 1 || !(after_[0] == at.state)) continue;
      at.done |= bit;
      if (with_expiry_) at.latest = std::max(at.latest, history_[next].call);
    }
  }

  // `next` has its instant now, or as long ago as may be.
  std::vector<Configuration> Step(const Configuration& at, size_t next, int64_t now) {
    const Operation& op = history_[next];
    const int64_t from = with_expiry_ ? std::max(at.latest, op.call) : op.call;
    const int64_t to = std::min(op.returned, now);
    std::vector<Configuration> result;
    if (from > to) return result;
    const auto add = [&](const State& before, int64_t earliest, int64_t last) {
      std::vector<State>& after = after_;
      after.clear();
      Apply(op, numbers_[next], before, last, values_, after);
      for (State& state : after) {
        result.push_back(
            // Without expiry it does not matter when, and there are fewer to look at.
            {std::move(state), at.done | uint64_t{1} << place_of_[next],
             with_expiry_ ? earliest : 0});
      }
    };
    const bool expires = at.state.present && at.state.expires_to != Operation::kNever;
    // Before it expires …
    if (!expires || from < at.state.expires_to)
      add(at.state, from, expires ? std::min(to, at.state.expires_to) : to);
    // … or after.
    if (expires && to >= at.state.expires_from)
      add(State(), std::max(from, at.state.expires_from), to);
    return result;
  }

  Verdict Undecided(const char* why) const { return {true, false, why}; }

  Verdict Wrong(size_t op) const {
    Verdict verdict{false, true, ""};
    absl::StrAppend(&verdict.explanation, "no order explains ", history_[op].ToString(),
                    "\npending meanwhile, or just before:\n");
    std::vector<const Operation*> around;
    for (const Operation& other : history_) {
      if (other.call <= history_[op].returned) around.push_back(&other);
    }
    std::sort(around.begin(), around.end(),
              [](const Operation* a, const Operation* b) { return a->returned < b->returned; });
    constexpr size_t kShown = 24;
    for (size_t i = around.size() > kShown ? around.size() - kShown : 0; i < around.size(); ++i) {
      absl::StrAppend(&verdict.explanation, "  ", around[i]->ToString(), "\n");
    }
    return verdict;
  }

  std::vector<Operation> history_;
  Values values_;
  std::vector<Numbers> numbers_;  // by place in history_
  const size_t configurations_max_;
  bool with_expiry_ = false;
  Configurations configurations_;
  std::vector<int> place_of_;
  std::vector<size_t> pending_;
  uint64_t taken_ = 0;        // places
  std::vector<State> after_;  // of Apply; kept for its memory
};

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kGet:
      return "get";
    case Kind::kExists:
      return "exists";
    case Kind::kPut:
      return "put";
    case Kind::kPutIfAbsent:
      return "put-if-absent";
    case Kind::kPutIfVersion:
      return "put-if-version";
    case Kind::kDelete:
      return "delete";
    case Kind::kDeleteIfVersion:
      return "delete-if-version";
    case Kind::kIncrement:
      return "increment";
    case Kind::kAppend:
      return "append";
    case Kind::kExpire:
      return "expire";
    case Kind::kPersist:
      return "persist";
    case Kind::kLoss:
      return "loss";
  }
  return "?";
}

const char* NameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kNotFound:
      return "not found";
    case Outcome::kExists:
      return "exists";
    case Outcome::kWrong:
      return "wrong version or value";
    case Outcome::kUnapplied:
      return "not applied";
    case Outcome::kUnknown:
      return "unknown";
  }
  return "?";
}

}  // namespace

std::string Operation::ToString() const {
  std::string text =
      absl::StrCat("[", call, ", ", returned == kNever ? "…" : absl::StrCat(returned), "] client ",
                   client, ": ", NameOf(kind));
  if (!value.empty()) absl::StrAppend(&text, " '", absl::CHexEscape(value.substr(0, 40)), "'");
  if (by != 0) absl::StrAppend(&text, " by ", by);
  if (if_version != 0) absl::StrAppend(&text, " if version ", if_version);
  if (ttl != 0) absl::StrAppend(&text, " ttl ", ttl);
  absl::StrAppend(&text, " -> ", NameOf(outcome));
  if (!answer.empty()) absl::StrAppend(&text, " '", absl::CHexEscape(answer.substr(0, 40)), "'");
  if (version != 0) absl::StrAppend(&text, " version ", version);
  return text;
}

Verdict CheckLinearizable(std::vector<Operation> history, size_t configurations_max) {
  return Checker(std::move(history), configurations_max).Run();
}

}  // namespace osprey
