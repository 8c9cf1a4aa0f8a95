// The next operation and its key: each thread has a source, over state that the threads share.
//
// Thread rule: an OperationSource belongs to one thread; SharedKeys is thread-safe and outlives the
// sources.

#ifndef OSPREY_TOOLS_LOADGEN_WORKLOAD_OPERATIONS_H_
#define OSPREY_TOOLS_LOADGEN_WORKLOAD_OPERATIONS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "tools/loadgen/workload/distributions.h"
#include "tools/loadgen/workload/insert_counter.h"
#include "tools/loadgen/workload/random.h"
#include "tools/loadgen/workload/workload.h"

namespace osprey::loadgen {

struct SharedKeys {
  // REQUIRES: `workload` is from ParseWorkload.
  explicit SharedKeys(const Workload& workload)
      : inserted(workload.records), sequence(workload.insert_start) {}

  InsertCounter inserted;          // keys that a run inserts, behind the records
  std::atomic<uint64_t> sequence;  // of a load; of a run, that of sequential requests
};

struct Operation {
  OperationKind kind = OperationKind::kRead;
  uint64_t key = 0;          // its number
  uint64_t scan_length = 0;  // kScan
};

class OperationSource {
 public:
  enum class Phase { kLoad, kRun };

  // `workload` and `shared` must outlive this.
  OperationSource(Phase phase, const Workload& workload, SharedKeys& shared, uint64_t seed);

  // The next operation. None: a load has issued all keys, or an insert of a run must wait for
  // others to end. The end of a run's insert must be acknowledged to SharedKeys::inserted.
  std::optional<Operation> Next();

 private:
  OperationKind NextKind();
  uint64_t NextKey();
  uint64_t DrawKey();
  uint64_t NextScanLength();

  const Phase phase_;
  const Workload& workload_;
  SharedKeys& shared_;
  Random random_;
  ScrambledZipfian scrambled_;
  Zipfian latest_;
  Hotspot hotspot_;
  Exponential exponential_;
  Zipfian scan_lengths_;
};

// The name of a key, in its own memory.
class KeyName {
 public:
  static constexpr size_t kBytesMax = 256;

  // "user" and the number's hash in decimal, or the number itself if inserts are ordered, with
  // zeros before it according to zeropadding. In the ETC pool: the number, with zeros before it up
  // to the length of this key.
  KeyName(const Workload& workload, uint64_t number);

  absl::string_view view() const { return {bytes_, size_}; }

 private:
  char bytes_[kBytesMax];
  size_t size_ = 0;
};

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_WORKLOAD_OPERATIONS_H_
