// Subjects of the churn benchmark: stores of bounded size that take items of any size and free
// them. The same trace runs against each.

#ifndef OSPREY_TESTS_BENCHMARKS_CHURN_SUBJECTS_H_
#define OSPREY_TESTS_BENCHMARKS_CHURN_SUBJECTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace osprey::index {

class ChurnSubject {
 public:
  virtual ~ChurnSubject() = default;
  // Stores an item of `bytes` (header, key and value) under `id`, and replaces the present one. If
  // there is no space it returns false and changes nothing.
  virtual bool Write(uint64_t id, uint64_t bytes) = 0;
  // REQUIRES: `id` is stored.
  virtual void Erase(uint64_t id) = 0;
  // The server's work between requests. Counts as time of operations.
  virtual void Turn() {}
  // The part of the memory that items may use.
  virtual uint64_t capacity_bytes() const = 0;
  // One line of the subject's own numbers, for people.
  virtual std::string Describe() const { return ""; }
};

// `name`: "items" (ItemSpace alone), "jemalloc" (with extent hooks over one region), or "table"
// (the Table as the server runs it, with growth and compaction). Null for other names.
std::unique_ptr<ChurnSubject> MakeChurnSubject(absl::string_view name, uint64_t region_bytes);

}  // namespace osprey::index

#endif  // OSPREY_TESTS_BENCHMARKS_CHURN_SUBJECTS_H_
