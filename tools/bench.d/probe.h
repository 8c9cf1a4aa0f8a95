// What the programs that tools/bench measures with have in common. They stay connected, read one
// command a line on standard input, and print what they measured, one JSON object a line:
//
//   get keys=i count=2000          {"count":2000,"p50_us":28.1, …}
//
// So a script can alternate between them and others, without starting a process in between.
//
// Thread rule: one thread.

#ifndef OSPREY_TOOLS_BENCH_D_PROBE_H_
#define OSPREY_TOOLS_BENCH_D_PROBE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "tools/common/histogram.h"

namespace osprey::bench {

using Json = nlohmann::ordered_json;

// "get keys=i count=2000": a word, and numbers or texts by name.
class Request {
 public:
  // Errors: INVALID_ARGUMENT for a line that is none.
  static absl::StatusOr<Request> Parse(absl::string_view line);

  const std::string& what() const { return what_; }
  // `fallback` where it is not given. error() reports what is out of range, once all are read.
  uint64_t Number(const std::string& name, uint64_t fallback, uint64_t most);
  std::string Text(const std::string& name, absl::string_view fallback);
  // Not OK: a value out of range, or a name that was not read.
  absl::Status error() const;

 private:
  std::string what_;
  std::map<std::string, std::string> given_;
  absl::Status error_;
};

// Microseconds: count, min, p50, p90, p99, max, mean.
Json Summary(const Histogram& ns);

// Answers lines until standard input ends; one that fails is answered by {"error": …} and ends it.
// Returns the process's exit status.
int Serve(const std::function<absl::StatusOr<Json>(Request&)>& answer);

// Nanoseconds of the steady clock.
uint64_t NowNs();

// The i-th of a set of keys, of 8 bytes: the set's first letter, or from 10 million on the letters
// after it, and seven digits.
std::string KeyOf(absl::string_view set, uint64_t i);
// `size` bytes that tell of which key they are, as far as they have room.
std::string ValueOf(absl::string_view key, uint64_t size);

}  // namespace osprey::bench

#endif  // OSPREY_TOOLS_BENCH_D_PROBE_H_
