#include "tests/history/linearizability_model.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

int64_t Plus(int64_t time, int64_t ttl) {
  return time >= Operation::kNever - ttl ? Operation::kNever : time + ttl;
}

bool VersionAgrees(uint64_t told, uint64_t present) {
  return told == 0 || present == 0 || told == present;
}

// The text of a number, or a prefix of it.
bool MayBecomeNumber(absl::string_view value) {
  absl::ConsumePrefix(&value, "-");
  return value.size() < 20 && std::all_of(value.begin(), value.end(), absl::ascii_isdigit);
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

}  // namespace

Values::Values(const std::vector<const Operation*>& history) : values_(1) {
  for (const Operation* op : history) {
    if (op->outcome == Outcome::kOk && !op->answer.empty()) answers_.insert(op->answer);
    counts_ |= op->kind == Kind::kIncrement;
  }
}

bool Values::MayMatter(absl::string_view value) const {
  // (The empty value is an answer like any other, and that of all operations without an answer.)
  if (value.empty() || (counts_ && MayBecomeNumber(value))) return true;
  const auto at = answers_.lower_bound(value);
  return at != answers_.end() && absl::StartsWith(*at, value);
}

uint32_t Values::NumberOf(const std::string& value) {
  const auto known = numbers_.find(value);
  if (known != numbers_.end()) return known->second;
  if (!MayMatter(value)) return kUnseen;
  const auto number = static_cast<uint32_t>(values_.size());
  numbers_.emplace(value, number);
  values_.push_back(value);
  return number;
}

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
      // An unreported version may be the requested one, or not.
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
      // A number has only one text.
      if ((state.present &&
           (state.value == Values::kUnseen || !absl::SimpleAtoi(values.At(state.value), &number) ||
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
      uint32_t value = Values::kUnseen;
      if (!state.present) {
        value = values.NumberOf(op.value);
      } else if (state.value != Values::kUnseen) {
        value = values.NumberOf(absl::StrCat(values.At(state.value), op.value));
      }
      State state_after = Written(op, value, to);
      state_after.expires_from = state.expires_from;
      state_after.expires_to = state.expires_to;
      after.push_back(std::move(state_after));
      return;
    }
    case Kind::kLoss:
    case Kind::kEvicted:
      after.push_back(State());
      return;
    case Kind::kRestart:
      return unchanged();
    case Kind::kExpire:
    case Kind::kPersist:
      if (!state.present) {
        if (answered(Outcome::kNotFound)) unchanged();
        return;
      }
      if (!unknown && (op.outcome != Outcome::kOk || !VersionAgrees(op.version, state.version)))
        return;
      unchanged();
      after.back().expires_from = Plus(op.call, op.ttl);
      after.back().expires_to = Plus(to, op.ttl + op.ttl_slack);
      if (op.kind == Kind::kPersist)
        after.back().expires_from = after.back().expires_to = Operation::kNever;
      return;
  }
}

bool ChangesNothing(const Operation& op) {
  switch (op.outcome) {
    case Outcome::kNotFound:
    case Outcome::kExists:
    case Outcome::kWrong:
      return true;
    case Outcome::kOk:
      return IsRead(op.kind);
    case Outcome::kUnapplied:
    case Outcome::kUnknown:
      return false;
  }
  return false;
}

namespace {

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
    case Kind::kRestart:
      return "restart";
    case Kind::kEvicted:
      return "evicted";
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

bool IsRead(Kind kind) { return kind == Kind::kGet || kind == Kind::kExists; }

bool StoresValue(Kind kind) {
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
    case Kind::kRestart:
    case Kind::kEvicted:
      return false;
  }
  return false;
}

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

}  // namespace osprey
