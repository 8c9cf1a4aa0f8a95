// What the churn benchmark fills: a room of bounded size that takes items of any size and gives
// them back. One trace runs against each.

#ifndef OSPREY_TESTS_CHURN_SUBJECTS_H_
#define OSPREY_TESTS_CHURN_SUBJECTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace osprey::index {

class ChurnSubject {
 public:
  virtual ~ChurnSubject() = default;
  // Stores an item of `bytes` (header, key and value) under `id`, in place of the one that is
  // there. False when there is no room; nothing has changed then.
  virtual bool Write(uint64_t id, uint64_t bytes) = 0;
  // REQUIRES: `id` is stored.
  virtual void Erase(uint64_t id) = 0;
  // Time passes: what the server does between requests. Counts as time of operations.
  virtual void Turn() {}
  // What items may take of the memory given.
  virtual uint64_t capacity_bytes() const = 0;
  // A line of numbers of its own, for people.
  virtual std::string Describe() const { return ""; }
};

// `name`: "items" (ItemSpace alone), "jemalloc" (with extent hooks over one region), "table" (the
// Table as the server runs it, with growth and compaction). Null when it is none of them.
std::unique_ptr<ChurnSubject> MakeChurnSubject(absl::string_view name, uint64_t region_bytes);

}  // namespace osprey::index

#endif  // OSPREY_TESTS_CHURN_SUBJECTS_H_
