// Values that carry their own check, and its verification:
//
//   0        8        16       24
//   | check  | serial | key    | random bytes …
//
// check is XXH3 over all that follows it, serial a number that no two writes of a run share, key
// XXH3 of the key; each has 8 bytes, little-endian. A shorter value is the beginning of a stream of
// bytes that its key determines.
//
// Thread rule: a RecordMaker belongs to one thread; IsRecordOf may run on any.

#ifndef OSPREY_TOOLS_LOADGEN_WORKLOAD_RECORDS_H_
#define OSPREY_TOOLS_LOADGEN_WORKLOAD_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/loadgen/workload/distributions.h"
#include "tools/loadgen/workload/random.h"
#include "tools/loadgen/workload/workload.h"

namespace osprey::loadgen {

constexpr size_t kRecordHeadBytes = 24;

class RecordMaker {
 public:
  // `serial` and `seed` must differ between threads and processes. `workload` must outlive this.
  RecordMaker(const Workload& workload, uint64_t serial, uint64_t seed);

  // A new value of a key; valid until the next call.
  absl::string_view Make(absl::string_view key);
  // Replaces one field of `value`.
  void ChangeField(absl::string_view key, std::string& value);

 private:
  uint64_t NextLength();
  void FillRandom(char* to, size_t bytes);
  void Seal(absl::string_view key, char* value, size_t bytes);

  const Workload& workload_;
  uint64_t serial_;
  Random random_;
  Zipfian field_lengths_;
  std::vector<char> noise_;  // random bytes to copy from: random enough, and cheap
  std::vector<char> value_;
};

// Whether a RecordMaker made this value for this key.
bool IsRecordOf(absl::string_view key, absl::string_view value);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_WORKLOAD_RECORDS_H_
