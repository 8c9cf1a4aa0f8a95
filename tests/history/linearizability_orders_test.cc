// Compares the checker with the simplest possible one, which tries every order of every choice of
// effective writes, with its own model. The histories are short and have all kinds of operations.
// They are made by running operations at random instants, and often corrupted. Both checkers must
// agree.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/history/linearizability.h"
#include "tests/support/split_mix64.h"
#include "tests/support/volume.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

constexpr int64_t kNever = Operation::kNever;
constexpr uint64_t kOperationsMax = 6;

constexpr Kind kKinds[] = {
    Kind::kGet,       Kind::kPut,     Kind::kPut,         Kind::kDelete,
    Kind::kDelete,    Kind::kLoss,    Kind::kPutIfAbsent, Kind::kPutIfVersion,
    Kind::kGet,       Kind::kExists,  Kind::kPut,         Kind::kDeleteIfVersion,
    Kind::kIncrement, Kind::kAppend,  Kind::kExpire,      Kind::kPersist,
    Kind::kIncrement, Kind::kEvicted, Kind::kRestart};

// The server and its pending writes are lost.
bool IsLoss(const Operation& op) { return op.kind == Kind::kLoss || op.kind == Kind::kRestart; }
// Not of a client.
bool IsNoOperation(const Operation& op) { return IsLoss(op) || op.kind == Kind::kEvicted; }

// --- A key ---------------------------------------------------------------------------------------

// A present key; it ends at some instant from `end_from` to `end_to`.
struct Item {
  std::string value;
  uint64_t version = 0;  // 0: could be any
  int64_t end_from = kNever;
  int64_t end_to = kNever;
};
using Key = std::optional<Item>;

// The state after an operation, and the answer.
struct Effect {
  Key key;
  Outcome outcome = Outcome::kOk;
  std::string answer;
};

int64_t Later(int64_t time, int64_t by) { return time == kNever ? kNever : time + by; }

std::optional<int64_t> SumOf(const Key& key, int64_t by) {
  int64_t number = 0;
  if (key && (!absl::SimpleAtoi(key->value, &number) || absl::StrCat(number) != key->value))
    return std::nullopt;
  return number + by;
}

// `agrees`: whether the requested version is the key's. `last`: the latest possible instant.
Effect Execute(const Operation& op, const Key& key, bool agrees, int64_t last, uint64_t version) {
  Item written = key.value_or(Item());
  written.version = version;
  Item anew{op.value, version, kNever, kNever};
  if (op.ttl != 0) {
    anew.end_from = op.call + op.ttl;
    anew.end_to = Later(last, op.ttl + op.ttl_slack);
  }
  const Effect absent{key, Outcome::kNotFound, ""};
  switch (op.kind) {
    case Kind::kGet:
    case Kind::kExists:
      if (!key) return absent;
      return {key, Outcome::kOk, op.kind == Kind::kGet ? key->value : ""};
    case Kind::kPut:
      return {anew, Outcome::kOk, ""};
    case Kind::kPutIfAbsent:
      return key ? Effect{key, Outcome::kExists, ""} : Effect{anew, Outcome::kOk, ""};
    case Kind::kPutIfVersion:
    case Kind::kDeleteIfVersion:
      if (!key) return absent;
      if (!agrees) return {key, Outcome::kWrong, ""};
      return {op.kind == Kind::kPutIfVersion ? Key(anew) : Key(), Outcome::kOk, ""};
    case Kind::kDelete:
      return key ? Effect{std::nullopt, Outcome::kOk, ""} : absent;
    case Kind::kIncrement: {
      const std::optional<int64_t> sum = SumOf(key, op.by);
      if (!sum) return {key, Outcome::kWrong, ""};
      written.value = absl::StrCat(*sum);
      return {written, Outcome::kOk, written.value};
    }
    case Kind::kAppend:
      written.value += op.value;
      return {written, Outcome::kOk, ""};
    case Kind::kExpire:
    case Kind::kPersist:
      if (!key) return absent;
      written.version = key->version;
      written.end_from = op.kind == Kind::kPersist ? kNever : op.call + op.ttl;
      written.end_to = op.kind == Kind::kPersist ? kNever : Later(last, op.ttl + op.ttl_slack);
      return {written, Outcome::kOk, ""};
    case Kind::kLoss:
    case Kind::kEvicted:
      return {std::nullopt, Outcome::kOk, ""};
    case Kind::kRestart:
      return {key, Outcome::kOk, ""};
  }
  return absent;
}

// --- Every order ---------------------------------------------------------------------------------

class EveryOrder {
 public:
  explicit EveryOrder(std::vector<Operation> history) : history_(std::move(history)) {}

  bool OneExplainsIt() {
    uint32_t must = 0;
    uint32_t may = 0;
    for (size_t i = 0; i < history_.size(); ++i) {
      const bool unknown = history_[i].outcome == Outcome::kUnknown;
      if (history_[i].outcome != Outcome::kUnapplied) (unknown ? may : must) |= 1u << i;
    }
    for (uint32_t chosen = may;; chosen = (chosen - 1) & may) {
      if (From(must | chosen, std::nullopt, 0)) return true;
      if (chosen == 0) return false;
    }
  }

 private:
  // Whether all of `left`, in some order, can have instants from `now` on.
  bool From(uint32_t left, const Key& key, int64_t now) {
    int64_t last = kNever;
    for (size_t i = 0; i < history_.size(); ++i) {
      if ((left >> i & 1) != 0 && history_[i].outcome != Outcome::kUnknown)
        last = std::min(last, history_[i].returned);
    }
    if (last == kNever) return true;  // an optional operation may never take effect
    for (size_t i = 0; i < history_.size(); ++i) {
      const int64_t from = std::max(now, history_[i].call);
      if ((left >> i & 1) == 0 || from > last) continue;
      uint32_t rest = left & ~(1u << i);
      // Writes that were given up before the server's loss must have taken effect before it.
      if (IsLoss(history_[i])) {
        const bool forgets =
            std::any_of(history_.begin(), history_.end(), [&](const Operation& op) {
              return (rest >> (&op - history_.data()) & 1) != 0 &&
                     op.outcome == Outcome::kUnknown && op.returned < history_[i].call;
            });
        if (forgets) continue;
      }
      const bool ends = key && key->end_to != kNever;
      if ((!ends || from < key->end_to) &&
          After(i, rest, key, from, ends ? std::min(last, key->end_to) : last)) {
        return true;
      }
      if (ends && last >= key->end_from &&
          After(i, rest, std::nullopt, std::max(from, key->end_from), last)) {
        return true;
      }
    }
    return false;
  }

  bool After(size_t i, uint32_t rest, const Key& key, int64_t now, int64_t last) {
    const Operation& op = history_[i];
    for (const bool agrees : {true, false}) {
      const bool conditional = op.kind == Kind::kPutIfVersion || op.kind == Kind::kDeleteIfVersion;
      if (!conditional && !agrees) break;
      if (conditional && key && key->version != 0 && agrees != (key->version == op.if_version))
        continue;
      const bool told = op.outcome == Outcome::kOk;
      Effect effect = Execute(op, key, agrees, last, told ? op.version : 0);
      if (op.outcome != Outcome::kUnknown) {
        if (effect.outcome != op.outcome) continue;
        if (told && op.answer != effect.answer) continue;
        const bool tells_present = op.kind == Kind::kGet || op.kind == Kind::kExists ||
                                   op.kind == Kind::kExpire || op.kind == Kind::kPersist;
        if (told && tells_present && op.version != 0) {
          if (key->version != 0 && key->version != op.version) continue;
          if (op.kind == Kind::kGet || op.kind == Kind::kExists) effect.key->version = op.version;
        }
      }
      if (From(rest, effect.key, now)) return true;
    }
    return false;
  }

  const std::vector<Operation> history_;
};

// --- Histories -----------------------------------------------------------------------------------

// Correct histories: operations at instants, by a clock, with a key that ends at an instant.
class Making {
 public:
  explicit Making(SplitMix64& rng) : rng_(rng) {}

  std::vector<Operation> Make() {
    const bool expires = rng_.Chance(40);
    narrow_ = rng_.Chance(20);
    std::vector<std::pair<int64_t, Operation>> by_instant;
    const uint64_t count = 1 + rng_.Below(kOperationsMax);
    for (uint64_t i = 0; i < count; ++i) {
      Operation op = Draw(expires);
      by_instant.emplace_back(op.call + static_cast<int64_t>(rng_.Below(
                                            static_cast<uint64_t>(op.returned - op.call) + 1)),
                              std::move(op));
    }
    std::stable_sort(by_instant.begin(), by_instant.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Operation> history;
    for (auto& [instant, op] : by_instant) {
      Happen(op, instant);
      history.push_back(std::move(op));
    }
    // Unknown writes may have been answered before their instant, but not if the server was lost
    // between.
    for (Operation& op : history) {
      if (op.outcome == Outcome::kUnknown && rng_.Chance(50) &&
          std::none_of(history.begin(), history.end(), IsLoss)) {
        op.returned = op.call + static_cast<int64_t>(rng_.Below(3));
      }
    }
    return history;
  }

 private:
  Operation Draw(bool expires) {
    Operation op;
    op.kind = kKinds[rng_.Below(narrow_ ? 6 : std::size(kKinds))];
    if (!expires && (op.kind == Kind::kExpire)) op.kind = Kind::kPersist;
    op.call = 1 + static_cast<int64_t>(rng_.Below(16));
    op.returned = op.call + static_cast<int64_t>(rng_.Below(8));
    const char* const values[] = {"a", "b", "7"};
    switch (op.kind) {
      case Kind::kPut:
      case Kind::kPutIfAbsent:
      case Kind::kPutIfVersion:
        op.value = values[narrow_ ? 0 : rng_.Below(3)];
        if (expires && rng_.Chance(60)) op.ttl = 1 + static_cast<int64_t>(rng_.Below(8));
        break;
      case Kind::kAppend:
        op.value = rng_.Chance(50) ? "+" : "1";
        break;
      case Kind::kIncrement:
        op.by = 1 + static_cast<int64_t>(rng_.Below(2));
        break;
      case Kind::kExpire:
        op.ttl = 1 + static_cast<int64_t>(rng_.Below(8));
        break;
      default:
        break;
    }
    if (op.ttl != 0) op.ttl_slack = static_cast<int64_t>(rng_.Below(3));
    return op;
  }

  // The key's item ends at a known instant here.
  void Happen(Operation& op, int64_t instant) {
    if (key_ && key_->end_from <= instant) key_.reset();
    const bool conditional = op.kind == Kind::kPutIfVersion || op.kind == Kind::kDeleteIfVersion;
    if (conditional) op.if_version = 1 + (rng_.Chance(70) ? versions_ - 1 : rng_.Below(3));
    const bool no_operation = IsNoOperation(op);
    if (!no_operation && rng_.Chance(8)) {
      op.outcome = Outcome::kUnapplied;
      return;
    }
    const bool unknown = !no_operation && rng_.Chance(narrow_ ? 60 : 25);
    if (unknown && rng_.Chance(50)) {
      op.outcome = Outcome::kUnknown;
      return;
    }
    Effect effect = Execute(op, key_, key_ && key_->version == op.if_version, instant, versions_);
    op.outcome = unknown ? Outcome::kUnknown : effect.outcome;
    const bool is_read = op.kind == Kind::kGet || op.kind == Kind::kExists ||
                         op.kind == Kind::kExpire || op.kind == Kind::kPersist;
    if (op.outcome == Outcome::kOk) {
      op.answer = effect.answer;
      if (rng_.Chance(60) && effect.key) op.version = effect.key->version;
    }
    if (effect.outcome == Outcome::kOk && !is_read) ++versions_;
    key_ = effect.key;
    const bool has_end = key_ && key_->end_from != kNever && op.ttl != 0;
    if (has_end && effect.outcome == Outcome::kOk) {
      key_->end_from += static_cast<int64_t>(
          rng_.Below(static_cast<uint64_t>(key_->end_to - key_->end_from) + 1));
      key_->end_to = key_->end_from;
    }
  }

  SplitMix64& rng_;
  bool narrow_ = false;  // few kinds and values, many unknown results
  Key key_;
  uint64_t versions_ = 1;
};

void Spoil(std::vector<Operation>& history, SplitMix64& rng) {
  Operation& op = history[rng.Below(history.size())];
  const char* const answers[] = {"a", "b", "7", "1", "2", "a+", "71", "8"};
  const Outcome outcomes[] = {Outcome::kOk, Outcome::kNotFound, Outcome::kExists, Outcome::kWrong,
                              Outcome::kUnknown};
  switch (rng.Below(5)) {
    case 0:
      if (op.kind == Kind::kGet || op.kind == Kind::kIncrement) op.answer = answers[rng.Below(8)];
      break;
    case 1:
      op.version = rng.Below(4);
      break;
    case 2:
      if (!IsNoOperation(op)) op.outcome = outcomes[rng.Below(5)];
      break;
    case 3:
      op.call = 1 + static_cast<int64_t>(rng.Below(16));
      op.returned = op.call + static_cast<int64_t>(rng.Below(4));
      break;
    default:
      op.returned = op.call;
  }
}

TEST(LinearizabilityOrdersTest, TheCheckerSaysWhatEveryOrderSays) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  SplitMix64 rng(seed);
  const int rounds =
      std::getenv("OSPREY_TEST_LONG") != nullptr ? 10'000'000 : 300'000 / kLongVolumeParts;
  int accepted = 0;
  int rejected = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Operation> history = Making(rng).Make();
    const bool is_true = rng.Chance(30);
    for (uint64_t spoils = is_true ? 0 : 1 + rng.Below(2); spoils > 0; --spoils)
      Spoil(history, rng);
    const Verdict verdict = CheckLinearizable(history);
    const bool expected = EveryOrder(history).OneExplainsIt();
    std::string text;
    for (const Operation& op : history) absl::StrAppend(&text, op.ToString(), "\n");
    ASSERT_TRUE(verdict.decided);
    ASSERT_EQ(verdict.linearizable, expected) << "round " << round << ":\n" << text;
    ASSERT_TRUE(expected || !is_true) << "round " << round << ", as it happened:\n" << text;
    ++(expected ? accepted : rejected);
  }
  EXPECT_GT(accepted, rounds / 10);
  EXPECT_GT(rejected, rounds / 10);
}

}  // namespace
}  // namespace osprey
