// Callers that wait for GETs (Client::MultiGet), as the engine sees them: each until its count says
// that none of its GETs is unanswered, by its deadline.

#ifndef OSPREY_TESTS_FUZZ_SUPPORT_WAITING_CALLERS_H_
#define OSPREY_TESTS_FUZZ_SUPPORT_WAITING_CALLERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/engine/engine.h"
#include "tests/fuzz/support/input.h"

namespace osprey::fuzz {

class WaitingCallers {
 public:
  // `keys` outlive the caller; `polls`: of the engine, so far.
  void Begin(client::ClientEngine& engine, std::vector<absl::string_view> keys, absl::Time deadline,
             absl::Time now, uint64_t polls) {
    auto caller = std::make_unique<Caller>();
    caller->deadline = deadline;
    caller->polls = polls;
    caller->keys = std::move(keys);
    caller->answers.assign(caller->keys.size(), absl::UnknownError(kNoneYet));
    caller->begun =
        engine.StartGets(caller->keys, caller->answers.data(), deadline, now, caller->unanswered);
    OSPREY_MUST(caller->begun <= caller->keys.size(), "more GETs than were asked for");
    if (caller->begun > 0) callers_.push_back(std::move(caller));
    Check(now, polls);
  }

  // After each Poll. Those that have all their answers go.
  void Check(absl::Time now, uint64_t polls) {
    for (size_t i = 0; i < callers_.size();) {
      const Caller& caller = *callers_[i];
      OSPREY_MUST(caller.unanswered <= caller.begun, "more answers than GETs");
      const bool late = now >= caller.deadline && caller.polls < polls;
      OSPREY_MUST(caller.unanswered == 0 || !late, "a caller waits beyond the deadline");
      size_t unanswered = 0;
      for (size_t get = 0; get < caller.begun; ++get)
        unanswered += caller.answers[get].status().message() == kNoneYet;
      OSPREY_MUST(unanswered == caller.unanswered, "a caller gets another count of answers");
      if (unanswered != 0) {
        ++i;
      } else {
        callers_.erase(callers_.begin() + static_cast<ptrdiff_t>(i));
      }
    }
  }

  bool empty() const { return callers_.empty(); }

 private:
  static constexpr char kNoneYet[] = "no answer yet";
  struct Caller {
    absl::Time deadline;
    uint64_t polls = 0;
    std::vector<absl::string_view> keys;
    std::vector<absl::StatusOr<Value>> answers;
    size_t begun = 0;
    size_t unanswered = 0;
  };

  std::vector<std::unique_ptr<Caller>> callers_;
};

}  // namespace osprey::fuzz

#endif  // OSPREY_TESTS_FUZZ_SUPPORT_WAITING_CALLERS_H_
