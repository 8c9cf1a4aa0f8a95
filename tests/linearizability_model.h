// What a key is, and what an operation does to it, as tests/linearizability.h goes through them.
//
// Thread rule: no state but in Values, which one thread uses.

#ifndef OSPREY_TESTS_LINEARIZABILITY_MODEL_H_
#define OSPREY_TESTS_LINEARIZABILITY_MODEL_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "tests/linearizability.h"

namespace osprey {

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

// Values by number, so that states are small. Those that nobody was told, and that neither an
// append nor an increment can make one that somebody was told, are one: it does not matter which.
class Values {
 public:
  explicit Values(const std::vector<const Operation*>& history);

  uint32_t NumberOf(const std::string& value);
  // REQUIRES: not kUnseen.
  const std::string& At(uint32_t number) const { return values_[number]; }

  static constexpr uint32_t kUnseen = 0;

 private:
  bool MayMatter(absl::string_view value) const;

  bool counts_ = false;  // a number may be incremented
  std::set<absl::string_view> answers_;
  absl::flat_hash_map<std::string, uint32_t> numbers_;
  std::vector<std::string> values_;
};

// An operation's value and answer.
struct Numbers {
  uint32_t value = 0;
  uint32_t answer = 0;
};

// Appends each state that the operation may leave behind where the key is as `state` says; none if
// it cannot have answered as it did. Its instant is not after `to`.
void Apply(const Operation& op, const Numbers& numbers, const State& state, int64_t to,
           Values& values, std::vector<State>& after);

// Whether an operation with this outcome leaves the key as it is, whatever it is.
bool ChangesNothing(const Operation& op);

}  // namespace osprey

#endif  // OSPREY_TESTS_LINEARIZABILITY_MODEL_H_
