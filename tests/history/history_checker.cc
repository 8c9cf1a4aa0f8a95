#include "tests/history/history_checker.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/history/value.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

constexpr size_t kExplanationsMax = 3;
constexpr size_t kConfigurationsMax = 1 << 19;

bool WritesValue(const JournalRecord& record) {
  return record.kind == Kind::kPut || record.kind == Kind::kPutIfAbsent ||
         record.kind == Kind::kPutIfVersion;
}

// In the form that the checker needs.
Operation ToOperation(const JournalRecord& record, int client) {
  Operation operation;
  operation.kind = record.kind;
  if (WritesValue(record)) operation.value = absl::StrCat(record.written);
  if (record.kind == Kind::kIncrement) operation.by = record.written;
  operation.if_version = record.if_version;
  operation.call = record.call_ns;
  operation.client = client;
  operation.outcome = record.returned ? record.outcome : Outcome::kUnknown;
  operation.returned = record.returned ? record.returned_ns : Operation::kNever;
  if (operation.outcome != Outcome::kOk) return operation;
  operation.version = record.version;
  if (record.kind == Kind::kGet || record.kind == Kind::kIncrement)
    operation.answer = absl::StrCat(record.answer);
  return operation;
}

class Judging {
 public:
  Judging(const std::vector<ClientProcess>& processes, const FaultTimes& times)
      : processes_(processes), times_(times) {}

  Judgement Run() {
    for (const ClientProcess& process : processes_) LookAtTimes(process);
    for (const ClientProcess& process : processes_) LookAtRecovery(process);
    FindWritesOfTheDead();
    CountLossesAtWork();
    for (uint16_t key = 0; key < kFaultKeys; ++key) CheckKey(key);
    return result_;
  }

 private:
  void Wrong(std::string explanation) {
    ++result_.wrong;
    if (result_.explanations.size() < kExplanationsMax)
      result_.explanations.push_back(std::move(explanation));
  }

  // The delay of an answer by the end of a stop that covers its deadline. Of those of one client in
  // one stop, the latest is omitted.
  class LateAnswers {
   public:
    explicit LateAnswers(const std::vector<Interval>& stops) : stops_(stops) {}
    void Add(const JournalRecord& record, int64_t deadline) {
      const int64_t late = record.returned_ns - deadline;
      for (const Interval& stop : stops_) {
        if (deadline < stop.first || deadline > stop.second) continue;
        int64_t& in_hand = in_hand_[{record.client, stop.first}];
        result_ = std::max(result_, std::min(in_hand, late));
        in_hand = std::max(in_hand, late);
        return;
      }
      result_ = std::max(result_, late);
    }
    int64_t result() const { return result_; }

   private:
    const std::vector<Interval>& stops_;
    std::map<std::pair<int, int64_t>, int64_t> in_hand_;
    int64_t result_ = 0;
  };

  void LookAtTimes(const ClientProcess& process) {
    LateAnswers late_answers(process.stops);
    uint64_t& failed_here = result_.failed_by_process.emplace_back(0);
    uint64_t& open_here = result_.open_by_process.emplace_back(0);
    for (const JournalRecord& record : process.records) {
      ++result_.operations;
      if (!record.returned) {
        result_.unknown += record.kind != Kind::kGet;
        ++open_here;
        continue;
      }
      if (record.damaged) {
        Wrong(absl::StrCat("a GET of key ", record.key, " at ", record.call_ns,
                           " answered what no client wrote there"));
      }
      result_.failed += record.failed;
      failed_here += record.failed;
      result_.failed_gets += record.failed && record.kind == Kind::kGet;
      result_.unknown +=
          record.failed && record.kind != Kind::kGet && record.outcome == Outcome::kUnknown;
      const int64_t deadline = record.call_ns + record.deadline_ns;
      if (!record.failed)
        late_answers.Add(record, std::max(record.call_ns, record.started_ns) + record.deadline_ns);
      int64_t due = deadline;
      for (const Interval& stop : process.stops) {
        if (record.call_ns < stop.second && deadline >= stop.first)
          due = std::max(due, stop.second);
      }
      result_.overrun_ns = std::max(result_.overrun_ns, record.returned_ns - due);
    }
    result_.believed_late_ns = std::max(result_.believed_late_ns, late_answers.result());
  }

  void LookAtRecovery(const ClientProcess& process) {
    if (process.killed || times_.end_ns == 0) return;
    std::map<int, int64_t> first_done, last_failed;
    for (const JournalRecord& record : process.records) {
      const int client = record.client;
      first_done.emplace(client, Operation::kNever);
      if (!record.returned || record.returned_ns < times_.end_ns) continue;
      if (record.failed) {
        last_failed[client] = std::max(last_failed[client], record.returned_ns);
      } else {
        first_done[client] = std::min(first_done[client], record.returned_ns);
      }
    }
    if (first_done.empty()) result_.recovery_ns = -1;
    for (const auto& [client, done] : first_done) {
      if (done == Operation::kNever) result_.recovery_ns = -1;
      if (result_.recovery_ns < 0) return;
      result_.recovery_ns =
          std::max(result_.recovery_ns, std::max(done, last_failed[client]) - times_.end_ns);
    }
  }

  // A write that ended as "the server that had it is gone" must not be found in the next server.
  void FindWritesOfTheDead() {
    for (const Interval& loss : times_.losses) {
      std::set<std::pair<uint16_t, int64_t>> gone;
      for (const ClientProcess& process : processes_) {
        for (const JournalRecord& record : process.records) {
          if (record.server_gone && WritesValue(record) && record.call_ns < loss.first)
            gone.emplace(record.key, record.written);
        }
      }
      for (const ClientProcess& process : processes_) {
        for (const JournalRecord& record : process.records) {
          if (record.kind == Kind::kGet && record.returned && record.outcome == Outcome::kOk &&
              record.call_ns > loss.second && gone.count({record.key, record.answer}) > 0) {
            Wrong(absl::StrCat("value ", record.answer, " of key ", record.key,
                               " was written to a server that is gone, and is in the next one"));
          }
        }
      }
    }
  }

  void CountLossesAtWork() {
    int64_t from = 0;
    for (const Interval& loss : times_.losses) {
      bool answered = false, under_way = false;
      for (const ClientProcess& process : processes_) {
        for (const JournalRecord& record : process.records) {
          const int64_t returned = record.returned ? record.returned_ns : Operation::kNever;
          answered |= !record.failed && record.call_ns >= from && returned <= loss.first;
          under_way |= record.call_ns <= loss.first && returned > loss.first;
        }
      }
      result_.losses_at_work += answered && under_way;
      from = loss.second;
    }
  }

  void CheckKey(uint16_t key) {
    std::vector<Operation> all;
    for (size_t i = 0; i < processes_.size(); ++i) {
      for (const JournalRecord& record : processes_[i].records) {
        if (record.key != key || record.damaged) continue;
        all.push_back(ToOperation(record, static_cast<int>(i * 100 + record.client)));
      }
    }
    for (const Interval& loss : times_.losses) {
      Operation lost;
      lost.kind = Kind::kLoss;
      lost.outcome = Outcome::kOk;
      lost.call = loss.first;
      lost.returned = loss.second;
      all.push_back(lost);
    }
    const Verdict verdict = CheckLinearizable(all, kConfigurationsMax);
    if (!verdict.decided) ++result_.undecided;
    if (!verdict.linearizable) Wrong(absl::StrCat("key ", key, ": ", verdict.explanation));
  }

  const std::vector<ClientProcess>& processes_;
  const FaultTimes& times_;
  Judgement result_;
};

}  // namespace

Judgement Judge(const std::vector<ClientProcess>& processes, const FaultTimes& times) {
  return Judging(processes, times).Run();
}

}  // namespace osprey
