// The workload of a run: the operations and their shares, the choice of keys, the lengths of values
// and scans. Names, defaults and meanings are those of YCSB's CoreWorkload, as far as a store
// without fields has them:
//
//   record    One value of fieldcount × fieldlength bytes, the fields one after the other with
//             nothing between. Unless lengths are constant, it has the sum of fieldcount lengths; a
//             field is then an even share of the value.
//   read      Fetches the whole value, the smallest unit of the store.
//   update    Writes a whole new value (writeallfields=true, the default here). With
//             writeallfields=false it reads the value, changes one field and writes it back, as
//             other drivers for such stores do: two operations on the store, without a condition.
//   scan      Continues where the last scan of the same thread and slot ended, since keys have no
//             order: it ignores the chosen key and uses the length.
//
// Thread rule: plain values.

#ifndef OSPREY_TOOLS_LOADGEN_WORKLOAD_WORKLOAD_H_
#define OSPREY_TOOLS_LOADGEN_WORKLOAD_WORKLOAD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tools/loadgen/workload/properties.h"

namespace osprey::loadgen {

// In YCSB's order.
enum class OperationKind : uint8_t { kRead, kUpdate, kInsert, kScan, kReadModifyWrite };
constexpr size_t kOperationKinds = 5;
// The name in YCSB's output: "READ-MODIFY-WRITE".
absl::string_view NameOf(OperationKind kind);

enum class Requests { kUniform, kZipfian, kLatest, kHotspot, kSequential, kExponential };
enum class Lengths { kConstant, kUniform, kZipfian };
enum class Sizes { kFields, kEtc };  // kEtc: keys and values of the Facebook ETC pool

constexpr uint64_t kRecordsMax = 1'000'000'000'000;
constexpr uint64_t kThreadsMax = 1024;
constexpr double kTargetMax = 1e9;

struct Workload {
  std::string name = "custom";  // "a" … "f", "etc"

  std::array<double, kOperationKinds> shares{};  // by OperationKind; their sum is 1
  Requests requests = Requests::kUniform;
  double hot_set = 0.2;
  double hot_operations = 0.8;
  double exponential_percentile = 95;
  double exponential_fraction = 0.8571428571;

  uint64_t records = 0;
  uint64_t operations = 0;  // 0: until the duration is over
  uint64_t insert_start = 0;
  uint64_t insert_count = 0;  // of a load; in a run, the keys that uniform requests choose from
  bool ordered = false;       // keys by number instead of by its hash
  uint64_t zero_padding = 1;

  Sizes sizes = Sizes::kFields;
  uint64_t field_count = 10;
  uint64_t field_bytes = 100;  // the greatest length
  uint64_t field_bytes_min = 1;
  Lengths field_lengths = Lengths::kConstant;
  bool write_all_fields = true;
  bool read_all_fields = true;

  uint64_t scan_min = 1;
  uint64_t scan_max = 1000;
  Lengths scan_lengths = Lengths::kUniform;  // not kConstant

  uint64_t threads = 1;
  double target = 0;  // operations a second of all threads; 0: closed loop
  absl::Duration duration = absl::ZeroDuration();  // zero: no bound
  bool verify = false;
  bool status = false;
  absl::Duration status_every = absl::Seconds(1);
  std::vector<double> percentiles = {50, 95, 99, 99.9};
  // measurement.interval: the printed times; "": service times, and intended ones if there is a
  // target.
  std::string interval;

  double share(OperationKind kind) const { return shares[static_cast<size_t>(kind)]; }
  uint64_t value_bytes_max() const;
};

// The names of properties with an effect here.
absl::Span<const absl::string_view> PropertyNames();

// The properties of one of YCSB's core workloads, by its letter, or of "etc". The latter has the
// sizes of the Facebook ETC pool and its 30 GETs for each SET, with Zipf's choice of keys. Errors:
// INVALID_ARGUMENT lists the valid names.
absl::StatusOr<Properties> PresetWorkload(absl::string_view name);

// Parses and checks all properties. A known name without effect here, or of another database,
// becomes a line in `notes`. Errors: INVALID_ARGUMENT: an unknown name, with the nearest known one;
// an invalid value.
absl::StatusOr<Workload> ParseWorkload(const Properties& properties,
                                       std::vector<std::string>& notes);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_WORKLOAD_WORKLOAD_H_
