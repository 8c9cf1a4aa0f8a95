// The state of a key, and the effect of an operation on it, for tests/history/linearizability.h.
//
// Thread rule: only Values has state; one thread uses it.

#ifndef OSPREY_TESTS_HISTORY_LINEARIZABILITY_MODEL_H_
#define OSPREY_TESTS_HISTORY_LINEARIZABILITY_MODEL_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "tests/history/linearizability.h"

namespace osprey {

// The state of a key. With a time to live it expires at some instant from `expires_from` to
// `expires_to`. Time to live counts from some moment of the write's call, its instant at the
// latest.
struct State {
  bool present = false;
  uint32_t value = 0;    // its number in Values
  uint64_t version = 0;  // 0: of a write whose version was not reported
  int64_t expires_from = Operation::kNever;
  int64_t expires_to = Operation::kNever;

  friend bool operator==(const State& a, const State& b) = default;
  template <typename H>
  friend H AbslHashValue(H h, const State& s) {
    return H::combine(std::move(h), s.present, s.value, s.version, s.expires_from, s.expires_to);
  }
};

// Values by number, so that states are small. All values are one if no answer contains them, and no
// append or increment can turn them into an answered value. The difference does not matter.
class Values {
 public:
  explicit Values(const std::vector<const Operation*>& history);

  uint32_t NumberOf(const std::string& value);
  // REQUIRES: not kUnseen.
  const std::string& At(uint32_t number) const { return values_[number]; }

  static constexpr uint32_t kUnseen = 0;

 private:
  bool MayMatter(absl::string_view value) const;

  bool counts_ = false;  // increments are possible
  std::set<absl::string_view> answers_;
  absl::flat_hash_map<std::string, uint32_t> numbers_;
  std::vector<std::string> values_;
};

// An operation's value and answer.
struct Numbers {
  uint32_t value = 0;
  uint32_t answer = 0;
};

// Appends each state that the operation may leave behind if the key is in `state`; none if it
// cannot have answered as it did. Its instant is not after `to`.
void Apply(const Operation& op, const Numbers& numbers, const State& state, int64_t to,
           Values& values, std::vector<State>& after);

// Whether an operation with this outcome leaves any key unchanged.
bool ChangesNothing(const Operation& op);

}  // namespace osprey

#endif  // OSPREY_TESTS_HISTORY_LINEARIZABILITY_MODEL_H_
